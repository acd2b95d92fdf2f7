/* Reads a tokenizer from GGUF metadata. Files written by spry contain the settings of the original tokenizer.json; for
 * others they follow from the pattern's name. */
#include <math.h>

#include "tokenizer/gguf_keys.h"
#include "tokenizer/pattern_names.h"
#include "tokenizer/text_fold.h"
#include "tokenizer/tokenizer_json.h"

static spry_status read_model(spry_tokenizer *tokenizer, const spry_gguf *gguf, spry_error *error)
{
    spry_view model;
    if (!spry_gguf_get_string(gguf, SPRY_KEY_MODEL, &model))
        return spry_fail(error, SPRY_ERR_FORMAT, "%s is missing", SPRY_KEY_MODEL);
    tokenizer->by_byte = spry_view_is(model, "gpt2");
    tokenizer->model = spry_view_is(model, "bert") ? SPRY_WORDS_WORDPIECE
                       : spry_view_is(model, "t5") ? SPRY_WORDS_UNIGRAM
                                                   : SPRY_WORDS_MERGED;
    if (!tokenizer->by_byte && !tokenizer->model && !spry_view_is(model, "llama"))
        return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                         "%s is \"%.*s\"; known are \"gpt2\", \"llama\", \"bert\" and \"t5\"", SPRY_KEY_MODEL,
                         SPRY_VIEW_ARG(model));
    return SPRY_OK;
}

/* An optional array with one element per token; *has_it: whether it exists. */
static spry_status find_parallel(const spry_gguf *gguf, const char *key, size_t count, spry_gguf_array *array,
                                 bool *has_it, spry_error *error)
{
    *has_it = spry_gguf_get_array(gguf, key, array);
    if (*has_it && array->count != count)
        return spry_fail(error, SPRY_ERR_FORMAT, "%s has %zu elements for %zu tokens", key, array->count, count);
    return SPRY_OK;
}

static spry_token_kind kind_of(uint64_t type, spry_view name)
{
    unsigned char byte;
    switch (type) {
    case SPRY_GGUF_UNKNOWN: return SPRY_TOKEN_UNKNOWN;
    case SPRY_GGUF_CONTROL: return SPRY_TOKEN_CONTROL;
    case SPRY_GGUF_USER: return SPRY_TOKEN_ADDED;
    case SPRY_GGUF_UNUSED: return SPRY_TOKEN_UNUSED;
    case SPRY_GGUF_BYTE: return spry_vocab_byte(name, &byte) ? SPRY_TOKEN_BYTE : SPRY_TOKEN_UNUSED;
    default: return SPRY_TOKEN_NORMAL;
    }
}

/* GGUF marks the beginnings of words, WordPiece itself the rest of them. */
static bool set_token(spry_tokenizer *tokenizer, size_t id, spry_view name, spry_token_kind kind, spry_buffer *scratch)
{
    static const spry_view mark = {SPRY_SPACE_MARK, 3};
    if (tokenizer->model != SPRY_WORDS_WORDPIECE || kind == SPRY_TOKEN_CONTROL || kind == SPRY_TOKEN_UNKNOWN)
        return spry_vocab_set(&tokenizer->vocab, id, name, kind);
    if (spry_view_starts(name, mark))
        return spry_vocab_set(&tokenizer->vocab, id, (spry_view){name.data + mark.size, name.size - mark.size}, kind);
    spry_buffer_clear(scratch);
    return spry_buffer_append(scratch, "##", 2) && spry_buffer_append(scratch, name.data, name.size) &&
           spry_vocab_set(&tokenizer->vocab, id, spry_buffer_view(scratch), kind);
}

