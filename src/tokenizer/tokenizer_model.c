/* SentencePiece's tokenizer.model: a protocol buffer, parsed here because only a dozen of its fields are needed.
 *
 * ModelProto: 1 pieces {1 piece, 2 score, 3 type}, 2 trainer {3 model_type, 24 whitespace as suffix, 35 byte_fallback,
 * 40-43 ids of unk, bos, eos, pad}, 3 normalizer {1 name, 2 charsmap, 3 add_dummy_prefix, 4 remove_extra_whitespaces,
 * 5 escape_whitespaces}. */
#include <math.h>
#include <stdlib.h>

#include "tokenizer/tokenizer_impl.h"

typedef enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 } wire_type;

/* A field of a message: `bytes` with WIRE_BYTES, otherwise `value` (the bits of a float with WIRE_FIXED32). */
typedef struct field {
    uint32_t number;
    wire_type type;
    uint64_t value;
    spry_view bytes;
} field;

enum piece_type { PIECE_NORMAL = 1, PIECE_UNKNOWN, PIECE_CONTROL, PIECE_USER, PIECE_UNUSED, PIECE_BYTE };
enum model_type { MODEL_UNIGRAM = 1, MODEL_BPE = 2 };

/* The file's settings, initialised with SentencePiece's defaults. */
typedef struct model_spec {
    uint64_t model_type;
    bool suffix_space, byte_fallback;
    int32_t unknown, bos, eos, padding;
    bool has_charsmap, add_prefix, squeeze, escape;
    size_t n_pieces, piece_bytes;
} model_spec;

static const model_spec default_spec = {.model_type = MODEL_UNIGRAM,
                                        .unknown = 0,
                                        .bos = 1,
                                        .eos = 2,
                                        .padding = -1,
                                        .add_prefix = true,
                                        .squeeze = true,
                                        .escape = true};

static bool take_varint(spry_view *in, uint64_t *value)
{
    *value = 0;
    for (unsigned shift = 0; shift < 64 && in->size; shift += 7) {
        unsigned char byte = (unsigned char)in->data[0];
        in->data++;
        in->size--;
        *value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80)
            return true;
    }
    return false;
}

static bool take_fixed(spry_view *in, size_t size, uint64_t *value)
{
    if (in->size < size)
        return false;
    *value = 0;
    for (size_t i = 0; i < size; i++)
        *value |= (uint64_t)(unsigned char)in->data[i] << (8 * i);
    in->data += size;
    in->size -= size;
    return true;
}

/* Removes the next field from a message; false when it is malformed. */
static bool take_field(spry_view *in, field *out)
{
    uint64_t key, length;
    if (!take_varint(in, &key) || key >> 3 == 0 || key >> 3 > UINT32_MAX)
        return false;
    *out = (field){.number = (uint32_t)(key >> 3), .type = (wire_type)(key & 7)};
    switch (out->type) {
    case WIRE_VARINT: return take_varint(in, &out->value);
    case WIRE_FIXED64: return take_fixed(in, 8, &out->value);
    case WIRE_FIXED32: return take_fixed(in, 4, &out->value);
    case WIRE_BYTES:
        if (!take_varint(in, &length) || length > in->size)
            return false;
        out->bytes = (spry_view){in->data, (size_t)length};
        in->data += length;
        in->size -= (size_t)length;
        return true;
    default: return false;
    }
}

/* Converts an id, which is a 32-bit two's complement number in 64 bits; negative values mean none. */
static int32_t id_of(uint64_t value)
{
    return value < SPRY_VOCAB_MAX ? (int32_t)value : -1;
}

static bool read_trainer(model_spec *spec, spry_view message)
{
    field f;
    while (message.size) {
        if (!take_field(&message, &f))
            return false;
        switch (f.number) {
        case 3: spec->model_type = f.value; break;
        case 24: spec->suffix_space = f.value != 0; break;
        case 35: spec->byte_fallback = f.value != 0; break;
        case 40: spec->unknown = id_of(f.value); break;
        case 41: spec->bos = id_of(f.value); break;
        case 42: spec->eos = id_of(f.value); break;
        case 43: spec->padding = id_of(f.value); break;
        default: break;
        }
    }
    return true;
}

static bool read_normalizer(model_spec *spec, spry_view message)
{
    field f;
    while (message.size) {
        if (!take_field(&message, &f))
            return false;
        switch (f.number) {
        case 2: spec->has_charsmap = f.bytes.size > 0; break;
        case 3: spec->add_prefix = f.value != 0; break;
        case 4: spec->squeeze = f.value != 0; break;
        case 5: spec->escape = f.value != 0; break;
        default: break;
        }
    }
    return true;
}

typedef struct piece {
    spry_view text;
    float score;
    uint64_t type;
} piece;

static bool read_piece(piece *out, spry_view message)
{
    field f;
    *out = (piece){.type = PIECE_NORMAL, .text = SPRY_VIEW("")};
    while (message.size) {
        if (!take_field(&message, &f))
            return false;
        if (f.number == 1 && f.type == WIRE_BYTES) {
            out->text = f.bytes;
        } else if (f.number == 2 && f.type == WIRE_FIXED32) {
            uint32_t bits = (uint32_t)f.value;
            memcpy(&out->score, &bits, sizeof bits);
        } else if (f.number == 3 && f.type == WIRE_VARINT) {
            out->type = f.value;
        }
    }
    if (isnan(out->score))
        out->score = 0;
    return true;
}

