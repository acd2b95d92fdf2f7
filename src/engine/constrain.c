/* Grammars of requests: compiled once per text, with a matcher for each answer. */
#include "engine/engine_state.h"

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

static spry_status prepare(spry_engine *e, spry_error *error)
{
    spry_status status = SPRY_OK;
    pthread_mutex_lock(&e->making);
    if (!e->vocabulary)
        status = spry_vocabulary_create(&e->vocabulary, e->model->tokenizer, e->model->config.n_vocab, error);
    if (!status && !e->grammars)
        status = spry_grammar_cache_create(&e->grammars, error);
    pthread_mutex_unlock(&e->making);
    return status;
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
    spry_view text = spry_view_of(r->constraint_text ? r->constraint_text : "");
    spry_status status = prepare(e, error);
    if (!status)
        status = spry_grammar_cache_get(e->grammars, &grammar, kind, text, error);
    if (status)
        return status;
    status = spry_matcher_create(matcher, grammar, e->vocabulary, error);
    spry_grammar_unref(grammar);
    return status;
}
