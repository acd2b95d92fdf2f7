/* A step: rows of answers first, then of prompts as far as the answers can bear the wait; the pass; logits to each. */
#include <string.h>

#include "platform/clock.h"
#include "sched/prefill_budget.h"
#include "sched/scheduler_state.h"

enum { SEGMENTS_EACH = 2 }; /* that a job needs to go on at all */

/* Adds a job's next rows, at most `max_rows`. `behind`: jobs that come after it and need some room, too. */
static void add_rows(spry_scheduler *s, spry_job_state *state, size_t max_rows, size_t behind, size_t other_rows)
{
    spry_step *step = &s->step;
    spry_segment *segments = step->segments + step->n_segments;
    size_t n, capacity = step->capacity - step->n_segments - SEGMENTS_EACH * behind;
    capacity = capacity < SPRY_STEP_SEGMENTS ? capacity : SPRY_STEP_SEGMENTS;
    state->generation.drafter = state->needs_quiet && s->n_running > 1 ? NULL : state->drafter;
    state->first_segment = step->n_segments;
    state->first_logits = step->n_logits;
    state->status =
        spry_generation_next(&state->generation, segments, &n, capacity, max_rows,
                             s->engine->logit_rows - step->n_logits - behind, other_rows, &state->job->error);
    state->starved = state->status && spry_generation_starved(&state->generation);
    state->n_segments = state->status ? 0 : n;
    for (size_t i = 0; i < state->n_segments; i++) {
        state->n_rows += segments[i].n_rows;
        step->n_logits += spry_segment_logits(&segments[i]);
    }
    step->n_segments += state->n_segments;
    step->n_rows += state->n_rows;
}

static void add_answers(spry_scheduler *s)
{
    spry_step *step = &s->step;
    size_t left = step->n_decoding;
    for (size_t i = 0; i < s->n_running; i++) {
        spry_job_state *state = s->running[i];
        if (!state->decodes)
            continue;
        left--;
        size_t prompts = s->n_running - step->n_decoding;
        add_rows(s, state, s->engine->chunk - step->n_rows - left, left + prompts, step->n_rows + left);
    }
    step->decode_rows = step->n_rows;
}

/* Prompts share what there is evenly, so that a short one does not wait for a long one; what one leaves the next may
 * take. */
static void add_prompts(spry_scheduler *s)
{
    spry_step *step = &s->step;
    size_t left = s->n_running - step->n_decoding;
    const spry_step_cost *steps = &s->engine->steps;
    double stall = s->options.max_stall_ms * 1e6, alone = spry_step_cost_ns(steps, step->decode_rows);
    size_t budget = spry_prefill_budget(steps, step->decode_rows, s->engine->chunk - step->decode_rows,
                                        s->options.gentle && alone < stall ? alone : stall);
    for (size_t i = 0; i < s->n_running && budget; i++) {
        spry_job_state *state = s->running[i];
        if (state->decodes)
            continue;
        size_t share = (budget + left - 1) / left;
        left--;
        add_rows(s, state, share, left, step->n_rows);
        budget -= state->n_rows;
    }
}

static void build(spry_scheduler *s)
{
    spry_step *step = &s->step;
    step->n_segments = step->n_rows = step->n_logits = step->decode_rows = step->n_decoding = 0;
    for (size_t i = 0; i < s->n_running; i++) {
        spry_job_state *state = s->running[i];
        state->n_rows = state->n_segments = 0;
        state->status = SPRY_OK;
        state->starved = false;
        state->decodes = spry_generation_decodes(&state->generation);
        step->n_decoding += state->decodes;
    }
    add_answers(s);
    add_prompts(s);
}

static void took(spry_scheduler *s, spry_job_state *state, size_t first_logits)
{
    const float *logits;
    state->status = spry_device_logits(s->engine->device, &logits, first_logits, 0, &state->job->error);
    if (!state->status)
        state->status = spry_generation_took(&state->generation, state->n_rows, logits, &state->job->error);
}

/* The step was refused, and nothing computed: whoever is to blame fails alone. */
static void run_apart(spry_scheduler *s)
{
    for (size_t i = 0; i < s->n_running; i++) {
        spry_job_state *state = s->running[i];
        if (!state->n_rows)
            continue;
        uint64_t start = spry_clock_ns();
        state->status = spry_device_run(s->engine->device, s->step.segments + state->first_segment, state->n_segments,
                                        &state->job->error);
        spry_generation_computed(&state->generation, start, spry_clock_ns());
        if (!state->status)
            took(s, state, 0);
    }
}

static void run(spry_scheduler *s)
{
    spry_engine *e = s->engine;
    uint64_t start = spry_clock_ns();
    if (spry_device_run(e->device, s->step.segments, s->step.n_segments, NULL)) {
        run_apart(s);
        return;
    }
    uint64_t end = spry_clock_ns();
    spry_engine_stepped(e, s->step.n_rows, end - start);
    for (size_t i = 0; i < s->n_running; i++)
        if (s->running[i]->n_rows)
            spry_generation_computed(&s->running[i]->generation, start, end);
    for (size_t i = 0; i < s->n_running; i++)
        if (s->running[i]->n_rows)
            took(s, s->running[i], s->running[i]->first_logits);
}

/* Tokens of everything that runs. */
static size_t generated(const spry_scheduler *s)
{
    size_t tokens = 0;
    for (size_t i = 0; i < s->n_running; i++)
        tokens += s->running[i]->job->result.generated_tokens;
    return tokens;
}

static void account(spry_scheduler *s, size_t tokens, uint64_t ns)
{
    const spry_step *step = &s->step;
    pthread_mutex_lock(&s->lock);
    s->figures.steps++;
    s->figures.rows += step->n_rows;
    s->figures.decode_rows += step->decode_rows;
    if (step->n_decoding == s->n_running)
        spry_batch_choice_measure(&s->choice, step->n_decoding, (uint32_t)tokens, ns);
    pthread_mutex_unlock(&s->lock);
}

/* Whoever is done or failed leaves. Who could not go on for want of pages stays if others have some. */
static void sort_out(spry_scheduler *s, bool others_have_pages)
{
    for (size_t i = 0; i < s->n_running;) {
        spry_job_state *state = s->running[i];
        if (state->starved && others_have_pages) {
            i++;
        } else if (state->status || spry_generation_done(&state->generation)) {
            spry_scheduler_finish(s, state, state->status);
        } else {
            i++;
        }
    }
}

static bool any_starved(const spry_scheduler *s)
{
    for (size_t i = 0; i < s->n_running; i++)
        if (s->running[i]->starved)
            return true;
    return false;
}

void spry_scheduler_step(spry_scheduler *s)
{
    uint64_t start = spry_clock_ns();
    size_t before = generated(s);
    build(s);
    if (s->step.n_rows) {
        run(s);
        account(s, generated(s) - before, spry_clock_ns() - start);
    }
    bool some_freed = any_starved(s) && spry_scheduler_empty_idle(s);
    sort_out(s, s->n_running > 1 || some_freed);
    if (any_starved(s) && s->n_running > 1 && !some_freed)
        spry_scheduler_preempt(s);
}
