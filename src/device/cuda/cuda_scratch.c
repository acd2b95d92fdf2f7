/* Working memory: one function counts bytes and assigns addresses. */
#include "device/cuda/cuda_state.h"
#include "model/arch.h"

enum { ALIGNMENT = 256 };

static const size_t partial_bytes_max = (size_t)128 << 20;

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Partial results are stored for pairs of queries (attention_decode.cuh). */
static size_t partial_floats(const spry_config *c, size_t n_kv_heads, size_t head_dim)
{
    size_t pairs = (c->n_heads / n_kv_heads + 1) / 2;
    return n_kv_heads * pairs * 2 * (head_dim + SPRY_PARTIAL_HEADER);
}

size_t spry_cuda_partial_floats(const spry_config *c)
{
    size_t full = partial_floats(c, c->n_kv_heads, c->head_dim);
    return spry_config_has_kinds(c) ? larger(full, partial_floats(c, c->slide.n_kv_heads, c->slide.head_dim)) : full;
}

/* The number of values in the queries of a row, and in its keys, in the layers that have the most. */
static size_t query_floats(const spry_config *c)
{
    return c->n_heads * larger(c->head_dim, c->slide.head_dim);
}

static size_t key_floats(const spry_config *c)
{
    return larger((size_t)c->n_kv_heads * c->head_dim, (size_t)c->slide.n_kv_heads * c->slide.head_dim);
}

