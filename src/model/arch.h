/* An architecture is data: one const descriptor, one file in arch/, one line in arch_table.c. All of them run the block
 * of the device; they differ in this descriptor, in the weights that are present, and in the config. */
#ifndef SPRY_MODEL_ARCH_H
#define SPRY_MODEL_ARCH_H

#include "kernels/ops.h"
#include "model/config.h"

typedef struct spry_arch {
    const char *name;    /* display name */
    const char *gguf;    /* general.architecture */
    const char *hf_type; /* config.json's model_type */
    spry_gate gate;
    bool permuted_in_gguf;  /* GGUF files hold q and k rows permuted for rope pairs (2i, 2i + 1) */
    bool norm_plus_one;     /* Hugging Face files hold w where the norm multiplies by 1 + w */
    bool scaled_embedding;  /* embeddings are multiplied by sqrt(n_embd) */
    bool sandwich_norms;    /* norms also after attention and after the feed-forward part */
    bool fused;             /* q, k, v in one matrix, gate and up in one */
    bool gguf_normalises;   /* experts' weights are renormalised when GGUF does not say */
    bool qk_norms;          /* q and k are normalised per head: the norms must be there */
    bool qkv_bias;          /* q, k and v have biases unless config.json says no */
    bool shared_expert;     /* every row also goes through a shared expert */
    bool window_needs_flag; /* config.json's sliding_window applies only with use_sliding_window */
    bool never_slides;      /* config.json's sliding_window is ignored */
    /* Sets defaults for values that a file may omit, before it is read. NULL: none. */
    void (*defaults)(spry_config *config, spry_config_dialect dialect);
    /* Derives values from those read. NULL: none. */
    void (*finish)(spry_config *config);
    /* Whether a layer slides when the file does not list it. NULL: all do, if there is a window, and layer_types is
     * ignored. */
    bool (*slides)(const spry_config *config, uint32_t layer);
} spry_arch;

/* NULL: unknown. */
const spry_arch *spry_arch_by_gguf(spry_view name);
const spry_arch *spry_arch_by_hf(spry_view model_type);

/* The known ones, separated by ", ", for messages. */
const char *spry_arch_gguf_names(void);
const char *spry_arch_hf_names(void);

extern const spry_arch spry_arch_llama, spry_arch_mistral, spry_arch_mixtral, spry_arch_qwen2, spry_arch_qwen2_moe,
    spry_arch_qwen3, spry_arch_qwen3_moe, spry_arch_gemma, spry_arch_gemma2, spry_arch_gemma3, spry_arch_phi3;

#endif
