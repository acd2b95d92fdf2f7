/* Objects as OpenAI documents them, and "timings". */
#include "server/api/openai_json.h"

#include <math.h>

#include "base/utf8.h"
#include "server/api/llama_json.h"

static json_t *usage_of(const spry_completion *c)
{
    spry_usage_counts n;
    spry_completion_count(c, &n);
    return json_pack("{s:I, s:I, s:I, s:{s:I}, s:{s:I, s:I}}", "prompt_tokens", (json_int_t)n.prompt,
                     "completion_tokens", (json_int_t)n.generated, "total_tokens", (json_int_t)(n.prompt + n.generated),
                     "prompt_tokens_details", "cached_tokens", (json_int_t)n.cached, "completion_tokens_details",
                     "accepted_prediction_tokens", (json_int_t)n.accepted, "rejected_prediction_tokens",
                     (json_int_t)(n.drafted - n.accepted));
}

json_t *spry_openai_envelope(const spry_completion *c, const char *object, json_t *choices)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:o}", "id", c->id, "object", object, "created", (json_int_t)c->created,
                     "model", c->model->name, "system_fingerprint", spry_llama_build(c->exchange->server), "choices",
                     choices);
}

spry_view spry_openai_token_bytes(const spry_completion *c, int32_t id)
{
    spry_view bytes;
    bytes.data = spry_engine_token_bytes(c->model->engine, id, true, &bytes.size);
    return bytes.data ? bytes : (spry_view){"", 0};
}

static json_t *entry_json(const spry_completion *c, spry_logprob_entry entry)
{
    spry_view bytes = spry_openai_token_bytes(c, entry.id);
    json_t *list = json_array();
    for (size_t i = 0; i < bytes.size; i++)
        json_array_append_new(list, json_integer((unsigned char)bytes.data[i]));
    return json_pack("{s:i, s:o, s:f, s:o}", "id", (int)entry.id, "token", spry_view_json(bytes), "logprob",
                     isfinite(entry.logprob) ? entry.logprob : -9999.0, "bytes", list);
}

json_t *spry_openai_chat_logprobs(const spry_completion *c, const spry_answer_token *tokens, size_t from, size_t to)
{
    json_t *content = json_array();
    for (size_t i = from; i < to; i++) {
        json_t *entry = entry_json(c, tokens[i].token), *top = json_array();
        for (size_t k = 0; k < tokens[i].n_top; k++)
            json_array_append_new(top, entry_json(c, tokens[i].top[k]));
        json_object_set_new(entry, "top_logprobs", top);
        json_array_append_new(content, entry);
    }
    return json_pack("{s:o}", "content", content);
}

void spry_openai_read_common(spry_completion_options *o, spry_fields *fields)
{
    spry_fields_sampling(o, fields);
    spry_fields_stop(o, fields);
    spry_fields_constraint(o, fields);
    o->n_each = (uint32_t)spry_fields_integer(fields, "n", 1, 1, SPRY_CHOICES_MAX);
    o->stream = spry_fields_bool(fields, "stream", false);
    o->request.ignore_end = spry_fields_bool(fields, "ignore_eos", false);
    if (!spry_fields_bool(fields, "draft", true))
        o->request.speculation = SPRY_DRAFT_NONE;
    o->want_progress = o->stream && spry_fields_bool(fields, "return_progress", false);
    o->want_timings = spry_fields_bool(fields, "timings_per_token", false);
    spry_fields stream = {.object = spry_fields_object(fields, "stream_options"), .within = "stream_options."};
    o->include_usage = spry_fields_bool(&stream, "include_usage", false);
    if (stream.wrong[0])
        spry_fields_refuse(fields, stream.wrong, "%s", stream.error.message);
}

int64_t spry_openai_limit(spry_fields *fields, int64_t fallback, int64_t least)
{
    static const char *const names[] = {"max_tokens", "max_completion_tokens", "n_predict"};
    for (size_t i = 0; i < SPRY_COUNT(names); i++) {
        const json_t *value = spry_fields_get(fields, names[i]);
        if (value)
            return json_number_value(value) == -1 ? 0 : spry_fields_integer(fields, names[i], 0, least, UINT32_MAX);
    }
    return fallback;
}

void spry_openai_progress(spry_completion *c, json_t *message, const spry_choice *choice)
{
    json_object_set_new(message, "prompt_progress", spry_choice_progress(choice));
    spry_openai_add_timings(message, choice);
    spry_completion_event(c, message);
}

void spry_openai_add_timings(json_t *message, const spry_choice *choice)
{
    if (choice->owner->options.want_timings)
        json_object_set_new(message, "timings", spry_choice_live_timings(choice));
}

void spry_openai_serve(spry_exchange *x, const spry_completion_interface *interface, const spry_field_table *table)
{
    spry_fields fields;
    json_t *root;
    if (!spry_fields_open(&fields, &root, x))
        return;
    spry_fields_check(&fields, table);
    spry_completion_serve(x, root, &fields, spry_fields_string(&fields, "model", NULL), interface);
}

json_t *spry_openai_whole(const spry_completion *c, const char *object, json_t *choices)
{
    json_t *message = spry_openai_envelope(c, object, choices);
    json_object_set_new(message, "usage", usage_of(c));
    json_object_set_new(message, "timings", spry_completion_timings(c));
    if (json_is_true(json_object_get(c->root, "verbose")))
        json_object_set_new(message, "__verbose",
                            json_pack("{s:o, s:o}", "prompt", spry_llama_prompt_text(c, &c->choices[0]),
                                      "generation_settings", spry_llama_settings(&c->options)));
    return message;
}

void spry_openai_close_stream(spry_completion *c, const char *object)
{
    if (c->options.include_usage)
        spry_completion_event(c, spry_openai_whole(c, object, json_array()));
    spry_buffer_text(&c->reply.out, "data: [DONE]\n\n");
}
