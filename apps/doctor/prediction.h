/* Predicts the speed of a model from the speed of the machine and the work of the model. */
#ifndef SPRY_APPS_DOCTOR_PREDICTION_H
#define SPRY_APPS_DOCTOR_PREDICTION_H

#include "doctor/machine_speed.h"
#include "doctor/model_work.h"

enum {
    SPRY_PREDICTED_PREFILL = 512,
    SPRY_PREDICTED_PROMPT = 1000,
    SPRY_PREDICTED_CONTEXT = 4096,
    SPRY_PREDICTED_CHUNK = 128 /* the default of engines */
};

typedef struct spry_prediction {
    spry_model_size size;
    uint32_t context;    /* SPRY_PREDICTED_CONTEXT, or the model's limit if that is less */
    double memory_bytes; /* of an engine with one session of that context, keys and values in F16 */
    double prefill_tps;  /* of SPRY_PREDICTED_PREFILL tokens */
    double decode_tps;   /* at the beginning of a context */
    double ttft_1k_ms;   /* of a prompt of SPRY_PREDICTED_PROMPT tokens, none of it cached */
} spry_prediction;

/* For an open model, loaded or not; for a published shape in a type (shapes.h, recipe.h). The kernels are those of the
 * measured speeds. A type without a measured speed is refused. */
spry_status spry_predict_model(spry_prediction *prediction, const spry_machine_speed *speed, const spry_model *model,
                               spry_error *error);
spry_status spry_predict_shape(spry_prediction *prediction, const spry_machine_speed *speed, const char *shape,
                               const char *type, spry_error *error);

/* Seconds of a prefill, or of a decode step of `batch` sequences of `depth` tokens each. */
double spry_predict_prefill(const spry_machine_speed *speed, const spry_work_setting *setting, size_t tokens);
double spry_predict_decode(const spry_machine_speed *speed, const spry_work_setting *setting, size_t depth,
                           size_t batch);

/* The speed at which all threads read `bytes` repeatedly: from a cache that holds them, or from memory. */
double spry_predict_read(const spry_machine_speed *speed, double bytes);

#endif
