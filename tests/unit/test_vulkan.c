/* The device "vulkan" over an imitated loader: the system's, with functions replaced (--wrap=spry_vulkan_open). What
 * goes wrong: no loader, no devices, old drivers, missing features, wrong sizes of memory, two drivers, a lost device.
 * And what a step costs: one submission, no allocation. Needs a driver of Vulkan, such as Mesa's lavapipe. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "device/device_impl.h"
#include "device/vulkan/vulkan_driver.h"
#include "model/model.h"
#include "support/device_rows.h"

enum { TOKENS = 64 };

static spry_model *model;
static spry_kv_pool pool;
static spry_device_setup setup;

/* ---- the imitated loader ----------------------------------------------------------------------------------------- */

static struct {
    bool no_loader, no_devices, old, no_subgroups, no_addresses, twice;
    uint64_t heap, limit; /* 0: the real ones */
    uint64_t most;        /* bytes after which allocations fail; 0: never */
    int lost_after;       /* submissions until the device is lost; 0: never */
    uint64_t allocated;
} fault;
static spry_vulkan real;
static PFN_vkQueueSubmit real_submit;
static PFN_vkAllocateMemory real_allocate;

static VkResult count_devices(VkInstance instance, uint32_t *count, VkPhysicalDevice *devices)
{
    VkResult result = real.EnumeratePhysicalDevices(instance, count, devices);
    if (fault.no_devices)
        *count = 0;
    if (fault.twice && devices)
        devices[1] = devices[0];
    *count = fault.twice ? 2 : *count;
    return result;
}

static void tell_properties(VkPhysicalDevice device, VkPhysicalDeviceProperties2 *p)
{
    real.GetPhysicalDeviceProperties2(device, p);
    if (fault.old)
        p->properties.apiVersion = VK_API_VERSION_1_2;
    for (VkBaseOutStructure *s = p->pNext; s; s = s->pNext) {
        VkPhysicalDeviceVulkan11Properties *v11 = (void *)s;
        if (s->sType != VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES)
            continue;
        if (fault.no_subgroups)
            v11->subgroupSupportedOperations = VK_SUBGROUP_FEATURE_BASIC_BIT;
        if (fault.limit)
            v11->maxMemoryAllocationSize = fault.limit;
    }
}

static void tell_features(VkPhysicalDevice device, VkPhysicalDeviceFeatures2 *f)
{
    real.GetPhysicalDeviceFeatures2(device, f);
    for (VkBaseOutStructure *s = f->pNext; s; s = s->pNext)
        if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES && fault.no_addresses)
            ((VkPhysicalDeviceVulkan12Features *)(void *)s)->bufferDeviceAddress = VK_FALSE;
}

static void tell_memory(VkPhysicalDevice device, VkPhysicalDeviceMemoryProperties2 *m)
{
    real.GetPhysicalDeviceMemoryProperties2(device, m);
    for (uint32_t i = 0; fault.heap && i < m->memoryProperties.memoryHeapCount; i++)
        m->memoryProperties.memoryHeaps[i].size = fault.heap;
}

static VkResult submit(VkQueue queue, uint32_t n, const VkSubmitInfo *submits, VkFence fence)
{
    if (fault.lost_after && --fault.lost_after == 0) {
        fault.lost_after = 1;
        return VK_ERROR_DEVICE_LOST;
    }
    return real_submit(queue, n, submits, fence);
}

static VkResult allocate(VkDevice device, const VkMemoryAllocateInfo *info, const VkAllocationCallbacks *callbacks,
                         VkDeviceMemory *memory)
{
    fault.allocated += info->allocationSize;
    if (fault.most && fault.allocated > fault.most)
        return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    return real_allocate(device, info, callbacks, memory);
}

static PFN_vkVoidFunction find(VkDevice device, const char *name)
{
    PFN_vkVoidFunction function = real.GetDeviceProcAddr(device, name);
    if (!strcmp(name, "vkQueueSubmit")) {
        real_submit = (PFN_vkQueueSubmit)function;
        return (PFN_vkVoidFunction)submit;
    }
    if (!strcmp(name, "vkAllocateMemory")) {
        real_allocate = (PFN_vkAllocateMemory)function;
        return (PFN_vkVoidFunction)allocate;
    }
    return function;
}

spry_status __real_spry_vulkan_open(spry_vulkan *vulkan, const char *library, spry_error *error);
spry_status __wrap_spry_vulkan_open(spry_vulkan *vulkan, const char *library, spry_error *error);

spry_status __wrap_spry_vulkan_open(spry_vulkan *vulkan, const char *library, spry_error *error)
{
    spry_status status = __real_spry_vulkan_open(vulkan, fault.no_loader ? "libno-such-loader.so.1" : library, error);
    if (status)
        return status;
    real = *vulkan;
    vulkan->EnumeratePhysicalDevices = count_devices;
    vulkan->GetPhysicalDeviceProperties2 = tell_properties;
    vulkan->GetPhysicalDeviceFeatures2 = tell_features;
    vulkan->GetPhysicalDeviceMemoryProperties2 = tell_memory;
    vulkan->GetDeviceProcAddr = find;
    return SPRY_OK;
}

