/* An architecture is data: one const descriptor, one file in arch/, one line in arch_table.c. All of them run the block
 * of the device; they differ in this descriptor, in the weights that are present, and in the config. */
#ifndef SPRY_MODEL_ARCH_H
#define SPRY_MODEL_ARCH_H

#include "kernels/ops.h"
#include "model/config.h"

/* The places of a layer's norms. */
typedef enum spry_norm_places {
    SPRY_NORMS_BEFORE,   /* before attention and before the feed-forward part */
    SPRY_NORMS_AROUND,   /* also after each part, before it is added */
    SPRY_NORMS_AFTER,    /* only after each part, before it is added */
    SPRY_NORMS_PARALLEL, /* one, whose output both parts take; both are added */
    SPRY_NORMS_SUM,      /* after each part was added, of the sum */
} spry_norm_places;

/* Norms of q and k. */
typedef enum spry_qk_norm {
    SPRY_QK_NORM_NONE,       /* none, or per head where a file has them */
    SPRY_QK_NORM_HEAD,       /* per head, the same weights for all of them */
    SPRY_QK_NORM_HEAD_LATER, /* the same, after rope */
    SPRY_QK_NORM_EACH,       /* per head, each with its own weights; only where the config says so */
    SPRY_QK_NORM_ROW,        /* all heads together */
    SPRY_QK_NORM_BARE,       /* per head, without weights, in layers with rope; only where the config says so */
} spry_qk_norm;

/* A tensor's spelling in one architecture's files. Our own names are GGUF's usual ones. */
typedef struct spry_tensor_name {
    const char *ours;
    const char *hf;   /* "=...": without ".weight"; "%u" for the expert; NULL: the usual one */
    const char *gguf; /* "=...": without a suffix; NULL: as ours */
} spry_tensor_name;

typedef struct spry_arch {
    const char *name;    /* display name */
    const char *gguf;    /* general.architecture */
    const char *hf_type; /* config.json's model_type */
    /* Hugging Face names of the embedding and of the list of layers; NULL: "embed_tokens", "layers". */
    const char *hf_embedding, *hf_layers;
    const char *hf_embedding_norm;                 /* of encoders */
    const char *hf_output_norm, *gguf_output_norm; /* NULL: "norm", "output_norm" */
    spry_gate gate;
    spry_norm_places norms;
    spry_qk_norm qk_norm;
    bool layer_norm;       /* norms subtract the mean; they may have biases */
    bool either_norm;      /* or, where the file has an epsilon of RMS norms, they do not */
    bool ungated;          /* the feed-forward part is down(activation(up)) */
    bool interleaved;      /* rope pairs are (2i, 2i + 1) in Hugging Face files, too */
    bool permuted_in_gguf; /* GGUF files hold q and k rows permuted for rope pairs (2i, 2i + 1) */
    bool norm_plus_one;    /* Hugging Face files hold w where the norm multiplies by 1 + w */
    bool scaled_embedding; /* embeddings are multiplied by sqrt(n_embd) */
    bool divides_logits;   /* by the logit scale, instead of multiplying */
    bool fused_qkv;        /* q, k, v in one matrix */
    bool fused_gate_up;    /* gate and up in one */
    bool gguf_normalises;  /* experts' weights are renormalised when GGUF does not say */
    bool qkv_bias;         /* q, k and v have biases unless config.json says no */
    bool streams;          /* Gemma 3n's several residual streams and inputs by layer */
    bool v_norm;           /* values are normalised per head, without weights */
    bool kinds;            /* layers that slide have heads of other sizes than the others */
    bool keys_as_values;   /* layers without values of their own take the keys as they come out of the product */
    bool beside;           /* Gemma 4: experts beside a dense part, inputs by layer, scalars of layers */
    bool mixed_axes;       /* pairs of a rope with three axes take turns in GGUF files; otherwise axis after axis */
    bool two_ropes;        /* layers that slide have a rope of their own */
    bool latent;           /* multi-head latent attention */
    bool sinks;            /* attention has sinks */
    spry_routing routing;  /* 0: softmax */
    bool choice_bias;      /* experts are chosen by score plus a bias */
    bool experts_mixed;    /* Hugging Face files hold all experts in one tensor, transposed, gate and up alternating; or
                            * so as 4-bit floats, not transposed */
    bool experts_across;   /* or transposed, all gates before all ups */
    bool scales_inputs;    /* experts get rows times their weights; what they give is added as it is */
    bool groups_by_two;    /* a group of experts is as good as its best two, also by a softmax */
    bool norm_bias;        /* layer norms have biases */
    bool out_bias;         /* attention's output has a bias where q, k and v do */
    bool router_bias;      /* routers have biases */
    bool qk_norm_flag;     /* use_qk_norm says whether there are norms of q and k */
    bool shared_expert;    /* every row also goes through a shared expert, after a gate of its own */
    bool convolutions;     /* some layers have a short convolution instead of attention */
    bool delta;            /* some layers have a gated delta net instead of attention */
    bool delta_tiled;      /* GGUF files hold the delta net's heads so that every n-th one shares a key head */
    bool mamba;            /* that has no delta rule: Mamba-2 */
    bool delta_parts;      /* its queries, keys and values are three matrices */
    bool grouped_norm;     /* Mamba-2: results are normalised group by group */
    bool single_parts;     /* layers have attention, a state or a feed-forward part */
    bool attention_free;   /* layers have a state and no feed-forward part */
    bool both_mixers;      /* layers with a state have attention, too; both are added */
    bool folded_scales;    /* GGUF files hold matrices with their multipliers */
    bool gated_attention;  /* q has a gate beside each head, for what attention gives */
    bool attention_gate;   /* the same gates come from a matrix of their own */
    bool chunked;          /* layers that slide see the keys of their own block of `window` positions instead */
    bool cools_unrotated;  /* queries are scaled by position only in layers without rope */
    bool every_bias;       /* attention's output and feed-forward parts have biases */
    bool tower;            /* an encoder of pictures: it has no embeddings, and a norm of its output perhaps */
    bool encoder;          /* rows see all of their text; embeddings are normalised, the output is not */
    bool positions;        /* positions are learned: rows of a table */
    bool offset_positions; /* counted from the padding token's id + 1 on in Hugging Face files */
    bool window_needs_flag;        /* config.json's sliding_window applies only with use_sliding_window */
    bool never_slides;             /* config.json's sliding_window is ignored */
    const spry_tensor_name *names; /* its own spellings, up to one without a name; NULL: the usual ones */
    /* Sets defaults for values that a file may omit, before it is read. NULL: none. */
    void (*defaults)(spry_config *config, spry_config_dialect dialect);
    /* Derives values from those read. NULL: none. */
    void (*finish)(spry_config *config);
    /* Whether a layer slides when the file does not list it. NULL: all do, if there is a window, and layer_types is
     * ignored. */
    bool (*slides)(const spry_config *config, uint32_t layer);
    /* Whether a layer has rope when the file does not list it. NULL: all do. */
    bool (*rotates)(const spry_config *config, uint32_t layer);
} spry_arch;

