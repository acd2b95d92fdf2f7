/* Opening a device of Vulkan: what it must have, its queue, its limits. */
#include "device/vulkan/vulkan_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORTABILITY_SUBSET "VK_KHR_portability_subset" /* where a device has it, it must be asked for */

/* The features that every kernel needs. */
typedef struct device_features {
    VkPhysicalDeviceFeatures2 base;
    VkPhysicalDeviceVulkan11Features v11;
    VkPhysicalDeviceVulkan12Features v12;
    VkPhysicalDeviceVulkan13Features v13;
} device_features;

static void link_features(device_features *f)
{
    *f = (device_features){.base.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                           .v11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES,
                           .v12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
                           .v13.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES};
    f->base.pNext = &f->v11;
    f->v11.pNext = &f->v12;
    f->v12.pNext = &f->v13;
}

/* The name of a feature that is missing; NULL: none. */
static const char *missing_feature(const device_features *f)
{
    const struct {
        VkBool32 has;
        const char *name;
    } needed[] = {{f->base.features.shaderInt64, "shaderInt64"},
                  {f->base.features.shaderInt16, "shaderInt16"},
                  {f->v11.storageBuffer16BitAccess, "storageBuffer16BitAccess"},
                  {f->v12.storageBuffer8BitAccess, "storageBuffer8BitAccess"},
                  {f->v12.shaderInt8, "shaderInt8"},
                  {f->v12.scalarBlockLayout, "scalarBlockLayout"},
                  {f->v12.bufferDeviceAddress, "bufferDeviceAddress"},
                  {f->v12.timelineSemaphore, "timelineSemaphore"}};
    for (size_t i = 0; i < SPRY_COUNT(needed); i++)
        if (!needed[i].has)
            return needed[i].name;
    return NULL;
}

/* Those of `f` that are asked for when the device is opened. */
static void choose_features(device_features *chosen, const device_features *f)
{
    link_features(chosen);
    chosen->base.features.shaderInt64 = VK_TRUE;
    chosen->base.features.shaderInt16 = VK_TRUE;
    chosen->base.features.shaderFloat64 = f->base.features.shaderFloat64;
    chosen->v11.storageBuffer16BitAccess = VK_TRUE;
    chosen->v12.storageBuffer8BitAccess = VK_TRUE;
    chosen->v12.shaderInt8 = VK_TRUE;
    chosen->v12.shaderFloat16 = f->v12.shaderFloat16;
    chosen->v12.scalarBlockLayout = VK_TRUE;
    chosen->v12.bufferDeviceAddress = VK_TRUE;
    chosen->v12.timelineSemaphore = VK_TRUE;
    chosen->v13.subgroupSizeControl = f->v13.subgroupSizeControl;
    chosen->v13.computeFullSubgroups = f->v13.computeFullSubgroups;
    chosen->v13.maintenance4 = f->v13.maintenance4;
}

/* The first family with compute: where there is one, a family that also draws is the fastest. */
static bool find_family(spry_vk_facts *facts, const spry_vulkan *v)
{
    VkQueueFamilyProperties families[16];
    uint32_t n = SPRY_COUNT(families);
    v->GetPhysicalDeviceQueueFamilyProperties(facts->physical, &n, families);
    for (uint32_t i = 0; i < n; i++)
        if (families[i].queueFlags & VK_QUEUE_COMPUTE_BIT) {
            facts->family = i;
            facts->timestamp_bits = families[i].timestampValidBits;
            return true;
        }
    return false;
}

static bool has_extension(const spry_vulkan *v, VkPhysicalDevice physical, const char *name)
{
    uint32_t n = 0;
    bool found = false;
    if (v->EnumerateDeviceExtensionProperties(physical, NULL, &n, NULL))
        return false;
    VkExtensionProperties *list = calloc(n ? n : 1, sizeof *list);
    if (list && v->EnumerateDeviceExtensionProperties(physical, NULL, &n, list) >= 0)
        for (uint32_t i = 0; i < n; i++)
            found = found || !strcmp(list[i].extensionName, name);
    free(list);
    return found;
}

