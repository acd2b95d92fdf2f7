/* Requests: defaults, checks, the grammar that constrains an answer (compiled once per text, with a matcher for each
 * answer), and the drafter of a session. */
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "engine/engine_state.h"
#include "platform/clock.h"
#include "sched/driver.h"

/* ---- drafters ---------------------------------------------------------------------------------------------------- */

/* Drafters: a smaller model on its own session, or prompt lookup. Both are deterministic, so that an answer has the
 * same tokens as without drafts. */

enum { MIN_MATCH = 2, MAX_MATCH = 8, DIFFERENT_AT_MOST = 100 /* one token in this number may differ */ };

/* ---- lookup ------------------------------------------------------------------------------------------------------ */

static size_t propose_lookup(void *self, int32_t *draft, size_t most, const int32_t *tokens, size_t n_tokens,
                             spry_draft_times *times)
{
    spry_session *s = self;
    uint32_t match;
    *times = (spry_draft_times){0};
    if (spry_prompt_lookup_follow(s->lookup, tokens, n_tokens, NULL)) /* longer than the context: it slid */
        return 0;
    size_t n = spry_prompt_lookup_propose(s->lookup, draft, &match, most);
    return s->precise && match < MAX_MATCH ? 0 : n;
}

static spry_status use_lookup(spry_session *s, spry_error *error)
{
    const spry_lookup_limits limits = {s->engine->context, MIN_MATCH, MAX_MATCH};
    spry_status status = s->lookup ? SPRY_OK : spry_prompt_lookup_create(&s->lookup, &limits, error);
    s->propose = (spry_drafter){.propose = propose_lookup, .self = s};
    return status;
}

/* ---- a smaller model --------------------------------------------------------------------------------------------- */

/* Brings the drafter's session up to these tokens and gives the likeliest one after them. *reads: it had to read
 * more than the answer's last tokens. */
static spry_status read_along(spry_session *d, int32_t *next, double *logprob, bool *reads, const int32_t *tokens,
                              size_t n_tokens)
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
        return spry_session_likeliest(d, next, logprob, tokens, n_tokens, false, NULL);
    spry_sequence_truncate(s, same);
    return spry_session_likeliest(d, next, logprob, tokens + same, n_tokens - same, true, NULL);
}

