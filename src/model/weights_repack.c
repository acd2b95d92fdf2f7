/* Converts stored forms that no kernel can read to one that kernels read, once, with as few bits. */
#include <stdio.h>

#include "base/number.h"
#include "kernels/blocks.h"
#include "kernels/half.h"
#include "model/weights_bind.h"

spry_status spry_bind_room(const spry_binder *b, spry_weight *out, unsigned char **room, const spry_tensor *t,
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

/* The scale of a block. Kernels treat every byte as a number, so a block that contains a NaN gets a NaN as its
 * scale. */
static float f8_scale(const spry_block_f8 *block, float scale)
{
    for (size_t i = 0; i < SPRY_BLOCK_SMALL; i++)
        if ((block->values[i] & 0x7f) == 0x7f)
            return spry_e4m3_decode(block->values[i]);
    return scale;
}

/* Finds the scales of 8-bit floats: for blocks, for rows, or one. Both _scale_inv and _scale are factors. */
static spry_status find_f8_scales(const spry_binder *b, const float **scales, size_t *rows, size_t *columns,
                                  const spry_tensor *t, size_t n_out, size_t n_in)
{
    char name[SPRY_TENSOR_NAME_MAX], other[SPRY_TENSOR_NAME_MAX];
    snprintf(name, sizeof name, "%.*s_scale_inv", SPRY_VIEW_ARG(t->name));
    snprintf(other, sizeof other, "%.*s_scale", SPRY_VIEW_ARG(t->name));
    const spry_tensor *s = spry_bind_find(b, name);
    s = s ? s : spry_bind_find(b, other);
    if (!s)
        return spry_bind_missing(b, name);
    size_t given[2] = {s->n_dims > 0 ? s->dims[0] : 1, s->n_dims > 1 ? s->dims[1] : 1};
    const size_t sizes[][2] = {{b->config->scale_block[0], b->config->scale_block[1]}, {1, n_in}, {n_out, n_in}};
    for (size_t i = 0; i < SPRY_COUNT(sizes); i++) {
        *rows = sizes[i][0];
        *columns = sizes[i][1];
        size_t n_rows = (n_out + *rows - 1) / *rows, n_columns = (n_in + *columns - 1) / *columns;
        if (given[0] == n_rows && given[1] == n_columns && s->dims[2] == 1 && s->dims[3] == 1)
            return spry_bind_vector(b, scales, s, n_rows * n_columns, 0);
    }
    return spry_bind_wrong_shape(b, s, n_out, 1);
}

spry_status spry_bind_f8(const spry_binder *b, spry_weight *out, const spry_tensor *t, size_t n_out, size_t n_in)
{
    size_t rows = 1, columns = 1;
    unsigned char *room = NULL;
    const float *scales = NULL;
    spry_status status = find_f8_scales(b, &scales, &rows, &columns, t, n_out, n_in);
    size_t n_column_blocks = (n_in + columns - 1) / columns;
    if (!status)
        status = spry_bind_room(b, out, &room, t, SPRY_F8, n_out, n_in);
    for (size_t row = 0; !status && row < n_out; row++)
        for (size_t at = 0; at < n_in; at += SPRY_BLOCK_SMALL, room += sizeof(spry_block_f8)) {
            spry_block_f8 block;
            memcpy(block.values, t->data + row * n_in + at, sizeof block.values);
            block.scale = f8_scale(&block, scales[row / rows * n_column_blocks + at / columns]);
            memcpy(room, &block, sizeof block);
        }
    return status;
}

/* ---- 8-bit integers ---------------------------------------------------------------------------------------------- */

/* Accepts zero points only if all are 0; symmetric checkpoints may store them. */
static spry_status check_zero_points(const spry_binder *b, const spry_tensor *t)
{
    char name[SPRY_TENSOR_NAME_MAX];
    snprintf(name, sizeof name, "%.*s_zero_point", SPRY_VIEW_ARG(t->name));
    const spry_tensor *zeros = spry_bind_find(b, name);
    for (size_t i = 0; zeros && i < zeros->bytes; i++)
        if (zeros->data[i])
            return spry_fail(b->error, SPRY_ERR_UNSUPPORTED,
                             "%s: tensor '%s' has zero points other than 0 (asymmetric), which is not supported",
                             b->name, name);
    if (zeros)
        spry_bind_use(b, zeros, SPRY_USE_COPIED);
    return SPRY_OK;
}

/* Finds the scales. *group: number of inputs that share a scale. */
static spry_status find_scales(const spry_binder *b, const float **scales, bool *one, size_t *group,
                               const spry_tensor *t, size_t n_out, size_t n_in)
{
    char name[SPRY_TENSOR_NAME_MAX];
    snprintf(name, sizeof name, "%.*s_scale", SPRY_VIEW_ARG(t->name));
    const spry_tensor *s = spry_bind_find(b, name);
    if (!s)
        return spry_bind_missing(b, name);
    size_t columns = s->n_dims > 1 ? s->dims[1] : 1;
    *one = s->dims[0] == 1 && columns == 1;
    bool fits = *one || (s->dims[0] == n_out && columns && n_in % columns == 0 && s->dims[2] == 1 && s->dims[3] == 1);
    *group = fits ? n_in / columns : 0;
    if (!fits || *group % SPRY_BLOCK_SMALL)
        return spry_bind_wrong_shape(b, s, n_out, 1);
    spry_status status = spry_bind_vector(b, scales, s, *one ? 1 : n_out * columns, 0);
    for (size_t i = 0; !status && i < (*one ? 1 : n_out * columns); i++)
        if (!((*scales)[i] >= 0 && (*scales)[i] <= 65504)) /* largest 16-bit float */
            status = spry_fail(b->error, SPRY_ERR_FORMAT, "%s: tensor '%s' has a scale of %g", b->name, name,
                               (double)(*scales)[i]);
    return status;
}

spry_status spry_bind_int8(const spry_binder *b, spry_weight *out, const spry_tensor *t, size_t n_out, size_t n_in)
{
    const float *scales = NULL;
    bool one = false;
    size_t group = SPRY_BLOCK_SMALL;
    unsigned char *room = NULL;
    spry_status status = find_scales(b, &scales, &one, &group, t, n_out, n_in);
    if (!status)
        status = check_zero_points(b, t);
    if (!status)
        status = spry_bind_room(b, out, &room, t, SPRY_Q8_0, n_out, n_in);
    for (size_t row = 0; !status && row < n_out; row++)
        for (size_t at = 0; at < n_in; at += SPRY_BLOCK_SMALL, room += sizeof(spry_block_q8_0)) {
            spry_block_q8_0 block;
            b->ops->encode[SPRY_F16](&block.scale, &scales[one ? 0 : row * (n_in / group) + at / group], 1);
            memcpy(block.quants, t->data + row * n_in + at, sizeof block.quants);
            memcpy(room, &block, sizeof block);
        }
    return status;
}

/* Repacks nibbles: neighbours share a byte in the file, values 16 apart share one here. */
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
    size_t n_rows = part->n_all, n_blocks = part->n_in / SPRY_BLOCK_SMALL, n = b->config->n_experts;
    const size_t shape[SPRY_TENSOR_DIMS] = {n, n_rows, n_blocks, 16};
    unsigned char *room = NULL;
    if (blocks->type != SPRY_U8 || memcmp(blocks->dims, shape, sizeof shape) != 0)
        return spry_bind_wrong_shape(b, blocks, n_rows, part->n_in);
    if (scales->type != SPRY_U8 || scales->dims[0] != n || scales->dims[1] != n_rows || scales->dims[2] != n_blocks)
        return spry_bind_wrong_shape(b, scales, n_rows, n_blocks);
    spry_status status = spry_bind_room(b, out, &room, blocks, SPRY_MXFP4, part->n_out, part->n_in);
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
    size_t n_columns = part->n_all, n_in = part->n_in, size = spry_dtype_bytes(t->type);
    unsigned char *room = NULL;
    if (spry_dtype_block(t->type) != 1 || !spry_dtype_known(t->type) || t->dims[0] != b->config->n_experts ||
        t->dims[1] != n_in || t->dims[2] != n_columns)
        return spry_bind_wrong_shape(b, t, n_in, n_columns);
    spry_status status = spry_bind_room(b, out, &room, t, t->type, part->n_out, n_in);
    for (size_t o = 0; !status && o < part->n_out; o++)
        for (size_t i = 0; i < n_in; i++, room += size)
            memcpy(room, t->data + ((part->expert * n_in + i) * n_columns + part->first + o * part->step) * size, size);
    return status;
}

