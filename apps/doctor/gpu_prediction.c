/* Constants are fitted to what was measured on one H200 (docs/GPU.md): a step reads what it needs at four fifths of the
 * memory's speed and waits for its phases besides; a long prefill reaches a sixth of what matrix instructions could do.
 */
#include "doctor/gpu_prediction.h"

static const double read_share = 0.8, step_seconds = 0.65e-3, multiply_share = 0.16, memory_share = 0.94;

/* Operations on 16-bit floats that a multiprocessor does in a cycle with matrix instructions; 0: none that spry uses.
 */
static double operations(const spry_gpu *gpu)
{
    static const struct {
        uint32_t major, minor;
        double each;
    } list[] = {{8, 0, 2048}, {8, 6, 1024}, {8, 9, 1024}, {9, 0, 4096}, {10, 0, 8192}};
    double each = 0;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (gpu->compute_major > list[i].major ||
            (gpu->compute_major == list[i].major && gpu->compute_minor >= list[i].minor))
            each = list[i].each;
    return each;
}

spry_gpu_prediction spry_predict_gpu(const spry_gpu *gpu, const spry_prediction *model)
{
    const spry_model_size *s = &model->size;
    double used = s->weight_bytes > 0 ? 1 - (s->expert_bytes - s->expert_token_bytes) / s->weight_bytes : 1;
    double seconds = s->file_bytes * used / (read_share * gpu->read_gb_s * 1e9) + step_seconds;
    double peak = operations(gpu) * gpu->multiprocessors * gpu->clock_ghz * 1e9;
    double needs = s->file_bytes + s->kv_bytes + s->scratch_bytes;
    bool computes = peak > 0 && gpu->read_gb_s > 0 && s->parameters > 0;
    return (spry_gpu_prediction){.decode_tps = computes ? 1 / seconds : 0,
                                 .prefill_tps = computes ? multiply_share * peak / (2 * s->parameters * used) : 0,
                                 .fits = needs <= memory_share * (double)gpu->bytes};
}
