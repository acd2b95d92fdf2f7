/* What a request for answers asks for: the options of the *read* phase, filled from the fields of its body. */
#ifndef SPRY_SERVER_COMPLETION_OPTIONS_H
#define SPRY_SERVER_COMPLETION_OPTIONS_H

#include "cli/common_options.h"
#include "server/request/request_fields.h"

enum { SPRY_BIAS_MAX = 1024, SPRY_CHOICES_MAX = 16, SPRY_ANSWERS_MAX = 128 };

/* `request` points into the struct, which therefore must not be moved. Strings are borrowed from the body. */
typedef struct spry_completion_options {
    spry_request request; /* common to all answers; prompt, seed and callbacks are set when they are submitted */
    const char *stops[SPRY_STOPS_MAX];
    spry_logit_bias bias[SPRY_BIAS_MAX];
    char *constraint_text;
    uint32_t n_each;                   /* answers to each prompt */
    bool no_answer;                    /* nothing is generated: max_tokens is 0 */
    bool echo;                         /* the prompt is part of the reply */
    bool want_logprobs;                /* of generated tokens, and of echoed ones */
    bool stream, include_usage;        /* include_usage: at the end of a stream */
    bool parse_tools, parse_reasoning; /* find tool calls and reasoning in the text */
    bool must_fit, no_shift;           /* where it slides: prompts that do not fit are errors; answers end instead */
    bool slide;                        /* a full context drops its oldest tokens behind the first `keep` */
    bool cut_middle;                   /* a prompt that is too long loses its middle */
    size_t keep;                       /* SIZE_MAX: the whole prompt */
    bool want_progress;                /* with stream: events while the prompt is computed */
    bool want_timings;                 /* with stream: timings in every event */
    const spry_engine *engine;         /* NULL until the model is loaded */
    bool several;                      /* the prompt is a list of prompts, and so is the reply */
    bool one_call;                     /* at most one call */
    bool keep_raw_text;                /* keep the text as generated, in addition to what is parsed from it */
    bool answer_span;                  /* the answer becomes a fragment */
    const char *stream_id;             /* with stream: its stream is kept under this name; NULL: it is not */
    bool batch;                        /* gives way to requests that are not */
    bool has_keep_alive;
    char *lora;          /* choice of adapters (spry_serve.h); NULL: the engine's */
    double keep_alive_s; /* of the model, once it is not in use; negative: no limit */
} spry_completion_options;

void spry_completion_options_init(spry_completion_options *options, spry_speculation speculation);
void spry_completion_options_deinit(spry_completion_options *options);

/* The sampling settings, with logit_bias in the forms of OpenAI and of llama-server: ids or texts, whose tokens are
 * known once the model is loaded. */
void spry_fields_sampling(spry_completion_options *options, spry_fields *fields);

/* "stop": a string or a list of strings. */
void spry_fields_stop(spry_completion_options *options, spry_fields *fields);

/* Constraints of the answer: response_format, grammar, json_schema and vLLM's guided_... */
void spry_fields_constraint(spry_completion_options *options, spry_fields *fields);

/* Sets the constraint from the value of field `key`; an error when there is one already. */
void spry_fields_set_constraint(spry_completion_options *options, spry_fields *fields, const char *key,
                                spry_constraint constraint, const json_t *value);

/* A choice of adapters as a text, to be freed; NULL when it was refused, or is absent. */
char *spry_fields_lora(spry_fields *fields, const char *key, const json_t *value);

/* spry's own fields (fields_own.c), which every path that answers has; read after the others, which set defaults. */
void spry_fields_own(spry_completion_options *options, spry_fields *fields, const spry_serve_settings *settings);

#endif