static void describe_memory(spry_vk_facts *facts, const spry_vulkan *v)
{
    VkPhysicalDeviceMemoryProperties2 memory = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
    v->GetPhysicalDeviceMemoryProperties2(facts->physical, &memory);
    for (uint32_t i = 0; i < memory.memoryProperties.memoryHeapCount; i++) {
        const VkMemoryHeap *heap = &memory.memoryProperties.memoryHeaps[i];
        if (heap->flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT && heap->size > facts->bytes)
            facts->bytes = (size_t)heap->size;
    }
}

void spry_vk_describe(spry_vk_facts *facts, const spry_vulkan *v, VkPhysicalDevice physical)
{
    const VkSubgroupFeatureFlags used = VK_SUBGROUP_FEATURE_BASIC_BIT | VK_SUBGROUP_FEATURE_ARITHMETIC_BIT;
    VkPhysicalDeviceExternalMemoryHostPropertiesEXT import = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT};
    VkPhysicalDeviceVulkan13Properties v13 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES};
    VkPhysicalDeviceVulkan11Properties v11 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES,
                                              .pNext = &v13};
    VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &v11};
    device_features features;
    *facts = (spry_vk_facts){.physical = physical};
    if (has_extension(v, physical, VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME))
        v13.pNext = &import;
    v->GetPhysicalDeviceProperties2(physical, &p);
    snprintf(facts->name, sizeof facts->name, "%.*s", (int)sizeof p.properties.deviceName - 1, p.properties.deviceName);
    if (p.properties.apiVersion < VK_API_VERSION_1_3) {
        snprintf(facts->why, sizeof facts->why, "its driver has Vulkan %u.%u, and 1.3 is needed",
                 VK_API_VERSION_MAJOR(p.properties.apiVersion), VK_API_VERSION_MINOR(p.properties.apiVersion));
        return;
    }
    link_features(&features);
    v->GetPhysicalDeviceFeatures2(physical, &features.base);
    describe_memory(facts, v);
    facts->is_cpu = p.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
    facts->unified = facts->is_cpu || p.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU;
    facts->import_alignment = facts->unified ? (size_t)import.minImportedHostPointerAlignment : 0;
    facts->floats64 = features.base.features.shaderFloat64;
    facts->subgroup_min = v13.minSubgroupSize ? v13.minSubgroupSize : v11.subgroupSize;
    facts->subgroup_max = v13.maxSubgroupSize ? v13.maxSubgroupSize : v11.subgroupSize;
    facts->full_subgroups = features.v13.subgroupSizeControl && features.v13.computeFullSubgroups &&
                            v13.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT;
    facts->shared_bytes = p.properties.limits.maxComputeSharedMemorySize;
    facts->max_threads = p.properties.limits.maxComputeWorkGroupInvocations;
    facts->timestamp_ns = p.properties.limits.timestampPeriod;
    facts->max_allocation = v11.maxMemoryAllocationSize < v13.maxBufferSize || !v13.maxBufferSize
                                ? (size_t)v11.maxMemoryAllocationSize
                                : (size_t)v13.maxBufferSize;
    const size_t sane = (size_t)1 << 40; /* some drivers name no limit */
    facts->max_allocation = facts->max_allocation < sane ? facts->max_allocation : sane;
    memcpy(facts->uuid, p.properties.pipelineCacheUUID, sizeof facts->uuid);
    facts->is_portable = has_extension(v, physical, PORTABILITY_SUBSET);
    facts->has_budget = has_extension(v, physical, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
    const char *missing = missing_feature(&features);
    if (missing)
        snprintf(facts->why, sizeof facts->why, "its driver lacks %s", missing);
    else if (!(v11.subgroupSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT) ||
             (v11.subgroupSupportedOperations & used) != used)
        snprintf(facts->why, sizeof facts->why, "its driver has no sums over subgroups");
    else if (facts->max_threads < SPRY_VULKAN_THREADS || facts->shared_bytes < SPRY_VULKAN_SHARED_BYTES)
        snprintf(facts->why, sizeof facts->why, "workgroups of %u threads and %zu bytes are too small",
                 facts->max_threads, facts->shared_bytes);
    else if (!find_family(facts, v))
        snprintf(facts->why, sizeof facts->why, "it has no queue that computes");
}

