/* Texts with the hidden states that a reference gives for them: the goldens of encoders. */
#ifndef TESTS_GOLDEN_TEXTS_H
#define TESTS_GOLDEN_TEXTS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_IDS = 1024, MAX_TEXTS = 8, TEXT_ENCODERS = 4, GPU_ENCODERS = 3 };

/* XLM-RoBERTa and Nomic BERT were computed by a plain program in double precision. GPUs compute the first
 * GPU_ENCODERS of them. */
extern const char *const text_encoders[TEXT_ENCODERS];

typedef struct text_case {
    const char *prompt;
    int32_t ids[MAX_IDS];
    size_t n_ids, n_rows;
    const float *rows; /* [n_rows, width] */
} text_case;

typedef struct golden_texts {
    json_t *json;
    float *values;
    size_t width, n;
    text_case cases[MAX_TEXTS];
} golden_texts;

/* Fails the running test when the files are not as they must be. */
void texts_open(golden_texts *texts, const char *folder);
void texts_close(golden_texts *texts);

#endif
