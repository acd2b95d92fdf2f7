/* Grammars of requests: compiled once for each text, walked by a matcher for each answer. */
#include "engine/engine_state.h"

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
    static const spry_grammar_kind kinds[] = {[SPRY_GBNF] = SPRY_GRAMMAR_GBNF,
                                              [SPRY_JSON_SCHEMA] = SPRY_GRAMMAR_JSON_SCHEMA,
                                              [SPRY_REGEX] = SPRY_GRAMMAR_REGEX,
                                              [SPRY_CHOICE] = SPRY_GRAMMAR_CHOICE,
                                              [SPRY_JSON_OBJECT] = SPRY_GRAMMAR_JSON_OBJECT};
    spry_grammar *grammar;
    *matcher = NULL;
    if (r->constraint == SPRY_ANY_TEXT)
        return SPRY_OK;
    if ((size_t)r->constraint >= SPRY_COUNT(kinds))
        return spry_fail(error, SPRY_ERR_INPUT, "constraint %d is not known", (int)r->constraint);
    spry_view text = spry_view_of(r->constraint_text ? r->constraint_text : "");
    spry_status status = prepare(e, error);
    if (!status)
        status = spry_grammar_cache_get(e->grammars, &grammar, kinds[r->constraint], text, error);
    if (status)
        return status;
    status = spry_matcher_create(matcher, grammar, e->vocabulary, error);
    spry_grammar_unref(grammar);
    return status;
}
