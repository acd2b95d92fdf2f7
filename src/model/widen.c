/* Reads tensors from the small file and writes them row by row; bytes are copied, never decoded. */
#include "model/gguf_export.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "formats/gguf_writer.h"

enum { NAME_MAX_BYTES = 96, KEYS = 9 };

/* What a dimension of a tensor counts; this determines how it grows. */
typedef enum axis { SAME, EMBD, FF, HEADS, KV_HEADS } axis;

typedef struct part {
    const char *name; /* name, or for tensors of a layer the part after "blk.N." */
    bool of_layer, norm;
    axis rows, columns; /* a vector has one row */
} part;

static const part parts[] = {
    {"token_embd.weight", false, false, SAME, EMBD},  {"output.weight", false, false, SAME, EMBD},
    {"output_norm.weight", false, true, SAME, EMBD},  {"rope_freqs.weight", false, false, SAME, SAME},
    {"attn_norm.weight", true, true, SAME, EMBD},     {"ffn_norm.weight", true, true, SAME, EMBD},
    {"attn_q.weight", true, false, HEADS, EMBD},      {"attn_k.weight", true, false, KV_HEADS, EMBD},
    {"attn_v.weight", true, false, KV_HEADS, EMBD},   {"attn_q.bias", true, false, SAME, HEADS},
    {"attn_k.bias", true, false, SAME, KV_HEADS},     {"attn_v.bias", true, false, SAME, KV_HEADS},
    {"attn_q_norm.weight", true, false, SAME, SAME},  {"attn_k_norm.weight", true, false, SAME, SAME},
    {"attn_output.weight", true, false, EMBD, HEADS}, {"ffn_gate.weight", true, false, FF, EMBD},
    {"ffn_up.weight", true, false, FF, EMBD},         {"ffn_down.weight", true, false, EMBD, FF},
};

/* Sizes of the new model. */
typedef struct sizes {
    size_t n_layers, n_embd, n_ff, n_heads, n_kv_heads;
    size_t copies; /* copies of each key/value head */
    size_t share;  /* query heads for each copy */
} sizes;

typedef struct widener {
    const spry_model *model;
    const spry_widen *job;
    sizes to;
    spry_gguf_writer *writer;
    unsigned char *row; /* memory for the longest row */
    size_t done, total;
    spry_error *error;
} widener;

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

static spry_status fail_smaller(const widener *w, const char *what, size_t has, size_t shape)
{
    return spry_fail(w->error, SPRY_ERR_INPUT, "%s cannot be widened to %s: it has %zu %s, the shape %zu",
                     w->model->name, w->job->shape->name, has, what, shape);
}

static spry_status choose_sizes(widener *w)
{
    const spry_config *c = &w->model->config, *s = &w->job->shape->config;
    size_t q = (size_t)s->n_heads * s->head_dim, kv = (size_t)s->n_kv_heads * s->head_dim,
           share = c->n_heads / c->n_kv_heads;
    w->to = (sizes){.n_layers = s->n_layers,
                    .n_embd = s->n_embd,
                    .n_ff = s->n_ff,
                    .n_heads = q / c->head_dim,
                    .n_kv_heads = kv / c->head_dim,
                    .share = s->n_heads / s->n_kv_heads};
    w->to.copies = (share + w->to.share - 1) / w->to.share;
    const char *wrong = s->n_experts                                     ? "it has experts"
                        : (s->arch && s->arch->delta) || s->n_layer_embd ? "it has more than attention and feed-forward"
                        : q % c->head_dim || kv % c->head_dim            ? "its heads do not divide evenly"
                                                                         : NULL;
    if (wrong)
        return spry_fail(w->error, SPRY_ERR_UNSUPPORTED, "%s cannot be widened to %s: %s", w->model->name,
                         w->job->shape->name, wrong);
    if (c->n_layers > w->to.n_layers)
        return fail_smaller(w, "layers", c->n_layers, w->to.n_layers);
    if (c->n_embd > w->to.n_embd)
        return fail_smaller(w, "columns", c->n_embd, w->to.n_embd);
    if (c->n_ff > w->to.n_ff)
        return fail_smaller(w, "columns of feed-forward", c->n_ff, w->to.n_ff);
    if (c->n_kv_heads * w->to.copies > w->to.n_kv_heads)
        return fail_smaller(w, "key/value heads, with copies", c->n_kv_heads * w->to.copies, w->to.n_kv_heads);
    return SPRY_OK;
}

