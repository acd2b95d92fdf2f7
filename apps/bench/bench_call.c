/* The time until the first call of a tool is complete: a question, one tool and the order to call it, through a
 * session. The answer is held to the tool's schema in the model's own syntax, and ends with the call. Nothing is cached
 * before. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench_runner.h"
#include "platform/clock.h"

enum { CALL_TOKENS = 256, CALL_TOKENS_MIN = 32 };

static const char conversation[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"What will the weather be like in Paris tomorrow?\"}],"
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"get_weather\","
    "\"description\": \"The weather of a day in a city\", \"parameters\": {\"type\": \"object\", \"properties\": {"
    "\"city\": {\"type\": \"string\", \"maxLength\": 40}, \"days\": {\"type\": \"integer\", \"minimum\": 0, "
    "\"maximum\": 9},"
    "\"unit\": {\"enum\": [\"celsius\", \"fahrenheit\"]}}, \"required\": [\"city\", \"days\", \"unit\"],"
    "\"additionalProperties\": false}}}], \"tool_choice\": \"required\", \"parallel_tool_calls\": false}";

static spry_status generate(spry_bench_runner *r, spry_bench_call *out, spry_session *session,
                            const spry_chat_prompt *prompt)
{
    spry_request request;
    spry_result result;
    size_t room = r->context > prompt->count ? r->context - prompt->count : 0;
    if (room < CALL_TOKENS_MIN)
        return spry_fail(r->error, SPRY_ERR_CONTEXT, "a context of %u tokens is too short for a call", r->context);
    if (!prompt->call_constraint)
        return spry_fail(r->error, SPRY_ERR_UNSUPPORTED, "the model has no calls of tools");
    spry_request_default(&request);
    request.prompt = prompt->ids;
    request.n_prompt = prompt->count;
    request.max_tokens = room < CALL_TOKENS ? (uint32_t)room : CALL_TOKENS;
    request.constraint = SPRY_TOOL_CALLS;
    request.constraint_text = prompt->call_constraint;
    request.speculation = SPRY_DRAFT_NONE;
    request.sampling.temperature = 0;
    spry_status status = spry_session_generate(session, &result, &request, r->error);
    if (!status && result.finish != SPRY_FINISH_END)
        status = spry_fail(r->error, SPRY_ERR_CONTEXT, "no call is complete after %zu tokens", result.generated_tokens);
    out->tokens = result.generated_tokens;
    return status;
}

static spry_status ask(spry_bench_runner *r, spry_bench_call *out, uint64_t salt)
{
    spry_chat_prompt prompt = {0};
    spry_session *session = NULL;
    uint64_t began = spry_clock_ns();
    spry_status status = spry_bench_go_on(r);
    if (!status)
        status = spry_session_create(&session, r->engine, r->error);
    if (!status)
        spry_session_set_salt(session, &salt, sizeof salt);
    if (!status)
        status = spry_engine_chat_prompt(r->engine, &prompt, conversation, sizeof conversation - 1, r->error);
    if (!status)
        status = generate(r, out, session, &prompt);
    out->ms = (double)(spry_clock_ns() - began) / 1e6;
    spry_session_destroy(session);
    spry_chat_prompt_deinit(&prompt);
    return status;
}

static int by_ms(const void *a, const void *b)
{
    const spry_bench_call *x = a, *y = b;
    return (x->ms > y->ms) - (x->ms < y->ms);
}

/* A model without calls, or with too short a context, is measured without this. */
spry_status spry_bench_measure_call(spry_bench_runner *r)
{
    spry_bench_call calls[SPRY_BENCH_REPEAT_MAX] = {0}, *out = &r->report->call;
    uint32_t repeat = r->settings->repeat;
    spry_status status = SPRY_OK;
    snprintf(r->doing, sizeof r->doing, "a call:");
    for (uint32_t i = 0; !status && i < repeat; i++)
        status = ask(r, &calls[i], SPRY_BENCH_REPEAT_MAX + i + 1);
    qsort(calls, repeat, sizeof *calls, by_ms);
    *out = calls[repeat / 2];
    r->measured++;
    if (status)
        snprintf(out->why_not, sizeof out->why_not, "%.*s", 150, r->error->message);
    return status == SPRY_ERR_CANCELLED || status == SPRY_ERR_MEMORY ? status : SPRY_OK;
}