/* ---- scenes ------------------------------------------------------------------------------------------------------ */

static void open_path(const char *path)
{
    spry_error error = {0};
    const spry_ops *ops;
    spry_threads *threads;
    assert_int_equal(spry_model_open(&model, path, &error), SPRY_OK);
    assert_int_equal(spry_ops_get(&ops, "ref", &error), SPRY_OK);
    assert_int_equal(spry_threads_create(&threads, 1, &error), SPRY_OK);
    const spry_kv_shape shape = spry_model_kv_shape(model, SPRY_F16);
    assert_int_equal(spry_kv_pool_init(&pool, &shape, TOKENS / SPRY_PAGE_TOKENS, &error), SPRY_OK);
    setup = (spry_device_setup){.config = &model->config,
                                .weights = &model->weights,
                                .pool = &pool,
                                .ops = ops,
                                .threads = threads,
                                .limits = {16, 16, TOKENS, 0, 0}};
}

static void close_model(void)
{
    spry_threads_destroy(setup.threads);
    spry_kv_pool_deinit(&pool);
    spry_model_close(model);
}

static int open_small(void **state)
{
    (void)state;
    open_path(TEST_DATA "/models/qwen3");
    return 0;
}

static int open_tales(void **state)
{
    (void)state;
    open_path(MODELS_DIR "/Spry-Tales-29M.gguf");
    return 0;
}

static int close_any(void **state)
{
    (void)state;
    close_model();
    return 0;
}

static void no_fault(void)
{
    memset(&fault, 0, sizeof fault);
    spry_vulkan_driver_reset();
}

/* Opening fails in a sentence with these words, and nothing stays open. */
static void refused(const char *words, const char *name)
{
    spry_error error = {0};
    spry_device *device;
    assert_true(spry_device_open(&device, name, &setup, &error));
    assert_null(device);
    if (!strstr(error.message, words))
        fail_msg("\"%s\" does not say \"%s\"", error.message, words);
    assert_null(spry_vulkan_gpu(0));
    no_fault();
}

static void what_is_not_there_is_refused(void **state)
{
    (void)state;
    spry_error why = {0};
    no_fault();
    fault.no_loader = true;
    assert_int_equal(spry_device_total("vulkan:0"), 0);
    spry_device_explain("vulkan:0", &why);
    assert_non_null(strstr(why.message, "no Vulkan loader: libno-such-loader.so.1"));
    no_fault();
    fault.no_devices = true;
    refused("no driver of Vulkan offers a device", "vulkan");
    fault.old = true;
    refused("has Vulkan 1.2, and 1.3 is needed", "vulkan");
    fault.no_subgroups = true;
    refused("no sums over subgroups", "vulkan:0");
    fault.no_addresses = true;
    refused("lacks bufferDeviceAddress", "vulkan:0");
    refused("the number after the colon selects the device", "vulkan:first");
    refused("there is no Vulkan device 9", "vulkan:9");
}

/* Memory that the driver tells of and does not have, or does not tell of; buffers that may not be large. */
static void memory_may_be_wrong(void **state)
{
    (void)state;
    no_fault();
    fault.heap = 1 << 20;
    refused("has 1 MB free", "vulkan");
    fault.heap = (uint64_t)1 << 50;
    fault.most = 48 << 20;
    refused("are not free", "vulkan");
    fault.limit = 1 << 12;
    refused("of its memory are not free", "vulkan");
}

static spry_device *open_device(const char *name)
{
    spry_error error = {0};
    spry_device *device;
    if (spry_device_open(&device, name, &setup, &error))
        fail_msg("%s", error.message);
    spry_device_attach(device, &pool);
    return device;
}

/* Logits of one token after another; stops at the first step that fails. */
static size_t decode(spry_device *device, float *out, size_t n, spry_error *error)
{
    spry_kv_table table;
    size_t done = 0, n_vocab = model->config.n_vocab;
    assert_int_equal(spry_kv_table_init(&table, TOKENS, NULL), SPRY_OK);
    for (; done < n; done++) {
        const int32_t id = (int32_t)(done * 7 + 1);
        const float *logits;
        assert_int_equal(spry_kv_table_extend(&table, &pool, 1, NULL), SPRY_OK);
        const spry_segment row = {&table, &id, (uint32_t)done, 1, SPRY_WANT_LAST, {{0}}, 0, NULL, 0};
        if (step_run(device, &row, 1, error) || spry_device_logits(device, &logits, 0, 1, error))
            break;
        memcpy(out, logits, n_vocab * sizeof *out);
    }
    spry_kv_table_deinit(&table, &pool);
    return done;
}

