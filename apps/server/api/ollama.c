/* POST /api/generate and /api/chat of Ollama's interface: lines of JSON, streamed unless "stream" is false. */
#include "server/api/ollama.h"

#include <stdio.h>
#include <time.h>

#include "base/json.h"
#include "base/number.h"
#include "server/api/apis.h"
#include "server/api/chat_body.h"
#include "server/api/openai.h"
#include "server/fields/fields.h"
#include "server/http/http_reply.h"
#include "server/http/http_server.h"
#include "server/request/prompt.h"

static void print_time(char out[SPRY_OLLAMA_TIME], struct timespec when)
{
    struct tm utc;
    time_t seconds = when.tv_sec;
    if (!gmtime_r(&seconds, &utc))
        utc = (struct tm){.tm_mday = 1, .tm_year = 70};
    size_t n = strftime(out, SPRY_OLLAMA_TIME, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(out + n, SPRY_OLLAMA_TIME - n, ".%06ldZ", (long)(when.tv_nsec / 1000 % 1000000));
}

/* "2025-01-31T12:00:00.123456Z": the time now, or `seconds` since 1970. */
static void ollama_now(char out[SPRY_OLLAMA_TIME])
{
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    print_time(out, now);
}

void spry_ollama_time(char out[SPRY_OLLAMA_TIME], int64_t seconds)
{
    print_time(out, (struct timespec){.tv_sec = (time_t)seconds});
}

const char *spry_ollama_model(char out[SPRY_OLLAMA_NAME], const char *name)
{
    spry_view view = spry_view_of(name), tag = SPRY_VIEW(":latest");
    if (spry_view_ends(view, tag))
        view.size -= tag.size;
    snprintf(out, SPRY_OLLAMA_NAME, "%.*s", (int)(view.size < SPRY_OLLAMA_NAME ? view.size : SPRY_OLLAMA_NAME - 1),
             view.data);
    return out;
}

bool spry_ollama_template_thinks(spry_view source)
{
    static const char *const words[] = {"enable_thinking", "<think>", "reasoning_effort"};
    for (size_t i = 0; i < SPRY_COUNT(words); i++)
        if (source.size && memmem(source.data, source.size, words[i], strlen(words[i])))
            return true;
    return false;
}

static bool ollama_thinks(const spry_engine *engine)
{
    spry_view source;
    source.data = spry_engine_chat_template(engine, false, &source.size);
    return spry_ollama_template_thinks(source);
}

/* ---- durations --------------------------------------------------------------------------------------------------- */

static bool read_unit(spry_view *text, double *seconds)
{
    static const struct {
        const char *name;
        double seconds;
    } units[] = {{"ns", 1e-9}, {"us", 1e-6}, {"\xc2\xb5s", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}};
    for (size_t i = 0; i < SPRY_COUNT(units); i++) {
        spry_view name = spry_view_of(units[i].name);
        if (spry_view_starts(*text, name)) {
            *text = (spry_view){text->data + name.size, text->size - name.size};
            *seconds = units[i].seconds;
            return true;
        }
    }
    return false;
}

/* Numbers with units in sequence; a number without a unit means seconds. */
static bool read_duration(double *seconds, spry_view text)
{
    double sum = 0, number, unit;
    bool negative = spry_view_starts(text, SPRY_VIEW("-")), whole = spry_number_double(seconds, text);
    if (whole)
        return true;
    if (negative)
        text = (spry_view){text.data + 1, text.size - 1};
    do {
        size_t digits = 0;
        while (digits < text.size &&
               (text.data[digits] == '.' || (text.data[digits] >= '0' && text.data[digits] <= '9')))
            digits++;
        if (!spry_number_double(&number, (spry_view){text.data, digits}))
            return false;
        text = (spry_view){text.data + digits, text.size - digits};
        if (!read_unit(&text, &unit))
            return false;
        sum += number * unit;
    } while (text.size);
    *seconds = negative ? -sum : sum;
    return true;
}

bool spry_ollama_keep_alive(spry_fields *fields, double *seconds)
{
    const json_t *value = spry_fields_get(fields, "keep_alive");
    if (!value)
        return false;
    *seconds = json_number_value(value);
    if (json_is_number(value) ||
        (json_is_string(value) &&
         read_duration(seconds, (spry_view){json_string_value(value), json_string_length(value)})))
        return true;
    spry_fields_refuse(fields, "keep_alive", "keep_alive must be seconds or a duration such as \"5m\"");
    return false;
}

/* ---- POST /api/generate and /api/chat ---------------------------------------------------------------------------- */

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* {"model", "created_at", "done"} */
static json_t *line(const char *model, bool done)
{
    char now[SPRY_OLLAMA_TIME];
    ollama_now(now);
    return json_pack("{s:s, s:s, s:b}", "model", model, "created_at", now, "done", done);
}

static json_int_t nanoseconds(double ms)
{
    return (json_int_t)(ms * 1e6);
}

/* Tokens of the prompt; tokens that were dropped because it was longer than the context do not count. */
static size_t prompt_count(const spry_completion *c)
{
    size_t count = c->prompts.ids[0].count, dropped = c->choices[0].job.result.dropped_tokens;
    spry_engine_info info;
    spry_engine_describe(c->model->engine, &info);
    return count < info.context || dropped > count ? count : count - dropped;
}

static json_t *last_line(const spry_completion *c)
{
    const spry_choice *choice = &c->choices[0];
    const spry_result *r = &choice->job.result;
    json_t *timings = spry_completion_timings(c), *message = line(c->model->name, true);
    const char *finish = spry_choice_finish_reason(choice);
    json_t *more =
        json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "done_reason", choice->n_calls ? "stop" : finish,
                  "total_duration", nanoseconds(json_real_value(json_object_get(timings, "total_ms"))), "load_duration",
                  (json_int_t)c->exchange->load_ns, "prompt_eval_count", (json_int_t)prompt_count(c),
                  "prompt_eval_duration", nanoseconds(r->prefill_ms), "eval_count", (json_int_t)r->generated_tokens,
                  "eval_duration", nanoseconds(r->first_token_ms - r->prefill_ms + r->decode_ms));
    json_object_update(message, more);
    json_object_set_new(message, "timings", timings);
    json_decref(more);
    return message;
}

