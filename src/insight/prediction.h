/* Predicts the speed of a model from the speed of the machine and the work of the model. */
#ifndef SPRY_INSIGHT_PREDICTION_H
#define SPRY_INSIGHT_PREDICTION_H

#include "insight/model_work.h"
#include "spry_tools.h"

/* Of a model that is open, loaded or not. The kernels are those the speeds were measured with. A type that these speeds
 * do not have is refused. */
spry_status spry_predict_model(spry_prediction *prediction, const spry_machine_speed *speed, const spry_model *model,
                               spry_error *error);

/* Seconds of a prefill, or of a decode step of `batch` sequences of `depth` tokens each. */
double spry_predict_prefill(const spry_machine_speed *speed, const spry_work_setting *setting, size_t tokens);
double spry_predict_decode(const spry_machine_speed *speed, const spry_work_setting *setting, size_t depth,
                           size_t batch);

/* The speed at which all threads read `bytes` repeatedly: from a cache that holds them, or from memory. */
double spry_predict_read(const spry_machine_speed *speed, double bytes);

#endif
