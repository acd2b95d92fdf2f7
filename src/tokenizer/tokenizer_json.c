/* tokenizer.json: vocabulary, merges, added tokens. json_pipeline.c reads the rest. */
#include "tokenizer/tokenizer_json.h"

#include <stdlib.h>

#include "base/json.h"

json_t *spry_json_parse(spry_view text, spry_error *error)
{
    json_t *root;
    return spry_json_object(&root, text, error) ? NULL : root;
}

const json_t *spry_json_member(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

spry_view spry_json_view(const json_t *value)
{
    return json_is_string(value) ? (spry_view){json_string_value(value), json_string_length(value)} : SPRY_VIEW("");
}

bool spry_json_flag(const json_t *object, const char *key, bool otherwise)
{
    const json_t *value = json_object_get(object, key);
    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

spry_added_token spry_json_added_token(const json_t *entry)
{
    return (spry_added_token){
        .text = spry_json_view(json_object_get(entry, "content")),
        .special = spry_json_flag(entry, "special", false),
        .lstrip = spry_json_flag(entry, "lstrip", false),
        .rstrip = spry_json_flag(entry, "rstrip", false),
        .single_word = spry_json_flag(entry, "single_word", false),
        .normalized = spry_json_flag(entry, "normalized", true),
    };
}

/* Extends the vocabulary's size to include an id; false for an invalid id. */
static bool count_id(const json_t *value, size_t *size)
{
    json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
    if (id < 0 || id >= SPRY_VOCAB_MAX)
        return false;
    if ((size_t)id >= *size)
        *size = (size_t)id + 1;
    return true;
}

/* The size of the vocabulary in ids and bytes. */
static spry_status measure(json_t *vocab, const json_t *added, size_t *size, size_t *bytes, spry_error *error)
{
    *size = *bytes = 0;
    for (void *it = json_object_iter(vocab); it; it = json_object_iter_next(vocab, it)) {
        if (!count_id(json_object_iter_value(it), size))
            return spry_fail(error, SPRY_ERR_FORMAT, "model.vocab: the id of \"%.100s\" is not a number below %d",
                             json_object_iter_key(it), SPRY_VOCAB_MAX);
        *bytes += json_object_iter_key_len(it);
    }
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *entry = json_array_get(added, i), *content = json_object_get(entry, "content");
        if (!json_is_string(content) || !count_id(json_object_get(entry, "id"), size))
            return spry_fail(error, SPRY_ERR_FORMAT,
                             "added_tokens[%zu] needs a string \"content\" and an \"id\" below %d", i, SPRY_VOCAB_MAX);
        *bytes += json_string_length(content);
    }
    return SPRY_OK;
}

static spry_status read_vocab(spry_tokenizer *tokenizer, json_t *vocab, const json_t *added, spry_error *error)
{
    size_t size, bytes;
    spry_status status = measure(vocab, added, &size, &bytes, error);
    if (!status)
        status = spry_vocab_init(&tokenizer->vocab, &tokenizer->arena, size,
                                 json_object_size(vocab) + json_array_size(added), bytes, error);
    if (status)
        return status;
    for (void *it = json_object_iter(vocab); it; it = json_object_iter_next(vocab, it)) {
        spry_view name = {json_object_iter_key(it), json_object_iter_key_len(it)};
        size_t id = (size_t)json_integer_value(json_object_iter_value(it));
        unsigned char byte;
        bool is_byte = tokenizer->byte_fallback && spry_vocab_byte(name, &byte);
        if (!spry_vocab_set(&tokenizer->vocab, id, name, is_byte ? SPRY_TOKEN_BYTE : SPRY_TOKEN_NORMAL))
            return spry_fail_memory(error, "a vocabulary", bytes);
    }
    return SPRY_OK;
}

/* Unigram's list of [spelling, score]. */
static spry_status read_scored(spry_tokenizer *tokenizer, const json_t *list, const json_t *added, spry_error *error)
{
    size_t size = json_array_size(list), bytes = 0, added_size, added_bytes;
    json_t *none = json_object();
    spry_status status = measure(none, added, &added_size, &added_bytes, error);
    json_decref(none);
    for (size_t id = 0; !status && id < size; id++) {
        const json_t *item = json_array_get(list, id);
        if (!json_is_string(json_array_get(item, 0)) || !json_is_number(json_array_get(item, 1)))
            status = spry_fail(error, SPRY_ERR_FORMAT, "model.vocab[%zu] is not a spelling and a score", id);
        bytes += json_string_length(json_array_get(item, 0));
    }
    if (!status)
        status = spry_vocab_init(&tokenizer->vocab, &tokenizer->arena, size > added_size ? size : added_size,
                                 size + json_array_size(added), bytes + added_bytes, error);
    for (size_t id = 0; !status && id < size; id++) {
        const json_t *item = json_array_get(list, id);
        spry_view name = spry_json_view(json_array_get(item, 0));
        unsigned char byte;
        bool is_byte = tokenizer->byte_fallback && spry_vocab_byte(name, &byte);
        if (!spry_vocab_set(&tokenizer->vocab, id, name, is_byte ? SPRY_TOKEN_BYTE : SPRY_TOKEN_NORMAL))
            return spry_fail_memory(error, "a vocabulary", bytes);
        tokenizer->vocab.scores[id] = (float)json_number_value(json_array_get(item, 1));
    }
    return status;
}

/* The unknown token, by its spelling or, of Unigram, its id. */
static void find_unknown(spry_tokenizer *tokenizer, const json_t *model)
{
    const json_t *id = json_object_get(model, "unk_id");
    json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
    tokenizer->unknown = spry_vocab_find(&tokenizer->vocab, spry_json_view(json_object_get(model, "unk_token")));
    if (value >= 0 && value < (json_int_t)tokenizer->vocab.size)
        tokenizer->unknown = (int32_t)value;
    if (tokenizer->unknown >= 0)
        tokenizer->vocab.kinds[tokenizer->unknown] = SPRY_TOKEN_UNKNOWN;
}

/* An added token's id may be in the model's vocabulary or beyond it. */
static spry_status read_added(spry_tokenizer *tokenizer, const json_t *added, spry_error *error)
{
    size_t count = json_array_size(added);
    tokenizer->added = spry_arena_alloc(&tokenizer->arena, count, sizeof *tokenizer->added);
    if (!tokenizer->added)
        return spry_fail_memory(error, "added tokens", count * sizeof *tokenizer->added);
    for (size_t i = 0; i < count; i++) {
        const json_t *entry = json_array_get(added, i);
        spry_added_token token = spry_json_added_token(entry);
        token.id = (int32_t)json_integer_value(json_object_get(entry, "id"));
        if (!spry_view_equal(tokenizer->vocab.names[token.id], token.text) &&
            !spry_vocab_set(&tokenizer->vocab, (size_t)token.id, token.text, SPRY_TOKEN_NORMAL))
            return spry_fail_memory(error, "added tokens", token.text.size);
        token.text = tokenizer->vocab.names[token.id];
        spry_tokenizer_mark_added(tokenizer, token);
    }
    return SPRY_OK;
}

/* A merge is ["left", "right"] or "left right". */
static bool read_pair(const json_t *entry, spry_view *left, spry_view *right)
{
    if (json_is_string(entry))
        return spry_tokenizer_split_merge(spry_json_view(entry), left, right);
    *left = spry_json_view(json_array_get(entry, 0));
    *right = spry_json_view(json_array_get(entry, 1));
    return left->size && right->size && json_array_size(entry) == 2;
}

static spry_status read_merges(spry_tokenizer *tokenizer, const json_t *merges, spry_error *error)
{
    size_t count = json_array_size(merges);
    if (!spry_merges_init(&tokenizer->merges, &tokenizer->arena, count))
        return spry_fail_memory(error, "merges", count * sizeof(spry_merge));
    spry_buffer scratch;
    spry_buffer_init(&scratch, SIZE_MAX / 2);
    spry_status status = SPRY_OK;
    for (size_t i = 0; i < count && !status; i++) {
        spry_view left, right;
        if (read_pair(json_array_get(merges, i), &left, &right))
            status = spry_tokenizer_add_merge(tokenizer, &scratch, left, right, i, error);
        else
            status = spry_fail(error, SPRY_ERR_FORMAT, "model.merges[%zu] is not a pair of tokens", i);
    }
    spry_buffer_deinit(&scratch);
    return status;
}

static spry_status check_model(const json_t *model, spry_error *error)
{
    spry_view type = spry_json_view(spry_json_member(model, "type"));
    const json_t *vocab = spry_json_member(model, "vocab");
    if (spry_view_is(type, "Unigram"))
        return json_is_array(vocab) ? SPRY_OK : spry_fail(error, SPRY_ERR_FORMAT, "there is no list model.vocab");
    if (!json_is_object(vocab))
        return spry_fail(error, SPRY_ERR_FORMAT, "there is no model.vocab");
    if (spry_view_is(type, "WordPiece"))
        return SPRY_OK;
    if (type.size && !spry_view_is(type, "BPE"))
        return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                         "model.type \"%.*s\" is not supported; known are BPE, WordPiece and Unigram",
                         SPRY_VIEW_ARG(type));
    if (!json_is_array(spry_json_member(model, "merges")))
        return spry_fail(error, SPRY_ERR_FORMAT, "there is no list model.merges");
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < SPRY_COUNT(affixes); i++)
        if (spry_json_view(spry_json_member(model, affixes[i])).size)
            return spry_fail(error, SPRY_ERR_UNSUPPORTED, "model.%s is not supported", affixes[i]);
    return SPRY_OK;
}

