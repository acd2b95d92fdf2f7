/* Requests of a mix: lengths are drawn, then texts of these lengths are written. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "bench/mix.h"

enum { REQUESTS_DEFAULT = 16, BEGIN_MAX = 160 };

/* ---- lengths ----------------------------------------------------------------------------------------------------- */

static uint32_t scaled(uint32_t tokens, double scale)
{
    double length = floor(tokens * scale + 0.5);
    return length < 1 ? 1 : length > SPRY_MIX_TOKENS_MAX ? SPRY_MIX_TOKENS_MAX : (uint32_t)length;
}

static uint32_t draw_length(const spry_mix_lengths *lengths, spry_random *random)
{
    double sum = 0;
    for (size_t i = 0; i < lengths->count; i++)
        sum += lengths->list[i].weight;
    double at = spry_random_unit(random) * sum;
    uint32_t tokens = lengths->list[0].tokens;
    for (size_t i = 0; i < lengths->count && at >= 0; i++) {
        tokens = lengths->list[i].weight > 0 ? lengths->list[i].tokens : tokens;
        at -= lengths->list[i].weight;
    }
    return tokens;
}

static size_t draw_system(const spry_mix *mix, spry_random *random)
{
    double sum = 0;
    size_t index = SPRY_MIX_NO_SYSTEM;
    for (size_t i = 0; i < mix->n_systems; i++)
        sum += mix->systems[i].weight;
    double at = spry_random_unit(random) * sum;
    for (size_t i = 0; i < mix->n_systems && at >= 0; i++) {
        index = mix->systems[i].weight > 0 ? i : index;
        at -= mix->systems[i].weight;
    }
    return index;
}

static void plan_request(spry_mix_request *r, const spry_mix *mix, size_t index, double scale, spry_random *random)
{
    if (mix->lines) {
        const spry_mix_line *line = &mix->lines[index % mix->n_lines];
        *r = (spry_mix_request){json_incref(line->messages), line->prompt_tokens, line->answer_tokens, line->system,
                                line->number};
    } else {
        *r = (spry_mix_request){.prompt_tokens = draw_length(&mix->prompts, random),
                                .answer_tokens = draw_length(&mix->answers, random),
                                .system = draw_system(mix, random)};
    }
    r->prompt_tokens = r->messages ? 0 : scaled(r->prompt_tokens, scale);
    r->answer_tokens = scaled(r->answer_tokens, scale);
}

static const spry_mix_system *system_of(const spry_mix_plan *plan, const spry_mix_request *r)
{
    return r->system < plan->mix->n_systems ? &plan->mix->systems[r->system] : NULL;
}

static spry_status check_request(spry_mix_plan *plan, const spry_mix_request *r, spry_error *error)
{
    const spry_mix_system *system = system_of(plan, r);
    uint32_t whole = r->prompt_tokens + r->answer_tokens;
    plan->longest = whole > plan->longest ? whole : plan->longest;
    if (!r->messages && system && scaled(system->tokens, plan->scale) >= r->prompt_tokens)
        return spry_fail(error, SPRY_ERR_INPUT,
                         "%s: a prompt of %u tokens has no room for the system prompt \"%s\" of %u", plan->mix->name,
                         r->prompt_tokens, system->name, scaled(system->tokens, plan->scale));
    return SPRY_OK;
}

spry_status spry_mix_plan_init(spry_mix_plan *plan, const spry_mix *mix, size_t count, double scale, uint64_t seed,
                               spry_error *error)
{
    spry_random random;
    spry_status status = SPRY_OK;
    size_t usual = mix->lines ? mix->n_lines : REQUESTS_DEFAULT;
    *plan = (spry_mix_plan){.mix = mix, .scale = scale, .seed = seed};
    count = count ? count : usual;
    plan->list = calloc(count, sizeof *plan->list);
    if (!plan->list)
        return spry_fail_memory(error, "requests", count * sizeof *plan->list);
    plan->count = count;
    spry_random_seed(&random, seed);
    for (size_t i = 0; !status && i < count; i++) {
        plan_request(&plan->list[i], mix, i, scale, &random);
        status = check_request(plan, &plan->list[i], error);
    }
    return status;
}

void spry_mix_plan_deinit(spry_mix_plan *plan)
{
    for (size_t i = 0; i < plan->count; i++)
        json_decref(plan->list[i].messages);
    free(plan->list);
    *plan = (spry_mix_plan){.count = 0};
}

/* ---- texts ------------------------------------------------------------------------------------------------------- */

static const char *const words[] = {"river",  "small",  "house",  "under",   "green",  "morning", "paper",  "letter",
                                    "walks",  "slow",   "stone",  "bread",   "winter", "seven",   "light",  "where",
                                    "garden", "number", "silver", "carry",   "above",  "window",  "quiet",  "market",
                                    "bring",  "cloud",  "often",  "between", "horse",  "wooden",  "street", "again"};

typedef struct writer {
    spry_mix_plan *plan;
    spry_engine *engine;
    char *systems[SPRY_MIX_SYSTEMS_MAX + 1]; /* texts; the last one is none */
    size_t around[SPRY_MIX_SYSTEMS_MAX + 1]; /* tokens of a prompt beside the user's, 0: not known yet */
    spry_error *error;
} writer;

