/* Reads and writes tokenizers as GGUF metadata. */
#include "tokenizer/tokenizer_gguf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/gguf_writer.h"
#include "tokenizer/normalize.h"
#include "tokenizer/split.h"
#include "tokenizer/symbols.h"
#include "tokenizer/tokenizer_impl.h"

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Reads a tokenizer from GGUF metadata. Files written by spry contain the settings of the original tokenizer.json; for
 * other files the settings follow from the pattern's name. */

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

/* Sets a token. GGUF marks the beginnings of words, WordPiece the continuations, so the mark is converted. */
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

/* Reads merges, written as "left right". SentencePiece does not need them, but uses them if listed. */
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

/* Sets WordPiece's rules as in uncased models, because files do not contain them. */
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

/* Sets Unigram's rules: what SentencePiece does to a text, word by word. */
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
    if (tokenizer->model && !settings.size) { /* encoders have both, unless the file says otherwise */
        tokenizer->before = (spry_frame){{tokenizer->bos}, tokenizer->bos >= 0};
        tokenizer->after = (spry_frame){{tokenizer->eos}, tokenizer->eos >= 0};
    }
    set_frame(&tokenizer->before, gguf, SPRY_KEY_ADD_BOS, tokenizer->bos);
    set_frame(&tokenizer->after, gguf, SPRY_KEY_ADD_EOS, tokenizer->eos);
    return status;
}

