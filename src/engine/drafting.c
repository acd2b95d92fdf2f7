/* Drafters: a smaller model on its own session, or prompt lookup. Both are deterministic, so that an answer has the
 * same tokens as without drafts. */
#include <string.h>

#include "engine/engine_state.h"
#include "platform/clock.h"
#include "sched/driver.h"

enum { MIN_MATCH = 2, MAX_MATCH = 8, DIFFERENT_AT_MOST = 100 /* one token of so many */ };

/* ---- lookup ------------------------------------------------------------------------------------------------------ */

static size_t propose_lookup(void *self, int32_t *draft, size_t most, const int32_t *tokens, size_t n_tokens,
                             spry_draft_times *times)
{
    spry_session *s = self;
    uint32_t match;
    *times = (spry_draft_times){0};
    if (spry_prompt_lookup_follow(s->lookup, tokens, n_tokens, NULL)) /* longer than the context: it slid */
        return 0;
    return spry_prompt_lookup_propose(s->lookup, draft, &match, most);
}

static spry_status use_lookup(spry_session *s, spry_error *error)
{
    const spry_lookup_limits limits = {s->engine->context, MIN_MATCH, MAX_MATCH};
    spry_status status = s->lookup ? SPRY_OK : spry_prompt_lookup_create(&s->lookup, &limits, error);
    s->propose = (spry_drafter){propose_lookup, s};
    return status;
}

/* ---- a smaller model --------------------------------------------------------------------------------------------- */

/* Brings the drafter's session up to these tokens and gives the likeliest one after them. *reads: it had to read
 * more than the answer's last tokens. */
static spry_status read_along(spry_session *d, int32_t *next, bool *reads, const int32_t *tokens, size_t n_tokens)
{
    spry_sequence *s = &d->sequence;
    size_t same = 0, most = s->n_tokens < n_tokens - 1 ? s->n_tokens : n_tokens - 1;
    while (same < most && s->tokens[same] == tokens[same])
        same++;
    *reads = !same || n_tokens - same > SPRY_DRAFT_MOST + 1;
    for (size_t i = same; i < n_tokens; i++)
        if ((uint32_t)tokens[i] >= d->engine->model->config.n_vocab)
            return SPRY_ERR_UNSUPPORTED;             /* a token that only the model has: no draft */
    if (!same || n_tokens - same > d->engine->chunk) /* a new prompt: some of it may be cached */
        return spry_session_likeliest(d, next, tokens, n_tokens, false, NULL);
    spry_sequence_truncate(s, same);
    return spry_session_likeliest(d, next, tokens + same, n_tokens - same, true, NULL);
}

static size_t propose_model(void *self, int32_t *draft, size_t most, const int32_t *tokens, size_t n_tokens,
                            spry_draft_times *times)
{
    spry_session *d = self;
    size_t n = 0;
    uint64_t start = spry_clock_ns();
    *times = (spry_draft_times){0};
    if (n_tokens + most > d->engine->context)
        return 0;
    bool far = n_tokens > d->sequence.n_tokens + SPRY_DRAFT_MOST + 1, reads;
    spry_status status = read_along(d, draft, &reads, tokens, n_tokens);
    uint64_t ns = spry_clock_ns() - start;
    if (!status)
        *times = (spry_draft_times){.sync_ns = far ? ns : 0, .prefill_ns = reads ? ns : 0};
    while (!status && ++n < most)
        status = spry_session_likeliest(d, &draft[n], &draft[n - 1], 1, true, NULL);
    return n;
}

/* Tokens are exchanged as ids. A token that means something else to the drafter, or that only one of them has, is
 * drafted or read wrongly and then refused, so vocabularies need not be equal; but a pair that differs in more than a
 * few tokens is a mistake, and would win nothing. */
static spry_status check_vocabulary(const spry_model *model, const spry_model *drafter, spry_error *error)
{
    const spry_tokenizer *a = model->tokenizer, *b = drafter->tokenizer;
    if (!a || !b)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s cannot draft for %s: %s has no tokenizer", drafter->name,
                         model->name, a ? drafter->name : model->name);
    size_t ours = spry_tokenizer_size(a), theirs = spry_tokenizer_size(b), shared = ours < theirs ? ours : theirs;
    size_t larger = ours < theirs ? theirs : ours, others = larger - shared, first = shared;
    for (size_t i = shared; i-- > 0;)
        if (!spry_view_equal(spry_tokenizer_name(a, (int32_t)i), spry_tokenizer_name(b, (int32_t)i))) {
            others++;
            first = i;
        }
    if (others > larger / DIFFERENT_AT_MOST && first < shared)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                         "%s cannot draft for %s: %zu of %zu tokens of their vocabularies differ; the first is token "
                         "%zu, '%.*s' to it and '%.*s' to the model",
                         drafter->name, model->name, others, larger, first,
                         SPRY_VIEW_ARG(spry_tokenizer_name(b, (int32_t)first)),
                         SPRY_VIEW_ARG(spry_tokenizer_name(a, (int32_t)first)));
    if (others > larger / DIFFERENT_AT_MOST)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                         "%s cannot draft for %s: its vocabulary has %zu tokens, the model's %zu", drafter->name,
                         model->name, theirs, ours);
    if (drafter->weights.bytes >= model->weights.bytes)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                         "%s cannot draft for %s: it is not smaller, so nothing could be won", drafter->name,
                         model->name);
    return SPRY_OK;
}

static spry_status set_drafter(spry_engine *e, spry_engine *drafter, spry_error *error)
{
    spry_session_destroy(e->drafter);
    e->drafter = NULL;
    if (!drafter)
        return SPRY_OK;
    spry_status status = check_vocabulary(e->model, drafter->model, error);
    if (!status)
        status = spry_session_create(&e->drafter, drafter, error);
    if (status)
        return status;
    if (!drafter->borrows_threads)
        spry_threads_destroy(drafter->threads);
    drafter->threads = e->threads;
    drafter->borrows_threads = true;
    spry_device_set_threads(drafter->device, e->threads);
    return SPRY_OK;
}

spry_status spry_engine_set_drafter(spry_engine *e, spry_engine *drafter, spry_error *error)
{
    spry_driver_enter(e->driver);
    spry_status status = e->driver->n_running
                             ? spry_fail(error, SPRY_ERR_BUSY, "the engine computes; set a drafter before")
                             : set_drafter(e, drafter, error);
    spry_driver_leave(e->driver);
    return status;
}

/* ---- for a request ----------------------------------------------------------------------------------------------- */

spry_status spry_session_draft(spry_session *s, spry_generation *g, bool alone, spry_error *error)
{
    spry_speculation how = g->request->speculation;
    spry_session *drafter = s->engine->drafter;
    if (how == SPRY_DRAFT_NONE || s->engine->borrows_threads)
        return SPRY_OK;
    spry_status status = SPRY_OK;
    if (drafter && alone && how != SPRY_DRAFT_LOOKUP)
        s->propose = (spry_drafter){propose_model, drafter};
    else
        status = use_lookup(s, error);
    if (s->cost_of != s->propose.propose)
        spry_draft_cost_init(&s->cost, &s->engine->steps);
    s->cost_of = s->propose.propose; /* the measured costs also serve the next answer */
    s->cost.figures = (spry_draft_figures){0};
    g->drafter = &s->propose;
    g->cost = &s->cost;
    return status;
}
