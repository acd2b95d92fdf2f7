/* Converts text to ids, and ids to text. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/view.h"
#include "tokenizer/tokenizer_impl.h"

/* ---- words of the current text ----------------------------------------------------------------------------------- */

/* Words of the current text with their ids. Most words are short and repeated; a lookup here is cheaper than in the
 * vocabulary. Direct-mapped: a new word replaces an older one. Bytes are compared as little-endian numbers. */

enum { SPRY_CACHED_BYTES = 16, SPRY_CACHED_IDS = 3 };

typedef struct spry_cached_word {
    uint64_t low, high; /* the bytes, padded with zeros */
    uint8_t size, count;
    int32_t ids[SPRY_CACHED_IDS];
} spry_cached_word;

typedef struct spry_word_cache {
    spry_cached_word *slots; /* NULL: no caching */
    unsigned shift;          /* 64 - log2 of the number of slots */
} spry_word_cache;

/* A cache for a text of this size; none for short texts or when memory is short. */
static inline void spry_word_cache_init(spry_word_cache *cache, size_t text_size)
{
    *cache = (spry_word_cache){0};
    if (text_size < 256)
        return;
    unsigned bits = 7;
    while (bits < 13 && (size_t)1 << (bits + 3) < text_size)
        bits++;
    cache->slots = calloc((size_t)1 << bits, sizeof *cache->slots);
    cache->shift = 64 - bits;
}

static inline void spry_word_cache_deinit(spry_word_cache *cache)
{
    free(cache->slots);
}

/* The slot for a word of 1 to SPRY_CACHED_BYTES bytes; *key is the slot's contents if it holds the word. `limit` is the
 * end of readable memory. */
static inline spry_cached_word *spry_word_cache_slot(const spry_word_cache *cache, spry_view word, const char *limit,
                                                     spry_cached_word *key)
{
    unsigned char bytes[SPRY_CACHED_BYTES] = {0};
    const char *from = word.data;
    if ((size_t)(limit - word.data) < SPRY_CACHED_BYTES) {
        memcpy(bytes, word.data, word.size);
        from = (const char *)bytes;
    }
    memcpy(&key->low, from, 8);
    memcpy(&key->high, from + 8, 8);
    if (word.size < 8) {
        key->low &= ((uint64_t)1 << (8 * word.size)) - 1;
        key->high = 0;
    } else if (word.size < 16) {
        key->high &= ((uint64_t)1 << (8 * (word.size - 8))) - 1;
    }
    key->size = (uint8_t)word.size;
    uint64_t hash = (key->low ^ (key->high << 7 | key->high >> 57)) * 0x9E3779B97F4A7C15u;
    hash = (hash ^ hash >> 29) * 0xD6E8FEB86659FD93u;
    return &cache->slots[hash >> cache->shift];
}

static inline bool spry_cached_word_is(const spry_cached_word *slot, const spry_cached_word *key)
{
    return slot->low == key->low && slot->high == key->high && slot->size == key->size;
}

/* ---- tokens matched literally ------------------------------------------------------------------------------------ */

/* Tokens that are matched literally are in a trie. From every byte that may start one, the trie is followed along the
 * text. */

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
    added->nodes[node].token = (uint32_t)index + 1; /* the last of several tokens with the same spelling is used */
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

