/* The tokenizer object: completing it after loading, and simple queries about ids. */
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/number.h"
#include "platform/file.h"
#include "tokenizer/tokenizer_impl.h"

spry_tokenizer *spry_tokenizer_create(void)
{
    spry_tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
    if (!tokenizer)
        return NULL;
    spry_arena_init(&tokenizer->arena);
    spry_map_init(&tokenizer->vocab.by_name);
    spry_map_init(&tokenizer->words);
    spry_map_init(&tokenizer->symbols.characters);
    tokenizer->bos = tokenizer->eos = tokenizer->end_of_turn = tokenizer->unknown = tokenizer->padding = -1;
    return tokenizer;
}

void spry_tokenizer_destroy(spry_tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    spry_splitter_deinit(&tokenizer->splitter);
    spry_symbols_deinit(&tokenizer->symbols);
    spry_vocab_deinit(&tokenizer->vocab);
    spry_map_deinit(&tokenizer->words);
    spry_arena_deinit(&tokenizer->arena);
    free(tokenizer);
}

bool spry_tokenizer_split_merge(spry_view text, spry_view *left, spry_view *right)
{
    /* A token may start with a space, so the first byte is not a separator. */
    const char *space = text.size > 1 ? memchr(text.data + 1, ' ', text.size - 1) : NULL;
    if (!space)
        return false;
    *left = (spry_view){text.data, (size_t)(space - text.data)};
    *right = (spry_view){space + 1, text.size - left->size - 1};
    return right->size > 0;
}

spry_status spry_tokenizer_add_merge(spry_tokenizer *tokenizer, spry_buffer *scratch, spry_view left, spry_view right,
                                     size_t rank, spry_error *error)
{
    const spry_vocab *vocab = &tokenizer->vocab;
    spry_merge merge = {
        .rank = (uint32_t)rank, .left = spry_vocab_find(vocab, left), .right = spry_vocab_find(vocab, right)};
    if (merge.left < 0 || merge.right < 0)
        return SPRY_OK;
    spry_buffer_clear(scratch);
    spry_buffer_append(scratch, left.data, left.size);
    if (!spry_buffer_append(scratch, right.data, right.size))
        return spry_fail_memory(error, "a merge", left.size + right.size);
    merge.merged = spry_vocab_find(vocab, spry_buffer_view(scratch));
    if (merge.merged < 0)
        return spry_fail(error, SPRY_ERR_FORMAT, "merge %zu makes \"%.*s\", which is no token", rank,
                         SPRY_VIEW_ARG(spry_buffer_view(scratch)));
    /* Merging must never produce a control token from text. */
    if (vocab->kinds[merge.merged] != SPRY_TOKEN_CONTROL && vocab->kinds[merge.merged] != SPRY_TOKEN_UNKNOWN)
        spry_merges_add(&tokenizer->merges, merge);
    return SPRY_OK;
}

void spry_tokenizer_mark_added(spry_tokenizer *tokenizer, spry_added_token token)
{
    unsigned char *kind = &tokenizer->vocab.kinds[token.id];
    if (*kind != SPRY_TOKEN_UNKNOWN)
        *kind = token.special ? SPRY_TOKEN_CONTROL : SPRY_TOKEN_ADDED;
    token.normalized = token.normalized && !token.special; /* tokens that are never matched in literal ranges must be
                                                            * found in the original text, because these ranges refer to
                                                            * it */
    tokenizer->added[tokenizer->n_added++] = token;
}

static bool is_matched_as_spelled(unsigned char kind)
{
    return kind == SPRY_TOKEN_CONTROL || kind == SPRY_TOKEN_UNKNOWN || kind == SPRY_TOKEN_ADDED;
}

/* The spelling of a token in normalised text, where spaces are space marks; GGUF files have user-defined tokens with
 * plain spaces. */
static spry_view marked_spelling(spry_arena *arena, spry_view name)
{
    static const char mark[] = SPRY_SPACE_MARK;
    if (!memchr(name.data, ' ', name.size))
        return name;
    char *out = spry_arena_alloc(arena, name.size, sizeof mark);
    spry_view marked = {out, 0};
    for (size_t i = 0; out && i < name.size; i++) {
        bool space = name.data[i] == ' ';
        memcpy(out + marked.size, space ? mark : name.data + i, space ? 3 : 1);
        marked.size += space ? 3 : 1;
    }
    return marked;
}

