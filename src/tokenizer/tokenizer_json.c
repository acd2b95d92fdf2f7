/* tokenizer.json: vocabulary, merges, added tokens, and the pipelines of normalizers, pre-tokenizers, post-
 * processors and decoders. */
#include "tokenizer/tokenizer_impl.h"

#include <stdlib.h>

#include "base/json.h"
#include "tokenizer/normalize.h"
#include "tokenizer/split.h"

/* ---- pipelines --------------------------------------------------------------------------------------------------- */

/* The four pipelines of tokenizer.json. Each is an object with a "type", or a "Sequence" of such objects; a table lists
 * the supported types, and other types are refused by name. */

enum { DEPTH_MAX = 4 };

/* State while reading a file. */
typedef struct reader {
    spry_tokenizer *tokenizer;
    spry_view regexes[SPRY_SPLIT_STEPS_MAX]; /* expressions of isolating splits, to identify the named pattern */
    size_t n_regexes;
    bool nameless;    /* a step of another kind exists, so the pattern has no name */
    bool only_spaces; /* the first step splits at white space */
    bool byte_level;  /* the ByteLevel step has been read: it must be the last */
    spry_error *error;
} reader;

typedef spry_status (*read_step)(reader *state, const json_t *step);

typedef struct step_type {
    const char *name;
    read_step read;
} step_type;

/* Reads an object by its type, or each object of the sequence under `list_key`. */
static spry_status read_pipeline(reader *state, const char *what, const json_t *value, const char *list_key,
                                 const step_type *types, size_t n_types, unsigned depth)
{
    spry_view type = spry_json_view(json_object_get(value, "type"));
    if (spry_view_is(type, "Sequence") && depth < DEPTH_MAX) {
        const json_t *list = json_object_get(value, list_key);
        spry_status status = json_is_array(list) ? SPRY_OK
                                                 : spry_fail(state->error, SPRY_ERR_FORMAT,
                                                             "%s: a Sequence without \"%s\"", what, list_key);
        for (size_t i = 0; i < json_array_size(list) && !status; i++)
            status = read_pipeline(state, what, json_array_get(list, i), list_key, types, n_types, depth + 1);
        return status;
    }
    for (size_t i = 0; i < n_types; i++)
        if (spry_view_is(type, types[i].name))
            return types[i].read ? types[i].read(state, value) : SPRY_OK;
    return spry_fail(state->error, SPRY_ERR_UNSUPPORTED, "%s of type \"%.*s\" is not supported", what,
                     SPRY_VIEW_ARG(type));
}

static bool copy_text(reader *state, spry_view *out, const json_t *value)
{
    spry_view text = spry_json_view(value);
    char *copy = spry_arena_copy(&state->tokenizer->arena, text);
    *out = (spry_view){copy, text.size};
    return copy != NULL;
}

static spry_status add_change(reader *state, spry_changes *changes, spry_change_step step)
{
    return spry_changes_add(changes, step) ? SPRY_OK
                                           : spry_fail(state->error, SPRY_ERR_UNSUPPORTED,
                                                       "the normalizer has more than %d steps", SPRY_CHANGE_STEPS_MAX);
}

/* ---- normalizer ---- */

static spry_status normalizer_form(reader *state, const json_t *step)
{
    static const char *const names[] = {
        [SPRY_NFC] = "NFC", [SPRY_NFD] = "NFD", [SPRY_NFKC] = "NFKC", [SPRY_NFKD] = "NFKD"};
    spry_view type = spry_json_view(json_object_get(step, "type"));
    size_t form = 0;
    while (form + 1 < SPRY_COUNT(names) && !spry_view_is(type, names[form]))
        form++;
    return add_change(state, &state->tokenizer->normalizer,
                      (spry_change_step){.change = SPRY_CHANGE_FORM, .form = (spry_normal_form)form});
}

