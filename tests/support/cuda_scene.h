/* Shared parts of the tests of GPU kernels. The tests run on the host (support/cuda_host.h); with the argument `gpu`
 * they run on the first GPU. */
#ifndef SPRY_TESTS_CUDA_SCENE_H
#define SPRY_TESTS_CUDA_SCENE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_state.h"
#include "support/cuda_imitation.h"

/* Images for a real GPU: the program's, or a test's own. */
#ifndef REAL_IMAGES
#define REAL_IMAGES spry_cuda_images()
#endif

static spry_cuda_context gpu;
static const spry_ops *ref;
static uint32_t random_state = 1;

static uint32_t random_bits(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 8;
}

static float uniform(void)
{
    return (float)(random_bits() & 0xffff) / 32768.0f - 1;
}

static void fill(float *out, size_t n, float size)
{
    for (size_t i = 0; i < n; i++)
        out[i] = uniform() * size;
}

static void *taken(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    assert_non_null(memory);
    return memory;
}

static spry_cuda_memory on_gpu(const void *bytes, size_t size)
{
    spry_cuda_memory memory = spry_cuda_allocate(&gpu, size);
    if (bytes)
        spry_cuda_write(&gpu, memory, bytes, size);
    spry_cuda_finish(&gpu);
    return memory;
}

static void from_gpu(void *to, spry_cuda_memory from, size_t size)
{
    spry_error error = {0};
    spry_cuda_read(&gpu, to, from, size);
    spry_cuda_finish(&gpu);
    spry_status status = spry_cuda_fault(&gpu, "a test", &error);
    if (status)
        fail_msg("%s", error.message);
}

static int run_on_gpu(int argc, char **argv, const struct CMUnitTest *tests, size_t count)
{
    bool real = argc > 1 && !strcmp(argv[1], "gpu");
    spry_error error = {0};
    cuda_imitation_reset();
    spry_cuda driver = cuda_imitation_driver();
    if (spry_ops_get(&ref, "ref", &error) || (real && spry_cuda_open(&driver, SPRY_CUDA_LIBRARY, &error)) ||
        spry_cuda_context_init(&gpu, &driver, 0, real ? REAL_IMAGES : cuda_imitation_images, &error)) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    int failed = _cmocka_run_group_tests("kernels", tests, count, NULL, NULL);
    spry_cuda_context_deinit(&gpu);
    spry_cuda_close(&driver);
    return failed;
}

#endif