/* The first match at or after `from`; whitespace before `from` is never part of a match. */
static bool added_tokens_next(const spry_added_tokens *added, const spry_unicode *unicode, spry_view text, size_t from,
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

/* ---- encoding ---------------------------------------------------------------------------------------------------- */

/* Text to ids: the stages described in tokenizer_impl.h, the innermost stage first.
 *
 * Two caches avoid merging for most words: the words of the current text, and `whole`, which stores for each token
 * whether merging its text gives that token. Every thread computes the same value, so relaxed atomics suffice. */

enum { WHOLE_UNKNOWN, WHOLE_YES, WHOLE_NO, POLL_BYTES = 4096 };

/* The state of one call. */
typedef struct encoder {
    const spry_tokenizer *tokenizer;
    spry_tokens *out;
    const char *limit; /* end of the current text */
    spry_word_cache cache;
    spry_merge_scratch merge;
    spry_split_scratch split;
    spry_buffer normalized[2], prepared[2], pieces;
    spry_added_filter filter;
    size_t unpolled; /* bytes encoded since the last look at base/interrupt.h */
    spry_error *error;
} encoder;

/* Why encoding a part of a text returned false. */
static spry_status not_encoded(const encoder *state, size_t size)
{
    if (spry_interrupted(0))
        return spry_fail(state->error, SPRY_ERR_CANCELLED, "interrupted while tokenising");
    return spry_fail_memory(state->error, "tokens", size);
}

static bool merge_word(encoder *state, spry_view word)
{
    state->merge.count = 0;
    return spry_symbols_push(&state->tokenizer->symbols, &state->merge, word) &&
           spry_merge_word(&state->tokenizer->merges, &state->merge);
}

/* The id of the token with this spelling; -1: there is none. Control and added tokens are excluded. */
static int32_t find_word(const spry_tokenizer *tokenizer, spry_view word)
{
    uint32_t id;
    if (tokenizer->by_byte)
        return spry_map_find(&tokenizer->words, word, &id) ? (int32_t)id : -1;
    if (!spry_map_find(&tokenizer->vocab.by_name, word, &id))
        return -1;
    return tokenizer->vocab.kinds[id] == SPRY_TOKEN_NORMAL ? (int32_t)id : -1;
}

static bool encode_uncached(encoder *state, spry_view word)
{
    const spry_tokenizer *tokenizer = state->tokenizer;
    if (tokenizer->model == SPRY_WORDS_WORDPIECE)
        return spry_wordpiece_encode(state->out, &tokenizer->vocab, &tokenizer->wordpiece, &state->pieces, word);
    if (tokenizer->model == SPRY_WORDS_UNIGRAM)
        return spry_unigram_encode(state->out, &tokenizer->vocab, &tokenizer->unigram, &tokenizer->symbols,
                                   &state->pieces, word);
    int32_t id = find_word(tokenizer, word);
    int whole = WHOLE_NO;
    if (id >= 0)
        whole =
            tokenizer->ignore_merges ? WHOLE_YES : atomic_load_explicit(&tokenizer->whole[id], memory_order_relaxed);
    if (whole == WHOLE_YES)
        return spry_tokens_push(state->out, id);
    if (!merge_word(state, word))
        return false;
    if (whole == WHOLE_UNKNOWN) {
        bool same = state->merge.count == 1 && state->merge.symbols[0] == id;
        atomic_store_explicit(&tokenizer->whole[id], same ? WHOLE_YES : WHOLE_NO, memory_order_relaxed);
    }
    return spry_symbols_emit(&tokenizer->symbols, state->out, state->merge.symbols, state->merge.count);
}

static bool encode_word(encoder *state, spry_view word)
{
    state->unpolled += word.size;
    if (state->unpolled > POLL_BYTES) {
        if (spry_interrupted(state->unpolled))
            return false;
        state->unpolled = 0;
    }
    if (!state->cache.slots || word.size > SPRY_CACHED_BYTES)
        return encode_uncached(state, word);
    spry_cached_word key;
    spry_cached_word *slot = spry_word_cache_slot(&state->cache, word, state->limit, &key);
    spry_tokens *out = state->out;
    if (spry_cached_word_is(slot, &key) && out->capacity - out->count >= SPRY_CACHED_IDS) {
        memcpy(out->ids + out->count, slot->ids, sizeof slot->ids);
        out->count += slot->count;
        return true;
    }
    size_t before = out->count;
    if (!encode_uncached(state, word))
        return false;
    if (out->count - before <= SPRY_CACHED_IDS) {
        key.count = (uint8_t)(out->count - before);
        memset(key.ids, 0, sizeof key.ids);
        if (key.count)
            memcpy(key.ids, out->ids + before, key.count * sizeof *key.ids);
        *slot = key;
    }
    return true;
}

static bool encode_piece(encoder *state, spry_view piece)
{
    size_t end;
    for (size_t at = 0; at < piece.size; at = end) {
        end = state->tokenizer->model == SPRY_WORDS_WORDPIECE
                  ? piece.size
                  : spry_symbols_word_end(&state->tokenizer->symbols, piece, at);
        if (!encode_word(state, (spry_view){piece.data + at, end - at}))
            return false;
    }
    return true;
}

/* Encodes text with a single scanner, which needs no list of pieces. */
static bool encode_scanned(encoder *state, const spry_scan *scan, spry_view text)
{
    size_t end;
    for (size_t at = 0; at < text.size; at = end) {
        end = spry_scan_next(scan, &state->tokenizer->unicode, text, at);
        if (!encode_word(state, (spry_view){text.data + at, end - at}))
            return false;
    }
    return true;
}

static spry_status encode_split(encoder *state, spry_view text)
{
    const spry_text_range *pieces;
    size_t count;
    spry_status status = spry_splitter_run(&state->tokenizer->splitter, &state->split, &state->tokenizer->unicode, text,
                                           &pieces, &count, state->error);
    if (status)
        return status;
    for (size_t i = 0; i < count; i++)
        if (!encode_piece(state, (spry_view){text.data + pieces[i].begin, pieces[i].end - pieces[i].begin}))
            return not_encoded(state, text.size);
    return SPRY_OK;
}

/* Encodes text that contains no added tokens. */
static spry_status encode_plain(encoder *state, spry_view text, bool first)
{
    const spry_tokenizer *tokenizer = state->tokenizer;
    const spry_splitter *splitter = &tokenizer->splitter;
    if (!spry_changes_apply(&text, &tokenizer->prepare, &tokenizer->unicode, state->prepared, text, first))
        return spry_fail_memory(state->error, "a text", text.size);
    state->limit = text.data + text.size;
    bool ok;
    if (splitter->count == 1 && splitter->steps[0].scanned && tokenizer->by_byte)
        ok = encode_scanned(state, &splitter->steps[0].scan, text);
    else if (splitter->count == 0)
        ok = encode_piece(state, text);
    else
        return encode_split(state, text);
    return ok ? SPRY_OK : not_encoded(state, text.size);
}

typedef spry_status (*part_encoder)(encoder *state, spry_view text, bool first);

/* Splits `text` at the tokens of `added` and passes the parts between them to `encode_part`. */
static spry_status encode_between(encoder *state, const spry_added_tokens *added, spry_view text, bool first,
                                  part_encoder encode_part)
{
    size_t done = 0;
    spry_added_match match;
    spry_status status = SPRY_OK;
    while (!status && added_tokens_next(added, &state->tokenizer->unicode, text, done, &state->filter, &match)) {
        if (match.begin > done)
            status = encode_part(state, (spry_view){text.data + done, match.begin - done}, first && done == 0);
        if (!status && !spry_tokens_push(state->out, match.id))
            status = spry_fail_memory(state->error, "tokens", text.size);
        done = match.end;
    }
    if (!status && done < text.size)
        status = encode_part(state, (spry_view){text.data + done, text.size - done}, first && done == 0);
    return status;
}

static spry_status encode_segment(encoder *state, spry_view text, bool first)
{
    const spry_tokenizer *tokenizer = state->tokenizer;
    if (!spry_changes_apply(&text, &tokenizer->normalizer, &tokenizer->unicode, state->normalized, text, first))
        return spry_fail_memory(state->error, "a text", text.size);
    return encode_between(state, &tokenizer->normalized, text, first, encode_plain);
}

static spry_status push_frame(encoder *state, const spry_frame *frame)
{
    for (size_t i = 0; i < frame->count; i++)
        if (!spry_tokens_push(state->out, frame->ids[i]))
            return spry_fail_memory(state->error, "tokens", frame->count);
    return SPRY_OK;
}

static void encoder_init(encoder *state, const spry_tokenizer *tokenizer, spry_tokens *out, size_t text_size)
{
    *state = (encoder){.tokenizer = tokenizer, .out = out};
    spry_word_cache_init(&state->cache, text_size);
    spry_buffer_init(&state->pieces, SIZE_MAX / 2);
    for (size_t i = 0; i < 2; i++) {
        spry_buffer_init(&state->normalized[i], (size_t)SPRY_TOKENIZER_TEXT_MAX * 4);
        spry_buffer_init(&state->prepared[i], (size_t)SPRY_TOKENIZER_TEXT_MAX * 4);
    }
}

static void encoder_deinit(encoder *state)
{
    spry_word_cache_deinit(&state->cache);
    spry_merge_scratch_deinit(&state->merge);
    spry_split_scratch_deinit(&state->split);
    spry_buffer_deinit(&state->pieces);
    for (size_t i = 0; i < 2; i++) {
        spry_buffer_deinit(&state->normalized[i]);
        spry_buffer_deinit(&state->prepared[i]);
    }
}

spry_status spry_tokenizer_encode(const spry_tokenizer *tokenizer, spry_tokens *out, spry_view text,
                                  const spry_text_range *literal, size_t n_literal, unsigned flags, spry_error *error)
{
    if (text.size > SPRY_TOKENIZER_TEXT_MAX)
        return spry_fail(error, SPRY_ERR_INPUT, "a text of %zu bytes: at most %d can be tokenised at once", text.size,
                         SPRY_TOKENIZER_TEXT_MAX);
    encoder state;
    encoder_init(&state, tokenizer, out, text.size);
    state.filter = (spry_added_filter){(flags & SPRY_ENCODE_SPECIAL) != 0, literal, n_literal};
    state.error = error;
    spry_status status = flags & SPRY_ENCODE_BOS_EOS ? push_frame(&state, &tokenizer->before) : SPRY_OK;
    if (!status && text.size)
        status = encode_between(&state, &tokenizer->raw, text, true, encode_segment);
    if (!status && flags & SPRY_ENCODE_BOS_EOS)
        status = push_frame(&state, &tokenizer->after);
    encoder_deinit(&state);
    return status;
}

/* ---- decoding ---------------------------------------------------------------------------------------------------- */

/* Ids to text. The text of an id does not depend on its neighbours, except that the first token may lose the space that
 * the encoder had added. */

/* The text of an id; *skipped: the id has no text in the output. */
static spry_status token_bytes(const spry_tokenizer *tokenizer, int32_t id, bool special, spry_view *bytes,
                               bool *skipped, spry_error *error)
{
    *bytes = SPRY_VIEW("");
    *skipped = true;
    if (id < 0 || (size_t)id >= tokenizer->vocab.size)
        return spry_fail(error, SPRY_ERR_INPUT, "token id %d is not in the vocabulary of %zu", (int)id,
                         tokenizer->vocab.size);
    spry_token_kind kind = (spry_token_kind)tokenizer->vocab.kinds[id];
    *skipped = kind == SPRY_TOKEN_UNUSED || (!special && (kind == SPRY_TOKEN_CONTROL || kind == SPRY_TOKEN_UNKNOWN));
    *bytes = tokenizer->bytes[id];
    return SPRY_OK;
}

/* Takes the next run of bytes to output from the first token, without the spaces to be stripped; empty at the token's
 * end. */
static spry_view take_first(const spry_tokenizer *tokenizer, spry_view *rest)
{
    bool every = tokenizer->lead == SPRY_LEAD_STRIP_ALL, strip = tokenizer->lead != SPRY_LEAD_KEEP;
    while (strip && rest->size && rest->data[0] == ' ') {
        rest->data++;
        rest->size--;
        strip = every;
    }
    spry_view run = {rest->data, 0};
    while (run.size < rest->size && !(every && run.data[run.size] == ' '))
        run.size++;
    rest->data += run.size;
    rest->size -= run.size;
    return run;
}

spry_status spry_tokenizer_decode(const spry_tokenizer *tokenizer, spry_buffer *out, const int32_t *ids, size_t count,
                                  bool special, spry_error *error)
{
    bool started = false;
    for (size_t i = 0; i < count; i++) {
        spry_view bytes;
        bool skipped;
        spry_status status = token_bytes(tokenizer, ids[i], special, &bytes, &skipped, error);
        if (status)
            return status;
        if (skipped)
            continue;
        for (spry_view run; !started && (run = take_first(tokenizer, &bytes)).size;)
            spry_buffer_append(out, run.data, run.size);
        spry_buffer_append(out, bytes.data, bytes.size);
        started = true;
    }
    return out->failed ? spry_fail_memory(error, "decoded text", out->size) : SPRY_OK;
}

void spry_decoder_init(spry_decoder *decoder, const spry_tokenizer *tokenizer, bool special)
{
    *decoder = (spry_decoder){.tokenizer = tokenizer, .special = special};
}

void spry_decoder_continue(spry_decoder *decoder)
{
    decoder->started = true;
}

/* Completes the pending character with the first bytes of `text`, or replaces it when it is invalid. */
static void complete_pending(spry_decoder *decoder, spry_buffer *out, spry_view *text)
{
    while (decoder->n_pending && text->size) {
        size_t size = decoder->n_pending + 1;
        decoder->pending[decoder->n_pending] = text->data[0];
        uint32_t character;
        if (spry_utf8_incomplete_tail(decoder->pending, size) == size) {
            decoder->n_pending = size;
        } else if (spry_utf8_decode(&character, decoder->pending, size) == size) {
            spry_buffer_append(out, decoder->pending, size);
            decoder->n_pending = 0;
        } else {
            spry_decoder_finish(decoder, out);
            return; /* the byte may start another character */
        }
        text->data++;
        text->size--;
    }
}

static void emit(spry_decoder *decoder, spry_buffer *out, spry_view text)
{
    complete_pending(decoder, out, &text);
    size_t tail = text.size ? spry_utf8_incomplete_tail(text.data, text.size) : 0;
    spry_utf8_append_valid(out, (spry_view){text.data, text.size - tail});
    if (tail) {
        memcpy(decoder->pending, text.data + text.size - tail, tail);
        decoder->n_pending = tail;
    }
}

spry_status spry_decoder_push(spry_decoder *decoder, spry_buffer *out, int32_t id, spry_error *error)
{
    spry_view bytes;
    bool skipped;
    spry_status status = token_bytes(decoder->tokenizer, id, decoder->special, &bytes, &skipped, error);
    if (status || skipped)
        return status;
    for (spry_view run; !decoder->started && (run = take_first(decoder->tokenizer, &bytes)).size;)
        emit(decoder, out, run);
    emit(decoder, out, bytes);
    decoder->started = true;
    return out->failed ? spry_fail_memory(error, "decoded text", bytes.size) : SPRY_OK;
}

void spry_decoder_finish(spry_decoder *decoder, spry_buffer *out)
{
    spry_utf8_append_valid(out, (spry_view){decoder->pending, decoder->n_pending});
    decoder->n_pending = 0;
}
