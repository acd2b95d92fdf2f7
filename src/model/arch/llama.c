/* Llama 1 to 3.x. In GGUF the name also covers Mistral and Mixtral: those files say so by a window or by experts. */
#include "model/arch.h"

const spry_arch spry_arch_llama = {
    .name = "Llama",
    .gguf = "llama",
    .hf_type = "llama",
    .gate = SPRY_GATE_SILU,
    .never_slides = true,
    .permuted_in_gguf = true,
    .gguf_normalises = true,
};
