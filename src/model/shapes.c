/* The table of shapes, and models of a shape without weights. */
#include "model/shapes.h"

#include <stdlib.h>
#include <string.h>

const unsigned char spry_unmade[1] = {0};

const char *const spry_shape_names[] = {
    "qwen3-0.6b",   "qwen3-1.7b",      "qwen3-4b",   "qwen3-8b",   "qwen3-14b",   "qwen3-32b",   "qwen3-30b-a3b",
    "qwen2.5-0.5b", "qwen2.5-1.5b",    "qwen2.5-3b", "qwen2.5-7b", "llama3.2-1b", "llama3.2-3b", "llama3.1-8b",
    "llama3.1-70b", "qwen3-moe-small", "tiny",       "tiny-moe",   NULL};

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
    /* Not a published model: a small version of Qwen3-30B-A3B for small machines. */
    {NAMED("qwen3-moe-small", "qwen2"),
     .config = {QWEN3_MOE, SIZES(16, 1024, 3072, 16, 4, 128, 151936, 40960), EXPERTS(32, 4, 512), .tied = true},
     .invented = true},
    {NAMED("tiny", "qwen2"), .config = {QWEN3, SIZES(2, 256, 512, 4, 2, 64, 1024, 1024), .tied = true},
     .invented = true},
    {NAMED("tiny-moe", "qwen2"), .config = {QWEN3_MOE, SIZES(2, 256, 512, 4, 2, 64, 1024, 1024), EXPERTS(8, 2, 256)},
     .invented = true},
};

static const char chat_template[] =
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
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
    bool failed; /* memory was short */
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

static spry_weight biased_matrix(builder *b, size_t n_out, size_t n_in)
{
    spry_weight w = matrix(n_out, n_in);
    if (b->shape->biased)
        w.bias = vector(b, n_out, 0);
    return w;
}

static spry_weight *experts(builder *b, size_t n_out, size_t n_in)
{
    size_t count = b->model->config.n_experts;
    spry_weight *list = spry_arena_alloc(&b->model->arena, count, sizeof *list);
    b->failed = b->failed || !list;
    for (size_t i = 0; list && i < count; i++)
        list[i] = matrix(n_out, n_in);
    return list;
}

static void build_layer(builder *b, spry_layer *l)
{
    const spry_config *c = &b->model->config;
    size_t n_q = (size_t)c->n_heads * c->head_dim, n_kv = (size_t)c->n_kv_heads * c->head_dim;
    l->attn_norm = vector(b, c->n_embd, 1);
    l->ffn_norm = vector(b, c->n_embd, 1);
    if (c->arch->qk_norm) {
        l->q_norm = vector(b, c->head_dim, 1);
        l->k_norm = vector(b, c->head_dim, 1);
    }
    l->q = biased_matrix(b, n_q, c->n_embd);
    l->k = biased_matrix(b, n_kv, c->n_embd);
    l->v = biased_matrix(b, n_kv, c->n_embd);
    l->o = matrix(c->n_embd, n_q);
    if (c->n_experts) {
        l->router = matrix(c->n_experts, c->n_embd);
        l->expert_gate = experts(b, c->n_expert_ff, c->n_embd);
        l->expert_up = experts(b, c->n_expert_ff, c->n_embd);
        l->expert_down = experts(b, c->n_embd, c->n_expert_ff);
    } else {
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
    w->layers = spry_arena_alloc(&b->model->arena, c->n_layers, sizeof *w->layers);
    b->failed = b->failed || !w->layers;
    for (uint32_t i = 0; w->layers && i < c->n_layers; i++)
        build_layer(b, &w->layers[i]);
}

spry_status spry_shape_model(spry_model **out, const spry_shape *shape, const char *name, spry_error *error)
{
    *out = NULL;
    builder b = {calloc(1, sizeof *b.model), shape, false};
    spry_model *m = b.model;
    if (!m)
        return spry_fail_memory(error, "a model", sizeof *m);
    spry_arena_init(&m->arena);
    m->config = shape->config;
    m->config.rope_sliding = m->config.rope;
    m->config.qkv_bias = shape->biased;
    m->config.routing = SPRY_ROUTING_SOFTMAX;
    m->config.routed_scale = m->config.embedding_scale = m->config.residual_scale = m->config.logit_scale = 1;
    m->name = spry_arena_copy(&m->arena, spry_view_of(name));
    spry_status status = m->name ? SPRY_OK : spry_fail_memory(error, "a model's name", strlen(name));
    if (!status)
        status = spry_config_finish(&m->config, shape->name, &m->arena, error);
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
