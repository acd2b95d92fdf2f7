/* From words to ids: the vocabulary, the symbols that merging starts with, and the tokenizers without a list of
 * merges. */
#include "tokenizer/symbols.h"

#include <math.h>
#include <stdlib.h>

#include "base/interrupt.h"
#include "base/utf8.h"

/* ---- the vocabulary ---------------------------------------------------------------------------------------------- */

/* Spellings are stored in one block, because a vocabulary has about 10^5 of them. */

enum { HOLES_ALLOWED = 1 << 16, POLL_SYMBOLS = 1024 };

spry_status spry_vocab_init(spry_vocab *vocab, spry_arena *arena, size_t size, size_t named, size_t text_size,
                            spry_error *error)
{
    *vocab = (spry_vocab){.size = size, .text_size = text_size};
    spry_map_init(&vocab->by_name);
    if (size == 0)
        return spry_fail(error, SPRY_ERR_FORMAT, "the vocabulary is empty");
    if (size > SPRY_VOCAB_MAX || size > 4 * named + HOLES_ALLOWED)
        return spry_fail(error, SPRY_ERR_FORMAT, "the vocabulary has an id of %zu but only %zu entries", size - 1,
                         named);
    vocab->names = spry_arena_alloc(arena, size, sizeof *vocab->names);
    vocab->kinds = spry_arena_alloc(arena, size, sizeof *vocab->kinds);
    vocab->scores = spry_arena_alloc(arena, size, sizeof *vocab->scores);
    vocab->text = spry_arena_alloc(arena, text_size ? text_size : 1, 1);
    if (!vocab->names || !vocab->kinds || !vocab->scores || !vocab->text)
        return spry_fail_memory(error, "a vocabulary", size * sizeof *vocab->names + text_size);
    for (size_t i = 0; i < size; i++) {
        vocab->names[i] = SPRY_VIEW("");
        vocab->kinds[i] = SPRY_TOKEN_UNUSED;
    }
    return SPRY_OK;
}

void spry_vocab_deinit(spry_vocab *vocab)
{
    spry_map_deinit(&vocab->by_name);
}

bool spry_vocab_set(spry_vocab *vocab, size_t id, spry_view name, spry_token_kind kind)
{
    if (id >= vocab->size || name.size > vocab->text_size - vocab->text_used)
        return false;
    spry_view kept = {vocab->text + vocab->text_used, name.size};
    if (name.size)
        memcpy(vocab->text + vocab->text_used, name.data, name.size);
    vocab->text_used += name.size;
    vocab->names[id] = kept;
    vocab->kinds[id] = (unsigned char)kind;
    return spry_map_add(&vocab->by_name, kept, (uint32_t)id, NULL);
}

