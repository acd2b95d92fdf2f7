/* A step: rows of answers first, then of other jobs as far as the answers can bear the wait; the computation; results
 * to each. The only place that computes. */
#include "platform/clock.h"
#include "sched/driver.h"
#include "sched/prefill_budget.h"

enum { SEGMENTS_EACH = 2 }; /* that a job needs to go on at all */

/* ---- building -----------------------------------------------------------------------------------------------------
 */

/* Adds a job's next rows, at most `max_rows`. `behind`: jobs that come after it and need some room, too. */
static void add_rows(spry_driver *d, spry_job *job, size_t max_rows, size_t behind, size_t other_rows)
{
    spry_step *step = &d->step;
    size_t n = 0, capacity = step->capacity - step->n_segments - SEGMENTS_EACH * behind;
    const spry_room room = {.segments = step->segments + step->n_segments,
                            .capacity = capacity < SPRY_STEP_SEGMENTS ? capacity : SPRY_STEP_SEGMENTS,
                            .rows = max_rows,
                            .logits = d->engine->logit_rows - step->n_logits - behind,
                            .other_rows = other_rows,
                            .alone = d->n_running == 1};
    job->first_segment = step->n_segments;
    job->rows = (spry_rows){.first_logits = step->n_logits, .first_hidden = step->n_hidden};
    job->step_status = job->kind->next(job, &n, &room, &job->error);
    job->starved = job->step_status && job->session && job->session->sequence.starved;
    job->n_segments = job->step_status ? 0 : n;
    for (size_t i = 0; i < job->n_segments; i++) {
        job->rows.n_rows += room.segments[i].n_rows;
        job->rows.n_hidden += room.segments[i].want == SPRY_WANT_HIDDEN ? room.segments[i].n_rows : 0;
        job->rows.n_logits += spry_segment_logits(&room.segments[i]);
    }
    step->n_segments += job->n_segments;
    step->n_rows += job->rows.n_rows;
    step->n_logits += job->rows.n_logits;
    step->n_hidden += job->rows.n_hidden;
}

static void add_answers(spry_driver *d)
{
    spry_step *step = &d->step;
    size_t left = step->n_decoding, prompts = step->n_others;
    for (size_t i = 0; i < d->n_running && left; i++) {
        spry_job *job = d->running[i];
        if (!job->is_decoding)
            continue;
        left--;
        add_rows(d, job, d->engine->chunk - step->n_rows - left, left + prompts, step->n_rows + left);
    }
    step->decode_rows = step->n_rows;
}

/* What the first n segments of a step are worth. */
static spry_step_load load_of(const spry_segment *segments, size_t n)
{
    spry_step_load load = {0};
    for (size_t i = 0; i < n; i++) {
        load.rows += segments[i].n_rows;
        load.sight += spry_step_sight(segments[i].n_rows, segments[i].first_position + segments[i].n_rows);
    }
    return load;
}

/* Jobs that are to share what is left of the step. */
static spry_prompts prompts_of(const spry_driver *d)
{
    spry_prompts prompts = {0};
    for (size_t i = 0; i < d->n_running; i++) {
        const spry_job *job = d->running[i];
        if (job->is_decoding || !job->session)
            continue;
        const spry_sequence *s = &job->session->sequence;
        size_t left = spry_sequence_pending(s); /* fragments of it may count twice */
        prompts.n++;
        prompts.depth += s->n_tokens > left ? s->n_tokens - left : 0;
    }
    prompts.n += !prompts.n;
    return prompts;
}

/* A step with prompts lasts at most 1.75 times as long as without: with what times vary, tokens come at half their pace
 * at worst. */
static const double gentle_share = 0.75;

static size_t prompt_budget(const spry_driver *d)
{
    const spry_step *step = &d->step;
    size_t most = d->engine->chunk - step->decode_rows;
    if (d->options.policy == SPRY_POLICY_OFFLINE)
        return most; /* large steps give the most rows a second */
    const spry_step_load answers = load_of(step->segments, step->n_segments);
    const spry_prompts prompts = prompts_of(d);
    double stall = d->options.max_stall_ms * 1e6,
           gentle = gentle_share * spry_step_time_ns(&d->engine->times, &answers);
    return spry_prefill_budget(&d->engine->times, &answers, &prompts, most,
                               d->options.gentle && gentle < stall ? gentle : stall);
}

/* Prompts, evaluations and embeddings share the budget evenly, so that a short one does not wait for a long one; what
 * one leaves the next may take. Where there are fewer rows than jobs, the step after begins with those that got none.
 */
