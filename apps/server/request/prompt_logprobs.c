#include "server/request/prompt_logprobs.h"

#include <math.h>

#include "server/request/job_wait.h"

static bool on_token(void *user, size_t index, spry_logprob_entry token, const spry_logprob_entry *top, size_t n_top)
{
    spry_answer_token *kept = (spry_answer_token *)user + index;
    *kept = (spry_answer_token){.token = token, .n_top = n_top};
    if (n_top)
        memcpy(kept->top, top, n_top * sizeof *top);
    return true;
}

spry_status spry_prompt_logprobs(spry_answer_token *tokens, spry_completion *c, const spry_tokens *prompt,
                                 spry_error *error)
{
    spry_job *job;
    spry_job_options options;
    spry_evaluation evaluation;
    spry_evaluation_default(&evaluation);
    evaluation.ids = prompt->ids;
    evaluation.count = prompt->count;
    evaluation.n_logprobs = c->options.request.logprobs;
    evaluation.on_token = on_token;
    evaluation.user = tokens;
    tokens[0] = (spry_answer_token){.token = {prompt->ids[0], NAN}};
    spry_job_options_of(&options, c->exchange);
    spry_costs_begin_share(&c->costs);
    spry_status status = spry_job_create_evaluation(&job, c->model->engine, &evaluation, &options, error);
    if (status == SPRY_OK)
        status = spry_job_begin(job, &c->costs, error);
    if (status == SPRY_OK)
        status = spry_job_finish(job, &c->costs, error);
    spry_job_free(job);
    return status;
}