size_t spry_vk_free_bytes(const spry_vulkan *v, const spry_vk_facts *facts)
{
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
    VkPhysicalDeviceMemoryProperties2 memory = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2,
                                                .pNext = facts->has_budget ? &budget : NULL};
    size_t most = 0;
    v->GetPhysicalDeviceMemoryProperties2(facts->physical, &memory);
    for (uint32_t i = 0; i < memory.memoryProperties.memoryHeapCount; i++) {
        const VkMemoryHeap *heap = &memory.memoryProperties.memoryHeaps[i];
        VkDeviceSize bytes = heap->size;
        if (facts->has_budget)
            bytes = budget.heapBudget[i] > budget.heapUsage[i] ? budget.heapBudget[i] - budget.heapUsage[i] : 0;
        if (heap->flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT && bytes > most)
            most = (size_t)bytes;
    }
    return most;
}

static int open_device(spry_vk_gpu *g)
{
    static const float priority = 1;
    const char *extensions[3];
    uint32_t n_extensions = 0;
    device_features all, chosen;
    VkPhysicalDeviceMemoryProperties2 memory = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
    link_features(&all);
    g->vulkan->GetPhysicalDeviceFeatures2(g->facts.physical, &all.base);
    choose_features(&chosen, &all);
    if (g->facts.has_budget)
        extensions[n_extensions++] = VK_EXT_MEMORY_BUDGET_EXTENSION_NAME;
    if (g->facts.is_portable)
        extensions[n_extensions++] = PORTABILITY_SUBSET;
    if (g->facts.import_alignment)
        extensions[n_extensions++] = VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME;
    const VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                           .queueFamilyIndex = g->facts.family,
                                           .queueCount = 1,
                                           .pQueuePriorities = &priority};
    const VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                     .pNext = &chosen.base,
                                     .queueCreateInfoCount = 1,
                                     .pQueueCreateInfos = &queue,
                                     .enabledExtensionCount = n_extensions,
                                     .ppEnabledExtensionNames = extensions};
    int result = g->vulkan->CreateDevice(g->facts.physical, &info, NULL, &g->device);
    if (result)
        return result;
    g->vulkan->GetPhysicalDeviceMemoryProperties2(g->facts.physical, &memory);
    g->types = memory.memoryProperties;
    if (!spry_vulkan_find_calls(&g->vk, g->vulkan, g->device))
        return VK_ERROR_INITIALIZATION_FAILED;
    g->vk.GetDeviceQueue(g->device, g->facts.family, 0, &g->queue);
    return VK_SUCCESS;
}

int spry_vk_gpu_open(spry_vk_gpu **out, const spry_vulkan *vulkan, const spry_vk_facts *facts)
{
    *out = NULL;
    spry_vk_gpu *g = calloc(1, sizeof *g);
    if (!g)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    g->vulkan = vulkan;
    g->facts = *facts;
    pthread_mutex_init(&g->lock, NULL);
    int result = open_device(g);
    if (!result)
        result = spry_vk_streams_open(g);
    if (!result)
        result = spry_vk_pipelines_open(g);
    if (result)
        spry_vk_gpu_close(g);
    else
        *out = g;
    return result;
}

void spry_vk_gpu_close(spry_vk_gpu *g)
{
    if (g->device && g->vk.DestroyDevice) {
        g->vk.DeviceWaitIdle(g->device);
        spry_vk_pipelines_close(g);
        spry_vk_streams_close(g);
        while (g->n_memory)
            spry_vk_release(g, g->n_memory - 1);
        g->vk.DestroyDevice(g->device, NULL);
    }
    free(g->memory);
    pthread_mutex_destroy(&g->lock);
    free(g);
}
