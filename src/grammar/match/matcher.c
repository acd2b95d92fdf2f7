/* Matches the text of one sequence against a grammar. */
#include "grammar/match/matcher.h"

#include "grammar/ir/grow.h"
#include "grammar/match/vocabulary.h"

enum {
    COLLECT_BYTES = 1 << 24,    /* size of places at the first collection */
    PLACES_BYTES_MAX = 1 << 28, /* limit of places that are in use */
};

spry_status spry_matcher_create(spry_matcher **out, spry_grammar *grammar, const spry_vocabulary *vocabulary,
                                spry_error *error)
{
    spry_matcher *matcher = *out = calloc(1, sizeof *matcher);
    if (!matcher)
        return spry_fail_memory(error, "a matcher", sizeof *matcher);
    spry_status status = spry_places_init(&matcher->places, grammar, error);
    if (status) {
        free(matcher);
        *out = NULL;
        return status;
    }
    matcher->grammar = spry_grammar_ref(grammar);
    matcher->vocabulary = vocabulary;
    matcher->collect_at = COLLECT_BYTES;
    spry_matcher_reset(matcher);
    status = matcher->places.failed ? spry_places_fail(&matcher->places, error) : SPRY_OK;
    if (!status)
        return SPRY_OK;
    spry_matcher_destroy(matcher);
    *out = NULL;
    return status;
}

void spry_matcher_destroy(spry_matcher *matcher)
{
    if (!matcher)
        return;
    spry_places_deinit(&matcher->places);
    spry_grammar_unref(matcher->grammar);
    free(matcher->history);
    free(matcher->mask);
    free(matcher->scratch);
    free(matcher->path);
    free(matcher);
}

void spry_matcher_reset(spry_matcher *matcher)
{
    uint32_t nothing = SPRY_NO_SET;
    if (matcher->places.failed)
        spry_places_collect(&matcher->places, &nothing, 1);
    matcher->n_history = 0;
    matcher->set = spry_places_start(&matcher->places);
}

spry_status spry_matcher_keep_bounded(spry_matcher *matcher, spry_error *error)
{
    spry_places *places = &matcher->places;
    size_t bytes = spry_places_bytes(places);
    if (!places->failed && bytes < matcher->collect_at)
        return SPRY_OK;
    if (!spry_grow(&matcher->history, &matcher->history_room, matcher->n_history + 1, sizeof *matcher->history))
        return spry_fail_memory(error, "a matcher's history", matcher->n_history * sizeof *matcher->history);
    matcher->history[matcher->n_history] = matcher->set;
    if (!spry_places_collect(places, matcher->history, matcher->n_history + 1))
        return spry_fail_memory(error, "a place in a grammar", bytes);
    matcher->set = matcher->history[matcher->n_history];
    matcher->collect_at = 2 * spry_places_bytes(places);
    if (matcher->collect_at < COLLECT_BYTES)
        matcher->collect_at = COLLECT_BYTES;
    if (matcher->collect_at > PLACES_BYTES_MAX)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "following the grammar takes more than %d MiB",
                         PLACES_BYTES_MAX >> 20);
    return SPRY_OK;
}

/* The set after `bytes`; *taken as in spry_matcher_bytes. */
static spry_status follow(spry_matcher *matcher, size_t *taken, spry_view bytes, uint32_t *set, spry_error *error)
{
    spry_places *places = &matcher->places;
    spry_status status = spry_matcher_keep_bounded(matcher, error);
    *set = matcher->set;
    *taken = 0;
    if (status)
        return status;
    for (; *taken < bytes.size; ++*taken) {
        *set = spry_places_step(places, *set, (unsigned char)bytes.data[*taken]);
        if (places->failed)
            return spry_places_fail(places, error);
        if (*set == SPRY_NO_SET)
            break;
    }
    return SPRY_OK;
}

static spry_status move(spry_matcher *matcher, uint32_t set, spry_error *error)
{
    if (!spry_grow(&matcher->history, &matcher->history_room, matcher->n_history + 1, sizeof *matcher->history))
        return spry_fail_memory(error, "a matcher's history", matcher->n_history * sizeof *matcher->history);
    matcher->history[matcher->n_history++] = matcher->set;
    matcher->set = set;
    return SPRY_OK;
}

spry_status spry_matcher_bytes(spry_matcher *matcher, size_t *taken, spry_view bytes, spry_error *error)
{
    uint32_t set;
    spry_status status = follow(matcher, taken, bytes, &set, error);
    return status || *taken < bytes.size ? status : move(matcher, set, error);
}

spry_status spry_matcher_token(spry_matcher *matcher, int32_t id, spry_error *error)
{
    const spry_vocabulary *vocabulary = matcher->vocabulary;
    if (id < 0 || (size_t)id >= vocabulary->n_ids)
        return spry_fail(error, SPRY_ERR_INPUT, "token %d is not in the vocabulary", id);
    if (spry_bit_get(vocabulary->ends, (uint32_t)id)) {
        if (!spry_matcher_may_end(matcher))
            return spry_fail(error, SPRY_ERR_INPUT, "the grammar does not let the text end here");
        return move(matcher, matcher->set, error);
    }
    size_t taken;
    uint32_t set;
    spry_view text = vocabulary->texts[id];
    spry_status status = follow(matcher, &taken, text, &set, error);
    if (!status && (!text.size || taken < text.size))
        return spry_fail(error, SPRY_ERR_INPUT, "the grammar does not allow token %d here", id);
    return status ? status : move(matcher, set, error);
}

void spry_matcher_undo(spry_matcher *matcher, size_t count)
{
    if (count > matcher->n_history)
        count = matcher->n_history;
    if (count)
        matcher->set = matcher->history[matcher->n_history - count];
    matcher->n_history -= count;
}

bool spry_matcher_may_end(const spry_matcher *matcher)
{
    return matcher->places.sets[matcher->set].may_end;
}

bool spry_matcher_must_end(const spry_matcher *matcher)
{
    const spry_set *set = &matcher->places.sets[matcher->set];
    return set->may_end && !(set->bytes[0] | set->bytes[1] | set->bytes[2] | set->bytes[3]);
}

void spry_matcher_next_bytes(const spry_matcher *matcher, uint64_t bytes[4])
{
    memcpy(bytes, matcher->places.sets[matcher->set].bytes, 4 * sizeof *bytes);
}
