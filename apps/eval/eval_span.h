/* spry eval span: the cost and the savings of reusing fragments of a prompt.
 *
 * A prompt is the tokenizer's start token, documents and a question. Each document is a span, tokenised separately. The
 * reference is the fully computed prompt; it is compared with prompts whose spans were computed before, elsewhere, and
 * of which only some pages are recomputed. The predictions of the answer's first tokens are compared, where the
 * answer is the reference's most probable tokens.
 *
 * Runs share no cached pages: each has its own salt, under which its spans are computed beforehand. */
#ifndef SPRY_APPS_EVAL_SPAN_H
#define SPRY_APPS_EVAL_SPAN_H

#include "base/buffer.h"
#include "cli/common_options.h"
#include "eval/eval_run.h"

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
    char *name; /* owned: the document's file name; NULL for questions */
    spry_buffer text;
    int32_t *ids; /* owned; without the tokenizer's start token */
    size_t n_ids;
} spry_eval_text;

typedef struct spry_eval_texts {
    spry_eval_text *items;
    size_t count;
} spry_eval_texts;

typedef struct spry_eval_corpus {
    spry_eval_texts documents; /* documents, sorted by name */
    spry_eval_texts questions; /* questions, in the file's order */
    spry_eval_text start;      /* the tokens that the tokenizer adds before every text; may be empty */
    size_t document_tokens;    /* tokens of all documents */
    size_t shortest_document, longest_document, longest_question;
} spry_eval_corpus;

/* Reads every file in the folder, and the questions: one per line, plain or {"question": "..."}. Files that are not
 * text or are empty are refused by name. `corpus` must be deinitialised also on failure. */
spry_status spry_eval_corpus_read(spry_eval_corpus *corpus, const char *folder, const char *questions,
                                  spry_error *error);
spry_status spry_eval_corpus_tokenize(spry_eval_corpus *corpus, const spry_engine *engine, spry_error *error);
void spry_eval_corpus_deinit(spry_eval_corpus *corpus);

/* ---- measuring --------------------------------------------------------------------------------------------------- */

enum { SPRY_EVAL_REPAIRS = 7, SPRY_EVAL_ORDERS = 2 };
enum { SPRY_EVAL_REPAIR_SHARE = 3 }; /* the one relative to the mean document; the next two spend as much elsewhere */

/* How much of the spans is recomputed in place. */
typedef struct spry_eval_repair {
    const char *name;
    size_t tokens; /* tokens that are recomputed, as `span_repair` of spry_request */
} spry_eval_repair;

/* For all prompts with one repair, in one kind of order. */
typedef struct spry_eval_span_result {
    spry_eval_summary divergence; /* divergence of predictions with reused spans from the reference's, in nats */
    double top1;                  /* share of predictions with the same most probable token */
    bool identical;               /* all logits are the same bits */
    size_t positions;             /* predictions compared */
    double ttft_ms;               /* median; only spans were computed before */
    double ttft_ratio;            /* relative to the reference: median over prompts */
    double repaired_tokens;       /* tokens of spans recomputed in place, mean per prompt */
    double computed_tokens;       /* tokens of the prompt that were computed, mean */
} spry_eval_span_result;

typedef struct spry_eval_span_order {
    const char *name;
    size_t n_orders;
    double full_ttft_ms; /* median of the reference, with nothing cached */
    spry_eval_span_result results[SPRY_EVAL_REPAIRS];
} spry_eval_span_order;

typedef struct spry_eval_span_report {
    const char *model; /* borrowed */
    const spry_eval_corpus *corpus;
    size_t page_tokens, tokens;
    uint32_t seed;
    double prompt_tokens; /* mean */
    spry_eval_repair repairs[SPRY_EVAL_REPAIRS];
    spry_eval_span_order orders[SPRY_EVAL_ORDERS]; /* results with documents in the original order, and shuffled */
    size_t n_orders;
    double seconds;
} spry_eval_span_report;

/* ---- saying it --------------------------------------------------------------------------------------------------- */

/* A self-contained HTML page. Check out->failed. */
void spry_eval_span_plot(spry_buffer *out, const spry_eval_span_report *report);

#endif
