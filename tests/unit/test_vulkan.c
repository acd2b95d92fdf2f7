/* The device "vulkan" over an imitated loader: the system's, with functions replaced (--wrap=spry_vulkan_open). What
 * goes wrong: no loader, no devices, old drivers, missing features, wrong sizes of memory, two drivers, a lost device.
 * What a step costs: one submission, no allocation. Weights that are used where they are mapped, of all types, beside
 * copies. The cache of pipelines. Needs a driver of Vulkan, such as Mesa's lavapipe. */
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

enum { TOKENS = 64, ROWS = 40 };

static spry_model *model;
static spry_kv_pool pool;
static spry_device_setup setup;

/* ---- the imitated loader ----------------------------------------------------------------------------------------- */

static struct {
    bool no_loader, no_devices, old, no_subgroups, no_addresses, twice;
    bool no_import, bad_import; /* memory of the host cannot be used; or the driver says so late */
    uint64_t heap, limit;       /* 0: the real ones */
    uint32_t range;             /* of storage buffers */
    uint64_t most;              /* bytes after which allocations fail; 0: never */
    int lost_after;             /* submissions until the device is lost; 0: never */
    uint64_t allocated;
    size_t pipelines_known; /* bytes of the cache that pipelines began with */
} fault;
static spry_vulkan real;
static PFN_vkQueueSubmit real_submit;
static PFN_vkAllocateMemory real_allocate;
static PFN_vkCreatePipelineCache real_cache;

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
    if (fault.range)
        p->properties.limits.maxStorageBufferRange = fault.range;
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

static VkResult list_extensions(VkPhysicalDevice device, const char *layer, uint32_t *count,
                                VkExtensionProperties *list)
{
    if (!fault.no_import)
        return real.EnumerateDeviceExtensionProperties(device, layer, count, list);
    *count = 0;
    return VK_SUCCESS;
}

static VkResult refuse_pointer(VkDevice device, VkExternalMemoryHandleTypeFlagBits type, const void *host,
                               VkMemoryHostPointerPropertiesEXT *properties)
{
    (void)device;
    (void)type;
    (void)host;
    (void)properties;
    return VK_ERROR_INVALID_EXTERNAL_HANDLE;
}

static VkResult make_cache(VkDevice device, const VkPipelineCacheCreateInfo *info,
                           const VkAllocationCallbacks *callbacks, VkPipelineCache *cache)
{
    fault.pipelines_known = info->initialDataSize;
    return real_cache(device, info, callbacks, cache);
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
    bool imported = false;
    for (const VkBaseInStructure *s = info->pNext; s; s = s->pNext)
        imported = imported || s->sType == VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT;
    fault.allocated += imported ? 0 : info->allocationSize;
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
    if (!strcmp(name, "vkCreatePipelineCache")) {
        real_cache = (PFN_vkCreatePipelineCache)function;
        return (PFN_vkVoidFunction)make_cache;
    }
    if (!strcmp(name, "vkGetMemoryHostPointerPropertiesEXT") && fault.bad_import)
        return (PFN_vkVoidFunction)refuse_pointer;
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
    vulkan->EnumerateDeviceExtensionProperties = list_extensions;
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
                                .limits = {ROWS, ROWS, TOKENS, 0, 0}};
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

static int open_blocks(void **state)
{
    (void)state;
    open_path(TEST_DATA "/models/llama-256");
    return 0;
}

static int open_experts(void **state)
{
    (void)state;
    open_path(TEST_DATA "/models/gpt-oss-mxfp4");
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

/* Weights in several allocations, or in several ranges of the mapped file, give the same bits as in one. The range of a
 * storage buffer, often 128 MB or 4 GB, limits nothing: memory is used by address. */
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
    for (int copies = 0; copies < 2; copies++) {
        no_fault();
        fault.no_import = copies;
        fault.limit = 17 << 20;
        fault.range = 1 << 16;
        device = open_device("vulkan");
        assert_int_equal(decode(device, parts, STEPS, &error), STEPS);
        spry_device_close(device);
        assert_memory_equal(whole, parts, bytes);
    }
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

/* ---- weights of all types, shared and copied --------------------------------------------------------------------- */

/* A block of random bits: `bytes` bytes from `at` on are kept as far as `mask` says. What no rule names is 0; scales
 * are 2^-10. Values are integers of 8 bits times that, which BF16 represents, so that they can be compared bit by
 * bit. The blocks of 256 values come twice, with small scales and with few bits of quants. */
static const struct exact_type {
    spry_dtype type;
    struct {
        size_t at, bytes;
        uint8_t mask;
    } random[3];
    size_t scales[2];
} exact_types[] = {
    {SPRY_Q4_0, {{2, 16, 0xff}}, {0, 0}},
    {SPRY_Q4_1, {{4, 16, 0xff}}, {0, 2}},
    {SPRY_Q5_0, {{2, 20, 0xff}}, {0, 0}},
    {SPRY_Q5_1, {{4, 20, 0xff}}, {0, 2}},
    {SPRY_Q8_0, {{2, 32, 0xff}}, {0, 0}},
    {SPRY_MXFP4, {{1, 16, 0xff}}, {0, 0}},
    {SPRY_Q4_K, {{4, 8, 0x0f}, {12, 4, 0xff}, {16, 128, 0xff}}, {0, 2}},
    {SPRY_Q4_K, {{4, 12, 0xff}, {16, 128, 0x33}}, {0, 2}},
    {SPRY_Q5_K, {{4, 8, 0x07}, {12, 4, 0x77}, {16, 160, 0xff}}, {0, 2}},
    {SPRY_Q5_K, {{4, 12, 0xff}, {48, 128, 0x33}}, {0, 2}},
    {SPRY_Q6_K, {{0, 192, 0xff}, {192, 16, 0x07}}, {208, 208}},
    {SPRY_F16, {{0, 1, 0}}, {0, 0}},
    {SPRY_F32, {{0, 1, 0}}, {0, 0}},
};

static uint64_t random_state;

static uint8_t random_byte(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint8_t)(random_state >> 56);
}

