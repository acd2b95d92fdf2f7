/* Requests: defaults, checks, and the preparation of a session for them. */
#include "base/sized.h"
#include "base/utf8.h"
#include "engine/engine_state.h"

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
    if (!status && !spry_sized_zero(own->reserved, sizeof own->reserved))
        status = spry_fail(error, SPRY_ERR_INPUT, "spry_request.reserved is not zero");
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
    if (r->speculation == SPRY_DRAFT_MODEL && !e->drafter)
        return spry_fail(error, SPRY_ERR_INPUT, "the engine has no drafter; give it one or use lookup");
    spry_status status = spry_sampling_check(&r->sampling, e->model->config.n_vocab, error);
    return status ? status : spry_engine_check_ids(e, r->prompt, r->n_prompt, slides, error);
}

spry_status spry_session_prepare(spry_session *s, spry_generation *g, bool alone, spry_error *error)
{
    g->model = s->engine->model;
    g->sequence = &s->sequence;
    g->device = s->engine->device;
    return spry_session_draft(s, g, alone, error);
}
