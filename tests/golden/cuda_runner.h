/* A model_runner whose device is a GPU: an imitated one (support/cuda_imitation.h), the first real one, or the first
 * device of Vulkan, which may be a CPU (Mesa's lavapipe). */
#ifndef TESTS_CUDA_RUNNER_H
#define TESTS_CUDA_RUNNER_H

#include "golden/model_runner.h"

extern bool cuda_runner_real;   /* not imitated */
extern bool cuda_runner_vulkan; /* the kind is "vulkan" */

/* Chooses by the first argument of a program: "gpu", "vulkan", other: imitated. False if there is no such device; the
 * reason is printed. */
bool cuda_runner_choose(int argc, char **argv);

/* The kind of the runner's devices. */
const spry_device_kind *cuda_runner_kind(void);

/* `lora`: NULL, or adapters, which its rows go through by their own scales. `type`: NULL, or what the model is
 * converted to. Fails the running test when the model cannot be opened. */
void cuda_runner_open(model_runner *runner, const char *path, const char *lora, const char *type, spry_dtype kv);

/* Fails the running test when the imitated GPU still holds something. */
void cuda_runner_close(model_runner *runner);

/* Places the runner's weights anew, which have changed. */
void cuda_runner_reopen(model_runner *runner);

/* The last `layers` of a runner's model on the GPU; `turned`: the first ones, and the last on the CPU. */
void cuda_runner_split(model_runner *runner, uint32_t layers, bool turned);

/* What an activation loses on the way into a product, next to what a float's rounding loses. */
double cuda_runner_rounding(const model_runner *runner);

#endif
