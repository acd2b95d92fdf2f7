/* Recipes, which give each tensor a type, and quantising a model while it is loaded. */
#include "model/quantize.h"

#include <stdlib.h>
#include <strings.h>

#include "base/compiler.h"
#include "base/number.h"
#include "model/gguf_export.h"
#include "model/tensor_names.h"
#include "platform/memory.h"

/* ---- recipes ----------------------------------------------------------------------------------------------------- */

/* The recipes, and the rules that they share. */

/* X(name, type of matrices, type of more important matrices, type of the embedding, file type) */
#define RECIPES(X)                                                                                                     \
    X("q4_0", Q4_0, Q4_0, Q8_0, 2)                                                                                     \
    X("q4_1", Q4_1, Q4_1, Q8_0, 3)                                                                                     \
    X("mxfp4", MXFP4, Q8_0, Q8_0, 38)                                                                                  \
    X("q4_k_m", Q4_K, Q6_K, Q6_K, 15)                                                                                  \
    X("q5_0", Q5_0, Q5_0, Q8_0, 8)                                                                                     \
    X("q5_1", Q5_1, Q5_1, Q8_0, 9)                                                                                     \
    X("q5_k_m", Q5_K, Q6_K, Q6_K, 17)                                                                                  \
    X("q6_k", Q6_K, Q6_K, Q6_K, 18)                                                                                    \
    X("q8_0", Q8_0, Q8_0, Q8_0, 7)                                                                                     \
    X("f16", F16, F16, F16, 1)                                                                                         \
    X("bf16", BF16, BF16, BF16, 32)                                                                                    \
    X("f32", F32, F32, F32, 0)

#define RECIPE(name, matrices, finer, embedding, id) {name, SPRY_##matrices, SPRY_##finer, SPRY_##embedding, id},
#define NAME(name, matrices, finer, embedding, id)   name,
#define LISTED(name, matrices, finer, embedding, id) ", " name

static const spry_recipe recipes[] = {RECIPES(RECIPE)};
const char *const spry_recipe_names[] = {RECIPES(NAME) NULL};

spry_status spry_recipe_find(const spry_recipe **out, const char *name, spry_error *error)
{
    static const char known[] = RECIPES(LISTED);
    for (size_t i = 0; i < SPRY_COUNT(recipes); i++)
        if (!strcasecmp(recipes[i].name, name)) {
            *out = &recipes[i];
            return SPRY_OK;
        }
    return spry_fail(error, SPRY_ERR_INPUT, "type '%.40s' cannot be written; known are %s", name, known + 2);
}

/* Splits "blk.7.attn_v.weight" into 7 and "attn_v"; false for tensors that belong to no layer. */
static bool split_name(uint64_t *layer, spry_view *what, spry_view name)
{
    const spry_view prefix = SPRY_VIEW("blk."), suffix = SPRY_VIEW(".weight");
    if (!spry_view_starts(name, prefix) || !spry_view_ends(name, suffix) || name.size < prefix.size + suffix.size)
        return false;
    *what = (spry_view){name.data + prefix.size, name.size - prefix.size - suffix.size};
    size_t dot = 0;
    while (dot < what->size && what->data[dot] != '.')
        dot++;
    if (dot == what->size || !spry_number_u64(layer, (spry_view){what->data, dot}))
        return false;
    *what = (spry_view){what->data + dot + 1, what->size - dot - 1};
    return true;
}

/* True for matrices whose errors have the largest effect: the values of attention, and the projection back to the
 * residual stream. */
static bool weighs_more(spry_view what)
{
    static const char *const names[] = {"attn_v", "attn_qkv", "ffn_down", "ffn_down_exps", "ffn_down_shexp"};
    for (size_t i = 0; i < SPRY_COUNT(names); i++)
        if (spry_view_is(what, names[i]))
            return true;
    return false;
}

/* True in the first and the last eighth of the layers, and in every third layer between them. */
static bool layer_counts(uint64_t layer, uint32_t n_layers)
{
    uint64_t eighth = n_layers / 8;
    return layer < eighth || layer >= (uint64_t)n_layers * 7 / 8 || (layer - eighth) % 3 == 2;
}

/* The type with blocks of 32 that replaces a type with blocks of 256. */
static spry_dtype small_instead(spry_dtype type)
{
    switch (type) {
    case SPRY_Q4_K: return SPRY_Q5_0;
    case SPRY_Q5_K: return SPRY_Q5_1;
    case SPRY_Q6_K: return SPRY_Q8_0;
    default: return type;
    }
}

