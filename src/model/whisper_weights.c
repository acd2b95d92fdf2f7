/* Finds every tensor under the names of either kind of file and lays it out for the kernels. */
#include "model/whisper_weights.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/number.h"
#include "formats/safetensors.h"
#include "kernels/packed.h"
#include "tokenizer/tokenizer.h"

/* ---- files of whisper.cpp ---------------------------------------------------------------------------------------- */

/* whisper.cpp's ggml files: magic, eleven sizes, mel filters (which this program computes itself), tokens, then tensors
 * without alignment. All numbers are little-endian. */

enum { MAGIC = 0x67676d6c, NAME_MAX_BYTES = 256, TENSORS_MAX = 1 << 16, TOKEN_BYTES_MAX = 1 << 12 };

typedef struct cursor {
    const unsigned char *data;
    size_t size, at;
    bool failed; /* a read went past the end */
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

/* True if the bytes begin like a ggml file. */
static bool bin_is(const spry_mapping *mapping)
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
        t->dims[n_dims - 1 - d] = length; /* the file has the fastest dimension first */
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
    /* The file does not say how many tensors it has, so they are counted first. */
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

static spry_status bin_read(spry_whisper_bin *bin, spry_arena *arena, const spry_mapping *mapping, const char *path,
                            spry_error *error)
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
    take_u32(&c); /* the type of most matrices; each tensor has its own type, too */
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

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

enum { SIZE_LIMIT = 1 << 20, LAYERS_LIMIT = 1024, CONFIG_BYTES_MAX = 16 << 20, NAME_BYTES = 160, TAPS = 3 };

/* The name of a tensor in Hugging Face folders, and in ggml files. */
typedef struct name_pair {
    const char *folder, *bin;
} name_pair;

typedef struct loader {
    spry_whisper_weights *weights;
    const spry_ops *ops;
    const char *path;
    const spry_whisper_bin *bin; /* NULL: a folder */
    spry_dtype type;             /* type to convert matrices to; SPRY_DTYPE_COUNT: none */
    spry_error *error;
} loader;

spry_status spry_whisper_shape_check(const spry_whisper_shape *s, const char *path, spry_error *error)
{
    const struct {
        const char *name;
        uint32_t value, limit;
    } sizes[] = {
        {"vocabulary", s->n_vocab, SIZE_LIMIT},
        {"mel bands", s->n_bands, 128},
        {"audio context", s->n_audio_ctx, SPRY_WHISPER_SECONDS * 50},
        {"audio state", s->n_audio_state, 1 << 14},
        {"audio heads", s->n_audio_heads, 1 << 10},
        {"audio layers", s->n_audio_layers, LAYERS_LIMIT},
        {"text context", s->n_text_ctx, 1 << 14},
        {"text state", s->n_text_state, 1 << 14},
        {"text heads", s->n_text_heads, 1 << 10},
        {"text layers", s->n_text_layers, LAYERS_LIMIT},
    };
    for (size_t i = 0; i < SPRY_COUNT(sizes); i++)
        if (sizes[i].value < 1 || sizes[i].value > sizes[i].limit)
            return spry_fail(error, SPRY_ERR_FORMAT, "%s: the %s is %u; a Whisper model has 1 to %u", path,
                             sizes[i].name, sizes[i].value, sizes[i].limit);
    if (s->n_audio_state != s->n_text_state || s->n_audio_state % s->n_audio_heads ||
        s->n_text_state % s->n_text_heads || s->n_audio_state / s->n_audio_heads > SPRY_ATTEND_HEAD_DIM_MAX ||
        s->n_text_state / s->n_text_heads > SPRY_ATTEND_HEAD_DIM_MAX)
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: states of %u and %u do not fit %u and %u heads", path,
                         s->n_audio_state, s->n_text_state, s->n_audio_heads, s->n_text_heads);
    return SPRY_OK;
}

/* ---- one tensor -------------------------------------------------------------------------------------------------- */