int32_t spry_vocab_find(const spry_vocab *vocab, spry_view name)
{
    uint32_t id;
    return spry_map_find(&vocab->by_name, name, &id) ? (int32_t)id : -1;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool spry_vocab_byte(spry_view name, unsigned char *byte)
{
    if (name.size != 6 || memcmp(name.data, "<0x", 3) != 0 || name.data[5] != '>')
        return false;
    int high = hex_digit(name.data[3]), low = hex_digit(name.data[4]);
    if (high < 0 || low < 0)
        return false;
    *byte = (unsigned char)(high << 4 | low);
    return true;
}

/* ---- symbols ----------------------------------------------------------------------------------------------------- */

/* Invariant: a symbol below `first_extra` is a vocabulary id; the others are indices into `extra`, plus first_extra. */

/* The byte-level alphabet maps the bytes 00-20 to U+0100, 7F-A0 to U+0121 and AD to U+0143; the others are
 * unchanged. */
size_t spry_byte_spelling(char out[4], unsigned char byte)
{
    uint32_t character = byte;
    if (byte <= 0x20)
        character = 0x100u + byte;
    else if (byte >= 0x7F && byte <= 0xA0)
        character = 0x121u + byte - 0x7F;
    else if (byte == 0xAD)
        character = 0x143;
    return spry_utf8_encode(out, character);
}

/* The byte that a character of the byte-level alphabet means; -1: it is not in the alphabet. */
static int character_byte(uint32_t c)
{
    if (c <= 0x20 || (c >= 0x7F && c <= 0xA0) || c == 0xAD || c > 0x143)
        return -1;
    if (c < 0x100)
        return (int)c;
    if (c <= 0x120)
        return (int)(c - 0x100);
    return c == 0x143 ? 0xAD : (int)(c - 0x121 + 0x7F);
}

bool spry_byte_decode(spry_buffer *out, spry_view name)
{
    size_t start = out->size, length;
    for (size_t i = 0; i < name.size; i += length) {
        uint32_t character = 0;
        length = spry_utf8_decode(&character, name.data + i, name.size - i);
        int byte = length ? character_byte(character) : -1;
        if (byte < 0) {
            out->size = start;
            return false;
        }
        char one = (char)byte;
        if (!spry_buffer_append(out, &one, 1))
            return false;
    }
    return true;
}

static void find_bytes(spry_symbols *symbols, const spry_vocab *vocab)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char spelling[4];
        size_t length = spry_byte_spelling(spelling, (unsigned char)byte);
        int32_t id = spry_vocab_find(vocab, (spry_view){spelling, length});
        symbols->bytes[byte] = id >= 0 && vocab->kinds[id] == SPRY_TOKEN_NORMAL ? id : -1;
    }
}

static void find_fallback_bytes(spry_symbols *symbols, const spry_vocab *vocab)
{
    for (size_t id = 0; id < vocab->size; id++) {
        unsigned char byte;
        if (vocab->kinds[id] == SPRY_TOKEN_BYTE && spry_vocab_byte(vocab->names[id], &byte) && symbols->bytes[byte] < 0)
            symbols->bytes[byte] = (int32_t)id;
    }
}

/* Length of the character at `at`; 1 for invalid UTF-8. */
static size_t character_length(spry_view text, size_t at)
{
    uint32_t character;
    size_t length = spry_utf8_decode(&character, text.data + at, text.size - at);
    return length ? length : 1;
}

/* Records, for each character in a token's spelling, whether a space mark follows it. */
static void record_joins(spry_symbols *symbols, spry_view name)
{
    static const spry_view mark = {SPRY_SPACE_MARK, 3};
    for (size_t i = 1; i + mark.size <= name.size; i++) {
        unsigned char before = (unsigned char)name.data[i - 1];
        if (memcmp(name.data + i, mark.data, mark.size) != 0 || spry_view_ends((spry_view){name.data, i}, mark))
            continue;
        if (before < 0x80)
            symbols->joins_space[before] = true;
        else
            symbols->joins_space_other = true;
    }
}

/* Adds every character that is a token. */
static bool enter_single_characters(spry_symbols *symbols, const spry_vocab *vocab)
{
    for (size_t id = 0; id < vocab->size; id++) {
        spry_view name = vocab->names[id];
        bool usable = vocab->kinds[id] == SPRY_TOKEN_NORMAL || vocab->kinds[id] == SPRY_TOKEN_ADDED;
        if (usable && name.size && character_length(name, 0) == name.size &&
            !spry_map_add(&symbols->characters, name, (uint32_t)id, NULL))
            return false;
    }
    return true;
}

/* Adds the characters that occur only inside longer tokens. */
static bool enter_inner_characters(spry_symbols *symbols, const spry_vocab *vocab)
{
    for (size_t id = 0; id < vocab->size; id++) {
        spry_view name = vocab->names[id];
        if (vocab->kinds[id] != SPRY_TOKEN_NORMAL)
            continue;
        for (size_t i = 0, length; i < name.size; i += length) {
            length = character_length(name, i);
            spry_view character = {name.data + i, length};
            bool added = false;
            uint32_t symbol = (uint32_t)(vocab->size + symbols->n_extra);
            if (!spry_map_add(&symbols->characters, character, symbol, &added))
                return false;
            symbols->n_extra += added;
        }
        record_joins(symbols, name);
    }
    return true;
}