static void share_budget(spry_driver *d, size_t *budget, bool batch)
{
    size_t n = d->n_running, left = batch ? d->step.n_batch : d->step.n_others - d->step.n_batch, skipped = n;
    size_t behind = batch ? 0 : d->step.n_batch, first = d->first_prompt[batch] < n ? d->first_prompt[batch] : 0;
    bool whole = d->engine->model->config.bidirectional; /* a job takes rows for its whole text or none */
    for (size_t i = 0; i < n && left; i++) {
        size_t at = (first + i) % n;
        spry_job *job = d->running[at];
        if (job->is_decoding || job->batch != batch)
            continue;
        if (!*budget) {
            skipped = skipped < n ? skipped : at;
            break;
        }
        size_t share = whole ? *budget : (*budget + left - 1) / left;
        left--;
        add_rows(d, job, share, left + behind, d->step.n_rows);
        *budget -= job->rows.n_rows;
        if (!job->rows.n_rows && skipped == n)
            skipped = at;
    }
    d->first_prompt[batch] = skipped < n ? skipped : 0;
}

/* Batch jobs get what is left. */
static void add_prompts(spry_driver *d)
{
    size_t budget = prompt_budget(d);
    share_budget(d, &budget, false);
    share_budget(d, &budget, true);
}

/* Whether a job runs that batch jobs give way to: their answers then take rows only as prompts do. */
static bool any_urgent(const spry_driver *d)
{
    for (size_t i = 0; i < d->n_running; i++)
        if (!d->running[i]->batch)
            return true;
    return false;
}

static void build(spry_driver *d)
{
    spry_step *step = &d->step;
    step->n_segments = step->n_rows = step->n_logits = step->n_hidden = step->decode_rows = 0;
    step->n_decoding = step->n_others = step->n_batch = 0;
    bool urgent = any_urgent(d);
    for (size_t i = 0; i < d->n_running; i++) {
        spry_job *job = d->running[i];
        job->rows = (spry_rows){0};
        job->n_segments = 0;
        job->step_status = SPRY_OK;
        job->starved = false;
        job->is_decoding = job->kind->decodes(job) && !(job->batch && urgent);
        step->n_decoding += job->is_decoding;
        step->n_others += !job->is_decoding;
        step->n_batch += !job->is_decoding && job->batch;
    }
    uint32_t width = d->options.policy == SPRY_POLICY_OFFLINE ? spry_batch_choice_width(&d->choice) : UINT32_MAX;
    if (!step->n_others && step->n_decoding > width)
        step->n_decoding = width;
    add_answers(d);
    if (!d->ahead[d->newest_ahead].n || !step->n_rows) /* a step that was started ahead has no rows for others */
        add_prompts(d);
}

/* ---- computing ----------------------------------------------------------------------------------------------------
 */

/* Collects the draws of jobs whose rows are in the step; returns how many there are then. */
static size_t add_draws(spry_driver *d, size_t n, spry_job *job)
{
    if (!job->rows.n_rows || !job->kind->draws)
        return n;
    return n + job->kind->draws(job, d->step.draws + n, job->rows.first_logits);
}

static void stepped(spry_driver *d, const spry_step_load *load, uint64_t start_ns, uint64_t end_ns)
{
    uint64_t sampling_ns = spry_device_sampling_ns(d->engine->device), ns = end_ns - start_ns;
    if (!spry_device_placed_weights(d->engine->device))
        spry_engine_stepped(d->engine, load, ns > sampling_ns ? ns - sampling_ns : 0);
}

/* Computes a part of the step. Where it was refused nothing was computed. */
static spry_status compute(spry_driver *d, const spry_device_step *step, uint64_t *start_ns, uint64_t *end_ns,
                           spry_error *error)
{
    const spry_step_load load = load_of(step->segments, step->n_segments);
    *start_ns = spry_clock_ns();
    spry_status status = spry_device_submit(d->engine->device, step, error);
    if (!status)
        status = spry_device_wait(d->engine->device, error);
    *end_ns = spry_clock_ns();
    if (!status)
        stepped(d, &load, *start_ns, *end_ns);
    return status;
}

/* Computes all of the step, or takes it over where it was started ahead; the next one is started before this one is
 * waited for. */
static spry_status compute_whole(spry_driver *d, size_t n_draws, uint64_t *start_ns, uint64_t *end_ns)
{
    spry_step *step = &d->step;
    const spry_device_step whole = {step->segments, step->n_segments, step->draws, n_draws, NULL};
    const spry_step_load load = load_of(step->segments, step->n_segments);
    const spry_ahead *ahead = &d->ahead[d->newest_ahead];
    bool adopted = spry_driver_adopt(d, n_draws);
    *start_ns = spry_clock_ns();
    spry_status status = adopted ? SPRY_OK : spry_device_submit(d->engine->device, &whole, NULL);
    step->ahead = adopted && !ahead->waited;
    if (!status)
        spry_driver_go_ahead(d, n_draws);
    if (!status)
        status = adopted ? spry_driver_wait_adopted(d, n_draws, NULL) : spry_device_wait(d->engine->device, NULL);
    *end_ns = spry_clock_ns();
    if (status) {
        d->ahead[d->newest_ahead].n = 0;
        return status;
    }
    spry_driver_ahead_known(d, n_draws);
    if (!adopted || step->ahead)
        stepped(d, &load, adopted ? ahead->begun_ns : *start_ns, *end_ns);
    return SPRY_OK;
}

