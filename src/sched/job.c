/* Jobs as programs see them: handles that are created, submitted, waited for, cancelled and freed; and the queue of
 * waiting jobs, in which clients take turns. */
#include "sched/job.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "engine/engine_state.h"
#include "platform/clock.h"
#include "platform/threads.h"
#include "sched/driver.h"
#include "spry_serve.h"

/* ---- the queue --------------------------------------------------------------------------------------------------- */

spry_status spry_job_queue_resize(spry_job_queue *queue, size_t capacity, spry_error *error)
{
    spry_client_jobs *turns = calloc(capacity ? capacity : 1, sizeof *turns);
    if (!turns)
        return spry_fail_memory(error, "a queue", capacity * sizeof *turns);
    free(queue->turns);
    queue->turns = turns;
    queue->capacity = capacity;
    return SPRY_OK;
}

void spry_job_queue_deinit(spry_job_queue *queue)
{
    free(queue->turns);
    *queue = (spry_job_queue){0};
}

static void append(spry_job_list *list, spry_job *job)
{
    job->next = NULL;
    if (list->last)
        list->last->next = job;
    else
        list->first = job;
    list->last = job;
}

/* Removes the job after `before` from a list; NULL: the first job. */
static spry_job *unlink_after(spry_job_list *list, spry_job *before)
{
    spry_job *job = before ? before->next : list->first;
    if (!job)
        return NULL;
    if (before)
        before->next = job->next;
    else
        list->first = job->next;
    if (list->last == job)
        list->last = before;
    job->next = NULL;
    return job;
}

static void remove_turn(spry_job_queue *queue, size_t at)
{
    queue->n_turns--;
    memmove(queue->turns + at, queue->turns + at + 1, (queue->n_turns - at) * sizeof *queue->turns);
}

void spry_job_queue_add(spry_job_queue *queue, spry_job *job)
{
    size_t at = 0;
    while (at < queue->n_turns && (queue->turns[at].client != job->client || queue->turns[at].batch != job->batch))
        at++;
    if (at == queue->n_turns)
        queue->turns[queue->n_turns++] = (spry_client_jobs){.client = job->client, .batch = job->batch};
    append(&queue->turns[at].jobs, job);
    queue->count++;
}

/* The index of the first turn, or of the first one that does not belong to batch jobs. */
static size_t next_turn(const spry_job_queue *queue)
{
    for (size_t i = 0; i < queue->n_turns; i++)
        if (!queue->turns[i].batch)
            return i;
    return 0;
}

bool spry_job_queue_is_urgent(const spry_job_queue *queue)
{
    return queue->n_turns && !queue->turns[next_turn(queue)].batch;
}

size_t spry_job_queue_before(const spry_job_queue *queue)
{
    size_t count = 0;
    bool urgent = spry_job_queue_is_urgent(queue);
    for (const spry_job *job = queue->ahead.first; job; job = job->next)
        count += !(urgent && job->batch);
    return count;
}

spry_job *spry_job_queue_take(spry_job_queue *queue)
{
    if (!queue->n_turns)
        return NULL;
    size_t at = next_turn(queue);
    spry_client_jobs turn = queue->turns[at];
    spry_job *job = unlink_after(&turn.jobs, NULL);
    remove_turn(queue, at);
    if (turn.jobs.first) /* the client's next turn is after those of all others */
        queue->turns[queue->n_turns++] = turn;
    queue->count--;
    return job;
}

void spry_job_queue_put_back(spry_job_queue *queue, spry_job *job)
{
    job->next = queue->ahead.first;
    queue->ahead.first = job;
    if (!queue->ahead.last)
        queue->ahead.last = job;
    queue->n_ahead++;
    queue->count++;
}

void spry_job_queue_park(spry_job_queue *queue, spry_job *job)
{
    append(&queue->ahead, job);
    queue->n_ahead++;
    queue->count++;
}

/* Removes the first job of a list for which `wanted` is true. */
static spry_job *take_first(spry_job_list *list, bool (*wanted)(const void *context, const spry_job *job),
                            const void *context)
{
    spry_job *before = NULL;
    for (spry_job *job = list->first; job; before = job, job = job->next)
        if (wanted(context, job))
            return unlink_after(list, before);
    return NULL;
}

