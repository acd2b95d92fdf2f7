/* An architecture is data: one const descriptor, one file in arch/, one line in arch_table.c. All architectures are
 * computed by the same block of a device; they differ in this descriptor, in the weights that are present, and in the
 * config. */
#ifndef SPRY_MODEL_ARCH_H
#define SPRY_MODEL_ARCH_H

#include "kernels/ops.h"
#include "model/config.h"

/* Where the norms of a layer are. */
typedef enum spry_norm_places {
    SPRY_NORMS_BEFORE,   /* before attention and before feed-forward */
    SPRY_NORMS_AROUND,   /* also after attention and after feed-forward, before the residual sum */
    SPRY_NORMS_AFTER,    /* only after attention and after feed-forward, before the residual sum */
    SPRY_NORMS_PARALLEL, /* one norm before both, which read the same input; both results are added */
    SPRY_NORMS_SUM,      /* after each residual sum */
} spry_norm_places;

/* Norms of q and k. */
typedef enum spry_qk_norm {
    SPRY_QK_NORM_NONE,       /* none; or per head, if a file has such norms */
    SPRY_QK_NORM_HEAD,       /* per head, with the same weights for all heads */
    SPRY_QK_NORM_HEAD_LATER, /* per head, after RoPE */
    SPRY_QK_NORM_EACH,       /* per head, with weights for each head; only if the config says so */
    SPRY_QK_NORM_ROW,        /* one norm over all heads */
    SPRY_QK_NORM_BARE,       /* per head, without weights, in layers with RoPE; only if the config says so */
} spry_qk_norm;

/* A tensor's name in the files of an architecture. `ours`, the name inside the program, is the one that GGUF files
 * usually have. */
typedef struct spry_tensor_name {
    const char *ours;
    const char *hf;   /* Hugging Face's name; "=...": not followed by ".weight"; "%u": number of the expert; NULL: the
                       * usual name */
    const char *gguf; /* GGUF's name; "=...": not followed by a suffix; NULL: same as ours */
} spry_tensor_name;

typedef struct spry_arch {
    const char *name;    /* display name */
    const char *gguf;    /* general.architecture; NULL: GGUF files have no such models */
    const char *hf_type; /* model_type in config.json */
    /* Hugging Face names of the embedding and of the list of layers; NULL: "embed_tokens", "layers". */
    const char *hf_embedding, *hf_layers;
    const char *hf_inner;                          /* NULL; or a name before those of tensors in some layers */
    const char *hf_embedding_norm;                 /* norm of the embedding in encoders */
    const char *hf_output_norm, *gguf_output_norm; /* NULL: "norm", "output_norm" */
    spry_gate gate;
    spry_norm_places norms;
    spry_qk_norm qk_norm;
    bool layer_norm;          /* norms subtract the mean and may have biases */
    bool either_norm;         /* norms are layer norms, unless the file has an epsilon of RMS norms */
    bool ungated;             /* feed-forward is down(activation(up)), without gate */
    bool interleaved;         /* RoPE pairs are (2i, 2i + 1) even in Hugging Face files */
    bool permuted_in_gguf;    /* GGUF files have the rows of q and k permuted for RoPE pairs (2i, 2i + 1) */
    bool norm_plus_one;       /* Hugging Face files have weights w of norms that multiply by 1 + w */
    bool scaled_embedding;    /* embeddings are multiplied by sqrt(n_embd) */
    bool divides_logits;      /* logits are divided by the logit scale, not multiplied */
    bool fused_qkv;           /* q, k and v are one matrix */
    bool fused_gate_up;       /* gate and up are one matrix */
    bool gguf_normalises;     /* weights of experts are normalised when a GGUF file does not say */
    bool qkv_bias;            /* q, k and v have biases unless config.json denies it */
    bool streams;             /* several residual streams, and inputs for each layer (Gemma 3n) */
    bool v_norm;              /* values are normalised per head, without weights */
    bool sliding_two_way;     /* rows of a picture that see each other do so only in layers that slide */
    bool kinds;               /* sliding layers have heads of other sizes than full layers */
    bool keys_as_values;      /* layers without values of their own take the keys as they come out of the product */
    bool beside;              /* Gemma 4: experts beside a dense part, inputs by layer, scalars of layers */
    bool mixed_axes;          /* pairs of a rope with three axes take turns in GGUF files; otherwise axis after axis */
    bool two_ropes;           /* layers that slide have a rope of their own */
    bool latent;              /* multi-head latent attention (MLA) */
    bool indexed;             /* an indexer selects the keys that a row attends to */
    bool compressed;          /* keys are values; layers also attend to entries that join the keys of some tokens */
    bool index_rotates_pairs; /* the indexer's RoPE pairs are (2i, 2i + 1) */
    bool sinks;               /* attention has sinks */
    spry_routing routing;     /* 0: softmax */
    bool choice_bias;         /* experts are selected by their score plus a bias */
    bool experts_mixed;       /* Hugging Face files have all experts in one tensor, transposed, with gate and up rows
                               * alternating; or, not transposed, as 4-bit floats */
    bool experts_across;      /* the same, but all gate rows come before all up rows */
    bool scales_inputs; /* the inputs of experts are multiplied by the experts' weights, and their results are added
                         * without a factor */
    bool groups_by_two; /* a group of experts is rated by its best two experts, even with a softmax */
    bool norm_bias;     /* layer norms have biases */
    bool out_bias;      /* the output projection of attention has a bias if q, k and v do */
    bool router_bias;   /* routers have biases */
    bool qk_norm_flag;  /* use_qk_norm says whether q and k have norms */
    bool shared_expert; /* each row also passes through a shared expert, which has a gate */
    bool convolutions;  /* some layers have a short convolution in place of attention */
    bool delta;         /* some layers have a gated delta net in place of attention */
    bool delta_tiled;   /* in GGUF files, every n-th head of the delta net has the same key head */
    bool mamba;         /* these layers have no delta rule: Mamba-2 */
    bool delta_norms_before; /* layers with a delta net have norms before it and before feed-forward, others after
                              * both */
    bool delta_parts;        /* queries, keys and values of the delta net are three matrices */
    bool grouped_norm;       /* Mamba-2: results are normalised in groups */
    bool single_parts;       /* a layer has only attention, only a recurrent part, or only feed-forward */
    bool attention_free;     /* all layers have a recurrent part and no feed-forward */
    bool both_mixers;        /* layers with a recurrent part also have attention; both results are added */
    bool shared_blocks;      /* before some layers with a recurrent part, a block of attention and feed-forward that
                              * several layers share reads the layer's input beside the embedding */
    bool folded_scales;      /* in GGUF files, matrices are multiplied by their factors already */
    bool gated_attention;    /* q has a gate beside each head, for attention's result */
    bool attention_gate;     /* these gates come from a separate matrix */
    bool chunked;            /* sliding layers see the keys of their own block of `window` positions, in place of a
                              * window */
    bool cools_unrotated;    /* queries are scaled by position only in layers without RoPE */
    bool every_bias;         /* the output projection of attention and the feed-forward matrices have biases */
    bool tower;              /* a vision tower: it has no token embeddings, and may have a norm of its output */
    bool limited;            /* matrices may have limits of their inputs and outputs, beside NAME.linear.weight */
    bool encoder;            /* rows see the whole text; the embeddings are normalised, the output is not */
    bool inner_norms;        /* encoders: norms are before attention (but not in the first layer) and feed-forward, and
                              * the output is normalised, too */
    bool positions;          /* positions are learned: they are rows of a table */
    bool offset_positions;   /* in Hugging Face files, positions start at the padding token's id + 1 */
    bool window_needs_flag;  /* config.json's sliding_window applies only with use_sliding_window */
    bool never_slides;       /* config.json's sliding_window is ignored */
    const spry_tensor_name *names; /* names that differ from the usual ones; ends with a name of NULL. NULL: all are
                                    * usual */
    /* Sets defaults for values that a file may omit; called before the file is read. NULL: none. */
    void (*defaults)(spry_config *config, spry_config_dialect dialect);
    /* Derives values from those in the file. NULL: none. */
    void (*finish)(spry_config *config);
    /* Decides whether a layer slides, if the file does not list it. NULL: all layers slide if there is a window, and
     * layer_types is ignored. */
    bool (*slides)(const spry_config *config, uint32_t layer);
    /* Decides whether a layer has RoPE, if the file does not list it. NULL: all layers have it. */
    bool (*rotates)(const spry_config *config, uint32_t layer);
} spry_arch;

