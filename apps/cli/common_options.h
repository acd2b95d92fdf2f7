/* Options shared by several commands; each group is one struct and one table. */
#ifndef SPRY_CLI_COMMON_OPTIONS_H
#define SPRY_CLI_COMMON_OPTIONS_H

#include "base/options.h"
#include "cli/model_source.h"
#include "spry.h"

typedef struct spry_trace_flags {
    const char *file; /* NULL: none */
    bool ops;
} spry_trace_flags;

spry_option_table spry_trace_flags_table(spry_trace_flags *flags);

/* Checks the combination of flags. */
spry_status spry_trace_flags_check(const spry_trace_flags *flags, spry_error *error);

/* The trace, opened by the first call; NULL when the flags name no file. */
spry_status spry_trace_file_open(spry_trace **trace, const spry_trace_flags *flags, spry_error *error);

/* Closes the trace. Returns `code`, or a failure's code when the file is incomplete, after a message. */
int spry_trace_file_close(int code);

/* ---- common options ---------------------------------------------------------------------------------------------- */

/* ---- the engine -------------------------------------------------------------------------------------------------- */

typedef struct spry_engine_flags {
    spry_engine_options options; /* its log prints warnings unless `quiet`, and all messages when `verbose` */
    spry_trace_flags trace;      /* has its own table */
    const char *reuse;           /* "prefix" or "spans=auto"; with the next, has its own table */
    uint32_t reuse_pages;
    bool verbose;
    bool quiet; /* not an option: suppresses the engine's warnings where, for example, a missing chat template does not
                 * matter */
} spry_engine_flags;

void spry_engine_flags_default(spry_engine_flags *flags);

/* Warnings, and with --verbose everything, are printed. The struct must not move afterwards. */
void spry_engine_flags_log(spry_engine_flags *flags);
spry_option_table spry_engine_flags_table(spry_engine_flags *flags);
spry_option_table spry_reuse_flags_table(spry_engine_flags *flags);

/* The engine's options after these flags were parsed. */
spry_engine_options spry_engine_flags_options(const spry_engine_flags *flags);

/* ---- which model ------------------------------------------------------------------------------------------------- */

typedef struct spry_model_flags {
    const char *models_folder; /* NULL: the user's folder */
} spry_model_flags;

spry_option_table spry_model_flags_table(spry_model_flags *flags);

/* Finds and opens a model; `model` NULL: the bundled one. */
/* What draft_head of an engine's options is for this value of --draft. */
const char *spry_draft_head_of(const char *draft);

spry_status spry_open_model(spry_engine **engine, spry_model_source *source, const char *model,
                            const spry_model_flags *model_flags, spry_engine_flags *engine_flags, spry_error *error);

/* ---- how to answer ----------------------------------------------------------------------------------------------- */

enum { SPRY_STOPS_MAX = 16 };

extern const char *const spry_draft_modes[]; /* "fast", "precise"; ends with NULL */

typedef struct spry_answer_flags {
    spry_sampling sampling; /* with fields unset that no option gave: see spry_answer_flags_sampling */
    const char *seed_text;  /* NULL: no seed given */
    uint32_t max_tokens;
    bool ignore_end, special;
    const char *think; /* on, off, show */
    bool plain;        /* Markdown is shown as it is */
    bool slide;        /* or `keep` is not 0: a full context slides */
    uint32_t keep;     /* tokens kept at the start of the context */
    const char *draft; /* auto, none, lookup or a model */
    uint32_t draft_most;
    const char *draft_mode;
    const char *schema_file, *grammar_file, *regex, *choice; /* constraint of the answer; at most one is not NULL */
    const char *json_style;
    bool json_lenient;
    const char *stops[SPRY_STOPS_MAX];
    spry_option_list stop; /* storage is `stops` */
} spry_answer_flags;

/* Everything unset or off. The struct must not move after. */
void spry_answer_flags_default(spry_answer_flags *flags);

/* Sampling, then the rest; needs room for two tables. */
void spry_answer_flags_tables(spry_option_table tables[2], spry_answer_flags *flags);

/* Sets sampling.seed after parsing: the value of --seed, or a random number. */
spry_status spry_answer_flags_settle(spry_answer_flags *flags, spry_error *error);

/* Names of the values of spry_request.json_style, in their order; the last is NULL. */
extern const char *const spry_json_styles[];

/* spry_request.json_style as the flags give it. */
unsigned char spry_answer_flags_style(const spry_answer_flags *flags);

/* The settings to sample with: the value of the option, or else the model's recommendation, or else the default of
 * `spry run` and the chat: temperature 0.8, top-p 0.95, min-p 0.05. */
void spry_answer_flags_sampling(spry_sampling *out, const spry_answer_flags *flags, const spry_engine *engine);

#endif