static const spry_tensor *find_bin(const spry_whisper_bin *bin, const char *name)
{
    for (size_t i = 0; i < bin->n_tensors; i++)
        if (spry_view_is(bin->tensors[i].name, name))
            return &bin->tensors[i];
    return NULL;
}

static const spry_tensor *find(const loader *l, const char *prefix, name_pair name, const char *suffix)
{
    char full[NAME_BYTES];
    if (l->bin) {
        snprintf(full, sizeof full, "%s%s%s", prefix, name.bin, suffix);
        return find_bin(l->bin, full);
    }
    snprintf(full, sizeof full, "model.%s%s%s", prefix, name.folder, suffix);
    return spry_safetensors_find(l->weights->files, spry_view_of(full));
}

/* Finds a tensor of n_out rows with n_in values each; n_in 0: any number. */
static spry_status need(const loader *l, const spry_tensor **out, const char *prefix, name_pair name,
                        const char *suffix, size_t n_out, size_t n_in)
{
    *out = find(l, prefix, name, suffix);
    if (!*out)
        return spry_fail(l->error, SPRY_ERR_FORMAT, "%s: no tensor %s%s%s: not a Whisper model", l->path, prefix,
                         l->bin ? name.bin : name.folder, suffix);
    size_t width = (*out)->dims[1] * (*out)->dims[2] * (*out)->dims[3];
    if ((*out)->dims[0] != n_out || (n_in && width != n_in))
        return spry_fail(l->error, SPRY_ERR_FORMAT, "%s: %.*s is %zu x %zu, expected %zu x %zu", l->path,
                         SPRY_VIEW_ARG((*out)->name), (*out)->dims[0], width, n_out, n_in);
    if (!l->ops->decode[(*out)->type])
        return spry_fail(l->error, SPRY_ERR_UNSUPPORTED, "%s: %.*s has type %s", l->path, SPRY_VIEW_ARG((*out)->name),
                         spry_dtype_name((*out)->type));
    return SPRY_OK;
}

static void *room(const loader *l, size_t count, size_t size)
{
    void *out = spry_arena_alloc(&l->weights->arena, count, size);
    if (!out)
        spry_fail_memory(l->error, "the weights of a Whisper model", count * size);
    return out;
}

static spry_status load_floats(const loader *l, const float **out, const char *prefix, name_pair name,
                               const char *suffix, size_t n_rows, size_t n)
{
    const spry_tensor *t;
    spry_status status = need(l, &t, prefix, name, suffix, n_rows, n);
    if (status != SPRY_OK)
        return status;
    float *floats = room(l, n_rows * n, sizeof *floats);
    if (!floats)
        return SPRY_ERR_MEMORY;
    l->ops->decode[t->type](floats, t->data, n_rows * n);
    *out = floats;
    return SPRY_OK;
}

/* Packs rows if their kernel needs that; otherwise `rows` must outlive the weights. */
static spry_status lay_out(const loader *l, spry_voice_matrix *m, const unsigned char *rows, size_t row_bytes)
{
    size_t group = l->ops->matmul[m->type].group, n_groups;
    m->data = rows;
    m->stride = row_bytes;
    if (!group)
        return SPRY_OK;
    n_groups = (m->n_out + group - 1) / group;
    m->stride = spry_packed_row_bytes(m->type) * group * (m->n_in / spry_dtype_block(m->type));
    unsigned char *packed = room(l, n_groups, m->stride);
    if (!packed)
        return SPRY_ERR_MEMORY;
    for (size_t g = 0; g < n_groups; g++) {
        size_t left = m->n_out - g * group;
        spry_pack_group(m->type, packed + g * m->stride, rows + g * group * row_bytes, row_bytes, m->n_in,
                        left < group ? left : group, group);
    }
    m->data = packed;
    return SPRY_OK;
}