static spry_status normalizer_prepend(reader *state, const json_t *step)
{
    spry_change_step change = {.change = SPRY_CHANGE_PREPEND};
    if (!copy_text(state, &change.to, json_object_get(step, "prepend")))
        return spry_fail_memory(state->error, "a normalizer", 1);
    return add_change(state, &state->tokenizer->normalizer, change);
}

static spry_status normalizer_replace(reader *state, const json_t *step)
{
    spry_change_step change = {.change = SPRY_CHANGE_REPLACE};
    const json_t *pattern = json_object_get(json_object_get(step, "pattern"), "String");
    const json_t *regex = json_object_get(json_object_get(step, "pattern"), "Regex");
    if (spry_view_is(spry_json_view(regex), " {2,}")) { /* as in XLM-R and related models */
        change.change = SPRY_CHANGE_RUNS;
        pattern = regex;
    }
    if (!json_string_length(pattern))
        return spry_fail(state->error, SPRY_ERR_UNSUPPORTED,
                         "a normalizer of type Replace needs a plain text (\"String\") as its pattern");
    if (!copy_text(state, &change.from, pattern) || !copy_text(state, &change.to, json_object_get(step, "content")))
        return spry_fail_memory(state->error, "a normalizer", 1);
    return add_change(state, &state->tokenizer->normalizer, change);
}

static spry_status normalizer_strip(reader *state, const json_t *step)
{
    spry_change_step change = {.change = SPRY_CHANGE_STRIP,
                               .left = spry_json_flag(step, "strip_left", true),
                               .right = spry_json_flag(step, "strip_right", true)};
    return add_change(state, &state->tokenizer->normalizer, change);
}

/* Reads BERT's normalizer, and parts of it under separate names. Accents are removed if text is lower-cased, unless the
 * file says otherwise. */
static spry_status normalizer_fold(reader *state, const json_t *step)
{
    spry_view type = spry_json_view(json_object_get(step, "type"));
    spry_change_step change = {.change = SPRY_CHANGE_FOLD};
    if (spry_view_is(type, "Lowercase")) {
        change.folds = SPRY_FOLD_CASE;
    } else if (spry_view_is(type, "StripAccents")) {
        change.folds = SPRY_FOLD_ACCENTS;
    } else {
        bool small = spry_json_flag(step, "lowercase", true);
        change.folds = (small ? SPRY_FOLD_CASE : 0u) |
                       (spry_json_flag(step, "clean_text", true) ? SPRY_FOLD_CLEAN : 0u) |
                       (spry_json_flag(step, "handle_chinese_chars", true) ? SPRY_FOLD_CHINESE : 0u) |
                       (spry_json_flag(step, "strip_accents", small) ? SPRY_FOLD_ACCENTS : 0u);
    }
    return add_change(state, &state->tokenizer->normalizer, change);
}

static spry_status normalizer_chars(reader *state, const json_t *step)
{
    spry_change_step change = {.change = SPRY_CHANGE_CHARS};
    spry_buffer bytes;
    spry_buffer_init(&bytes, 64 << 20);
    bool whole = spry_base64_decode(&bytes, spry_json_view(json_object_get(step, "precompiled_charsmap")));
    char *copy = spry_arena_copy(&state->tokenizer->arena, spry_buffer_view(&bytes));
    spry_status status = !whole  ? spry_fail(state->error, SPRY_ERR_FORMAT, "the precompiled charsmap is not base64")
                         : !copy ? spry_fail_memory(state->error, "a normalizer", bytes.size)
                                 : spry_charsmap_init(&change.chars, (spry_view){copy, bytes.size}, state->error);
    spry_buffer_deinit(&bytes);
    return status ? status : add_change(state, &state->tokenizer->normalizer, change);
}

static const step_type normalizer_types[] = {
    {"NFC", normalizer_form},          {"NFD", normalizer_form},
    {"NFKC", normalizer_form},         {"NFKD", normalizer_form},
    {"Prepend", normalizer_prepend},   {"Replace", normalizer_replace},
    {"Strip", normalizer_strip},       {"BertNormalizer", normalizer_fold},
    {"Lowercase", normalizer_fold},    {"StripAccents", normalizer_fold},
    {"Precompiled", normalizer_chars},
};