/* Adds the log probabilities of the tokens since the last line. */
static void add_logprobs(json_t *message, spry_completion *c)
{
    spry_choice *choice = &c->choices[0];
    if (!c->options.want_logprobs || choice->n_written == choice->n_tokens)
        return;
    json_t *all = spry_openai_chat_logprobs(c, choice->tokens, choice->n_written, choice->n_tokens);
    json_object_set(message, "logprobs", json_object_get(all, "content"));
    json_decref(all);
    choice->n_written = choice->n_tokens;
}

/* The tokens of the conversation, with which a later request can continue it; NULL when memory is short. */
static json_t *context_json(const spry_completion *c)
{
    const spry_choice *choice = &c->choices[0];
    spry_tokens answer = {0};
    json_t *list = json_array();
    for (size_t i = 0; i < c->prompts.ids[0].count; i++)
        json_array_append_new(list, json_integer(c->prompts.ids[0].ids[i]));
    (void)spry_prompt_encode(&answer, c->model->engine, spry_buffer_view(&choice->raw_text), false, false, NULL);
    for (size_t i = 0; i < answer.count; i++)
        json_array_append_new(list, json_integer(answer.ids[i]));
    spry_tokens_deinit(&answer);
    return list;
}

static json_t *last_generated(spry_completion *c, json_t *response)
{
    json_t *message = last_line(c);
    add_logprobs(message, c);
    json_object_set_new(message, "response", response);
    if (c->options.keep_raw_text)
        json_object_set_new(message, "context", context_json(c));
    return message;
}

static void write_generated(spry_completion *c, spry_choice *choice, const spry_chat_event *event)
{
    json_t *message = line(c->model->name, false);
    (void)choice;
    if (event->kind == SPRY_CHAT_REASONING)
        json_object_set_new(message, "thinking", spry_view_json(spry_event_text(event)));
    json_object_set_new(message, "response",
                        event->kind == SPRY_CHAT_CONTENT ? spry_view_json(spry_event_text(event)) : json_string(""));
    add_logprobs(message, c);
    spry_completion_line(c, message);
}