/* Converts rows to another type, through floats. */
static spry_status convert(const loader *l, spry_voice_matrix *m, spry_dtype type, const spry_tensor *t)
{
    spry_arena temporary;
    size_t row_bytes, from_bytes = t->bytes / m->n_out;
    if (!spry_dtype_size(&row_bytes, type, m->n_in))
        return spry_fail(l->error, SPRY_ERR_INPUT, "rows of %zu values cannot be %s", m->n_in, spry_dtype_name(type));
    spry_arena_init(&temporary);
    /* kernels without packing read these rows, so they must stay */
    spry_arena *arena = l->ops->matmul[type].group ? &temporary : &l->weights->arena;
    unsigned char *rows = spry_arena_alloc(arena, m->n_out, row_bytes);
    float *floats = spry_arena_alloc(&temporary, m->n_in, sizeof *floats);
    spry_status status = rows && floats ? SPRY_OK : spry_fail_memory(l->error, "a converted matrix", row_bytes);
    for (size_t o = 0; status == SPRY_OK && o < m->n_out; o++) {
        l->ops->decode[t->type](floats, t->data + o * from_bytes, m->n_in);
        l->ops->encode[type](rows + o * row_bytes, floats, m->n_in);
    }
    m->type = type;
    if (status == SPRY_OK)
        status = lay_out(l, m, rows, row_bytes);
    spry_arena_deinit(&temporary);
    return status;
}

static spry_status load_matrix(const loader *l, spry_voice_matrix *m, const char *prefix, name_pair name,
                               const char *suffix, size_t n_out, size_t n_in, bool bias)
{
    const spry_tensor *t;
    spry_status status = need(l, &t, prefix, name, suffix, n_out, n_in);
    if (status != SPRY_OK)
        return status;
    *m = (spry_voice_matrix){.type = t->type, .n_out = n_out, .n_in = t->dims[1]};
    bool converts = l->type != SPRY_DTYPE_COUNT && l->type != t->type && m->n_in % spry_dtype_block(l->type) == 0;
    bool integers = l->ops->matmul[converts ? l->type : t->type].integer;
    if (integers && m->n_in % SPRY_ACT_BLOCK)
        return spry_fail(l->error, SPRY_ERR_UNSUPPORTED, "%s: %.*s has rows of %zu values", l->path,
                         SPRY_VIEW_ARG(t->name), m->n_in);
    status = converts ? convert(l, m, l->type, t) : lay_out(l, m, t->data, t->bytes / n_out);
    if (status == SPRY_OK && bias)
        status = load_floats(l, &m->bias, prefix, name, ".bias", n_out, 1);
    return status;
}

/* Reorders [n_out, n_in, taps] to [n_out, taps, n_in]: then the inputs of an output frame are consecutive in memory. */
static spry_status load_conv(const loader *l, spry_voice_matrix *m, const char *name, size_t n_out, size_t n_in)
{
    const name_pair both = {name, name};
    const spry_tensor *t;
    spry_arena temporary;
    spry_status status = need(l, &t, "encoder.", both, ".weight", n_out, n_in * TAPS);
    if (status != SPRY_OK)
        return status;
    spry_arena_init(&temporary);
    size_t count = n_out * n_in * TAPS;
    float *given = spry_arena_alloc(&temporary, count, sizeof *given), *turned = room(l, count, sizeof *turned);
    *m = (spry_voice_matrix){.type = SPRY_F32, .n_out = n_out, .n_in = n_in * TAPS};
    if (given && turned) {
        l->ops->decode[t->type](given, t->data, count);
        for (size_t o = 0; o < n_out; o++)
            for (size_t i = 0; i < n_in; i++)
                for (size_t tap = 0; tap < TAPS; tap++)
                    turned[(o * TAPS + tap) * n_in + i] = given[(o * n_in + i) * TAPS + tap];
        status = lay_out(l, m, (const unsigned char *)turned, m->n_in * sizeof *turned);
    } else {
        status = spry_fail_memory(l->error, "a convolution", count * sizeof *given);
    }
    spry_arena_deinit(&temporary);
    return status == SPRY_OK ? load_floats(l, &m->bias, "encoder.", both, ".bias", n_out, 1) : status;
}