/* ---- GPTQ and AWQ ------------------------------------------------------------------------------------------------ */

typedef struct int4_matrix {
    const spry_tensor *weight, *zeros, *scales, *groups; /* groups: may be NULL */
    size_t n_out, n_in, group;
    spry_int4 form;
} int4_matrix;

/* Value `column` of a row of words, each of which has 8 values. AWQ stores the even ones first. */
static unsigned nibble(const spry_tensor *t, size_t words, size_t row, size_t column, bool awq)
{
    static const unsigned char awq_place[] = {0, 4, 1, 5, 2, 6, 3, 7};
    uint32_t word;
    memcpy(&word, t->data + (row * words + column / 8) * sizeof word, sizeof word);
    return word >> 4 * (awq ? awq_place[column % 8] : column % 8) & 15;
}

static unsigned int4_value(const int4_matrix *m, size_t o, size_t i)
{
    uint32_t word;
    if (m->form == SPRY_INT4_AWQ) /* [n_in, n_out / 8] */
        return nibble(m->weight, m->n_out / 8, i, o, true);
    memcpy(&word, m->weight->data + (i / 8 * m->n_out + o) * sizeof word, sizeof word); /* [n_in / 8, n_out] */
    return word >> 4 * (i % 8) & 15;
}

static unsigned int4_zero(const int4_matrix *m, size_t o, size_t group)
{
    return nibble(m->zeros, m->n_out / 8, group, o, m->form == SPRY_INT4_AWQ) + (m->form == SPRY_INT4_GPTQ);
}