spry_dtype spry_recipe_type(const spry_recipe *recipe, spry_view name, uint32_t n_layers, uint32_t n_dims, size_t n_in)
{
    uint64_t layer;
    spry_view what;
    spry_dtype type = recipe->matrices;
    if (n_dims < 2 || spry_view_is(name, "position_embd.weight") || spry_view_is(name, "token_types.weight"))
        return SPRY_F32;
    if (spry_view_is(name, "token_embd.weight") || spry_view_is(name, "output.weight")) {
        type = recipe->embedding;
    } else if (split_name(&layer, &what, name)) {
        if (spry_view_is(what, "ffn_gate_inp") || spry_view_is(what, "ffn_gate_inp_shexp"))
            return SPRY_F32; /* routers are small, and their errors change which experts are selected */
        if (spry_view_is(what, "shortconv.conv"))
            return SPRY_F32;
        bool finer = recipe->matrices == SPRY_MXFP4 ? !spry_view_starts(what, SPRY_VIEW("ffn_")) /* as gpt-oss has it */
                                                    : weighs_more(what) && layer_counts(layer, n_layers);
        type = finer ? recipe->finer : type;
    }
    if (n_in % spry_dtype_block(type))
        type = small_instead(type);
    return n_in % spry_dtype_block(type) ? SPRY_F16 : type;
}

/* ---- quantising an open model ------------------------------------------------------------------------------------ */

/* A pass over all matrices: the first checks and counts, the second encodes. */

enum { ALIGNMENT = 64 };

typedef struct quantizer {
    spry_model *model;
    const spry_recipe *recipe;
    const spry_ops *ops;
    spry_threads *threads;
    bool mapped;
    bool sizes_only;
    unsigned char *memory; /* NULL: only check and count */
    size_t used;
    size_t before, after; /* bytes of the matrices */
    size_t longest;       /* maximum values in a row */
    float *rows;          /* [workers, longest] */
    spry_status status;   /* the first failure */
    spry_error *error;
} quantizer;

typedef struct encode_job {
    const quantizer *q;
    const spry_weight *from;
    spry_dtype type;
    size_t row_bytes, permute_head;
    unsigned char *out;
} encode_job;

static void encode_part(void *context, size_t worker, size_t n_workers)
{
    const encode_job *job = context;
    const quantizer *q = job->q;
    float *values = q->rows + worker * q->longest;
    size_t begin, end, n = job->from->n_in;
    spry_threads_part(&begin, &end, job->from->n_out, 1, worker, n_workers);
    for (size_t row = begin; row < end; row++) {
        size_t source = spry_export_source_row(job->permute_head, q->model->config.rope_dim, row);
        q->ops->decode[job->from->type](values, job->from->data + source * job->from->row_bytes, n);
        q->ops->encode[job->type](job->out + row * job->row_bytes, values, n);
    }
}

/* Permutes a bias like the rows of its matrix. */
static void permute_bias(quantizer *q, spry_weight *w, size_t head)
{
    float *values = spry_arena_alloc(&q->model->arena, w->n_out, sizeof *values);
    if (!values) {
        q->status = spry_fail_memory(q->error, "a bias", w->n_out * sizeof *values);
        return;
    }
    for (size_t row = 0; row < w->n_out; row++)
        values[row] = w->bias[spry_export_source_row(head, q->model->config.rope_dim, row)];
    w->bias = values;
}

static void encode(quantizer *q, spry_weight *w, spry_dtype type, size_t row_bytes, size_t head)
{
    encode_job job = {q, w, type, row_bytes, head, q->memory + q->used};
    spry_threads_run(q->threads, encode_part, &job);
    if (q->mapped)
        spry_memory_drop_file(w->data, w->n_out * w->row_bytes);
    if (w->bias && head)
        permute_bias(q, w, head);
    w->data = job.out;
    w->type = type;
    w->row_bytes = row_bytes;
}

/* Checks or encodes one matrix. `name`: its GGUF name; `head`, if not 0: the size of heads whose rows are permuted, as
 * in a GGUF file. */
