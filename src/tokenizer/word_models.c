/* Both look up spellings in the vocabulary's map. */
#include "tokenizer/word_models.h"

#include <math.h>

#include "base/utf8.h"

static bool is_text(const spry_vocab *vocab, int32_t id)
{
    return id >= 0 && (vocab->kinds[id] == SPRY_TOKEN_NORMAL || vocab->kinds[id] == SPRY_TOKEN_ADDED);
}

static size_t character_length(spry_view text, size_t at)
{
    uint32_t c;
    size_t length = spry_utf8_decode(&c, text.data + at, text.size - at);
    return length ? length : 1;
}

/* ---- WordPiece --------------------------------------------------------------------------------------------------- */

/* The longest token at `begin` of the word; -1: none. `scratch` begins with the prefix. */
static int32_t longest_token(size_t *end, const spry_vocab *vocab, const spry_wordpiece *rules, spry_buffer *scratch,
                             spry_view word, size_t begin)
{
    size_t before = begin ? rules->prefix.size : 0;
    scratch->size = rules->prefix.size;
    if (!spry_buffer_append(scratch, word.data + begin, word.size - begin))
        return -1;
    const char *text = scratch->data + rules->prefix.size - before;
    for (*end = word.size; *end > begin; (*end)--) {
        if (*end < word.size && ((unsigned char)word.data[*end] & 0xC0) == 0x80)
            continue; /* inside a character */
        int32_t id = spry_vocab_find(vocab, (spry_view){text, before + *end - begin});
        if (is_text(vocab, id))
            return id;
    }
    return -1;
}

bool spry_wordpiece_encode(spry_tokens *out, const spry_vocab *vocab, const spry_wordpiece *rules, spry_buffer *scratch,
                           spry_view word)
{
    size_t start = out->count, characters = 0, end = 0;
    for (size_t i = 0; i < word.size; i += character_length(word, i))
        characters++;
    bool known = characters <= rules->most;
    spry_buffer_clear(scratch);
    spry_buffer_append(scratch, rules->prefix.data, rules->prefix.size);
    for (size_t begin = 0; known && begin < word.size; begin = end) {
        int32_t id = longest_token(&end, vocab, rules, scratch, word, begin);
        known = id >= 0;
        if (known && !spry_tokens_push(out, id))
            return false;
    }
    if (scratch->failed)
        return false;
    if (!known)
        out->count = start;
    return known || rules->unknown < 0 || spry_tokens_push(out, rules->unknown);
}

/* ---- Unigram ----------------------------------------------------------------------------------------------------- */

enum { UNKNOWN_PENALTY = 10, TOKEN_BYTES_MAX = 1024 };

spry_unigram spry_unigram_of(const spry_vocab *vocab)
{
    float lowest = INFINITY;
    spry_unigram rules = {0};
    for (size_t id = 0; id < vocab->size; id++) {
        if (vocab->kinds[id] == SPRY_TOKEN_UNUSED)
            continue;
        lowest = vocab->scores[id] < lowest ? vocab->scores[id] : lowest;
        if (is_text(vocab, (int32_t)id) && vocab->names[id].size > rules.longest)
            rules.longest = vocab->names[id].size;
    }
    rules.longest = rules.longest < TOKEN_BYTES_MAX ? rules.longest : TOKEN_BYTES_MAX;
    rules.unknown_score = (isfinite(lowest) ? lowest : 0) - UNKNOWN_PENALTY;
    return rules;
}

/* The best way to the end of a prefix. */
typedef struct node {
    double score;
    size_t begin; /* of its last token */
    int32_t id;   /* -1: an unknown character */
    bool reached;
} node;

static void improve(node *to, double score, size_t begin, int32_t id)
{
    if (!to->reached || score > to->score)
        *to = (node){score, begin, id, true};
}

static void reach(node *nodes, const spry_vocab *vocab, const spry_unigram *rules, spry_view text, size_t at)
{
    size_t first = character_length(text, at), most = text.size - at;
    bool whole = false; /* the first character is a token */
    most = most < rules->longest ? most : rules->longest;
    for (size_t length = first; length <= most; length++) {
        if (at + length < text.size && ((unsigned char)text.data[at + length] & 0xC0) == 0x80)
            continue;
        int32_t id = spry_vocab_find(vocab, (spry_view){text.data + at, length});
        if (!is_text(vocab, id))
            continue;
        improve(&nodes[at + length], nodes[at].score + (double)vocab->scores[id], at, id);
        whole = whole || length == first;
    }
    if (!whole)
        improve(&nodes[at + first], nodes[at].score + (double)rules->unknown_score, at, -1);
}

/* Unknown characters: their bytes, or one unknown token for a run of them. */
static bool push_unknown(spry_tokens *out, const spry_symbols *symbols, spry_view character, bool run)
{
    bool bytes = true;
    for (size_t i = 0; i < character.size; i++)
        bytes = bytes && symbols->bytes[(unsigned char)character.data[i]] >= 0;
    if (!bytes)
        return run || symbols->unknown < 0 || spry_tokens_push(out, symbols->unknown);
    for (size_t i = 0; i < character.size; i++)
        if (!spry_tokens_push(out, symbols->bytes[(unsigned char)character.data[i]]))
            return false;
    return true;
}

/* Follows the best path back, leaving in each node's `begin` where the next token begins, and appends it. */
static bool emit(spry_tokens *out, node *nodes, const spry_symbols *symbols, spry_view text)
{
    bool run = false;
    for (size_t at = text.size, next = 0; at; at = next) { /* turn the links around */
        next = nodes[at].begin;
        nodes[next].score = (double)at;
        nodes[next].reached = true;
    }
    for (size_t at = 0, end; at < text.size; at = end) {
        end = (size_t)nodes[at].score;
        int32_t id = nodes[end].id;
        if (id >= 0 ? !spry_tokens_push(out, id)
                    : !push_unknown(out, symbols, (spry_view){text.data + at, end - at}, run))
            return false;
        run = id < 0;
    }
    return true;
}

bool spry_unigram_encode(spry_tokens *out, const spry_vocab *vocab, const spry_unigram *rules,
                         const spry_symbols *symbols, spry_buffer *scratch, spry_view text)
{
    const node none = {.id = -1};
    spry_buffer_clear(scratch);
    for (size_t i = 0; i <= text.size; i++)
        if (!spry_buffer_append(scratch, &none, sizeof none))
            return false;
    node *nodes = (node *)(void *)scratch->data;
    for (size_t at = 0; at < text.size; at++)
        if (!at || nodes[at].reached)
            reach(nodes, vocab, rules, text, at);
    return emit(out, nodes, symbols, text);
}
