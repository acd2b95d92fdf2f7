/* Steps: their rows, their computation, their results; and the start of the next step before the tokens of this one are
 * known. */
#include <stdlib.h>
#include <string.h>

#include "platform/clock.h"
#include "sched/batch_choice.h"
#include "sched/driver.h"

/* ---- steps ahead ------------------------------------------------------------------------------------------------- */

/* Steps started ahead. While a step of answers is being computed, all of the next one is often known except its tokens,
 * which the device itself draws. Then the next step is started directly after the first, so that the device does not
 * idle while tokens are read, decoded and sent.
 *
 * Nothing else depends on this. When the tokens are known, the next step is built as usual. If each of its rows is in
 * the step that was started ahead, that step's results are used; otherwise they are dropped and the step is computed as
 * usual, with the same bits. A row that no job needs any more, because its answer ended, has stored one token's keys
 * and values after the end of a table, in a page that belongs to this table only. */

spry_status spry_driver_ahead_init(spry_driver *d, spry_error *error)
{
    for (size_t i = 0; i < 2; i++) {
        spry_ahead *a = &d->ahead[i];
        a->rows = calloc(d->most, sizeof *a->rows);
        a->draws = calloc(d->most, sizeof *a->draws);
        if (!a->rows || !a->draws)
            return spry_fail_memory(error, "a driver", d->most * sizeof *a->rows);
    }
    d->drawn = calloc(d->most, sizeof *d->drawn);
    return d->drawn ? SPRY_OK : spry_fail_memory(error, "a driver", d->most * sizeof *d->drawn);
}

void spry_driver_ahead_deinit(spry_driver *d)
{
    for (size_t i = 0; i < 2; i++) {
        free(d->ahead[i].rows);
        free(d->ahead[i].draws);
    }
    free(d->drawn);
}

/* ---- starting ---------------------------------------------------------------------------------------------------- */

static uint32_t last_page(const spry_kv_table *table)
{
    return table->entries[table->n_entries - 1].page;
}

/* Collects the rows, one for each draw of the step; false: the next row of some job is not known. */
static bool gather(const spry_driver *d, spry_ahead *a, spry_segment *segments, size_t n_draws)
{
    a->n = 0;
    for (size_t i = 0; i < d->n_running; i++) {
        const spry_job *job = d->running[i];
        spry_ahead_row *row = &a->rows[a->n];
        if (!job->rows.n_rows)
            continue;
        if (!job->kind->ahead || !job->kind->ahead(job, &segments[a->n], &row->draw))
            return false;
        *row = (spry_ahead_row){.table = segments[a->n].table,
                                .position = segments[a->n].first_position,
                                .page = last_page(segments[a->n].table),
                                .adapters = segments[a->n].adapters,
                                .draw = row->draw};
        row->draw.row = a->n;
        a->draws[a->n++] = &row->draw;
    }
    return a->n == n_draws;
}

/* Adds (or removes, without `lend`) one token at the end of each table while the step is submitted. Its keys and values
 * fit in the table's last page, which no other table uses. */
static void lend_room(spry_driver *d, bool lend)
{
    for (size_t i = 0; i < d->n_running; i++) {
        spry_job *job = d->running[i];
        if (!job->rows.n_rows)
            continue;
        spry_kv_table *table = &job->session->sequence.table;
        table->n_tokens = lend ? table->n_tokens + 1 : table->n_tokens - 1;
        spry_kv_entry *last = &table->entries[table->n_entries - 1];
        last->count = lend ? last->count + 1 : last->count - 1;
    }
}

/* Finds, for each row, the index of its draw in the current step. An adopted step also has draws of answers that have
 * ended since. */
static void number_draws(spry_driver *d, const spry_ahead *adopted, const spry_segment *segments, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t at = adopted ? 0 : i;
        while (adopted && adopted->rows[at].table != segments[i].table) /* every row is in the adopted step */
            at++;
        d->drawn[i] = (uint32_t)at;
    }
}

/* Starts the next step ahead. `adopted`: the current step, if it was started ahead itself. Not if a model drafts,
 * because that may compute with the same threads in between. */
