/* Opening and closing a model on a GPU. */
#include "golden/cuda_runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_model.h"
#include "device/device_impl.h"
#include "device/split/split_device.h"
#include "model/quantize.h"
#include "support/cuda_imitation.h"
#include "support/must.h"

bool cuda_runner_real, cuda_runner_vulkan;

const spry_device_kind *cuda_runner_kind(void)
{
    return cuda_runner_vulkan ? &spry_device_kind_vulkan : &spry_device_kind_cuda;
}

bool cuda_runner_choose(int argc, char **argv)
{
    spry_error why = {0};
    cuda_runner_vulkan = argc > 1 && !strcmp(argv[1], "vulkan");
    cuda_runner_real = cuda_runner_vulkan || (argc > 1 && !strcmp(argv[1], "gpu"));
    if (!cuda_runner_vulkan || spry_device_total("vulkan:0"))
        return true;
    spry_device_explain("vulkan:0", &why);
    printf("SKIPPED vulkan: %s\n", why.message);
    return false;
}

/* The heads' matrices of latent attention, which quantising leaves as they are, as floats. */
static void unpack_heads(model_runner *r)
{
    const spry_config *c = &r->model->config;
    for (size_t i = 0; c->n_kv_rank && i < (size_t)c->n_layers * c->n_heads; i++) {
        spry_weight *w = &r->model->weights.layers[i / c->n_heads].v_b[i % c->n_heads];
        float *floats = spry_arena_alloc(&r->model->arena, w->n_out * w->n_in, sizeof *floats);
        assert_non_null(floats);
        for (size_t row = 0; row < w->n_out; row++)
            r->ops->decode[w->type](floats + row * w->n_in, w->data + row * w->row_bytes, w->n_in);
        *w = (spry_weight){.data = (const unsigned char *)floats,
                           .type = SPRY_F32,
                           .n_out = w->n_out,
                           .n_in = w->n_in,
                           .row_bytes = w->n_in * sizeof *floats};
    }
}

static spry_status open_after(spry_device **out, const char *piece, const spry_device_setup *setup, spry_error *error)
{
    spry_cuda driver = cuda_imitation_driver();
    (void)piece;
    *out = NULL;
    if (cuda_runner_vulkan)
        return spry_device_kind_vulkan.open(out, "", setup, error);
    spry_status status = cuda_runner_real ? spry_cuda_open(&driver, SPRY_CUDA_LIBRARY, error) : SPRY_OK;
    return status ? status
                  : spry_cuda_device_open(out, &driver, cuda_runner_real ? spry_cuda_images() : cuda_imitation_images,
                                          0, setup, error);
}

void cuda_runner_open(model_runner *r, const char *path, const char *lora, const char *type, spry_dtype kv)
{
    const spry_recipe *recipe;
    spry_error error = {0};
    *r = (model_runner){0};
    cuda_imitation_reset();
    must(spry_model_open(&r->model, path, &error), &error);
    must(spry_ops_get(&r->ops, "ref", &error), &error);
    must(spry_threads_create(&r->threads, 1, &error), &error);
    if (type) {
        must(spry_recipe_find(&recipe, type, &error), &error);
        must(spry_model_quantize(r->model, recipe, r->ops, r->threads, true, &error), &error);
        unpack_heads(r);
    }
    if (lora)
        must(spry_model_add_adapters(r->model, lora, &error), &error);
    r->adapters = spry_adapters_default(&r->model->adapters);
    spry_kv_shape shape = spry_model_kv_shape(r->model, kv);
    shape.n_states = RUNNER_STATES;
    must(spry_kv_pool_init(&r->pool, &shape, 4 * RUNNER_TOKENS / SPRY_PAGE_TOKENS, &error), &error);
    cuda_runner_reopen(r);
}

void cuda_runner_reopen(model_runner *r)
{
    spry_error error = {0};
    const spry_device_setup setup = runner_setup(r);
    spry_device_close(r->device);
    must(open_after(&r->device, "", &setup, &error), &error);
    spry_device_attach(r->device, &r->pool);
}

void cuda_runner_close(model_runner *r)
{
    runner_close(r);
    if (!cuda_runner_real)
        assert_true(cuda_imitation_is_clean());
}

/* ---- a model split over CPU and GPU ------------------------------------------------------------------------------ */

void cuda_runner_split(model_runner *r, uint32_t layers, bool turned)
{
    spry_error error = {0};
    spry_device_kind gpu = *cuda_runner_kind();
    gpu.open = open_after;
    gpu.available = NULL;
    const spry_split_side cpu = {&spry_device_kind_cpu, "", "cpu"}, cuda = {&gpu, "", "cuda"};
    const spry_split_side sides[] = {turned ? cuda : cpu, turned ? cpu : cuda};
    spry_device_setup setup = runner_setup(r);
    setup.layers = layers;
    spry_device_close(r->device);
    must(spry_split_open(&r->device, sides, &setup, &error), &error);
    assert_int_equal(spry_device_layers(r->device), layers);
    spry_device_attach(r->device, &r->pool);
}

/* ---- bounds ------------------------------------------------------------------------------------------------------ */

static double form_rounding(spry_dtype type)
{
    switch (spry_cuda_act_format(spry_cuda_stored_type(type, false))) {
    case SPRY_ACT_BF16X2: return 0x1p-17 / 0x1p-24;
    case SPRY_ACT_BF16X3: return 2; /* matrix instructions cut off what floats round */
    default: return 0x1p-8 / 0x1p-24;
    }
}

double cuda_runner_rounding(const model_runner *r)
{
    const spry_layer *l = &r->model->weights.layers[r->model->config.n_layers - 1];
    double q = form_rounding(l->q.type), up = form_rounding(l->router.data ? l->expert_up[0].type : l->up.type);
    return q > up ? q : up;
}
