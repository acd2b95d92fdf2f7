/* Grammars and sampling for tools: one constraint walked by hand, draws from given logits. */
#include <stdlib.h>

#include "grammar/grammar.h"
#include "platform/clock.h"
#include "sampling/sampler.h"
#include "spry_tools.h"

enum { CHUNK_BYTES = 1024 };

struct spry_matching {
    spry_grammar *grammar;
    spry_vocabulary *vocabulary; /* NULL: only bytes */
    spry_matcher *matcher;
    spry_matching_times times;
};

/* ---- grammars -------------------------------------------------------------------------------------------------- */

static double ms_since(uint64_t *start)
{
    uint64_t now = spry_clock_ns(), before = *start;
    *start = now;
    return (double)(now - before) / 1e6;
}

spry_status spry_matching_replace(spry_matching *m, spry_constraint constraint, spry_json_style style, const char *text,
                                  size_t size, spry_error *error)
{
    spry_grammar_kind kind;
    spry_matcher_destroy(m->matcher);
    spry_grammar_unref(m->grammar);
    m->matcher = NULL;
    m->grammar = NULL;
    if (!spry_grammar_kind_of(&kind, constraint))
        return spry_fail(error, SPRY_ERR_INPUT, "constraint %d is not known", (int)constraint);
    uint64_t start = spry_clock_ns();
    spry_status status = spry_grammar_create_styled(&m->grammar, kind, style, (spry_view){text, size}, error);
    m->times.compile_ms = ms_since(&start);
    if (!status)
        status = spry_matcher_create(&m->matcher, m->grammar, m->vocabulary, error);
    m->times.prepare_ms = ms_since(&start);
    return status;
}

spry_status spry_matching_create(spry_matching **out, spry_constraint constraint, spry_json_style style,
                                 const char *text, size_t size, const spry_tokenizer *tokenizer, spry_error *error)
{
    spry_status status = SPRY_OK;
    uint64_t start = spry_clock_ns();
    spry_matching *m = calloc(1, sizeof *m);
    *out = NULL;
    if (!m)
        return spry_fail_memory(error, "a matching", sizeof *m);
    if (tokenizer)
        status = spry_vocabulary_create(&m->vocabulary, tokenizer, spry_tokenizer_size(tokenizer), error);
    m->times.vocabulary_ms = ms_since(&start);
    if (!status)
        status = spry_matching_replace(m, constraint, style, text, size, error);
    if (status)
        spry_matching_destroy(m);
    else
        *out = m;
    return status;
}

void spry_matching_reset(spry_matching *m)
{
    spry_matcher_reset(m->matcher);
}

void spry_matching_destroy(spry_matching *m)
{
    if (!m)
        return;
    spry_matcher_destroy(m->matcher);
    spry_vocabulary_destroy(m->vocabulary);
    spry_grammar_unref(m->grammar);
    free(m);
}

/* The matcher takes all of a piece or nothing: as much of the last piece as fits is taken. */
spry_status spry_matching_take(spry_matching *m, size_t *taken, const char *bytes, size_t size, spry_error *error)
{
    size_t chunk = CHUNK_BYTES, fit;
    for (*taken = 0; *taken < size;) {
        size_t part = size - *taken < chunk ? size - *taken : chunk;
        spry_status status = spry_matcher_bytes(m->matcher, &fit, (spry_view){bytes + *taken, part}, error);
        if (status)
            return status;
        if (fit == part)
            *taken += part;
        else if (fit == 0)
            return SPRY_OK;
        else
            chunk = fit;
    }
    return SPRY_OK;
}

spry_status spry_matching_token(spry_matching *m, int32_t id, spry_error *error)
{
    return spry_matcher_token(m->matcher, id, error);
}

bool spry_matching_may_end(const spry_matching *m)
{
    return spry_matcher_may_end(m->matcher);
}

void spry_matching_next_bytes(const spry_matching *m, uint64_t bytes[4])
{
    spry_matcher_next_bytes(m->matcher, bytes);
}

spry_status spry_matching_mask(spry_matching *m, const uint32_t **mask, spry_error *error)
{
    if (!m->vocabulary)
        return spry_fail(error, SPRY_ERR_INPUT, "there is no tokenizer whose tokens could be masked");
    return spry_matcher_mask(m->matcher, mask, error);
}

spry_matching_times spry_matching_get_times(const spry_matching *m)
{
    return m->times;
}

/* ---- sampling -------------------------------------------------------------------------------------------------- */

spry_status spry_sample_logits(int32_t *tokens, size_t n_tokens, float *probabilities, const spry_sampling *settings,
                               const float *logits, size_t n_logits, const int32_t *history, size_t n_history,
                               spry_error *error)
{
    const spry_ops *ops;
    spry_sampler *sampler = NULL;
    spry_status status = spry_ops_get(&ops, "auto", error);
    if (!status)
        status = spry_sampler_create(&sampler, ops, n_logits, error);
    if (!status)
        status = spry_sampler_set(sampler, settings, error);
    if (!status && probabilities)
        status = spry_sampler_probabilities(sampler, probabilities, logits, history, n_history, NULL, error);
    for (size_t i = 0; !status && i < n_tokens; i++)
        status = spry_sampler_draw(sampler, &tokens[i], logits, history, n_history, NULL, error);
    spry_sampler_destroy(sampler);
    return status;
}
