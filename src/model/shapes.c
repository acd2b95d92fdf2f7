/* Shapes of models, and files of a shape with random weights. */
#include "model/shapes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/gguf_export.h"
#include "tokenizer/tokenizer_gguf.h"

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

/* The table of shapes, and models of a shape without weights. */

const unsigned char spry_unmade[1] = {0};

const char *const spry_shape_names[] = {
    "qwen3-0.6b",      "qwen3-1.7b",   "qwen3-4b",        "qwen3-8b",    "qwen3-14b",      "qwen3-32b",
    "qwen3-30b-a3b",   "qwen2.5-0.5b", "qwen2.5-1.5b",    "qwen2.5-3b",  "qwen2.5-7b",     "llama3.2-1b",
    "llama3.2-3b",     "llama3.1-8b",  "llama3.1-70b",    "mistral-7b",  "mixtral-8x7b",   "gemma-2b",
    "gemma-7b",        "gemma2-2b",    "gemma2-9b",       "gemma2-27b",  "gemma3-1b",      "gemma3-4b",
    "gemma3-12b",      "gemma3-27b",   "phi3-mini",       "phi4",        "gpt-oss-20b",    "gpt-oss-120b",
    "glm4-9b",         "glm4-32b",     "ministral3-8b",   "gemma4-31b",  "gemma4-26b-a4b", "gemma4-e4b",
    "qwen3.5-0.8b",    "qwen3.5-4b",   "qwen3.6-35b-a3b", "qwen3.8-27b", "granite4-micro", "nemotron3-nano",
    "qwen3-moe-small", "tiny",         "tiny-moe",        NULL};

#define SIZES(layers, embd, ff, heads, kv_heads, head, vocab, context)                                                 \
    .n_layers = layers, .n_embd = embd, .n_ff = ff, .n_heads = heads, .n_kv_heads = kv_heads, .head_dim = head,        \
    .n_vocab = vocab, .n_context = context
#define EXPERTS(all, used, ff) .n_experts = all, .n_experts_used = used, .n_expert_ff = ff, .normalise_experts = true

#define QWEN3     .arch = &spry_arch_qwen3, .norm_eps = 1e-6f, .rope = {.theta = 1e6f, .factor = 1}
#define QWEN3_MOE .arch = &spry_arch_qwen3_moe, .norm_eps = 1e-6f, .rope = {.theta = 1e6f, .factor = 1}
#define QWEN2     .arch = &spry_arch_qwen2, .norm_eps = 1e-6f, .rope = {.theta = 1e6f, .factor = 1}
#define LLAMA3(by)                                                                                                     \
    .arch = &spry_arch_llama, .norm_eps = 1e-5f,                                                                       \
    .rope = {.kind = SPRY_ROPE_LLAMA3,                                                                                 \
             .theta = 5e5f,                                                                                            \
             .factor = by,                                                                                             \
             .low_freq_factor = 1,                                                                                     \
             .high_freq_factor = 4,                                                                                    \
             .original_context = 8192}

#define PLAIN_ROPE(base) .rope = {.theta = base, .factor = 1}
#define MISTRAL(kind)    .arch = &spry_arch_##kind, .norm_eps = 1e-5f, PLAIN_ROPE(1e6f)
#define GEMMA            .arch = &spry_arch_gemma, .norm_eps = 1e-6f, PLAIN_ROPE(1e4f), .tied = true
#define GEMMA2(scalar)                                                                                                 \
    .arch = &spry_arch_gemma2, .norm_eps = 1e-6f, PLAIN_ROPE(1e4f), .tied = true, .window = 4096, .attn_softcap = 50,  \
    .final_softcap = 30, .query_scalar = scalar
#define GEMMA3(sees, scalar, by)                                                                                       \
    .arch = &spry_arch_gemma3, .norm_eps = 1e-6f, .tied = true, .window = sees, .window_layers = 6,                    \
    .query_scalar = scalar, .rope_sliding = {.theta = 1e4f, .factor = 1},                                              \
    .rope = {.kind = by > 1 ? SPRY_ROPE_LINEAR : SPRY_ROPE_DEFAULT, .theta = 1e6f, .factor = by}
#define GEMMA4(sees, kv_heads, head)                                                                                   \
    .arch = &spry_arch_gemma4, .norm_eps = 1e-6f, .tied = true, .window = sees, .window_layers = 6,                    \
    .final_softcap = 30, .slide = {kv_heads, head, head}, .rope_sliding = {.theta = 1e4f, .factor = 1},                \
    .rope = {.kind = SPRY_ROPE_PROPORTIONAL, .theta = 1e6f, .factor = 1, .share = 0.25f}
