#include "server/api/responses_json.h"

#include <stdio.h>

#include "server/api/chat_body.h"
#include "server/api/openai_json.h"

void spry_responses_item_id(char out[SPRY_ITEM_ID], const spry_completion *c, const spry_answer_part *part)
{
    const char *prefix = part->kind == SPRY_CHAT_REASONING ? "rs" : part->kind == SPRY_CHAT_CALL_BEGIN ? "fc" : "msg";
    const char *number = strchr(c->id, '_');
    snprintf(out, SPRY_ITEM_ID, "%s%s_%zu", prefix, number ? number : "_", part->index);
}

json_t *spry_responses_text(const spry_answer_part *part, bool empty, json_t *logprobs)
{
    json_t *text = empty ? json_string("") : spry_buffer_json(&part->text);
    if (part->kind == SPRY_CHAT_REASONING) {
        json_decref(logprobs);
        return json_pack("{s:s, s:o}", "type", "reasoning_text", "text", text);
    }
    return json_pack("{s:s, s:o, s:[], s:o}", "type", "output_text", "text", text, "annotations", "logprobs",
                     logprobs ? logprobs : json_array());
}

/* Of the whole answer; NULL: not wanted. */
static json_t *logprobs_of(const spry_completion *c)
{
    const spry_choice *choice = &c->choices[0];
    if (!c->options.want_logprobs)
        return NULL;
    json_t *all = spry_openai_chat_logprobs(c, choice->tokens, 0, choice->n_tokens);
    json_t *content = json_incref(json_object_get(all, "content"));
    json_decref(all);
    return content;
}

json_t *spry_responses_item(const spry_completion *c, const spry_answer_part *part, bool done)
{
    char id[SPRY_ITEM_ID];
    const char *status = done ? "completed" : "in_progress";
    spry_responses_item_id(id, c, part);
    if (part->kind == SPRY_CHAT_CALL_BEGIN)
        return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o}", "id", id, "type", "function_call", "status", status,
                         "call_id", spry_buffer_json(&part->id), "name", spry_buffer_json(&part->name), "arguments",
                         done ? spry_buffer_json(&part->text) : json_string(""));
    json_t *content = json_array();
    if (done)
        json_array_append_new(
            content, spry_responses_text(part, false, part->kind == SPRY_CHAT_CONTENT ? logprobs_of(c) : NULL));
    if (part->kind == SPRY_CHAT_REASONING)
        return json_pack("{s:s, s:s, s:[], s:o, s:s}", "id", id, "type", "reasoning", "summary", "content", content,
                         "status", status);
    return json_pack("{s:s, s:s, s:s, s:s, s:o}", "id", id, "type", "message", "status", status, "role", "assistant",
                     "content", content);
}

static json_t *usage_json(const spry_completion *c)
{
    spry_usage_counts n;
    spry_completion_count(c, &n);
    return json_pack("{s:I, s:{s:I}, s:I, s:{s:I}, s:I}", "input_tokens", (json_int_t)n.prompt, "input_tokens_details",
                     "cached_tokens", (json_int_t)n.cached, "output_tokens", (json_int_t)n.generated,
                     "output_tokens_details", "reasoning_tokens", (json_int_t)0, "total_tokens",
                     (json_int_t)(n.prompt + n.generated));
}

/* The settings of the request, or what holds without them. */
static void add_settings(json_t *response, const spry_completion *c)
{
    static const struct {
        const char *name, *otherwise;
    } settings[] = {{"instructions", "null"},
                    {"max_output_tokens", "null"},
                    {"metadata", "{}"},
                    {"parallel_tool_calls", "true"},
                    {"previous_response_id", "null"},
                    {"reasoning", "{\"effort\": null, \"summary\": null}"},
                    {"service_tier", "\"default\""},
                    {"store", "true"},
                    {"text", "{\"format\": {\"type\": \"text\"}}"},
                    {"tool_choice", "\"auto\""},
                    {"tools", "[]"},
                    {"top_logprobs", "0"},
                    {"truncation", "\"disabled\""},
                    {"user", "null"}};
    const json_t *request = json_object_get(c->root, "request");
    for (size_t i = 0; i < SPRY_COUNT(settings); i++) {
        json_t *value = json_object_get(request, settings[i].name);
        json_object_set_new(response, settings[i].name,
                            value && !json_is_null(value) ? json_incref(value)
                                                          : json_loads(settings[i].otherwise, JSON_DECODE_ANY, NULL));
    }
    json_object_set_new(response, "temperature", json_real((double)c->options.request.sampling.temperature));
    json_object_set_new(response, "top_p", json_real((double)c->options.request.sampling.top_p));
}

json_t *spry_responses_object(const spry_completion *c, const char *status, json_t *output)
{
    json_t *response = json_pack("{s:s, s:s, s:I, s:s, s:b, s:n, s:n, s:s, s:o}", "id", c->id, "object", "response",
                                 "created_at", (json_int_t)c->created, "status", status, "background", 0, "error",
                                 "incomplete_details", "model", c->model->name, "output", output);
    add_settings(response, c);
    bool ended = strcmp(status, "in_progress") != 0;
    json_object_set_new(response, "usage", ended ? usage_json(c) : json_null());
    if (strcmp(status, "incomplete") == 0)
        json_object_set_new(response, "incomplete_details", json_pack("{s:s}", "reason", "max_output_tokens"));
    return response;
}

json_t *spry_responses_message(const spry_answer_parts *parts)
{
    json_t *message = json_pack("{s:s, s:s}", "role", "assistant", "content", ""), *calls = json_array();
    for (size_t i = 0; i < parts->count; i++) {
        const spry_answer_part *part = &parts->list[i];
        if (part->kind == SPRY_CHAT_CALL_BEGIN) {
            json_t *id = spry_buffer_json(&part->id), *name = spry_buffer_json(&part->name);
            json_array_append_new(calls, spry_chat_body_call(id, name, spry_buffer_json(&part->text)));
            json_decref(id);
            json_decref(name);
        } else {
            json_object_set_new(message, part->kind == SPRY_CHAT_CONTENT ? "content" : "reasoning_content",
                                spry_buffer_json(&part->text));
        }
    }
    if (json_array_size(calls))
        json_object_set(message, "tool_calls", calls);
    json_decref(calls);
    return message;
}
