/* The interface of llama-server. */
#include <stdlib.h>

#include "server/api/apis.h"
#include "server/api/openai_json.h"
#include "server/http/http_reply.h"
#include "server/request/prompt.h"
#include "server/status/watch.h"

enum { TEXT_BYTES_MAX = 256 << 20 };

/* ---- /completion: writing ---------------------------------------------------------------------------------------- */

static json_t *piece(const spry_completion *c, json_t *content, bool stop)
{
    return json_pack("{s:o, s:b, s:i, s:s}", "content", content, "stop", stop, "index", 0, "model", c->model->name);
}

static json_t *llama_timings(const spry_completion *c)
{
    const spry_result *r = &c->choices[0].job.result;
    size_t computed = r->prompt_tokens > r->reused_tokens ? r->prompt_tokens - r->reused_tokens : 0;
    json_t *timings = spry_completion_timings(c);
    json_t *theirs =
        json_pack("{s:I, s:f, s:f, s:I, s:f, s:f}", "prompt_n", (json_int_t)computed, "prompt_ms", r->prefill_ms,
                  "prompt_per_second", r->prefill_ms > 0 ? (double)computed / r->prefill_ms * 1e3 : 0.0, "predicted_n",
                  (json_int_t)r->generated_tokens, "predicted_ms", r->decode_ms, "predicted_per_second",
                  r->decode_ms > 0 ? (double)r->generated_tokens / r->decode_ms * 1e3 : 0.0);
    json_object_update(timings, theirs);
    json_decref(theirs);
    return timings;
}

static json_t *last_piece(const spry_completion *c, json_t *content)
{
    static const char *const stop_types[] = {[SPRY_FINISH_END] = "eos",
                                             [SPRY_FINISH_STOP] = "word",
                                             [SPRY_FINISH_LENGTH] = "limit",
                                             [SPRY_FINISH_CONTEXT] = "limit",
                                             [SPRY_FINISH_CANCELLED] = "none"};
    const spry_result *r = &c->choices[0].job.result;
    json_t *message = piece(c, content, true);
    json_t *more = json_pack("{s:s, s:I, s:I, s:I, s:b, s:o}", "stop_type", stop_types[r->finish], "tokens_predicted",
                             (json_int_t)r->generated_tokens, "tokens_evaluated", (json_int_t)r->prompt_tokens,
                             "tokens_cached", (json_int_t)r->reused_tokens, "truncated",
                             r->finish == SPRY_FINISH_CONTEXT, "timings", llama_timings(c));
    json_object_update(message, more);
    json_decref(more);
    if (c->options.want_logprobs) {
        const spry_choice *choice = &c->choices[0];
        json_t *all = spry_openai_chat_logprobs(c, choice->tokens, 0, choice->n_tokens);
        json_object_set(message, "completion_probabilities", json_object_get(all, "content"));
        json_decref(all);
    }
    return message;
}

static void write_delta(spry_completion *c, spry_choice *choice, const spry_chat_event *event)
{
    (void)choice;
    spry_completion_event(c, piece(c, spry_view_json(spry_event_text(event)), false));
}

static void close_choice(spry_completion *c, spry_choice *choice, bool last)
{
    (void)choice;
    (void)last;
    spry_completion_event(c, last_piece(c, json_string("")));
}

static json_t *whole(spry_completion *c)
{
    return last_piece(c, spry_buffer_json(&c->choices[0].content));
}

/* ---- /completion: reading ---------------------------------------------------------------------------------------- */

static spry_status make_prompt(spry_completion *c, spry_fields *fields, spry_error *error)
{
    const json_t *prompt = json_object_get(fields->object, "prompt");
    if (json_is_string(prompt))
        return spry_prompt_encode(&c->prompts.ids[0], c->model->engine,
                                  (spry_view){json_string_value(prompt), json_string_length(prompt)}, true, true,
                                  error);
    if (json_is_array(prompt))
        return spry_prompt_list(&c->prompts.ids[0], c->model->engine, prompt, "prompt", error);
    return spry_fail(error, SPRY_ERR_INPUT, "prompt must be a string or a list of token ids and strings");
}

