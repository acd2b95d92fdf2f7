/* Text to ids: the stages described in tokenizer_impl.h, outermost last.
 *
 * Two caches avoid merging for most words: the words of the current text, and `whole`, which stores for each token
 * whether merging its text gives that token. Every thread computes the same value, so relaxed atomics suffice. */
#include <stdlib.h>

#include "tokenizer/tokenizer_impl.h"
#include "tokenizer/word_cache.h"

enum { WHOLE_UNKNOWN, WHOLE_YES, WHOLE_NO };

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
    spry_error *error;
} encoder;

static bool merge_word(encoder *state, spry_view word)
{
    state->merge.count = 0;
    return spry_symbols_push(&state->tokenizer->symbols, &state->merge, word) &&
           spry_merge_word(&state->tokenizer->merges, &state->merge);
}

/* The id of a token spelled like the word; -1: none. Control and added tokens are excluded. */
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

/* A single scanner needs no list of pieces. */
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
            return spry_fail_memory(state->error, "tokens", text.size);
    return SPRY_OK;
}

/* Text without added tokens. */
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
    return ok ? SPRY_OK : spry_fail_memory(state->error, "tokens", text.size);
}

typedef spry_status (*part_encoder)(encoder *state, spry_view text, bool first);

/* Splits `text` at the tokens of `added` and passes the parts between them to `encode_part`. */
static spry_status encode_between(encoder *state, const spry_added_tokens *added, spry_view text, bool first,
                                  part_encoder encode_part)
{
    size_t done = 0;
    spry_added_match match;
    spry_status status = SPRY_OK;
    while (!status && spry_added_tokens_next(added, &state->tokenizer->unicode, text, done, &state->filter, &match)) {
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
        status = push_frame(&state, &tokenizer->behind);
    encoder_deinit(&state);
    return status;
}
