/* Reads checkpoints of llama2.c. The format has no magic number: a file is accepted if its size is what its header
 * says. */
#include "model/gguf_export.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "formats/gguf_writer.h"
#include "platform/file.h"
#include "tokenizer/tokenizer_gguf.h"

enum { HEADER_BYTES = 28, LARGEST = 1 << 24, NAME_BYTES = 64, PATH_BYTES = 4096, FIRST_BYTE = 3 };

typedef struct checkpoint {
    spry_mapping file, vocabulary_file; /* the model; tokenizer.bin, or empty */
    const unsigned char *vocabulary;
    size_t vocabulary_bytes;
    size_t dim, hidden, layers, heads, kv_heads, tokens, context, kv_dim;
    bool own_output; /* the output matrix is separate, not the embedding */
    const char *path;
    spry_error *error;
} checkpoint;

/* One of the file's arrays, in the file's order: [layers or 1, n_out, n_in]. */
typedef struct part {
    const char *name;
    size_t n_out, n_in;
    bool layered, skipped; /* skipped: tables of RoPE angles */
} part;

enum { N_PARTS = 14 };

static void list_parts(part parts[N_PARTS], const checkpoint *c)
{
    size_t angles = c->dim / c->heads / 2;
    const part all[N_PARTS] = {
        {"token_embd", c->tokens, c->dim, false, false},
        {"attn_norm", 1, c->dim, true, false},
        {"attn_q", c->dim, c->dim, true, false},
        {"attn_k", c->kv_dim, c->dim, true, false},
        {"attn_v", c->kv_dim, c->dim, true, false},
        {"attn_output", c->dim, c->dim, true, false},
        {"ffn_norm", 1, c->dim, true, false},
        {"ffn_gate", c->hidden, c->dim, true, false},
        {"ffn_down", c->dim, c->hidden, true, false},
        {"ffn_up", c->hidden, c->dim, true, false},
        {"output_norm", 1, c->dim, false, false},
        {"", c->context, angles, false, true},
        {"", c->context, angles, false, true},
        {"output", c->own_output ? c->tokens : 0, c->dim, false, false},
    };
    memcpy(parts, all, sizeof all);
}

static bool part_bytes(size_t *bytes, const checkpoint *c, const part *p)
{
    return spry_checked_mul(bytes, p->n_out, p->n_in) && spry_checked_mul(bytes, *bytes, p->layered ? c->layers : 1) &&
           spry_checked_mul(bytes, *bytes, sizeof(float));
}

/* The number at `index` of the header; 0 when it is out of range. */
static size_t header_number(const checkpoint *c, size_t index, bool *negative)
{
    int32_t value;
    memcpy(&value, c->file.data + index * sizeof value, sizeof value);
    if (negative)
        *negative = value < 0;
    if (value < 0 && negative && value != INT32_MIN)
        value = -value;
    return value > 0 && value <= LARGEST ? (size_t)value : 0;
}

/* Reads the header; false when the file cannot be a checkpoint. */
static bool read_header(checkpoint *c)
{
    part parts[N_PARTS];
    size_t total = HEADER_BYTES, bytes;
    bool negative;
    if (c->file.size < HEADER_BYTES)
        return false;
    c->dim = header_number(c, 0, NULL);
    c->hidden = header_number(c, 1, NULL);
    c->layers = header_number(c, 2, NULL);
    c->heads = header_number(c, 3, NULL);
    c->kv_heads = header_number(c, 4, NULL);
    c->tokens = header_number(c, 5, &negative);
    c->context = header_number(c, 6, NULL);
    c->own_output = negative;
    if (!c->dim || !c->hidden || !c->layers || !c->heads || !c->kv_heads || !c->tokens || !c->context ||
        c->dim % c->heads || c->dim / c->heads % 2 || c->heads % c->kv_heads)
        return false;
    c->kv_dim = c->dim / c->heads * c->kv_heads;
    list_parts(parts, c);
    for (size_t i = 0; i < N_PARTS; i++)
        if (!part_bytes(&bytes, c, &parts[i]) || !spry_checked_add(&total, total, bytes))
            return false;
    c->vocabulary = c->file.data + (total < c->file.size ? total : c->file.size);
    c->vocabulary_bytes = total < c->file.size ? c->file.size - total : 0;
    return total <= c->file.size;
}

bool spry_llama2c_is(const char *path)
{
    checkpoint c = {.path = path};
    if (spry_path_is_folder(path) || spry_mapping_open(&c.file, path, NULL))
        return false;
    bool is = read_header(&c);
    /* the rest must be a vocabulary: the length of the longest token, then a score and a length for each token */
    is = is && (!c.vocabulary_bytes || c.vocabulary_bytes >= 4 + 8 * c.tokens);
    spry_mapping_close(&c.file);
    return is;
}