static void read_options(spry_completion_options *o, spry_fields *fields)
{
    o->request.sampling.temperature = 0.8f;
    o->request.sampling.top_k = 40;
    o->request.sampling.top_p = 0.95f;
    o->request.sampling.min_p = 0.05f;
    spry_fields_sampling(o, fields);
    spry_fields_stop(o, fields);
    spry_fields_constraint(o, fields);
    int64_t predict = spry_fields_integer(fields, "n_predict", -1, -2, UINT32_MAX);
    o->request.max_tokens = predict < 0 ? 0 : (uint32_t)predict;
    o->no_answer = predict == 0;
    o->stream = spry_fields_bool(fields, "stream", false);
    o->request.ignore_end = spry_fields_bool(fields, "ignore_eos", false);
    o->request.logprobs = (uint32_t)spry_fields_integer(fields, "n_probs", 0, 0, SPRY_TOP_LOGPROBS_MAX);
    o->want_logprobs = o->request.logprobs != 0;
}

static const spry_completion_interface interface = {.id_prefix = "",
                                                    .read = read_options,
                                                    .make_prompts = make_prompt,
                                                    .whole = whole,
                                                    .stream_type = "text/event-stream",
                                                    .delta = write_delta,
                                                    .close_choice = close_choice};

void spry_llama_completion(spry_exchange *x)
{
    spry_openai_serve(x, &interface, &spry_fields_llama_completion);
}

/* ---- text and tokens --------------------------------------------------------------------------------------------- */

typedef struct text_call {
    spry_fields fields;
    json_t *root;
    const spry_pooled *model;
} text_call;

/* Reads the body and loads its model; false when a reply was given. */
static bool begin_text(text_call *call, spry_exchange *x)
{
    call->model = NULL;
    if (!spry_fields_open(&call->fields, &call->root, x))
        return false;
    const char *name = spry_fields_string(&call->fields, "model", NULL);
    if (spry_fields_fine(&call->fields, x))
        call->model = spry_completion_model(x, name);
    if (!call->model)
        json_decref(call->root);
    return call->model != NULL;
}

static void end_text(text_call *call, spry_exchange *x)
{
    spry_model_pool_release(x->server->pool, call->model);
    json_decref(call->root);
}

static json_t *tokens_json(const spry_tokens *tokens, const spry_engine *engine, bool pieces)
{
    json_t *list = json_array();
    for (size_t i = 0; i < tokens->count; i++) {
        json_t *id = json_integer(tokens->ids[i]);
        spry_view bytes;
        bytes.data = spry_engine_token_bytes(engine, tokens->ids[i], true, &bytes.size);
        if (pieces)
            id = json_pack("{s:o, s:o}", "id", id, "piece", spry_view_json(bytes));
        json_array_append_new(list, id);
    }
    return list;
}

void spry_llama_tokenize(spry_exchange *x)
{
    text_call call;
    spry_tokens tokens = {0};
    spry_error error;
    if (!begin_text(&call, x))
        return;
    const json_t *content = json_object_get(call.root, "content");
    bool begin = spry_fields_bool(&call.fields, "add_special", false);
    bool special = spry_fields_bool(&call.fields, "parse_special", true);
    bool pieces = spry_fields_bool(&call.fields, "with_pieces", false);
    if (!json_is_string(content))
        spry_fields_refuse(&call.fields, "content", "content must be a string");
    if (spry_fields_fine(&call.fields, x)) {
        spry_view text = {json_string_value(content), json_string_length(content)};
        if (spry_prompt_encode(&tokens, call.model->engine, text, special, begin, &error) == SPRY_OK)
            spry_reply_json(x, MHD_HTTP_OK,
                            json_pack("{s:o}", "tokens", tokens_json(&tokens, call.model->engine, pieces)));
        else
            spry_reply_failure(x, &error);
    }
    spry_tokens_deinit(&tokens);
    end_text(&call, x);
}