#define QWEN3_5(kind, value_heads)                                                                                     \
    .arch = &spry_arch_##kind, .norm_eps = 1e-6f, PLAIN_ROPE(1e7f), .rope_dim = 64, .n_conv = 4,                       \
    .attention_interval = 4, .n_delta_keys = 16, .n_delta_heads = value_heads, .delta_key_dim = 128,                   \
    .delta_value_dim = 128
#define MAMBA2(kind, heads, groups)                                                                                    \
    .arch = &spry_arch_##kind, .norm_eps = 1e-5f, PLAIN_ROPE(1e4f), .unrotated = true, .n_conv = 4,                    \
    .n_delta_heads = heads, .n_delta_keys = groups, .delta_key_dim = 128, .delta_value_dim = 64
#define MINISTRAL3                                                                                                     \
    .arch = &spry_arch_ministral3, .norm_eps = 1e-5f, .temperature_scale = 0.1f,                                       \
    .rope = {.kind = SPRY_ROPE_YARN,                                                                                   \
             .theta = 1e6f,                                                                                            \
             .factor = 16,                                                                                             \
             .beta_fast = 32,                                                                                          \
             .beta_slow = 1,                                                                                           \
             .attention_factor = 1,                                                                                    \
             .truncate = true,                                                                                         \
             .original_context = 16384}
#define PHI(base) .arch = &spry_arch_phi3, .norm_eps = 1e-5f, PLAIN_ROPE(base)
#define GLM4      .arch = &spry_arch_glm4, .norm_eps = 1e-5f, PLAIN_ROPE(1e4f), .rope_dim = 64
#define GPT_OSS                                                                                                        \
    .arch = &spry_arch_gpt_oss, .norm_eps = 1e-5f, .window = 128,                                                      \
    .rope = {.kind = SPRY_ROPE_YARN,                                                                                   \
             .theta = 150000,                                                                                          \
             .factor = 32,                                                                                             \
             .beta_fast = 32,                                                                                          \
             .beta_slow = 1,                                                                                           \
             .original_context = 4096}

