#include "server/api/llama_json.h"

#include <math.h>

#include "server/api/openai_json.h"

const char *spry_llama_build(const spry_server *server)
{
    return spry_server_likes_llama(server) ? "b0-spry-" SPRY_VERSION : "spry-" SPRY_VERSION;
}

json_t *spry_llama_ids(const spry_choice *choice, size_t from, size_t to)
{
    json_t *list = json_array();
    for (size_t i = from; i < to; i++)
        json_array_append_new(list, json_integer(choice->tokens[i].token.id));
    return list;
}

json_t *spry_llama_probabilities(const spry_completion *c, const spry_choice *choice, size_t from, size_t to)
{
    json_t *all = spry_openai_chat_logprobs(c, choice->tokens, from, to);
    json_t *content = json_incref(json_object_get(all, "content"));
    json_decref(all);
    return content;
}

json_t *spry_llama_prompt_text(const spry_completion *c, const spry_choice *choice)
{
    const spry_tokens *ids = choice->prompt;
    spry_buffer text;
    size_t size = 0;
    spry_buffer_init(&text, SIZE_MAX / 2);
    spry_status status = spry_engine_detokenize(c->model->engine, NULL, 0, &size, ids->ids, ids->count, true, NULL);
    char *room = status == SPRY_OK && size ? spry_buffer_extend(&text, size) : NULL;
    if (room)
        (void)spry_engine_detokenize(c->model->engine, room, size, &size, ids->ids, ids->count, true, NULL);
    json_t *json = spry_buffer_json(&text);
    spry_buffer_deinit(&text);
    return json;
}

/* Tokens that end an answer, none of which is chosen under "ignore_eos". */
static void add_ends(json_t *bias, const spry_engine *engine)
{
    spry_engine_info info;
    spry_engine_describe(engine, &info);
    for (size_t id = 0; id < info.vocabulary; id++)
        if (spry_engine_is_end(engine, (int32_t)id))
            json_array_append_new(bias, json_pack("{s:I, s:n}", "token", (json_int_t)id, "bias"));
}

json_t *spry_llama_settings(const spry_completion_options *o)
{
    const spry_request *r = &o->request;
    const spry_sampling *s = &r->sampling;
    json_int_t limit = r->max_tokens ? (json_int_t)r->max_tokens : -1;
    json_t *stop = json_array();
    for (size_t i = 0; i < r->n_stop; i++)
        json_array_append_new(stop, json_string(r->stop[i]));
    json_t *bias = json_array();
    for (size_t i = 0; i < s->n_bias; i++)
        json_array_append_new(bias,
                              json_pack("{s:i, s:o}", "token", (int)s->bias[i].token, "bias",
                                        isfinite(s->bias[i].bias) ? json_real((double)s->bias[i].bias) : json_null()));
    if (r->ignore_end && o->engine)
        add_ends(bias, o->engine);
    json_t *settings = json_pack(
        "{s:I, s:I, s:I, s:f, s:I, s:f, s:f, s:f, s:f, s:I, s:f, s:f, s:I, s:I, s:b, s:b, s:o, s:o, s:s}", "n_predict",
        limit, "max_tokens", limit, "seed", (json_int_t)s->seed, "temperature", (double)s->temperature, "top_k",
        (json_int_t)s->top_k, "top_p", (double)s->top_p, "min_p", (double)s->min_p, "typical_p", (double)s->typical_p,
        "repeat_penalty", (double)s->repeat_penalty, "repeat_last_n", (json_int_t)s->penalty_window, "presence_penalty",
        (double)s->presence_penalty, "frequency_penalty", (double)s->frequency_penalty, "n_probs",
        (json_int_t)r->logprobs, "n_logit_bias", (json_int_t)json_array_size(bias), "ignore_eos", r->ignore_end,
        "stream", o->stream, "stop", stop, "logit_bias", bias, "grammar",
        r->constraint == SPRY_GBNF && r->constraint_text ? r->constraint_text : "");
    json_t *off =
        json_pack("{s:i, s:f, s:f, s:f, s:f, s:f, s:f}", "mirostat", 0, "dynatemp_range", 0.0, "xtc_probability", 0.0,
                  "dry_multiplier", 0.0, "top_n_sigma", -1.0, "adaptive_target", -1.0, "adaptive_decay", 0.0);
    json_object_update(settings, off); /* samplers that are never on */
    json_decref(off);
    return settings;
}