/* Fills a matrix with blocks of a type; floats are small integers. */
static void fill(spry_weight *w, const struct exact_type *t)
{
    static const uint8_t half[] = {0x00, 0x14}, exponent = 117;
    size_t block = spry_dtype_block(t->type), bytes = spry_dtype_bytes(t->type), n = w->n_out * w->n_in / block;
    uint8_t *data = spry_arena_alloc(&model->arena, n * bytes, 1);
    assert_non_null(data);
    memset(data, 0, n * bytes);
    for (size_t i = 0; i < n; i++) {
        uint8_t *to = data + i * bytes;
        for (size_t r = 0; r < SPRY_COUNT(t->random); r++)
            for (size_t k = 0; k < t->random[r].bytes; k++)
                to[t->random[r].at + k] = random_byte() & t->random[r].mask;
        if (t->type == SPRY_MXFP4)
            to[0] = exponent;
        else if (t->type == SPRY_F16)
            to[1] = (uint8_t)(0x2c + (random_byte() & 0x83)), to[0] = 0;
        else if (t->type == SPRY_F32)
            memcpy(to, &(float){(float)(random_byte() - 128) / 1024}, sizeof(float));
        else
            memcpy(to + t->scales[0], half, 2), memcpy(to + t->scales[1], half, 2);
    }
    *w = (spry_weight){
        .data = data, .type = t->type, .n_out = w->n_out, .n_in = w->n_in, .row_bytes = w->n_in / block * bytes};
}

/* The same values as BF16; they lose nothing. */
static void fill_as_bf16(spry_weight *w)
{
    float *row = malloc(w->n_in * sizeof *row);
    uint16_t *data = spry_arena_alloc(&model->arena, w->n_out * w->n_in, sizeof *data);
    assert_true(row && data);
    for (size_t o = 0; o < w->n_out; o++) {
        setup.ops->decode[w->type](row, w->data + o * w->row_bytes, w->n_in);
        for (size_t i = 0; i < w->n_in; i++) {
            uint32_t bits;
            memcpy(&bits, &row[i], sizeof bits);
            assert_int_equal(bits & 0xffff, 0);
            data[o * w->n_in + i] = (uint16_t)(bits >> 16);
        }
    }
    free(row);
    *w = (spry_weight){.data = (const unsigned char *)data,
                       .type = SPRY_BF16,
                       .n_out = w->n_out,
                       .n_in = w->n_in,
                       .row_bytes = w->n_in * sizeof *data};
}