static spry_status check_model(const widener *w)
{
    const spry_arch *const known[] = {&spry_arch_llama, &spry_arch_qwen2, &spry_arch_qwen3};
    const spry_config *c = &w->model->config;
    bool fits = false;
    for (size_t i = 0; i < SPRY_COUNT(known); i++)
        fits = fits || c->arch == known[i];
    if (!w->model->gguf)
        return spry_fail(w->error, SPRY_ERR_UNSUPPORTED, "%s is no GGUF file: make one of it with spry convert",
                         w->model->name);
    if (!fits || spry_config_features(c))
        return spry_fail(w->error, SPRY_ERR_UNSUPPORTED,
                         "%s cannot be widened: that is known for plain Llama, Qwen2 and Qwen3 only", w->model->name);
    return SPRY_OK;
}

static size_t old_size(const widener *w, axis a, size_t same)
{
    const spry_config *c = &w->model->config;
    const size_t list[] = {[SAME] = same,
                           [EMBD] = c->n_embd,
                           [FF] = c->n_ff,
                           [HEADS] = (size_t)c->n_heads * c->head_dim,
                           [KV_HEADS] = (size_t)c->n_kv_heads * c->head_dim};
    return list[a];
}

static size_t new_size(const widener *w, axis a, size_t same)
{
    const spry_config *c = &w->model->config;
    const size_t list[] = {[SAME] = same,
                           [EMBD] = w->to.n_embd,
                           [FF] = w->to.n_ff,
                           [HEADS] = w->to.n_heads * c->head_dim,
                           [KV_HEADS] = w->to.n_kv_heads * c->head_dim};
    return list[a];
}

/* The old head that becomes new head number `head`; SIZE_MAX: it is an added head of zeros. */
static size_t old_head(const widener *w, axis a, size_t head)
{
    const spry_config *c = &w->model->config;
    size_t share = c->n_heads / c->n_kv_heads;
    size_t kv = a == KV_HEADS ? head : head / w->to.share, old_kv = kv / w->to.copies;
    size_t in_old = kv % w->to.copies * w->to.share + (a == KV_HEADS ? 0 : head % w->to.share);
    if (old_kv >= c->n_kv_heads)
        return SIZE_MAX;
    if (a == KV_HEADS)
        return old_kv;
    return in_old < share ? old_kv * share + in_old : SIZE_MAX;
}