#define NAMED(called, cuts) .name = called, .pattern = cuts
static const spry_shape shapes[] = {
    {NAMED("qwen3-0.6b", "qwen2"), .config = {QWEN3, SIZES(28, 1024, 3072, 16, 8, 128, 151936, 40960), .tied = true}},
    {NAMED("qwen3-1.7b", "qwen2"), .config = {QWEN3, SIZES(28, 2048, 6144, 16, 8, 128, 151936, 40960), .tied = true}},
    {NAMED("qwen3-4b", "qwen2"), .config = {QWEN3, SIZES(36, 2560, 9728, 32, 8, 128, 151936, 40960), .tied = true}},
    {NAMED("qwen3-8b", "qwen2"), .config = {QWEN3, SIZES(36, 4096, 12288, 32, 8, 128, 151936, 40960)}},
    {NAMED("qwen3-14b", "qwen2"), .config = {QWEN3, SIZES(40, 5120, 17408, 40, 8, 128, 151936, 40960)}},
    {NAMED("qwen3-32b", "qwen2"), .config = {QWEN3, SIZES(64, 5120, 25600, 64, 8, 128, 151936, 40960)}},
    {NAMED("qwen3-30b-a3b", "qwen2"),
     .config = {QWEN3_MOE, SIZES(48, 2048, 6144, 32, 4, 128, 151936, 40960), EXPERTS(128, 8, 768)}},
    {NAMED("qwen2.5-0.5b", "qwen2"), .biased = true,
     .config = {QWEN2, SIZES(24, 896, 4864, 14, 2, 64, 151936, 32768), .tied = true}},
    {NAMED("qwen2.5-1.5b", "qwen2"), .biased = true,
     .config = {QWEN2, SIZES(28, 1536, 8960, 12, 2, 128, 151936, 32768), .tied = true}},
    {NAMED("qwen2.5-3b", "qwen2"), .biased = true,
     .config = {QWEN2, SIZES(36, 2048, 11008, 16, 2, 128, 151936, 32768), .tied = true}},
    {NAMED("qwen2.5-7b", "qwen2"), .biased = true,
     .config = {QWEN2, SIZES(28, 3584, 18944, 28, 4, 128, 152064, 32768)}},
    {NAMED("llama3.2-1b", "llama-bpe"),
     .config = {LLAMA3(32), SIZES(16, 2048, 8192, 32, 8, 64, 128256, 131072), .tied = true}},
    {NAMED("llama3.2-3b", "llama-bpe"),
     .config = {LLAMA3(32), SIZES(28, 3072, 8192, 24, 8, 128, 128256, 131072), .tied = true}},
    {NAMED("llama3.1-8b", "llama-bpe"), .config = {LLAMA3(8), SIZES(32, 4096, 14336, 32, 8, 128, 128256, 131072)}},
    {NAMED("llama3.1-70b", "llama-bpe"), .config = {LLAMA3(8), SIZES(80, 8192, 28672, 64, 8, 128, 128256, 131072)}},
    {NAMED("mistral-7b", "default"), .config = {MISTRAL(mistral), SIZES(32, 4096, 14336, 32, 8, 128, 32768, 32768)}},
    {NAMED("mixtral-8x7b", "default"),
     .config = {MISTRAL(mixtral), SIZES(32, 4096, 14336, 32, 8, 128, 32000, 32768), EXPERTS(8, 2, 14336)}},
    {NAMED("gemma-2b", "default"), .config = {GEMMA, SIZES(18, 2048, 16384, 8, 1, 256, 256000, 8192)}},
    {NAMED("gemma-7b", "default"), .config = {GEMMA, SIZES(28, 3072, 24576, 16, 16, 256, 256000, 8192)}},
    {NAMED("gemma2-2b", "default"), .config = {GEMMA2(256), SIZES(26, 2304, 9216, 8, 4, 256, 256000, 8192)}},
    {NAMED("gemma2-9b", "default"), .config = {GEMMA2(256), SIZES(42, 3584, 14336, 16, 8, 256, 256000, 8192)}},
    {NAMED("gemma2-27b", "default"), .config = {GEMMA2(144), SIZES(46, 4608, 36864, 32, 16, 128, 256000, 8192)}},
    {NAMED("gemma3-1b", "default"), .config = {GEMMA3(512, 256, 1), SIZES(26, 1152, 6912, 4, 1, 256, 262144, 32768)}},
    {NAMED("gemma3-4b", "default"),
     .config = {GEMMA3(1024, 256, 8), SIZES(34, 2560, 10240, 8, 4, 256, 262208, 131072)}},
    {NAMED("gemma3-12b", "default"),
     .config = {GEMMA3(1024, 256, 8), SIZES(48, 3840, 15360, 16, 8, 256, 262208, 131072)}},
    {NAMED("gemma3-27b", "default"),
     .config = {GEMMA3(1024, 168, 8), SIZES(62, 5376, 21504, 32, 16, 128, 262208, 131072)}},
    {NAMED("phi3-mini", "default"), .config = {PHI(1e4f), SIZES(32, 3072, 8192, 32, 32, 96, 32064, 4096)}},
    {NAMED("phi4", "default"), .config = {PHI(250000), SIZES(40, 5120, 17920, 40, 10, 128, 100352, 16384)}},
    {NAMED("gpt-oss-20b", "gpt-4o"), .biased = true,
     .config = {GPT_OSS, SIZES(24, 2880, 2880, 64, 8, 64, 201088, 131072), EXPERTS(32, 4, 2880)}},
    {NAMED("gpt-oss-120b", "gpt-4o"), .biased = true,
     .config = {GPT_OSS, SIZES(36, 2880, 2880, 64, 8, 64, 201088, 131072), EXPERTS(128, 4, 2880)}},
    {NAMED("glm4-9b", "glm4"), .biased = true, .config = {GLM4, SIZES(40, 4096, 13696, 32, 2, 128, 151552, 32768)}},
    {NAMED("glm4-32b", "glm4"), .config = {GLM4, SIZES(61, 6144, 23040, 48, 2, 128, 151552, 32768)}},
    {NAMED("ministral3-8b", "tekken"), .config = {MINISTRAL3, SIZES(34, 4096, 14336, 32, 8, 128, 131072, 262144)}},
    {NAMED("gemma4-31b", "default"),
     .config = {GEMMA4(1024, 16, 256), SIZES(60, 5376, 21504, 32, 4, 512, 262144, 262144), .keys_as_values = true}},
    {NAMED("gemma4-26b-a4b", "default"),
     .config = {GEMMA4(1024, 8, 256), SIZES(30, 2816, 2112, 16, 2, 512, 262144, 262144), EXPERTS(128, 8, 704),
                .keys_as_values = true}},
    {NAMED("gemma4-e4b", "default"), .config = {GEMMA4(512, 2, 256), SIZES(42, 2560, 10240, 8, 2, 512, 262144, 131072),
                                                .n_layer_embd = 256, .n_shared_kv = 18}},
    {NAMED("qwen3.5-0.8b", "qwen35"),
     .config = {QWEN3_5(qwen3_5, 16), SIZES(24, 1024, 3584, 8, 2, 256, 248320, 262144), .tied = true}},
    {NAMED("qwen3.5-4b", "qwen35"),
     .config = {QWEN3_5(qwen3_5, 32), SIZES(32, 2560, 9216, 16, 4, 256, 248320, 262144), .tied = true}},
    {NAMED("qwen3.6-35b-a3b", "qwen35"),
     .config = {QWEN3_5(qwen3_5_moe, 32), SIZES(40, 2048, 512, 16, 2, 256, 248320, 262144), EXPERTS(256, 8, 512),
                .n_shared_ff = 512}},
    {NAMED("qwen3.8-27b", "qwen35"),
     .config = {QWEN3_5(qwen3_5, 48), SIZES(64, 5120, 17408, 24, 4, 256, 248320, 262144)}},
    {NAMED("granite4-micro", "dbrx"), .kinds = "MMMMM*MMMMMMMMM*MMMMMMMMM*MMMMMMMMM*MMMM",
     .config = {MAMBA2(granite_hybrid, 64, 1), SIZES(40, 2048, 8192, 32, 8, 64, 100352, 131072), .tied = true,
                .attention_scale = 0.015625f, .embedding_scale = 12, .residual_scale = 0.22f, .logit_scale = 8}},
    {NAMED("nemotron3-nano", "pixtral"), .kinds = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
     .config = {MAMBA2(nemotron_h_moe, 64, 8), SIZES(52, 2688, 1856, 32, 2, 128, 131072, 262144), EXPERTS(128, 6, 1856),
                .n_shared = 1, .n_shared_ff = 3712, .routed_scale = 2.5f}},
    /* Not a published model: a small version of Qwen3-30B-A3B for small machines. */
    {NAMED("qwen3-moe-small", "qwen2"),
     .config = {QWEN3_MOE, SIZES(16, 1024, 3072, 16, 4, 128, 151936, 40960), EXPERTS(32, 4, 512), .tied = true},
     .invented = true},
    {NAMED("tiny", "qwen2"), .config = {QWEN3, SIZES(2, 256, 512, 4, 2, 64, 1024, 1024), .tied = true},
     .invented = true},
    {NAMED("tiny-moe", "qwen2"), .config = {QWEN3_MOE, SIZES(2, 256, 512, 4, 2, 64, 1024, 1024), EXPERTS(8, 2, 256)},
     .invented = true},
};

