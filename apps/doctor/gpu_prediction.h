/* How fast a model would run on a GPU: from how fast the GPU reads its memory, its multiprocessors and their clock. */
#ifndef SPRY_APPS_DOCTOR_GPU_PREDICTION_H
#define SPRY_APPS_DOCTOR_GPU_PREDICTION_H

#include "platform/gpu.h"
#include "spry_tools.h"

/* 0: not known. */
typedef struct spry_gpu_prediction {
    double prefill_tps, decode_tps; /* of SPRY_PREDICTED_PREFILL tokens; at the beginning of a context */
    bool fits;                      /* the whole model; else --gpu-layers auto takes a part of it */
} spry_gpu_prediction;

/* `model`: predicted for the processor, which counts its bytes. */
spry_gpu_prediction spry_predict_gpu(const spry_gpu *gpu, const spry_prediction *model);

#endif
