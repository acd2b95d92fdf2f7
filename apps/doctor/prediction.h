/* How fast a model will run, from how fast the machine is and how much the model has to do. */
#ifndef SPRY_APPS_DOCTOR_PREDICTION_H
#define SPRY_APPS_DOCTOR_PREDICTION_H

#include "doctor/machine_speed.h"
#include "doctor/model_work.h"

enum {
    SPRY_PREDICTED_PREFILL = 512,
    SPRY_PREDICTED_PROMPT = 1000,
    SPRY_PREDICTED_CONTEXT = 4096,
    SPRY_PREDICTED_CHUNK = 128 /* as engines have it unless told otherwise */
};

typedef struct spry_prediction {
    spry_model_size size;
    uint32_t context;    /* SPRY_PREDICTED_CONTEXT, or the model's own where that is less */
    double memory_bytes; /* of an engine with one session of that context, keys and values in F16 */
    double prefill_tps;  /* of SPRY_PREDICTED_PREFILL tokens */
    double decode_tps;   /* at the beginning of a context */
    double ttft_1k_ms;   /* of a prompt of SPRY_PREDICTED_PROMPT tokens, nothing of it known before */
} spry_prediction;

/* Of a model that is open, loaded or not; of a published shape in a type (shapes.h, recipe.h). The kernels are those
 * the speeds were measured with. A type that these speeds do not have is refused. */
spry_status spry_predict_model(spry_prediction *prediction, const spry_machine_speed *speed, const spry_model *model,
                               spry_error *error);
spry_status spry_predict_shape(spry_prediction *prediction, const spry_machine_speed *speed, const char *shape,
                               const char *type, spry_error *error);

/* Seconds that a prefill, or a decode step of `batch` sequences of `depth` tokens each, will take. */
double spry_predict_prefill(const spry_machine_speed *speed, const spry_work_setting *setting, size_t tokens);
double spry_predict_decode(const spry_machine_speed *speed, const spry_work_setting *setting, size_t depth,
                           size_t batch);

/* How fast all threads read, over and over, so many bytes: from a cache that holds them, or from memory. */
double spry_predict_read(const spry_machine_speed *speed, double bytes);

#endif