/* A text of about `tokens` tokens that begins with `begin`; the caller frees it. */
static spry_status write_text(writer *w, char **out, const char *begin, size_t tokens, uint64_t seed)
{
    spry_random random;
    spry_buffer text;
    int32_t *ids = malloc(tokens * sizeof *ids);
    size_t count = 0, size = 0;
    spry_random_seed(&random, seed);
    spry_buffer_init(&text, SIZE_MAX / 2);
    spry_buffer_text(&text, begin);
    for (size_t i = 0; i < tokens; i++) /* a word is a token or more */
        spry_buffer_format(&text, " %s", words[spry_random_next(&random) % SPRY_COUNT(words)]);
    *out = malloc(text.size + 1);
    spry_status status = ids && *out && !text.failed ? spry_engine_tokenize(w->engine, ids, tokens, &count, text.data,
                                                                            text.size, false, w->error)
                                                     : spry_fail_memory(w->error, "a prompt", tokens);
    count = count < tokens ? count : tokens;
    if (!status)
        status = spry_engine_detokenize(w->engine, *out, text.size + 1, &size, ids, count, false, w->error);
    if (!status)
        (*out)[size < text.size ? size : text.size] = '\0';
    spry_buffer_deinit(&text);
    free(ids);
    return status;
}

static json_t *messages_of(const char *system, const char *user)
{
    json_t *last = json_pack("{s:s, s:s}", "role", "user", "content", user);
    return system ? json_pack("[{s:s, s:s}, o]", "role", "system", "content", system, last) : json_pack("[o]", last);
}

/* The tokens of the prompt that the engine's template makes. */
static spry_status count_tokens(writer *w, size_t *count, const json_t *messages)
{
    spry_chat_prompt prompt = {0};
    json_t *body = json_pack("{s:O}", "messages", messages);
    char *text = body ? json_dumps(body, 0) : NULL;
    spry_status status = text ? spry_engine_chat_prompt(w->engine, &prompt, text, strlen(text), w->error)
                              : spry_fail(w->error, SPRY_ERR_INPUT, "a message is not text in UTF-8");
    *count = prompt.count;
    spry_chat_prompt_deinit(&prompt);
    free(text);
    json_decref(body);
    return status;
}

static spry_status write_system(writer *w, const spry_mix_request *r)
{
    const spry_mix_system *system = system_of(w->plan, r);
    size_t slot = system ? r->system : SPRY_MIX_SYSTEMS_MAX;
    char begin[BEGIN_MAX];
    spry_status status = SPRY_OK;
    if (w->around[slot])
        return SPRY_OK;
    if (system) {
        snprintf(begin, sizeof begin, "Run %llx. You are %s.", (unsigned long long)w->plan->run, system->name);
        status = write_text(w, &w->systems[slot], begin, scaled(system->tokens, w->plan->scale), w->plan->seed + slot);
    }
    json_t *messages = status ? NULL : messages_of(w->systems[slot], "x");
    if (!status)
        status = count_tokens(w, &w->around[slot], messages);
    json_decref(messages);
    return status;
}

static spry_status write_request(writer *w, spry_mix_request *r, size_t index)
{
    size_t slot = r->system < SPRY_MIX_SYSTEMS_MAX ? r->system : SPRY_MIX_SYSTEMS_MAX;
    char begin[BEGIN_MAX], *text = NULL;
    spry_status status = write_system(w, r);
    if (status)
        return status;
    size_t tokens = r->prompt_tokens > w->around[slot] ? r->prompt_tokens - w->around[slot] + 1 : 1;
    snprintf(begin, sizeof begin, "Request %zu of run %llx:", index + 1, (unsigned long long)w->plan->run);
    status = write_text(w, &text, begin, tokens, w->plan->seed + SPRY_MIX_SYSTEMS_MAX + 1 + index);
    if (!status)
        r->messages = messages_of(w->systems[slot], text);
    if (!status && !r->messages)
        status = spry_fail(w->error, SPRY_ERR_UNSUPPORTED, "the model's tokens do not give back a text in UTF-8");
    free(text);
    return status;
}

static spry_status write_requests(writer *w, size_t context)
{
    spry_status status = SPRY_OK;
    for (size_t i = 0; !status && i < w->plan->count; i++) {
        spry_mix_request *r = &w->plan->list[i];
        size_t count = 0;
        if (!r->messages)
            status = write_request(w, r, i);
        if (!status)
            status = count_tokens(w, &count, r->messages);
        if (!status && count + r->answer_tokens > context)
            status = spry_fail(w->error, SPRY_ERR_CONTEXT,
                               "%zu tokens of prompt and %u of the answer pass the context of %zu (--context)", count,
                               r->answer_tokens, context);
        r->prompt_tokens = (uint32_t)count;
        char where[SPRY_MIX_NAME + 64];
        snprintf(where, sizeof where, r->line ? "%s, line %zu" : "%s, request %zu", w->plan->mix->name,
                 r->line ? r->line : i + 1);
        if (status)
            spry_fail_prefix(w->error, status, where);
    }
    return status;
}

spry_status spry_mix_plan_write(spry_mix_plan *plan, spry_engine *engine, uint64_t run, spry_error *error)
{
    writer w = {.plan = plan, .engine = engine, .error = error};
    spry_engine_info info;
    spry_engine_describe(engine, &info);
    plan->run = run;
    spry_status status = write_requests(&w, info.context);
    for (size_t i = 0; i < SPRY_COUNT(w.systems); i++)
        free(w.systems[i]);
    return status;
}