static spry_status read_tokens(spry_tokenizer *tokenizer, const spry_gguf *gguf, spry_error *error)
{
    spry_gguf_array tokens, types, scores;
    bool has_types, has_scores;
    if (!spry_gguf_get_array(gguf, SPRY_KEY_TOKENS, &tokens) || tokens.kind != SPRY_GGUF_STRING)
        return spry_fail(error, SPRY_ERR_FORMAT, "%s is not a list of strings", SPRY_KEY_TOKENS);
    spry_status status = find_parallel(gguf, SPRY_KEY_TYPES, tokens.count, &types, &has_types, error);
    if (!status)
        status = find_parallel(gguf, SPRY_KEY_SCORES, tokens.count, &scores, &has_scores, error);
    if (status)
        return status;
    spry_view name;
    size_t cursor = 0;
    spry_buffer scratch;
    spry_buffer_init(&scratch, SIZE_MAX / 2);
    status = spry_vocab_init(&tokenizer->vocab, &tokenizer->arena, tokens.count, tokens.count,
                             tokens.bytes + 2 * tokens.count, error);
    for (size_t id = 0; id < tokens.count && !status; id++) {
        uint64_t type = SPRY_GGUF_NORMAL;
        double score = 0;
        if (!spry_gguf_array_string(&tokens, &cursor, &name) ||
            (has_types && !spry_gguf_array_u64(&types, id, &type)) ||
            (has_scores && !spry_gguf_array_f64(&scores, id, &score)))
            status = spry_fail(error, SPRY_ERR_FORMAT, "token %zu has no spelling, type or score", id);
        else if (!set_token(tokenizer, id, name, kind_of(type, name), &scratch))
            status = spry_fail_memory(error, "a vocabulary", tokens.bytes);
        else
            tokenizer->vocab.scores[id] = isnan(score) ? 0 : (float)score;
    }
    spry_buffer_deinit(&scratch);
    return status;
}

/* Merges as "left right". SentencePiece does not need them, but uses them if listed. */
static spry_status read_merges(spry_tokenizer *tokenizer, const spry_gguf *gguf, spry_error *error)
{
    spry_gguf_array merges;
    bool listed = spry_gguf_get_array(gguf, SPRY_KEY_MERGES, &merges) && merges.kind == SPRY_GGUF_STRING;
    if (tokenizer->model)
        return SPRY_OK;
    tokenizer->by_score = !listed && !tokenizer->by_byte;
    if (tokenizer->by_score) {
        if (spry_gguf_get_array(gguf, SPRY_KEY_SCORES, &merges))
            return SPRY_OK;
        return spry_fail(error, SPRY_ERR_FORMAT, "there is neither %s nor %s", SPRY_KEY_SCORES, SPRY_KEY_MERGES);
    }
    if (!listed)
        return spry_fail(error, SPRY_ERR_FORMAT, "%s is not a list of strings", SPRY_KEY_MERGES);
    if (!spry_merges_init(&tokenizer->merges, &tokenizer->arena, merges.count))
        return spry_fail_memory(error, "merges", merges.bytes);
    spry_buffer scratch;
    spry_buffer_init(&scratch, SIZE_MAX / 2);
    spry_status status = SPRY_OK;
    size_t cursor = 0;
    for (size_t rank = 0; rank < merges.count && !status; rank++) {
        spry_view text, left, right;
        if (!spry_gguf_array_string(&merges, &cursor, &text) || !spry_tokenizer_split_merge(text, &left, &right))
            status = spry_fail(error, SPRY_ERR_FORMAT, "%s: element %zu is not two tokens", SPRY_KEY_MERGES, rank);
        else
            status = spry_tokenizer_add_merge(tokenizer, &scratch, left, right, rank, error);
    }
    spry_buffer_deinit(&scratch);
    return status;
}

static int32_t read_id(const spry_gguf *gguf, const char *key)
{
    uint64_t id;
    return spry_gguf_get_u64(gguf, key, &id) && id < SPRY_VOCAB_MAX ? (int32_t)id : -1;
}

/* Byte-level BPE: all settings follow from the pattern's name. */
static spry_status set_named_pattern(spry_tokenizer *tokenizer, const spry_gguf *gguf, spry_error *error)
{
    spry_view name = SPRY_VIEW("default");
    spry_gguf_get_string(gguf, SPRY_KEY_PATTERN, &name);
    const spry_named_pattern *named = spry_named_pattern_find(name);
    if (!named) {
        spry_buffer known;
        spry_buffer_init(&known, SPRY_ERROR_MAX);
        spry_named_pattern_list(&known);
        spry_status status =
            spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s is \"%.*s\"; known are %s", SPRY_KEY_PATTERN,
                      name.size < 50 ? (int)name.size : 50, name.data, known.data ? known.data : "none");
        spry_buffer_deinit(&known);
        return status;
    }
    tokenizer->pattern_name = spry_view_of(named->names[0]);
    tokenizer->ignore_merges = named->ignore_merges;
    if (named->nfc)
        spry_changes_add(&tokenizer->normalizer, (spry_change_step){.change = SPRY_CHANGE_FORM, .form = SPRY_NFC});
    if (named->add_bos && tokenizer->bos >= 0)
        tokenizer->before = (spry_frame){{tokenizer->bos}, 1};
    bool add_space = false;
    if (spry_gguf_get_bool(gguf, SPRY_KEY_ADD_SPACE, &add_space) && add_space)
        spry_changes_add(&tokenizer->prepare, (spry_change_step){.change = SPRY_CHANGE_PREFIX, .to = SPRY_VIEW(" ")});
    spry_status status = SPRY_OK;
    for (size_t i = 0; i < SPRY_NAMED_REGEXES_MAX && named->regexes[i] && !status; i++)
        status = spry_splitter_add(&tokenizer->splitter, spry_view_of(named->regexes[i]), false, SPRY_SPLIT_ISOLATED,
                                   false, error);
    return status;
}

