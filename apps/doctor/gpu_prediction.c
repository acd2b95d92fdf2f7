/* Constants are fitted to what was measured on one H200 (docs/GPU.md): a step reads what it needs at four fifths of the
 * memory's speed and waits for its phases besides; a long prefill reaches a sixth of what matrix instructions could do.
 */
#include "doctor/gpu_prediction.h"

static const double read_share = 0.8, step_seconds = 0.65e-3, multiply_share = 0.16, memory_share = 0.94;

spry_gpu_prediction spry_predict_gpu(const spry_gpu *gpu, const spry_prediction *model)
{
    const spry_model_size *s = &model->size;
    double used = s->weight_bytes > 0 ? 1 - (s->expert_bytes - s->expert_token_bytes) / s->weight_bytes : 1;
    double seconds = s->file_bytes * used / (read_share * gpu->read_gb_s * 1e9) + step_seconds;
    double peak = spry_gpu_peak(gpu);
    double needs = s->file_bytes + s->kv_bytes + s->scratch_bytes;
    bool computes = peak > 0 && gpu->read_gb_s > 0 && s->parameters > 0;
    return (spry_gpu_prediction){.decode_tps = computes ? 1 / seconds : 0,
                                 .prefill_tps = computes ? multiply_share * peak / (2 * s->parameters * used) : 0,
                                 .fits = needs <= memory_share * (double)gpu->bytes};
}
