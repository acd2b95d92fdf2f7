/* Jobs that answer: a generation on a session. */
#include "sched/driver.h"

static spry_status begin(spry_job *job, bool alone, spry_error *error)
{
    spry_answer *a = &job->answer;
    a->generation = (spry_generation){.request = &a->request,
                                      .result = &job->result,
                                      .matcher = a->matcher,
                                      .cancelled = job->cancelled,
                                      .laps = &job->laps};
    spry_result_init(&job->result, job->n_ids);
    spry_status status = spry_session_prepare(job->session, &a->generation, alone, error);
    a->drafter = a->generation.drafter;
    a->needs_quiet = a->drafter && a->drafter->self == job->engine->drafter;
    return status ? status : spry_generation_begin(&a->generation, error);
}

static bool decodes(const spry_job *job)
{
    return spry_generation_decodes(&job->answer.generation);
}

static spry_status next(spry_job *job, size_t *n, const spry_room *room, spry_error *error)
{
    spry_answer *a = &job->answer;
    a->generation.drafter = a->needs_quiet && !room->alone ? NULL : a->drafter;
    return spry_generation_next(&a->generation, room->segments, n, room->capacity, room->rows, room->logits,
                                room->other_rows, error);
}

static size_t draws_of(spry_job *job, spry_draw **draws, size_t first_logits)
{
    return spry_generation_draws(&job->answer.generation, draws, first_logits);
}

static bool ahead(const spry_job *job, spry_segment *segment, spry_draw *draw)
{
    return !atomic_load(job->cancelled) && spry_generation_ahead(&job->answer.generation, segment, draw);
}

static spry_status on_step_done(spry_job *job, const spry_rows *rows, spry_error *error)
{
    spry_generation *g = &job->answer.generation;
    spry_status status = spry_generation_on_step_done(g, rows->n_rows, error);
    job->past_prompt = g->first_ns != 0;
    return status;
}

static bool is_done(const spry_job *job)
{
    return spry_generation_done(&job->answer.generation);
}

/* Cancelling is a way to finish. */
static spry_status cancel(spry_job *job, spry_error *error)
{
    size_t n;
    if (job->begun) /* sees that it is cancelled, and ends */
        return spry_generation_next(&job->answer.generation, NULL, &n, 0, 0, 0, 0, error);
    job->result.finish = SPRY_FINISH_CANCELLED;
    return SPRY_OK;
}

static void suspend(spry_job *job)
{
    spry_generation_suspend(&job->answer.generation);
}

static spry_status resume(spry_job *job, spry_error *error)
{
    return spry_generation_resume(&job->answer.generation, error);
}

static void end(spry_job *job)
{
    spry_answer *a = &job->answer;
    a->generation.drafter = a->drafter; /* so that end() reports this drafter */
    spry_generation_end(&a->generation);
}

const spry_job_kind spry_answer_kind = {.name = "answer",
                                        .begin = begin,
                                        .decodes = decodes,
                                        .next = next,
                                        .draws = draws_of,
                                        .ahead = ahead,
                                        .on_step_done = on_step_done,
                                        .is_done = is_done,
                                        .cancel = cancel,
                                        .suspend = suspend,
                                        .resume = resume,
                                        .end = end};

spry_status spry_job_init_answer(spry_job *job, spry_engine *engine, const spry_request *request, spry_session *session,
                                 bool slides, spry_error *error)
{
    spry_job_init(job, engine, &spry_answer_kind, session);
    job->answer.request = *request;
    job->ids = request->prompt;
    job->n_ids = request->n_prompt;
    job->n_spans = request->n_spans;
    job->reuses = true;
    job->lane = request->lane;
    spry_result_init(&job->result, job->n_ids);
    spry_job_begin_laps(job);
    spry_status status = spry_engine_check_request(engine, request, slides, error);
    if (!status)
        status = spry_engine_make_matcher(engine, &job->answer.matcher, request, error);
    spry_lap(&job->laps, SPRY_PART_GRAMMAR);
    if (status)
        spry_job_end_laps(job);
    return status;
}