/* Tools and calls as Qwen3 has them. */
static const char chat_template[] =
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{% if loop.first and tools %}\n\n# Tools\n"
    "{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}{% endif %}"
    "{% if message.tool_calls %}{% for call in message.tool_calls %}\n<tool_call>\n"
    "{\"name\": \"{{ call.function.name }}\", \"arguments\": {{ call.function.arguments | tojson }}}"
    "\n</tool_call>{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

const spry_shape *spry_shape_find(const char *name)
{
    for (size_t i = 0; i < SPRY_COUNT(shapes); i++)
        if (strcmp(shapes[i].name, name) == 0)
            return &shapes[i];
    return NULL;
}

/* ---- a model of a shape ------------------------------------------------------------------------------------------ */

typedef struct builder {
    spry_model *model;
    const spry_shape *shape;
    bool failed;        /* memory was short */
    const float *zeros; /* [n_zeros], which all biases share */
    size_t n_zeros;
} builder;

static spry_weight matrix(size_t n_out, size_t n_in)
{
    return (spry_weight){
        .data = spry_unmade, .type = SPRY_F32, .n_out = n_out, .n_in = n_in, .row_bytes = n_in * sizeof(float)};
}

static float *vector(builder *b, size_t n, float value)
{
    float *values = spry_arena_alloc(&b->model->arena, n, sizeof *values);
    b->failed = b->failed || !values;
    for (size_t i = 0; values && i < n; i++)
        values[i] = value;
    return values;
}

static spry_weight biased_matrix(builder *b, size_t n_out, size_t n_in, bool biased)
{
    spry_weight w = matrix(n_out, n_in);
    if (biased && n_out > b->n_zeros) {
        b->zeros = vector(b, n_out, 0);
        b->n_zeros = n_out;
    }
    w.bias = biased ? b->zeros : NULL;
    return w;
}

