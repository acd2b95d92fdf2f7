/* From every byte that may start a token, the trie is followed along the text. */
#include "tokenizer/added_tokens.h"

struct spry_added_node {
    uint32_t child, sibling; /* 0: none; node 0 is unused */
    uint32_t token;          /* 1 + index, 0: no token ends here */
    unsigned char byte;
};

static uint32_t find_sibling(const spry_added_tokens *added, uint32_t node, unsigned char byte)
{
    while (node && added->nodes[node].byte != byte)
        node = added->nodes[node].sibling;
    return node;
}

/* The node for `byte` in the list at *list; created if missing. */
static uint32_t grow(spry_added_tokens *added, uint32_t *list, unsigned char byte)
{
    uint32_t node = find_sibling(added, *list, byte);
    if (!node) {
        node = (uint32_t)++added->n_nodes;
        added->nodes[node] = (struct spry_added_node){.byte = byte, .sibling = *list};
        *list = node;
    }
    return node;
}

static void insert(spry_added_tokens *added, size_t index)
{
    spry_view text = added->tokens[index].text;
    unsigned char first = (unsigned char)text.data[0];
    uint32_t node = grow(added, &added->roots[first], first);
    for (size_t i = 1; i < text.size; i++)
        node = grow(added, &added->nodes[node].child, (unsigned char)text.data[i]);
    added->nodes[node].token = (uint32_t)index + 1; /* the last of equal spellings wins */
    added->starts[1][first] = true;
    if (!added->tokens[index].special)
        added->starts[0][first] = true;
}

spry_status spry_added_tokens_init(spry_added_tokens *added, spry_arena *arena, const spry_added_token *tokens,
                                   size_t count, bool normalized, spry_error *error)
{
    *added = (spry_added_tokens){0};
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        if (tokens[i].text.size > SPRY_ADDED_BYTES_MAX)
            return spry_fail(error, SPRY_ERR_FORMAT, "added token %d has %zu bytes; at most %d are sensible",
                             (int)tokens[i].id, tokens[i].text.size, SPRY_ADDED_BYTES_MAX);
        bytes += tokens[i].text.size;
    }
    added->tokens = spry_arena_alloc(arena, count, sizeof *added->tokens);
    added->nodes = spry_arena_alloc(arena, bytes + 1, sizeof *added->nodes);
    if (!added->tokens || !added->nodes)
        return spry_fail_memory(error, "added tokens", bytes * sizeof *added->nodes);
    for (size_t i = 0; i < count; i++) {
        if (tokens[i].text.size == 0 || tokens[i].normalized != normalized)
            continue;
        added->tokens[added->count++] = tokens[i];
        insert(added, added->count - 1);
    }
    return SPRY_OK;
}

static bool touches_literal(const spry_added_filter *filter, size_t begin, size_t end)
{
    size_t low = 0, high = filter->n_literal; /* the first range that ends after `begin` */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (filter->literal[middle].end > begin)
            high = middle;
        else
            low = middle + 1;
    }
    return low < filter->n_literal && filter->literal[low].begin < end;
}

static bool is_word_at(const spry_unicode *unicode, spry_view text, size_t begin, size_t end)
{
    size_t length;
    if (begin > 0 && spry_unicode_previous(unicode, text.data, begin, &length) & SPRY_CHAR_WORD)
        return false;
    return end == text.size ||
           !(spry_unicode_next(unicode, text.data + end, text.size - end, &length) & SPRY_CHAR_WORD);
}

/* The longest allowed token at `begin`; NULL: none. */
static const spry_added_token *match_at(const spry_added_tokens *added, const spry_unicode *unicode, spry_view text,
                                        size_t begin, const spry_added_filter *filter)
{
    const spry_added_token *best = NULL;
    uint32_t node = added->roots[(unsigned char)text.data[begin]];
    size_t end = begin + 1;
    while (node) {
        if (added->nodes[node].token) {
            const spry_added_token *token = &added->tokens[added->nodes[node].token - 1];
            bool allowed = !token->special || (filter->special && !touches_literal(filter, begin, end));
            if (allowed && (!token->single_word || is_word_at(unicode, text, begin, end)))
                best = token;
        }
        if (end == text.size)
            break;
        node = find_sibling(added, added->nodes[node].child, (unsigned char)text.data[end++]);
    }
    return best;
}

static void take_spaces(const spry_added_token *token, const spry_unicode *unicode, spry_view text, size_t from,
                        spry_added_match *match)
{
    size_t length;
    while (token->lstrip && match->begin > from &&
           spry_unicode_previous(unicode, text.data + from, match->begin - from, &length) & SPRY_CHAR_SPACE)
        match->begin -= length;
    while (token->rstrip && match->end < text.size &&
           spry_unicode_next(unicode, text.data + match->end, text.size - match->end, &length) & SPRY_CHAR_SPACE)
        match->end += length;
}

bool spry_added_tokens_next(const spry_added_tokens *added, const spry_unicode *unicode, spry_view text, size_t from,
                            const spry_added_filter *filter, spry_added_match *match)
{
    if (!added->count)
        return false;
    const bool *starts = added->starts[filter->special];
    for (size_t begin = from; begin < text.size; begin++) {
        if (!starts[(unsigned char)text.data[begin]])
            continue;
        const spry_added_token *token = match_at(added, unicode, text, begin, filter);
        if (!token)
            continue;
        *match = (spry_added_match){begin, begin + token->text.size, token->id};
        take_spaces(token, unicode, text, from, match);
        return true;
    }
    return false;
}
