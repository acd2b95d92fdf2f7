/* Ids to text. The text of an id does not depend on its neighbours, except that the first token may lose the space that
 * the encoder had added. */
#include "tokenizer/tokenizer_impl.h"

/* The text of an id; *skipped when it is omitted. */
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

/* The next run of bytes to emit from the first token; empty at its end. */
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