/* The old index of a new row; SIZE_MAX: it is an added row of zeros. */
static size_t old_row(const widener *w, axis a, size_t row, size_t n_old)
{
    size_t head_dim = w->model->config.head_dim;
    if (a != HEADS && a != KV_HEADS)
        return row < n_old ? row : SIZE_MAX;
    size_t head = old_head(w, a, row / head_dim);
    return head == SIZE_MAX ? SIZE_MAX : head * head_dim + row % head_dim;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

/* Finds the entry for a tensor's name, and its layer; NULL: the name is not known. */
static const part *find_part(spry_view name, size_t *layer)
{
    char text[NAME_MAX_BYTES], rest[NAME_MAX_BYTES];
    snprintf(text, sizeof text, "%.*s", (int)(name.size < sizeof text ? name.size : sizeof text - 1), name.data);
    bool of_layer = sscanf(text, "blk.%4zu.%95s", layer, rest) == 2;
    for (size_t i = 0; i < SPRY_COUNT(parts); i++)
        if (parts[i].of_layer == of_layer && strcmp(parts[i].name, of_layer ? rest : text) == 0)
            return &parts[i];
    return NULL;
}

static size_t bytes_of(const spry_tensor *t, size_t values)
{
    size_t bytes = 0;
    spry_dtype_size(&bytes, t->type, values);
    return bytes;
}

/* Number of rows; a vector has 1. */
static size_t rows_of(const spry_tensor *t)
{
    return t->n_dims > 1 ? t->dims[0] : 1;
}

static size_t columns_of(const spry_tensor *t)
{
    return t->dims[t->n_dims - 1];
}

static spry_status check_tensor(const widener *w, const spry_tensor *t, const part *p)
{
    size_t block = spry_dtype_block(t->type), wide = p ? new_size(w, p->columns, columns_of(t)) : 0;
    if (!p || t->n_dims > 2)
        return spry_fail(w->error, SPRY_ERR_UNSUPPORTED,
                         "%s cannot be widened: tensor %.*s is not part of a plain model", w->model->name,
                         SPRY_VIEW_ARG(t->name));
    if (rows_of(t) != old_size(w, p->rows, rows_of(t)) || columns_of(t) != old_size(w, p->columns, columns_of(t)))
        return spry_fail(w->error, SPRY_ERR_FORMAT, "%s: tensor %.*s has another shape than the model", w->model->name,
                         SPRY_VIEW_ARG(t->name));
    if (wide % block || (p->columns == HEADS && w->model->config.head_dim % block) || (p->norm && t->type != SPRY_F32))
        return spry_fail(w->error, SPRY_ERR_UNSUPPORTED,
                         "%s cannot be widened: tensor %.*s is in %s; convert it to q8_0 or q4_0 first", w->model->name,
                         SPRY_VIEW_ARG(t->name), spry_dtype_name(t->type));
    return SPRY_OK;
}

/* Adds a tensor for one layer of the new model to the list, and counts its bytes. */
static void list_tensor(widener *w, const spry_tensor *t, const part *p, const char *name)
{
    spry_tensor wide = *t;
    wide.name = spry_view_of(name);
    wide.dims[t->n_dims - 1] = new_size(w, p->columns, columns_of(t));
    if (t->n_dims > 1)
        wide.dims[0] = new_size(w, p->rows, rows_of(t));
    spry_gguf_writer_tensor(w->writer, &wide);
    w->total += new_size(w, p->rows, rows_of(t)) * bytes_of(t, columns_of(&wide));
}

static spry_status hand_over(widener *w, size_t bytes)
{
    const spry_widen *job = w->job;
    spry_status status = spry_gguf_writer_data(w->writer, w->row, bytes, w->error);
    w->done += bytes;
    if (!status && job->progress && !job->progress(job->user, w->done, w->total))
        status = spry_fail(w->error, SPRY_ERR_CANCELLED, "interrupted; nothing was written");
    return status;
}

/* Copies an old row into the new one, whose other columns are 0. */
static void fill_row(widener *w, const spry_tensor *t, const part *p, const unsigned char *from)
{
    size_t head = w->model->config.head_dim, head_bytes = bytes_of(t, head);
    if (p->columns != HEADS && p->columns != KV_HEADS) {
        memcpy(w->row, from, bytes_of(t, columns_of(t)));
    } else {
        size_t n = new_size(w, p->columns, 0) / head;
        for (size_t i = 0; i < n; i++) {
            size_t old = old_head(w, p->columns, i);
            if (old != SIZE_MAX)
                memcpy(w->row + i * head_bytes, from + old * head_bytes, head_bytes);
        }
    }
    if (p->norm) {
        float scale = sqrtf((float)w->model->config.n_embd / (float)w->to.n_embd), *values = (float *)(void *)w->row;
        for (size_t i = 0; i < columns_of(t); i++)
            values[i] *= scale;
    }
}

/* `added`: the layer does not exist in the small model, so its matrices are 0. */
static spry_status write_tensor(widener *w, const spry_tensor *t, const part *p, bool added)
{
    size_t n_rows = new_size(w, p->rows, rows_of(t)), old_bytes = bytes_of(t, columns_of(t));
    size_t new_bytes = bytes_of(t, new_size(w, p->columns, columns_of(t)));
    spry_status status = SPRY_OK;
    for (size_t row = 0; !status && row < n_rows; row++) {
        size_t old = added && t->n_dims > 1 ? SIZE_MAX : old_row(w, p->rows, row, rows_of(t));
        memset(w->row, 0, new_bytes);
        if (old != SIZE_MAX)
            fill_row(w, t, p, t->data + old * old_bytes);
        status = hand_over(w, new_bytes);
    }
    return status;
}

/* ---- the complete file ------------------------------------------------------------------------------------------- */

/* Visits the tensors of the new model, first to check and list them, then to write them. */
static spry_status each_tensor(widener *w, bool write)
{
    const spry_gguf *gguf = w->model->gguf;
    size_t n_layers = w->model->config.n_layers, longest = 0;
    spry_status status = SPRY_OK;
    for (size_t i = 0; !status && i < spry_gguf_tensor_count(gguf); i++) {
        const spry_tensor *t = spry_gguf_tensor(gguf, i);
        size_t layer = 0;
        const part *p = find_part(t->name, &layer);
        status = check_tensor(w, t, p);
        if (status)
            break;
        size_t row = bytes_of(t, new_size(w, p->columns, columns_of(t)));
        longest = row > longest ? row : longest;
        /* The first layer is also the pattern for all added layers. */
        for (size_t to = layer; !status && to < (p->of_layer && !layer ? w->to.n_layers : layer + 1); to++) {
            char name[2 * NAME_MAX_BYTES];
            bool added = to >= n_layers;
            if (to != layer && !added)
                continue;
            snprintf(name, sizeof name, "blk.%zu.%s", to, p->name);
            if (write)
                status = write_tensor(w, t, p, added);
            else
                list_tensor(w, t, p, p->of_layer ? name : p->name);
        }
    }
    if (status || write)
        return status;
    w->row = malloc(longest);
    return w->row ? SPRY_OK : spry_fail_memory(w->error, "a row", longest);
}

static void write_metadata(widener *w)
{
    const spry_config *c = &w->model->config;
    const struct {
        const char *key;
        size_t value;
    } numbers[KEYS - 1] = {{"block_count", w->to.n_layers},
                           {"embedding_length", w->to.n_embd},
                           {"feed_forward_length", w->to.n_ff},
                           {"attention.head_count", w->to.n_heads},
                           {"attention.head_count_kv", w->to.n_kv_heads},
                           {"attention.key_length", c->head_dim},
                           {"attention.value_length", c->head_dim},
                           {"rope.dimension_count", c->rope_dim}};
    char keys[KEYS][NAME_MAX_BYTES];
    for (size_t i = 0; i < KEYS; i++)
        snprintf(keys[i], sizeof keys[i], "%s.%s", c->arch->gguf,
                 i < KEYS - 1 ? numbers[i].key : "attention.layer_norm_rms_epsilon");
    for (size_t i = 0; i < spry_gguf_entry_count(w->model->gguf); i++) {
        const spry_gguf_entry *entry = spry_gguf_entry_at(w->model->gguf, i);
        bool ours = spry_view_is(entry->key, "general.name") || spry_view_starts(entry->key, SPRY_VIEW("split."));
        for (size_t k = 0; k < KEYS; k++)
            ours = ours || spry_view_is(entry->key, keys[k]);
        if (!ours)
            spry_gguf_writer_entry(w->writer, entry);
    }
    spry_gguf_writer_string(w->writer, "general.name", spry_view_of(w->job->name));
    for (size_t i = 0; i < KEYS - 1; i++)
        spry_gguf_writer_u32(w->writer, keys[i], (uint32_t)numbers[i].value);
    spry_gguf_writer_f32(w->writer, keys[KEYS - 1], c->norm_eps * (float)c->n_embd / (float)w->to.n_embd);
}

spry_status spry_model_widen(const spry_model *model, const char *path, const spry_widen *job, spry_error *error)
{
    widener w = {.model = model, .job = job, .error = error};
    spry_status status = check_model(&w);
    if (!status)
        status = choose_sizes(&w);
    if (!status)
        status = spry_gguf_writer_create(&w.writer, error);
    if (!status) {
        write_metadata(&w);
        status = each_tensor(&w, false);
    }
    if (!status)
        status = spry_gguf_writer_begin(w.writer, path, error);
    if (!status)
        status = each_tensor(&w, true);
    if (!status)
        status = spry_gguf_writer_finish(w.writer, error);
    spry_gguf_writer_destroy(w.writer);
    free(w.row);
    return status;
}
