/* Converts the packed forms of compressed-tensors and ModelOpt, once, to blocks that kernels read: integers of 4 and 8
 * bits in words, and 4-bit floats, two in a byte, with scales of 16 (NVFP4) or 32 values (MXFP4). */
#include <math.h>
#include <stdio.h>

#include "kernels/blocks.h"
#include "model/weights_bind.h"

/* The tensor beside `t` whose name has other letters in place of the last `cut`. */
static const spry_tensor *find_beside(const spry_binder *b, char name[SPRY_TENSOR_NAME_MAX], const spry_tensor *t,
                                      size_t cut, const char *ending)
{
    snprintf(name, SPRY_TENSOR_NAME_MAX, "%.*s%s", (int)(t->name.size - cut), t->name.data, ending);
    return spry_bind_find(b, name);
}

enum { PACKED = sizeof "_packed" - 1 };

/* Letters to cut from NAME_packed, or from NAME alone. */
static size_t cut_of(const spry_tensor *t)
{
    return spry_view_ends(t->name, SPRY_VIEW("_packed")) ? PACKED : 0;
}

static bool is_shape(const spry_tensor *t, size_t rows, size_t columns)
{
    size_t given = t->n_dims > 1 ? t->dims[1] : 1;
    return t->dims[0] == rows && given == columns && t->dims[2] == 1 && t->dims[3] == 1;
}

/* ---- integers ---------------------------------------------------------------------------------------------------- */

typedef struct packed_matrix {
    const spry_tensor *weight, *zeros; /* zeros: may be NULL */
    const float *scales;
    size_t n_out, n_in, bits, groups;
} packed_matrix;

/* Number `index` of a list of unsigned numbers in words, the first in the lowest bits. */
static unsigned packed_value(const unsigned char *words, size_t index, size_t bits)
{
    return (unsigned)words[index * bits / 8] >> index * bits % 8 & ((1u << bits) - 1);
}

static unsigned weight_at(const packed_matrix *m, size_t o, size_t i)
{
    return packed_value(m->weight->data + o * m->n_in * m->bits / 8, i, m->bits);
}

/* Zero points are packed along the outputs. */
static unsigned zero_at(const packed_matrix *m, size_t o, size_t group)
{
    size_t in_word = 32 / m->bits;
    if (!m->zeros)
        return 1u << (m->bits - 1);
    return packed_value(m->zeros->data + (o / in_word * m->groups + group) * 4, o % in_word, m->bits);
}

/* Refuses another order of inputs, for which activations would have to be reordered. */
static spry_status check_order(const spry_binder *b, const packed_matrix *m, const spry_tensor *order)
{
    for (size_t i = 0; order && i < m->n_in; i++) {
        int32_t group = -1;
        if (order->type == SPRY_I32 && order->dims[0] == m->n_in)
            memcpy(&group, order->data + i * sizeof group, sizeof group);
        if (group < 0 || (size_t)group != i / (m->n_in / m->groups))
            return spry_fail(b->error, SPRY_ERR_UNSUPPORTED,
                             "%s: tensor '%.*s' has inputs out of order (actorder), which is not supported", b->name,
                             SPRY_VIEW_ARG(order->name));
    }
    return SPRY_OK;
}

