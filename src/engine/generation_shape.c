/* Constraints of an answer: allowed tokens, forced tokens, and completion before there is no room left. */
#include "engine/generation_state.h"

spry_status spry_generation_mask(spry_generation *g, const uint32_t **mask, spry_error *error)
{
    *mask = NULL;
    if (!g->matcher)
        return SPRY_OK;
    spry_lap(g->laps, SPRY_PART_SAMPLING);
    spry_status status = spry_matcher_mask(g->matcher, mask, error);
    spry_lap(g->laps, SPRY_PART_GRAMMAR);
    return status;
}

spry_status spry_generation_follow(spry_generation *g, int32_t id, spry_error *error)
{
    if (!g->matcher || g->ended)
        return SPRY_OK;
    spry_status status = spry_matcher_token(g->matcher, id, error);
    if (!status && spry_matcher_must_end(g->matcher))
        spry_generation_finish(g, SPRY_FINISH_END);
    spry_lap(g->laps, SPRY_PART_GRAMMAR);
    return status;
}

size_t spry_generation_allowed(spry_generation *g, const int32_t *ids, size_t count)
{
    size_t fits = 0;
    if (!g->matcher)
        return count;
    while (fits < count && !spry_matcher_token(g->matcher, ids[fits], NULL))
        fits++;
    spry_matcher_undo(g->matcher, fits);
    return fits;
}

/* Tokens the answer can still have, when the sequence has `held` tokens. */
static size_t tokens_left(const spry_generation *g, size_t held)
{
    const spry_sequence *s = g->sequence;
    size_t asked = g->request->max_tokens, left = asked ? asked - g->result->generated_tokens : SIZE_MAX;
    size_t room = s->slides ? SIZE_MAX : s->table.max_tokens + s->n_dropped - held;
    return left < room ? left : room;
}

/* Whether the grammar's completion fits in `left` tokens; `completion` gets the tokens if they had to be built. */
static spry_status fits(spry_generation *g, bool *fit, spry_tokens *completion, size_t left, spry_error *error)
{
    completion->count = 0;
    *fit = spry_matcher_completion_bound(g->matcher) <= left; /* a token is at least one byte */
    if (*fit)
        return SPRY_OK;
    spry_status status = spry_matcher_completion_tokens(g->matcher, completion, error);
    *fit = !status && completion->count <= left;
    return status == SPRY_ERR_UNSUPPORTED ? SPRY_OK : status; /* a completion that is too long never fits */
}

/* Emits tokens that are not sampled. `kept`: they are part of the rows computed next. */
static spry_status emit_all(spry_generation *g, const spry_tokens *tokens, bool kept, spry_error *error)
{
    spry_status status = SPRY_OK;
    for (size_t i = 0; !status && i < tokens->count && !g->ended; i++) {
        if (kept && g->n_pending == SPRY_PENDING_MOST)
            break;
        status = spry_generation_emit(g, tokens->ids[i], NULL, error);
        if (!status && !g->ended && kept)
            g->pending[g->n_pending++] = tokens->ids[i];
        if (!status)
            status = spry_generation_follow(g, tokens->ids[i], error);
    }
    return status;
}

/* Completes the answer now, if there would be too little room for that after `id`. The answer is then complete but
 * shorter than the model's. Has no effect if there never was enough room. */
spry_status spry_generation_complete(spry_generation *g, int32_t id, size_t held, spry_error *error)
{
    size_t left = g->matcher ? tokens_left(g, held) : SIZE_MAX;
    if (left == SIZE_MAX || !left || spry_model_is_end(g->model, id))
        return SPRY_OK;
    spry_tokens completion = {0};
    bool after = true, now = false;
    spry_status status = spry_matcher_token(g->matcher, id, error);
    if (!status) {
        status = fits(g, &after, &completion, left - 1, error);
        spry_matcher_undo(g->matcher, 1);
    }
    if (!status && !after)
        status = fits(g, &now, &completion, left, error);
    if (!status && now && !completion.count) /* it was short enough without building it */
        status = spry_matcher_completion_tokens(g->matcher, &completion, error);
    if (!status && now) {
        size_t before = g->result->generated_tokens;
        status = emit_all(g, &completion, false, error);
        g->result->forced_tokens += g->result->generated_tokens - before;
        spry_generation_finish(g, SPRY_FINISH_END);
        g->result->finish = SPRY_FINISH_END; /* even with the last token that fits */
    }
    spry_tokens_deinit(&completion);
    spry_lap(g->laps, SPRY_PART_GRAMMAR);
    return status;
}

/* With log probabilities, forced tokens go through the model too. */
spry_status spry_generation_force(spry_generation *g, spry_error *error)
{
    if (!g->matcher || g->ended)
        return SPRY_OK;
    spry_tokens forced = {0};
    spry_status status = SPRY_OK;
    if (!g->request->on_token)
        status = spry_matcher_forced_tokens(g->matcher, g->model->tokenizer, &forced, error);
    spry_lap(g->laps, SPRY_PART_GRAMMAR);
    size_t before = g->result->generated_tokens;
    if (!status)
        status = emit_all(g, &forced, true, error);
    g->result->forced_tokens += g->result->generated_tokens - before;
    spry_tokens_deinit(&forced);
    return status;
}
