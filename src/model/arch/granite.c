/* Granite 3: Llama with multipliers of embedding, attention scores, residuals and logits. */
#include "model/arch.h"

const spry_arch spry_arch_granite = {
    .name = "Granite",
    .gguf = "granite",
    .hf_type = "granite",
    .gate = SPRY_GATE_SILU,
    .never_slides = true,
    .permuted_in_gguf = true,
    .divides_logits = true,
};
