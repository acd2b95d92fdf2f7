/* whisper.cpp's ggml files: magic, eleven sizes, mel filters (which we compute ourselves), tokens, tensors one after
 * the other without alignment. All numbers are little-endian. */
#include <string.h>

#include "base/checked.h"
#include "model/whisper_weights.h"

enum { MAGIC = 0x67676d6c, NAME_MAX_BYTES = 256, TENSORS_MAX = 1 << 16, TOKEN_BYTES_MAX = 1 << 12 };

typedef struct cursor {
    const unsigned char *data;
    size_t size, at;
    bool failed; /* read past the end */
} cursor;

static const unsigned char *take(cursor *c, size_t bytes)
{
    if (c->failed || bytes > c->size - c->at) {
        c->failed = true;
        return NULL;
    }
    const unsigned char *out = c->data + c->at;
    c->at += bytes;
    return out;
}

static uint32_t take_u32(cursor *c)
{
    const unsigned char *b = take(c, 4);
    return b ? (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24 : 0;
}

bool spry_whisper_bin_is(const spry_mapping *mapping)
{
    cursor c = {mapping->data, mapping->size, 0, false};
    return take_u32(&c) == MAGIC && !c.failed;
}

static spry_status cut_short(const char *path, const char *where, spry_error *error)
{
    return spry_fail(error, SPRY_ERR_FORMAT, "%s: the file ends within its %s", path, where);
}

static spry_status read_tokens(spry_whisper_bin *bin, spry_arena *arena, cursor *c, const char *path, spry_error *error)
{
    uint32_t n = take_u32(c);
    if (c->failed || n > bin->shape.n_vocab)
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: %u tokens are listed, but the vocabulary has %u", path, n,
                         bin->shape.n_vocab);
    bin->token_bytes = spry_arena_alloc(arena, n ? n : 1, sizeof *bin->token_bytes);
    if (!bin->token_bytes)
        return spry_fail_memory(error, "the tokens", n * sizeof *bin->token_bytes);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t size = take_u32(c);
        if (size > TOKEN_BYTES_MAX)
            return spry_fail(error, SPRY_ERR_FORMAT, "%s: token %u has %u bytes", path, i, size);
        const unsigned char *bytes = take(c, size);
        if (c->failed)
            return cut_short(path, "tokens", error);
        bin->token_bytes[i] = (spry_view){(const char *)bytes, size};
    }
    bin->n_token_bytes = n;
    return SPRY_OK;
}

static spry_status read_tensor(spry_tensor *t, cursor *c, const char *path, spry_error *error)
{
    uint32_t n_dims = take_u32(c), name_size = take_u32(c), type = take_u32(c);
    if (c->failed)
        return cut_short(path, "tensors", error);
    if (n_dims < 1 || n_dims > SPRY_TENSOR_DIMS || name_size < 1 || name_size > NAME_MAX_BYTES)
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: a tensor has %u dimensions and a name of %u bytes", path, n_dims,
                         name_size);
    size_t count = 1;
    *t = (spry_tensor){.n_dims = n_dims, .dims = {1, 1, 1, 1}};
    for (uint32_t d = 0; d < n_dims; d++) {
        size_t length = take_u32(c);
        t->dims[n_dims - 1 - d] = length; /* the file has the fastest first */
        if (!spry_checked_mul(&count, count, length))
            return spry_fail(error, SPRY_ERR_FORMAT, "%s: a tensor is larger than any file", path);
    }
    t->name = (spry_view){(const char *)take(c, name_size), name_size};
    if (c->failed)
        return cut_short(path, "tensors", error);
    if (!spry_dtype_known(type))
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s: %.*s has the unknown type %u", path, SPRY_VIEW_ARG(t->name),
                         type);
    t->type = (spry_dtype)type;
    if (count == 0 || t->dims[n_dims - 1] % spry_dtype_block(t->type) != 0 ||
        !spry_dtype_size(&t->bytes, t->type, count))
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: %.*s does not have whole blocks of %s", path,
                         SPRY_VIEW_ARG(t->name), spry_dtype_name(t->type));
    t->offset = c->at;
    t->data = take(c, t->bytes);
    return c->failed ? cut_short(path, "tensors", error) : SPRY_OK;
}

static spry_status read_tensors(spry_whisper_bin *bin, spry_arena *arena, cursor *c, const char *path,
                                spry_error *error)
{
    /* Counted first: the file does not say how many there are. */
    cursor ahead = *c;
    spry_tensor t;
    spry_status status = SPRY_OK;
    for (; status == SPRY_OK && ahead.at < ahead.size; bin->n_tensors++) {
        if (bin->n_tensors == TENSORS_MAX)
            return spry_fail(error, SPRY_ERR_FORMAT, "%s: more than %d tensors", path, TENSORS_MAX);
        status = read_tensor(&t, &ahead, path, error);
    }
    if (status != SPRY_OK)
        return status;
    bin->tensors = spry_arena_alloc(arena, bin->n_tensors + 1, sizeof *bin->tensors);
    if (!bin->tensors)
        return spry_fail_memory(error, "the directory of tensors", bin->n_tensors * sizeof *bin->tensors);
    for (size_t i = 0; i < bin->n_tensors && status == SPRY_OK; i++)
        status = read_tensor(&bin->tensors[i], c, path, error);
    return status;
}

spry_status spry_whisper_bin_read(spry_whisper_bin *bin, spry_arena *arena, const spry_mapping *mapping,
                                  const char *path, spry_error *error)
{
    cursor c = {mapping->data, mapping->size, 0, false};
    spry_whisper_shape *s = &bin->shape;
    uint32_t *const sizes[] = {&s->n_vocab,        &s->n_audio_ctx, &s->n_audio_state, &s->n_audio_heads,
                               &s->n_audio_layers, &s->n_text_ctx,  &s->n_text_state,  &s->n_text_heads,
                               &s->n_text_layers,  &s->n_bands};
    *bin = (spry_whisper_bin){0};
    take_u32(&c); /* magic */
    for (size_t i = 0; i < SPRY_COUNT(sizes); i++)
        *sizes[i] = take_u32(&c);
    take_u32(&c); /* the type of most matrices; each says its own */
    if (c.failed)
        return cut_short(path, "sizes", error);
    spry_status status = spry_whisper_shape_check(s, path, error);
    if (status != SPRY_OK)
        return status;
    size_t n_filters, filter_bands = take_u32(&c), filter_bins = take_u32(&c);
    if (!spry_checked_mul(&n_filters, filter_bands, filter_bins) || !spry_checked_mul(&n_filters, n_filters, 4) ||
        !take(&c, n_filters))
        return cut_short(path, "mel filters", error);
    status = read_tokens(bin, arena, &c, path, error);
    return status == SPRY_OK ? read_tensors(bin, arena, &c, path, error) : status;
}