spry_status spry_tokenizer_list_added(spry_tokenizer *tokenizer, size_t more, spry_error *error)
{
    const spry_vocab *vocab = &tokenizer->vocab;
    size_t count = more;
    for (size_t id = 0; id < vocab->size; id++)
        count += is_matched_as_spelled(vocab->kinds[id]);
    tokenizer->added = spry_arena_alloc(&tokenizer->arena, count, sizeof *tokenizer->added);
    if (!tokenizer->added)
        return spry_fail_memory(error, "added tokens", count * sizeof *tokenizer->added);
    for (size_t id = 0; id < vocab->size; id++) {
        if (!is_matched_as_spelled(vocab->kinds[id]))
            continue;
        spry_added_token token = {
            .text = vocab->names[id], .id = (int32_t)id, .special = vocab->kinds[id] != SPRY_TOKEN_ADDED};
        token.normalized = !token.special && !tokenizer->by_byte;
        if (token.normalized)
            token.text = marked_spelling(&tokenizer->arena, token.text);
        if (!token.text.data)
            return spry_fail_memory(error, "added tokens", vocab->names[id].size);
        spry_tokenizer_mark_added(tokenizer, token);
    }
    return SPRY_OK;
}

void spry_tokenizer_set_spm_rules(spry_tokenizer *tokenizer, bool add_prefix, bool squeeze, bool escape)
{
    spry_view space = escape ? SPRY_VIEW(SPRY_SPACE_MARK) : SPRY_VIEW(" ");
    tokenizer->normalizer.count = 0;
    if (squeeze)
        spry_changes_add(&tokenizer->normalizer, (spry_change_step){.change = SPRY_CHANGE_SQUEEZE});
    if (add_prefix)
        spry_changes_add(&tokenizer->normalizer, (spry_change_step){.change = SPRY_CHANGE_PREPEND, .to = space});
    if (escape)
        spry_changes_add(&tokenizer->normalizer,
                         (spry_change_step){.change = SPRY_CHANGE_REPLACE, .from = SPRY_VIEW(" "), .to = space});
    tokenizer->lead = add_prefix ? SPRY_LEAD_STRIP_ONE : SPRY_LEAD_KEEP;
}

/* Appends the text that a token has inside a text. */
static bool append_bytes(const spry_tokenizer *tokenizer, spry_buffer *out, size_t id)
{
    static const char mark[] = SPRY_SPACE_MARK;
    spry_view name = tokenizer->vocab.names[id];
    unsigned char byte;
    if (tokenizer->vocab.kinds[id] == SPRY_TOKEN_UNUSED)
        return true;
    if (tokenizer->model == SPRY_WORDS_WORDPIECE && tokenizer->vocab.kinds[id] == SPRY_TOKEN_NORMAL) {
        spry_view prefix =
            tokenizer->wordpiece.prefix; /* tokens with this prefix continue a word; others follow a space */
        bool inside = prefix.size && spry_view_starts(name, prefix);
        size_t from = inside ? prefix.size : 0;
        return (inside || spry_buffer_append(out, " ", 1)) &&
               spry_buffer_append(out, name.data + from, name.size - from);
    }
    if (tokenizer->by_byte)
        return spry_byte_decode(out, name) || (!out->failed && spry_buffer_append(out, name.data, name.size));
    if (tokenizer->vocab.kinds[id] == SPRY_TOKEN_BYTE && spry_vocab_byte(name, &byte))
        return spry_buffer_append(out, &byte, 1);
    for (size_t i = 0; i < name.size;) {
        bool space = name.size - i >= 3 && memcmp(name.data + i, mark, 3) == 0;
        if (!spry_buffer_append(out, space ? " " : name.data + i, 1))
            return false;
        i += space ? 3 : 1;
    }
    return true;
}

/* Fills `bytes`: one block with the text of every token. */
static bool decode_vocabulary(spry_tokenizer *tokenizer)
{
    const spry_vocab *vocab = &tokenizer->vocab;
    tokenizer->bytes = spry_arena_alloc(&tokenizer->arena, vocab->size, sizeof *tokenizer->bytes);
    size_t most = vocab->text_used + vocab->size + 1; /* one more byte per token, for a space before it */
    char *block = spry_arena_alloc(&tokenizer->arena, most, 1);
    spry_buffer one;
    spry_buffer_init(&one, most);
    bool ok = tokenizer->bytes && block;
    size_t used = 0;
    for (size_t id = 0; ok && id < vocab->size; id++) {
        spry_buffer_clear(&one);
        ok = append_bytes(tokenizer, &one, id);
        if (ok && one.size)
            memcpy(block + used, one.data, one.size);
        tokenizer->bytes[id] = (spry_view){block + used, ok ? one.size : 0};
        used += tokenizer->bytes[id].size;
    }
    spry_buffer_deinit(&one);
    return ok;
}