static void set_sentence_piece(spry_tokenizer *tokenizer, const spry_gguf *gguf)
{
    bool add_space = true, squeeze = false, escape = true;
    spry_gguf_get_bool(gguf, SPRY_KEY_ADD_SPACE, &add_space);
    spry_gguf_get_bool(gguf, SPRY_KEY_SQUEEZE, &squeeze);
    spry_gguf_get_bool(gguf, SPRY_KEY_ESCAPE, &escape);
    spry_tokenizer_set_spm_rules(tokenizer, add_space, squeeze, escape);
    tokenizer->byte_fallback = tokenizer->fuse_unknown = true;
    if (tokenizer->bos >= 0)
        tokenizer->before = (spry_frame){{tokenizer->bos}, 1};
}

/* WordPiece as the uncased models have it: files do not say more. */
static spry_status set_wordpiece(spry_tokenizer *tokenizer, spry_error *error)
{
    tokenizer->wordpiece = (spry_wordpiece){.prefix = SPRY_VIEW("##"), .most = 100};
    tokenizer->lead = SPRY_LEAD_STRIP_ONE;
    spry_changes_add(&tokenizer->normalizer, (spry_change_step){.change = SPRY_CHANGE_FOLD,
                                                                .folds = SPRY_FOLD_CLEAN | SPRY_FOLD_CHINESE |
                                                                         SPRY_FOLD_ACCENTS | SPRY_FOLD_CASE});
    spry_status status =
        spry_splitter_add(&tokenizer->splitter, SPRY_VIEW("\\s"), false, SPRY_SPLIT_REMOVED, false, error);
    return status ? status
                  : spry_splitter_add(&tokenizer->splitter, SPRY_VIEW("[\\p{P}$+<=>^`|~]"), false, SPRY_SPLIT_ISOLATED,
                                      false, error);
}

/* Unigram: what SentencePiece would do to a text, a word at a time. */
static spry_status set_unigram(spry_tokenizer *tokenizer, const spry_gguf *gguf, spry_error *error)
{
    spry_gguf_array bytes;
    spry_change_step chars = {.change = SPRY_CHANGE_CHARS};
    set_sentence_piece(tokenizer, gguf);
    if (!spry_gguf_get_array(gguf, SPRY_KEY_CHARSMAP, &bytes) || !bytes.count)
        return SPRY_OK;
    char *copy = spry_arena_alloc(&tokenizer->arena, bytes.count, 1);
    if (!copy)
        return spry_fail_memory(error, "a charsmap", bytes.count);
    for (size_t i = 0; i < bytes.count; i++) {
        double value = 0;
        if (!spry_gguf_array_f64(&bytes, i, &value) || !(value >= -128 && value <= 255))
            return spry_fail(error, SPRY_ERR_FORMAT, "%s is not a list of bytes", SPRY_KEY_CHARSMAP);
        copy[i] = (char)(int)value;
    }
    spry_status status = spry_charsmap_init(&chars.chars, (spry_view){copy, bytes.count}, error);
    spry_changes before = tokenizer->normalizer;
    tokenizer->normalizer = (spry_changes){{chars}, 1};
    for (size_t i = 0; i < before.count; i++)
        spry_changes_add(&tokenizer->normalizer, before.steps[i]);
    return status;
}

/* The added tokens as listed in tokenizer.json, which has more detail than token types. */
static spry_status read_settings_added(spry_tokenizer *tokenizer, const json_t *root, spry_error *error)
{
    const json_t *added = json_object_get(root, "added_tokens");
    size_t count = json_array_size(added);
    tokenizer->added = spry_arena_alloc(&tokenizer->arena, count, sizeof *tokenizer->added);
    if (!tokenizer->added)
        return spry_fail_memory(error, "added tokens", count * sizeof *tokenizer->added);
    for (size_t i = 0; i < count; i++) {
        const json_t *entry = json_array_get(added, i);
        spry_added_token token = spry_json_added_token(entry);
        json_int_t id = json_integer_value(json_object_get(entry, "id"));
        if (id < 0 || id >= (json_int_t)tokenizer->vocab.size ||
            !spry_view_equal(tokenizer->vocab.names[id], token.text))
            return spry_fail(error, SPRY_ERR_FORMAT, "%s: added token %zu is not in the vocabulary", SPRY_KEY_SETTINGS,
                             i);
        token.id = (int32_t)id;
        token.text = tokenizer->vocab.names[id];
        spry_tokenizer_mark_added(tokenizer, token);
    }
    return SPRY_OK;
}