/* A line without text. */
static void write_generated_progress(spry_completion *c, spry_choice *choice)
{
    json_t *message = line(c->model->name, false);
    json_object_set_new(message, "response", json_string(""));
    json_object_set_new(message, "prompt_progress", spry_choice_progress(choice));
    spry_completion_line(c, message);
}

static void close_generated(spry_completion *c, spry_choice *choice, bool last)
{
    (void)choice;
    (void)last;
    spry_completion_line(c, last_generated(c, json_string("")));
}

static json_t *whole_generated(spry_completion *c)
{
    const spry_choice *choice = &c->choices[0];
    json_t *message = last_generated(c, spry_buffer_json(&choice->content));
    if (choice->reasoning.size)
        json_object_set_new(message, "thinking", spry_buffer_json(&choice->reasoning));
    return message;
}

/* ---- writing: /api/chat ------------------------------------------------------------------------------------------ */

static json_t *message_json(spry_view content, spry_view thinking)
{
    json_t *message = json_pack("{s:s, s:o}", "role", "assistant", "content", spry_view_json(content));
    if (thinking.size)
        json_object_set_new(message, "thinking", spry_view_json(thinking));
    return message;
}

/* In Ollama's form arguments are an object. */
static json_t *calls_json(const json_t *calls)
{
    json_t *list = json_array(), *call;
    size_t i;
    json_array_foreach(calls, i, call)
    {
        json_t *arguments = spry_json_value(spry_json_view(json_object_get(call, "arguments")));
        json_array_append_new(list, json_pack("{s:{s:O, s:o}}", "function", "name", json_object_get(call, "name"),
                                              "arguments", arguments ? arguments : json_object()));
    }
    return list;
}

/* A tool call is written when it is complete. */
static void write_chatted(spry_completion *c, spry_choice *choice, const spry_chat_event *event)
{
    json_t *message = NULL;
    switch (event->kind) {
    case SPRY_CHAT_CONTENT: message = message_json(spry_event_text(event), SPRY_VIEW("")); break;
    case SPRY_CHAT_REASONING: message = message_json(SPRY_VIEW(""), spry_event_text(event)); break;
    case SPRY_CHAT_CALL_BEGIN:
    case SPRY_CHAT_ARGUMENTS: spry_choice_add(choice, event); return;
    case SPRY_CHAT_CALL_CUT: /* nothing of it was written, so it is text */
        spry_choice_add(choice, event);
        message = message_json(spry_event_text(event), SPRY_VIEW(""));
        break;
    case SPRY_CHAT_CALL_END: {
        spry_choice_add(choice, event);
        json_t *one = json_pack("[O]", json_array_get(choice->calls, json_array_size(choice->calls) - 1));
        message = message_json(SPRY_VIEW(""), SPRY_VIEW(""));
        json_object_set_new(message, "tool_calls", calls_json(one));
        json_decref(one);
        break;
    }
    }
    json_t *whole_line = line(c->model->name, false);
    json_object_set_new(whole_line, "message", message);
    add_logprobs(whole_line, c);
    spry_completion_line(c, whole_line);
}

static void write_chatted_progress(spry_completion *c, spry_choice *choice)
{
    json_t *message = line(c->model->name, false);
    json_object_set_new(message, "message", message_json(SPRY_VIEW(""), SPRY_VIEW("")));
    json_object_set_new(message, "prompt_progress", spry_choice_progress(choice));
    spry_completion_line(c, message);
}

static void close_chatted(spry_completion *c, spry_choice *choice, bool last)
{
    json_t *message = last_line(c);
    (void)choice;
    (void)last;
    add_logprobs(message, c);
    json_object_set_new(message, "message", message_json(SPRY_VIEW(""), SPRY_VIEW("")));
    spry_completion_line(c, message);
}

