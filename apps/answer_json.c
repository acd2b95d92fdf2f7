/* An answer for programs. Token texts that are no UTF-8 by themselves are given as bytes. */
#include <math.h>

#include "answer.h"
#include "base/utf8.h"

enum { TOKEN_TEXT_MAX = 1024 };

/* The bytes a token has in the middle of a text: what it adds behind itself. (At the beginning of a text some
 * tokenizers take a space off.) */
static spry_view token_bytes(char *room, size_t capacity, const spry_engine *engine, int32_t id)
{
    const int32_t twice[] = {id, id};
    size_t once_size = 0, size = 0;
    if (spry_engine_detokenize(engine, NULL, 0, &once_size, twice, 1, true, NULL) != SPRY_OK ||
        spry_engine_detokenize(engine, room, capacity, &size, twice, 2, true, NULL) != SPRY_OK || size >= capacity ||
        once_size > size)
        return (spry_view){"", 0};
    return (spry_view){room + once_size, size - once_size};
}

static json_t *bytes_to_json(spry_view bytes)
{
    json_t *array = json_array();
    for (size_t i = 0; i < bytes.size; i++)
        json_array_append_new(array, json_integer((unsigned char)bytes.data[i]));
    return array;
}

static json_t *entry_to_json(const spry_engine *engine, spry_logprob_entry entry)
{
    char room[TOKEN_TEXT_MAX];
    spry_view bytes = token_bytes(room, sizeof room, engine, entry.id);
    json_t *object = json_object();
    json_object_set_new(object, "id", json_integer(entry.id));
    if (spry_utf8_valid(bytes))
        json_object_set_new(object, "text", json_stringn(bytes.data, bytes.size));
    else
        json_object_set_new(object, "bytes", bytes_to_json(bytes));
    json_object_set_new(object, "logprob", isfinite(entry.logprob) ? json_real(entry.logprob) : json_null());
    return object;
}

static json_t *logprobs_to_json(const spry_answer *answer, const spry_engine *engine)
{
    json_t *array = json_array();
    for (size_t i = 0; i < answer->n_tokens; i++) {
        const spry_answer_token *token = &answer->tokens[i];
        json_t *object = entry_to_json(engine, token->token), *top = json_array();
        for (size_t k = 0; k < token->n_top; k++)
            json_array_append_new(top, entry_to_json(engine, token->top[k]));
        json_object_set_new(object, "top", top);
        json_array_append_new(array, object);
    }
    return array;
}

/* JSON numbers reach 2^63 here; larger seeds are written as text, which every spry reads too. */
static json_t *seed_to_json(uint64_t seed)
{
    if (seed <= INT64_MAX)
        return json_integer((json_int_t)seed);
    return json_sprintf("%llu", (unsigned long long)seed);
}

json_t *spry_answer_to_json(const spry_answer *answer, const spry_engine *engine, const char *model, uint64_t seed,
                            bool with_logprobs)
{
    const spry_result *r = &answer->result;
    json_t *ids = json_array();
    for (size_t i = 0; i < answer->n_tokens; i++)
        json_array_append_new(ids, json_integer(answer->tokens[i].token.id));
    spry_view text = spry_buffer_view(&answer->text);
    json_t *object =
        json_pack("{s:s, s:o, s:s, s:o, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:o}", "model", model, "text",
                  json_stringn(text.data, text.size), "finish", spry_finish_name(r->finish), "seed", seed_to_json(seed),
                  "prompt_tokens", (json_int_t)r->prompt_tokens, "reused_tokens", (json_int_t)r->reused_tokens,
                  "generated_tokens", (json_int_t)r->generated_tokens, "prefill_ms", r->prefill_ms, "first_step_ms",
                  r->first_step_ms, "decode_ms", r->decode_ms, "total_ms", r->total_ms, "tokens", ids);
    if (object && with_logprobs)
        json_object_set_new(object, "logprobs", logprobs_to_json(answer, engine));
    return object;
}
