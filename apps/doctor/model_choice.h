/* Which model to take, of all published shapes and types, for three ways to use a machine. */
#ifndef SPRY_APPS_DOCTOR_MODEL_CHOICE_H
#define SPRY_APPS_DOCTOR_MODEL_CHOICE_H

#include "spry_tools.h"

/* A shape in a type. */
typedef struct spry_candidate {
    const char *shape, *type;
    spry_prediction predicted;
    bool fits; /* spry_prediction_fits */
} spry_candidate;

/* Whether what it takes is at most 70 % of the bytes that may be used. */
bool spry_prediction_fits(const spry_prediction *prediction, size_t memory);

enum { SPRY_CANDIDATES_MAX = 512 };

/* Predicts every published shape in every type worth having, shape after shape, types from the finest. `memory` is how
 * many bytes may be used (spry_memory_total). */
spry_status spry_candidates_predict(spry_candidate candidates[SPRY_CANDIDATES_MAX], size_t *count,
                                    const spry_machine_speed *speed, size_t memory, spry_error *error);

typedef enum spry_use { SPRY_USE_FAST, SPRY_USE_BALANCED, SPRY_USE_BEST, SPRY_USE_COUNT } spry_use;

const char *spry_use_name(spry_use use); /* "fast" */

typedef struct spry_model_choice {
    spry_use use;
    const spry_candidate *chosen; /* NULL: none is good enough, and `why` says what is missing */
    char why[320];                /* a sentence with figures */
} spry_model_choice;

/* The best of the candidates (more parameters, then the finer type) that fits and is fast enough for the use. */
void spry_choice_make(spry_model_choice *choice, spry_use use, const spry_candidate *candidates, size_t count,
                      size_t memory);

#endif
