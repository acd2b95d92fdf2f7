/* GPUs, with a driver made up here: it keeps count of what is taken and given back, plays a GPU of a known speed, and
 * fails at whichever call a test wants. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "platform/gpu.h"

/* ---- the driver -------------------------------------------------------------------------------------------------- */

static struct driver {
    int devices, major;
    size_t free_bytes;
    double gb_s;
    int calls, fail_at; /* the call that fails; 0: none */
    int contexts, buffers, modules, events, current;
    size_t buffer_bytes;
    double launched_bytes, ms, begin_ms, end_ms; /* the device's clock */
    unsigned fill;
} driver;

enum { DEVICE = 40, MULTIPROCESSORS = 10, FAILURE = 700 };

static int step(void)
{
    return ++driver.calls == driver.fail_at ? FAILURE : 0;
}

static int fake_init(unsigned flags)
{
    assert_int_equal(flags, 0);
    return step();
}

static int fake_error_string(int result, const char **text)
{
    *text = result == FAILURE ? "the driver is tired" : NULL;
    return result == FAILURE ? 0 : 1;
}

static int fake_version(int *version)
{
    *version = 13020;
    return 0;
}

static int fake_count(int *count)
{
    *count = driver.devices;
    return step();
}

static int fake_device(int *device, int index)
{
    assert_in_range(index, 0, driver.devices - 1);
    *device = DEVICE + index;
    return step();
}

static int fake_name(char *name, int size, int device)
{
    snprintf(name, (size_t)size, "Example\x1b GPU %d", device - DEVICE);
    return step();
}

static int fake_memory(size_t *bytes, int device)
{
    assert_true(device >= DEVICE);
    *bytes = (size_t)24 << 30;
    return step();
}

static int fake_attribute(int *value, int attribute, int device)
{
    assert_true(device >= DEVICE);
    *value = attribute == SPRY_CUDA_MULTIPROCESSORS ? MULTIPROCESSORS
             : attribute == SPRY_CUDA_COMPUTE_MAJOR ? driver.major
                                                    : 6;
    return step();
}

static int fake_retain(void **context, int device)
{
    if (step())
        return FAILURE;
    driver.contexts++;
    *context = &driver.contexts;
    assert_true(device >= DEVICE);
    return 0;
}

static int fake_release(int device)
{
    assert_true(device >= DEVICE);
    driver.contexts--;
    return 0;
}

static int fake_set(void *context)
{
    driver.current = context != NULL;
    return context ? step() : 0;
}

static int fake_info(size_t *free_bytes, size_t *bytes)
{
    *free_bytes = driver.free_bytes;
    *bytes = (size_t)24 << 30;
    return step();
}

static int fake_allocate(spry_cuda_memory *memory, size_t bytes)
{
    if (step())
        return FAILURE;
    assert_true(driver.current && bytes > 0 && bytes <= driver.free_bytes / 2);
    driver.buffers++;
    driver.buffer_bytes = bytes;
    *memory = 0x700000000000;
    return 0;
}

static int fake_free(spry_cuda_memory memory)
{
    assert_int_equal(memory, 0x700000000000);
    driver.buffers--;
    return 0;
}

static int fake_fill(spry_cuda_memory memory, unsigned word, size_t words)
{
    assert_int_equal(memory, 0x700000000000);
    assert_int_equal(words * sizeof word, driver.buffer_bytes);
    driver.fill = word;
    return step();
}

static int fake_load(void **module, const void *ptx)
{
    assert_ptr_equal(ptx, spry_gpu_read_ptx);
    if (step())
        return FAILURE;
    driver.modules++;
    *module = &driver.modules;
    return 0;
}

static int fake_unload(void *module)
{
    assert_ptr_equal(module, &driver.modules);
    driver.modules--;
    return 0;
}

static int fake_function(void **function, void *module, const char *name)
{
    assert_ptr_equal(module, &driver.modules);
    assert_non_null(strstr(spry_gpu_read_ptx, name));
    *function = &driver.launched_bytes;
    return step();
}

/* Reads as the kernel would: whole rounds of four times 16 bytes a thread, to the end of the buffer and no further. */
static int fake_launch(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                       unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream, void **parameters,
                       void **extra)
{
    spry_cuda_memory memory;
    uint32_t rounds;
    memcpy(&memory, parameters[0], sizeof memory);
    memcpy(&rounds, parameters[1], sizeof rounds);
    assert_ptr_equal(function, &driver.launched_bytes);
    assert_true(!stream && !extra && !shared_bytes);
    assert_int_equal(memory, 0x700000000000);
    size_t bytes = (size_t)grid_x * grid_y * grid_z * block_x * block_y * block_z * 64 * rounds;
    assert_int_equal(bytes, driver.buffer_bytes);
    driver.ms += (double)bytes / (driver.gb_s * 1e6);
    return step();
}