/* Names of tensors of latent attention, and the scale of its scores. */
extern const spry_tensor_name spry_latent_names[];
void spry_latent_finish(spry_config *config);

/* NULL: unknown. */
const spry_arch *spry_arch_by_gguf(spry_view name);
const spry_arch *spry_arch_by_hf(spry_view model_type);

/* The known ones, separated by ", ", for messages. */
const char *spry_arch_gguf_names(void);
const char *spry_arch_hf_names(void);

extern const spry_arch spry_arch_llama, spry_arch_mistral, spry_arch_mixtral, spry_arch_qwen2, spry_arch_qwen2_moe,
    spry_arch_qwen3, spry_arch_qwen3_moe, spry_arch_gemma, spry_arch_gemma2, spry_arch_gemma3, spry_arch_phi3,
    spry_arch_olmo2, spry_arch_granite, spry_arch_smollm3, spry_arch_glm4, spry_arch_cohere, spry_arch_cohere2,
    spry_arch_exaone4, spry_arch_seed_oss, spry_arch_ernie4_5, spry_arch_hunyuan, spry_arch_starcoder2,
    spry_arch_granite_moe, spry_arch_glm4_moe, spry_arch_gpt_oss, spry_arch_ernie4_5_moe, spry_arch_deepseek_v2,
    spry_arch_deepseek_v3, spry_arch_gemma3n, spry_arch_bert, spry_arch_roberta, spry_arch_xlm_roberta,
    spry_arch_nomic_bert, spry_arch_gemma_embedding, spry_arch_lfm2, spry_arch_qwen3_next, spry_arch_ministral3,
    spry_arch_mistral4, spry_arch_minimax_m2, spry_arch_hunyuan_moe, spry_arch_exaone_moe, spry_arch_glm4_moe_lite,
    spry_arch_lfm2_moe, spry_arch_llama4, spry_arch_afmoe, spry_arch_cohere2_moe, spry_arch_gemma4, spry_arch_mimo2,
    spry_arch_qwen3_5, spry_arch_qwen3_5_moe, spry_arch_mamba2, spry_arch_granite_hybrid, spry_arch_bamba,
    spry_arch_falcon_h1, spry_arch_nemotron_h, spry_arch_nemotron_h_moe, spry_arch_qwen3_vl,
    spry_arch_qwen2_vl, spry_arch_qwen3_tower, spry_arch_qwen2_5_tower, spry_arch_siglip, spry_arch_siglip_first,
    spry_arch_pixtral, spry_arch_pixtral_gelu;

#endif