/* Lists the spellings of the extra symbols. */
static bool list_extra(spry_symbols *symbols, spry_arena *arena, const spry_vocab *vocab)
{
    symbols->extra = spry_arena_alloc(arena, symbols->n_extra, sizeof *symbols->extra);
    if (!symbols->extra)
        return false;
    for (size_t id = 0; id < vocab->size && symbols->n_extra; id++) {
        spry_view name = vocab->names[id];
        for (size_t i = 0, length; i < name.size && vocab->kinds[id] == SPRY_TOKEN_NORMAL; i += length) {
            length = character_length(name, i);
            spry_view character = {name.data + i, length};
            int32_t symbol = spry_symbols_find(symbols, character);
            if (symbol >= symbols->first_extra)
                symbols->extra[symbol - symbols->first_extra] = character;
        }
    }
    return true;
}

spry_status spry_symbols_init(spry_symbols *symbols, spry_arena *arena, const spry_vocab *vocab, bool by_byte,
                              bool byte_fallback, spry_error *error)
{
    *symbols = (spry_symbols){.by_byte = by_byte, .unknown = -1, .first_extra = (int32_t)vocab->size};
    spry_map_init(&symbols->characters);
    memset(symbols->bytes, 0xFF, sizeof symbols->bytes);
    if (by_byte) {
        find_bytes(symbols, vocab);
        return SPRY_OK;
    }
    if (byte_fallback)
        find_fallback_bytes(symbols, vocab);
    if (!enter_single_characters(symbols, vocab) || !enter_inner_characters(symbols, vocab) ||
        !list_extra(symbols, arena, vocab))
        return spry_fail_memory(error, "a vocabulary's characters", vocab->size);
    return SPRY_OK;
}

void spry_symbols_deinit(spry_symbols *symbols)
{
    spry_map_deinit(&symbols->characters);
}

int32_t spry_symbols_find(const spry_symbols *symbols, spry_view character)
{
    uint32_t symbol;
    return spry_map_find(&symbols->characters, character, &symbol) ? (int32_t)symbol : -1;
}

/* Replaces text without a symbol: by its bytes if each byte has a token, otherwise by the unknown token, otherwise by
 * nothing. Writes to `out` (at least 4 ids); returns their number. */
static size_t fall_back(const spry_symbols *symbols, int32_t out[4], spry_view text)
{
    size_t count = 0;
    while (count < text.size && count < 4 && symbols->bytes[(unsigned char)text.data[count]] >= 0) {
        out[count] = symbols->bytes[(unsigned char)text.data[count]];
        count++;
    }
    if (count == text.size)
        return count;
    out[0] = symbols->unknown;
    return symbols->unknown >= 0;
}

static bool push_fallback(const spry_symbols *symbols, spry_merge_scratch *scratch, spry_view text)
{
    int32_t found[4];
    size_t count = fall_back(symbols, found, text);
    for (size_t i = 0; i < count; i++)
        if (!spry_merge_push(scratch, found[i]))
            return false;
    return true;
}

/* Pushes a character. An invalid UTF-8 byte without a token is treated as U+FFFD. */
static bool push_character(const spry_symbols *symbols, spry_merge_scratch *scratch, spry_view character)
{
    uint32_t decoded;
    bool valid = spry_utf8_decode(&decoded, character.data, character.size) != 0;
    if (!valid && symbols->bytes[(unsigned char)character.data[0]] < 0)
        character = SPRY_VIEW("\xEF\xBF\xBD");
    else if (!valid)
        return push_fallback(symbols, scratch, character);
    int32_t symbol = spry_symbols_find(symbols, character);
    return symbol >= 0 ? spry_merge_push(scratch, symbol) : push_fallback(symbols, scratch, character);
}