/* ---- pre-tokenizer ---- */

static spry_status add_split(reader *state, spry_view regex, bool literal, spry_split_behavior behavior, bool invert)
{
    if (state->byte_level)
        return spry_fail(state->error, SPRY_ERR_UNSUPPORTED, "pre_tokenizer: a step after ByteLevel is not supported");
    if (literal || behavior != SPRY_SPLIT_ISOLATED || invert || state->n_regexes == SPRY_SPLIT_STEPS_MAX)
        state->nameless = true;
    else
        state->regexes[state->n_regexes++] = regex;
    return spry_splitter_add(&state->tokenizer->splitter, regex, literal, behavior, invert, state->error);
}

static bool read_behavior(const json_t *step, spry_split_behavior *behavior)
{
    static const char *const names[] = {
        [SPRY_SPLIT_ISOLATED] = "Isolated",
        [SPRY_SPLIT_REMOVED] = "Removed",
        [SPRY_SPLIT_WITH_PREVIOUS] = "MergedWithPrevious",
        [SPRY_SPLIT_WITH_NEXT] = "MergedWithNext",
        [SPRY_SPLIT_CONTIGUOUS] = "Contiguous",
    };
    spry_view name = spry_json_view(json_object_get(step, "behavior"));
    for (size_t i = 0; i < SPRY_COUNT(names); i++) {
        if (spry_view_is(name, names[i])) {
            *behavior = (spry_split_behavior)i;
            return true;
        }
    }
    return false;
}

static spry_status pre_split(reader *state, const json_t *step)
{
    const json_t *pattern = json_object_get(step, "pattern");
    const json_t *regex = json_object_get(pattern, "Regex"), *plain = json_object_get(pattern, "String");
    spry_split_behavior behavior;
    if (!read_behavior(step, &behavior) || !json_is_string(regex ? regex : plain))
        return spry_fail(state->error, SPRY_ERR_FORMAT, "pre_tokenizer: a Split needs a pattern and a known behavior");
    return add_split(state, spry_json_view(regex ? regex : plain), !regex, behavior,
                     spry_json_flag(step, "invert", false));
}

static spry_status pre_digits(reader *state, const json_t *step)
{
    bool single = spry_json_flag(step, "individual_digits", false);
    return add_split(state, single ? SPRY_VIEW("\\p{N}") : SPRY_VIEW("\\p{N}+"), false, SPRY_SPLIT_ISOLATED, false);
}

static spry_status pre_punctuation(reader *state, const json_t *step)
{
    spry_split_behavior behavior = SPRY_SPLIT_ISOLATED;
    read_behavior(step, &behavior);
    return add_split(state, SPRY_VIEW("[\\p{P}$+<=>^`|~]"), false, behavior, false);
}

static spry_status pre_whitespace(reader *state, const json_t *step)
{
    (void)step;
    return add_split(state, SPRY_VIEW("\\w+|[^\\w\\s]+"), false, SPRY_SPLIT_REMOVED, true);
}

static spry_status pre_whitespace_split(reader *state, const json_t *step)
{
    (void)step;
    state->only_spaces = !state->tokenizer->splitter.count;
    return add_split(state, SPRY_VIEW("\\s"), false, SPRY_SPLIT_REMOVED, false);
}

static spry_status pre_bert(reader *state, const json_t *step)
{
    spry_status status = pre_whitespace_split(state, step);
    return status ? status : add_split(state, SPRY_VIEW("[\\p{P}$+<=>^`|~]"), false, SPRY_SPLIT_ISOLATED, false);
}

