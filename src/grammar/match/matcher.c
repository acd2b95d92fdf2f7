/* Matches the text of one sequence against a grammar. */
#include "grammar/match/stacks.h"

#include "grammar/ir/grow.h"
#include "grammar/match/vocabulary.h"

enum {
    COLLECT_BYTES = 1 << 24,    /* bytes of stacks, records and sets at which unused ones are first removed */
    PLACES_BYTES_MAX = 1 << 28, /* maximum bytes of them that are in use */
    WORK_AT_ONCE = 1 << 23,     /* maximum work before a token: a few tenths of a second */
    WORK_A_TOKEN = 1 << 18,     /* work that each further token is allowed, up to WORK_AT_ONCE: some milliseconds */
};

spry_status spry_matcher_create(spry_matcher **out, spry_grammar *grammar, const spry_vocabulary *vocabulary,
                                spry_error *error)
{
    spry_matcher *matcher = *out = calloc(1, sizeof *matcher);
    if (!matcher)
        return spry_fail_memory(error, "a matcher", sizeof *matcher);
    spry_status status = spry_places_init(&matcher->places, grammar, error);
    if (status) {
        free(matcher);
        *out = NULL;
        return status;
    }
    matcher->grammar = spry_grammar_ref(grammar);
    matcher->vocabulary = vocabulary;
    matcher->collect_at = COLLECT_BYTES;
    spry_matcher_reset(matcher);
    status = matcher->places.failed ? spry_places_fail(&matcher->places, error) : SPRY_OK;
    if (!status)
        return SPRY_OK;
    spry_matcher_destroy(matcher);
    *out = NULL;
    return status;
}

void spry_matcher_destroy(spry_matcher *matcher)
{
    if (!matcher)
        return;
    spry_places_deinit(&matcher->places);
    spry_grammar_unref(matcher->grammar);
    free(matcher->history);
    free(matcher->mask);
    free(matcher->scratch);
    free(matcher->path);
    free(matcher);
}

void spry_matcher_reset(spry_matcher *matcher)
{
    uint32_t nothing = SPRY_NO_SET;
    if (matcher->places.failed)
        spry_places_collect(&matcher->places, &nothing, 1);
    matcher->places.work_max = matcher->places.work + WORK_AT_ONCE;
    matcher->n_history = 0;
    matcher->set = spry_places_start(&matcher->places);
}

spry_status spry_matcher_keep_bounded(spry_matcher *matcher, spry_error *error)
{
    spry_places *places = &matcher->places;
    size_t bytes = spry_places_bytes(places);
    if (!places->failed && bytes < matcher->collect_at)
        return SPRY_OK;
    if (!spry_grow(&matcher->history, &matcher->history_room, matcher->n_history + 1, sizeof *matcher->history))
        return spry_fail_memory(error, "a matcher's history", matcher->n_history * sizeof *matcher->history);
    matcher->history[matcher->n_history] = matcher->set;
    if (!spry_places_collect(places, matcher->history, matcher->n_history + 1))
        return spry_fail_memory(error, "a place in a grammar", bytes);
    matcher->set = matcher->history[matcher->n_history];
    matcher->collect_at = 2 * spry_places_bytes(places);
    if (matcher->collect_at < COLLECT_BYTES)
        matcher->collect_at = COLLECT_BYTES;
    if (matcher->collect_at > PLACES_BYTES_MAX)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "following the grammar takes more than %d MiB",
                         PLACES_BYTES_MAX >> 20);
    return SPRY_OK;
}

/* Finds the set after `bytes`; *taken as in spry_matcher_bytes. */
static spry_status follow(spry_matcher *matcher, size_t *taken, spry_view bytes, uint32_t *set, spry_error *error)
{
    spry_places *places = &matcher->places;
    spry_status status = spry_matcher_keep_bounded(matcher, error);
    *set = matcher->set;
    *taken = 0;
    if (status)
        return status;
    for (; *taken < bytes.size; ++*taken) {
        *set = spry_places_step(places, *set, (unsigned char)bytes.data[*taken]);
        if (places->failed)
            return spry_places_fail(places, error);
        if (*set == SPRY_NO_SET)
            break;
    }
    return SPRY_OK;
}

static spry_status move(spry_matcher *matcher, uint32_t set, spry_error *error)
{
    if (!spry_grow(&matcher->history, &matcher->history_room, matcher->n_history + 1, sizeof *matcher->history))
        return spry_fail_memory(error, "a matcher's history", matcher->n_history * sizeof *matcher->history);
    matcher->history[matcher->n_history++] = matcher->set;
    matcher->set = set;
    spry_places *places = &matcher->places;
    places->work_max += WORK_A_TOKEN;
    if (places->work_max - places->work > WORK_AT_ONCE)
        places->work_max = places->work + WORK_AT_ONCE;
    return SPRY_OK;
}

