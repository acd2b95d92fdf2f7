/* The kinds of jobs: answers, evaluations, embeddings. */
#include <string.h>

#include "platform/clock.h"
#include "sched/driver.h"

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static void init_result(spry_job *job)
{
    const spry_request *r = &job->answer.request;
    spry_result_init(&job->result, job->n_ids);
    for (size_t i = 0; i < r->n_pictures; i++)
        job->result.picture_tokens += r->pictures[i].picture->n_rows;
}

static spry_status begin(spry_job *job, bool alone, spry_error *error)
{
    spry_answer *a = &job->answer;
    a->generation = (spry_generation){.request = &a->request,
                                      .result = &job->result,
                                      .matcher = a->matcher,
                                      .cancelled = job->cancelled,
                                      .laps = &job->laps};
    init_result(job);
    spry_status status = spry_session_prepare(job->session, &a->generation, alone, error);
    a->drafter = a->generation.drafter;
    a->needs_quiet = a->drafter && (a->drafter->self == job->engine->drafter || a->drafter->read);
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
    const spry_drafter *drafter = job->answer.drafter;
    spry_status status = spry_generation_on_step_done(g, rows->n_rows, error);
    if (!status && drafter && drafter->read)
        drafter->read(drafter->self, g->sequence, rows->segments, rows->n_segments, rows->first_tap);
    job->past_prompt = g->first_ns != 0;
    return status;
}

static bool is_done(const spry_job *job)
{
    return spry_generation_done(&job->answer.generation);
}