spry_job *spry_job_queue_take_ready(spry_job_queue *queue, bool (*ready)(const void *context, const spry_job *job),
                                    const void *context)
{
    spry_job *job = take_first(&queue->ahead, ready, context);
    queue->n_ahead -= job != NULL;
    queue->count -= job != NULL;
    return job;
}

static bool is_cancelled(const void *context, const spry_job *job)
{
    (void)context;
    return atomic_load(job->cancelled);
}

spry_job *spry_job_queue_take_cancelled(spry_job_queue *queue)
{
    spry_job *job = spry_job_queue_take_ready(queue, is_cancelled, NULL);
    if (job)
        return job;
    for (size_t i = 0; !job && i < queue->n_turns; i++) {
        job = take_first(&queue->turns[i].jobs, is_cancelled, NULL);
        if (job && !queue->turns[i].jobs.first)
            remove_turn(queue, i);
    }
    queue->count -= job != NULL;
    return job;
}

/* ---- handles ----------------------------------------------------------------------------------------------------- */

/* ---- internals --------------------------------------------------------------------------------------------------- */

void spry_job_init(spry_job *job, spry_engine *engine, const spry_job_kind *kind, spry_session *session)
{
    *job = (spry_job){.engine = engine, .kind = kind, .session = session, .is_callers = session != NULL};
    atomic_init(&job->own_cancelled, false);
    job->cancelled = &job->own_cancelled;
    if (session)
        job->cancelled = &session->cancelled;
    spry_laps_begin(&job->laps, NULL, 0, spry_clock_ns());
}

void spry_job_deinit(spry_job *job)
{
    if (job->kind != &spry_answer_kind)
        return;
    spry_matcher_destroy(job->answer.matcher);
    for (size_t i = 0; job->answer.keeps_pictures && i < job->answer.request.n_pictures; i++)
        spry_picture_unref(job->answer.request.pictures[i].picture);
}

void spry_job_destroy(spry_job *job)
{
    spry_job_end_laps(job);
    spry_job_deinit(job);
    spry_arena_deinit(&job->arena);
    free(job);
}

void spry_job_begin_laps(spry_job *job)
{
    spry_trace *trace = job->engine->trace;
    uint64_t now_ns = spry_clock_ns();
    spry_laps_begin(&job->laps, trace, job->lane ? job->lane : spry_trace_take_lane(trace, now_ns), now_ns);
}

void spry_job_end_laps(spry_job *job)
{
    const spry_result *r = &job->result;
    const spry_trace_span span = {.name = job->kind->name,
                                  .category = job->kind->name,
                                  .lane = job->laps.lane,
                                  .begin_ns = job->laps.began_ns,
                                  .end_ns = job->laps.last_ns,
                                  .args = {{"prompt_tokens", (int64_t)r->prompt_tokens},
                                           {"reused_tokens", (int64_t)r->reused_tokens},
                                           {"generated_tokens", (int64_t)r->generated_tokens}}};
    spry_laps_ms(&job->laps, job->result.parts_ms);
    if (!job->laps.trace)
        return;
    spry_trace_add(job->laps.trace, &span);
    if (!job->lane)
        spry_trace_leave_lane(job->laps.trace, job->laps.lane, job->laps.last_ns);
    job->laps.trace = NULL;
}

/* ---- creating ---------------------------------------------------------------------------------------------------- */

void spry_job_options_default_sized(spry_job_options *options, size_t size)
{
    const spry_job_options own = {0};
    spry_sized_default(options, size, &own, sizeof own);
}

void spry_evaluation_default_sized(spry_evaluation *evaluation, size_t size)
{
    const spry_evaluation own = {.span_repair = SPRY_PAGE_TOKENS};
    spry_sized_default(evaluation, size, &own, sizeof own);
}

