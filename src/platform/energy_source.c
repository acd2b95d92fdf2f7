/* An increase is plausible up to WATTS_MOST. A decrease is accepted where a single wrap explains it, which requires a
 * sample before the counter could have wrapped twice. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "platform/energy_impl.h"

/* Counters change in steps: energy found by one sample may have been used this long before the previous sample. */
static const double step_seconds = 0.1;
/* Processors count every millisecond and GPUs at least every 100, but emulated counters may take a second. */
static const double still_seconds = 3;

static double seconds_between(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) * 1e-9 : 0;
}

/* ---- one counter ------------------------------------------------------------------------------------------------- */

void spry_energy_counter_start(spry_energy_counter *counter, uint64_t value, uint64_t now_ns)
{
    counter->value = value;
    counter->seen_ns = counter->moved_ns = now_ns;
}

static spry_status stand_still(spry_energy_counter *counter, uint64_t now_ns, spry_error *why)
{
    double seconds = seconds_between(counter->moved_ns, now_ns);
    if (seconds < still_seconds)
        return SPRY_OK;
    if (counter->optional && !counter->moved) {
        counter->left_out = true;
        return SPRY_OK;
    }
    return spry_fail(why, SPRY_ERR_FORMAT, "the energy counter of %s has stood still for %.0f s, as none does",
                     counter->name, seconds);
}

/* Counts from the last value to this one. */
static spry_status count_since(const spry_energy_counter *counter, uint64_t *counts, uint64_t value, double seconds,
                               spry_error *why)
{
    if (counter->range && value > counter->range)
        return spry_fail(why, SPRY_ERR_FORMAT,
                         "the energy counter of %s says %" PRIu64 ", and its largest value is %" PRIu64, counter->name,
                         value, counter->range);
    if (counter->range && seconds * SPRY_ENERGY_WATTS_MOST > (double)counter->range * counter->joules)
        return spry_fail(why, SPRY_ERR_FORMAT,
                         "the energy counter of %s could not be looked at for %.0f s and may have wrapped unseen",
                         counter->name, seconds);
    bool fell = value < counter->value;
    *counts = !fell ? value - counter->value : counter->range ? counter->range - counter->value + value : 0;
    bool believed = (double)*counts * counter->joules <= SPRY_ENERGY_WATTS_MOST * (seconds + step_seconds);
    if (fell && (!counter->range || !believed))
        return spry_fail(why, SPRY_ERR_FORMAT,
                         "the energy counter of %s went back from %" PRIu64 " to %" PRIu64
                         ", which is no wrap (it was reset, or the machine slept)",
                         counter->name, counter->value, value);
    if (!believed)
        return spry_fail(
            why, SPRY_ERR_FORMAT,
            "the energy counter of %s rose by %.0f J in %.3f s, which nothing draws (or the machine slept)",
            counter->name, (double)*counts * counter->joules, seconds);
    return SPRY_OK;
}

spry_status spry_energy_counter_take(spry_energy_counter *counter, double *joules, uint64_t value, uint64_t now_ns,
                                     spry_error *why)
{
    uint64_t counts = 0;
    *joules = 0;
    spry_status status = count_since(counter, &counts, value, seconds_between(counter->seen_ns, now_ns), why);
    if (status != SPRY_OK)
        return status;
    counter->value = value;
    counter->seen_ns = now_ns;
    if (!counts)
        return stand_still(counter, now_ns, why);
    counter->moved = true;
    counter->moved_ns = now_ns;
    *joules = (double)counts * counter->joules;
    return SPRY_OK;
}

/* ---- several of them --------------------------------------------------------------------------------------------- */

spry_energy_counter *spry_energy_source_add(spry_energy_source *source)
{
    return source->count < SPRY_ENERGY_COUNTERS ? &source->counters[source->count++] : NULL;
}

void spry_energy_source_read(const spry_energy_source *source, spry_energy_readings *out, uint64_t now_ns)
{
    out->now_ns = now_ns;
    out->why.status = SPRY_OK;
    for (size_t i = 0; source->kind && i < source->count && out->why.status == SPRY_OK; i++)
        if (!source->counters[i].left_out)
            source->kind->read(source->context, i, &out->values[i], now_ns, &out->why);
}

void spry_energy_source_take(spry_energy_source *source, const spry_energy_readings *readings, size_t shares)
{
    if (!source->kind)
        return;
    double all = 0, joules;
    spry_error why = readings->why;
    for (size_t i = 0; i < source->count && why.status == SPRY_OK; i++) {
        if (source->counters[i].left_out)
            continue;
        spry_energy_counter_take(&source->counters[i], &joules, readings->values[i], readings->now_ns, &why);
        all += joules;
    }
    if (why.status != SPRY_OK) {
        source->why = why;
        spry_energy_source_close(source);
        return;
    }
    source->used += all;
    if (shares)
        source->shared += all / (double)shares;
}

bool spry_energy_source_moved(const spry_energy_source *source)
{
    bool moved = true;
    for (size_t i = 0; i < source->count; i++)
        moved &= source->counters[i].moved || source->counters[i].optional;
    return moved;
}

void spry_energy_source_close(spry_energy_source *source)
{
    if (source->kind)
        source->kind->close(source->context);
    source->kind = NULL;
    source->context = NULL;
}

void spry_energy_source_describe(const spry_energy_source *source, char out[SPRY_ENERGY_TEXT])
{
    if (!source->kind) {
        snprintf(out, SPRY_ENERGY_TEXT, "%.*s", SPRY_ENERGY_TEXT - 1, source->why.message);
        return;
    }
    spry_error text; /* replaces unprintable bytes */
    char list[SPRY_ENERGY_TEXT] = "";
    size_t size = 0;
    for (size_t i = 0; i < source->count; i++) {
        const spry_energy_counter *counter = &source->counters[i];
        if (counter->left_out)
            continue;
        int added = snprintf(list + size, sizeof list - size, "%s%s", size ? ", " : "", counter->name);
        size += (size_t)added;
        if (size < sizeof list - 32)
            continue;
        snprintf(list, sizeof list, "%zu counters", source->count);
        break;
    }
    spry_fail(&text, SPRY_OK, "%s: %s", source->kind->name, list);
    snprintf(out, SPRY_ENERGY_TEXT, "%.*s", SPRY_ENERGY_TEXT - 1, text.message);
}