/* ---- the vocabulary ---------------------------------------------------------------------------------------------- */

typedef struct vocabulary {
    spry_view *names;
    float *scores;
    int32_t *types;
    spry_buffer text; /* names of tokens, with spaces as SentencePiece writes them */
} vocabulary;

static spry_status find_vocabulary(checkpoint *c)
{
    spry_buffer path;
    const char *slash = strrchr(c->path, '/');
    if (c->vocabulary_bytes)
        return SPRY_OK;
    spry_buffer_init(&path, PATH_BYTES);
    spry_buffer_format(&path, "%.*stokenizer.bin", slash ? (int)(slash - c->path + 1) : 0, c->path);
    spry_status status = spry_buffer_view(&path).size && spry_path_exists(path.data)
                             ? spry_mapping_open(&c->vocabulary_file, path.data, c->error)
                             : spry_fail(c->error, SPRY_ERR_FILE,
                                         "%s: has no vocabulary, neither after its weights nor as tokenizer.bin "
                                         "beside it",
                                         c->path);
    spry_buffer_deinit(&path);
    c->vocabulary = c->vocabulary_file.data;
    c->vocabulary_bytes = c->vocabulary_file.size;
    return status;
}

/* Adds the name of a token. llama2.c writes spaces as spaces and bytes as themselves, and puts line ends around the two
 * marks of a text. */
static void add_name(vocabulary *v, size_t id, spry_view name)
{
    static const char *const first[FIRST_BYTE] = {"<unk>", "<s>", "</s>"};
    if (id < FIRST_BYTE) {
        spry_buffer_text(&v->text, first[id]);
        v->types[id] = id ? SPRY_GGUF_CONTROL : SPRY_GGUF_UNKNOWN;
    } else if (id < FIRST_BYTE + 256) {
        spry_buffer_format(&v->text, "<0x%02X>", (unsigned)(id - FIRST_BYTE));
        v->types[id] = SPRY_GGUF_BYTE;
    } else {
        for (size_t i = 0; i < name.size; i++)
            if (name.data[i] == ' ')
                spry_buffer_text(&v->text, "\xe2\x96\x81");
            else
                spry_buffer_append(&v->text, name.data + i, 1);
        v->types[id] = SPRY_GGUF_NORMAL;
    }
}

static spry_status read_vocabulary(vocabulary *v, const checkpoint *c)
{
    const unsigned char *at = c->vocabulary, *end = at + c->vocabulary_bytes;
    size_t *ends = calloc(c->tokens, sizeof *ends);
    v->names = calloc(c->tokens, sizeof *v->names);
    v->scores = calloc(c->tokens, sizeof *v->scores);
    v->types = calloc(c->tokens, sizeof *v->types);
    spry_status status = SPRY_OK;
    if (!ends || !v->names || !v->scores || !v->types)
        status = spry_fail_memory(c->error, "a vocabulary", c->tokens * sizeof *v->names);
    if (!status && c->vocabulary_bytes < 4)
        status = spry_fail(c->error, SPRY_ERR_FORMAT, "%s: its vocabulary is cut off", c->path);
    at += status ? 0 : 4; /* skips the length of the longest token */
    for (size_t id = 0; !status && id < c->tokens; id++) {
        int32_t length = -1;
        if (end - at >= 8) {
            memcpy(&v->scores[id], at, 4);
            memcpy(&length, at + 4, 4);
            at += 8;
        }
        if (length < 0 || length > end - at) {
            status = spry_fail(c->error, SPRY_ERR_FORMAT, "%s: its vocabulary is cut off or damaged at token %zu",
                               c->path, id);
            break;
        }
        add_name(v, id, (spry_view){(const char *)at, (size_t)length});
        ends[id] = v->text.size;
        at += length;
    }
    if (!status && v->text.failed)
        status = spry_fail_memory(c->error, "a vocabulary", c->vocabulary_bytes);
    for (size_t id = 0; !status && id < c->tokens; id++)
        v->names[id] = (spry_view){v->text.data + (id ? ends[id - 1] : 0), ends[id] - (id ? ends[id - 1] : 0)};
    free(ends);
    return status;
}