/* Copies memory to the job's arena; false: memory is short. */
static bool keep(spry_job *job, void *pointer_to, size_t count, size_t size)
{
    const void *from;
    memcpy(&from, pointer_to, sizeof from);
    void *copy = spry_arena_alloc(&job->arena, count ? count : 1, size);
    if (copy && count)
        memcpy(copy, from, count * size);
    memcpy(pointer_to, &copy, sizeof copy);
    return copy;
}

/* Creates a handle that is still to be initialised, and reads the options; *options is set to what they mean. */
static spry_status make(spry_job **out, spry_engine *engine, spry_job_options *own, const spry_job_options *options,
                        spry_error *error)
{
    spry_job_options_default(own);
    spry_status status = options ? spry_sized_read(own, sizeof *own, options, "spry_job_options", error) : SPRY_OK;
    if (!status && own->session && own->session->engine != engine)
        status = spry_fail(error, SPRY_ERR_INPUT, "the session belongs to another engine");
    if (status)
        return status;
    *out = calloc(1, sizeof **out);
    return *out ? SPRY_OK : spry_fail_memory(error, "a job", sizeof **out);
}

static spry_status set_options(spry_job *job, const spry_job_options *o, spry_error *error)
{
    spry_status status = SPRY_OK;
    job->is_handle = true;
    job->cancelled = &job->own_cancelled;
    if (!o->session) {
        status = spry_engine_page_source(job->engine, &job->source, o->salt, o->salt_size, o->lora, error);
        job->root = job->source.root;
        job->slide = o->slide;
        job->keep = o->keep;
    }
    job->client = o->client;
    job->batch = o->batch != 0;
    job->on_done = o->on_done;
    job->user = o->user;
    return status;
}

/* Gives the job to the caller, or destroys it if it failed. */
static spry_status give(spry_job **out, spry_job *job, spry_status status)
{
    spry_driver *d = job->engine->driver;
    if (status) {
        spry_job_destroy(job);
        return status;
    }
    pthread_mutex_lock(&d->lock);
    d->n_handles++;
    pthread_mutex_unlock(&d->lock);
    *out = job;
    return SPRY_OK;
}

static bool on_text(void *user, const char *text, size_t size)
{
    spry_job *job = user;
    const spry_request *c = &job->callbacks;
    return !job->freed && (!c->on_text || c->on_text(c->user, text, size)) && !job->freed;
}

static bool on_token(void *user, spry_logprob_entry token, const spry_logprob_entry *top, size_t n_top)
{
    spry_job *job = user;
    const spry_request *c = &job->callbacks;
    return !job->freed && c->on_token(c->user, token, top, n_top) && !job->freed;
}

static bool on_prefill(void *user, size_t done, size_t total)
{
    spry_job *job = user;
    const spry_request *c = &job->callbacks;
    return !job->freed && c->on_prefill(c->user, done, total) && !job->freed;
}

/* Copies everything that the request points to, and replaces its callbacks by the job's: a job that is freed in a
 * callback then calls no other one. */
static spry_status keep_request(spry_job *job, spry_error *error)
{
    spry_request *r = &job->answer.request;
    bool kept = keep(job, &r->prompt, r->n_prompt, sizeof *r->prompt) &&
                keep(job, &r->spans, r->n_spans, sizeof *r->spans) &&
                keep(job, &r->pictures, r->n_pictures, sizeof *r->pictures) &&
                keep(job, &r->stop, r->n_stop, sizeof *r->stop) &&
                keep(job, &r->sampling.bias, r->sampling.n_bias, sizeof *r->sampling.bias);
    const char **stops = kept ? spry_arena_alloc(&job->arena, r->n_stop + 1, sizeof *stops) : NULL;
    for (size_t i = 0; stops && i < r->n_stop; i++)
        kept = (stops[i] = spry_arena_copy(&job->arena, spry_view_of(r->stop[i]))) && kept;
    if (!kept || !stops)
        return spry_fail_memory(error, "a job", job->arena.total);
    r->stop = stops;
    r->constraint_text = NULL; /* the constraint has been compiled */
    for (size_t i = 0; i < r->n_pictures; i++)
        spry_picture_ref(r->pictures[i].picture);
    job->answer.keeps_pictures = true;
    job->ids = r->prompt;
    job->callbacks = *r;
    r->on_text = on_text;
    r->on_token = r->on_token ? on_token : NULL;
    r->on_prefill = r->on_prefill ? on_prefill : NULL;
    r->user = job;
    return SPRY_OK;
}

