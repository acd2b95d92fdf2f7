#include "platform/laps.h"

#include "base/compiler.h"
#include "platform/clock.h"

const char *spry_part_name(spry_part part)
{
    static const char *const names[] = {
        [SPRY_PART_READ] = "read",         [SPRY_PART_TEMPLATE] = "template", [SPRY_PART_TOKENIZE] = "tokenize",
        [SPRY_PART_QUEUE] = "queue",       [SPRY_PART_LOOKUP] = "lookup",     [SPRY_PART_RESTORE] = "restore",
        [SPRY_PART_PREFILL] = "prefill",   [SPRY_PART_DRAFT] = "draft",       [SPRY_PART_DECODE] = "decode",
        [SPRY_PART_SAMPLING] = "sampling", [SPRY_PART_GRAMMAR] = "grammar",   [SPRY_PART_DETOKENIZE] = "detokenize",
        [SPRY_PART_WRITE] = "write",       [SPRY_PART_OTHERS] = "others",
    };
    return (size_t)part < SPRY_COUNT(names) ? names[part] : "unknown";
}

void spry_laps_begin(spry_laps *laps, spry_trace *trace, uint32_t lane, uint64_t began_ns)
{
    *laps = (spry_laps){.trace = trace, .lane = lane, .began_ns = began_ns, .last_ns = began_ns};
}

void spry_lap_until(spry_laps *laps, spry_part part, uint64_t ns)
{
    if (ns <= laps->last_ns)
        return;
    laps->ns[part] += ns - laps->last_ns;
    if (laps->trace) {
        const spry_trace_span span = {.name = spry_part_name(part),
                                      .category = "part",
                                      .lane = laps->lane,
                                      .begin_ns = laps->last_ns,
                                      .end_ns = ns};
        spry_trace_add(laps->trace, &span);
    }
    laps->last_ns = ns;
}

void spry_lap(spry_laps *laps, spry_part part)
{
    spry_lap_until(laps, part, spry_clock_ns());
}

void spry_laps_ms(const spry_laps *laps, double ms[SPRY_PART_COUNT])
{
    for (size_t i = 0; i < SPRY_PART_COUNT; i++)
        ms[i] = (double)laps->ns[i] / 1e6;
}