static void write_vocabulary(spry_gguf_writer *w, const vocabulary *v, size_t n)
{
    spry_gguf_writer_string(w, SPRY_KEY_MODEL, SPRY_VIEW("llama"));
    spry_gguf_writer_strings(w, SPRY_KEY_TOKENS, v->names, n);
    spry_gguf_writer_f32s(w, SPRY_KEY_SCORES, v->scores, n);
    spry_gguf_writer_i32s(w, SPRY_KEY_TYPES, v->types, n);
    spry_gguf_writer_u32(w, SPRY_KEY_UNKNOWN, 0);
    spry_gguf_writer_u32(w, SPRY_KEY_BOS, 1);
    spry_gguf_writer_u32(w, SPRY_KEY_EOS, 2);
    spry_gguf_writer_bool(w, SPRY_KEY_ADD_BOS, true);
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static void write_sizes(spry_gguf_writer *w, const checkpoint *c)
{
    const struct {
        const char *key;
        size_t value;
    } numbers[] = {
        {"llama.context_length", c->context},
        {"llama.embedding_length", c->dim},
        {"llama.block_count", c->layers},
        {"llama.feed_forward_length", c->hidden},
        {"llama.attention.head_count", c->heads},
        {"llama.attention.head_count_kv", c->kv_heads},
        {"llama.rope.dimension_count", c->dim / c->heads},
        {"llama.vocab_size", c->tokens},
    };
    spry_gguf_writer_string(w, "general.architecture", SPRY_VIEW("llama"));
    for (size_t i = 0; i < SPRY_COUNT(numbers); i++)
        spry_gguf_writer_u32(w, numbers[i].key, (uint32_t)numbers[i].value);
    spry_gguf_writer_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    spry_gguf_writer_f32(w, "llama.rope.freq_base", 10000);
}

static void list_tensors(spry_gguf_writer *w, const checkpoint *c, const part parts[N_PARTS])
{
    char name[NAME_BYTES];
    for (size_t i = 0; i < N_PARTS; i++)
        for (size_t layer = 0; !parts[i].skipped && parts[i].n_out && layer < (parts[i].layered ? c->layers : 1);
             layer++) {
            const part *p = &parts[i];
            if (p->layered)
                snprintf(name, sizeof name, "blk.%zu.%s.weight", layer, p->name);
            else
                snprintf(name, sizeof name, "%s.weight", p->name);
            bool vector = p->n_out == 1;
            spry_tensor t = {.name = spry_view_of(name), .type = SPRY_F32, .n_dims = vector ? 1 : 2};
            t.dims[0] = vector ? p->n_in : p->n_out;
            t.dims[1] = vector ? 1 : p->n_in;
            t.dims[2] = t.dims[3] = 1;
            spry_gguf_writer_tensor(w, &t);
        }
}

static spry_status write_tensors(spry_gguf_writer *w, const checkpoint *c, const part parts[N_PARTS])
{
    const unsigned char *at = c->file.data + HEADER_BYTES;
    spry_status status = SPRY_OK;
    for (size_t i = 0; !status && i < N_PARTS; i++) {
        size_t n = parts[i].layered ? c->layers : 1, bytes = parts[i].n_out * parts[i].n_in * sizeof(float);
        for (size_t layer = 0; !status && layer < n; layer++, at += bytes)
            if (!parts[i].skipped && bytes)
                status = spry_gguf_writer_data(w, at, bytes, c->error);
    }
    return status;
}

static spry_status write_file(const char *out, checkpoint *c, vocabulary *v)
{
    part parts[N_PARTS];
    spry_gguf_writer *w = NULL;
    spry_status status = find_vocabulary(c);
    if (!status)
        status = read_vocabulary(v, c);
    if (!status)
        status = spry_gguf_writer_create(&w, c->error);
    if (status)
        return status;
    list_parts(parts, c);
    write_sizes(w, c);
    write_vocabulary(w, v, c->tokens);
    list_tensors(w, c, parts);
    status = spry_gguf_writer_begin(w, out, c->error);
    if (!status)
        status = write_tensors(w, c, parts);
    if (!status)
        status = spry_gguf_writer_finish(w, c->error);
    spry_gguf_writer_destroy(w);
    return status;
}

spry_status spry_llama2c_to_gguf(const char *out, const char *path, spry_error *error)
{
    checkpoint c = {.path = path, .error = error};
    vocabulary v = {0};
    spry_status status = spry_mapping_open(&c.file, path, error);
    if (status)
        return status;
    spry_buffer_init(&v.text, SIZE_MAX / 2);
    status = read_header(&c) ? write_file(out, &c, &v)
                             : spry_fail(error, SPRY_ERR_FORMAT, "%s: not a checkpoint of llama2.c", path);
    spry_buffer_deinit(&v.text);
    free(v.names);
    free(v.scores);
    free(v.types);
    spry_mapping_close(&c.file);
    spry_mapping_close(&c.vocabulary_file);
    return status;
}