/* Weights in several allocations give the same bits as in one. */
static void small_buffers_change_no_bit(void **state)
{
    (void)state;
    enum { STEPS = 3 };
    size_t bytes = model->config.n_vocab * sizeof(float);
    float *whole = malloc(bytes), *parts = malloc(bytes);
    spry_error error = {0};
    assert_true(whole && parts);
    no_fault();
    spry_device *device = open_device("vulkan");
    assert_int_equal(decode(device, whole, STEPS, &error), STEPS);
    spry_device_close(device);
    spry_vulkan_driver_reset();
    fault.limit = 17 << 20;
    device = open_device("vulkan");
    assert_int_equal(decode(device, parts, STEPS, &error), STEPS);
    spry_device_close(device);
    assert_memory_equal(whole, parts, bytes);
    free(whole);
    free(parts);
    no_fault();
}

/* Two drivers offer the same GPU: it is there twice, and both work. */
static void two_drivers_are_two_devices(void **state)
{
    (void)state;
    static float first[4096], second[4096];
    spry_error error = {0};
    no_fault();
    fault.twice = true;
    spry_device *device = open_device("vulkan:0"), *other = open_device("vulkan:1");
    spry_device_attach(device, &pool);
    assert_int_equal(decode(device, first, 3, &error), 3);
    spry_device_attach(other, &pool);
    assert_int_equal(decode(other, second, 3, &error), 3);
    assert_memory_equal(first, second, model->config.n_vocab * sizeof *first);
    spry_device_close(device);
    spry_device_close(other);
    refused("usable ones are 2", "vulkan:2");
}

static void a_lost_device_can_be_opened_again(void **state)
{
    (void)state;
    static float before[4096], after[4096];
    spry_error error = {0};
    no_fault();
    spry_device *device = open_device("vulkan");
    assert_int_equal(decode(device, before, 4, &error), 4);
    fault.lost_after = 3;
    assert_true(decode(device, after, 4, &error) < 4);
    if (!strstr(error.message, "VK_ERROR_DEVICE_LOST"))
        fail_msg("\"%s\" does not say why", error.message);
    assert_int_equal(decode(device, after, 4, &error), 0);
    spry_device_close(device);
    memset(&fault, 0, sizeof fault);
    device = open_device("vulkan");
    assert_int_equal(decode(device, after, 4, &error), 4);
    assert_memory_equal(before, after, model->config.n_vocab * sizeof *before);
    spry_device_close(device);
    no_fault();
}

/* ---- what a step costs ------------------------------------------------------------------------------------------- */

static void a_step_is_one_submission_without_allocations(void **state)
{
    (void)state;
    enum { WARM = 4, STEPS = 8 }; /* first steps make pipelines and the graph */
    spry_error error = {0};
    spry_kv_table table;
    spry_sampling greedy = {.temperature = 0, .repeat_penalty = 1, .top_p = 1, .typical_p = 1};
    spry_draw draw = {.settings = &greedy}, *draws[] = {&draw};
    int32_t id = 1;
    no_fault();
    spry_device *device = open_device("vulkan");
    const spry_vk_gpu *gpu = spry_vulkan_gpu(0);
    uint64_t submissions = 0, allocations = 0;
    assert_int_equal(spry_kv_table_init(&table, TOKENS, NULL), SPRY_OK);
    for (uint32_t i = 0; i < WARM + STEPS; i++) {
        if (i == WARM) {
            submissions = gpu->submissions;
            allocations = gpu->allocations;
        }
        assert_int_equal(spry_kv_table_extend(&table, &pool, 1, NULL), SPRY_OK);
        const spry_segment row = {&table, &id, i, 1, SPRY_WANT_LAST, {{0}}, 0, NULL, 0};
        const spry_device_step step = {&row, 1, draws, 1, NULL};
        assert_int_equal(spry_device_submit(device, &step, &error), SPRY_OK);
        assert_int_equal(spry_device_wait(device, &error), SPRY_OK);
        assert_int_equal(draw.status, SPRY_OK);
        id = draw.token;
    }
    assert_int_equal(gpu->submissions - submissions, STEPS);
    assert_int_equal(gpu->allocations, allocations);
    spry_kv_table_deinit(&table, &pool);
    spry_device_close(device);
    no_fault();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_not_there_is_refused, open_small, close_any),
        cmocka_unit_test_setup_teardown(memory_may_be_wrong, open_small, close_any),
        cmocka_unit_test_setup_teardown(small_buffers_change_no_bit, open_tales, close_any),
        cmocka_unit_test_setup_teardown(two_drivers_are_two_devices, open_small, close_any),
        cmocka_unit_test_setup_teardown(a_lost_device_can_be_opened_again, open_small, close_any),
        cmocka_unit_test_setup_teardown(a_step_is_one_submission_without_allocations, open_small, close_any),
    };
    spry_error why = {0};
    if (!spry_device_total("vulkan:0")) {
        spry_device_explain("vulkan:0", &why);
        printf("SKIPPED vulkan: %s\n", why.message);
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
