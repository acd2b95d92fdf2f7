/* The forward pass: rows in, logits out. A step is a list of segments; a segment is consecutive rows of one sequence.
 * The pass does not know why a row is there: prefill, decode and verification are only different lists. Its working
 * memory is carved once; a step allocates nothing. */
#ifndef SPRY_MODEL_PASS_H
#define SPRY_MODEL_PASS_H

#include "kv/kv_table.h"
#include "model/config.h"
#include "model/op_watch.h"
#include "model/weights.h"
#include "platform/threads.h"

/* What a segment gives: nothing, the logits of its last row or of all rows, or the normalised hidden states of all
 * rows, from which logits would be made. */
typedef enum spry_want { SPRY_WANT_NOTHING, SPRY_WANT_LAST, SPRY_WANT_ALL, SPRY_WANT_HIDDEN } spry_want;

typedef struct spry_segment {
    const spry_kv_table *table; /* holds at least first_position + n_rows tokens: extend it before the step */
    const int32_t *tokens;      /* [n_rows] */
    uint32_t first_position, n_rows;
    spry_want want;
} spry_segment;

typedef struct spry_pass_limits {
    uint32_t max_rows;   /* rows of a step */
    uint32_t max_logits; /* rows whose logits a step can give */
    uint32_t session;    /* tokens a sequence can have: chooses long rope's list */
} spry_pass_limits;

typedef struct spry_pass spry_pass;

/* Borrows everything but the limits. */
spry_status spry_pass_create(spry_pass **out, const spry_config *config, const spry_weights *weights,
                             spry_kv_pool *pool, const spry_ops *ops, spry_threads *threads,
                             const spry_pass_limits *limits, spry_error *error);
void spry_pass_destroy(spry_pass *pass);

/* Works with other threads from now on. */
void spry_pass_set_threads(spry_pass *pass, spry_threads *threads);

/* Steps become spans in a lane of the trace; NULL: no longer. */
void spry_pass_set_trace(spry_pass *pass, spry_trace *trace, uint32_t lane);

/* Ops are counted from now on; NULL: nobody watches. Borrowed. */
void spry_pass_set_watch(spry_pass *pass, spry_op_watch *watch);

/* Bytes of working memory a pass of these limits takes; false when that overflows. */
bool spry_pass_bytes(size_t *bytes, const spry_config *config, const spry_pass_limits *limits);

/* What of that becomes resident when no step has more rows, nor more rows of logits, than these. `integers`: matrices
 * are multiplied by integer kernels. */
bool spry_pass_touched_bytes(size_t *bytes, const spry_config *config, const spry_pass_limits *limits, size_t rows,
                             size_t logits, bool integers);

/* Runs a step. Refuses ids outside the vocabulary and more rows than the limits; then no key or value has changed. */
spry_status spry_pass_step(spry_pass *pass, const spry_segment *segments, size_t n_segments, spry_error *error);

/* Logits of the step's wanted rows in the order of the list, [n_vocab] each; valid until the next step. */
const float *spry_pass_logits(const spry_pass *pass, size_t index);

/* The same of hidden states, [n_embd] each; counted apart from the logits, and as many as the step has rows. */
const float *spry_pass_hidden(const spry_pass *pass, size_t index);

#endif