static bool is_shape(const spry_tensor *t, size_t rows, size_t columns)
{
    return t->dims[0] == rows && t->dims[1] == columns && t->dims[2] == 1 && t->dims[3] == 1;
}

/* Checks sizes and types. Inputs must be in consecutive groups: with another order (desc_act) the activations would
 * have to be reordered. */
static spry_status check_int4(const spry_binder *b, const int4_matrix *m)
{
    size_t n_groups = m->n_in / m->group;
    bool awq = m->form == SPRY_INT4_AWQ;
    if (m->n_out % 8 || m->n_in % m->group || m->weight->type != SPRY_I32 ||
        !is_shape(m->weight, awq ? m->n_in : m->n_in / 8, awq ? m->n_out / 8 : m->n_out))
        return spry_bind_wrong_shape(b, m->weight, m->n_out, m->n_in);
    if (m->zeros->type != SPRY_I32 || !is_shape(m->zeros, n_groups, m->n_out / 8))
        return spry_bind_wrong_shape(b, m->zeros, n_groups, m->n_out / 8);
    if (!spry_dtype_known(m->scales->type) || spry_dtype_block(m->scales->type) != 1 ||
        !is_shape(m->scales, n_groups, m->n_out))
        return spry_bind_wrong_shape(b, m->scales, n_groups, m->n_out);
    if (m->groups && (m->groups->type != SPRY_I32 || m->groups->dims[0] != m->n_in))
        return spry_bind_wrong_shape(b, m->groups, m->n_in, 1);
    for (size_t i = 0; m->groups && i < m->n_in; i++) {
        uint32_t group;
        memcpy(&group, m->groups->data + i * sizeof group, sizeof group);
        if (group != i / m->group)
            return spry_fail(b->error, SPRY_ERR_UNSUPPORTED,
                             "%s: tensor '%.*s' has inputs out of order (desc_act), which is not supported", b->name,
                             SPRY_VIEW_ARG(m->groups->name));
    }
    return SPRY_OK;
}