static json_t *whole_chatted(spry_completion *c)
{
    const spry_choice *choice = &c->choices[0];
    json_t *message = last_line(c);
    json_t *inner = message_json(spry_buffer_view(&choice->content), spry_buffer_view(&choice->reasoning));
    add_logprobs(message, c);
    if (json_array_size(choice->calls))
        json_object_set_new(inner, "tool_calls", calls_json(choice->calls));
    json_object_set_new(message, "message", inner);
    return message;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static void read_format(spry_completion_options *o, spry_fields *fields)
{
    const json_t *format = spry_fields_get(fields, "format");
    if (!format || (json_is_string(format) && !json_string_length(format)))
        return;
    if (json_is_object(format))
        spry_fields_set_constraint(o, fields, "format", SPRY_JSON_SCHEMA, format);
    else if (json_is_string(format) && strcmp(json_string_value(format), "json") == 0)
        spry_fields_set_constraint(o, fields, "format", SPRY_JSON_OBJECT, NULL);
    else
        spry_fields_refuse(fields, "format", "format must be \"json\" or a JSON schema");
}

static void read_think(spry_completion_options *o, spry_fields *fields)
{
    const json_t *think = spry_fields_get(fields, "think");
    const char *level = json_string_value(think);
    o->parse_reasoning = !json_is_false(think);
    static const char *const levels[] = {"", "minimal", "low", "medium", "high", "max"};
    size_t i = 0;
    while (level && i < SPRY_COUNT(levels) && strcmp(level, levels[i]) != 0)
        i++;
    if (i == SPRY_COUNT(levels))
        spry_fields_refuse(fields, "think", "think must be true, false, \"low\", \"medium\" or \"high\"");
    if (level && !*level)
        json_object_del((json_t *)(uintptr_t)fields->object, "think"); /* as if it were absent */
}

static void ollama_defaults(spry_completion_options *o)
{
    o->request.sampling.temperature = 0.8f;
    o->request.sampling.top_k = 40;
    o->request.sampling.top_p = 0.9f;
    o->request.sampling.min_p = 0;
    o->request.sampling.repeat_penalty = 1.1f;
    o->request.sampling.penalty_window = 64;
    o->overflow = SPRY_OVERFLOW_SLIDE;
    o->stream = true;
}

static void generate_defaults(spry_completion_options *o)
{
    ollama_defaults(o);
    o->keep_raw_text = true;
}

/* repeat_last_n has its own meaning here: 0 turns penalties off, negative values count all tokens. */
static void read_window(spry_completion_options *o, const spry_fields *fields)
{
    spry_sampling *s = &o->request.sampling;
    const json_t *last = json_object_get(spry_fields_get(fields, "options"), "repeat_last_n");
    if (!json_is_number(last) || json_number_value(last) > 0)
        return;
    s->penalty_window = 0;
    if (json_number_value(last) == 0) {
        s->repeat_penalty = 1;
        s->presence_penalty = s->frequency_penalty = 0;
    }
}

static void read_options(spry_completion_options *o, spry_fields *fields)
{
    read_window(o, fields);
    if (!*spry_fields_string(fields, "model", ""))
        spry_fields_refuse(fields, "model", "model is missing");
    o->has_keep_alive = spry_ollama_keep_alive(fields, &o->keep_alive_s);
    read_format(o, fields);
    read_think(o, fields);
}

/* Pictures become parts of their message, before its text. */
static void move_images(spry_fields *fields, const json_t *messages)
{
    size_t i, k;
    json_t *message;
    json_array_foreach(messages, i, message)
    {
        const json_t *content = json_object_get(message, "content"), *images = json_object_get(message, "images");
        if (!json_array_size(images))
            continue;
        json_t *parts = json_array();
        const json_t *image;
        json_array_foreach(images, k, image)
        {
            if (json_is_string(image))
                spry_chat_body_add_image_data(parts, "image/png", json_string_value(image));
            else
                spry_fields_refuse(fields, "messages", "messages[%zu].images[%zu] is no base64", i, k);
        }
        if (json_is_string(content))
            spry_chat_body_add_text(parts, content);
        else
            json_array_extend(parts, (json_t *)(uintptr_t)content);
        json_object_set_new(message, "content", parts);
        json_object_del(message, "images");
    }
}

/* Whether the model may call tools. */
static bool usable_choice(const spry_fields *fields)
{
    return !spry_chat_body_is(fields->object, "tool_choice", "none");
}

static void read_chat(spry_completion_options *o, spry_fields *fields)
{
    const json_t *messages = spry_fields_array(fields, "messages");
    read_options(o, fields);
    if (json_array_size(messages))
        spry_fields_messages(fields, messages);
    move_images(fields, messages);
    o->parse_tools = json_array_size(spry_fields_tools(fields)) > 0 && usable_choice(fields);
}

/* ---- prompts ----------------------------------------------------------------------------------------------------- */

/* A conversation, with the variables that "think" or "chat_template_kwargs" set. */
static spry_status chat_of(spry_completion *c, const spry_fields *fields, const json_t *messages, const json_t *tools,
                           spry_error *error)
{
    const json_t *think = spry_fields_get(fields, "think");
    bool asked = json_is_true(think) || json_is_string(think);
    if (asked && !c->derived && !c->exchange->server->defaults && !ollama_thinks(c->model->engine))
        return spry_fail(error, SPRY_ERR_INPUT, "think: \"%s\" does not support thinking", c->model->name);
    json_t *given = json_object_get(c->root, "chat_template_kwargs");
    json_t *variables = json_is_object(given) ? json_copy(given) : json_object();
    if (think)
        json_object_set_new(variables, "enable_thinking", json_boolean(!json_is_false(think)));
    if (json_is_string(think))
        json_object_set(variables, "reasoning_effort", (json_t *)(uintptr_t)think);
    const json_t *choice = tools ? spry_fields_get(fields, "tool_choice") : NULL;
    spry_status status = c->options.overflow == SPRY_OVERFLOW_SLIDE && !c->options.must_fit
                             ? spry_prompt_chat_fit(c, messages, tools, variables, choice, error)
                             : spry_prompt_chat(c, messages, tools, variables, choice, true, error);
    json_decref(variables);
    return status;
}

/* A conversation that continues has no second BOS token at token `at`. */
static void drop_bos(spry_tokens *prompt, size_t at, const spry_engine *engine)
{
    if (!at || prompt->count <= at || prompt->ids[at] != spry_engine_begin_token(engine))
        return;
    prompt->count--;
    memmove(prompt->ids + at, prompt->ids + at + 1, (prompt->count - at) * sizeof *prompt->ids);
}

static spry_status generate_prompt(spry_completion *c, spry_fields *fields, spry_error *error)
{
    const json_t *prompt = json_object_get(c->root, "prompt"), *context = spry_fields_array(fields, "context");
    const char *system = spry_fields_string(fields, "system", "");
    spry_tokens *out = &c->prompts.ids[0];
    spry_status status = spry_prompt_ids(out, c->model->engine, context, "context", !spry_prompt_slides(c), error);
    size_t n_context = out->count;
    const json_t *suffix = spry_fields_get(fields, "suffix");
    if (status == SPRY_OK && json_string_length(suffix)) {
        status = spry_prompt_fill_in(out, c->model->engine,
                                     (spry_view){json_string_value(prompt), json_string_length(prompt)},
                                     (spry_view){json_string_value(suffix), json_string_length(suffix)}, NULL, error);
    } else if (status == SPRY_OK && spry_fields_bool(fields, "raw", false)) {
        spry_view text = {json_string_value(prompt), json_string_length(prompt)};
        status =
            json_array_size(json_object_get(c->root, "images"))
                ? spry_fail(error, SPRY_ERR_INPUT, "images cannot be used with raw: a raw prompt has no place for them")
                : spry_prompt_encode(out, c->model->engine, text, true, true, error);
    } else if (status == SPRY_OK) {
        json_t *messages = *system ? json_pack("[{s:s, s:s}]", "role", "system", "content", system) : json_array();
        json_array_append_new(messages, json_pack("{s:s, s:O, s:O*}", "role", "user", "content", prompt, "images",
                                                  json_object_get(c->root, "images")));
        move_images(fields, messages);
        status = chat_of(c, fields, messages, NULL, error);
        json_decref(messages);
    }
    drop_bos(out, n_context, c->model->engine);
    return status;
}

static spry_status chat_prompt(spry_completion *c, spry_fields *fields, spry_error *error)
{
    const json_t *tools = usable_choice(fields) ? spry_fields_get(fields, "tools") : NULL;
    return chat_of(c, fields, spry_fields_get(fields, "messages"), tools, error);
}

static const spry_completion_interface generate_interface = {.id_prefix = "ollama-",
                                                             .table = &spry_fields_ollama_generate,
                                                             .defaults = generate_defaults,
                                                             .read = read_options,
                                                             .make_prompts = generate_prompt,
                                                             .whole = whole_generated,
                                                             .stream_type = "application/x-ndjson",
                                                             .delta = write_generated,
                                                             .progress = write_generated_progress,
                                                             .close_choice = close_generated};

static const spry_completion_interface chat_interface = {.id_prefix = "ollama-",
                                                         .table = &spry_fields_ollama_chat,
                                                         .defaults = ollama_defaults,
                                                         .read = read_chat,
                                                         .make_prompts = chat_prompt,
                                                         .whole = whole_chatted,
                                                         .stream_type = "application/x-ndjson",
                                                         .delta = write_chatted,
                                                         .progress = write_chatted_progress,
                                                         .close_choice = close_chatted};

/* ---- requests without a prompt ----------------------------------------------------------------------------------- */

static bool load(spry_exchange *x, const char *name, const spry_completion_options *o)
{
    const spry_pooled *model = spry_completion_model(x, name);
    if (model && o->has_keep_alive)
        spry_completion_keep(x, model, o->keep_alive_s);
    if (model)
        spry_model_pool_release(x->server->pool, model);
    return model != NULL;
}

/* A model that is in use or pinned is unloaded later; the reply is the same. */
static bool unload(spry_exchange *x, const char *name)
{
    spry_error error;
    if (!spry_http_admin(x))
        return false;
    spry_status status = spry_model_pool_unload(x->server->pool, name, &error);
    bool accepted = status == SPRY_OK || status == SPRY_ERR_BUSY;
    if (!accepted)
        spry_completion_refuse_model(x, name, &error);
    return accepted;
}

/* Loads the model or, with "keep_alive": 0, unloads it. The reply has an empty answer: `key` with the value `empty`,
 * whose reference is taken. */
static void load_or_unload(spry_exchange *x, spry_fields *fields, const spry_completion_interface *interface,
                           const char *key, json_t *empty)
{
    char name[SPRY_OLLAMA_NAME];
    spry_completion_options o;
    spry_completion_options_init(&o, x->server->settings);
    spry_completion_options_read(&o, fields, interface);
    spry_ollama_model(name, spry_fields_string(fields, "model", ""));
    bool unloads = o.has_keep_alive && o.keep_alive_s == 0;
    if (spry_fields_fine(fields, x) && (unloads ? unload(x, name) : load(x, name, &o))) {
        json_t *message = line(name, true);
        json_object_set_new(message, "done_reason", json_string(unloads ? "unload" : "load"));
        json_object_set(message, key, empty);
        if (!unloads)
            json_object_set_new(message, "load_duration", json_integer((json_int_t)x->load_ns));
        spry_reply_json(x, SPRY_HTTP_OK, message);
    }
    json_decref(empty);
    spry_completion_options_deinit(&o);
}

/* ---- the paths --------------------------------------------------------------------------------------------------- */

static void serve(spry_exchange *x, json_t *root, spry_fields *fields, const spry_completion_interface *interface)
{
    char name[SPRY_OLLAMA_NAME];
    spry_completion_serve(x, root, fields, spry_ollama_model(name, spry_fields_string(fields, "model", "")), interface);
}

void spry_ollama_generate(spry_exchange *x)
{
    spry_fields fields;
    json_t *root;
    if (!spry_fields_open(&fields, &root, x, &spry_fields_ollama_generate))
        return;
    if (json_string_length(json_object_get(root, "prompt"))) {
        serve(x, root, &fields, &generate_interface);
        return;
    }
    load_or_unload(x, &fields, &generate_interface, "response", json_string(""));
    json_decref(root);
}

void spry_ollama_chat(spry_exchange *x)
{
    spry_fields fields;
    json_t *root;
    if (!spry_fields_open(&fields, &root, x, &spry_fields_ollama_chat))
        return;
    if (json_array_size(json_object_get(root, "messages"))) {
        serve(x, root, &fields, &chat_interface);
        return;
    }
    load_or_unload(x, &fields, &chat_interface, "message", message_json(SPRY_VIEW(""), SPRY_VIEW("")));
    json_decref(root);
}