static void go_ahead(spry_driver *d, const spry_ahead *adopted, size_t n_draws)
{
    spry_ahead *a = &d->ahead[!d->newest_ahead];
    spry_step *step = &d->step;
    size_t n = step->n_segments;
    a->n = 0;
    d->newest_ahead = !d->newest_ahead;
    if (step->n_others || step->n_rows != n_draws || n != n_draws || 2 * n > step->capacity || d->engine->drafter ||
        d->engine->head || d->engine->borrows_threads || !spry_device_goes_ahead(d->engine->device))
        return;
    spry_segment *segments = step->segments + n;
    if (!gather(d, a, segments, n_draws)) {
        a->n = 0;
        return;
    }
    const spry_device_step next = {segments, n, a->draws, n, NULL};
    number_draws(d, adopted, segments, n);
    lend_room(d, true);
    spry_status status = spry_device_submit_after(d->engine->device, &next, d->drawn, NULL);
    lend_room(d, false);
    a->n = status ? 0 : n;
    a->waited = false;
}

/* Stores the tokens for the step started ahead, after the current step has been read. */
static void ahead_known(spry_driver *d, size_t n_draws)
{
    spry_ahead *a = &d->ahead[d->newest_ahead];
    for (size_t i = 0; i < a->n && i < n_draws; i++)
        a->rows[i].token = d->step.draws[i]->token;
    a->begun_ns = spry_clock_ns();
}

/* ---- using the results ------------------------------------------------------------------------------------------- */

static bool same_draw(const spry_draw *a, const spry_draw *b)
{
    return a->settings == b->settings && !a->mask && !b->mask && !(a->u < b->u) && !(a->u > b->u) &&
           a->wants_logprob == b->wants_logprob && a->max_top == b->max_top;
}

/* The row computed ahead for a segment and its draw; NULL: there is none. */
static spry_ahead_row *find_row(const spry_ahead *a, const spry_segment *g, const spry_draw *draw)
{
    for (size_t i = 0; i < a->n; i++) {
        spry_ahead_row *row = &a->rows[i];
        if (row->table == g->table)
            return row->position == g->first_position && row->page == last_page(g->table) &&
                           row->token == g->tokens[0] && same_draw(&row->draw, draw) &&
                           !memcmp(&row->adapters, &g->adapters, sizeof g->adapters)
                       ? row
                       : NULL;
    }
    return NULL;
}

/* True if the step that was started ahead contains everything that has been built now; otherwise its results are
 * dropped. */
static bool driver_adopt(spry_driver *d, size_t n_draws)
{
    spry_ahead *a = &d->ahead[d->newest_ahead];
    const spry_step *step = &d->step;
    bool all = a->n && step->n_rows == n_draws && step->n_segments == n_draws;
    for (size_t i = 0; all && i < n_draws; i++)
        all = find_row(a, &step->segments[i], step->draws[i]);
    if (!all)
        a->n = 0; /* the next submit waits for it */
    return all;
}

void spry_driver_settle(spry_driver *d)
{
    spry_ahead *a = &d->ahead[d->newest_ahead];
    if (!a->n || a->waited)
        return;
    a->status = spry_device_wait(d->engine->device, NULL);
    a->waited = true;
}

/* Waits for an adopted step, and passes on the results of its draws. */
static spry_status wait_adopted(spry_driver *d, size_t n_draws, spry_error *error)
{
    const spry_ahead *a = &d->ahead[!d->newest_ahead];
    spry_status status = a->status;
    if (!a->waited)
        status = spry_device_wait(d->engine->device, error);
    for (size_t i = 0; !status && i < n_draws; i++) {
        spry_draw *draw = d->step.draws[i];
        const spry_draw *done = &find_row(a, &d->step.segments[i], draw)->draw;
        draw->status = done->status;
        draw->token = done->token;
        draw->logprob = done->logprob;
        draw->n_top = done->n_top;
        memcpy(draw->top, done->top, sizeof draw->top);
        draw->error = done->error;
    }
    return status;
}

/* ---- one step ---------------------------------------------------------------------------------------------------- */

/* A step: rows of answers first, then rows of other jobs as long as the delay for answers is acceptable; the
 * computation; the results for each job. All computing is done here. */