static spry_status find_parts(const spry_binder *b, packed_matrix *m)
{
    char name[SPRY_TENSOR_NAME_MAX];
    const spry_tensor *scale = find_beside(b, name, m->weight, PACKED, "_scale"), *order;
    if (!scale)
        return spry_bind_missing(b, name);
    m->bits = m->n_in ? m->weight->dims[1] * 32 / m->n_in : 0;
    if ((m->bits != 4 && m->bits != 8) || !is_shape(m->weight, m->n_out, m->n_in * m->bits / 32) ||
        m->n_in * m->bits % 32)
        return spry_bind_wrong_shape(b, m->weight, m->n_out, m->n_in / 8);
    m->groups = scale->n_dims > 1 ? scale->dims[1] : 1;
    if (!m->groups || m->n_in % m->groups || m->n_in / m->groups % SPRY_BLOCK_SMALL ||
        !is_shape(scale, m->n_out, m->groups))
        return spry_bind_wrong_shape(b, scale, m->n_out, m->n_in / 32);
    order = find_beside(b, name, m->weight, PACKED, "_g_idx");
    spry_status status = check_order(b, m, order);
    if (!status)
        status = spry_bind_vector(b, &m->scales, scale, m->n_out * m->groups, 0);
    for (size_t i = 0; !status && i < m->n_out * m->groups; i++)
        if (!(fabsf(m->scales[i]) <= 65504)) /* largest 16-bit float */
            status = spry_fail(b->error, SPRY_ERR_FORMAT, "%s: tensor '%.*s' has a scale of %g", b->name,
                               SPRY_VIEW_ARG(scale->name), (double)m->scales[i]);
    m->zeros = find_beside(b, name, m->weight, PACKED, "_zero_point");
    if (!status && m->zeros && m->bits == 8)
        status = spry_fail(b->error, SPRY_ERR_UNSUPPORTED,
                           "%s: tensor '%s': zero points of 8-bit integers are not supported", b->name, name);
    size_t in_word = 32 / m->bits;
    if (!status && m->zeros &&
        (m->zeros->type != SPRY_I32 || m->n_out % in_word || !is_shape(m->zeros, m->n_out / in_word, m->groups)))
        status = spry_bind_wrong_shape(b, m->zeros, m->n_out / in_word, m->groups);
    if (!status && m->zeros)
        spry_bind_use(b, m->zeros, SPRY_USE_COPIED);
    if (!status && order)
        spry_bind_use(b, order, SPRY_USE_COPIED);
    return status;
}

static size_t put_q8_0(unsigned char *room, const packed_matrix *m, uint16_t scale, size_t o, size_t at)
{
    spry_block_q8_0 block = {.scale = scale};
    for (size_t i = 0; i < SPRY_BLOCK_SMALL; i++)
        block.quants[i] = (int8_t)((int)weight_at(m, o, at + i) - 128);
    memcpy(room, &block, sizeof block);
    return sizeof block;
}

/* With a minimum Q4_1, otherwise Q4_0. */
static size_t put_q4(unsigned char *room, const packed_matrix *m, uint16_t scale, const uint16_t *min, size_t o,
                     size_t at)
{
    spry_block_q4_1 block = {.scale = scale, .min = min ? *min : 0};
    for (size_t i = 0; i < sizeof block.low; i++)
        block.low[i] = (uint8_t)(weight_at(m, o, at + i) | weight_at(m, o, at + 16 + i) << 4);
    if (min) {
        memcpy(room, &block, sizeof block);
        return sizeof block;
    }
    spry_block_q4_0 plain = {.scale = scale};
    memcpy(plain.low, block.low, sizeof plain.low);
    memcpy(room, &plain, sizeof plain);
    return sizeof plain;
}

static spry_status bind_integers(const spry_binder *b, spry_weight *out, const spry_tensor *t, size_t n_out,
                                 size_t n_in)
{
    packed_matrix m = {.weight = t, .n_out = n_out, .n_in = n_in};
    unsigned char *room = NULL;
    spry_status status = find_parts(b, &m);
    if (!status)
        status = spry_bind_room(b, out, &room, t,
                                m.bits == 8 ? SPRY_Q8_0
                                : m.zeros   ? SPRY_Q4_1
                                            : SPRY_Q4_0,
                                n_out, n_in);
    for (size_t o = 0; !status && o < n_out; o++)
        for (size_t at = 0; at < n_in; at += SPRY_BLOCK_SMALL) {
            size_t group = at / (n_in / m.groups);
            float scale = m.scales[o * m.groups + group], min = -scale * (float)zero_at(&m, o, group);
            uint16_t half, half_min;
            b->ops->encode[SPRY_F16](&half, &scale, 1);
            b->ops->encode[SPRY_F16](&half_min, &min, 1);
            room += m.bits == 8 ? put_q8_0(room, &m, half, o, at)
                                : put_q4(room, &m, half, m.zeros ? &half_min : NULL, o, at);
        }
    return status;
}

/* ---- 4-bit floats ------------------------------------------------------------------------------------------------ */

/* Two neighbours share a byte in the file, values `half` apart share one in a block. */
static void repack_pairs(uint8_t *out, const unsigned char *pairs, size_t half)
{
    for (size_t i = 0; i < half; i++) {
        unsigned first = pairs[i / 2] >> i % 2 * 4 & 15, second = pairs[(half + i) / 2] >> (half + i) % 2 * 4 & 15;
        out[i] = (uint8_t)(first | second << 4);
    }
}

