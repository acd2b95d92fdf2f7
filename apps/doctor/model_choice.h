/* Recommends a model, among all published shapes and types, for each use: three speeds, and what it is for. */
#ifndef SPRY_APPS_DOCTOR_MODEL_CHOICE_H
#define SPRY_APPS_DOCTOR_MODEL_CHOICE_H

#include "platform/gpu.h"
#include "spry_tools.h"

/* A shape in a type. */
typedef struct spry_candidate {
    const char *shape, *type;
    spry_prediction predicted;
    bool fits; /* spry_prediction_fits */
    /* How well it follows schemas, from 0 to 1, and the source of the judgement; 0: not judged. Borrowed. */
    double schema;
    const char *schema_source;
} spry_candidate;

/* Whether it needs at most 70 % of the available bytes. */
bool spry_prediction_fits(const spry_prediction *prediction, size_t memory);

/* A mixture of experts that needs more than three quarters of the memory: bytes of experts that stay in memory, bytes
 * that a token reads from the file if all experts are used alike, and the speed with a disk of 1 GB/s. Zeros: it fits,
 * has no experts, or is too large without them, too. */
typedef struct spry_expert_prediction {
    double kept_bytes, read_bytes, decode_tps;
} spry_expert_prediction;
spry_expert_prediction spry_predict_experts(const spry_prediction *prediction, size_t memory);

enum { SPRY_CANDIDATES_MAX = 512 };

/* Predicts every published shape in every useful type, shape after shape, types from the most precise. `memory` is the
 * available memory (spry_memory_total). */
spry_status spry_candidates_predict(spry_candidate candidates[SPRY_CANDIDATES_MAX], size_t *count,
                                    const spry_machine_speed *speed, size_t memory, spry_error *error);

typedef enum spry_use {
    SPRY_USE_FAST,
    SPRY_USE_BALANCED,
    SPRY_USE_BEST,
    SPRY_USE_CHAT,
    SPRY_USE_CODE,
    SPRY_USE_STRUCTURED,
    SPRY_USE_VOICE,
    SPRY_USE_EMBEDDINGS,
    SPRY_USE_COUNT
} spry_use;

const char *spry_use_name(spry_use use); /* "fast" */

typedef struct spry_model_choice {
    spry_use use;
    const spry_candidate *chosen; /* NULL: none is fast enough; `why` gives the reason */
    char why[560];                /* a sentence with figures */
    char pull[128];               /* the source of the chosen one for `spry pull`, or empty */
    const char *model;            /* the model's name where it is made for this use; NULL: the shape's */
} spry_model_choice;

/* The best candidate (more parameters, then the more precise type) that fits, is fast enough for the use, and is made
 * for it where models for that are known: code and embeddings. For structured output, of those that follow schemas
 * nearly as well as the best one. */
void spry_choice_make(spry_model_choice *choice, spry_use use, const spry_candidate *candidates, size_t count,
                      size_t memory);

/* ---- GPUs ------------------------------------------------------------------------------------------------------- */

/* How fast a model would run on a GPU: from how fast the GPU reads its memory, its multiprocessors and their clock. 0:
 * not known. */
typedef struct spry_gpu_prediction {
    double prefill_tps, decode_tps; /* for a prompt of SPRY_PREDICTED_PREFILL tokens; at depth 0 */
    bool fits; /* the GPU holds the whole model; false: --gpu-layers auto puts a part of it there */
} spry_gpu_prediction;

/* `model`: predicted for the processor, which counts its bytes. */
spry_gpu_prediction spry_predict_gpu(const spry_gpu *gpu, const spry_prediction *model);

#endif