/* A cancelled answer is finished, not failed. */
static spry_status cancel(spry_job *job, spry_error *error)
{
    size_t n;
    if (job->begun) /* a running job is cancelled, and ends by itself */
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

/* ---- evaluations and embeddings ---------------------------------------------------------------------------------- */

/* Jobs that read a list of ids: evaluations give logits or log probabilities, embeddings sum hidden states. If the
 * model's rows see the whole text, the text is computed in one step. */

static spry_sequence *sequence_of(const spry_job *job)
{
    return &job->session->sequence;
}

static spry_status reading_begin(spry_job *job, bool alone, spry_error *error)
{
    spry_reading *r = &job->reading;
    spry_found found = {0};
    (void)alone;
    r->start_ns = spry_clock_ns();
    spry_status status = r->append ? spry_sequence_append(sequence_of(job), r->prompt.ids, r->prompt.count, error)
                                   : spry_sequence_begin(sequence_of(job), &found, &r->prompt, error);
    uint64_t now = spry_clock_ns();
    spry_lap_until(&job->laps, SPRY_PART_LOOKUP, now - found.restore_ns);
    spry_lap_until(&job->laps, SPRY_PART_RESTORE, now);
    job->result.reused_tokens = found.reused;
    job->result.restored_tokens = found.restored;
    job->result.span_tokens = found.spans;
    job->result.repaired_tokens = found.repaired;
    job->result.lookup_ms = (double)(found.lookup_ns - found.restore_ns) / 1e6;
    job->result.restore_ms = (double)found.restore_ns / 1e6;
    return status;
}

static bool reading_decodes(const spry_job *job)
{
    (void)job;
    return false;
}

static size_t done_of(const spry_job *job)
{
    size_t left = spry_sequence_pending(sequence_of(job)), whole = job->reading.prompt.count;
    return left < whole ? whole - left : 0;
}

static spry_status reading_next(spry_job *job, size_t *n, const spry_room *room, spry_error *error)
{
    const spry_reading *r = &job->reading;
    const spry_sequence *s = sequence_of(job);
    size_t last = (r->append ? s->n_tokens : r->prompt.count) - 1;
    size_t from = r->want == SPRY_WANT_LAST ? last : r->want == SPRY_WANT_ALL ? r->next : SIZE_MAX;
    spry_lap(&job->laps, SPRY_PART_OTHERS);
    if (job->engine->model->config.bidirectional && spry_sequence_pending(s) > room->rows) {
        *n = 0; /* the whole text, or nothing of it */
        return SPRY_OK;
    }
    spry_status status = spry_sequence_fill(sequence_of(job), room->segments, n, room->capacity, room->rows, from,
                                            r->want == SPRY_WANT_HIDDEN ? 0 : room->logits, error);
    for (size_t i = 0; !status && r->want == SPRY_WANT_HIDDEN && i < *n; i++)
        if (room->segments[i].first_position + room->segments[i].n_rows > r->next)
            room->segments[i].want = SPRY_WANT_HIDDEN;
    spry_lap(&job->laps, SPRY_PART_DRAFT);
    return status;
}

static size_t reading_draws_of(spry_job *job, spry_draw **draws, size_t first_logits)
{
    spry_reading *r = &job->reading;
    if (!r->draw || !job->rows.n_logits)
        return 0;
    r->draw->row = first_logits;
    draws[0] = r->draw;
    return 1;
}

/* ---- results of rows --------------------------------------------------------------------------------------------- */

static bool report_token(const spry_reading *r, size_t index, const float *logits, size_t n_vocab)
{
    int32_t id = r->prompt.ids[index];
    spry_logprob_entry top[SPRY_TOP_LOGPROBS_MAX], token = {id, spry_logprob(logits, n_vocab, id)};
    size_t n = r->n_top ? spry_logprob_top(top, r->n_top, logits, n_vocab, (double)logits[id] - token.logprob) : 0;
    return r->on_token(r->user, index, token, top, n);
}

/* Reports the rows from r->next on. */
static void report_rows(spry_job *job, const float *logits)
{
    spry_reading *r = &job->reading;
    size_t done = done_of(job), n_vocab = job->engine->model->config.n_vocab;
    for (; r->next < done && !atomic_load(&job->freed); logits += n_vocab) {
        r->stopped = r->on_row && !r->on_row(r->user, r->next, logits);
        if (!r->stopped && r->on_token && r->next + 1 < r->prompt.count)
            r->stopped = !report_token(r, r->next + 1, logits, n_vocab);
        if (r->stopped)
            return;
        r->next++;
    }
}

/* True if a row's hidden state is a part of the embedding. */
static bool is_pooled(const spry_job *job, size_t row)
{
    spry_pool_kind kind = job->engine->model->pooling.kind;
    return kind == SPRY_POOL_MEAN || row == (kind == SPRY_POOL_FIRST ? 0 : job->reading.prompt.count - 1);
}

/* Adds the rows one by one in order, in double precision: steps of any size give the same bits. */
static void add_rows(spry_job *job, const float *hidden, size_t n_hidden)
{
    spry_reading *r = &job->reading;
    size_t done = done_of(job), first = done - n_hidden, width = job->engine->model->config.n_embd;
    for (; r->next < done; r->next++)
        for (size_t k = 0; k < width && is_pooled(job, r->next); k++)
            r->sum[k] += (double)hidden[(r->next - first) * width + k];
}

static spry_status cancelled(const spry_job *job, spry_error *error)
{
    const spry_reading *r = &job->reading;
    if (r->stopped)
        return spry_fail(error, SPRY_ERR_CANCELLED, "cancelled after %zu of %zu rows", r->next, r->prompt.count);
    return spry_fail(error, SPRY_ERR_CANCELLED, "cancelled after %zu of %zu prompt tokens",
                     job->begun ? done_of(job) : 0, r->prompt.count);
}

static spry_status reading_on_step_done(spry_job *job, const spry_rows *rows, spry_error *error)
{
    spry_reading *r = &job->reading;
    spry_sequence *s = sequence_of(job);
    spry_device *device = job->engine->device;
    const float *values = NULL;
    spry_status status = SPRY_OK;
    spry_lap(&job->laps, SPRY_PART_OTHERS);
    if (r->want == SPRY_WANT_HIDDEN)
        status = spry_device_hidden(device, &values, rows->first_hidden, rows->n_hidden, error);
    else if (rows->n_logits && (r->logits || r->want == SPRY_WANT_ALL))
        status = spry_device_logits(device, &values, rows->first_logits, rows->n_logits, error);
    if (status)
        return status;
    spry_sequence_computed(s, rows->n_rows, 0);
    if (r->want == SPRY_WANT_ALL)
        report_rows(job, values);
    else if (r->want == SPRY_WANT_HIDDEN)
        add_rows(job, values, rows->n_hidden);
    else if (values)
        memcpy(r->logits, values, job->engine->model->config.n_vocab * sizeof *r->logits);
    spry_lap(&job->laps, SPRY_PART_SAMPLING);
    if (r->draw && rows->n_logits && r->draw->status) {
        *error = r->draw->error;
        return r->draw->status;
    }
    if (r->stopped)
        return cancelled(job, error);
    bool whole = job->embedding && !spry_sequence_pending(s);
    const spry_model *model = job->engine->model;
    return whole ? spry_pooling_finish(&model->pooling, job->embedding, r->sum, r->prompt.count, model->config.n_embd,
                                       error)
                 : SPRY_OK;
}

static bool reading_is_done(const spry_job *job)
{
    return !spry_sequence_pending(sequence_of(job));
}

static spry_status reading_cancel(spry_job *job, spry_error *error)
{
    job->result.finish = SPRY_FINISH_CANCELLED;
    return cancelled(job, error);
}

/* ---- suspending and resuming ------------------------------------------------------------------------------------- */

static void reading_suspend(spry_job *job)
{
    job->reading.n_held = sequence_of(job)->n_tokens;
    spry_sequence_release(sequence_of(job));
}

static spry_status reading_resume(spry_job *job, spry_error *error)
{
    const spry_reading *r = &job->reading;
    spry_sequence *s = sequence_of(job);
    spry_found found;
    spry_prompt prompt = r->prompt;
    if (r->append)
        prompt = (spry_prompt){.ids = s->tokens, .count = r->n_held, .compute_from = r->n_held - 1};
    else if (r->want != SPRY_WANT_LAST)
        prompt.compute_from = r->next;
    spry_status status = spry_sequence_begin(s, &found, &prompt, error);
    spry_lap(&job->laps, SPRY_PART_LOOKUP);
    return status;
}

static void reading_end(spry_job *job)
{
    spry_sequence_stop(sequence_of(job));
    job->result.prefill_ms = job->result.total_ms = (double)(spry_clock_ns() - job->reading.start_ns) / 1e6;
}

static const spry_job_kind reading_kind = {.begin = reading_begin,
                                           .decodes = reading_decodes,
                                           .next = reading_next,
                                           .draws = reading_draws_of,
                                           .on_step_done = reading_on_step_done,
                                           .is_done = reading_is_done,
                                           .cancel = reading_cancel,
                                           .suspend = reading_suspend,
                                           .resume = reading_resume,
                                           .end = reading_end};

void spry_job_init_reading(spry_job *job, spry_engine *engine, const spry_prompt *prompt, spry_want want,
                           spry_session *session)
{
    spry_job_init(job, engine, &reading_kind, session);
    job->reading = (spry_reading){.prompt = *prompt, .want = want, .next = prompt->compute_from};
    job->ids = prompt->ids;
    job->n_ids = prompt->count;
    job->n_spans = prompt->n_spans;
    job->reuses = prompt->compute_from >= SPRY_PAGE_TOKENS;
    spry_result_init(&job->result, prompt->count);
}