static spry_status read_settings(spry_tokenizer *tokenizer, spry_view settings, spry_error *error)
{
    json_t *root = spry_json_parse(settings, error);
    if (!root)
        return spry_fail_prefix(error, SPRY_ERR_FORMAT, SPRY_KEY_SETTINGS);
    tokenizer->byte_fallback = spry_json_flag(json_object_get(root, "model"), "byte_fallback", false);
    spry_status status = read_settings_added(tokenizer, root, error);
    if (!status)
        status = spry_json_pipeline(tokenizer, root, error);
    json_decref(root);
    char *copy = spry_arena_copy(&tokenizer->arena, settings);
    tokenizer->settings = (spry_view){copy, copy ? settings.size : 0};
    return status || copy ? status : spry_fail_memory(error, "a tokenizer's settings", settings.size);
}

/* add_bos_token and add_eos_token take precedence if present. */
static void set_frame(spry_frame *frame, const spry_gguf *gguf, const char *key, int32_t id)
{
    bool add;
    if (!spry_gguf_get_bool(gguf, key, &add))
        return;
    frame->count = add && id >= 0;
    frame->ids[0] = id;
}

static spry_status load(spry_tokenizer *tokenizer, const spry_gguf *gguf, spry_error *error)
{
    spry_view settings = {"", 0};
    spry_status status = read_model(tokenizer, gguf, error);
    if (!status)
        status = read_tokens(tokenizer, gguf, error);
    if (!status)
        status = read_merges(tokenizer, gguf, error);
    if (status)
        return status;
    tokenizer->bos = read_id(gguf, SPRY_KEY_BOS);
    tokenizer->eos = read_id(gguf, SPRY_KEY_EOS);
    if (tokenizer->model && tokenizer->bos < 0)
        tokenizer->bos = read_id(gguf, SPRY_KEY_CLS);
    if (tokenizer->model && tokenizer->eos < 0)
        tokenizer->eos = read_id(gguf, SPRY_KEY_SEPARATOR);
    tokenizer->end_of_turn = read_id(gguf, SPRY_KEY_EOT);
    tokenizer->unknown = read_id(gguf, SPRY_KEY_UNKNOWN);
    tokenizer->padding = read_id(gguf, SPRY_KEY_PADDING);
    if (spry_gguf_get_string(gguf, SPRY_KEY_SETTINGS, &settings)) {
        status = read_settings(tokenizer, settings, error);
    } else {
        status = spry_tokenizer_list_added(tokenizer, 0, error);
        if (!status && tokenizer->by_byte)
            status = set_named_pattern(tokenizer, gguf, error);
        else if (!status && tokenizer->model == SPRY_WORDS_WORDPIECE)
            status = set_wordpiece(tokenizer, error);
        else if (!status && tokenizer->model == SPRY_WORDS_UNIGRAM)
            status = set_unigram(tokenizer, gguf, error);
        else if (!status)
            set_sentence_piece(tokenizer, gguf);
    }
    if (tokenizer->model && !settings.size) { /* encoders have both unless the file says otherwise */
        tokenizer->before = (spry_frame){{tokenizer->bos}, tokenizer->bos >= 0};
        tokenizer->behind = (spry_frame){{tokenizer->eos}, tokenizer->eos >= 0};
    }
    set_frame(&tokenizer->before, gguf, SPRY_KEY_ADD_BOS, tokenizer->bos);
    set_frame(&tokenizer->behind, gguf, SPRY_KEY_ADD_EOS, tokenizer->eos);
    return status;
}

spry_status spry_tokenizer_from_gguf(spry_tokenizer **out, const spry_gguf *gguf, spry_error *error)
{
    spry_tokenizer *tokenizer = spry_tokenizer_create();
    spry_status status =
        tokenizer ? load(tokenizer, gguf, error) : spry_fail_memory(error, "a tokenizer", sizeof *tokenizer);
    return spry_tokenizer_complete(out, tokenizer, status, spry_gguf_name(gguf), error);
}