static int fake_event(void **event, unsigned flags)
{
    if (step())
        return FAILURE;
    assert_int_equal(flags, 0);
    *event = driver.events++ ? &driver.end_ms : &driver.begin_ms;
    return 0;
}

static int fake_destroy(void *event)
{
    assert_non_null(event);
    driver.events--;
    return 0;
}

static int fake_record(void *event, void *stream)
{
    assert_null(stream);
    *(double *)event = driver.ms;
    return step();
}

static int fake_wait(void *event)
{
    assert_ptr_equal(event, &driver.end_ms);
    return step();
}

static int fake_elapsed(float *ms, void *begin, void *end)
{
    *ms = (float)(*(double *)end - *(double *)begin);
    return step();
}

static spry_cuda fake_cuda(void)
{
    return (spry_cuda){
        .init = fake_init,
        .error_string = fake_error_string,
        .driver_version = fake_version,
        .device_count = fake_count,
        .device = fake_device,
        .device_name = fake_name,
        .device_memory = fake_memory,
        .device_attribute = fake_attribute,
        .context_retain = fake_retain,
        .context_release = fake_release,
        .context_set = fake_set,
        .memory_info = fake_info,
        .memory_allocate = fake_allocate,
        .memory_free = fake_free,
        .memory_fill = fake_fill,
        .module_load = fake_load,
        .module_unload = fake_unload,
        .module_function = fake_function,
        .launch = fake_launch,
        .event_create = fake_event,
        .event_destroy = fake_destroy,
        .event_record = fake_record,
        .event_wait = fake_wait,
        .event_elapsed = fake_elapsed,
    };
}

static void start(spry_gpus *gpus, int devices)
{
    driver = (struct driver){.devices = devices, .major = 8, .free_bytes = (size_t)20 << 30, .gb_s = 900};
    *gpus = (spry_gpus){.cuda = fake_cuda()};
}

static void assert_all_given_back(void)
{
    assert_int_equal(driver.contexts, 0);
    assert_int_equal(driver.buffers, 0);
    assert_int_equal(driver.modules, 0);
    assert_int_equal(driver.events, 0);
    assert_int_equal(driver.current, 0);
}

/* ---- the tests --------------------------------------------------------------------------------------------------- */

static void a_gpu_is_found_and_measured(void **state)
{
    spry_gpus gpus;
    (void)state;
    start(&gpus, 1);
    spry_gpus_find(&gpus, TEST_DATA "/hardware-server");
    assert_int_equal(gpus.count, 1);
    assert_string_equal(gpus.list[0].name, "Example? GPU 0");
    assert_int_equal(gpus.list[0].bytes, (size_t)24 << 30);
    assert_int_equal(gpus.list[0].compute_major, 8);
    assert_int_equal(gpus.list[0].compute_minor, 6);
    assert_int_equal(gpus.list[0].multiprocessors, MULTIPROCESSORS);
    assert_string_equal(gpus.driver, "580.95.05, CUDA 13.2");
    assert_true(gpus.list[0].read_gb_s == 0);
    spry_gpus_measure(&gpus);
    assert_true(fabs(gpus.list[0].read_gb_s - 900) < 1);
    assert_string_equal(gpus.list[0].why, "");
    assert_true(driver.buffer_bytes > (size_t)3900 << 20 && driver.buffer_bytes <= (size_t)4 << 30);
    assert_int_equal(driver.fill % 2, 0); /* otherwise the kernel could store */
    assert_all_given_back();
}

static void half_of_what_is_free_is_used(void **state)
{
    spry_gpus gpus;
    (void)state;
    start(&gpus, 1);
    driver.free_bytes = (size_t)6 << 30;
    spry_gpus_find(&gpus, "");
    spry_gpus_measure(&gpus);
    assert_true(gpus.list[0].read_gb_s > 0);
    assert_true(driver.buffer_bytes > (size_t)2900 << 20 && driver.buffer_bytes <= (size_t)3 << 30);
}