static bool enter_words(spry_tokenizer *tokenizer)
{
    for (size_t id = 0; tokenizer->by_byte && id < tokenizer->vocab.size; id++)
        if (tokenizer->vocab.kinds[id] == SPRY_TOKEN_NORMAL && tokenizer->bytes[id].size &&
            !spry_map_add(&tokenizer->words, tokenizer->bytes[id], (uint32_t)id, NULL))
            return false;
    return true;
}

/* In formats with channels "<|end|>" ends a message, but not the answer. */
static bool has_channels(const spry_tokenizer *tokenizer)
{
    return spry_vocab_find(&tokenizer->vocab, SPRY_VIEW("<|call|>")) >= 0 ||
           spry_vocab_find(&tokenizer->vocab, SPRY_VIEW("<|calls|>")) >= 0;
}

static void mark_ends(spry_tokenizer *tokenizer)
{
    static const char *const spellings[] = {
        "<|im_end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|eot|>",
        "<end_of_turn>",
        "<turn|>",
        "<|end|>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<|end_of_turn|>",
        "<|END_OF_TURN_TOKEN|>",
        "<EOT>",
        "<｜end▁of▁sentence｜>",
        "<|call|>",
        "<|calls|>",
        "<|return|>",
    };
    for (size_t i = 0; i < SPRY_COUNT(spellings); i++) {
        int32_t id = spry_vocab_find(&tokenizer->vocab, spry_view_of(spellings[i]));
        if (strcmp(spellings[i], "<|end|>") == 0 && has_channels(tokenizer))
            continue;
        if (id >= 0 && tokenizer->vocab.kinds[id] != SPRY_TOKEN_NORMAL)
            tokenizer->ends[id] = true;
    }
    if (tokenizer->eos >= 0)
        tokenizer->ends[tokenizer->eos] = true;
    if (tokenizer->end_of_turn >= 0)
        tokenizer->ends[tokenizer->end_of_turn] = true;
}

static void name_algorithm(spry_tokenizer *tokenizer)
{
    spry_view name = tokenizer->pattern_name.size ? tokenizer->pattern_name : SPRY_VIEW("own");
    static const char *const others[] = {[SPRY_WORDS_MERGED] = "SentencePiece BPE",
                                         [SPRY_WORDS_WORDPIECE] = "WordPiece",
                                         [SPRY_WORDS_UNIGRAM] = "Unigram"};
    if (!tokenizer->by_byte)
        snprintf(tokenizer->algorithm, sizeof tokenizer->algorithm, "%s", others[tokenizer->model]);
    else
        snprintf(tokenizer->algorithm, sizeof tokenizer->algorithm, "BPE (%.*s pattern)",
                 (int)(name.size < 32 ? name.size : 32), name.data);
}

/* Checks that the ids in the settings exist. */
static spry_status check_ids(const spry_tokenizer *tokenizer, spry_error *error)
{
    const struct {
        const char *what;
        int32_t id;
    } named[] = {{"bos", tokenizer->bos},
                 {"eos", tokenizer->eos},
                 {"end-of-turn", tokenizer->end_of_turn},
                 {"unknown", tokenizer->unknown},
                 {"padding", tokenizer->padding}};
    for (size_t i = 0; i < SPRY_COUNT(named); i++)
        if (named[i].id >= 0 && (size_t)named[i].id >= tokenizer->vocab.size)
            return spry_fail(error, SPRY_ERR_FORMAT, "the %s token's id %d is outside the vocabulary of %zu",
                             named[i].what, (int)named[i].id, tokenizer->vocab.size);
    const spry_frame *frames[] = {&tokenizer->before, &tokenizer->after};
    for (size_t f = 0; f < 2; f++)
        for (size_t i = 0; i < frames[f]->count; i++)
            if (frames[f]->ids[i] < 0 || (size_t)frames[f]->ids[i] >= tokenizer->vocab.size)
                return spry_fail(error, SPRY_ERR_FORMAT,
                                 "the post-processor adds id %d, which is outside the vocabulary of %zu",
                                 (int)frames[f]->ids[i], tokenizer->vocab.size);
    return SPRY_OK;
}

