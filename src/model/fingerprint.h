/* A 128-bit identifier of what a model computes: models that differ in any weight or setting have different ones. */
#ifndef SPRY_MODEL_FINGERPRINT_H
#define SPRY_MODEL_FINGERPRINT_H

#include "kv/kv_key.h"
#include "model/model.h"
#include "platform/threads.h"

/* Reads every tensor of the file, split over the threads. Call before the weights are packed, while their pages are in
 * memory. */
spry_status spry_model_fingerprint(spry_kv_key *out, const spry_model *model, spry_threads *threads, spry_error *error);

#endif
