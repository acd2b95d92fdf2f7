/* Steps ahead. While a step of answers is under way, the next one is often known but for its tokens, which the device
 * itself draws: then it is started behind the first, so that the device does not stand still while tokens are read,
 * decoded and sent.
 *
 * Nothing else depends on it. The next step is built as always, when the tokens are known; if each of its rows is in
 * the step that was started ahead, that one's results are taken, otherwise it is given up and the step is computed as
 * always, to the same bits. A row that no job wants any more, because its answer ended, wrote one token's keys and
 * values behind the end of a table, into a page that the table alone has. */
#include <stdlib.h>
#include <string.h>

#include "platform/clock.h"
#include "sched/driver.h"

spry_status spry_driver_ahead_init(spry_driver *d, spry_error *error)
{
    for (size_t i = 0; i < 2; i++) {
        spry_ahead *a = &d->ahead[i];
        a->rows = calloc(d->most, sizeof *a->rows);
        a->draws = calloc(d->most, sizeof *a->draws);
        if (!a->rows || !a->draws)
            return spry_fail_memory(error, "a driver", d->most * sizeof *a->rows);
    }
    d->in_order = calloc(d->most, sizeof *d->in_order);
    for (uint32_t i = 0; d->in_order && i < d->most; i++)
        d->in_order[i] = i;
    return d->in_order ? SPRY_OK : spry_fail_memory(error, "a driver", d->most * sizeof *d->in_order);
}

void spry_driver_ahead_deinit(spry_driver *d)
{
    for (size_t i = 0; i < 2; i++) {
        free(d->ahead[i].rows);
        free(d->ahead[i].draws);
    }
    free(d->in_order);
}

/* ---- starting ---------------------------------------------------------------------------------------------------- */

static uint32_t last_page(const spry_kv_table *table)
{
    return table->entries[table->n_entries - 1].page;
}

/* Collects the rows, one for each draw of the step; false: some job's next row is not known. */
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

/* A table has room for the row while the step is submitted: the room is in its last page, and that no other table's. */
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

/* Not beside a model that drafts: it may compute with the same threads, in between. */
void spry_driver_go_ahead(spry_driver *d, size_t n_draws)
{
    spry_ahead *a = &d->ahead[!d->newest_ahead];
    spry_step *step = &d->step;
    size_t n = step->n_segments;
    a->n = 0;
    d->newest_ahead = !d->newest_ahead;
    if (step->n_others || step->n_rows != n_draws || n != n_draws || 2 * n > step->capacity || d->engine->drafter ||
        d->engine->borrows_threads || !spry_device_goes_ahead(d->engine->device))
        return;
    spry_segment *segments = step->segments + n;
    if (!gather(d, a, segments, n_draws)) {
        a->n = 0;
        return;
    }
    const spry_device_step behind = {segments, n, a->draws, n, NULL};
    lend_room(d, true);
    spry_status status = spry_device_submit_behind(d->engine->device, &behind, d->in_order, NULL);
    lend_room(d, false);
    a->n = status ? 0 : n;
    a->waited = false;
}

void spry_driver_ahead_known(spry_driver *d, size_t n_draws)
{
    spry_ahead *a = &d->ahead[d->newest_ahead];
    for (size_t i = 0; i < a->n && i < n_draws; i++)
        a->rows[i].token = d->step.draws[i]->token;
    a->begun_ns = spry_clock_ns();
}

/* ---- taking over ------------------------------------------------------------------------------------------------- */

static bool same_draw(const spry_draw *a, const spry_draw *b)
{
    return a->settings == b->settings && !a->mask && !b->mask && !(a->u < b->u) && !(a->u > b->u) &&
           a->wants_logprob == b->wants_logprob && a->max_top == b->max_top;
}

/* The row that was computed ahead for a segment and its draw; NULL: none was. */
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

bool spry_driver_adopt(spry_driver *d, size_t n_draws)
{
    spry_ahead *a = &d->ahead[d->newest_ahead];
    const spry_step *step = &d->step;
    bool all = a->n && step->n_rows == n_draws && step->n_segments == n_draws;
    for (size_t i = 0; all && i < n_draws; i++)
        all = find_row(a, &step->segments[i], step->draws[i]);
    if (!all)
        a->n = 0; /* submitting the next step waits for it */
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

spry_status spry_driver_wait_adopted(spry_driver *d, size_t n_draws, spry_error *error)
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
