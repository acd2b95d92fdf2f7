/* Stored forms that no kernel reads: laid out anew once, in as few bits. */
#include <stdio.h>

#include "base/checked.h"
#include "kernels/blocks.h"
#include "model/weights_bind.h"

/* Makes `out` a matrix of a type in memory of its own. */
static spry_status make_room(const spry_binder *b, spry_weight *out, unsigned char **room, const spry_tensor *t,
                             spry_dtype type, size_t n_out, size_t n_in)
{
    size_t row_bytes, bytes;
    if (!spry_dtype_size(&row_bytes, type, n_in) || !spry_checked_mul(&bytes, row_bytes, n_out))
        return spry_fail(b->error, SPRY_ERR_FORMAT, "%s: tensor '%.*s' has rows of %zu, not whole blocks of %s",
                         b->name, SPRY_VIEW_ARG(t->name), n_in, spry_dtype_name(type));
    *room = spry_arena_alloc(b->arena, bytes, 1);
    if (!*room)
        return spry_fail_memory(b->error, "a tensor in another layout", bytes);
    spry_bind_use(b, t, SPRY_USE_COPIED);
    b->out->copied_bytes += bytes;
    b->out->bytes += bytes;
    b->out->parameters += n_out * n_in;
    *out = (spry_weight){.data = *room, .type = type, .n_out = n_out, .n_in = n_in, .row_bytes = row_bytes};
    return SPRY_OK;
}

spry_status spry_bind_f8(const spry_binder *b, spry_weight *out, const spry_tensor *t, size_t n_out, size_t n_in)
{
    char name[SPRY_TENSOR_NAME_MAX];
    size_t rows = b->config->scale_block[0], columns = b->config->scale_block[1];
    size_t n_row_blocks = (n_out + rows - 1) / rows, n_column_blocks = (n_in + columns - 1) / columns;
    unsigned char *room = NULL;
    const float *scales = NULL;
    snprintf(name, sizeof name, "%.*s_scale_inv", SPRY_VIEW_ARG(t->name));
    const spry_tensor *s = spry_bind_find(b, name);
    if (!s)
        return spry_bind_missing(b, name);
    if (s->dims[0] != n_row_blocks || s->dims[1] != n_column_blocks)
        return spry_bind_wrong_shape(b, s, n_row_blocks, n_column_blocks);
    spry_status status = spry_bind_vector(b, &scales, s, n_row_blocks * n_column_blocks, 0);
    if (!status)
        status = make_room(b, out, &room, t, SPRY_F8, n_out, n_in);
    for (size_t row = 0; !status && row < n_out; row++)
        for (size_t at = 0; at < n_in; at += SPRY_BLOCK_SMALL, room += sizeof(spry_block_f8)) {
            spry_block_f8 block = {.scale = scales[row / rows * n_column_blocks + at / columns]};
            memcpy(block.values, t->data + row * n_in + at, sizeof block.values);
            memcpy(room, &block, sizeof block);
        }
    return status;
}

/* Pairs side by side become pairs 16 apart. */
static void repack_mxfp4(spry_block_mxfp4 *out, const unsigned char *pairs, unsigned char exponent)
{
    out->exponent = exponent;
    for (size_t i = 0; i < sizeof out->low; i++) {
        unsigned first = pairs[i / 2] >> i % 2 * 4 & 15, second = pairs[8 + i / 2] >> i % 2 * 4 & 15;
        out->low[i] = (uint8_t)(first | second << 4);
    }
}

spry_status spry_bind_mxfp4(const spry_binder *b, spry_weight *out, const spry_tensor *blocks,
                            const spry_tensor *scales, const spry_expert_part *part)
{
    size_t n_rows = part->n_out * part->step, n_blocks = part->n_in / SPRY_BLOCK_SMALL, n = b->config->n_experts;
    const size_t shape[SPRY_TENSOR_DIMS] = {n, n_rows, n_blocks, 16};
    unsigned char *room = NULL;
    if (blocks->type != SPRY_U8 || memcmp(blocks->dims, shape, sizeof shape) != 0)
        return spry_bind_wrong_shape(b, blocks, n_rows, part->n_in);
    if (scales->type != SPRY_U8 || scales->dims[0] != n || scales->dims[1] != n_rows || scales->dims[2] != n_blocks)
        return spry_bind_wrong_shape(b, scales, n_rows, n_blocks);
    spry_status status = make_room(b, out, &room, blocks, SPRY_MXFP4, part->n_out, part->n_in);
    if (!status)
        spry_bind_use(b, scales, SPRY_USE_COPIED);
    for (size_t o = 0; !status && o < part->n_out; o++)
        for (size_t i = 0; i < n_blocks; i++, room += sizeof(spry_block_mxfp4)) {
            size_t at = (part->expert * n_rows + part->first + o * part->step) * n_blocks + i;
            spry_block_mxfp4 block;
            repack_mxfp4(&block, blocks->data + at * 16, scales->data[at]);
            memcpy(room, &block, sizeof block);
        }
    return status;
}

spry_status spry_bind_columns(const spry_binder *b, spry_weight *out, const spry_tensor *t,
                              const spry_expert_part *part)
{
    size_t n_columns = part->n_out * part->step, n_in = part->n_in, size = spry_dtype_bytes(t->type);
    unsigned char *room = NULL;
    if (spry_dtype_block(t->type) != 1 || !spry_dtype_known(t->type) || t->dims[0] != b->config->n_experts ||
        t->dims[1] != n_in || t->dims[2] != n_columns)
        return spry_bind_wrong_shape(b, t, n_in, n_columns);
    spry_status status = make_room(b, out, &room, t, t->type, part->n_out, n_in);
    for (size_t o = 0; !status && o < part->n_out; o++)
        for (size_t i = 0; i < n_in; i++, room += size)
            memcpy(room, t->data + ((part->expert * n_in + i) * n_columns + part->first + o * part->step) * size, size);
    return status;
}
