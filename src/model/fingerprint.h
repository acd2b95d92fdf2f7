/* A 128-bit name for what a model computes: two models that differ in any weight or setting have different ones. */
#ifndef SPRY_MODEL_FINGERPRINT_H
#define SPRY_MODEL_FINGERPRINT_H

#include "kv/kv_key.h"
#include "model/model.h"
#include "platform/threads.h"

/* Reads every tensor of the file, split over the threads. Before the weights are packed: their pages are still there.
 */
spry_kv_key spry_model_fingerprint(const spry_model *model, spry_threads *threads);

#endif
