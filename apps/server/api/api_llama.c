/* POST /completion of llama-server. */
#include <stdio.h>
#include <stdlib.h>

#include "server/api/apis.h"
#include "server/api/llama_json.h"
#include "server/api/openai_json.h"
#include "server/http/http_reply.h"
#include "server/request/fill_in.h"
#include "server/request/prompt.h"

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* The members that every event has; takes `content`. */
static json_t *piece(const spry_completion *c, const spry_choice *choice, json_t *content, bool stop)
{
    return json_pack("{s:i, s:o, s:b, s:i, s:s}", "index", (int)choice->index, "content", content, "stop", stop,
                     "id_slot", (int)choice->index, "model", c->model->name);
}

/* The tokens since the last event, with their probabilities where they are wanted. */
static void add_tokens(json_t *message, const spry_completion *c, spry_choice *choice)
{
    json_object_set_new(message, "tokens", spry_llama_ids(choice, choice->n_written, choice->n_tokens));
    if (c->options.request.logprobs)
        json_object_set_new(message, "completion_probabilities",
                            spry_llama_probabilities(c, choice, choice->n_written, choice->n_tokens));
    choice->n_written = choice->n_tokens;
}

static void write_delta(spry_completion *c, spry_choice *choice, const spry_chat_event *event)
{
    json_t *message = piece(c, choice, spry_view_json(spry_event_text(event)), false);
    add_tokens(message, c, choice);
    json_object_set_new(message, "tokens_predicted", json_integer((json_int_t)choice->n_tokens));
    json_object_set_new(message, "tokens_evaluated", json_integer((json_int_t)choice->prompt->count));
    spry_openai_add_timings(message, choice);
    spry_completion_event(c, message);
}

static void write_progress(spry_completion *c, spry_choice *choice)
{
    json_t *message = piece(c, choice, json_string(""), false);
    json_object_set_new(message, "tokens", json_array());
    spry_openai_progress(c, message, choice);
}

static json_t *last_piece(spry_completion *c, spry_choice *choice, json_t *content)
{
    static const char *const stop_types[] = {[SPRY_FINISH_END] = "eos",
                                             [SPRY_FINISH_STOP] = "word",
                                             [SPRY_FINISH_LENGTH] = "limit",
                                             [SPRY_FINISH_CONTEXT] = "limit",
                                             [SPRY_FINISH_CANCELLED] = "none"};
    const spry_result *r = &choice->job.result;
    spry_engine_info info;
    spry_engine_describe(c->model->engine, &info);
    bool slid = c->options.slide && choice->prompt->count + r->generated_tokens > info.context;
    json_t *message = piece(c, choice, content, true);
    json_t *more =
        json_pack("{s:s, s:s, s:I, s:I, s:I, s:b, s:b, s:o, s:o, s:o, s:o}", "stop_type", stop_types[r->finish],
                  "stopping_word", r->finish == SPRY_FINISH_STOP ? spry_choice_stop(choice) : "", "tokens_predicted",
                  (json_int_t)r->generated_tokens, "tokens_evaluated", (json_int_t)choice->prompt->count,
                  "tokens_cached", (json_int_t)(choice->prompt->count + r->generated_tokens), "truncated",
                  slid || r->finish == SPRY_FINISH_CONTEXT, "has_new_line", choice->has_newline, "prompt",
                  spry_llama_prompt_text(c, choice), "generation_settings", spry_llama_settings(&c->options), "timings",
                  spry_completion_timings(c), "tokens", json_array());
    json_object_update(message, more);
    json_decref(more);
    return message;
}

static void close_choice(spry_completion *c, spry_choice *choice, bool last)
{
    (void)last;
    spry_completion_event(c, last_piece(c, choice, json_string("")));
}

/* The members that "response_fields" names; "a/b" is member b of member a. */
static json_t *chosen_members(json_t *message, const json_t *names)
{
    json_t *chosen = json_object();
    const json_t *name;
    size_t i;
    if (!json_array_size(names)) {
        json_decref(chosen);
        return message;
    }
    json_array_foreach(names, i, name)
    {
        char path[128];
        json_t *value = message;
        snprintf(path, sizeof path, "%s", json_is_string(name) ? json_string_value(name) : "");
        for (char *rest = path, *part; value && (part = strtok_r(rest, "/", &rest));)
            value = json_object_get(value, part);
        if (value)
            json_object_set(chosen, json_is_string(name) ? json_string_value(name) : "", value);
    }
    json_decref(message);
    return chosen;
}

static json_t *whole_choice(spry_completion *c, spry_choice *choice)
{
    json_t *message = last_piece(c, choice, spry_buffer_json(&choice->content));
    const json_t *wanted = json_object_get(c->root, "return_tokens");
    if (json_is_true(wanted))
        json_object_set_new(message, "tokens", spry_llama_ids(choice, 0, choice->n_tokens));
    if (c->options.request.logprobs)
        json_object_set_new(message, "completion_probabilities",
                            spry_llama_probabilities(c, choice, 0, choice->n_tokens));
    return chosen_members(message, json_object_get(c->root, "response_fields"));
}