spry_status spry_tokenizer_from_gguf(spry_tokenizer **out, const spry_gguf *gguf, spry_error *error)
{
    spry_tokenizer *tokenizer = spry_tokenizer_create();
    spry_status status =
        tokenizer ? load(tokenizer, gguf, error) : spry_fail_memory(error, "a tokenizer", sizeof *tokenizer);
    return spry_tokenizer_complete(out, tokenizer, status, spry_gguf_name(gguf), error);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* Writes a tokenizer to GGUF metadata, for other programs and for spry_tokenizer_from_gguf, which creates an equal
 * tokenizer. */

/* A list of texts that owns their bytes, and views of them. */
typedef struct text_list {
    spry_buffer text;
    size_t *ends;
    spry_view *views;
    size_t count;
} text_list;

static bool text_list_init(text_list *list, size_t count)
{
    *list = (text_list){0};
    spry_buffer_init(&list->text, SIZE_MAX / 2);
    list->ends = malloc((count ? count : 1) * sizeof *list->ends);
    list->views = malloc((count ? count : 1) * sizeof *list->views);
    return list->ends && list->views;
}

static void text_list_deinit(text_list *list)
{
    spry_buffer_deinit(&list->text);
    free(list->ends);
    free(list->views);
}

/* Ends the current text: all bytes appended since the last call. */
static void text_list_next(text_list *list)
{
    list->ends[list->count++] = list->text.size;
}

static bool text_list_write(text_list *list, spry_gguf_writer *writer, const char *key)
{
    if (list->text.failed)
        return false;
    size_t begin = 0;
    spry_view text = spry_buffer_view(&list->text);
    for (size_t i = 0; i < list->count; i++) {
        list->views[i] = (spry_view){text.data + begin, list->ends[i] - begin};
        begin = list->ends[i];
    }
    spry_gguf_writer_strings(writer, key, list->views, list->count);
    return true;
}

/* Writes a token's spelling. GGUF marks the beginnings of words, WordPiece the continuations, so the mark is
 * converted. */
static void append_name(spry_buffer *out, const spry_tokenizer *tokenizer, size_t id)
{
    spry_view name = tokenizer->vocab.names[id], prefix = tokenizer->wordpiece.prefix;
    unsigned char kind = tokenizer->vocab.kinds[id];
    if (tokenizer->model == SPRY_WORDS_WORDPIECE && kind != SPRY_TOKEN_CONTROL && kind != SPRY_TOKEN_UNKNOWN) {
        bool inside = prefix.size && spry_view_starts(name, prefix);
        spry_buffer_text(out, inside ? "" : SPRY_SPACE_MARK);
        name = inside ? (spry_view){name.data + prefix.size, name.size - prefix.size} : name;
    }
    spry_buffer_append(out, name.data, name.size);
}

/* Ids without a spelling get a unique one, because llama.cpp requires it. */
static bool write_tokens(const spry_tokenizer *tokenizer, spry_gguf_writer *writer, size_t count)
{
    const spry_vocab *vocab = &tokenizer->vocab;
    text_list list;
    bool ok = text_list_init(&list, count);
    for (size_t id = 0; ok && id < count; id++) {
        if (id < vocab->size && vocab->names[id].size)
            append_name(&list.text, tokenizer, id);
        else
            spry_buffer_format(&list.text, "[PAD%zu]", id);
        text_list_next(&list);
    }
    ok = ok && text_list_write(&list, writer, SPRY_KEY_TOKENS);
    text_list_deinit(&list);
    return ok;
}

static bool write_types(const spry_vocab *vocab, spry_gguf_writer *writer, size_t count)
{
    static const int32_t types[] = {
        [SPRY_TOKEN_NORMAL] = SPRY_GGUF_NORMAL,   [SPRY_TOKEN_UNKNOWN] = SPRY_GGUF_UNKNOWN,
        [SPRY_TOKEN_CONTROL] = SPRY_GGUF_CONTROL, [SPRY_TOKEN_ADDED] = SPRY_GGUF_USER,
        [SPRY_TOKEN_UNUSED] = SPRY_GGUF_UNUSED,   [SPRY_TOKEN_BYTE] = SPRY_GGUF_BYTE,
    };
    int32_t *list = malloc(count * sizeof *list);
    if (!list)
        return false;
    for (size_t id = 0; id < count; id++)
        list[id] = id < vocab->size ? types[vocab->kinds[id]] : SPRY_GGUF_UNUSED;
    spry_gguf_writer_i32s(writer, SPRY_KEY_TYPES, list, count);
    free(list);
    return true;
}

static int by_rank(const void *a, const void *b)
{
    uint32_t x = ((const spry_merge *)a)->rank, y = ((const spry_merge *)b)->rank;
    return (x > y) - (x < y);
}

/* The merges sorted by rank; the caller frees them. NULL when memory is short. */
static spry_merge *sorted_merges(const spry_merges *merges)
{
    spry_merge *list = malloc((merges->count ? merges->count : 1) * sizeof *list);
    size_t count = 0;
    for (size_t i = 0; list && i < merges->capacity; i++)
        if (merges->slots[i].left >= 0)
            list[count++] = merges->slots[i];
    if (list)
        qsort(list, count, sizeof *list, by_rank);
    return list;
}

static bool write_merges(const spry_tokenizer *tokenizer, spry_gguf_writer *writer, const spry_merge *merges)
{
    text_list list;
    bool ok = text_list_init(&list, tokenizer->merges.count);
    for (size_t i = 0; ok && i < tokenizer->merges.count; i++) {
        spry_view left = tokenizer->vocab.names[merges[i].left], right = tokenizer->vocab.names[merges[i].right];
        spry_buffer_append(&list.text, left.data, left.size);
        spry_buffer_append(&list.text, " ", 1);
        spry_buffer_append(&list.text, right.data, right.size);
        text_list_next(&list);
    }
    ok = ok && text_list_write(&list, writer, SPRY_KEY_MERGES);
    text_list_deinit(&list);
    return ok;
}

/* Writes the tokenizer's scores; or, with `merges`, scores with which readers without merges prefer the same tokens:
 * the earlier a token is merged, the higher its score. */
static bool write_scores(const spry_tokenizer *tokenizer, spry_gguf_writer *writer, const spry_merge *merges,
                         size_t count)
{
    float *scores = calloc(count, sizeof *scores);
    if (!scores)
        return false;
    if (!merges)
        memcpy(scores, tokenizer->vocab.scores, tokenizer->vocab.size * sizeof *scores);
    for (size_t i = tokenizer->merges.count; merges && i-- > 0;)
        scores[merges[i].merged] = -(float)i - 1;
    spry_gguf_writer_f32s(writer, SPRY_KEY_SCORES, scores, count);
    free(scores);
    return true;
}

static bool write_listed_merges(const spry_tokenizer *tokenizer, spry_gguf_writer *writer, size_t count)
{
    spry_merge *merges = sorted_merges(&tokenizer->merges);
    bool ok = merges && write_merges(tokenizer, writer, merges) &&
              (tokenizer->by_byte || write_scores(tokenizer, writer, merges, count));
    free(merges);
    return ok;
}

static bool has_change(const spry_changes *changes, spry_change change)
{
    for (size_t i = 0; i < changes->count; i++)
        if (changes->steps[i].change == change)
            return true;
    return false;
}

static void write_charsmap(const spry_tokenizer *tokenizer, spry_gguf_writer *writer)
{
    for (size_t i = 0; i < tokenizer->normalizer.count; i++) {
        const spry_change_step *step = &tokenizer->normalizer.steps[i];
        if (step->change == SPRY_CHANGE_CHARS) /* the size is stored before the units */
            spry_gguf_writer_u8s(writer, SPRY_KEY_CHARSMAP, step->chars.units - 4,
                                 4 + 4 * step->chars.n_units + step->chars.texts.size);
    }
}

static void write_id(spry_gguf_writer *writer, const char *key, int32_t id)
{
    if (id >= 0)
        spry_gguf_writer_u32(writer, key, (uint32_t)id);
}

/* Writes whether `id` is added at the beginning or end, unless several tokens are added there. */
static void write_frame(spry_gguf_writer *writer, const char *key, const spry_frame *frame, int32_t id)
{
    if (frame->count == 0 || (frame->count == 1 && frame->ids[0] == id))
        spry_gguf_writer_bool(writer, key, frame->count == 1);
}

static void write_rules(const spry_tokenizer *tokenizer, spry_gguf_writer *writer)
{
    const spry_changes *normalizer = &tokenizer->normalizer;
    bool prefix = has_change(normalizer, SPRY_CHANGE_PREPEND) || has_change(&tokenizer->prepare, SPRY_CHANGE_PREFIX);
    spry_gguf_writer_bool(writer, SPRY_KEY_ADD_SPACE, prefix);
    if (tokenizer->settings.size) {
        spry_gguf_writer_string(writer, SPRY_KEY_SETTINGS, tokenizer->settings);
    } else if (!tokenizer->by_byte) {
        spry_gguf_writer_bool(writer, SPRY_KEY_SQUEEZE, has_change(normalizer, SPRY_CHANGE_SQUEEZE));
        spry_gguf_writer_bool(writer, SPRY_KEY_ESCAPE, has_change(normalizer, SPRY_CHANGE_REPLACE));
    }
}

bool spry_tokenizer_to_gguf(const spry_tokenizer *tokenizer, struct spry_gguf_writer *writer, size_t n_rows)
{
    const spry_vocab *vocab = &tokenizer->vocab;
    size_t count = vocab->size > n_rows ? vocab->size : n_rows;
    static const char *const models[] = {
        [SPRY_WORDS_MERGED] = "llama", [SPRY_WORDS_WORDPIECE] = "bert", [SPRY_WORDS_UNIGRAM] = "t5"};
    const char *model = tokenizer->by_byte ? "gpt2" : models[tokenizer->model];
    spry_gguf_writer_string(writer, SPRY_KEY_MODEL, spry_view_of(model));
    spry_gguf_writer_string(writer, SPRY_KEY_PATTERN,
                            tokenizer->pattern_name.size ? tokenizer->pattern_name : SPRY_VIEW("default"));
    if (!write_tokens(tokenizer, writer, count) || !write_types(vocab, writer, count))
        return false;
    if (tokenizer->by_score || tokenizer->model ? !write_scores(tokenizer, writer, NULL, count)
                                                : !write_listed_merges(tokenizer, writer, count))
        return false;
    write_id(writer, SPRY_KEY_BOS, tokenizer->bos);
    write_id(writer, SPRY_KEY_EOS, tokenizer->eos);
    write_id(writer, SPRY_KEY_EOT, tokenizer->end_of_turn);
    write_id(writer, SPRY_KEY_UNKNOWN, tokenizer->unknown);
    write_id(writer, SPRY_KEY_PADDING, tokenizer->padding);
    if (tokenizer->model) {
        write_id(writer, SPRY_KEY_CLS, tokenizer->bos);
        write_id(writer, SPRY_KEY_SEPARATOR, tokenizer->eos);
        write_charsmap(tokenizer, writer);
    }
    write_frame(writer, SPRY_KEY_ADD_BOS, &tokenizer->before, tokenizer->bos);
    write_frame(writer, SPRY_KEY_ADD_EOS, &tokenizer->after, tokenizer->eos);
    write_rules(tokenizer, writer);
    return true;
}

/* ---- synthetic vocabularies -------------------------------------------------------------------------------------- */

/* Word k of a length is the number k written with its first symbol changing fastest, so that every first letter occurs
 * at any count. All words of one length precede the words of the next: the parts of a word always exist. */

enum {
    LETTERS = 26,
    FIRST_SYMBOLS = LETTERS + 1, /* a word may begin with a space */
    SPELLING_MAX = 24,
    WORD_MAX = 12, /* symbols; enough for any vocabulary size */
};

static const char *const specials[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};

typedef struct vocab_text {
    char (*tokens)[SPELLING_MAX]; /* [size] */
    char (*merges)[SPELLING_MAX]; /* [n_words] */
    spry_view *views;             /* [size] */
    int32_t *types;               /* [size] */
} vocab_text;

static void spell_bytes(vocab_text *text)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        size_t length = spry_byte_spelling(text->tokens[byte], (unsigned char)byte);
        text->tokens[byte][length] = '\0';
    }
}