spry_status spry_matcher_bytes(spry_matcher *matcher, size_t *taken, spry_view bytes, spry_error *error)
{
    uint32_t set;
    spry_status status = follow(matcher, taken, bytes, &set, error);
    return status || *taken < bytes.size ? status : move(matcher, set, error);
}

spry_status spry_matcher_token(spry_matcher *matcher, int32_t id, spry_error *error)
{
    const spry_vocabulary *vocabulary = matcher->vocabulary;
    if (id < 0 || (size_t)id >= vocabulary->n_ids)
        return spry_fail(error, SPRY_ERR_INPUT, "token %d is not in the vocabulary", id);
    if (spry_bit_get(vocabulary->ends, (uint32_t)id)) {
        if (!spry_matcher_may_end(matcher))
            return spry_fail(error, SPRY_ERR_INPUT, "the grammar does not let the text end here");
        return move(matcher, matcher->set, error);
    }
    size_t taken;
    uint32_t set;
    spry_view text = vocabulary->texts[id];
    spry_status status = follow(matcher, &taken, text, &set, error);
    if (!status && (!text.size || taken < text.size))
        return spry_fail(error, SPRY_ERR_INPUT, "the grammar does not allow token %d here", id);
    return status ? status : move(matcher, set, error);
}

void spry_matcher_undo(spry_matcher *matcher, size_t count)
{
    if (count > matcher->n_history)
        count = matcher->n_history;
    if (count)
        matcher->set = matcher->history[matcher->n_history - count];
    matcher->n_history -= count;
}

bool spry_matcher_may_end(const spry_matcher *matcher)
{
    return matcher->places.sets[matcher->set].may_end;
}

bool spry_matcher_must_end(const spry_matcher *matcher)
{
    const spry_set *set = &matcher->places.sets[matcher->set];
    return set->may_end && !(set->bytes[0] | set->bytes[1] | set->bytes[2] | set->bytes[3]);
}

void spry_matcher_next_bytes(const spry_matcher *matcher, uint64_t bytes[4])
{
    memcpy(bytes, matcher->places.sets[matcher->set].bytes, 4 * sizeof *bytes);
}

/* ---- forced text ------------------------------------------------------------------------------------------------- */

enum { FORCED_BYTES_MAX = 4096 };

/* The only byte that a set allows; -1 when there are several or none, or the text may end. */
static int only_byte(const spry_set *set)
{
    int found = -1;
    for (unsigned i = 0; i < 4 && !set->may_end; i++) {
        uint64_t bits = set->bytes[i];
        if (!bits)
            continue;
        if (found >= 0 || bits & (bits - 1))
            return -1;
        unsigned bit = 0;
        while (!(bits >> bit & 1))
            bit++;
        found = (int)(i * 64 + bit);
    }
    return found;
}

