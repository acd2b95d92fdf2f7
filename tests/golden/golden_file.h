/* golden.json and golden.f32 of a model folder: prompts, ids, logits and greedy continuations as transformers gives
 * them. */
#ifndef TESTS_GOLDEN_FILE_H
#define TESTS_GOLDEN_FILE_H

#include <stddef.h>
#include <stdint.h>

enum { GOLDEN_MAX_CASES = 16, GOLDEN_CHAIN = 3 };

typedef struct golden_case {
    int32_t *ids, *greedy;
    double *margins; /* how far each greedy choice was ahead of the next */
    size_t n_ids, n_greedy;
    size_t first_row, n_rows;    /* the prompt's rows whose logits are recorded */
    const float *logits;         /* [n_rows, n_vocab] */
    const float *head_logits;    /* NULL, or the same rows of a head that drafts (golden_mtp.f32) */
    int32_t chain[GOLDEN_CHAIN]; /* its drafts after the prompt and the first greedy token, one after the other */
    double chain_margins[GOLDEN_CHAIN];
    double wobble; /* how far its logits moved when all weights were disturbed by 1e-6; 0: not known */
} golden_case;

typedef struct golden_file {
    size_t n_vocab, n_cases;
    golden_case cases[GOLDEN_MAX_CASES];
    float *rows, *head_rows; /* head_rows: NULL without a head */
} golden_file;

/* Fails the running test when something is missing. */
void golden_open(golden_file *golden, const char *folder);
void golden_close(golden_file *golden);

#endif