/* The factor of all values: ModelOpt stores it, compressed-tensors what values are divided by. */
static spry_status find_factor(const spry_binder *b, float *factor, const spry_tensor *t)
{
    char name[SPRY_TENSOR_NAME_MAX];
    const float *value = NULL;
    bool divides = cut_of(t);
    const spry_tensor *f = find_beside(b, name, t, cut_of(t), divides ? "_global_scale" : "_scale_2");
    if (!f)
        return spry_bind_missing(b, name);
    spry_status status = spry_bind_vector(b, &value, f, 1, 0);
    if (status)
        return status;
    *factor = divides ? 1 / *value : *value;
    return fabsf(*factor) > 0 && isfinite(*factor)
               ? SPRY_OK
               : spry_fail(b->error, SPRY_ERR_FORMAT, "%s: tensor '%s' holds %g", b->name, name, (double)*value);
}

spry_status spry_bind_nvfp4(const spry_binder *b, spry_weight *out, const spry_tensor *t, size_t n_out, size_t n_in)
{
    enum { PART = 16, PARTS = 4 };
    char name[SPRY_TENSOR_NAME_MAX];
    unsigned char *room = NULL;
    float factor = 1;
    const spry_tensor *scale = find_beside(b, name, t, cut_of(t), "_scale");
    if (!scale)
        return spry_bind_missing(b, name);
    if (t->type != SPRY_U8 || n_in % (PART * PARTS) || !is_shape(t, n_out, n_in / 2))
        return spry_bind_wrong_shape(b, t, n_out, n_in / 2);
    if (scale->type != SPRY_F8_E4M3 || !is_shape(scale, n_out, n_in / PART))
        return spry_bind_wrong_shape(b, scale, n_out, n_in / PART);
    spry_status status = find_factor(b, &factor, t);
    if (!status)
        status = spry_bind_room(b, out, &room, t, SPRY_NVFP4, n_out, n_in);
    if (status)
        return status;
    spry_bind_use(b, scale, SPRY_USE_COPIED);
    for (size_t part = 0; part < n_out * n_in / PART; part += PARTS, room += sizeof(spry_block_nvfp4)) {
        spry_block_nvfp4 block;
        memcpy(block.scales, scale->data + part, sizeof block.scales);
        for (size_t i = 0; i < PARTS; i++) {
            if (block.scales[i] > 126)
                return spry_fail(b->error, SPRY_ERR_FORMAT, "%s: tensor '%s' has a scale that is negative or no number",
                                 b->name, name);
            repack_pairs(block.low + i * (PART / 2), t->data + (part + i) * (PART / 2), PART / 2);
        }
        memcpy(room, &block, sizeof block);
    }
    out->scale = factor != 1 ? factor : 0;
    return SPRY_OK;
}

static spry_status bind_mxfp4(const spry_binder *b, spry_weight *out, const spry_tensor *t, const spry_tensor *scale,
                              size_t n_out, size_t n_in)
{
    unsigned char *room = NULL;
    if (n_in % SPRY_BLOCK_SMALL || !is_shape(t, n_out, n_in / 2))
        return spry_bind_wrong_shape(b, t, n_out, n_in / 2);
    if (!is_shape(scale, n_out, n_in / SPRY_BLOCK_SMALL))
        return spry_bind_wrong_shape(b, scale, n_out, n_in / SPRY_BLOCK_SMALL);
    spry_status status = spry_bind_room(b, out, &room, t, SPRY_MXFP4, n_out, n_in);
    if (!status)
        spry_bind_use(b, scale, SPRY_USE_COPIED);
    for (size_t at = 0; !status && at < n_out * n_in / SPRY_BLOCK_SMALL; at++, room += sizeof(spry_block_mxfp4)) {
        spry_block_mxfp4 block = {.exponent = scale->data[at]};
        repack_pairs(block.low, t->data + at * sizeof block.low, sizeof block.low);
        memcpy(room, &block, sizeof block);
    }
    return status;
}

spry_status spry_bind_packed(const spry_binder *b, spry_weight *out, const spry_tensor *t, size_t n_out, size_t n_in)
{
    char name[SPRY_TENSOR_NAME_MAX];
    const spry_tensor *scale = find_beside(b, name, t, PACKED, "_scale");
    if (t->type == SPRY_I32)
        return bind_integers(b, out, t, n_out, n_in);
    if (t->type == SPRY_U8 && scale && scale->type == SPRY_U8)
        return bind_mxfp4(b, out, t, scale, n_out, n_in);
    return spry_bind_nvfp4(b, out, t, n_out, n_in);
}