/* gpt-oss's experts have biases, so they are added for its architecture. */
static spry_weight *experts(builder *b, size_t n_out, size_t n_in)
{
    bool biased = b->model->config.arch->experts_mixed;
    size_t count = b->model->config.n_experts;
    spry_weight *list = spry_arena_alloc(&b->model->arena, count, sizeof *list);
    b->failed = b->failed || !list;
    for (size_t i = 0; list && i < count; i++)
        list[i] = biased_matrix(b, n_out, n_in, biased);
    return list;
}

/* A gated delta net, or Mamba-2. */
static void build_state(builder *b, spry_layer *l)
{
    const spry_config *c = &b->model->config;
    size_t n = c->n_embd, heads = c->n_delta_heads, inner = heads * c->delta_value_dim,
           mixed = spry_config_delta_mixed(c);
    bool mamba = c->arch->mamba;
    l->delta_qkv[0] = matrix(mixed, n);
    l->delta_gate = matrix(inner, n);
    l->delta_a = matrix(heads, n);
    l->delta_out = matrix(n, inner);
    l->delta_conv = vector(b, mixed * c->n_conv, 1 / sqrtf((float)c->n_conv));
    l->delta_fading = vector(b, heads, -1);
    l->delta_dt = vector(b, heads, 0);
    l->delta_norm = vector(b, mamba ? inner : c->delta_value_dim, 1);
    if (mamba) {
        l->delta_conv_bias = vector(b, mixed, 0);
        l->delta_skip = vector(b, heads, 1);
    } else {
        l->delta_b = matrix(heads, n);
    }
}

static void build_attention(builder *b, spry_layer *l, uint32_t layer)
{
    const spry_config *c = &b->model->config;
    const bool biased = b->shape->biased;
    spry_heads h = spry_config_heads(c, layer);
    size_t n_q = (size_t)c->n_heads * h.head_dim, n_kv = (size_t)h.n_kv_heads * h.head_dim;
    if (c->arch->qk_norm) {
        l->q_norm = vector(b, h.head_dim, 1);
        l->k_norm = vector(b, h.head_dim, 1);
    }
    l->q = biased_matrix(b, c->arch->gated_attention ? 2 * n_q : n_q, c->n_embd, biased);
    if (c->kv_layer[layer] == layer) {
        l->k = biased_matrix(b, n_kv, c->n_embd, biased);
        if (!c->keys_as_values || c->sliding[layer])
            l->v = biased_matrix(b, n_kv, c->n_embd, biased);
    }
    l->o = biased_matrix(b, c->n_embd, n_q, biased && c->arch->out_bias);
    if (c->arch->sinks)
        l->sinks = vector(b, c->n_heads, 0);
}

/* Gemma 4: norms around experts beside a dense part, the layer's input and scalar. */
static void build_beside(builder *b, spry_layer *l)
{
    const spry_config *c = &b->model->config;
    if (c->n_experts) {
        l->router_norm = vector(b, c->n_embd, 1 / sqrtf((float)c->n_embd));
        l->expert_norm = vector(b, c->n_embd, 1);
        l->expert_post_norm = vector(b, c->n_embd, 1);
        l->dense_post_norm = vector(b, c->n_embd, 1);
        l->expert_scale = vector(b, c->n_experts, 1);
    }
    l->output_scale = vector(b, 1, 1);
    l->side = c->n_layer_embd ? spry_arena_alloc(&b->model->arena, 1, sizeof *l->side) : NULL;
    b->failed = b->failed || (c->n_layer_embd && !l->side);
    if (!l->side)
        return;
    l->side->gate = matrix(c->n_layer_embd, c->n_embd);
    l->side->proj = matrix(c->n_embd, c->n_layer_embd);
    l->side->post_norm = vector(b, c->n_embd, 1);
}

static void build_experts(builder *b, spry_layer *l)
{
    const spry_config *c = &b->model->config;
    size_t n = c->n_embd, shared = c->n_shared_ff;
    l->router = biased_matrix(b, c->n_experts, n, c->arch->router_bias);
    if (!c->arch->ungated)
        l->expert_gate = experts(b, c->n_expert_ff, n);
    l->expert_up = experts(b, c->n_expert_ff, n);
    l->expert_down = experts(b, n, c->n_expert_ff);
    if (c->arch->choice_bias)
        l->choice_bias = vector(b, c->n_experts, 0);
    if (!shared)
        return;
    if (c->arch->shared_expert)
        l->shared_router = matrix(1, n);
    if (!c->arch->ungated)
        l->shared_gate = matrix(shared, n);
    l->shared_up = matrix(shared, n);
    l->shared_down = matrix(n, shared);
}

