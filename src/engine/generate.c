/* One answer on a session: its generation is run step by step, alone. */
#include <string.h>

#include "base/sized.h"
#include "base/utf8.h"
#include "engine/engine_state.h"
#include "platform/clock.h"

enum { MAX_STOP_STRINGS = 64 };

void spry_request_default(spry_request *request)
{
    *request = (spry_request){.size = sizeof *request, .span_repair = SPRY_PAGE_TOKENS};
    spry_sampling_default(&request->sampling);
}

spry_status spry_request_read(spry_request *own, const spry_request *theirs, spry_error *error)
{
    spry_request_default(own);
    spry_status status = spry_sized_read(own, sizeof *own, theirs, "spry_request", error);
    if (!status && !spry_sized_zero(own->reserved, sizeof own->reserved))
        status = spry_fail(error, SPRY_ERR_INPUT, "spry_request.reserved is not zero");
    return status;
}

void spry_result_init(spry_result *result, const spry_request *request)
{
    *result = (spry_result){
        .size = offsetof(spry_result, reserved), .n_parts = SPRY_PART_COUNT, .prompt_tokens = request->n_prompt};
}

const char *spry_finish_name(spry_finish finish)
{
    static const char *const names[] = {[SPRY_FINISH_END] = "end",
                                        [SPRY_FINISH_STOP] = "stop",
                                        [SPRY_FINISH_LENGTH] = "length",
                                        [SPRY_FINISH_CONTEXT] = "context",
                                        [SPRY_FINISH_CANCELLED] = "cancelled"};
    return (size_t)finish < SPRY_COUNT(names) ? names[finish] : "unknown";
}

spry_status spry_engine_check_request(const spry_engine *e, const spry_request *r, bool slides, spry_error *error)
{
    if (!e->model->tokenizer)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s: the model comes without a tokenizer", e->model->name);
    if (r->n_stop > MAX_STOP_STRINGS)
        return spry_fail(error, SPRY_ERR_INPUT, "%zu stop strings are more than %d", r->n_stop, MAX_STOP_STRINGS);
    for (size_t i = 0; i < r->n_stop; i++)
        if (!r->stop[i][0] || !spry_utf8_valid(spry_view_of(r->stop[i])))
            return spry_fail(error, SPRY_ERR_INPUT, "stop string %zu is empty or not valid UTF-8", i + 1);
    if (r->logprobs > SPRY_TOP_LOGPROBS_MAX)
        return spry_fail(error, SPRY_ERR_INPUT, "logprobs is %u, more than %d", r->logprobs, SPRY_TOP_LOGPROBS_MAX);
    if (r->speculation == SPRY_DRAFT_MODEL && !e->drafter)
        return spry_fail(error, SPRY_ERR_INPUT, "the engine has no drafter; give it one or use lookup");
    spry_status status = spry_sampling_check(&r->sampling, e->model->config.n_vocab, error);
    return status ? status : spry_engine_check_ids(e, r->prompt, r->n_prompt, slides, error);
}

spry_status spry_session_prepare(spry_session *s, spry_generation *g, bool alone, spry_error *error)
{
    g->model = s->engine->model;
    g->sequence = &s->sequence;
    g->verifier = &s->verifier;
    spry_status status = spry_sampler_set(s->sampler, &g->request->sampling, error);
    return status ? status : spry_session_draft(s, g, alone, error);
}

void spry_engine_begin_laps(const spry_engine *e, spry_laps *laps, const spry_request *r)
{
    spry_laps_begin(laps, e->trace, r->lane ? r->lane : spry_trace_take_lane(e->trace), spry_clock_ns());
}

void spry_engine_end_laps(spry_laps *laps, const spry_request *r, spry_result *result)
{
    const spry_trace_span span = {.name = "answer",
                                  .category = "answer",
                                  .lane = laps->lane,
                                  .begin_ns = laps->began_ns,
                                  .end_ns = laps->last_ns,
                                  .args = {{"prompt_tokens", (int64_t)result->prompt_tokens},
                                           {"reused_tokens", (int64_t)result->reused_tokens},
                                           {"generated_tokens", (int64_t)result->generated_tokens}}};
    spry_laps_ms(laps, result->parts_ms);
    spry_trace_add(laps->trace, &span);
    if (!r->lane)
        spry_trace_leave_lane(laps->trace, laps->lane);
}

/* Steps until the answer is done. */
static spry_status run(spry_session *s, spry_generation *g, spry_error *error)
{
    spry_engine *e = s->engine;
    spry_status status = SPRY_OK;
    while (!status && !spry_generation_done(g)) {
        spry_segment segments[SPRY_STEP_SEGMENTS];
        size_t n, rows = 0;
        status = spry_generation_next(g, segments, &n, SPRY_STEP_SEGMENTS, e->chunk, SPRY_MAX_LOGIT_ROWS, 0, error);
        for (size_t i = 0; !status && i < n; i++)
            rows += segments[i].n_rows;
        if (status || !rows)
            continue;
        uint64_t start = spry_clock_ns();
        status = spry_device_run(e->device, segments, n, error);
        if (status)
            continue;
        uint64_t end = spry_clock_ns();
        spry_engine_stepped(e, rows, end - start);
        spry_generation_computed(g, start, end);
        const float *logits = NULL;
        status = spry_device_logits(e->device, &logits, 0, 0, error);
        if (!status)
            status = spry_generation_took(g, rows, logits, error);
    }
    return status;
}

spry_status spry_session_generate(spry_session *s, spry_result *result, const spry_request *theirs, spry_error *error)
{
    spry_request own, *r = &own;
    spry_laps laps;
    atomic_store(&s->cancelled, false);
    spry_status status = spry_request_read(r, theirs, error);
    spry_result_init(result, r);
    if (status)
        return status;
    spry_engine_begin_laps(s->engine, &laps, r);
    spry_generation g = {.request = r, .result = result, .cancelled = &s->cancelled, .laps = &laps};
    status = spry_engine_check_request(s->engine, r, s->sequence.slides, error);
    if (!status)
        status = spry_engine_make_matcher(s->engine, &g.matcher, r, error);
    spry_lap(&laps, SPRY_PART_GRAMMAR);
    if (!status)
        status = spry_session_prepare(s, &g, true, error);
    if (!status)
        status = spry_generation_begin(&g, error);
    if (!status)
        status = run(s, &g, error);
    spry_generation_end(&g);
    spry_engine_end_laps(&laps, r, result);
    spry_matcher_destroy(g.matcher);
    return status;
}