/* Spells word `index` of `n_symbols`; returns the number of bytes before the last symbol. */
static size_t spell_word(char out[SPELLING_MAX], size_t index, size_t n_symbols)
{
    size_t first = index % FIRST_SYMBOLS, used = 1;
    index /= FIRST_SYMBOLS;
    if (first < LETTERS)
        out[0] = (char)('a' + first);
    else
        used = spry_byte_spelling(out, ' ');
    for (size_t i = 1; i < n_symbols; i++, index /= LETTERS)
        out[used++] = (char)('a' + index % LETTERS);
    out[used] = '\0';
    return used - 1;
}

static void spell_words(vocab_text *text, size_t n_words)
{
    size_t index = 0, n_symbols = 2, of_this_length = FIRST_SYMBOLS * LETTERS;
    for (size_t i = 0; i < n_words; i++, index++) {
        if (index == of_this_length && n_symbols < WORD_MAX) {
            index = 0;
            n_symbols++;
            of_this_length *= LETTERS;
        }
        char *word = text->tokens[256 + i];
        size_t split = spell_word(word, index, n_symbols);
        snprintf(text->merges[i], SPELLING_MAX, "%.*s %s", (int)split, word, word + split);
    }
}

static void write_strings(spry_gguf_writer *writer, const char *key, spry_view *views, char (*texts)[SPELLING_MAX],
                          size_t count)
{
    for (size_t i = 0; i < count; i++)
        views[i] = spry_view_of(texts[i]);
    spry_gguf_writer_strings(writer, key, views, count);
}