static spry_status pre_byte_level(reader *state, const json_t *step)
{
    spry_status status = SPRY_OK;
    if (spry_json_flag(step, "add_prefix_space", false)) {
        if (state->tokenizer->splitter.count)
            return spry_fail(state->error, SPRY_ERR_UNSUPPORTED,
                             "pre_tokenizer: ByteLevel with add_prefix_space after another step is not supported");
        status = add_change(state, &state->tokenizer->prepare,
                            (spry_change_step){.change = SPRY_CHANGE_PREFIX, .to = SPRY_VIEW(" ")});
    }
    if (!status && spry_json_flag(step, "use_regex", true))
        status = add_split(state, spry_view_of(spry_gpt2_regex), false, SPRY_SPLIT_ISOLATED, false);
    state->byte_level = true;
    return status;
}

/* The value "always", "first" or "never"; older files have add_prefix_space. */
static spry_view prepend_scheme(const json_t *step)
{
    spry_view scheme = spry_json_view(json_object_get(step, "prepend_scheme"));
    if (scheme.size)
        return scheme;
    return spry_json_flag(step, "add_prefix_space", true) ? SPRY_VIEW("always") : SPRY_VIEW("never");
}

static spry_status pre_metaspace(reader *state, const json_t *step)
{
    spry_tokenizer *tokenizer = state->tokenizer;
    spry_view mark, scheme = prepend_scheme(step);
    if (state->only_spaces && tokenizer->splitter.count == 1 && spry_view_is(scheme, "always")) {
        spry_splitter_deinit(&tokenizer->splitter); /* words already have one mark before each, so the split has no
                                                     * effect */
        tokenizer->splitter = (spry_splitter){0};
        spry_changes_add(&tokenizer->prepare, (spry_change_step){.change = SPRY_CHANGE_WORDS});
    }
    if (tokenizer->splitter.count)
        return spry_fail(state->error, SPRY_ERR_UNSUPPORTED,
                         "pre_tokenizer: Metaspace after another step is not supported");
    if (!copy_text(state, &mark, json_object_get(step, "replacement")))
        return spry_fail_memory(state->error, "a pre-tokenizer", 1);
    spry_status status =
        add_change(state, &tokenizer->prepare,
                   (spry_change_step){.change = SPRY_CHANGE_REPLACE, .from = SPRY_VIEW(" "), .to = mark});
    if (!status && !spry_view_is(scheme, "never"))
        status = add_change(
            state, &tokenizer->prepare,
            (spry_change_step){.change = SPRY_CHANGE_PREFIX, .to = mark, .only_first = spry_view_is(scheme, "first")});
    if (!status && spry_json_flag(step, "split", true))
        status = add_split(state, mark, true, SPRY_SPLIT_WITH_NEXT, false);
    return status;
}

static const step_type pre_tokenizer_types[] = {
    {"Split", pre_split},
    {"Digits", pre_digits},
    {"Punctuation", pre_punctuation},
    {"ByteLevel", pre_byte_level},
    {"Metaspace", pre_metaspace},
    {"Whitespace", pre_whitespace},
    {"WhitespaceSplit", pre_whitespace_split},
    {"BertPreTokenizer", pre_bert},
};

/* ---- post-processor ---- */

static spry_status push_frame_id(reader *state, spry_frame *frame, const json_t *id)
{
    json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
    if (frame->count == SPRY_FRAME_MAX || value < 0 || value >= (json_int_t)state->tokenizer->vocab.size)
        return spry_fail(state->error, SPRY_ERR_FORMAT,
                         "post_processor: a token it adds has no id in the vocabulary, or it adds more than %d",
                         SPRY_FRAME_MAX);
    frame->ids[frame->count++] = (int32_t)value;
    return SPRY_OK;
}

