/* From draws to text, token by token; within what a grammar and stop strings allow. */
#include "engine/generation.h"

#include <string.h>

#include "base/sampling_options.h"
#include "platform/clock.h"

/* Ends the answer; the first reason counts. */
static void generation_finish(spry_generation *generation, spry_finish why);

/* Emits a token. `draw`: how it was sampled; NULL: it was not. */
static spry_status generation_emit(spry_generation *generation, int32_t id, const spry_draw *draw, spry_error *error);

/* ---- stop strings ------------------------------------------------------------------------------------------------ */

size_t spry_stop_match(bool *found, spry_view text, const char *const *stop, size_t n_stop, bool whole)
{
    *found = false;
    for (size_t at = 0; at < text.size; at++) {
        spry_view rest = {text.data + at, text.size - at};
        bool partial = false;
        for (size_t i = 0; i < n_stop; i++) {
            spry_view wanted = spry_view_of(stop[i]);
            *found = *found || (wanted.size && spry_view_starts(rest, wanted));
            partial = partial || (!whole && rest.size < wanted.size && spry_view_starts(wanted, rest));
        }
        if (*found || partial)
            return at;
    }
    return text.size;
}

/* ---- constraints ------------------------------------------------------------------------------------------------- */

/* The tokens that the grammar allows next; NULL: any. */
static spry_status generation_mask(spry_generation *g, const uint32_t **mask, spry_error *error)
{
    *mask = NULL;
    if (!g->matcher)
        return SPRY_OK;
    spry_lap(g->laps, SPRY_PART_SAMPLING);
    spry_status status = spry_matcher_mask(g->matcher, mask, error);
    spry_lap(g->laps, SPRY_PART_GRAMMAR);
    return status;
}

/* Advances the grammar by an emitted token; if nothing can follow, the answer is complete. */
static spry_status generation_follow(spry_generation *g, int32_t id, spry_error *error)
{
    if (!g->matcher || g->ended)
        return SPRY_OK;
    spry_status status = spry_matcher_token(g->matcher, id, error);
    if (!status && spry_matcher_must_end(g->matcher))
        generation_finish(g, SPRY_FINISH_END);
    spry_lap(g->laps, SPRY_PART_GRAMMAR);
    return status;
}

/* How many of these consecutive tokens the grammar would accept. */
static size_t generation_allowed(spry_generation *g, const int32_t *ids, size_t count)
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
        status = generation_emit(g, tokens->ids[i], NULL, error);
        if (!status && !g->ended && kept)
            g->pending[g->n_pending++] = tokens->ids[i];
        if (!status)
            status = generation_follow(g, tokens->ids[i], error);
    }
    return status;
}

/* Completes the answer now, if there would be too little room for that after `id`. The answer is then complete but
 * shorter than the model's. Has no effect if there never was enough room. */
static spry_status generation_complete(spry_generation *g, int32_t id, size_t held, spry_error *error)
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
    if (!status && now && !completion.count) /* it fits, and is not built yet */
        status = spry_matcher_completion_tokens(g->matcher, &completion, error);
    if (!status && now) {
        size_t before = g->result->generated_tokens;
        status = emit_all(g, &completion, false, error);
        g->result->forced_tokens += g->result->generated_tokens - before;
        generation_finish(g, SPRY_FINISH_END);
        g->result->finish = SPRY_FINISH_END; /* even with the last token that fits */
    }
    spry_tokens_deinit(&completion);
    spry_lap(g->laps, SPRY_PART_GRAMMAR);
    return status;
}

/* Closes the thought whose budget is spent, with a sentence that leads to the answer. A grammar that does not allow
 * this lets the thought go on. */