/* First pass: all settings, and the number of pieces. */
static spry_status read_spec(model_spec *spec, spry_view model, spry_error *error)
{
    *spec = default_spec;
    bool ok = model.size > 0;
    while (ok && model.size) {
        field f;
        piece one;
        ok = take_field(&model, &f);
        if (!ok || f.type != WIRE_BYTES)
            continue;
        if (f.number == 1 && (ok = read_piece(&one, f.bytes))) {
            spec->n_pieces++;
            spec->piece_bytes += one.text.size;
        } else if (f.number == 2) {
            ok = read_trainer(spec, f.bytes);
        } else if (f.number == 3) {
            ok = read_normalizer(spec, f.bytes);
        }
    }
    if (!ok || !spec->n_pieces)
        return spry_fail(error, SPRY_ERR_FORMAT, "neither JSON nor a whole SentencePiece model");
    if (spec->model_type != MODEL_BPE)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                         "a SentencePiece model of type %d%s: only BPE (type 2) is supported", (int)spec->model_type,
                         spec->model_type == MODEL_UNIGRAM ? " (unigram)" : "");
    if (spec->has_charsmap)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                         "a SentencePiece model with a precompiled character map is not supported");
    if (spec->suffix_space)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                         "a SentencePiece model with white space as suffix is not supported");
    return SPRY_OK;
}

static spry_token_kind kind_of(const piece *one)
{
    unsigned char byte;
    switch (one->type) {
    case PIECE_UNKNOWN: return SPRY_TOKEN_UNKNOWN;
    case PIECE_CONTROL: return SPRY_TOKEN_CONTROL;
    case PIECE_USER: return SPRY_TOKEN_ADDED;
    case PIECE_UNUSED: return SPRY_TOKEN_UNUSED;
    case PIECE_BYTE: return spry_vocab_byte(one->text, &byte) ? SPRY_TOKEN_BYTE : SPRY_TOKEN_UNUSED;
    default: return SPRY_TOKEN_NORMAL;
    }
}

/* Second pass: reads the pieces. */
static spry_status read_pieces(spry_tokenizer *tokenizer, spry_view model, spry_error *error)
{
    size_t id = 0;
    field f;
    piece one;
    while (model.size && take_field(&model, &f)) {
        if (f.number != 1 || f.type != WIRE_BYTES || !read_piece(&one, f.bytes))
            continue;
        if (!spry_vocab_set(&tokenizer->vocab, id, one.text, kind_of(&one)))
            return spry_fail_memory(error, "a vocabulary", one.text.size);
        tokenizer->vocab.scores[id++] = one.score;
    }
    return SPRY_OK;
}

/* The id in a key of "added_tokens_decoder"; SPRY_VOCAB_MAX when it is not a number. */
static size_t added_id(const char *key)
{
    char *end;
    unsigned long id = strtoul(key, &end, 10);
    return key[0] >= '0' && key[0] <= '9' && !*end && id < SPRY_VOCAB_MAX ? id : SPRY_VOCAB_MAX;
}

/* Allocates a vocabulary for the pieces and for the tokens of tokenizer_config.json. */
static spry_status make_room(spry_tokenizer *tokenizer, const model_spec *spec, json_t *added, spry_error *error)
{
    size_t size = spec->n_pieces, bytes = spec->piece_bytes;
    const char *key;
    json_t *entry;
    json_object_foreach(added, key, entry)
    {
        size_t id = added_id(key);
        spry_view text = spry_json_view(json_object_get(entry, "content"));
        if (id == SPRY_VOCAB_MAX || !text.size)
            return spry_fail(error, SPRY_ERR_FORMAT, "added_tokens_decoder: \"%.20s\" is not an id with a content",
                             key);
        size = id >= size ? id + 1 : size;
        bytes += text.size;
    }
    return spry_vocab_init(&tokenizer->vocab, &tokenizer->arena, size, spec->n_pieces + json_object_size(added), bytes,
                           error);
}

static spry_status read_added(spry_tokenizer *tokenizer, json_t *added, spry_error *error)
{
    spry_status status = spry_tokenizer_list_added(tokenizer, json_object_size(added), error);
    const char *key;
    json_t *entry;
    json_object_foreach(added, key, entry)
    {
        spry_added_token token = spry_json_added_token(entry);
        token.id = (int32_t)added_id(key);
        if (!status && !spry_view_equal(tokenizer->vocab.names[token.id], token.text) &&
            !spry_vocab_set(&tokenizer->vocab, (size_t)token.id, token.text, SPRY_TOKEN_NORMAL))
            status = spry_fail_memory(error, "added tokens", token.text.size);
        if (status)
            break;
        token.text = tokenizer->vocab.names[token.id];
        token.normalized = false;
        spry_tokenizer_mark_added(tokenizer, token);
    }
    return status;
}

spry_status spry_tokenizer_load_spm(spry_tokenizer *tokenizer, spry_view model, json_t *added, spry_error *error)
{
    model_spec spec;
    spry_status status = read_spec(&spec, model, error);
    if (!status)
        status = make_room(tokenizer, &spec, added, error);
    if (!status)
        status = read_pieces(tokenizer, model, error);
    if (!status)
        status = read_added(tokenizer, added, error);
    if (status)
        return status;
    tokenizer->by_score = true;
    tokenizer->byte_fallback = spec.byte_fallback;
    tokenizer->fuse_unknown = true;
    tokenizer->unknown = spec.unknown;
    tokenizer->bos = spec.bos;
    tokenizer->eos = spec.eos;
    tokenizer->padding = spec.padding;
    spry_tokenizer_set_spm_rules(tokenizer, spec.add_prefix, spec.squeeze, spec.escape);
    if (spec.bos >= 0)
        tokenizer->before = (spry_frame){{spec.bos}, 1};
    return SPRY_OK;
}