static spry_status load_norm(const loader *l, spry_voice_norm *norm, const char *prefix, name_pair name, size_t n)
{
    spry_status status = load_floats(l, &norm->weight, prefix, name, ".weight", n, 1);
    return status == SPRY_OK ? load_floats(l, &norm->bias, prefix, name, ".bias", n, 1) : status;
}

/* ---- layers ------------------------------------------------------------------------------------------------------ */

static spry_status load_attention(const loader *l, spry_whisper_attention *a, const char *prefix,
                                  const name_pair names[5], size_t n)
{
    spry_voice_matrix *const matrices[] = {&a->q, &a->k, &a->v, &a->o};
    spry_status status = load_norm(l, &a->norm, prefix, names[4], n);
    for (size_t i = 0; i < SPRY_COUNT(matrices) && status == SPRY_OK; i++)
        status = load_matrix(l, matrices[i], prefix, names[i], ".weight", n, n, matrices[i] != &a->k);
    return status;
}

static spry_status load_layer(const loader *l, spry_whisper_layer *layer, const char *part, size_t index, size_t n,
                              bool cross)
{
    static const name_pair self_names[] = {{"self_attn.q_proj", "attn.query"},
                                           {"self_attn.k_proj", "attn.key"},
                                           {"self_attn.v_proj", "attn.value"},
                                           {"self_attn.out_proj", "attn.out"},
                                           {"self_attn_layer_norm", "attn_ln"}};
    static const name_pair cross_names[] = {{"encoder_attn.q_proj", "cross_attn.query"},
                                            {"encoder_attn.k_proj", "cross_attn.key"},
                                            {"encoder_attn.v_proj", "cross_attn.value"},
                                            {"encoder_attn.out_proj", "cross_attn.out"},
                                            {"encoder_attn_layer_norm", "cross_attn_ln"}};
    static const name_pair norm = {"final_layer_norm", "mlp_ln"}, up = {"fc1", "mlp.0"}, down = {"fc2", "mlp.2"};
    char prefix[NAME_BYTES / 2];
    snprintf(prefix, sizeof prefix, "%s.%s.%zu.", part, l->bin ? "blocks" : "layers", index);
    const spry_tensor *wide = find(l, prefix, up, ".weight");
    size_t n_ff = wide ? wide->dims[0] : 4 * n;
    if (n_ff < 1 || n_ff > SIZE_LIMIT)
        return spry_fail(l->error, SPRY_ERR_FORMAT, "%s: a feed-forward layer of %zu values", l->path, n_ff);
    spry_status status = load_attention(l, &layer->self, prefix, self_names, n);
    if (status == SPRY_OK && cross)
        status = load_attention(l, &layer->cross, prefix, cross_names, n);
    if (status == SPRY_OK)
        status = load_norm(l, &layer->norm, prefix, norm, n);
    if (status == SPRY_OK)
        status = load_matrix(l, &layer->up, prefix, up, ".weight", n_ff, n, true);
    return status == SPRY_OK ? load_matrix(l, &layer->down, prefix, down, ".weight", n, n_ff, true) : status;
}

static spry_status load_layers(const loader *l, spry_whisper_layer **out, const char *part, size_t count, size_t n,
                               bool cross)
{
    spry_whisper_layer *layers = *out = room(l, count, sizeof *layers);
    spry_status status = layers ? SPRY_OK : SPRY_ERR_MEMORY;
    for (size_t i = 0; i < count && status == SPRY_OK; i++)
        status = load_layer(l, &layers[i], part, i, n, cross);
    return status;
}