static void write_all(spry_gguf_writer *writer, vocab_text *text, size_t size, const char *pattern)
{
    size_t n_words = size - SPRY_MADE_VOCAB_MIN, first_special = 256 + n_words;
    uint32_t end_of_text = (uint32_t)first_special, end_of_turn = (uint32_t)first_special + 2;
    spell_bytes(text);
    spell_words(text, n_words);
    for (size_t i = 0; i < SPRY_COUNT(specials); i++)
        snprintf(text->tokens[first_special + i], SPELLING_MAX, "%s", specials[i]);
    for (size_t id = 0; id < size; id++)
        text->types[id] = id < first_special ? SPRY_GGUF_NORMAL : SPRY_GGUF_CONTROL;
    spry_gguf_writer_string(writer, SPRY_KEY_MODEL, SPRY_VIEW("gpt2"));
    spry_gguf_writer_string(writer, SPRY_KEY_PATTERN, spry_view_of(pattern));
    write_strings(writer, SPRY_KEY_TOKENS, text->views, text->tokens, size);
    spry_gguf_writer_i32s(writer, SPRY_KEY_TYPES, text->types, size);
    write_strings(writer, SPRY_KEY_MERGES, text->views, text->merges, n_words);
    spry_gguf_writer_u32(writer, SPRY_KEY_BOS, end_of_text);
    spry_gguf_writer_u32(writer, SPRY_KEY_EOS, end_of_turn);
    spry_gguf_writer_u32(writer, SPRY_KEY_PADDING, end_of_text);
    spry_gguf_writer_bool(writer, SPRY_KEY_ADD_BOS, false);
}

bool spry_made_vocab_write(spry_gguf_writer *writer, size_t size, const char *pattern)
{
    vocab_text text = {.tokens = calloc(size, sizeof *text.tokens),
                       .merges = calloc(size, sizeof *text.merges),
                       .views = calloc(size, sizeof *text.views),
                       .types = calloc(size, sizeof *text.types)};
    bool made = text.tokens && text.merges && text.views && text.types;
    if (made)
        write_all(writer, &text, size, pattern);
    free(text.tokens);
    free(text.merges);
    free(text.views);
    free(text.types);
    return made;
}