bool spry_symbols_push(const spry_symbols *symbols, spry_merge_scratch *scratch, spry_view word)
{
    size_t length;
    for (size_t i = 0; i < word.size; i += length) {
        length = symbols->by_byte ? 1 : character_length(word, i);
        spry_view part = {word.data + i, length};
        bool ok = symbols->by_byte ? push_fallback(symbols, scratch, part) : push_character(symbols, scratch, part);
        if (!ok || (scratch->count % POLL_SYMBOLS == 0 && spry_interrupted(POLL_SYMBOLS)))
            return false;
    }
    return true;
}

bool spry_symbols_emit(const spry_symbols *symbols, spry_tokens *out, const int32_t *merged, size_t count)
{
    size_t start = out->count;
    for (size_t i = 0; i < count; i++) {
        int32_t ids[4] = {merged[i]};
        size_t n = 1;
        if (merged[i] >= symbols->first_extra)
            n = fall_back(symbols, ids, symbols->extra[merged[i] - symbols->first_extra]);
        bool run = out->count > start && out->ids[out->count - 1] == symbols->unknown;
        for (size_t k = 0; k < n; k++) {
            if (symbols->fuse_unknown && run && ids[k] == symbols->unknown)
                continue;
            if (!spry_tokens_push(out, ids[k]))
                return false;
        }
    }
    return true;
}

size_t spry_symbols_word_end(const spry_symbols *symbols, spry_view text, size_t begin)
{
    static const char mark[] = SPRY_SPACE_MARK;
    if (symbols->by_byte)
        return text.size;
    bool after_mark = true; /* nothing precedes the first character, so it needs no split */
    size_t i = begin;
    while (i < text.size) {
        if (text.data[i] == mark[0] && text.size - i >= 3 && memcmp(text.data + i, mark, 3) == 0) {
            unsigned char before = i > begin ? (unsigned char)text.data[i - 1] : 0;
            if (!after_mark && !(before < 0x80 ? symbols->joins_space[before] : symbols->joins_space_other))
                return i;
            after_mark = true;
            i += 3;
        } else {
            after_mark = false;
            i++;
        }
    }
    return i;
}

/* ---- merges of SentencePiece ------------------------------------------------------------------------------------- */

/* All splits of tokens are listed first, because the table needs to know the number of merges. */

enum { TOKEN_BYTES_MAX = 1024 }; /* each split is looked up, so the cost is quadratic in a token's length */

typedef struct scored_token {
    float score;
    uint32_t id;
} scored_token;

static int by_score(const void *a, const void *b)
{
    float x = ((const scored_token *)a)->score, y = ((const scored_token *)b)->score;
    return (x < y) - (x > y); /* highest first */
}

/* ranks[id]: the number of distinct higher scores. */
static bool rank_tokens(uint32_t *ranks, const spry_vocab *vocab)
{
    scored_token *tokens = malloc(vocab->size * sizeof *tokens);
    if (!tokens)
        return false;
    for (size_t i = 0; i < vocab->size; i++)
        tokens[i] = (scored_token){vocab->scores[i], (uint32_t)i};
    qsort(tokens, vocab->size, sizeof *tokens, by_score);
    uint32_t rank = 0;
    for (size_t i = 0; i < vocab->size; i++) {
        rank += i > 0 && tokens[i].score < tokens[i - 1].score;
        ranks[tokens[i].id] = rank;
    }
    free(tokens);
    return true;
}

/* The symbol of a part of a token; -1: it has none. */
static int32_t symbol_of(const spry_vocab *vocab, const spry_symbols *symbols, spry_view part)
{
    uint32_t character;
    if (spry_utf8_decode(&character, part.data, part.size) == part.size)
        return spry_symbols_find(symbols, part);
    int32_t id = spry_vocab_find(vocab, part);
    return id >= 0 && vocab->kinds[id] == SPRY_TOKEN_NORMAL ? id : -1;
}