/* Several prompts have a list of replies. */
static json_t *whole(spry_completion *c)
{
    if (!c->options.several && c->n_choices == 1)
        return whole_choice(c, &c->choices[0]);
    json_t *list = json_array();
    for (uint32_t i = 0; i < c->n_choices; i++)
        json_array_append_new(list, whole_choice(c, &c->choices[i]));
    return list;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* {"prompt_string": TEXT} is TEXT. */
static const json_t *plain_prompt(const json_t *prompt)
{
    const json_t *text = json_object_get(prompt, "prompt_string");
    return text && !json_object_get(prompt, "multimodal_data") ? text : prompt;
}

static spry_status make_prompt(spry_tokens *out, spry_completion *c, const json_t *prompt, const char *what,
                               spry_error *error)
{
    prompt = plain_prompt(prompt);
    if (json_is_string(prompt))
        return spry_prompt_encode(out, c->model->engine,
                                  (spry_view){json_string_value(prompt), json_string_length(prompt)}, true, true,
                                  error);
    if (json_is_array(prompt))
        return spry_prompt_list(out, c, prompt, what, error);
    return spry_fail(error, SPRY_ERR_INPUT, "%s must be a string or a list of token ids and strings", what);
}

/* A list is one prompt of ids, texts and parts, or a list of prompts: it is the latter if no item is an id or part. */
static bool is_list_of_prompts(const json_t *prompt)
{
    size_t i;
    const json_t *item;
    json_array_foreach(prompt, i, item)
    {
        if (json_is_integer(item) || json_object_get(item, "text"))
            return false;
    }
    return json_array_size(prompt) > 0;
}

static spry_status make_prompts(spry_completion *c, spry_fields *fields, spry_error *error)
{
    const json_t *prompt = json_object_get(fields->object, "prompt");
    size_t count = c->options.several ? json_array_size(prompt) : 1;
    if (!c->options.several)
        return make_prompt(&c->prompts.ids[0], c, prompt, "prompt", error);
    if (count * c->options.n_each > SPRY_ANSWERS_MAX)
        return spry_fail(error, SPRY_ERR_INPUT, "prompt has %zu prompts; the limit is %d answers", count,
                         SPRY_ANSWERS_MAX);
    c->prompts.count = (uint32_t)count;
    spry_status status = SPRY_OK;
    for (size_t i = 0; i < count && status == SPRY_OK; i++) {
        char what[32];
        snprintf(what, sizeof what, "prompt[%zu]", i);
        status = make_prompt(&c->prompts.ids[i], c, json_array_get(prompt, i), what, error);
    }
    return status;
}

void spry_llama_read(spry_completion_options *o, spry_fields *fields)
{
    o->request.sampling.temperature = 0.8f;
    o->request.sampling.top_k = 40;
    o->request.sampling.top_p = 0.95f;
    o->request.sampling.min_p = 0.05f;
    spry_openai_read_common(o, fields);
    o->request.max_tokens = (uint32_t)spry_openai_limit(fields, 0, 0);
    const json_t *predict = spry_fields_get(fields, "n_predict");
    o->no_answer = predict && json_number_value(predict) == 0;
    o->several = is_list_of_prompts(spry_fields_get(fields, "prompt"));
    o->request.logprobs = (uint32_t)spry_fields_integer(fields, "n_probs", 0, 0, SPRY_TOP_LOGPROBS_MAX);
    o->want_logprobs = o->stream || o->request.logprobs || spry_fields_bool(fields, "return_tokens", false);
}

static const spry_completion_interface interface = {.id_prefix = "",
                                                    .read = spry_llama_read,
                                                    .make_prompts = make_prompts,
                                                    .whole = whole,
                                                    .stream_type = "text/event-stream",
                                                    .delta = write_delta,
                                                    .progress = write_progress,
                                                    .close_choice = close_choice};

void spry_llama_completion(spry_exchange *x)
{
    spry_openai_serve(x, &interface, &spry_fields_llama_completion);
}

/* ---- /infill ----------------------------------------------------------------------------------------------------- */

/* Checks "input_extra": files that stand before the text. */
static void read_infill(spry_completion_options *o, spry_fields *fields)
{
    size_t i;
    const json_t *extra;
    spry_llama_read(o, fields);
    o->several = false;
    json_array_foreach(spry_fields_array(fields, "input_extra"), i, extra)
    {
        const json_t *name = json_object_get(extra, "filename");
        if (!json_is_string(json_object_get(extra, "text")) || (name && !json_is_string(name)))
            spry_fields_refuse(fields, "input_extra", "input_extra[%zu] must have a text and may have a filename", i);
    }
}

static spry_status make_infill(spry_completion *c, spry_fields *fields, spry_error *error)
{
    const json_t *prefix = spry_fields_get(fields, "input_prefix"), *suffix = spry_fields_get(fields, "input_suffix");
    const json_t *prompt = spry_fields_get(fields, "prompt");
    spry_buffer before;
    spry_buffer_init(&before, SIZE_MAX / 2);
    spry_buffer_append(&before, prefix ? json_string_value(prefix) : "", json_string_length(prefix));
    spry_buffer_append(&before, json_is_string(prompt) ? json_string_value(prompt) : "", json_string_length(prompt));
    spry_view after = {suffix ? json_string_value(suffix) : "", json_string_length(suffix)};
    spry_status status = spry_prompt_fill_in(&c->prompts.ids[0], c->model->engine, spry_buffer_view(&before), after,
                                             spry_fields_get(fields, "input_extra"), error);
    spry_buffer_deinit(&before);
    return status;
}

static const spry_completion_interface infill_interface = {.id_prefix = "",
                                                           .read = read_infill,
                                                           .make_prompts = make_infill,
                                                           .whole = whole,
                                                           .stream_type = "text/event-stream",
                                                           .delta = write_delta,
                                                           .progress = write_progress,
                                                           .close_choice = close_choice};

void spry_llama_infill(spry_exchange *x)
{
    spry_openai_serve(x, &infill_interface, &spry_fields_llama_infill);
}
