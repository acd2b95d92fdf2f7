/* A step's time is the sum of the times of its parts. Products of one row take as long as reading the weights, from
 * memory or from the cache that holds the whole model, but at least as long as the kernel with cached weights; products
 * of many rows take as long as multiplying, but at least as long as reading the weights. */
#include "insight/prediction.h"

#include <math.h>

#include "insight/model_file.h"
#include "model/quantize.h"
#include "model/shapes.h"

double spry_predict_read(const spry_machine_speed *speed, double bytes)
{
    const spry_read_speed *reads = speed->reads;
    if (bytes <= reads[0].bytes)
        return reads[0].gb_s;
    for (size_t i = 1; i < SPRY_READ_SPEEDS; i++)
        if (bytes < reads[i].bytes) {
            double part = log(bytes / reads[i - 1].bytes) / log(reads[i].bytes / reads[i - 1].bytes);
            return reads[i - 1].gb_s * pow(reads[i].gb_s / reads[i - 1].gb_s, part);
        }
    return reads[SPRY_READ_SPEEDS - 1].gb_s;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Seconds of a step whose data is read again in the next step: `nearer` is the speed of its source relative to
 * memory. */
static double seconds_of(const spry_machine_speed *m, const spry_step_work *work, double nearer)
{
    const double giga = 1e9;
    double sum = work->syncs * m->sync_us * 1e-6;
    for (size_t i = 0; i < SPRY_DTYPE_COUNT; i++) {
        const spry_type_speed *type = &m->types[i];
        const spry_type_work *one = &work->one[i], *many = &work->many[i];
        if (one->bytes > 0)
            sum += larger(one->bytes / nearer / type->decode_gb_s, one->bytes / type->cached_gb_s) / giga;
        if (many->bytes > 0)
            sum += larger(many->products / type->multiply_g_s, many->bytes / nearer / type->decode_gb_s) / giga;
    }
    for (size_t op = 0; op < SPRY_SMALL_COUNT; op++)
        sum += (work->one_small[op] * m->threads + work->many_small[op]) / m->small_g_s[op] / giga;
    return sum + larger(work->attend_products / m->attend_g_s, work->kv_bytes / nearer / m->attend_gb_s) / giga;
}

double spry_predict_prefill(const spry_machine_speed *speed, const spry_work_setting *setting, size_t tokens)
{
    spry_step_work work = spry_work_of_prefill(setting, tokens);
    return seconds_of(speed, &work, 1);
}

double spry_predict_decode(const spry_machine_speed *speed, const spry_work_setting *setting, size_t depth,
                           size_t batch)
{
    size_t keys = depth / SPRY_PAGE_TOKENS * SPRY_PAGE_TOKENS + SPRY_PAGE_TOKENS; /* attention processes whole pages */
    spry_step_work work = spry_work_of_decode(setting, keys - 1, batch);
    return seconds_of(speed, &work, spry_predict_read(speed, spry_work_bytes(&work)) / speed->read_gb_s);
}

/* ---- of a model -------------------------------------------------------------------------------------------------- */

static spry_status check_types(const spry_machine_speed *speed, const spry_work_setting *setting, spry_error *error)
{
    spry_step_work work = spry_work_of_decode(setting, 0, 1);
    for (uint32_t type = 0; type < SPRY_DTYPE_COUNT; type++) {
        const spry_type_speed *t = &speed->types[type];
        if (work.one[type].bytes > 0 && !(t->multiply_g_s > 0 && t->decode_gb_s > 0 && t->cached_gb_s > 0))
            return spry_fail(error, SPRY_ERR_INPUT, "%s: the speed of this machine with %s was not measured",
                             setting->model->name, spry_dtype_name((spry_dtype)type));
    }
    return SPRY_OK;
}

spry_status spry_predict_model(spry_prediction *p, const spry_machine_speed *speed, const spry_model *model,
                               spry_error *error)
{
    spry_work_setting setting = {.model = model, .kv_type = SPRY_F16, .chunk = SPRY_PREDICTED_CHUNK};
    *p = (spry_prediction){.context = SPRY_PREDICTED_CONTEXT};
    spry_status status = spry_ops_get(&setting.ops, speed->kernels, error);
    if (!status)
        status = check_types(speed, &setting, error);
    if (status)
        return status;
    if (model->config.n_context < p->context)
        p->context = model->config.n_context;
    p->size = spry_model_size_of(&setting, p->context);
    p->memory_bytes = p->size.weight_bytes + p->size.kv_bytes + p->size.scratch_bytes;
    p->prefill_tps = SPRY_PREDICTED_PREFILL / spry_predict_prefill(speed, &setting, SPRY_PREDICTED_PREFILL);
    p->decode_tps = 1 / spry_predict_decode(speed, &setting, 0, 1);
    p->ttft_1k_ms = 1e3 * spry_predict_prefill(speed, &setting, SPRY_PREDICTED_PROMPT);
    return SPRY_OK;
}

spry_status spry_predict_file(spry_prediction *prediction, const spry_machine_speed *speed, const spry_model_file *file,
                              spry_error *error)
{
    spry_model *model = NULL;
    const char *name = file->data ? spry_model_file_name(file) : file->path;
    spry_status status = spry_model_open_sizes(&model, name, file->data, file->size, error);
    if (!status)
        status = spry_predict_model(prediction, speed, model, error);
    spry_model_close(model);
    return status;
}

spry_status spry_predict_shape(spry_prediction *prediction, const spry_machine_speed *speed, const char *shape_name,
                               const char *type, spry_error *error)
{
    const spry_shape *shape = spry_shape_find(shape_name);
    const spry_recipe *recipe;
    spry_model *model = NULL;
    if (!shape)
        return spry_fail(error, SPRY_ERR_INPUT, "unknown shape '%.40s'", shape_name);
    spry_status status = spry_recipe_find(&recipe, type, error);
    if (!status)
        status = spry_shape_model(&model, shape, shape_name, error);
    if (!status)
        status = spry_model_quantize_sizes(model, recipe, error);
    if (!status)
        status = spry_predict_model(prediction, speed, model, error);
    spry_model_close(model);
    return status;
}