enum { SEGMENTS_EACH = 2 }; /* segments that a job needs to continue */

/* ---- building ---------------------------------------------------------------------------------------------------- */

/* Adds a job's next rows, at most `max_rows`. `later`: number of jobs after it that need segments, too. */
static void add_rows(spry_driver *d, spry_job *job, size_t max_rows, size_t later, size_t other_rows)
{
    spry_step *step = &d->step;
    size_t n = 0, capacity = step->capacity - step->n_segments - SEGMENTS_EACH * later;
    const spry_room room = {.segments = step->segments + step->n_segments,
                            .capacity = capacity < SPRY_STEP_SEGMENTS ? capacity : SPRY_STEP_SEGMENTS,
                            .rows = max_rows,
                            .logits = d->engine->logit_rows - step->n_logits - later,
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
    job->rows.segments = room.segments;
    job->rows.n_segments = job->n_segments;
    job->rows.first_tap = step->n_rows; /* hidden states that rows of the step want come before */
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

/* The load of the first n segments of a step. */
static spry_step_load load_of(const spry_segment *segments, size_t n)
{
    spry_step_load load = {0};
    for (size_t i = 0; i < n; i++) {
        load.rows += segments[i].n_rows;
        load.sight += spry_step_sight(segments[i].n_rows, segments[i].first_position + segments[i].n_rows);
    }
    return load;
}

/* The jobs that share the remaining rows of the step. */
static spry_prompts prompts_of(const spry_driver *d)
{
    spry_prompts prompts = {0};
    for (size_t i = 0; i < d->n_running; i++) {
        const spry_job *job = d->running[i];
        if (job->is_decoding || !job->session)
            continue;
        const spry_sequence *s = &job->session->sequence;
        size_t left = spry_sequence_pending(s); /* rows of fragments may count twice */
        prompts.n++;
        prompts.depth += s->n_tokens > left ? s->n_tokens - left : 0;
    }
    prompts.n += !prompts.n;
    return prompts;
}

/* A step with prompts takes at most 1.75 times as long as one without: since times vary, tokens come at half the pace
 * in the worst case. */
static const double gentle_share = 0.75;

static size_t prompt_budget(const spry_driver *d)
{
    const spry_step *step = &d->step;
    size_t most = d->engine->chunk - step->decode_rows;
    if (d->options.policy == SPRY_POLICY_OFFLINE || d->options.policy == SPRY_POLICY_THROUGHPUT)
        return most; /* large steps compute the most rows per second */
    const spry_step_load answers = load_of(step->segments, step->n_segments);
    const spry_prompts prompts = prompts_of(d);
    double stall = d->options.max_stall_ms * 1e6,
           gentle = gentle_share * spry_step_time_ns(&d->engine->times, &answers);
    return spry_prefill_budget(&d->engine->times, &answers, &prompts, most,
                               d->options.gentle && gentle < stall ? gentle : stall);
}

/* A job's share of the budget. A picture whose rows see each other is more than its share, or even than the budget, if
 * it must be: the step has room for one, and without that the picture would wait until all answers end. */
static size_t share_of(const spry_driver *d, const spry_job *job, size_t share)
{
    size_t room = spry_engine_step_rows(d->engine) - d->step.n_rows;
    size_t least = job->session ? spry_sequence_least_rows(&job->session->sequence) : 1;
    return least > share && least <= room ? least : share;
}

/* Prompts, evaluations and embeddings share the budget evenly, so that a short one does not wait for a long one; rows
 * that one job does not use go to the next. If there are fewer rows than jobs, the next step begins with the jobs that
 * got none. */
static void share_budget(spry_driver *d, size_t *budget, bool batch)
{
    size_t n = d->n_running, left = batch ? d->step.n_batch : d->step.n_others - d->step.n_batch, skipped = n;
    size_t later = batch ? 0 : d->step.n_batch, first = d->first_prompt[batch] < n ? d->first_prompt[batch] : 0;
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
        size_t share = share_of(d, job, whole ? *budget : (*budget + left - 1) / left);
        left--;
        add_rows(d, job, share, left + later, d->step.n_rows);
        *budget -= job->rows.n_rows < *budget ? job->rows.n_rows : *budget;
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
    uint32_t width = spry_batch_choice_width(&d->choice);
    if (!step->n_others && step->n_decoding > width)
        step->n_decoding = width;
    add_answers(d);
    if (!d->ahead[d->newest_ahead].n || !step->n_rows) /* a step that was started ahead has no rows of other jobs */
        add_prompts(d);
}

/* ---- computing --------------------------------------------------------------------------------------------------- */

/* Adds the draws of a job that has rows in the step; returns the number of draws so far. */
static size_t add_draws(spry_driver *d, size_t n, spry_job *job)
{
    if (!job->rows.n_rows || !job->kind->draws)
        return n;
    return n + job->kind->draws(job, d->step.draws + n, job->rows.first_logits);
}

/* `plain`: every segment had one row. */
static void stepped(spry_driver *d, const spry_step_load *load, bool plain, uint64_t start_ns, uint64_t end_ns)
{
    uint64_t sampling_ns = spry_device_sampling_ns(d->engine->device), ns = end_ns - start_ns;
    if (!spry_device_placed_weights(d->engine->device))
        spry_engine_stepped(d->engine, load, plain, ns > sampling_ns ? ns - sampling_ns : 0);
}

/* Computes a part of the step. If it is refused, nothing has been computed. */
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
        stepped(d, &load, load.rows == step->n_segments, *start_ns, *end_ns);
    return status;
}

/* Computes the whole step, or uses the results of the step that was started ahead; starts the next step ahead before it
 * waits for this one. */
static spry_status compute_whole(spry_driver *d, size_t n_draws, uint64_t *start_ns, uint64_t *end_ns)
{
    spry_step *step = &d->step;
    const spry_device_step whole = {step->segments, step->n_segments, step->draws, n_draws, NULL};
    const spry_step_load load = load_of(step->segments, step->n_segments);
    const spry_ahead *ahead = &d->ahead[d->newest_ahead];
    bool adopted = driver_adopt(d, n_draws);
    *start_ns = spry_clock_ns();
    spry_status status = adopted ? SPRY_OK : spry_device_submit(d->engine->device, &whole, NULL);
    step->ahead = adopted && !ahead->waited;
    if (!status)
        go_ahead(d, adopted ? ahead : NULL, n_draws);
    if (!status)
        status = adopted ? wait_adopted(d, n_draws, NULL) : spry_device_wait(d->engine->device, NULL);
    *end_ns = spry_clock_ns();
    if (status) {
        d->ahead[d->newest_ahead].n = 0;
        return status;
    }
    ahead_known(d, n_draws);
    if (!adopted || step->ahead)
        stepped(d, &load, load.rows == step->n_segments, adopted ? ahead->begun_ns : *start_ns, *end_ns);
    return SPRY_OK;
}

static void lap_step(spry_job *job, uint64_t start_ns, uint64_t end_ns)
{
    uint64_t sampling_ns = spry_device_sampling_ns(job->engine->device);
    spry_lap_until(&job->laps, SPRY_PART_OTHERS, start_ns);
    spry_lap_until(&job->laps, job->past_prompt ? SPRY_PART_DECODE : SPRY_PART_PREFILL, end_ns - sampling_ns);
    spry_lap_until(&job->laps, SPRY_PART_SAMPLING, end_ns);
}

/* Called when the device refused the step: computes each job's rows separately, so that only the job with the error
 * fails. */
static void compute_apart(spry_driver *d)
{
    uint64_t start, end;
    for (size_t i = 0; i < d->n_running; i++) {
        spry_job *job = d->running[i];
        if (!job->rows.n_rows)
            continue;
        job->rows.first_logits = job->rows.first_hidden = 0;
        job->rows.first_tap = job->rows.n_hidden;
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
        job->rows.first_tap += d->step.n_hidden;
        if (job->rows.n_rows)
            job->step_status = job->kind->on_step_done(job, &job->rows, &job->error);
    }
}

/* ---- after the step ---------------------------------------------------------------------------------------------- */

/* The number of tokens that all running answers have generated. */
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

/* Removes jobs that are done or have failed. A job that lacked pages stays if other jobs hold some. */
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