/* Derives everything after `settings` from the fields before it. */
static spry_status finish(spry_tokenizer *tokenizer, spry_error *error)
{
    spry_status status = check_ids(tokenizer, error);
    if (status)
        return status;
    spry_unicode_init(&tokenizer->unicode);
    status = spry_symbols_init(&tokenizer->symbols, &tokenizer->arena, &tokenizer->vocab, tokenizer->by_byte,
                               tokenizer->byte_fallback, error);
    if (status)
        return status;
    tokenizer->symbols.unknown = tokenizer->wordpiece.unknown = tokenizer->unknown;
    tokenizer->unigram = spry_unigram_of(&tokenizer->vocab);
    tokenizer->symbols.fuse_unknown = tokenizer->fuse_unknown;
    if (tokenizer->by_score)
        status = spry_spm_merges(&tokenizer->merges, &tokenizer->arena, &tokenizer->vocab, &tokenizer->symbols, error);
    if (!status)
        status = spry_added_tokens_init(&tokenizer->raw, &tokenizer->arena, tokenizer->added, tokenizer->n_added, false,
                                        error);
    if (!status)
        status = spry_added_tokens_init(&tokenizer->normalized, &tokenizer->arena, tokenizer->added, tokenizer->n_added,
                                        true, error);
    if (status)
        return status;
    tokenizer->whole = spry_arena_alloc(&tokenizer->arena, tokenizer->vocab.size, sizeof *tokenizer->whole);
    tokenizer->ends = spry_arena_alloc(&tokenizer->arena, tokenizer->vocab.size, sizeof *tokenizer->ends);
    if (!tokenizer->whole || !tokenizer->ends || !decode_vocabulary(tokenizer) || !enter_words(tokenizer))
        return spry_fail_memory(error, "a tokenizer", tokenizer->vocab.size);
    mark_ends(tokenizer);
    name_algorithm(tokenizer);
    return SPRY_OK;
}

spry_status spry_tokenizer_complete(spry_tokenizer **out, spry_tokenizer *tokenizer, spry_status status,
                                    const char *name, spry_error *error)
{
    if (!status)
        status = finish(tokenizer, error);
    if (status) {
        spry_tokenizer_destroy(tokenizer);
        return spry_fail_prefix(error, status, name);
    }
    *out = tokenizer;
    return SPRY_OK;
}

static bool in_range(const spry_tokenizer *tokenizer, int32_t id)
{
    return id >= 0 && (size_t)id < tokenizer->vocab.size;
}

size_t spry_tokenizer_size(const spry_tokenizer *tokenizer)
{
    return tokenizer->vocab.size;
}

spry_token_kind spry_tokenizer_kind(const spry_tokenizer *tokenizer, int32_t id)
{
    return in_range(tokenizer, id) ? (spry_token_kind)tokenizer->vocab.kinds[id] : SPRY_TOKEN_UNUSED;
}

spry_view spry_tokenizer_bytes(const spry_tokenizer *tokenizer, int32_t id)
{
    return in_range(tokenizer, id) ? tokenizer->bytes[id] : SPRY_VIEW("");
}

spry_view spry_tokenizer_name(const spry_tokenizer *tokenizer, int32_t id)
{
    return in_range(tokenizer, id) ? tokenizer->vocab.names[id] : SPRY_VIEW("");
}

int32_t spry_tokenizer_bos(const spry_tokenizer *tokenizer)
{
    return tokenizer->bos;
}

int32_t spry_tokenizer_eos(const spry_tokenizer *tokenizer)
{
    return tokenizer->eos;
}

bool spry_tokenizer_is_end(const spry_tokenizer *tokenizer, int32_t id)
{
    return in_range(tokenizer, id) && tokenizer->ends[id];
}