static spry_status load_all(const loader *l)
{
    static const name_pair positions = {"embed_positions.weight", "positional_embedding"};
    static const name_pair tokens = {"embed_tokens", "token_embedding"};
    static const name_pair audio_norm = {"layer_norm", "ln_post"}, text_norm = {"layer_norm", "ln"};
    spry_whisper_weights *w = l->weights;
    const spry_whisper_shape *s = &w->shape;
    size_t n = s->n_audio_state;
    spry_status status = load_conv(l, &w->conv1, "conv1", n, s->n_bands);
    if (status == SPRY_OK)
        status = load_conv(l, &w->conv2, "conv2", n, n);
    if (status == SPRY_OK)
        status = load_floats(l, &w->audio_positions, "encoder.", positions, "", s->n_audio_ctx, n);
    if (status == SPRY_OK)
        status = load_layers(l, &w->audio, "encoder", s->n_audio_layers, n, false);
    if (status == SPRY_OK)
        status = load_norm(l, &w->audio_norm, "encoder.", audio_norm, n);
    if (status == SPRY_OK)
        status = load_floats(l, &w->text_positions, "decoder.", positions, "", s->n_text_ctx, n);
    if (status == SPRY_OK)
        status = load_layers(l, &w->text, "decoder", s->n_text_layers, n, true);
    if (status == SPRY_OK)
        status = load_norm(l, &w->text_norm, "decoder.", text_norm, n);
    if (status == SPRY_OK)
        status = load_matrix(l, &w->tokens, "decoder.", tokens, ".weight", s->n_vocab, n, false);
    w->kv_type = w->tokens.type == SPRY_F32 ? SPRY_F32 : SPRY_F16;
    return status;
}

/* ---- the two kinds of files -------------------------------------------------------------------------------------- */

static spry_status read_config(spry_whisper_shape *s, const char *folder, spry_error *error)
{
    static const struct {
        const char *key;
        size_t offset;
    } fields[] = {
        {"vocab_size", offsetof(spry_whisper_shape, n_vocab)},
        {"num_mel_bins", offsetof(spry_whisper_shape, n_bands)},
        {"max_source_positions", offsetof(spry_whisper_shape, n_audio_ctx)},
        {"d_model", offsetof(spry_whisper_shape, n_audio_state)},
        {"encoder_attention_heads", offsetof(spry_whisper_shape, n_audio_heads)},
        {"encoder_layers", offsetof(spry_whisper_shape, n_audio_layers)},
        {"max_target_positions", offsetof(spry_whisper_shape, n_text_ctx)},
        {"d_model", offsetof(spry_whisper_shape, n_text_state)},
        {"decoder_attention_heads", offsetof(spry_whisper_shape, n_text_heads)},
        {"decoder_layers", offsetof(spry_whisper_shape, n_text_layers)},
    };
    spry_buffer path, text;
    json_t *config = NULL;
    spry_buffer_init(&path, 1 << 16);
    spry_buffer_init(&text, CONFIG_BYTES_MAX);
    spry_status status = spry_path_join(&path, folder, "config.json", error);
    if (status == SPRY_OK)
        status = spry_file_read(&text, path.data, error);
    if (status == SPRY_OK && (status = spry_json_object(&config, spry_buffer_view(&text), error)) != SPRY_OK)
        spry_fail_prefix(error, status, path.data);
    const char *kind = json_string_value(json_object_get(config, "model_type"));
    if (status == SPRY_OK && (!kind || strcmp(kind, "whisper") != 0))
        status = spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s: model_type is %s, not whisper: it cannot recognise speech",
                           path.data, kind ? kind : "missing");
    for (size_t i = 0; i < SPRY_COUNT(fields) && status == SPRY_OK; i++) {
        json_int_t value = json_integer_value(json_object_get(config, fields[i].key));
        if (value < 1 || value > SIZE_LIMIT)
            status = spry_fail(error, SPRY_ERR_FORMAT, "%s: %s is missing or out of range", path.data, fields[i].key);
        else
            *(uint32_t *)(void *)((char *)s + fields[i].offset) = (uint32_t)value;
    }
    if (status == SPRY_OK)
        status = spry_whisper_shape_check(s, path.data, error);
    json_decref(config);
    spry_buffer_deinit(&text);
    spry_buffer_deinit(&path);
    return status;
}