static void several_are_told_apart(void **state)
{
    spry_gpus gpus;
    (void)state;
    start(&gpus, SPRY_GPUS_MAX + 5);
    spry_gpus_find(&gpus, "/nowhere");
    assert_int_equal(gpus.count, SPRY_GPUS_MAX);
    assert_string_equal(gpus.driver, "CUDA 13.2");
    spry_gpus_measure(&gpus);
    for (size_t i = 0; i < gpus.count; i++) {
        char name[SPRY_GPU_NAME];
        snprintf(name, sizeof name, "Example? GPU %zu", i);
        assert_string_equal(gpus.list[i].name, name);
        assert_true(gpus.list[i].read_gb_s > 0);
    }
    assert_all_given_back();
}

static void every_call_may_fail(void **state)
{
    spry_gpus gpus;
    (void)state;
    start(&gpus, 1);
    spry_gpus_find(&gpus, "");
    spry_gpus_measure(&gpus);
    int calls = driver.calls;
    assert_true(calls > 30);
    for (int fail_at = 1; fail_at <= calls; fail_at++) {
        start(&gpus, 1);
        driver.fail_at = fail_at;
        spry_gpus_find(&gpus, "");
        spry_gpus_measure(&gpus);
        const char *why = gpus.count ? gpus.list[0].why : gpus.why;
        assert_non_null(strstr(why, "the driver is tired"));
        assert_true(strncmp(why, "cu", 2) == 0); /* the call's name */
        assert_true(gpus.count == 0 || gpus.list[0].read_gb_s == 0);
        assert_all_given_back();
    }
}

static void one_that_is_not_described_leaves_the_others(void **state)
{
    spry_gpus gpus;
    (void)state;
    start(&gpus, 2);
    driver.fail_at = 3; /* cuDeviceGet of the first */
    spry_gpus_find(&gpus, "");
    assert_int_equal(gpus.count, 1);
    assert_int_equal(gpus.list[0].index, 1);
    spry_gpus_measure(&gpus);
    assert_true(gpus.list[0].read_gb_s > 0);
}

static void what_cannot_be_measured_says_why(void **state)
{
    spry_gpus gpus;
    (void)state;
    start(&gpus, 1);
    driver.free_bytes = 1 << 20;
    spry_gpus_find(&gpus, "");
    spry_gpus_measure(&gpus);
    assert_non_null(strstr(gpus.list[0].why, "only 1 MB"));
    assert_all_given_back();
    start(&gpus, 1);
    driver.major = 6;
    spry_gpus_find(&gpus, "");
    spry_gpus_measure(&gpus);
    assert_non_null(strstr(gpus.list[0].why, "6.6"));
    start(&gpus, 1);
    driver.gb_s = INFINITY;
    spry_gpus_find(&gpus, "");
    spry_gpus_measure(&gpus);
    assert_non_null(strstr(gpus.list[0].why, "no time"));
    assert_true(gpus.list[0].read_gb_s == 0);
    start(&gpus, 0);
    spry_gpus_find(&gpus, "");
    assert_int_equal(gpus.count, 0);
    assert_non_null(strstr(gpus.why, "no GPU"));
}

static void no_driver_is_no_failure(void **state)
{
    spry_gpus gpus;
    (void)state;
    spry_gpus_open(&gpus, "libno-such-driver.so.1", "");
    assert_int_equal(gpus.count, 0);
    assert_non_null(strstr(gpus.why, "libno-such-driver.so.1"));
    spry_gpus_measure(&gpus);
    spry_gpus_close(&gpus);
    spry_gpus_open(&gpus, "libm.so.6", "");
    assert_non_null(strstr(gpus.why, "cuInit"));
    spry_gpus_close(&gpus);
    spry_gpus_close(&gpus);
}

static void this_machine(void **state)
{
    spry_gpus gpus;
    (void)state;
    spry_gpus_open(&gpus, SPRY_CUDA_LIBRARY, "");
    if (!gpus.count) {
        assert_true(gpus.why[0]);
        print_message("SKIPPED this_machine: %s\n", gpus.why);
    }
    spry_gpus_measure(&gpus);
    for (size_t i = 0; i < gpus.count; i++) {
        print_message("%s reads %.0f GB/s %s\n", gpus.list[i].name, gpus.list[i].read_gb_s, gpus.list[i].why);
        assert_true((gpus.list[i].read_gb_s > 0) == (gpus.list[i].why[0] == '\0'));
    }
    spry_gpus_close(&gpus);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gpu_is_found_and_measured),
        cmocka_unit_test(half_of_what_is_free_is_used),
        cmocka_unit_test(several_are_told_apart),
        cmocka_unit_test(every_call_may_fail),
        cmocka_unit_test(one_that_is_not_described_leaves_the_others),
        cmocka_unit_test(what_cannot_be_measured_says_why),
        cmocka_unit_test(no_driver_is_no_failure),
        cmocka_unit_test(this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
