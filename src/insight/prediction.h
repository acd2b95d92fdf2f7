/* How fast a model will run, from how fast the machine is and how much the model has to do. */
#ifndef SPRY_INSIGHT_PREDICTION_H
#define SPRY_INSIGHT_PREDICTION_H

#include "insight/model_work.h"
#include "spry_tools.h"

/* Of a model that is open, loaded or not. The kernels are those the speeds were measured with. A type that these speeds
 * do not have is refused. */
spry_status spry_predict_model(spry_prediction *prediction, const spry_machine_speed *speed, const spry_model *model,
                               spry_error *error);

/* Seconds that a prefill, or a decode step of `batch` sequences of `depth` tokens each, will take. */
double spry_predict_prefill(const spry_machine_speed *speed, const spry_work_setting *setting, size_t tokens);
double spry_predict_decode(const spry_machine_speed *speed, const spry_work_setting *setting, size_t depth,
                           size_t batch);

/* How fast all threads read, over and over, so many bytes: from a cache that holds them, or from memory. */
double spry_predict_read(const spry_machine_speed *speed, double bytes);

#endif
