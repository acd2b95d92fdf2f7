/* A step first divides a piece into matches and gaps, in order; then the behavior determines which of them are kept
 * separate, merged or removed. */
#include "tokenizer/split.h"

#include <stdlib.h>

void spry_splitter_deinit(spry_splitter *splitter)
{
    for (size_t i = 0; i < splitter->count; i++)
        spry_pattern_destroy(splitter->steps[i].pattern);
    splitter->count = 0;
}

spry_status spry_splitter_add(spry_splitter *splitter, spry_view regex, bool literal, spry_split_behavior behavior,
                              bool invert, spry_error *error)
{
    if (splitter->count == SPRY_SPLIT_STEPS_MAX)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "the pre-tokenizer has more than %d steps", SPRY_SPLIT_STEPS_MAX);
    spry_split_step step = {.behavior = behavior, .invert = invert};
    /* Every character matches those patterns: without gaps, inverting changes nothing, but removing would. */
    step.scanned = !literal && behavior == SPRY_SPLIT_ISOLATED && spry_scan_find(&step.scan, regex);
    if (!step.scanned) {
        spry_status status = spry_pattern_create(&step.pattern, regex, literal, error);
        if (status)
            return status;
    }
    splitter->steps[splitter->count++] = step;
    return SPRY_OK;
}

void spry_split_scratch_deinit(spry_split_scratch *scratch)
{
    free(scratch->lists[0].items);
    free(scratch->lists[1].items);
    spry_pattern_scratch_deinit(&scratch->pattern);
    *scratch = (spry_split_scratch){0};
}

static bool push(struct spry_ranges *ranges, size_t begin, size_t end)
{
    if (begin == end)
        return true;
    if (ranges->count == ranges->capacity) {
        size_t capacity = ranges->capacity ? ranges->capacity * 2 : 256;
        spry_text_range *items = realloc(ranges->items, capacity * sizeof *items);
        if (!items)
            return false;
        ranges->items = items;
        ranges->capacity = capacity;
    }
    ranges->items[ranges->count++] = (spry_text_range){begin, end};
    return true;
}

/* Output of a step, and the state of the previous piece that behaviors need. */
typedef struct cutter {
    struct spry_ranges *out;
    const spry_split_step *step;
    size_t first;      /* pieces of the current range start here in `out` */
    bool last_matched; /* the previous piece of this range was a match */
} cutter;

/* Adds the next part of a range: a match or a gap. */
static bool cut(cutter *state, size_t begin, size_t end, bool match)
{
    if (begin == end)
        return true;
    match ^= state->step->invert;
    bool has_previous = state->out->count > state->first;
    spry_text_range *previous = has_previous ? &state->out->items[state->out->count - 1] : NULL;
    bool join = false;
    switch (state->step->behavior) {
    case SPRY_SPLIT_ISOLATED: break;
    case SPRY_SPLIT_REMOVED:
        if (match)
            return true;
        break;
    case SPRY_SPLIT_WITH_PREVIOUS: join = match && has_previous && !state->last_matched; break;
    case SPRY_SPLIT_WITH_NEXT: join = !match && has_previous && state->last_matched; break;
    case SPRY_SPLIT_CONTIGUOUS: join = has_previous && match == state->last_matched; break;
    }
    state->last_matched = match;
    if (join) {
        previous->end = end;
        return true;
    }
    return push(state->out, begin, end);
}

static bool scan_range(cutter *state, const spry_unicode *unicode, spry_view text, spry_text_range range)
{
    spry_view part = {text.data, range.end};
    for (size_t at = range.begin; at < range.end;) {
        size_t end = spry_scan_next(&state->step->scan, unicode, part, at);
        if (!push(state->out, at, end))
            return false;
        at = end;
    }
    return true;
}

/* Matches as Oniguruma's iterator finds them: an empty match counts unless it directly follows the previous match. */
static spry_status match_range(cutter *state, spry_pattern_scratch *scratch, spry_view text, spry_text_range range,
                               spry_error *error)
{
    spry_view part = {text.data + range.begin, range.end - range.begin};
    size_t done = 0, from = 0, last_match = SIZE_MAX;
    bool ok = true;
    while (ok && from <= part.size) {
        bool found;
        spry_text_range match;
        spry_status status = spry_pattern_find(state->step->pattern, scratch, part, from, &found, &match, error);
        if (status)
            return status;
        if (!found)
            break;
        if (match.begin == match.end && match.end == last_match) {
            uint32_t character;
            size_t length = spry_utf8_decode(&character, part.data + from, part.size - from);
            from += length ? length : 1;
            continue;
        }
        ok = cut(state, range.begin + done, range.begin + match.begin, false) &&
             cut(state, range.begin + match.begin, range.begin + match.end, true);
        done = from = last_match = match.end;
    }
    ok = ok && cut(state, range.begin + done, range.end, false);
    return ok ? SPRY_OK : spry_fail_memory(error, "splitting text", text.size);
}

spry_status spry_splitter_run(const spry_splitter *splitter, spry_split_scratch *scratch, const spry_unicode *unicode,
                              spry_view text, const spry_text_range **pieces, size_t *count, spry_error *error)
{
    struct spry_ranges *in = &scratch->lists[0], *out = &scratch->lists[1];
    out->count = 0;
    if (!push(out, 0, text.size))
        return spry_fail_memory(error, "splitting text", text.size);
    for (size_t s = 0; s < splitter->count; s++) {
        struct spry_ranges *swap = in;
        in = out;
        out = swap;
        out->count = 0;
        cutter state = {.out = out, .step = &splitter->steps[s]};
        for (size_t i = 0; i < in->count; i++) {
            state.first = out->count;
            state.last_matched = false;
            spry_status status = SPRY_OK;
            if (!state.step->scanned)
                status = match_range(&state, &scratch->pattern, text, in->items[i], error);
            else if (!scan_range(&state, unicode, text, in->items[i]))
                status = spry_fail_memory(error, "splitting text", text.size);
            if (status)
                return status;
        }
    }
    *pieces = out->items;
    *count = out->count;
    return SPRY_OK;
}