spry_status spry_job_create_answer(spry_job **out, spry_engine *engine, const spry_request *request,
                                   const spry_job_options *options, spry_error *error)
{
    spry_job_options o;
    spry_job *job;
    spry_request own;
    *out = NULL;
    spry_status status = spry_request_read(&own, request, error);
    if (!status)
        status = make(&job, engine, &o, options, error);
    if (status)
        return status;
    bool slides = o.session ? spry_session_slides(o.session) : o.slide;
    status = spry_job_init_answer(job, engine, &own, o.session, slides, error);
    if (!status)
        status = set_options(job, &o, error);
    return give(out, job, status ? status : keep_request(job, error));
}

spry_status spry_job_create_evaluation(spry_job **out, spry_engine *engine, const spry_evaluation *evaluation,
                                       const spry_job_options *options, spry_error *error)
{
    spry_job_options o;
    spry_job *job;
    spry_evaluation e;
    *out = NULL;
    spry_evaluation_default(&e);
    spry_status status = spry_sized_read(&e, sizeof e, evaluation, "spry_evaluation", error);
    if (!status)
        status = make(&job, engine, &o, options, error);
    if (status)
        return status;
    bool rows = e.on_row || e.on_token, slides = o.session ? spry_session_slides(o.session) : o.slide;
    const spry_prompt prompt = {.ids = e.ids,
                                .count = e.count,
                                .compute_from = rows ? e.first : e.count - (e.count > 0),
                                .spans = e.spans,
                                .n_spans = e.n_spans,
                                .repair = e.span_repair};
    spry_job_init_reading(job, engine, &prompt, rows ? SPRY_WANT_ALL : SPRY_WANT_LAST, o.session);
    status = set_options(job, &o, error);
    if (!status)
        status = spry_engine_check_ids(engine, e.ids, e.count, slides, error);
    if (!status && e.n_logprobs > SPRY_TOP_LOGPROBS_MAX)
        status =
            spry_fail(error, SPRY_ERR_INPUT, "%u alternatives are more than %d", e.n_logprobs, SPRY_TOP_LOGPROBS_MAX);
    if (!status && rows && (e.first >= e.count || e.n_spans))
        status = spry_fail(error, SPRY_ERR_INPUT, "rows from %zu on of %zu ids with %zu spans cannot be evaluated",
                           e.first, e.count, e.n_spans);
    spry_reading *r = &job->reading;
    r->on_row = e.on_row;
    r->on_token = e.on_token;
    r->n_top = e.n_logprobs;
    r->user = e.user;
    if (!status && (!keep(job, &r->prompt.ids, e.count, sizeof *e.ids) ||
                    !keep(job, &r->prompt.spans, e.n_spans, sizeof *e.spans)))
        status = spry_fail_memory(error, "a job", job->arena.total);
    job->ids = r->prompt.ids;
    return give(out, job, status);
}

spry_status spry_job_create_embedding(spry_job **out, spry_engine *engine, const int32_t *ids, size_t count,
                                      const spry_job_options *options, spry_error *error)
{
    spry_job_options o;
    spry_job *job;
    *out = NULL;
    spry_status status = make(&job, engine, &o, options, error);
    if (status)
        return status;
    size_t width = engine->model->config.n_embd;
    const spry_prompt prompt = {.ids = ids, .count = count};
    spry_job_init_reading(job, engine, &prompt, SPRY_WANT_HIDDEN, o.session);
    status = set_options(job, &o, error);
    if (!status)
        status = spry_embed_check(engine, ids, count, error);
    job->reading.sum = spry_arena_alloc(&job->arena, width, sizeof *job->reading.sum);
    job->embedding = spry_arena_alloc(&job->arena, engine->model->pooling.width, sizeof *job->embedding);
    if (!status && (!keep(job, &job->reading.prompt.ids, count, sizeof *ids) || !job->reading.sum || !job->embedding))
        status = spry_fail_memory(error, "a job", job->arena.total);
    job->ids = job->reading.prompt.ids;
    return give(out, job, status);
}