/* Names of tensors of latent attention, and the scale of its scores. */
extern const spry_tensor_name spry_latent_names[];
void spry_latent_finish(spry_config *config);

/* NULL: the architecture is unknown. */
const spry_arch *spry_arch_by_gguf(spry_view name);
const spry_arch *spry_arch_by_hf(spry_view model_type);

/* The names of all known architectures, separated by ", ", for messages. */
const char *spry_arch_gguf_names(void);
const char *spry_arch_hf_names(void);

extern const spry_arch spry_arch_llama, spry_arch_mistral, spry_arch_mixtral, spry_arch_qwen2, spry_arch_qwen2_moe,
    spry_arch_qwen3, spry_arch_qwen3_moe, spry_arch_gemma, spry_arch_gemma2, spry_arch_gemma3, spry_arch_phi3,
    spry_arch_olmo2, spry_arch_granite, spry_arch_smollm3, spry_arch_glm4, spry_arch_cohere, spry_arch_cohere2,
    spry_arch_exaone4, spry_arch_seed_oss, spry_arch_ernie4_5, spry_arch_hunyuan, spry_arch_starcoder2,
    spry_arch_granite_moe, spry_arch_glm4_moe, spry_arch_gpt_oss, spry_arch_ernie4_5_moe, spry_arch_deepseek_v2,
    spry_arch_deepseek_v3, spry_arch_gemma3n, spry_arch_bert, spry_arch_roberta, spry_arch_xlm_roberta,
    spry_arch_nomic_bert, spry_arch_modern_bert, spry_arch_gemma_embedding, spry_arch_lfm2, spry_arch_qwen3_next,
    spry_arch_ministral3, spry_arch_mistral4, spry_arch_minimax_m2, spry_arch_hunyuan_moe, spry_arch_exaone_moe,
    spry_arch_glm4_moe_lite, spry_arch_lfm2_moe, spry_arch_llama4, spry_arch_afmoe, spry_arch_cohere2_moe,
    spry_arch_gemma4, spry_arch_mimo2, spry_arch_qwen3_5, spry_arch_qwen3_5_moe, spry_arch_mamba2,
    spry_arch_granite_hybrid, spry_arch_bamba, spry_arch_olmo_hybrid, spry_arch_falcon_h1, spry_arch_nemotron_h,
    spry_arch_nemotron_h_moe, spry_arch_qwen3_vl, spry_arch_qwen2_vl, spry_arch_qwen3_tower, spry_arch_qwen2_5_tower,
    spry_arch_siglip, spry_arch_siglip_first, spry_arch_pixtral, spry_arch_pixtral_gelu, spry_arch_internvit,
    spry_arch_gemma4_tower, spry_arch_deepseek_v32, spry_arch_glm_dsa, spry_arch_zamba2, spry_arch_deepseek_v4;

#endif