static bool is_symmetric(const int4_matrix *m)
{
    for (size_t group = 0; group < m->n_in / m->group; group++)
        for (size_t o = 0; o < m->n_out; o++)
            if (int4_zero(m, o, group) != 8)
                return false;
    return true;
}

static void fill_int4(const spry_binder *b, unsigned char *room, const int4_matrix *m, const float *scales,
                      bool symmetric)
{
    for (size_t o = 0; o < m->n_out; o++)
        for (size_t at = 0; at < m->n_in; at += SPRY_BLOCK_SMALL) {
            size_t group = at / m->group;
            float scale = scales[group * m->n_out + o], min = -scale * (float)int4_zero(m, o, group);
            spry_block_q4_1 block;
            b->ops->encode[SPRY_F16](&block.scale, &scale, 1);
            b->ops->encode[SPRY_F16](&block.min, &min, 1);
            for (size_t i = 0; i < sizeof block.low; i++)
                block.low[i] = (uint8_t)(int4_value(m, o, at + i) | int4_value(m, o, at + 16 + i) << 4);
            if (symmetric) {
                spry_block_q4_0 plain = {.scale = block.scale};
                memcpy(plain.low, block.low, sizeof plain.low);
                memcpy(room, &plain, sizeof plain);
            } else {
                memcpy(room, &block, sizeof block);
            }
            room += symmetric ? sizeof(spry_block_q4_0) : sizeof block;
        }
}

spry_status spry_bind_int4(const spry_binder *b, bool *found, spry_weight *out, uint32_t layer, const char *ours,
                           uint32_t expert, size_t n_out, size_t n_in)
{
    char name[SPRY_TENSOR_NAME_MAX] = "";
    const spry_config *c = b->config;
    int4_matrix m = {.n_out = n_out, .n_in = n_in, .form = (spry_int4)c->int4};
    m.group = c->int4_group ? c->int4_group : n_in;
    bool packed = c->int4 == SPRY_INT4_PACKED;
    m.weight = spry_bind_find_in_layer(b, name, layer, ours, expert, packed ? "weight_packed" : "qweight");
    *found = m.weight;
    if (!m.weight)
        return SPRY_OK;
    if (packed)
        return spry_bind_packed(b, out, m.weight, n_out, n_in);
    m.groups = spry_bind_find_in_layer(b, name, layer, ours, expert, "g_idx");
    if (!(m.zeros = spry_bind_find_in_layer(b, name, layer, ours, expert, "qzeros")) ||
        !(m.scales = spry_bind_find_in_layer(b, name, layer, ours, expert, "scales")))
        return spry_bind_missing(b, name);
    const float *scales = NULL;
    unsigned char *room = NULL;
    spry_status status = check_int4(b, &m);
    if (!status)
        status = spry_bind_vector(b, &scales, m.scales, n_in / m.group * n_out, 0);
    bool symmetric = !status && is_symmetric(&m);
    if (!status)
        status = spry_bind_room(b, out, &room, m.weight, symmetric ? SPRY_Q4_0 : SPRY_Q4_1, n_out, n_in);
    if (status)
        return status;
    spry_bind_use(b, m.zeros, SPRY_USE_COPIED);
    if (m.groups)
        spry_bind_use(b, m.groups, SPRY_USE_COPIED);
    fill_int4(b, room, &m, scales, symmetric);
    return SPRY_OK;
}