static void build_layer(builder *b, spry_layer *l, uint32_t layer)
{
    const spry_config *c = &b->model->config;
    bool mixes = c->kinds[layer] != SPRY_LAYER_FEEDS, feeds = spry_config_feeds(c, layer);
    if (mixes)
        l->attn_norm = vector(b, c->n_embd, 1);
    if (feeds)
        l->ffn_norm = vector(b, c->n_embd, 1);
    if (c->arch->norms == SPRY_NORMS_AROUND) {
        l->attn_post_norm = vector(b, c->n_embd, 1);
        l->ffn_post_norm = vector(b, c->n_embd, 1);
    }
    if (spry_config_recurs(c, layer))
        build_state(b, l);
    if (spry_config_attends(c, layer))
        build_attention(b, l, layer);
    if (feeds && c->n_experts)
        build_experts(b, l);
    if (c->arch->beside)
        build_beside(b, l);
    if (feeds && (!c->n_experts || c->arch->beside)) {
        l->gate = matrix(c->n_ff, c->n_embd);
        l->up = matrix(c->n_ff, c->n_embd);
        l->down = matrix(c->n_embd, c->n_ff);
    }
}

static void build_weights(builder *b)
{
    const spry_config *c = &b->model->config;
    spry_weights *w = &b->model->weights;
    w->embedding = w->output = matrix(c->n_vocab, c->n_embd);
    w->output_norm = vector(b, c->n_embd, 1);
    if (c->n_layer_embd) {
        size_t all = (size_t)c->n_layers * c->n_layer_embd;
        w->layer_embedding = matrix(c->n_vocab, all);
        w->layer_projection = matrix(all, c->n_embd);
        w->layer_norm = vector(b, c->n_layer_embd, 1);
    }
    w->layers = spry_arena_alloc(&b->model->arena, c->n_layers, sizeof *w->layers);
    b->failed = b->failed || !w->layers;
    for (uint32_t i = 0; w->layers && i < c->n_layers; i++)
        build_layer(b, &w->layers[i], i);
}

/* Values of fields that a shape leaves out; 0 means that there is no factor. */
static void set_factors(spry_config *c)
{
    float *const ones[] = {&c->value_scale,        &c->routed_scale,        &c->embedding_scale, &c->residual_scale,
                           &c->logit_scale,        &c->beta_scale,          &c->gate_scale,      &c->down_scale,
                           &c->attention_in_scale, &c->attention_out_scale, &c->key_scale,       &c->state_in_scale,
                           &c->state_out_scale,    &c->state_scales[0],     &c->state_scales[1], &c->state_scales[2],
                           &c->state_scales[3],    &c->state_scales[4]};
    for (size_t i = 0; i < SPRY_COUNT(ones); i++)
        *ones[i] = *ones[i] != 0 ? *ones[i] : 1;
    c->time_limit[1] = INFINITY;
}

/* Layers of the kinds that the shape lists. */
static void set_kinds(spry_config *c, const char *kinds)
{
    for (uint32_t i = 0; kinds && i < c->n_layers && kinds[i]; i++) {
        c->convolves[i] = kinds[i] == 'M';
        if (c->arch->single_parts)
            c->kinds[i] = kinds[i] == 'E' ? SPRY_LAYER_FEEDS : SPRY_LAYER_MIXES;
    }
    spry_config_sort_layers(c);
}

spry_status spry_shape_model(spry_model **out, const spry_shape *shape, const char *name, spry_error *error)
{
    *out = NULL;
    builder b = {.model = calloc(1, sizeof *b.model), .shape = shape};
    spry_model *m = b.model;
    if (!m)
        return spry_fail_memory(error, "a model", sizeof *m);
    spry_arena_init(&m->arena);
    m->sampling = (spry_sampling_hints){NAN, NAN, NAN, NAN, NAN};
    m->config = shape->config;
    if (!m->config.arch->two_ropes)
        m->config.rope_sliding = m->config.rope;
    m->config.qkv_bias = shape->biased;
    m->config.interleaved = m->config.arch->interleaved;
    m->config.routing = m->config.arch->routing ? m->config.arch->routing : SPRY_ROUTING_SOFTMAX;
    set_factors(&m->config);
    m->name = spry_arena_copy(&m->arena, spry_view_of(name));
    spry_status status = m->name ? SPRY_OK : spry_fail_memory(error, "a model's name", strlen(name));
    if (!status)
        status = spry_config_finish(&m->config, shape->name, &m->arena, error);
    if (!status)
        set_kinds(&m->config, shape->kinds);
    if (!status)
        status = spry_chat_template_create(&m->chat, SPRY_VIEW(chat_template), error);
    if (!status) {
        build_weights(&b);
        if (b.failed)
            status = spry_fail_memory(error, "a model's list of tensors", m->arena.total);
    }
    if (status)
        spry_model_close(m);
    else
        *out = m;
    return status;
}