static spry_weight *matrix_of(size_t number)
{
    spry_layer *l = &model->weights.layers[number / 7];
    spry_weight *matrices[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
    return number / 7 < model->config.n_layers ? matrices[number % 7] : NULL;
}

/* Logits of a prompt, whose products are those of many rows, and of some tokens, into out[ROWS + 2]. */
static void run_rows(float *out, uint64_t *allocated)
{
    enum { FEW = 3 };
    static const uint32_t steps[] = {ROWS - FEW, FEW, 1, 1};
    int32_t ids[ROWS];
    spry_kv_table table;
    spry_error error = {0};
    uint32_t at = 0;
    size_t n_vocab = model->config.n_vocab;
    fault.allocated = 0;
    spry_device *device = open_device("vulkan");
    *allocated = fault.allocated;
    assert_int_equal(spry_kv_table_init(&table, TOKENS, NULL), SPRY_OK);
    for (size_t s = 0; s < SPRY_COUNT(steps); at += steps[s++]) {
        const float *logits;
        for (uint32_t i = 0; i < steps[s]; i++)
            ids[i] = (int32_t)((at + i) * 37 % n_vocab);
        assert_int_equal(spry_kv_table_extend(&table, &pool, steps[s], NULL), SPRY_OK);
        const spry_segment rows = {&table, ids, at, steps[s], SPRY_WANT_ALL, {{0}}, 0, NULL, 0};
        if (step_run(device, &rows, 1, &error) || spry_device_logits(device, &logits, 0, steps[s], &error))
            fail_msg("%s", error.message);
        memcpy(out + at * n_vocab, logits, steps[s] * n_vocab * sizeof *out);
    }
    spry_kv_table_deinit(&table, &pool);
    spry_device_close(device);
    spry_vulkan_driver_reset();
}

/* Every type gives the bits that its values give as BF16: used where they are, and copied; by kernels for few rows and
 * for many. What is shared is not allocated. The matrices of a model are of all types in turn; F16 and F32, which meet
 * other activations than BF16 does, are in a model of their own. */
static void types_are_what_their_values_are(void **state)
{
    (void)state;
    enum { FLOATS = 2, QUANTS = SPRY_COUNT(exact_types) - FLOATS };
    size_t n = (ROWS + 2) * model->config.n_vocab;
    float *shared = malloc(n * sizeof *shared), *copied = malloc(n * sizeof *copied),
          *plain = malloc(n * sizeof *plain);
    uint64_t with, without, weights = 0;
    spry_weight *w;
    assert_true(shared && copied && plain);
    no_fault();
    for (int floats = 0; floats < 2; floats++, weights = 0) {
        for (size_t i = 0; (w = matrix_of(i)); i++) {
            fill(w, &exact_types[floats ? QUANTS + i % FLOATS : i % QUANTS]);
            weights += w->n_out * w->row_bytes;
        }
        fault.no_import = false;
        run_rows(shared, &with);
        fault.no_import = true;
        run_rows(copied, &without);
        assert_memory_equal(shared, copied, n * sizeof *shared);
        if (without < with + weights)
            fail_msg("%llu bytes are allocated, %llu without copies of %llu", (unsigned long long)without,
                     (unsigned long long)with, (unsigned long long)weights);
        if (floats)
            continue;
        for (size_t i = 0; (w = matrix_of(i)); i++)
            fill_as_bf16(w);
        run_rows(plain, &without);
        assert_memory_equal(copied, plain, n * sizeof *copied);
        fault.no_import = false;
        run_rows(shared, &with);
        assert_memory_equal(shared, plain, n * sizeof *plain);
    }
    free(shared), free(copied), free(plain);
    no_fault();
}

/* Experts, which follow each other in the file. */
static void experts_are_the_same_without_copies(void **state)
{
    (void)state;
    size_t n = (ROWS + 2) * model->config.n_vocab;
    float *shared = malloc(n * sizeof *shared), *copied = malloc(n * sizeof *copied);
    uint64_t with, without;
    assert_true(shared && copied);
    no_fault();
    run_rows(shared, &with);
    fault.no_import = true;
    run_rows(copied, &without);
    assert_memory_equal(shared, copied, n * sizeof *shared);
    assert_true(with < without);
    free(shared), free(copied);
    no_fault();
}

/* A driver that refuses the host's memory when it is asked gets copies. */
static void what_cannot_be_shared_is_copied(void **state)
{
    (void)state;
    static float whole[4096], copied[4096];
    spry_error error = {0};
    size_t bytes = model->config.n_vocab * sizeof *whole;
    no_fault();
    spry_device *device = open_device("vulkan");
    assert_int_equal(decode(device, whole, 3, &error), 3);
    uint64_t shared = fault.allocated;
    spry_device_close(device);
    no_fault();
    fault.bad_import = true;
    device = open_device("vulkan");
    assert_int_equal(decode(device, copied, 3, &error), 3);
    assert_memory_equal(copied, whole, bytes);
    assert_true(fault.allocated > shared);
    spry_device_close(device);
    no_fault();
}

/* ---- the cache of pipelines -------------------------------------------------------------------------------------- */

/* What the second opening begins with is what the first one has left; a damaged file is as none. */
static void pipelines_are_kept(void **state)
{
    (void)state;
    static float logits[4096];
    char folder[] = "/tmp/spry-vulkan-XXXXXX", command[256];
    spry_error error = {0};
    assert_non_null(mkdtemp(folder));
    setenv("XDG_CACHE_HOME", folder, 1);
    for (int turn = 0; turn < 3; turn++) {
        no_fault();
        spry_device *device = open_device("vulkan");
        assert_int_equal(fault.pipelines_known > 0, turn == 1);
        assert_int_equal(decode(device, logits, 1, &error), 1);
        spry_device_close(device);
        if (turn == 1) {
            snprintf(command, sizeof command, "for f in %s/spry/vulkan-*; do printf x >>$f; done", folder);
            assert_int_equal(system(command), 0);
        }
    }
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
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
        cmocka_unit_test_setup_teardown(types_are_what_their_values_are, open_blocks, close_any),
        cmocka_unit_test_setup_teardown(experts_are_the_same_without_copies, open_experts, close_any),
        cmocka_unit_test_setup_teardown(what_cannot_be_shared_is_copied, open_small, close_any),
        cmocka_unit_test_setup_teardown(pipelines_are_kept, open_small, close_any),
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
