/* Text to ids and back, through the model's tokenizer and chat template. */
#include <string.h>

#include "engine/engine_state.h"

enum { MAX_CHAT_BYTES = 64 << 20 };

static spry_status need_tokenizer(const spry_engine *e, spry_error *error)
{
    if (e->model->tokenizer)
        return SPRY_OK;
    return spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s: the model comes without a tokenizer", e->model->name);
}

static spry_status hand_over(int32_t *ids, size_t capacity, size_t *count, spry_tokens *tokens, spry_status status)
{
    size_t fits = tokens->count < capacity ? tokens->count : capacity;
    if (!status && fits)
        memcpy(ids, tokens->ids, fits * sizeof *ids);
    *count = status ? 0 : tokens->count;
    spry_tokens_deinit(tokens);
    return status;
}

spry_status spry_engine_tokenize(const spry_engine *e, int32_t *ids, size_t capacity, size_t *count, const char *text,
                                 size_t size, bool special, spry_error *error)
{
    spry_tokens tokens = {0};
    spry_status status = need_tokenizer(e, error);
    if (!status)
        status = spry_tokenizer_encode(e->model->tokenizer, &tokens, (spry_view){text, size}, NULL, 0,
                                       SPRY_ENCODE_BOS_EOS | (special ? SPRY_ENCODE_SPECIAL : 0), error);
    return hand_over(ids, capacity, count, &tokens, status);
}

spry_status spry_engine_detokenize(const spry_engine *e, char *text, size_t capacity, size_t *size, const int32_t *ids,
                                   size_t count, bool special, spry_error *error)
{
    spry_buffer out;
    spry_buffer_init(&out, SIZE_MAX / 2);
    spry_status status = need_tokenizer(e, error);
    if (!status)
        status = spry_tokenizer_decode(e->model->tokenizer, &out, ids, count, special, error);
    size_t fits = out.size < capacity ? out.size + 1 : capacity; /* with the zero */
    if (!status && fits)
        memcpy(text, spry_buffer_view(&out).data, fits);
    *size = status ? 0 : out.size;
    spry_buffer_deinit(&out);
    return status;
}

spry_status spry_engine_chat(const spry_engine *e, int32_t *ids, size_t capacity, size_t *count,
                             const spry_message *messages, size_t n_messages, spry_error *error)
{
    spry_tokens tokens = {0};
    spry_chat_text text;
    spry_chat_text_init(&text, MAX_CHAT_BYTES);
    spry_status status = need_tokenizer(e, error);
    if (!status)
        status = spry_chat_template_render(e->model->chat, &text, messages, n_messages, true, error);
    if (!status)
        status = spry_tokenizer_encode(e->model->tokenizer, &tokens, spry_buffer_view(&text.text),
                                       (const spry_text_range *)(const void *)text.literal.data,
                                       text.literal.size / sizeof(spry_text_range), SPRY_ENCODE_SPECIAL, error);
    spry_chat_text_deinit(&text);
    return hand_over(ids, capacity, count, &tokens, status);
}