/* ---- random weights ---------------------------------------------------------------------------------------------- */

/* Encoding every weight of a large model would take minutes. So only some blocks (a "deck") are encoded for each type
 * and width, and tensors are filled with blocks drawn from it: every block is one that an encoder makes, and their
 * order is random. */

enum { DECK_VALUES = 1 << 16, CARD_VALUES = 32, DECKS_MAX = 32, BATCH_BYTES = 4 << 20 };

/* The encoded blocks of a type. A card is a run of whole blocks. */
typedef struct deck {
    spry_dtype type;
    size_t n_in; /* width of the rows, on which the magnitude of the weights depends */
    size_t card_values, card_bytes, n_cards;
    unsigned char *cards;
} deck;

typedef struct dealer {
    const spry_random_model *job;
    const spry_ops *ops;
    spry_gguf_writer *writer;
    deck decks[DECKS_MAX];
    size_t n_decks;
    unsigned char *batch; /* [BATCH_BYTES], or one row where that is larger */
    size_t batch_bytes;
    size_t done, total;
    spry_error *error;
} dealer;

/* ---- random numbers (splitmix64) --------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t next(uint64_t *state)
{
    return mix(*state += 0x9e3779b97f4a7c15u);
}

/* Approximately a normal distribution of variance 1: the sum of four uniform numbers. */
static float bell(uint64_t *state)
{
    uint64_t bits = next(state);
    int32_t sum = 0;
    for (int i = 0; i < 4; i++, bits >>= 16)
        sum += (int32_t)(bits & 0xffff) - 0x8000;
    return (float)sum * (sqrtf(3.0f) / 65536.0f);
}

/* ---- decks ------------------------------------------------------------------------------------------------------- */

static spry_status shuffle(deck *d, const spry_ops *ops, spry_error *error)
{
    size_t block = spry_dtype_block(d->type);
    d->card_values = block > CARD_VALUES ? block : CARD_VALUES;
    while (d->n_in % d->card_values)
        d->card_values /= 2;
    d->n_cards = DECK_VALUES / d->card_values;
    d->card_bytes = d->card_values / block * spry_dtype_bytes(d->type);
    d->cards = malloc(d->n_cards * d->card_bytes);
    float *values = malloc(DECK_VALUES * sizeof *values);
    spry_status status = SPRY_OK;
    if (!d->cards || !values) {
        status = spry_fail_memory(error, "random weights", DECK_VALUES * sizeof *values);
    } else {
        uint64_t state = mix(d->n_in) ^ (uint64_t)d->type;
        float size = 1 / sqrtf((float)d->n_in);
        for (size_t i = 0; i < DECK_VALUES; i++)
            values[i] = bell(&state) * size;
        ops->encode[d->type](d->cards, values, DECK_VALUES);
    }
    free(values);
    return status;
}

