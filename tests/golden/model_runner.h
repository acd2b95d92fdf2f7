/* A model with everything it needs to run steps, for tests that look below the engine. */
#ifndef TESTS_MODEL_RUNNER_H
#define TESTS_MODEL_RUNNER_H

#include "device/device.h"
#include "model/model.h"

typedef struct model_runner {
    spry_model *model;
    spry_threads *threads;
    spry_kv_pool pool;
    const spry_ops *ops;
    spry_device *device;
    spry_adapter_scales adapters; /* of the rows it runs */
} model_runner;

enum { RUNNER_ROWS = 640, RUNNER_TOKENS = 640, RUNNER_STATES = 4 };

/* Where tests compute that do not say. */
#ifndef TEST_DEVICE
#define TEST_DEVICE "cpu"
#endif

/* On a composed device, the last `layers` on its second part; with adapters, or NULL. */
void runner_open_split(model_runner *r, const char *device, uint32_t layers, const char *path, const char *lora,
                       spry_dtype kv);

/* Fails the running test when the model cannot be opened. */
void runner_open_on(model_runner *runner, const char *device, const char *path, const char *cpu, spry_dtype kv,
                    size_t threads);
/* With adapters, which its rows go through by their own scales; NULL: none. */
void runner_open_adapted(model_runner *runner, const char *path, const char *lora, const char *cpu, size_t threads);
static inline void runner_open(model_runner *runner, const char *path, const char *cpu, spry_dtype kv, size_t threads)
{
    runner_open_on(runner, TEST_DEVICE, path, cpu, kv, threads);
}
/* What devices are opened with, once model, pool, kernels and threads are there. */
spry_device_setup runner_setup(model_runner *runner);
void runner_close(model_runner *runner);

/* Normalised hidden states of every id, [count, n_embd], computed in one step; the caller frees. */
float *runner_hidden(model_runner *runner, const int32_t *ids, size_t count);

/* Logits of every id, [count, n_vocab], computed in chunks; the caller frees. */
float *runner_logits(model_runner *runner, const int32_t *ids, size_t count, size_t chunk);

#endif
