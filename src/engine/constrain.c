/* Grammars of requests: compiled once per text, with a matcher for each answer. */
#include <string.h>

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