/* The deck for a type and width, which is made on first use. */
static spry_status find_deck(const deck **out, dealer *d, spry_dtype type, size_t n_in)
{
    for (size_t i = 0; i < d->n_decks; i++)
        if (d->decks[i].type == type && d->decks[i].n_in == n_in) {
            *out = &d->decks[i];
            return SPRY_OK;
        }
    if (d->n_decks == DECKS_MAX || !d->ops->encode[type] || n_in % spry_dtype_block(type))
        return spry_fail(d->error, SPRY_ERR_UNSUPPORTED, "rows of %zu random weights cannot be made in %s", n_in,
                         spry_dtype_name(type));
    deck *made = &d->decks[d->n_decks++];
    *made = (deck){.type = type, .n_in = n_in};
    *out = made;
    return shuffle(made, d->ops, d->error);
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

typedef struct deal_job {
    const deck *deck;
    unsigned char *out;
    uint64_t seed; /* random seed of the tensor */
    size_t first_row, n_rows, row_bytes;
} deal_job;

static void deal_part(void *context, size_t worker, size_t n_workers)
{
    const deal_job *job = context;
    const deck *d = job->deck;
    size_t begin, end;
    spry_threads_part(&begin, &end, job->n_rows, 1, worker, n_workers);
    for (size_t row = begin; row < end; row++) {
        uint64_t state = mix(job->seed + job->first_row + row);
        unsigned char *out = job->out + row * job->row_bytes;
        for (size_t at = 0; at < job->row_bytes; at += d->card_bytes)
            memcpy(out + at, d->cards + next(&state) % d->n_cards * d->card_bytes, d->card_bytes);
    }
}

static spry_status hand_over(dealer *d, const void *data, size_t bytes)
{
    const spry_random_model *job = d->job;
    spry_status status = spry_gguf_writer_data(d->writer, data, bytes, d->error);
    d->done += bytes;
    if (!status && job->progress && !job->progress(job->user, d->done, d->total))
        status = spry_fail(d->error, SPRY_ERR_CANCELLED, "stopped after %zu of %zu bytes", d->done, d->total);
    return status;
}

static size_t rows_of(const spry_export_item *item)
{
    const size_t *dims = item->as.dims;
    return dims[0] * dims[1] * dims[2] * dims[3] / dims[item->as.n_dims - 1];
}

static spry_status write_random(dealer *d, const spry_export_item *item, size_t index)
{
    size_t n_in = item->as.dims[item->as.n_dims - 1], n_rows = rows_of(item);
    deal_job job = {.out = d->batch, .seed = mix((uint64_t)index + 1)};
    spry_status status = find_deck(&job.deck, d, item->as.type, n_in);
    if (status)
        return status;
    job.row_bytes = n_in / job.deck->card_values * job.deck->card_bytes;
    size_t at_once = d->batch_bytes / job.row_bytes;
    for (; !status && job.first_row < n_rows; job.first_row += job.n_rows) {
        job.n_rows = n_rows - job.first_row < at_once ? n_rows - job.first_row : at_once;
        spry_threads_run(d->job->threads, deal_part, &job);
        status = hand_over(d, d->batch, job.n_rows * job.row_bytes);
    }
    return status;
}

static size_t item_bytes(const spry_export_item *item)
{
    const size_t *dims = item->as.dims;
    size_t bytes = 0;
    spry_dtype_size(&bytes, item->as.type, dims[0] * dims[1] * dims[2] * dims[3]);
    return bytes;
}

/* Vectors are copied from the plan; all other tensors are random. */
static spry_status write_tensors(dealer *d, const spry_export_plan *plan)
{
    spry_status status = SPRY_OK;
    for (size_t i = 0; !status && i < plan->count; i++) {
        const spry_export_item *item = &plan->items[i];
        if (item->pieces[0].data == spry_unmade)
            status = write_random(d, item, i);
        else
            status = hand_over(d, item->pieces[0].data, item_bytes(item));
    }
    return status;
}

static spry_status write_plan(dealer *d, const spry_export_plan *plan, const char *path)
{
    const spry_shape *shape = d->job->shape;
    d->batch_bytes = BATCH_BYTES;
    for (size_t i = 0; i < plan->count; i++) {
        const spry_export_item *item = &plan->items[i];
        size_t row = item_bytes(item) / rows_of(item);
        spry_gguf_writer_tensor(d->writer, &item->as);
        d->total += item_bytes(item);
        d->batch_bytes = row > d->batch_bytes ? row : d->batch_bytes;
    }
    d->batch = malloc(d->batch_bytes);
    if (!d->batch || !spry_export_metadata(plan, d->writer) ||
        !spry_made_vocab_write(d->writer, shape->config.n_vocab, shape->pattern))
        return spry_fail_memory(d->error, "random weights", d->batch_bytes);
    spry_status status = spry_gguf_writer_begin(d->writer, path, d->error);
    if (!status)
        status = write_tensors(d, plan);
    return status ? status : spry_gguf_writer_finish(d->writer, d->error);
}

static void clear_table(dealer *d)
{
    spry_gguf_writer_destroy(d->writer);
    for (size_t i = 0; i < d->n_decks; i++)
        free(d->decks[i].cards);
    free(d->batch);
}

spry_status spry_random_model_write(const char *path, const spry_random_model *job, spry_error *error)
{
    spry_export options = {.recipe = job->recipe, .title = job->name, .threads = job->threads};
    spry_export_plan plan;
    spry_model *model = NULL;
    dealer d = {.job = job, .error = error};
    spry_status status = spry_ops_get(&d.ops, "auto", error);
    if (!status)
        status = spry_shape_model(&model, job->shape, job->name, error);
    if (status)
        return status;
    status = spry_export_plan_init(&plan, model, &options, error);
    if (!status)
        status = spry_gguf_writer_create(&d.writer, error);
    if (!status)
        status = write_plan(&d, &plan, path);
    clear_table(&d);
    spry_export_plan_deinit(&plan);
    spry_model_close(model);
    return status;
}