static spry_status close_thought(spry_generation *g, spry_error *error)
{
    static const char sentence[] = "\n\nThat is enough thought. Now the answer.\n";
    spry_tokens closing = {0};
    spry_buffer text;
    spry_buffer_init(&text, sizeof sentence + 2 * SPRY_THOUGHT_TAIL);
    spry_buffer_format(&text, "%s%s\n\n", sentence, g->thought.style->close);
    spry_status status = spry_tokenizer_encode(g->model->tokenizer, &closing, spry_buffer_view(&text), NULL, 0,
                                               SPRY_ENCODE_SPECIAL, error);
    size_t before = g->result->generated_tokens;
    bool fits = !status && g->n_pending + closing.count <= SPRY_PENDING_MOST &&
                generation_allowed(g, closing.ids, closing.count) == closing.count;
    if (fits)
        status = emit_all(g, &closing, true, error);
    g->thought.inside = false;
    g->result->forced_tokens += g->result->generated_tokens - before;
    spry_tokens_deinit(&closing);
    spry_buffer_deinit(&text);
    return status;
}

/* With log probabilities, tokens that a grammar forces go through the model too. */
static spry_status generation_force(spry_generation *g, spry_error *error)
{
    if (!g->ended && spry_thought_watch_due(&g->thought)) {
        spry_status closed = close_thought(g, error);
        if (closed)
            return closed;
    }
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

enum { MAX_HELD_BYTES = 1 << 20 };

static void generation_finish(spry_generation *g, spry_finish why)
{
    if (!g->ended)
        g->result->finish = why;
    g->ended = true;
}

bool spry_generation_done(const spry_generation *g)
{
    return g->ended;
}

/* ---- text out ---------------------------------------------------------------------------------------------------- */

/* Emits text that can no longer be part of a stop string. At the end of the text nothing is held back. */
static void emit_text(spry_generation *g, bool end_of_text)
{
    const spry_request *r = g->request;
    bool found;
    size_t ready = spry_stop_match(&found, spry_buffer_view(&g->held), r->stop, r->n_stop, end_of_text);
    spry_lap(g->laps, SPRY_PART_DETOKENIZE);
    if (ready && r->on_text && !g->unheard && !r->on_text(r->user, g->held.data, ready)) {
        generation_finish(g, SPRY_FINISH_CANCELLED);
        g->unheard = true;
    }
    spry_lap(g->laps, SPRY_PART_WRITE);
    if (found) {
        for (uint32_t i = (uint32_t)r->n_stop; i-- > 0;)
            if (r->stop[i][0] &&
                spry_view_starts((spry_view){g->held.data + ready, g->held.size - ready}, spry_view_of(r->stop[i])))
                g->result->stop = i;
        if (g->result->finish != SPRY_FINISH_CANCELLED) /* also when the text ended before this was decided */
            g->result->finish = SPRY_FINISH_STOP;
        g->ended = true;
        spry_buffer_clear(&g->held);
    } else {
        spry_buffer_consume(&g->held, ready);
    }
}

static bool report(const spry_request *r, int32_t id, const spry_draw *draw)
{
    spry_logprob_entry token = {id, draw ? draw->logprob : 0};
    return r->on_token(r->user, token, draw ? draw->top : NULL, draw ? draw->n_top : 0);
}

/* Whether a token's spelling is part of the text if it is a control token. */
static bool shows_control(const spry_generation *g, int32_t id)
{
    const spry_tokenizer *tokenizer = g->model->tokenizer;
    return g->request->special || (g->request->marks && spry_tokenizer_kind(tokenizer, id) == SPRY_TOKEN_CONTROL &&
                                   spry_chat_template_needs_token(g->model->chat, spry_tokenizer_name(tokenizer, id)));
}

static spry_status generation_emit(spry_generation *g, int32_t id, const spry_draw *draw, spry_error *error)
{
    const spry_request *r = g->request;
    spry_status status = SPRY_OK;
    if (!r->ignore_end && spry_model_is_end(g->model, id)) {
        generation_finish(g, SPRY_FINISH_END);
        return SPRY_OK;
    }
    g->result->generated_tokens++;
    if (r->on_token && !report(r, id, draw))
        generation_finish(g, SPRY_FINISH_CANCELLED);
    spry_lap(g->laps, SPRY_PART_SAMPLING);
    if (g->ended)
        return SPRY_OK;
    /* Ids beyond the vocabulary only pad the embedding and have no text. */
    if ((size_t)id < spry_tokenizer_size(g->model->tokenizer)) {
        size_t before = g->held.size;
        g->decoder.special = shows_control(g, id);
        status = spry_decoder_push(&g->decoder, &g->held, id, error);
        if (!status && !g->held.failed)
            spry_thought_watch_token(&g->thought,
                                     (spry_view){g->held.data ? g->held.data + before : "", g->held.size - before});
    }
    if (!status && g->held.failed)
        status = spry_fail(error, SPRY_ERR_MEMORY, "not enough memory for the answer's text");
    if (!status)
        emit_text(g, false);
    if (!status && !g->ended && r->max_tokens && g->result->generated_tokens >= r->max_tokens)
        generation_finish(g, SPRY_FINISH_LENGTH);
    return status;
}

/* ---- drafts ------------------------------------------------------------------------------------------------------ */

/* The number of drafts useful for the next step, after the decided tokens, which are already in the sequence. */
static size_t draft_limit(const spry_generation *g, size_t max_rows, size_t max_wanted)
{
    const spry_sequence *s = g->sequence;
    size_t room = s->table.max_tokens - s->table.n_tokens, most = g->request->draft_most;
    most = most && most < SPRY_DRAFT_MOST ? most : SPRY_DRAFT_MOST;
    size_t left = g->request->max_tokens ? g->request->max_tokens - g->result->generated_tokens - 1 : most;
    most = left < most ? left : most;
    most = room < most ? room : most;
    size_t returns = spry_kv_table_returns(&s->table);
    most = returns < most ? returns : most;
    most = max_rows < g->n_pending ? 0 : max_rows - g->n_pending < most ? max_rows - g->n_pending : most;
    return max_wanted <= most ? max_wanted - (max_wanted > 0) : most;
}

static void draft(spry_generation *g, size_t max_rows, size_t max_wanted)
{
    spry_sequence *s = g->sequence;
    size_t most = draft_limit(g, max_rows, max_wanted);
    g->n_drafts = 0;
    spry_draft_times times = {0};
    g->draft_ns = g->sync_ns = 0;
    g->other_rows += g->n_pending - 1;
    if (g->drafter && most)
        most = spry_draft_cost_choose(g->cost, g->other_rows, (uint32_t)most);
    if (!g->drafter || !most)
        return;
    uint64_t start = spry_clock_ns();
    g->n_drafts = g->drafter->propose(g->drafter->self, g->drafts, most, s->tokens, s->n_tokens, &times);
    g->sync_ns = times.sync_ns;
    g->cost->figures.prefill_ns += (double)times.prefill_ns;
    for (size_t i = 0; i < g->n_drafts; i++) /* tokens that only the drafter has */
        if ((uint32_t)g->drafts[i] >= g->model->config.n_vocab)
            g->n_drafts = i;
    g->n_drafts = generation_allowed(g, g->drafts, g->n_drafts);
    g->draft_ns = spry_clock_ns() - start - g->sync_ns;
}

static void learn(spry_generation *g, size_t accepted)
{
    if (!g->drafter || !g->first_ns) /* the prompt's last step had no drafts */
        return;
    const spry_draft_outcome outcome = {.other_rows = g->other_rows,
                                        .drafted = (uint32_t)g->n_drafts,
                                        .accepted = (uint32_t)accepted,
                                        .draft_ns = g->draft_ns,
                                        .sync_ns = g->sync_ns};
    spry_draft_cost_learn(g->cost, &outcome);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static spry_prompt prompt_of(const spry_request *r)
{
    return (spry_prompt){.ids = r->prompt,
                         .count = r->n_prompt,
                         .compute_from = r->n_prompt - 1,
                         .spans = r->spans,
                         .n_spans = r->n_spans,
                         .repair = r->span_repair,
                         .pictures = r->pictures,
                         .n_pictures = r->n_pictures};
}

/* The last part of the lookup was restoring from disk, if any. */
static void lap_lookup(spry_generation *g, const spry_found *found)
{
    uint64_t now = spry_clock_ns();
    spry_lap_until(g->laps, SPRY_PART_LOOKUP, now - found->restore_ns);
    spry_lap_until(g->laps, SPRY_PART_RESTORE, now);
}

/* The end of the prompt may open a thought. */
static void watch_thought(spry_generation *g)
{
    enum { END_TOKENS = 16 };
    const spry_request *r = g->request;
    size_t n = r->n_prompt < END_TOKENS ? r->n_prompt : END_TOKENS;
    spry_buffer end;
    spry_buffer_init(&end, MAX_HELD_BYTES);
    if (r->thought_budget && g->model->tokenizer &&
        spry_tokenizer_decode(g->model->tokenizer, &end, r->prompt + r->n_prompt - n, n, true, NULL) == SPRY_OK)
        spry_thought_watch_begin(&g->thought, spry_chat_template_thought_style(g->model->chat, true),
                                 spry_buffer_view(&end), r->thought_budget);
    spry_buffer_deinit(&end);
}

spry_status spry_generation_begin(spry_generation *g, spry_error *error)
{
    const spry_request *r = g->request;
    spry_found found;
    const spry_prompt prompt = prompt_of(r);
    g->start_ns = spry_clock_ns();
    spry_random_seed(&g->random, r->sampling.seed);
    spry_decoder_init(&g->decoder, g->model->tokenizer, r->special);
    spry_decoder_continue(&g->decoder);
    spry_buffer_init(&g->held, MAX_HELD_BYTES);
    g->begun = true;
    watch_thought(g);
    spry_status status = spry_sequence_begin(g->sequence, &found, &prompt, error);
    if (status) {
        spry_lap(g->laps, SPRY_PART_LOOKUP);
        return status;
    }
    lap_lookup(g, &found);
    g->result->reused_tokens = found.reused;
    g->result->restored_tokens = found.restored;
    g->result->span_tokens = found.spans;
    g->result->repaired_tokens = found.repaired;
    g->result->span_divergence = found.divergence;
    g->result->lookup_ms = (double)(found.lookup_ns - found.restore_ns) / 1e6;
    g->result->restore_ms = (double)found.restore_ns / 1e6;
    return SPRY_OK;
}

/* Appends the decided tokens and drafts to the sequence. */
static spry_status append(spry_generation *g, size_t max_rows, size_t max_wanted, spry_error *error)
{
    spry_sequence *s = g->sequence;
    size_t room = s->table.max_tokens - s->table.n_tokens, n = g->n_pending;
    if (!room && !s->slides) {
        generation_finish(g, SPRY_FINISH_CONTEXT);
        return SPRY_OK;
    }
    n = !room ? 1 : n > room ? room : n; /* the room after sliding is not known yet */
    n = n < max_rows ? n : max_rows;
    spry_status status = spry_sequence_append(s, g->pending, n, error);
    if (status)
        return status;
    g->n_appended = n;
    if (n < g->n_pending)
        return SPRY_OK; /* the rest follows with the next step, which slides first */
    draft(g, max_rows, max_wanted);
    if (g->n_drafts && spry_sequence_append(s, g->drafts, g->n_drafts, NULL))
        g->n_drafts = 0; /* no page for drafts */
    g->n_appended += g->n_drafts;
    return SPRY_OK;
}

/* ---- draws ------------------------------------------------------------------------------------------------------- */

/* The draw at row i of the deciding rows; the first of them has `before` tokens before it. */
static spry_draw draw_at(const spry_generation *g, size_t first_logits, size_t before, size_t i, const uint32_t *mask)
{
    const spry_request *r = g->request;
    size_t unseen = spry_sampling_counts_prompt(&r->sampling) ? 0 : r->n_prompt;
    return (spry_draw){.row = first_logits + i,
                       .settings = &r->sampling,
                       .history = g->sequence->tokens + unseen,
                       .n_history = before + i - unseen,
                       .mask = mask,
                       .wants_logprob = r->on_token,
                       .max_top = r->on_token ? r->logprobs : 0};
}

/* The generator's next number; at temperature 0 it is left alone. */
static double next_unit(spry_random *random, const spry_request *r)
{
    return r->sampling.temperature > 0 ? spry_random_unit(random) : 0;
}

/* Makes the draws that go with the step. The numbers are those that judging takes from the generator later. */
static spry_status prepare_draws(spry_generation *g, spry_error *error)
{
    size_t before = g->sequence->n_tokens - g->n_drafts;
    const uint32_t *mask;
    spry_random random = g->random;
    spry_status status = generation_mask(g, &mask, error);
    g->n_ridden = status ? 0 : g->matcher ? 1 : g->n_drafts + 1;
    g->sequence->starved = g->sequence->starved && !status; /* this status is not caused by missing pages */
    for (size_t i = 0; i < g->n_ridden; i++) {
        g->draws[i] = draw_at(g, 0, before, i, mask);
        g->draws[i].u = next_unit(&random, g->request);
    }
    return status;
}

size_t spry_generation_draws(spry_generation *g, spry_draw **draws, size_t first_logits)
{
    g->first_logits = first_logits;
    for (size_t i = 0; i < g->n_ridden; i++) {
        g->draws[i].row = first_logits + i;
        draws[i] = &g->draws[i];
    }
    return g->n_ridden;
}

/* Whether the next step is one row, whatever token this one gives, unless that ends the answer. */
static bool one_row_follows(const spry_generation *g)
{
    const spry_request *r = g->request;
    const spry_sampling *s = &r->sampling;
    const spry_kv_table *table = &g->sequence->table;
    bool remembers = s->repeat_penalty != 1 || s->presence_penalty != 0 || s->frequency_penalty != 0;
    bool states = g->model->config.arch->delta || g->model->config.arch->convolutions;
    bool last = r->max_tokens && g->result->generated_tokens + 1 >= r->max_tokens;
    return g->decides && g->first_ns && !g->n_drafts && g->n_ridden == 1 && !g->matcher && !remembers && !states &&
           !last && !spry_thought_watch_near(&g->thought) && table->n_tokens < table->max_tokens &&
           (!g->drafter || !spry_draft_cost_choose(g->cost, g->other_rows, SPRY_DRAFT_MOST));
}

bool spry_generation_ahead(const spry_generation *g, spry_segment *segment, spry_draw *draw)
{
    spry_sequence *s = g->sequence;
    const spry_kv_pool *pool = s->cache->pool;
    spry_random random = g->random;
    if (!one_row_follows(g) || spry_kv_table_pages_needed(&s->table, pool, 1))
        return false;
    *segment = (spry_segment){.table = &s->table,
                              .first_position = (uint32_t)s->table.n_tokens,
                              .n_rows = 1,
                              .want = SPRY_WANT_LAST,
                              .adapters = s->adapters,
                              .shift = spry_sequence_shift(s, s->table.n_tokens)};
    *draw = draw_at(g, 0, s->n_tokens, 0, NULL);
    draw->n_history = 0; /* the history lacks the token of the step before; no penalty needs it */
    next_unit(&random, g->request);
    draw->u = next_unit(&random, g->request);
    return true;
}

spry_status spry_generation_next(spry_generation *g, spry_segment *segments, size_t *n, size_t capacity,
                                 size_t max_rows, size_t max_wanted, size_t other_rows, spry_error *error)
{
    spry_sequence *s = g->sequence;
    spry_status status = SPRY_OK;
    *n = 0;
    g->decides = false;
    g->n_ridden = 0;
    g->other_rows = other_rows;
    spry_lap(g->laps, SPRY_PART_OTHERS);
    if (!g->ended && atomic_load(g->cancelled))
        generation_finish(g, SPRY_FINISH_CANCELLED);
    if (g->ended)
        return SPRY_OK;
    if (!g->first_ns && g->request->on_prefill) {
        size_t left = spry_sequence_pending(s), whole = g->request->n_prompt;
        if (!g->request->on_prefill(g->request->user, left < whole ? whole - left : 0, whole))
            generation_finish(g, SPRY_FINISH_CANCELLED);
    }
    if (!g->ended && g->n_pending && !spry_sequence_pending(s)) {
        g->resuming = false;
        status = append(g, max_rows, max_wanted, error);
    }
    if (status || g->ended)
        return status;
    bool last_is_there = g->n_appended >= g->n_pending; /* the row whose logits decide */
    size_t from = !g->first_ns ? g->request->n_prompt - 1 : last_is_there ? s->n_tokens - g->n_drafts - 1 : SIZE_MAX;
    status = spry_sequence_fill(s, segments, n, capacity, max_rows, from, max_wanted, error);
    spry_lap(g->laps, SPRY_PART_DRAFT);
    size_t rows = 0;
    for (size_t i = 0; !status && i < *n; i++)
        rows += segments[i].n_rows;
    g->decides = rows && rows == spry_sequence_pending(s) && (!g->first_ns || last_is_there);
    return status || !g->decides ? status : prepare_draws(g, error);
}

/* ---- making room for others -------------------------------------------------------------------------------------- */

bool spry_generation_decodes(const spry_generation *g)
{
    return g->first_ns && !spry_sequence_pending(g->sequence);
}

void spry_generation_suspend(spry_generation *g)
{
    spry_sequence *s = g->sequence;
    if (!g->resuming) {
        if (g->first_ns && spry_sequence_pending(s))
            spry_sequence_truncate(s, s->n_tokens - g->n_appended);
        g->n_held = g->first_ns ? s->n_tokens : 0;
    }
    g->n_appended = g->n_drafts = 0;
    spry_sequence_release(s);
}

spry_status spry_generation_resume(spry_generation *g, spry_error *error)
{
    spry_found found;
    spry_prompt held = prompt_of(g->request);
    if (g->n_held) {
        /* Pages of an answer are looked up only without fragments: with them its tokens are appended as before, because
         * the end of the last fragment is computed differently at the end of a prompt. */
        bool plain = !held.n_spans || held.repair == SPRY_REPAIR_ALL;
        held.ids = g->sequence->tokens;
        held.count = held.compute_from = plain ? g->n_held : held.count;
        held.n_more = g->n_held - held.count;
        g->resuming = true;
    }
    spry_status status = spry_sequence_begin(g->sequence, &found, &held, error);
    spry_lap(g->laps, SPRY_PART_LOOKUP);
    return status;
}

/* ---- judging ----------------------------------------------------------------------------------------------------- */

/* After an accepted draft, tokens forced by the grammar are decided as without drafts; drafts equal to them are
 * accepted too. */
static spry_status take_forced(spry_generation *g, size_t *at, size_t *accepted, spry_error *error)
{
    size_t same = 0;
    spry_status status = generation_force(g, error);
    while (same < g->n_pending && *at + same < g->n_drafts && g->pending[same] == g->drafts[*at + same])
        same++;
    *at += same;
    *accepted += same;
    g->n_pending -= same;
    memmove(g->pending, g->pending + same, g->n_pending * sizeof *g->pending);
    return status;
}

/* The draw at row i of those that decide: done with the step, or now. */
static spry_status draw_row(spry_generation *g, size_t before, size_t i, spry_error *error)
{
    spry_draw *draw = &g->draws[i];
    spry_status status = SPRY_OK;
    double u = next_unit(&g->random, g->request);
    if (i >= g->n_ridden) {
        const uint32_t *mask;
        status = generation_mask(g, &mask, error);
        *draw = draw_at(g, g->first_logits, before, i, mask);
        draw->u = u;
        if (!status)
            status = spry_device_draw(g->device, &draw, 1, error);
    }
    spry_lap(g->laps, SPRY_PART_SAMPLING);
    if (!status && draw->status)
        status = spry_fail(error, draw->status, "%s", draw->error.message);
    return status;
}

/* Verifies the rows from the last decided one on. Decided tokens are emitted; refused drafts are removed. */
static spry_status judge(spry_generation *g, spry_error *error)
{
    spry_sequence *s = g->sequence;
    size_t before = s->n_tokens - g->n_drafts, accepted = 0;
    spry_status status = SPRY_OK;
    g->n_pending = 0;
    for (size_t i = 0; !status && !g->ended && i <= g->n_drafts; i++) {
        if (i)
            status = take_forced(g, &i, &accepted, error);
        if (status || g->ended || g->n_pending)
            break;
        status = draw_row(g, before, i, error);
        int32_t id = g->draws[i].token;
        bool right = i < g->n_drafts && id == g->drafts[i];
        if (!status)
            status = generation_complete(g, id, before + i, error);
        if (status || g->ended)
            break;
        status = generation_emit(g, id, &g->draws[i], error);
        if (!status)
            status = generation_follow(g, id, error);
        accepted += right && !g->ended;
        if (!right && !g->ended)
            g->pending[g->n_pending++] = id;
        if (!right)
            break;
    }
    learn(g, accepted);
    spry_sequence_truncate(s, before + accepted);
    g->n_drafts = 0;
    return status ? status : generation_force(g, error);
}

spry_status spry_generation_on_step_done(spry_generation *g, size_t n_rows, spry_error *error)
{
    spry_lap(g->laps, SPRY_PART_OTHERS);
    spry_sequence_computed(g->sequence, n_rows, g->n_drafts);
    if (spry_sequence_pending(g->sequence))
        return SPRY_OK;
    if (!g->first_ns) {
        g->prefilled_ns = spry_clock_ns();
    } else if (g->n_appended - g->n_drafts < g->n_pending) { /* some of the decided tokens are not computed yet */
        g->n_pending -= g->n_appended;
        memmove(g->pending, g->pending + g->n_appended, g->n_pending * sizeof *g->pending);
        return SPRY_OK;
    }
    spry_status status = judge(g, error);
    if (!g->first_ns) {
        g->first_ns = spry_clock_ns();
        spry_lap_until(g->laps, SPRY_PART_SAMPLING, g->first_ns);
        spry_laps_ms(g->laps, g->result->first_parts_ms);
    }
    return status;
}

static void report_drafts(spry_draft_report *report, const spry_draft_figures *f)
{
    *report = (spry_draft_report){.steps = f->steps,
                                  .drafted = f->drafted,
                                  .accepted = f->accepted,
                                  .refused_p50 = spry_draft_rollback(f, 0.5),
                                  .refused_p95 = spry_draft_rollback(f, 0.95),
                                  .tokens_per_step = spry_draft_tokens_per_step(f),
                                  .speedup = spry_draft_speedup(f),
                                  .prefill_ms = f->prefill_ns / 1e6};
    for (size_t i = 0; i < SPRY_DRAFT_MOST; i++) {
        report->tried_at[i] = f->tried_at[i];
        report->accepted_at[i] = f->accepted_at[i];
    }
    for (size_t i = 0; i <= SPRY_DRAFT_MOST; i++)
        report->lengths[i] = f->lengths[i];
}

void spry_generation_end(spry_generation *g)
{
    uint64_t now = spry_clock_ns();
    spry_result *r = g->result;
    if (!g->begun)
        return;
    g->begun = false;
    spry_sequence_stop(g->sequence);
    if (g->ended && r->finish != SPRY_FINISH_STOP) {
        spry_decoder_finish(&g->decoder, &g->held);
        emit_text(g, true);
    }
    spry_buffer_deinit(&g->held);
    spry_lap(g->laps, SPRY_PART_WRITE);
    uint64_t prefilled = g->prefilled_ns ? g->prefilled_ns : now, first = g->first_ns ? g->first_ns : prefilled;
    r->prefill_ms = (double)(prefilled - g->start_ns) / 1e6;
    r->first_token_ms = (double)(first - g->start_ns) / 1e6;
    r->decode_ms = (double)(now - first) / 1e6;
    r->total_ms = (double)(now - g->start_ns) / 1e6;
    r->dropped_tokens = g->sequence->n_dropped;
    if (g->drafter) {
        report_drafts(&r->drafts, &g->cost->figures);
        spry_draft_prospect(g->cost, &r->drafts.step_cost, &r->drafts.acceptance);
    }
}