static spry_status post_template(reader *state, const json_t *step)
{
    const json_t *single = json_object_get(step, "single"), *tokens = json_object_get(step, "special_tokens");
    spry_frame *frame = &state->tokenizer->before;
    spry_status status = SPRY_OK;
    for (size_t i = 0; i < json_array_size(single) && !status; i++) {
        const json_t *part = json_array_get(single, i), *special = json_object_get(part, "SpecialToken");
        if (json_object_get(part, "Sequence")) {
            frame = &state->tokenizer->after;
            continue;
        }
        const char *name = json_string_value(json_object_get(special, "id"));
        const json_t *ids = json_object_get(json_object_get(tokens, name ? name : ""), "ids");
        if (!json_is_array(ids))
            return spry_fail(state->error, SPRY_ERR_FORMAT,
                             "post_processor: the template names \"%.50s\" but special_tokens does not",
                             name ? name : "");
        for (size_t k = 0; k < json_array_size(ids) && !status; k++)
            status = push_frame_id(state, frame, json_array_get(ids, k));
    }
    return status;
}

/* BertProcessing and RobertaProcessing: "cls" before, "sep" after, each [spelling, id]. */
static spry_status post_pair(reader *state, const json_t *step)
{
    spry_status status =
        push_frame_id(state, &state->tokenizer->before, json_array_get(json_object_get(step, "cls"), 1));
    if (!status)
        status = push_frame_id(state, &state->tokenizer->after, json_array_get(json_object_get(step, "sep"), 1));
    return status;
}

static const step_type post_processor_types[] = {
    {"ByteLevel", NULL},
    {"TemplateProcessing", post_template},
    {"BertProcessing", post_pair},
    {"RobertaProcessing", post_pair},
};

/* ---- decoder ---- */

static spry_status decoder_replace(reader *state, const json_t *step)
{
    spry_view from = spry_json_view(json_object_get(json_object_get(step, "pattern"), "String"));
    if (spry_view_is(from, SPRY_SPACE_MARK) && spry_view_is(spry_json_view(json_object_get(step, "content")), " "))
        return SPRY_OK;
    return spry_fail(state->error, SPRY_ERR_UNSUPPORTED,
                     "decoder: a Replace other than of U+2581 by a space is not supported");
}

static spry_status decoder_strip(reader *state, const json_t *step)
{
    json_int_t start = json_integer_value(json_object_get(step, "start"));
    json_int_t stop = json_integer_value(json_object_get(step, "stop"));
    if (!spry_view_is(spry_json_view(json_object_get(step, "content")), " ") || start < 0 || start > 1 || stop != 0)
        return spry_fail(state->error, SPRY_ERR_UNSUPPORTED,
                         "decoder: a Strip other than of one leading space is not supported");
    if (start)
        state->tokenizer->lead = SPRY_LEAD_STRIP_ONE;
    return SPRY_OK;
}

static spry_status decoder_metaspace(reader *state, const json_t *step)
{
    if (!spry_view_is(prepend_scheme(step), "never"))
        state->tokenizer->lead = SPRY_LEAD_STRIP_ALL;
    return SPRY_OK;
}

/* Puts spaces between words. */
static spry_status decoder_wordpiece(reader *state, const json_t *step)
{
    (void)step;
    state->tokenizer->lead = SPRY_LEAD_STRIP_ONE;
    return SPRY_OK;
}

static const step_type decoder_types[] = {
    {"WordPiece", decoder_wordpiece}, {"ByteLevel", NULL},      {"ByteFallback", NULL},           {"Fuse", NULL},
    {"Replace", decoder_replace},     {"Strip", decoder_strip}, {"Metaspace", decoder_metaspace},
};

/* ---- all of them ---- */

/* True if `value` has this type or is a Sequence that contains it. */
static bool has_type(const json_t *value, const char *list_key, const char *type, unsigned depth)
{
    const json_t *list = json_object_get(value, list_key);
    if (spry_view_is(spry_json_view(json_object_get(value, "type")), type))
        return true;
    for (size_t i = 0; i < json_array_size(list) && depth < DEPTH_MAX; i++)
        if (has_type(json_array_get(list, i), list_key, type, depth + 1))
            return true;
    return false;
}