static spry_status decode(spry_buffer *out, const spry_engine *engine, const spry_tokens *ids, spry_error *error)
{
    size_t size = 0;
    spry_status status = spry_engine_detokenize(engine, NULL, 0, &size, ids->ids, ids->count, true, error);
    char *text = status == SPRY_OK && size ? spry_buffer_extend(out, size) : NULL;
    if (text)
        status = spry_engine_detokenize(engine, text, size, &size, ids->ids, ids->count, true, error);
    return status;
}

void spry_llama_detokenize(spry_exchange *x)
{
    text_call call;
    spry_tokens ids = {0};
    spry_buffer text;
    spry_error error;
    if (!begin_text(&call, x))
        return;
    spry_buffer_init(&text, TEXT_BYTES_MAX);
    const json_t *list = spry_fields_array(&call.fields, "tokens");
    if (!list)
        spry_fields_refuse(&call.fields, "tokens", "tokens must be a list of token ids");
    if (spry_fields_fine(&call.fields, x)) {
        spry_status status = spry_prompt_ids(&ids, call.model->engine, list, "tokens", false, &error);
        if (status == SPRY_OK)
            status = decode(&text, call.model->engine, &ids, &error);
        if (status == SPRY_OK)
            spry_reply_json(x, MHD_HTTP_OK, json_pack("{s:o}", "content", spry_buffer_json(&text)));
        else
            spry_reply_failure(x, &error);
    }
    spry_buffer_deinit(&text);
    spry_tokens_deinit(&ids);
    end_text(&call, x);
}

void spry_llama_apply_template(spry_exchange *x)
{
    text_call call;
    spry_buffer text;
    spry_error error;
    if (!begin_text(&call, x))
        return;
    spry_buffer_init(&text, TEXT_BYTES_MAX);
    const json_t *messages = spry_fields_array(&call.fields, "messages"),
                 *tools = spry_fields_array(&call.fields, "tools"),
                 *extra = spry_fields_object(&call.fields, "chat_template_kwargs");
    bool generate = spry_fields_bool(&call.fields, "add_generation_prompt", true);
    spry_fields_messages(&call.fields, messages);
    if (spry_fields_fine(&call.fields, x)) {
        if (spry_prompt_render(&text, call.model->engine, messages, tools, extra, generate, &error) == SPRY_OK)
            spry_reply_json(x, MHD_HTTP_OK, json_pack("{s:o}", "prompt", spry_buffer_json(&text)));
        else
            spry_reply_failure(x, &error);
    }
    spry_buffer_deinit(&text);
    end_text(&call, x);
}

/* ---- status ------------------------------------------------------------------------------------------------------ */

static json_t *batch_json(spry_exchange *x, const char *name)
{
    spry_model_status *models;
    size_t count;
    json_t *batch = NULL;
    if (!spry_registry_models(&x->server->registry, &models, &count, x->server->pool))
        return NULL;
    for (size_t i = 0; i < count && !batch; i++)
        if (strcmp(models[i].pool.name, name) == 0)
            batch = spry_watch_batch(&models[i]);
    free(models);
    return batch;
}

void spry_llama_props(spry_exchange *x)
{
    const spry_pooled *model = spry_completion_model(x, NULL);
    if (!model)
        return;
    spry_engine_info info;
    spry_engine_describe(model->engine, &info);
    spry_view source;
    source.data = spry_engine_chat_template(model->engine, false, &source.size);
    spry_reply_json(x, MHD_HTTP_OK,
                    json_pack("{s:s, s:o, s:{s:I}, s:I, s:s, s:o, s:s}", "model_alias", model->name, "chat_template",
                              spry_view_json(source), "default_generation_settings", "n_ctx", (json_int_t)info.context,
                              "n_params", (json_int_t)info.parameters, "architecture", info.architecture, "together",
                              batch_json(x, model->name), "build_info", "spry " SPRY_VERSION));
    spry_model_pool_release(x->server->pool, model);
}

void spry_llama_slots(spry_exchange *x)
{
    spry_reply_json(x, MHD_HTTP_OK, spry_watch_requests(x->server, x->key, false));
}
