/* Latent attention. Hugging Face files, and GGUF files made before 2025, hold the heads' two matrices one above the
 * other; GGUF splits them since, the first one transposed, as they are used here. */
#include "model/arch.h"
#include "model/weights_bind.h"

static spry_status bind_norm(const spry_binder *b, const float **out, uint32_t layer, const char *ours, size_t n)
{
    char name[SPRY_TENSOR_NAME_MAX] = "";
    const spry_tensor *t = spry_bind_find_in_layer(b, name, layer, ours, 0, "weight");
    return t ? spry_bind_vector(b, out, t, n, 0) : spry_bind_missing(b, name);
}

/* Room for n_out * n_in floats, as a matrix. */
static float *make_floats(const spry_binder *b, spry_weight *out, size_t n_out, size_t n_in)
{
    float *room = spry_arena_alloc(b->arena, n_out * n_in, sizeof *room);
    *out = (spry_weight){.data = (const unsigned char *)room,
                         .type = SPRY_F32,
                         .n_out = n_out,
                         .n_in = n_in,
                         .row_bytes = n_in * sizeof *room};
    b->out->copied_bytes += n_out * n_in * sizeof *room;
    if (!room)
        spry_fail_memory(b->error, "a head's matrix", n_out * n_in * sizeof *room);
    return room;
}

/* Blocks become floats: heads are multiplied by kernels of floats. */
static spry_status unblock(const spry_binder *b, spry_weight *w)
{
    spry_weight from = *w;
    if (spry_dtype_block(from.type) == 1)
        return SPRY_OK;
    float *room = make_floats(b, w, from.n_out, from.n_in);
    for (size_t row = 0; room && row < from.n_out; row++)
        b->ops->decode[from.type](room + row * from.n_in, from.data + row * from.row_bytes, from.n_in);
    return room ? SPRY_OK : SPRY_ERR_MEMORY;
}

/* One kind of GGUF's: [n_heads, n_out, n_in]. */
static spry_status bind_split(const spry_binder *b, spry_weight *heads, uint32_t layer, const char *ours, size_t n_out,
                              size_t n_in)
{
    char name[SPRY_TENSOR_NAME_MAX] = "";
    size_t n = b->config->n_heads;
    const spry_tensor *t = spry_bind_find_in_layer(b, name, layer, ours, 0, "weight");
    if (!t)
        return spry_bind_missing(b, name);
    if (t->dims[0] != n || t->dims[1] != n_out || t->dims[2] != n_in)
        return spry_bind_wrong_shape(b, t, n_out, n_in);
    spry_status status = SPRY_OK;
    for (size_t h = 0; !status && h < n; h++) {
        status = spry_bind_slice(b, &heads[h], t, n_out, n_in, h);
        if (!status)
            status = unblock(b, &heads[h]);
    }
    return status;
}

/* Rows of `from`, transposed. */
static spry_status transpose(const spry_binder *b, spry_weight *out, const spry_weight *from)
{
    float *room = make_floats(b, out, from->n_in, from->n_out);
    float *row = spry_arena_alloc(b->arena, from->n_in, sizeof *row);
    if (!room || !row)
        return spry_fail_memory(b->error, "a head's matrix", from->n_in * sizeof *row);
    for (size_t o = 0; o < from->n_out; o++) {
        b->ops->decode[from->type](row, from->data + o * from->row_bytes, from->n_in);
        for (size_t i = 0; i < from->n_in; i++)
            room[i * from->n_out + o] = row[i];
    }
    return SPRY_OK;
}

static spry_status bind_heads(const spry_binder *b, spry_layer *l, uint32_t i)
{
    const spry_config *c = b->config;
    size_t rank = c->n_kv_rank, each = (size_t)c->nope_dim + c->value_dim;
    spry_weight both = {0};
    l->k_b = spry_arena_alloc(b->arena, c->n_heads, sizeof *l->k_b);
    l->v_b = spry_arena_alloc(b->arena, c->n_heads, sizeof *l->v_b);
    if (!l->k_b || !l->v_b)
        return spry_fail_memory(b->error, "heads", c->n_heads * 2 * sizeof *l->k_b);
    char name[SPRY_TENSOR_NAME_MAX] = "";
    if (b->gguf && !spry_bind_find_in_layer(b, name, i, "attn_kv_b", 0, "weight")) {
        spry_status status = bind_split(b, l->k_b, i, "attn_k_b", rank, c->nope_dim);
        return status ? status : bind_split(b, l->v_b, i, "attn_v_b", c->value_dim, rank);
    }
    spry_status status = spry_bind_linear(b, &both, i, "attn_kv_b", c->n_heads * each, rank, REQUIRED);
    for (size_t h = 0; !status && h < c->n_heads; h++) {
        const spry_weight keys = spry_weight_rows(&both, h * each, c->nope_dim);
        l->v_b[h] = spry_weight_rows(&both, h * each + c->nope_dim, c->value_dim);
        status = transpose(b, &l->k_b[h], &keys);
        if (!status)
            status = unblock(b, &l->v_b[h]);
    }
    return status;
}

spry_status spry_bind_latent(const spry_binder *b, spry_layer *l, uint32_t i)
{
    const spry_config *c = b->config;
    size_t n_q = (size_t)c->n_heads * (c->nope_dim + c->rope_dim);
    spry_status status;
    if (c->n_q_rank) {
        if ((status = spry_bind_linear(b, &l->q_a, i, "attn_q_a", c->n_q_rank, c->n_embd, REQUIRED)) ||
            (status = bind_norm(b, &l->q_a_norm, i, "attn_q_a_norm", c->n_q_rank)) ||
            (status = spry_bind_linear(b, &l->q, i, "attn_q_b", n_q, c->n_q_rank, REQUIRED)))
            return status;
    } else if ((status = spry_bind_linear(b, &l->q, i, "attn_q", n_q, c->n_embd, REQUIRED))) {
        return status;
    }
    if ((status = spry_bind_linear(b, &l->k, i, "attn_kv_a_mqa", c->head_dim, c->n_embd, REQUIRED)) ||
        (status = bind_norm(b, &l->kv_a_norm, i, "attn_kv_a_norm", c->n_kv_rank)) || (status = bind_heads(b, l, i)))
        return status;
    return spry_bind_linear(b, &l->o, i, "attn_output", c->n_embd, (size_t)c->n_heads * c->value_dim, REQUIRED);
}