/* Stores everything except the vocabulary as text, so that a GGUF file can preserve it. */
static spry_status keep_settings(spry_tokenizer *tokenizer, const json_t *root, spry_error *error)
{
    static const char *const parts[] = {"added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder"};
    json_t *kept = json_object();
    json_t *model = json_object();
    int failed = !kept || !model;
    for (size_t i = 0; i < SPRY_COUNT(parts) && !failed; i++)
        if (json_object_get(root, parts[i]))
            failed |= json_object_set(kept, parts[i], json_object_get(root, parts[i]));
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(root, "model"), key, value)
    {
        if (!json_is_object(value) && !json_is_array(value) && !failed)
            failed |= json_object_set(model, key, value);
    }
    if (!failed)
        failed |= json_object_set(kept, "model", model);
    char *text = failed ? NULL : json_dumps(kept, JSON_COMPACT);
    char *copy = text ? spry_arena_copy(&tokenizer->arena, spry_view_of(text)) : NULL;
    json_decref(kept);
    json_decref(model);
    free(text);
    if (!copy)
        return spry_fail_memory(error, "a tokenizer's settings", 0);
    tokenizer->settings = spry_view_of(copy);
    return SPRY_OK;
}

static spry_status build(spry_tokenizer *tokenizer, json_t *root, spry_error *error)
{
    const json_t *model = json_object_get(root, "model"), *added = spry_json_member(root, "added_tokens");
    spry_status status = check_model(model, error);
    if (status)
        return status;
    if (added && !json_is_array(added))
        return spry_fail(error, SPRY_ERR_FORMAT, "added_tokens is not a list");
    tokenizer->byte_fallback = spry_json_flag(model, "byte_fallback", false);
    json_t *vocab = json_object_get(model, "vocab");
    status =
        json_is_array(vocab) ? read_scored(tokenizer, vocab, added, error) : read_vocab(tokenizer, vocab, added, error);
    if (!status) {
        find_unknown(tokenizer, model);
        status = read_added(tokenizer, added, error);
    }
    if (!status && json_object_get(model, "merges"))
        status = read_merges(tokenizer, json_object_get(model, "merges"), error);
    if (!status)
        status = spry_json_pipeline(tokenizer, root, error);
    if (!status)
        status = keep_settings(tokenizer, root, error);
    return status;
}

spry_status spry_tokenizer_load_json(spry_tokenizer *tokenizer, spry_view text, spry_error *error)
{
    json_t *root = spry_json_parse(text, error);
    spry_status status = root ? build(tokenizer, root, error) : SPRY_ERR_FORMAT;
    json_decref(root);
    return status;
}
