/* Text that must come next, and its tokens. */
#include "grammar/match/matcher.h"
#include "grammar/match/vocabulary.h"

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

/* Whether a token of a slice begins with `text` and is longer. */
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

/* The length of the prefix whose tokens cannot depend on the following text. */
static size_t certain_bytes(const spry_vocabulary *vocabulary, spry_view text)
{
    size_t first = text.size > vocabulary->longest ? text.size - vocabulary->longest : 0;
    for (size_t at = first; at < text.size; at++)
        if (token_goes_on(vocabulary, (spry_view){text.data + at, text.size - at}))
            return at;
    return text.size;
}

/* The bytes of a token, of a control token its spelling. */
static spry_view spelled(const spry_tokenizer *tokenizer, int32_t id)
{
    spry_view bytes = spry_tokenizer_bytes(tokenizer, id);
    return bytes.size ? bytes : spry_tokenizer_name(tokenizer, id);
}

/* Tokenises `text` followed by `behind` as in the middle of a text. Some tokenizers add a space at the beginning, so a
 * newline is put first and its tokens are skipped: *first is the index of the first token of `text`. */
static spry_status tokenize(const spry_tokenizer *tokenizer, spry_tokens *out, size_t *first, spry_view text,
                            const char *behind, bool marks, spry_error *error)
{
    spry_text_range all = {0, SIZE_MAX};
    unsigned flags = marks ? SPRY_ENCODE_SPECIAL : 0u;
    for (int with_line = 0; with_line < 2; with_line++) {
        spry_buffer whole;
        spry_buffer_init(&whole, SIZE_MAX / 2);
        spry_buffer_text(&whole, with_line ? "\n" : "");
        spry_buffer_append(&whole, text.data, text.size);
        spry_buffer_text(&whole, behind);
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

/* How many of `ids` (the tokens of `text`) are also produced when other text follows. */
static spry_status keep_common(const spry_tokenizer *tokenizer, spry_tokens *scratch, const int32_t *ids, size_t *count,
                               spry_view text, const char *behind, bool marks, spry_error *error)
{
    size_t first, same = 0;
    spry_status status = tokenize(tokenizer, scratch, &first, text, behind, marks, error);
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
