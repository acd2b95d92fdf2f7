/* What decoding is like where the device draws the tokens itself: speed, how often the host waits for it, and how many
 * steps begin before the tokens of the step before are read. Points are measured without draws, so they do not tell. */
#include <stdio.h>
#include <string.h>

#include "bench/bench_runner.h"

enum { PROMPT = 32 };

static spry_status ask(spry_bench_runner *r, spry_session *session)
{
    spry_bench_answer *answer = &r->report->answer;
    spry_jobs_figures before, after;
    spry_request request;
    spry_result result;
    spry_request_default(&request);
    request.prompt = r->ids;
    request.n_prompt = PROMPT;
    request.max_tokens = r->settings->tokens;
    request.ignore_end = true;
    request.speculation = SPRY_DRAFT_NONE;
    request.sampling.temperature = 0;
    spry_engine_jobs_figures(r->engine, &before);
    spry_status status = spry_session_generate(session, &result, &request, r->error);
    spry_engine_jobs_figures(r->engine, &after);
    if (status || result.generated_tokens < 2)
        return status;
    *answer = (spry_bench_answer){
        .tokens = result.generated_tokens,
        .ms = result.decode_ms,
        .waits = (double)(after.waits - before.waits) / (double)result.generated_tokens,
        .ahead = spry_bench_ratio((double)(after.ahead - before.ahead), (double)(after.steps - before.steps))};
    return SPRY_OK;
}

/* The first answer warms up. A model that cannot answer is measured without this. */
spry_status spry_bench_measure_answer(spry_bench_runner *r)
{
    spry_session *session = NULL;
    if (!strcmp(r->report->device, "cpu") || r->context < PROMPT + r->settings->tokens || r->n_ids < PROMPT)
        return SPRY_OK;
    snprintf(r->doing, sizeof r->doing, "an answer:");
    spry_status status = spry_bench_go_on(r);
    for (int i = 0; !status && i < 2; i++) {
        status = spry_session_create(&session, r->engine, r->error);
        if (!status)
            status = ask(r, session);
        spry_session_destroy(session);
        session = NULL;
    }
    return status == SPRY_ERR_CANCELLED || status == SPRY_ERR_MEMORY ? status : SPRY_OK;
}