static size_t propose_model(void *self, int32_t *draft, size_t most, const int32_t *tokens, size_t n_tokens,
                            spry_draft_times *times)
{
    spry_session *d = self;
    size_t n = 0;
    double logprob = 0, *wanted = d->precise ? &logprob : NULL;
    uint64_t start = spry_clock_ns();
    *times = (spry_draft_times){0};
    if (n_tokens + most > d->engine->context)
        return 0;
    size_t first = n_tokens % SPRY_PAGE_TOKENS; /* recurrent states go back within a page */
    if (d->engine->pool.states && most > SPRY_PAGE_TOKENS - first)
        most = SPRY_PAGE_TOKENS - first;
    bool far = n_tokens > d->sequence.n_tokens + SPRY_DRAFT_MOST + 1, reads;
    spry_status status = read_along(d, draft, wanted, &reads, tokens, n_tokens);
    uint64_t ns = spry_clock_ns() - start;
    if (!status)
        *times = (spry_draft_times){.sync_ns = far ? ns : 0, .prefill_ns = reads ? ns : 0};
    while (!status && !(logprob < SPRY_DRAFT_SURE) && ++n < most)
        status = spry_session_likeliest(d, &draft[n], wanted, &draft[n - 1], 1, true, NULL);
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

static spry_status session_draft(spry_session *s, spry_generation *g, bool alone, spry_error *error)
{
    spry_speculation how = g->request->speculation;
    spry_session *drafter = s->engine->drafter;
    if (how == SPRY_DRAFT_NONE || s->engine->borrows_threads)
        return SPRY_OK;
    spry_status status = SPRY_OK;
    s->precise = g->request->draft_precise;
    if (drafter)
        drafter->precise = s->precise;
    if (s->engine->head)
        spry_head_set_precise(s->engine->head, s->precise);
    if (!drafter && s->engine->head && alone && how != SPRY_DRAFT_LOOKUP)
        s->propose = spry_head_drafter(s->engine->head);
    else if (drafter && alone && how != SPRY_DRAFT_LOOKUP)
        s->propose = (spry_drafter){.propose = propose_model, .self = drafter};
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

/* ---- requests ---------------------------------------------------------------------------------------------------- */

enum { MAX_STOP_STRINGS = 64 };

void spry_request_default_sized(spry_request *request, size_t size)
{
    spry_request own = {.span_repair = SPRY_PAGE_TOKENS};
    spry_sampling_default(&own.sampling);
    spry_sized_default(request, size, &own, sizeof own);
}

spry_status spry_request_read(spry_request *own, const spry_request *theirs, spry_error *error)
{
    spry_request_default(own);
    spry_status status = spry_sized_read(own, sizeof *own, theirs, "spry_request", error);
    return status;
}

void spry_result_init(spry_result *result, size_t n_prompt)
{
    *result =
        (spry_result){.size = offsetof(spry_result, reserved), .n_parts = SPRY_PART_COUNT, .prompt_tokens = n_prompt};
}

const char *spry_finish_name(spry_finish finish)
{
    static const char *const names[] = {[SPRY_FINISH_END] = "end",
                                        [SPRY_FINISH_STOP] = "stop",
                                        [SPRY_FINISH_LENGTH] = "length",
                                        [SPRY_FINISH_CONTEXT] = "context",
                                        [SPRY_FINISH_CANCELLED] = "cancelled"};
    return (size_t)finish < SPRY_COUNT(names) ? names[finish] : "unknown";
}

spry_status spry_engine_check_request(const spry_engine *e, const spry_request *r, bool slides, spry_error *error)
{
    if (!e->model->tokenizer)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s: the model has no tokenizer", e->model->name);
    if (e->model->config.bidirectional)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s is a model for embeddings: it does not generate text",
                         e->model->name);
    if (r->n_stop > MAX_STOP_STRINGS)
        return spry_fail(error, SPRY_ERR_INPUT, "%zu stop strings are more than %d", r->n_stop, MAX_STOP_STRINGS);
    for (size_t i = 0; i < r->n_stop; i++)
        if (!r->stop[i][0] || !spry_utf8_valid(spry_view_of(r->stop[i])))
            return spry_fail(error, SPRY_ERR_INPUT, "stop string %zu is empty or not valid UTF-8", i + 1);
    if (r->logprobs > SPRY_TOP_LOGPROBS_MAX)
        return spry_fail(error, SPRY_ERR_INPUT, "logprobs is %u, more than %d", r->logprobs, SPRY_TOP_LOGPROBS_MAX);
    if (r->speculation == SPRY_DRAFT_MODEL && !e->drafter && !e->head)
        return spry_fail(error, SPRY_ERR_INPUT, "the engine has no drafter; give it one or use lookup");
    spry_status status = spry_sampling_check(&r->sampling, e->model->config.n_vocab, error);
    for (size_t i = 0; !status && i < r->n_pictures; i++)
        status = spry_device_check_picture(e->device, r->pictures[i].picture, error);
    return status ? status : spry_engine_check_ids(e, r->prompt, r->n_prompt, slides, error);
}

spry_status spry_session_prepare(spry_session *s, spry_generation *g, bool alone, spry_error *error)
{
    g->model = s->engine->model;
    g->sequence = &s->sequence;
    g->device = s->engine->device;
    return session_draft(s, g, alone, error);
}

spry_status spry_embed_check(const spry_engine *e, const int32_t *ids, size_t count, spry_error *error)
{
    if (!count)
        return spry_fail(error, SPRY_ERR_INPUT, "an empty text has no embedding");
    return spry_engine_check_ids(e, ids, count, false, error);
}

/* ---- grammars ---------------------------------------------------------------------------------------------------- */

spry_status spry_constraint_check(spry_constraint constraint, const char *text, size_t size, spry_error *error)
{
    spry_grammar_kind kind;
    spry_grammar *grammar = NULL;
    if (constraint == SPRY_ANY_TEXT)
        return SPRY_OK;
    if (!spry_grammar_kind_of(&kind, constraint))
        return spry_fail(error, SPRY_ERR_INPUT, "constraint %d is not known", (int)constraint);
    spry_status status = spry_grammar_create(&grammar, kind, (spry_view){text ? text : "", text ? size : 0}, error);
    spry_grammar_unref(grammar);
    return status;
}

static bool shows(const void *user, spry_view spelling)
{
    return spry_chat_template_needs_token(user, spelling);
}

static spry_status prepare(spry_engine *e, bool calls, spry_error *error)
{
    spry_status status = SPRY_OK;
    const spry_tokenizer *tokenizer = e->model->tokenizer;
    pthread_mutex_lock(&e->making);
    if (calls && !e->call_vocabulary)
        status = spry_vocabulary_create_marks(&e->call_vocabulary, tokenizer, e->model->config.n_vocab, shows,
                                              e->model->chat, error);
    else if (!calls && !e->vocabulary)
        status = spry_vocabulary_create(&e->vocabulary, tokenizer, e->model->config.n_vocab, error);
    if (!status && !e->grammars)
        status = spry_grammar_cache_create(&e->grammars, error);
    pthread_mutex_unlock(&e->making);
    return status;
}

/* *grammar is NULL where calls cannot be enforced and none is required. */
static spry_status find_grammar(spry_engine *e, spry_grammar **grammar, spry_grammar_kind kind, const spry_request *r,
                                spry_error *error)
{
    if (r->json_style % SPRY_JSON_LENIENT > SPRY_JSON_ANY)
        return spry_fail(error, SPRY_ERR_INPUT, "the style of JSON %d is not known", (int)r->json_style);
    spry_view text = spry_view_of(r->constraint_text ? r->constraint_text : "");
    bool calls = kind == SPRY_GRAMMAR_TOOL_CALLS;
    spry_status status = prepare(e, calls, error);
    *grammar = NULL;
    if (!status)
        status = spry_grammar_cache_get(e->grammars, grammar, kind, (spry_json_style)r->json_style, text, error);
    if (status == SPRY_ERR_UNSUPPORTED && calls && spry_view_starts(text, SPRY_VIEW("{\"required\":false"))) {
        spry_log_write(&e->log, SPRY_LOG_WARN, "tool calls are not enforced: %s", error ? error->message : "");
        status = SPRY_OK;
    }
    return status;
}

spry_status spry_engine_warnings(spry_engine *e, char **warnings, const spry_request *r, spry_error *error)
{
    spry_grammar_kind kind;
    spry_grammar *grammar = NULL;
    spry_status status = SPRY_OK;
    if (spry_grammar_kind_of(&kind, r->constraint))
        status = find_grammar(e, &grammar, kind, r, error);
    *warnings = status ? NULL : strdup(grammar ? spry_grammar_warnings(grammar) : "");
    spry_grammar_unref(grammar);
    return status || *warnings ? status : spry_fail_memory(error, "warnings", 0);
}

spry_status spry_engine_make_matcher(spry_engine *e, spry_matcher **matcher, const spry_request *r, spry_error *error)
{
    spry_grammar_kind kind;
    spry_grammar *grammar;
    *matcher = NULL;
    if (r->constraint == SPRY_ANY_TEXT)
        return SPRY_OK;
    if (!spry_grammar_kind_of(&kind, r->constraint))
        return spry_fail(error, SPRY_ERR_INPUT, "constraint %d is not known", (int)r->constraint);
    spry_status status = find_grammar(e, &grammar, kind, r, error);
    if (status || !grammar)
        return status;
    const spry_vocabulary *vocabulary = kind == SPRY_GRAMMAR_TOOL_CALLS ? e->call_vocabulary : e->vocabulary;
    status = spry_matcher_create(matcher, grammar, vocabulary, error);
    spry_grammar_unref(grammar);
    return status;
}