static void lap_step(spry_job *job, uint64_t start_ns, uint64_t end_ns)
{
    uint64_t sampling_ns = spry_device_sampling_ns(job->engine->device);
    spry_lap_until(&job->laps, SPRY_PART_OTHERS, start_ns);
    spry_lap_until(&job->laps, job->past_prompt ? SPRY_PART_DECODE : SPRY_PART_PREFILL, end_ns - sampling_ns);
    spry_lap_until(&job->laps, SPRY_PART_SAMPLING, end_ns);
}

/* The step was refused: the job that is to blame fails alone. */
static void compute_apart(spry_driver *d)
{
    uint64_t start, end;
    for (size_t i = 0; i < d->n_running; i++) {
        spry_job *job = d->running[i];
        if (!job->rows.n_rows)
            continue;
        job->rows.first_logits = job->rows.first_hidden = 0;
        const spry_device_step step = {d->step.segments + job->first_segment, job->n_segments, d->step.draws,
                                       add_draws(d, 0, job), NULL};
        job->step_status = compute(d, &step, &start, &end, &job->error);
        lap_step(job, start, end);
        if (!job->step_status)
            job->step_status = job->kind->on_step_done(job, &job->rows, &job->error);
    }
}

static void compute_step(spry_driver *d)
{
    uint64_t start, end;
    size_t n_draws = 0;
    for (size_t i = 0; i < d->n_running; i++)
        n_draws = add_draws(d, n_draws, d->running[i]);
    if (compute_whole(d, n_draws, &start, &end)) {
        compute_apart(d);
        return;
    }
    for (size_t i = 0; i < d->n_running; i++)
        if (d->running[i]->rows.n_rows)
            lap_step(d->running[i], start, end);
    for (size_t i = 0; i < d->n_running; i++) {
        spry_job *job = d->running[i];
        if (job->rows.n_rows)
            job->step_status = job->kind->on_step_done(job, &job->rows, &job->error);
    }
}

/* ---- afterwards ---------------------------------------------------------------------------------------------------
 */

/* Tokens of everything that runs. */
static size_t generated(const spry_driver *d)
{
    size_t tokens = 0;
    for (size_t i = 0; i < d->n_running; i++)
        tokens += d->running[i]->result.generated_tokens;
    return tokens;
}

static void account(spry_driver *d, size_t tokens, uint64_t ns)
{
    const spry_step *step = &d->step;
    pthread_mutex_lock(&d->lock);
    d->figures.steps++;
    d->figures.rows += step->n_rows;
    d->figures.decode_rows += step->decode_rows;
    d->figures.ahead += step->ahead;
    d->figures.waits = spry_device_waits(d->engine->device);
    if (!step->n_others && !spry_device_placed_weights(d->engine->device))
        spry_batch_choice_measure(&d->choice, step->n_decoding, (uint32_t)tokens, ns);
    pthread_mutex_unlock(&d->lock);
}

/* Jobs that are done or failed leave. A job that lacked pages stays if others have some. */
static void sort_out(spry_driver *d, bool others_have_pages)
{
    for (size_t i = 0; i < d->n_running;) {
        spry_job *job = d->running[i];
        bool stays = job->starved ? others_have_pages : !job->step_status && !job->kind->is_done(job);
        if (stays)
            i++;
        else
            spry_driver_finish(d, job, job->step_status);
    }
}

static bool any_starved(const spry_driver *d)
{
    for (size_t i = 0; i < d->n_running; i++)
        if (d->running[i]->starved)
            return true;
    return false;
}

void spry_driver_step(spry_driver *d)
{
    uint64_t start = spry_clock_ns();
    size_t before = generated(d);
    build(d);
    if (d->step.n_rows) {
        d->step.ahead = false;
        compute_step(d);
        account(d, generated(d) - before, spry_clock_ns() - start);
    }
    bool some_freed = any_starved(d) && spry_driver_empty_idle(d);
    sort_out(d, d->n_running > 1 || some_freed);
    if (any_starved(d) && d->n_running > 1 && !some_freed)
        spry_driver_preempt(d);
}