static spry_cuda_memory carve(spry_cuda_scratch *s, size_t rows, size_t width, size_t size)
{
    spry_cuda_memory at = s->memory + s->bytes;
    s->bytes += (rows * width * size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return at;
}

spry_cuda_memory spry_cuda_carve(spry_cuda_scratch *s, size_t rows, size_t width, size_t size)
{
    return carve(s, rows, width, size);
}

/* The maximum number of slots for any choice of experts. */
static size_t expert_slots(const spry_config *c, size_t rows)
{
    size_t align = SPRY_CUDA_EXPERT_ALIGN_MANY, slots = rows * c->n_experts_used + c->n_experts * (align - 1);
    return c->n_experts ? (slots + align - 1) / align * align : 0;
}

static void carve_experts(spry_cuda_scratch *s, const spry_config *c, size_t rows)
{
    size_t moe_rows = c->n_experts ? rows : 0;
    s->shared_out = carve(s, moe_rows, c->n_embd, sizeof(float));
    s->expert_out = carve(s, s->n_slots, larger(c->n_embd, c->n_latent), sizeof(float));
    s->latent = carve(s, moe_rows, c->n_latent, sizeof(float));
    s->router = carve(s, moe_rows, c->n_experts, sizeof(float));
    s->shared_gate = carve(s, moe_rows, 1, sizeof(float));
    s->chosen = carve(s, moe_rows, c->n_experts_used, sizeof(uint32_t));
    s->weight = carve(s, moe_rows, c->n_experts_used, sizeof(float));
    s->slot = carve(s, moe_rows, c->n_experts_used, sizeof(uint32_t));
    s->source = carve(s, s->n_slots, 1, sizeof(int32_t));
    s->experts = carve(s, s->n_slots, 1, sizeof(int32_t));
}

/* Buffers of quantised activations, for all rows or slots of the widest input. */
void spry_cuda_carve_activations(spry_cuda_scratch *s, size_t rows, size_t width)
{
    enum { ROW_BYTES = SPRY_ACT_TERM_BYTES / SPRY_ACT_ROWS }; /* of a term and unit */
    size_t units = (width + SPRY_TILE_UNIT - 1) / SPRY_TILE_UNIT, whole = (rows + 127) / 128 * 128;
    for (size_t format = 0; format < SPRY_ACT_FORMATS; format++)
        s->act_values[format] = carve(s, whole, units, (format + 1) * ROW_BYTES);
    s->act_norms = carve(s, whole, units, sizeof(float));
}

static void carve_mla(spry_cuda_scratch *s, const spry_config *c, size_t rows)
{
    size_t slots = spry_cuda_mla_slots(c, rows), latent_rows = slots ? rows : 0;
    s->raw = carve(s, latent_rows, (size_t)c->n_heads * larger((size_t)c->nope_dim + c->rope_dim, c->value_dim),
                   sizeof(float));
    s->low = carve(s, latent_rows, c->n_q_rank, sizeof(float));
    s->heads = carve(s, slots, larger(c->n_kv_rank, c->value_dim), sizeof(float));
    s->head_source = carve(s, slots, 1, sizeof(int32_t));
    s->head_numbers = carve(s, slots, 1, sizeof(int32_t));
}

/* Buffers of Gemma 3n, and of inputs by layer. */
static void carve_streams(spry_cuda_scratch *s, const spry_config *c, size_t rows)
{
    size_t streams = c->arch->streams ? c->n_streams : 0, stream_rows = streams ? rows : 0;
    size_t layer_inputs = (size_t)c->n_layers * c->n_layer_embd;
    s->streams = carve(s, rows * streams, c->n_embd, sizeof(float));
    s->predicted = carve(s, rows * streams, c->n_embd, sizeof(float));
    s->laurel = carve(s, stream_rows, c->n_embd, sizeof(float));
    s->laurel_low = carve(s, stream_rows, c->n_embd, sizeof(float));
    s->modality = carve(s, stream_rows, streams, sizeof(float));
    s->layer_in = carve(s, rows, layer_inputs, sizeof(float));
    s->layer_gate = carve(s, rows, layer_inputs, sizeof(float));
}

static void carve_delta(spry_cuda_scratch *s, const spry_config *c, size_t rows)
{
    size_t delta_rows = c->arch->delta ? rows : 0, width = (size_t)c->n_delta_heads * c->delta_value_dim;
    s->delta_mixed = carve(s, delta_rows, spry_config_delta_mixed(c), sizeof(float));
    s->delta_gate = carve(s, delta_rows, width, sizeof(float));
    s->delta_ba = carve(s, delta_rows, 2 * (size_t)c->n_delta_heads, sizeof(float));
    s->delta_result = carve(s, delta_rows, width, sizeof(float));
}

/* Heads with gates beside them, gates from a matrix of their own, or values and results that are shorter than keys;
 * with MLA see carve_mla. */
static void carve_raw(spry_cuda_scratch *s, const spry_config *c, size_t rows)
{
    bool values = c->value_dim && !c->n_kv_rank;
    if (c->arch->gated_attention || c->arch->attention_gate || values)
        s->raw = carve(s, rows, query_floats(c) * (c->arch->gated_attention ? 2 : 1), sizeof(float));
}

/* Number of units (64 inputs) in all rows, padded as in spry_cuda_carve_activations. */
static size_t units_of(size_t rows, size_t width)
{
    return (rows + 127) / 128 * 128 * ((width + SPRY_TILE_UNIT - 1) / SPRY_TILE_UNIT);
}

/* The activations of the block, or the activations of MLA heads if they are larger. */
static void carve_inputs(spry_cuda_scratch *s, const spry_config *c, const spry_step_limits *limits, size_t ff_rows,
                         size_t ff)
{
    size_t slots = spry_cuda_mla_slots(c, limits->max_rows), wide = larger(c->nope_dim, c->n_kv_rank);
    size_t n_out = slots ? larger((size_t)c->n_heads * c->value_dim, c->n_q_rank) : query_floats(c);
    size_t width = larger(larger(larger(c->n_embd, c->n_latent), c->n_layer_embd), larger(ff, n_out));
    width = larger(width, (size_t)c->n_delta_heads * c->delta_value_dim);
    bool heads = units_of(slots, wide) > units_of(ff_rows, width);
    spry_cuda_carve_activations(s, heads ? slots : ff_rows, heads ? wide : width);
    size_t adapted = limits->adapter_ranks ? ff_rows : 0, limited = c->arch->limited ? ff_rows : 0;
    s->plain = carve(s, adapted + limited, width, sizeof(float));
    s->limited = carve(s, limited, width, sizeof(float));
    s->shrunk = carve(s, adapted, (size_t)SPRY_LORA_PARTS * limits->adapter_ranks, sizeof(float));
}

static void carve_all(spry_cuda_scratch *s, const spry_config *c, const spry_step_limits *limits)
{
    size_t rows = limits->max_rows, n_q = query_floats(c), n_kv = key_floats(c);
    size_t ff = larger(larger(c->n_ff, c->n_ff_shared), larger(c->n_expert_ff, c->n_shared_ff));
    size_t pairs = larger(c->rope_dim, c->slide.rope_dim) / 2;
    s->n_slots = expert_slots(c, rows);
    size_t ff_rows = larger(rows, s->n_slots);
    s->x = carve(s, rows, c->n_embd, sizeof(float));
    s->y = carve(s, rows, c->n_embd, sizeof(float));
    s->h = carve(s, rows, c->n_embd, sizeof(float));
    s->taps = carve(s, c->arch->tower ? c->n_taps * rows : 0, c->n_embd, sizeof(float));
    s->q = carve(s, rows, n_q, sizeof(float));
    s->attn = carve(s, rows, n_q, sizeof(float));
    s->k = carve(s, rows, n_kv, sizeof(float));
    s->v = carve(s, rows, n_kv, sizeof(float));
    s->conv = carve(s, c->arch->convolutions ? rows : 0, 3 * (size_t)c->n_embd, sizeof(float));
    s->gate = carve(s, ff_rows, ff, sizeof(float));
    s->up = carve(s, ff_rows, ff, sizeof(float));
    carve_experts(s, c, rows);
    carve_mla(s, c, rows);
    carve_streams(s, c, rows);
    carve_delta(s, c, rows);
    carve_raw(s, c, rows);
    for (size_t i = 0; i < 2; i++) {
        s->cosine[i] = carve(s, rows, pairs, sizeof(float));
        s->sine[i] = carve(s, rows, pairs, sizeof(float));
        s->rotation_cosine[i] = carve(s, SPRY_KV_TURNS_MAX, pairs, sizeof(float));
        s->rotation_sine[i] = carve(s, SPRY_KV_TURNS_MAX, pairs, sizeof(float));
    }
    carve_inputs(s, c, limits, ff_rows, ff);
    s->x_values = carve(s, (rows + 127) / 128 * 128, (c->n_embd + 63) / 64, 2 * SPRY_ACT_TERM_BYTES / SPRY_ACT_ROWS);
    size_t chunks = limits->session / SPRY_PAGE_TOKENS + 2;
    size_t partial = rows * chunks * spry_cuda_partial_floats(c);
    s->partial_floats = partial * sizeof(float) < partial_bytes_max ? partial : partial_bytes_max / sizeof(float);
    s->partial = carve(s, s->partial_floats, 1, sizeof(float));
    s->logits = carve(s, limits->max_logits, c->n_vocab, sizeof(float));
    s->draw_scores = carve(s, SPRY_CUDA_DRAWS, c->n_vocab, sizeof(float));
    s->draw_weight = carve(s, SPRY_CUDA_DRAWS, c->n_vocab, sizeof(uint64_t));
    s->draw_count = carve(s, SPRY_CUDA_DRAWS, c->n_vocab, sizeof(uint32_t));
    s->draw_best = carve(s, SPRY_CUDA_DRAWS, SPRY_DRAW_SLICES, sizeof(uint64_t));
}

size_t spry_cuda_scratch_bytes(const spry_config *config, const spry_step_limits *limits)
{
    spry_cuda_scratch counted = {0};
    carve_all(&counted, config, limits);
    return counted.bytes;
}

spry_status spry_cuda_scratch_init(spry_cuda_device *d, spry_error *error)
{
    spry_cuda_scratch *s = &d->scratch;
    spry_cuda_context *c = &d->context;
    s->memory = spry_cuda_allocate(c, spry_cuda_scratch_bytes(d->config, &d->device.limits));
    carve_all(s, d->config, &d->device.limits);
    if (s->memory && !c->fault) {
        int result = c->cuda->memory_fill(s->draw_count, 0, (size_t)SPRY_CUDA_DRAWS * d->config->n_vocab);
        c->fault = result;
        c->fault_call = "cuMemsetD32";
    }
    return spry_cuda_fault(c, "allocating the working memory of steps", error);
}

void spry_cuda_scratch_deinit(spry_cuda_device *d)
{
    spry_cuda_free(&d->context, &d->scratch.memory);
}