/* Copies the bytes of all tokens before the first control token. A folder without a tokenizer can still be opened. */
static spry_status read_tokenizer(spry_whisper_weights *w, const char *folder, spry_error *error)
{
    spry_tokenizer *tokenizer = NULL;
    spry_error why;
    if (spry_tokenizer_open(&tokenizer, folder, &why) != SPRY_OK)
        return SPRY_OK;
    size_t n = 0, size = spry_tokenizer_size(tokenizer);
    size = size < w->shape.n_vocab ? size : w->shape.n_vocab;
    w->token_bytes = spry_arena_alloc(&w->arena, size + 1, sizeof *w->token_bytes);
    for (; w->token_bytes && n < size && spry_tokenizer_kind(tokenizer, (int32_t)n) != SPRY_TOKEN_CONTROL; n++) {
        spry_view bytes = spry_tokenizer_bytes(tokenizer, (int32_t)n);
        char *copy = spry_arena_copy(&w->arena, bytes);
        if (!copy)
            break;
        w->token_bytes[n] = (spry_view){copy, bytes.size};
    }
    w->n_token_bytes = n;
    spry_tokenizer_destroy(tokenizer);
    return w->token_bytes ? SPRY_OK : spry_fail_memory(error, "the tokens", size * sizeof *w->token_bytes);
}

static spry_status open_folder(loader *l)
{
    spry_whisper_weights *w = l->weights;
    spry_status status = read_config(&w->shape, l->path, l->error);
    if (status == SPRY_OK)
        status = spry_safetensors_open(&w->files, l->path, l->error);
    if (status == SPRY_OK)
        status = read_tokenizer(w, l->path, l->error);
    return status == SPRY_OK ? load_all(l) : status;
}

static spry_status open_bin(loader *l)
{
    spry_whisper_weights *w = l->weights;
    spry_whisper_bin bin;
    spry_status status = spry_mapping_open(&w->mapping, l->path, l->error);
    if (status != SPRY_OK)
        return status;
    if (!bin_is(&w->mapping))
        return spry_fail(l->error, SPRY_ERR_FORMAT,
                         "%s: not a Whisper model: neither a ggml file of whisper.cpp nor a Hugging Face folder",
                         l->path);
    status = bin_read(&bin, &w->arena, &w->mapping, l->path, l->error);
    if (status != SPRY_OK)
        return status;
    w->shape = bin.shape;
    w->token_bytes = bin.token_bytes;
    w->n_token_bytes = bin.n_token_bytes;
    l->bin = &bin;
    status = load_all(l);
    l->bin = NULL;
    return status;
}

spry_status spry_whisper_weights_open(spry_whisper_weights *weights, const char *path, const spry_ops *ops,
                                      spry_dtype type, spry_error *error)
{
    *weights = (spry_whisper_weights){0};
    spry_arena_init(&weights->arena);
    loader l = {.weights = weights, .ops = ops, .path = path, .type = type, .error = error};
    spry_status status = SPRY_OK;
    if (type != SPRY_DTYPE_COUNT && !ops->encode[type])
        status = spry_fail(error, SPRY_ERR_INPUT, "weights cannot be converted to %s", spry_dtype_name(type));
    if (status == SPRY_OK)
        status = spry_path_is_folder(path) ? open_folder(&l) : open_bin(&l);
    if (status != SPRY_OK)
        spry_whisper_weights_close(weights);
    return status;
}

void spry_whisper_weights_close(spry_whisper_weights *weights)
{
    spry_safetensors_close(weights->files);
    spry_mapping_close(&weights->mapping);
    spry_arena_deinit(&weights->arena);
    *weights = (spry_whisper_weights){0};
}

void spry_voice_matrix_row(float *out, const spry_ops *ops, const spry_voice_matrix *m, size_t row,
                           unsigned char *scratch)
{
    size_t group = ops->matmul[m->type].group;
    const void *bytes = m->data + row * m->stride;
    if (group) {
        spry_unpack_row(m->type, scratch, m->data + row / group * m->stride, row % group, m->n_in, group);
        bytes = scratch;
    }
    ops->decode[m->type](out, bytes, m->n_in);
}