/* True if the vocabulary is spelled in the byte-level alphabet. */
static bool is_byte_level(const json_t *root)
{
    return has_type(json_object_get(root, "pre_tokenizer"), "pretokenizers", "ByteLevel", 0) ||
           has_type(json_object_get(root, "decoder"), "decoders", "ByteLevel", 0);
}

static void name_pattern(reader *state)
{
    spry_tokenizer *tokenizer = state->tokenizer;
    const spry_changes *normalizer = &tokenizer->normalizer;
    bool nfc = normalizer->count && normalizer->steps[0].change == SPRY_CHANGE_FORM;
    const spry_named_pattern *named =
        tokenizer->by_byte && !state->nameless
            ? spry_named_pattern_of(state->regexes, state->n_regexes, nfc, tokenizer->ignore_merges)
            : NULL;
    tokenizer->pattern_name = named ? spry_view_of(named->names[0]) : SPRY_VIEW("");
}

spry_status spry_json_pipeline(spry_tokenizer *tokenizer, const json_t *root, spry_error *error)
{
    const struct {
        const char *key, *list_key;
        const step_type *types;
        size_t n_types;
    } pipelines[] = {
        {"normalizer", "normalizers", normalizer_types, SPRY_COUNT(normalizer_types)},
        {"pre_tokenizer", "pretokenizers", pre_tokenizer_types, SPRY_COUNT(pre_tokenizer_types)},
        {"post_processor", "processors", post_processor_types, SPRY_COUNT(post_processor_types)},
        {"decoder", "decoders", decoder_types, SPRY_COUNT(decoder_types)},
    };
    const json_t *model = json_object_get(root, "model");
    spry_view type = spry_json_view(json_object_get(model, "type")), prefix = SPRY_VIEW("##");
    json_int_t most = json_integer_value(json_object_get(model, "max_input_chars_per_word"));
    tokenizer->model = spry_view_is(type, "WordPiece") ? SPRY_WORDS_WORDPIECE
                       : spry_view_is(type, "Unigram") ? SPRY_WORDS_UNIGRAM
                                                       : SPRY_WORDS_MERGED;
    if (json_is_string(json_object_get(model, "continuing_subword_prefix")))
        prefix = spry_json_view(json_object_get(model, "continuing_subword_prefix"));
    char *kept = spry_arena_copy(&tokenizer->arena, prefix);
    if (!kept)
        return spry_fail_memory(error, "a tokenizer", prefix.size);
    tokenizer->wordpiece = (spry_wordpiece){.prefix = {kept, prefix.size}, .most = most > 0 ? (size_t)most : 100};
    tokenizer->by_byte = is_byte_level(root);
    tokenizer->ignore_merges = spry_json_flag(model, "ignore_merges", false);
    tokenizer->fuse_unknown = spry_json_flag(model, "fuse_unk", false);
    reader state = {.tokenizer = tokenizer, .error = error};
    for (size_t i = 0; i < SPRY_COUNT(pipelines); i++) {
        const json_t *value = spry_json_member(root, pipelines[i].key);
        spry_status status = value ? read_pipeline(&state, pipelines[i].key, value, pipelines[i].list_key,
                                                   pipelines[i].types, pipelines[i].n_types, 0)
                                   : SPRY_OK;
        if (status)
            return status;
    }
    name_pattern(&state);
    if (tokenizer->bos < 0 && tokenizer->before.count == 1)
        tokenizer->bos = tokenizer->before.ids[0];
    if (tokenizer->eos < 0 && tokenizer->after.count == 1)
        tokenizer->eos = tokenizer->after.ids[0];
    return SPRY_OK;
}

/* ---- vocabulary, merges, added tokens ---------------------------------------------------------------------------- */

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

/* Reads Unigram's list of [spelling, score]. */
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

/* Finds the unknown token by its spelling or, for Unigram, by its id. */
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

/* Reads added tokens, whose ids may be in the model's vocabulary or after it. */
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

/* Splits a merge, written as ["left", "right"] or "left right". */
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
    char *text = failed ? NULL : spry_json_text(kept, JSON_COMPACT);
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