/* ---- functions on handles ---------------------------------------------------------------------------------------- */

spry_status spry_job_submit(spry_job *job, spry_error *error)
{
    spry_driver *d = job->engine->driver;
    pthread_mutex_lock(&d->lock);
    bool again = job->submitted;
    job->submitted = true;
    pthread_mutex_unlock(&d->lock);
    if (again)
        return spry_fail(error, SPRY_ERR_INPUT, "a job is submitted once");
    spry_session *session = job->session;
    spry_status status = session ? spry_session_join(session, job, error) : SPRY_OK;
    if (status)
        session = NULL;
    else
        status = spry_driver_submit(d, job, error);
    if (status && session)
        spry_session_leave(session);
    if (status) {
        pthread_mutex_lock(&d->lock);
        job->submitted = false;
        pthread_mutex_unlock(&d->lock);
    }
    return status;
}

bool spry_job_done(const spry_job *job)
{
    spry_driver *d = job->engine->driver;
    pthread_mutex_lock(&d->lock);
    bool done = job->finished;
    pthread_mutex_unlock(&d->lock);
    return done;
}

spry_status spry_job_wait(spry_job *job, double timeout_ms, spry_error *error)
{
    spry_driver *d = job->engine->driver;
    bool waits = !spry_driver_is_owner(d), forever = !(timeout_ms >= 0);
    uint64_t until = forever ? 0 : spry_clock_ns() + (uint64_t)(timeout_ms < 1e12 ? timeout_ms * 1e6 : 1e18);
    pthread_mutex_lock(&d->lock);
    waits = waits && job->submitted;
    for (uint64_t now; waits && !job->over && (forever || (now = spry_clock_ns()) < until);)
        if (forever)
            pthread_cond_wait(&d->changed, &d->lock);
        else
            spry_background_wait(&d->changed, &d->lock, until - now);
    bool done = waits ? job->over : job->finished;
    pthread_mutex_unlock(&d->lock);
    if (done)
        return SPRY_OK;
    return spry_fail(error, SPRY_ERR_BUSY,
                     waits ? "the job is not over yet" : "the job was not submitted, or a callback would wait for it");
}

size_t spry_job_generated(const spry_job *job)
{
    return job->result.generated_tokens;
}

spry_status spry_job_result(const spry_job *job, spry_result *result, spry_error *error)
{
    spry_driver *d = job->engine->driver;
    pthread_mutex_lock(&d->lock);
    bool done = job->finished;
    pthread_mutex_unlock(&d->lock);
    if (!done)
        return spry_fail(error, SPRY_ERR_BUSY, "the job is not over yet");
    if (result)
        *result = job->result;
    if (error)
        *error = job->error;
    return job->status;
}

const float *spry_job_embedding(const spry_job *job)
{
    return spry_job_done(job) && job->status == SPRY_OK ? job->embedding : NULL;
}

void spry_job_cancel(spry_job *job)
{
    spry_driver *d = job->engine->driver;
    pthread_mutex_lock(&d->lock);
    atomic_store(&job->own_cancelled, true);
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->lock);
}

void spry_job_free(spry_job *job)
{
    if (!job)
        return;
    spry_driver *d = job->engine->driver;
    bool in_callback = spry_driver_is_owner(d);
    pthread_mutex_lock(&d->lock);
    d->n_handles--;
    bool under_way = job->submitted && !job->over;
    if (under_way) { /* a running job is destroyed when it ends */
        atomic_store(&job->freed, true);
        atomic_store(&job->own_cancelled, true);
    }
    pthread_mutex_unlock(&d->lock);
    if (!under_way) {
        spry_job_destroy(job);
    } else if (!in_callback) {
        spry_driver_enter(d);
        spry_driver_end_cancelled(d);
        spry_driver_leave(d);
    }
}