const char *spry_tokenizer_algorithm(const spry_tokenizer *tokenizer)
{
    return tokenizer->algorithm;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

/* Opens tokenizers on disk: a Hugging Face folder or a single file. As in transformers, tokenizer_config.json takes
 * precedence over tokenizer.json's post-processor about begin and end tokens. */

enum { TOKENIZER_BYTES_MAX = 256 << 20, CONFIG_BYTES_MAX = 16 << 20 };

/* The token under a key of the configuration, which is a string or an object with "content". */
static int32_t configured_token(const spry_tokenizer *tokenizer, const json_t *config, const char *key,
                                int32_t otherwise)
{
    const json_t *value = spry_json_member(config, key);
    spry_view text = spry_json_view(json_is_object(value) ? json_object_get(value, "content") : value);
    int32_t id = text.size ? spry_vocab_find(&tokenizer->vocab, text) : -1;
    return id >= 0 ? id : otherwise;
}

/* Sets a begin or end token; add_bos_token and add_eos_token take precedence if present. */
static void configure_frame(spry_frame *frame, const json_t *config, const char *key, int32_t id)
{
    const json_t *value = spry_json_member(config, key);
    if (!json_is_boolean(value))
        return;
    frame->count = json_is_true(value) && id >= 0;
    frame->ids[0] = id;
}

static void configure(spry_tokenizer *tokenizer, const json_t *config)
{
    tokenizer->bos = configured_token(tokenizer, config, "bos_token", tokenizer->bos);
    tokenizer->eos = configured_token(tokenizer, config, "eos_token", tokenizer->eos);
    tokenizer->padding = configured_token(tokenizer, config, "pad_token", tokenizer->padding);
    configure_frame(&tokenizer->before, config, "add_bos_token", tokenizer->bos);
    configure_frame(&tokenizer->after, config, "add_eos_token", tokenizer->eos);
}

static bool looks_like_json(spry_view text)
{
    size_t i = 0;
    while (i < text.size &&
           (text.data[i] == ' ' || text.data[i] == '\t' || text.data[i] == '\n' || text.data[i] == '\r'))
        i++;
    return i < text.size && text.data[i] == '{';
}

/* Loads a tokenizer. `config` may be NULL. Error messages do not contain the path yet. */
static spry_status load(spry_tokenizer *tokenizer, spry_view text, json_t *config, spry_error *error)
{
    spry_status status =
        looks_like_json(text)
            ? spry_tokenizer_load_json(tokenizer, text, error)
            : spry_tokenizer_load_spm(tokenizer, text, json_object_get(config, "added_tokens_decoder"), error);
    if (!status)
        configure(tokenizer, config);
    return status;
}

static spry_status open_file(spry_tokenizer **out, const char *path, json_t *config, spry_error *error)
{
    spry_buffer text;
    spry_buffer_init(&text, TOKENIZER_BYTES_MAX);
    spry_status status = spry_file_read(&text, path, error); /* its messages contain the path */
    if (!status) {
        spry_tokenizer *tokenizer = spry_tokenizer_create();
        status = tokenizer ? load(tokenizer, spry_buffer_view(&text), config, error)
                           : spry_fail_memory(error, "a tokenizer", sizeof *tokenizer);
        status = spry_tokenizer_complete(out, tokenizer, status, path, error);
    }
    spry_buffer_deinit(&text);
    return status;
}

/* Reads an optional configuration file. */
static spry_status read_config(json_t **out, const char *path, spry_error *error)
{
    *out = NULL;
    if (!spry_path_exists(path))
        return SPRY_OK;
    spry_buffer text;
    spry_buffer_init(&text, CONFIG_BYTES_MAX);
    spry_status status = spry_file_read(&text, path, error);
    if (!status && !(*out = spry_json_parse(spry_buffer_view(&text), error)))
        status = spry_fail_prefix(error, SPRY_ERR_FORMAT, path);
    spry_buffer_deinit(&text);
    return status;
}

static spry_status open_folder(spry_tokenizer **out, const char *folder, spry_error *error)
{
    spry_buffer path, config_path;
    spry_buffer_init(&path, 4096);
    spry_buffer_init(&config_path, 4096);
    json_t *config = NULL;
    spry_status status = spry_path_join(&path, folder, "tokenizer.json", error);
    if (!status && !spry_path_exists(path.data)) {
        spry_buffer_clear(&path);
        status = spry_path_join(&path, folder, "tokenizer.model", error);
    }
    if (!status && !spry_path_exists(path.data))
        status = spry_fail(error, SPRY_ERR_FILE, "%s holds neither tokenizer.json nor tokenizer.model", folder);
    if (!status)
        status = spry_path_join(&config_path, folder, "tokenizer_config.json", error);
    if (!status)
        status = read_config(&config, config_path.data, error);
    if (!status)
        status = open_file(out, path.data, config, error);
    json_decref(config);
    spry_buffer_deinit(&path);
    spry_buffer_deinit(&config_path);
    return status;
}

spry_status spry_tokenizer_open(spry_tokenizer **out, const char *path, spry_error *error)
{
    return spry_path_is_folder(path) ? open_folder(out, path, error) : open_file(out, path, NULL, error);
}
