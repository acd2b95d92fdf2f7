/* spry eval span: what reusing fragments of a prompt costs, and what it saves.
 *
 * A prompt is the tokenizer's own beginning, documents and a question. Each document is a span, tokenised on its own.
 * The reference is the prompt computed whole; against it stand prompts whose spans were computed before, elsewhere, and
 * of which only the first pages are computed in place. What is compared are the predictions of the answer's first
 * tokens, which are the reference's own, most probable ones.
 *
 * No run finds anything of another: each has a salt of its own, under which its spans are computed beforehand. */
#ifndef SPRY_APPS_EVAL_SPAN_H
#define SPRY_APPS_EVAL_SPAN_H

#include "base/buffer.h"
#include "cli/common_options.h"
#include "eval/eval_stats.h"

/* ---- the command ------------------------------------------------------------------------------------------------- */

typedef struct spry_eval_span_flags {
    const char *docs, *questions, *plot;
    uint32_t shuffles, seed, tokens;
} spry_eval_span_flags;

void spry_eval_span_flags_default(spry_eval_span_flags *flags);
spry_option_table spry_eval_span_flags_table(spry_eval_span_flags *flags);

/* Reads, measures and prints; `flags->docs` and `flags->questions` are set. */
spry_status spry_eval_span(const spry_eval_span_flags *flags, bool json, const char *model,
                           const spry_model_flags *model_flags, spry_engine_flags *engine_flags, spry_error *error);

/* ---- documents and questions ------------------------------------------------------------------------------------- */

typedef struct spry_eval_text {
    char *name; /* owned: of a document's file; NULL for questions */
    spry_buffer text;
    int32_t *ids; /* owned; without the tokenizer's beginning */
    size_t n_ids;
} spry_eval_text;

typedef struct spry_eval_texts {
    spry_eval_text *items;
    size_t count;
} spry_eval_texts;

typedef struct spry_eval_corpus {
    spry_eval_texts documents; /* by name */
    spry_eval_texts questions; /* in the file's order */
    spry_eval_text start;      /* what the tokenizer puts before every text; may have no ids */
    size_t document_tokens;    /* of all documents */
    size_t shortest_document, longest_document, longest_question;
} spry_eval_corpus;

/* Reads every file in the folder, and the questions: a line each, plain or {"question": "..."}. Whatever cannot be text
 * or is empty is refused with its name. `corpus` is to be deinitialised whatever happens. */
spry_status spry_eval_corpus_read(spry_eval_corpus *corpus, const char *folder, const char *questions,
                                  spry_error *error);
spry_status spry_eval_corpus_tokenize(spry_eval_corpus *corpus, const spry_engine *engine, spry_error *error);
void spry_eval_corpus_deinit(spry_eval_corpus *corpus);

/* ---- measuring --------------------------------------------------------------------------------------------------- */

enum { SPRY_EVAL_REPAIRS = 5, SPRY_EVAL_ORDERS = 2 };
enum { SPRY_EVAL_REPAIR_SHARE = 3 }; /* the one that is a share of the mean document */

/* How much of each span is computed in place. */
typedef struct spry_eval_repair {
    const char *name;
    size_t tokens; /* SPRY_REPAIR_ALL: spans are computed like any text */
} spry_eval_repair;

/* Of all prompts with one repair, in one kind of order. */
typedef struct spry_eval_span_result {
    spry_eval_summary divergence; /* of the reused spans' predictions from the reference's, in nats */
    double top1;                  /* share of predictions with the same most probable token */
    bool identical;               /* all logits are the same bits */
    size_t positions;             /* predictions compared */
    double ttft_ms;               /* median; spans were computed before, nothing else was */
    double ttft_ratio;            /* to the reference's: median, prompt by prompt */
    double repaired_tokens;       /* of spans, computed in place: mean of a prompt */
    double computed_tokens;       /* of the prompt: mean */
} spry_eval_span_result;

typedef struct spry_eval_span_order {
    const char *name;
    size_t n_orders;
    double full_ttft_ms; /* median of the reference, nothing computed before */
    spry_eval_span_result results[SPRY_EVAL_REPAIRS];
} spry_eval_span_order;

typedef struct spry_eval_span_report {
    const char *model; /* borrowed */
    const spry_eval_corpus *corpus;
    size_t page_tokens, tokens;
    uint32_t seed;
    double prompt_tokens; /* mean */
    spry_eval_repair repairs[SPRY_EVAL_REPAIRS];
    spry_eval_span_order orders[SPRY_EVAL_ORDERS]; /* as they are sorted; shuffled */
    size_t n_orders;
    double seconds;
} spry_eval_span_report;

/* Fills the report but for `model`. Shows progress. */
spry_status spry_eval_span_run(spry_eval_span_report *report, spry_engine *engine, const spry_eval_corpus *corpus,
                               const spry_eval_span_flags *flags, spry_error *error);

/* ---- saying it --------------------------------------------------------------------------------------------------- */

void spry_eval_span_print(const spry_eval_span_report *report);
spry_status spry_eval_span_print_json(const spry_eval_span_report *report, spry_error *error);

/* A page of HTML that needs nothing from outside. Look at out->failed. */
void spry_eval_span_plot(spry_buffer *out, const spry_eval_span_report *report);

#endif