static void matrix(quantizer *q, spry_weight *w, const char *name, size_t head)
{
    size_t row_bytes, bytes, end;
    if (!w->data || q->status)
        return;
    spry_dtype type = spry_recipe_type(q->recipe, spry_view_of(name), q->model->config.n_layers, 2, w->n_in);
    if (spry_dtype_block(w->type) > 1 && w->type != SPRY_F8) {
        q->status = spry_fail(q->error, SPRY_ERR_INPUT,
                              "%s: tensor '%s' is %s already; only models of F32, F16 or BF16 can be quantised to %s",
                              q->model->name, name, spry_dtype_name(w->type), q->recipe->name);
        return;
    }
    if (!spry_dtype_size(&row_bytes, type, w->n_in) || !spry_checked_mul(&bytes, row_bytes, w->n_out) ||
        !spry_checked_add(&end, q->used, bytes) || !spry_checked_align(&end, end, ALIGNMENT)) {
        q->status =
            spry_fail(q->error, SPRY_ERR_MEMORY, "%s: tensor '%s' is larger than any memory", q->model->name, name);
        return;
    }
    if (q->memory) {
        encode(q, w, type, row_bytes, head);
    } else {
        q->longest = w->n_in > q->longest ? w->n_in : q->longest;
        q->before += w->n_out * w->row_bytes;
        q->after += bytes;
    }
    if (q->sizes_only) {
        w->type = type;
        w->row_bytes = row_bytes;
    }
    q->used = end;
}

/* Parts of a fused matrix use the name of the whole, because they have one type in a file. */
static void visit(void *context, const spry_matrix *m)
{
    quantizer *q = context;
    const spry_config *c = &q->model->config;
    char name[SPRY_TENSOR_NAME_MAX] = "output.weight";
    if (m->weight != &q->model->weights.output)
        spry_tensor_gguf_name(name, c->arch, m->layer, m->ours, "weight");
    else if (c->tied)
        return;
    matrix(q, m->weight, name, c->interleaved ? 0 : spry_matrix_head(c, m));
}

static void all_matrices(quantizer *q)
{
    spry_model *m = q->model;
    spry_matrices_each(&m->weights, &m->config, visit, q);
    matrix(q, &m->weights.embedding, "token_embd.weight", 0);
    const float *bias = m->weights.output.bias;
    if (m->config.tied)
        m->weights.output = m->weights.embedding;
    m->weights.output.bias = bias;
}

/* Changes RoPE to what a reader of the GGUF file would get: the other pairs, and scaled frequencies that were stored as
 * floats. */
static spry_status turn_as_in_file(spry_model *model, spry_error *error)
{
    spry_config *c = &model->config;
    c->interleaved = c->interleaved || c->arch->permuted_in_gguf;
    if (c->rope.kind != SPRY_ROPE_LLAMA3)
        return SPRY_OK;
    const float *factors = spry_export_rope_factors(c, &model->arena);
    if (!factors)
        return spry_fail_memory(error, "rope factors", c->rope_dim * sizeof *factors);
    c->rope = c->rope_sliding = (spry_rope){.theta = c->rope.theta, .factor = 1, .factors = factors};
    return SPRY_OK;
}

/* Updates the counts of bytes. */
static void account(const quantizer *q)
{
    spry_weights *w = &q->model->weights;
    w->quantized_bytes = q->used;
    w->bytes += q->after - q->before;
    w->copied_bytes += q->after;
}

const char *spry_model_recipe_name(spry_model *model, const char *name)
{
    static const char usual[] = "q8_0";
    spry_error error;
    quantizer q = {.model = model, .error = &error};
    if (!name || strcmp(name, "auto") != 0)
        return name;
    q.status = spry_recipe_find(&q.recipe, usual, &error);
    if (!q.status)
        all_matrices(&q); /* while q.memory is NULL, it only checks and counts */
    return q.status ? NULL : usual;
}

spry_status spry_model_quantize_sizes(spry_model *model, const spry_recipe *recipe, spry_error *error)
{
    quantizer q = {.model = model, .recipe = recipe, .sizes_only = true, .error = error};
    all_matrices(&q);
    if (!q.status)
        account(&q);
    return q.status;
}

spry_status spry_model_quantize(spry_model *model, const spry_recipe *recipe, const spry_ops *ops,
                                spry_threads *threads, bool mapped, spry_error *error)
{
    quantizer q = {.model = model, .recipe = recipe, .ops = ops, .threads = threads, .mapped = mapped, .error = error};
    size_t row_bytes;
    all_matrices(&q);
    if (q.status)
        return q.status;
    if (!spry_checked_mul(&row_bytes, q.longest, spry_threads_count(threads) * sizeof *q.rows))
        return spry_fail(error, SPRY_ERR_MEMORY, "%s: rows of %zu values are too long", model->name, q.longest);
    q.rows = malloc(row_bytes);
    q.memory = model->weights.quantized = spry_memory_map(q.used);
    model->weights.quantized_bytes = q.used;
    if (!q.rows || !q.memory) {
        free(q.rows);
        return spry_fail_memory(error, "quantised weights", q.used + row_bytes);
    }
    q.used = 0;
    all_matrices(&q);
    free(q.rows);
    account(&q);
    return q.status ? q.status : turn_as_in_file(model, error);
}