/* Appends the merges that produce one token. */
static bool list_splits(spry_buffer *out, const spry_vocab *vocab, const spry_symbols *symbols, size_t id,
                        uint32_t rank)
{
    spry_view name = vocab->names[id];
    for (size_t i = 1; i < name.size; i++) {
        if (((unsigned char)name.data[i] & 0xC0) == 0x80)
            continue; /* this is inside a character */
        spry_merge merge = {.rank = rank, .merged = (int32_t)id};
        merge.left = symbol_of(vocab, symbols, (spry_view){name.data, i});
        if (merge.left < 0)
            continue;
        merge.right = symbol_of(vocab, symbols, (spry_view){name.data + i, name.size - i});
        if (merge.right >= 0 && !spry_buffer_append(out, &merge, sizeof merge))
            return false;
    }
    return true;
}

static spry_status list_merges(spry_buffer *out, const spry_vocab *vocab, const spry_symbols *symbols,
                               const uint32_t *ranks, spry_error *error)
{
    for (size_t id = 0; id < vocab->size; id++) {
        if (vocab->kinds[id] != SPRY_TOKEN_NORMAL)
            continue;
        if (vocab->names[id].size > TOKEN_BYTES_MAX)
            return spry_fail(error, SPRY_ERR_FORMAT, "token %zu has %zu bytes; at most %d are sensible", id,
                             vocab->names[id].size, TOKEN_BYTES_MAX);
        if (!list_splits(out, vocab, symbols, id, ranks[id]))
            return spry_fail_memory(error, "merges", out->size);
    }
    return SPRY_OK;
}

spry_status spry_spm_merges(spry_merges *merges, spry_arena *arena, const spry_vocab *vocab,
                            const spry_symbols *symbols, spry_error *error)
{
    spry_buffer list;
    spry_buffer_init(&list, SIZE_MAX / 2);
    spry_status status = SPRY_OK;
    uint32_t *ranks = malloc(vocab->size * sizeof *ranks);
    if (!ranks || !rank_tokens(ranks, vocab))
        status = spry_fail_memory(error, "scores", vocab->size * sizeof *ranks);
    if (!status)
        status = list_merges(&list, vocab, symbols, ranks, error);
    size_t count = list.size / sizeof(spry_merge);
    if (!status && !spry_merges_init(merges, arena, count))
        status = spry_fail_memory(error, "merges", list.size);
    for (size_t i = 0; i < count && !status; i++) {
        spry_merge merge;
        memcpy(&merge, list.data + i * sizeof merge, sizeof merge);
        spry_merges_add(merges, merge);
    }
    spry_buffer_deinit(&list);
    free(ranks);
    return status;
}

/* ---- WordPiece and Unigram --------------------------------------------------------------------------------------- */

/* Both algorithms look up spellings in the vocabulary's map. */

static bool is_text(const spry_vocab *vocab, int32_t id)
{
    return id >= 0 && (vocab->kinds[id] == SPRY_TOKEN_NORMAL || vocab->kinds[id] == SPRY_TOKEN_ADDED);
}

/* ---- WordPiece --------------------------------------------------------------------------------------------------- */

/* The longest token with which the word continues at `begin`; -1: none. `scratch` begins with the prefix. */
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
            continue; /* this is inside a character */
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

enum { UNKNOWN_PENALTY = 10 };

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

/* The best tokens for the text up to a position. */
typedef struct node {
    double score;
    size_t begin; /* begin of the last token */
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

/* Appends an unknown character: its bytes, or the unknown token, once for a run of unknown characters. */
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

/* Appends the tokens of the best path. First the path is followed back from the end, and each node's `begin` is set to
 * the begin of the next token. */
static bool emit(spry_tokens *out, node *nodes, const spry_symbols *symbols, spry_view text)
{
    bool run = false;
    for (size_t at = text.size, next = 0; at; at = next) { /* reverses the links */
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
    for (size_t at = 0; at < text.size; at++) {
        if (!at || nodes[at].reached)
            reach(nodes, vocab, rules, text, at);
        if (spry_interrupted(1))
            return false;
    }
    return emit(out, nodes, symbols, text);
}