spry_status spry_matcher_forced(spry_matcher *matcher, spry_buffer *out, spry_error *error)
{
    spry_places *places = &matcher->places;
    spry_status status = spry_matcher_keep_bounded(matcher, error);
    if (status)
        return status;
    uint32_t set = matcher->set;
    for (size_t i = 0; i < FORCED_BYTES_MAX; i++) {
        int byte = only_byte(&places->sets[set]);
        if (byte < 0)
            break;
        char text = (char)byte;
        spry_buffer_append(out, &text, 1);
        set = spry_places_step(places, set, (unsigned char)byte);
        if (places->failed)
            return spry_places_fail(places, error);
    }
    return out->failed ? spry_fail(error, SPRY_ERR_MEMORY, "not enough memory for forced text") : SPRY_OK;
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

/* True if some token of a slice begins with `text` and is longer. */
static bool goes_on(const spry_vocabulary *vocabulary, const spry_trie *trie, spry_view text)
{
    const spry_trie_node *nodes = vocabulary->nodes;
    uint32_t at = trie->begin, end = trie->end;
    for (size_t i = 0; i < text.size; i++) {
        while (at < end && nodes[at].byte != (unsigned char)text.data[i])
            at = nodes[at].skip;
        if (at >= end)
            return false;
        end = nodes[at].skip;
        at++;
    }
    return at < end;
}

static bool token_goes_on(const spry_vocabulary *vocabulary, spry_view text)
{
    for (unsigned i = 0; i < SPRY_SLICES; i++)
        if (goes_on(vocabulary, &vocabulary->tries[i], text))
            return true;
    return false;
}

/* The length of the prefix of `text` whose tokens cannot depend on what follows the text. */
static size_t certain_bytes(const spry_vocabulary *vocabulary, spry_view text)
{
    size_t first = text.size > vocabulary->longest ? text.size - vocabulary->longest : 0;
    for (size_t at = first; at < text.size; at++)
        if (token_goes_on(vocabulary, (spry_view){text.data + at, text.size - at}))
            return at;
    return text.size;
}

/* The bytes of a token; for a control token its spelling. */
static spry_view spelled(const spry_tokenizer *tokenizer, int32_t id)
{
    spry_view bytes = spry_tokenizer_bytes(tokenizer, id);
    return bytes.size ? bytes : spry_tokenizer_name(tokenizer, id);
}

/* Tokenises `text` followed by `suffix` as if both were in the middle of a longer text. Some tokenizers add a space at
 * the beginning, so a newline is put first and its tokens are skipped: *first is the index of the first token of
 * `text`. */
static spry_status tokenize(const spry_tokenizer *tokenizer, spry_tokens *out, size_t *first, spry_view text,
                            const char *suffix, bool marks, spry_error *error)
{
    spry_text_range all = {0, SIZE_MAX};
    unsigned flags = marks ? SPRY_ENCODE_SPECIAL : 0u;
    for (int with_line = 0; with_line < 2; with_line++) {
        spry_buffer whole;
        spry_buffer_init(&whole, SIZE_MAX / 2);
        spry_buffer_text(&whole, with_line ? "\n" : "");
        spry_buffer_append(&whole, text.data, text.size);
        spry_buffer_text(&whole, suffix);
        out->count = 0;
        spry_status status =
            whole.failed ? spry_fail(error, SPRY_ERR_MEMORY, "not enough memory for forced text")
                         : spry_tokenizer_encode(tokenizer, out, spry_buffer_view(&whole), &all, !marks, flags, error);
        spry_buffer_deinit(&whole);
        if (status)
            return status;
        for (*first = 0; with_line && *first < out->count; ++*first)
            if (spry_view_ends(spry_tokenizer_bytes(tokenizer, out->ids[*first]), SPRY_VIEW("\n")))
                break;
        *first += with_line != 0;
        if (*first < out->count && spry_view_starts(text, spelled(tokenizer, out->ids[*first])))
            return SPRY_OK;
    }
    *first = out->count;
    return SPRY_OK;
}

/* Reduces *count to the number of `ids` (the tokens of `text`) that also result when other text follows. */
static spry_status keep_common(const spry_tokenizer *tokenizer, spry_tokens *scratch, const int32_t *ids, size_t *count,
                               spry_view text, const char *suffix, bool marks, spry_error *error)
{
    size_t first, same = 0;
    spry_status status = tokenize(tokenizer, scratch, &first, text, suffix, marks, error);
    if (status)
        return status;
    while (same < *count && first + same < scratch->count && scratch->ids[first + same] == ids[same])
        same++;
    *count = same;
    return SPRY_OK;
}

spry_status spry_matcher_forced_tokens(spry_matcher *matcher, const spry_tokenizer *tokenizer, spry_tokens *out,
                                       spry_error *error)
{
    static const char *const behinds[] = {"a", " a", "\n", " ", "1", "\"", "}", ",", ".", "\xC3\xA9"};
    spry_buffer forced;
    spry_buffer_init(&forced, FORCED_BYTES_MAX + 1);
    spry_tokens plain = {0}, other = {0};
    size_t first = 0, count = 0;
    spry_status status = spry_matcher_forced(matcher, &forced, error);
    spry_view text = spry_buffer_view(&forced);
    size_t certain = certain_bytes(matcher->vocabulary, text);
    if (!status && certain)
        status = tokenize(tokenizer, &plain, &first, text, "", matcher->vocabulary->marks, error);
    for (size_t bytes = 0; !status && first + count < plain.count; count++) {
        spry_view token = matcher->vocabulary->texts[plain.ids[first + count]];
        spry_view rest = {text.data + bytes, text.size - bytes};
        bytes += token.size;
        if (bytes > certain || !token.size || !spry_view_starts(rest, token))
            break;
    }
    for (size_t i = 0; !status && count && i < SPRY_COUNT(behinds); i++)
        status = keep_common(tokenizer, &other, plain.ids + first, &count, text, behinds[i], matcher->vocabulary->marks,
                             error);
    for (size_t i = 0; !status && i < count; i++)
        if (!spry_tokens_push(out, plain.ids[first + i]))
            status = spry_fail_memory(error, "forced tokens", count * sizeof *out->ids);
    spry_tokens_deinit(&plain);
    spry_tokens_deinit(&other);
    spry_buffer_deinit(&forced);
    return status;
}
