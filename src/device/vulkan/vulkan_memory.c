/* Memory of a device of Vulkan. Each allocation has one buffer over all of it; kernels get its address, copies its
 * buffer. On a device whose memory the host shares, all of it is mapped. */
#include <stdlib.h>

#include "device/vulkan/vulkan_gpu.h"

/* The first type of memory with all of `wanted` among those that a buffer can have; UINT32_MAX: none. */
static uint32_t find_type(const spry_vk_gpu *g, uint32_t among, VkMemoryPropertyFlags wanted)
{
    for (uint32_t i = 0; i < g->types.memoryTypeCount; i++)
        if (among >> i & 1 && (g->types.memoryTypes[i].propertyFlags & wanted) == wanted)
            return i;
    return UINT32_MAX;
}

static uint32_t type_for(const spry_vk_gpu *g, uint32_t among, spry_vk_use use)
{
    enum {
        LOCAL = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
        VISIBLE = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
        CACHED = VK_MEMORY_PROPERTY_HOST_CACHED_BIT
    };
    static const VkMemoryPropertyFlags wishes[][2] = {[SPRY_VK_ON_DEVICE] = {LOCAL, 0},
                                                      [SPRY_VK_ARGUMENTS] = {LOCAL | VISIBLE, VISIBLE},
                                                      [SPRY_VK_UPLOAD] = {VISIBLE, VISIBLE},
                                                      [SPRY_VK_READBACK] = {VISIBLE | CACHED, VISIBLE}};
    uint32_t type = find_type(g, among, wishes[use][0]);
    return type != UINT32_MAX ? type : find_type(g, among, wishes[use][1]);
}

static uint64_t address_of(const spry_vk_gpu *g, VkBuffer buffer)
{
    const VkBufferDeviceAddressInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, .buffer = buffer};
    return g->vk.GetBufferDeviceAddress(g->device, &info);
}

static int bind(spry_vk_gpu *g, spry_vk_memory *m, spry_vk_use use)
{
    VkMemoryRequirements needs;
    g->vk.GetBufferMemoryRequirements(g->device, m->buffer, &needs);
    uint32_t type = type_for(g, needs.memoryTypeBits, use);
    if (type == UINT32_MAX)
        return VK_ERROR_FEATURE_NOT_PRESENT;
    const VkMemoryAllocateFlagsInfo flags = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                             .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
    const VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                       .pNext = &flags,
                                       .allocationSize = needs.size,
                                       .memoryTypeIndex = type};
    int result = g->vk.AllocateMemory(g->device, &info, NULL, &m->memory);
    if (!result)
        result = g->vk.BindBufferMemory(g->device, m->buffer, m->memory, 0);
    bool visible = g->types.memoryTypes[type].propertyFlags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT;
    void *host = NULL;
    if (!result && visible && use != SPRY_VK_ON_DEVICE)
        result = g->vk.MapMemory(g->device, m->memory, 0, VK_WHOLE_SIZE, 0, &host);
    m->host = host;
    return result;
}

int spry_vk_allocate(spry_vk_gpu *g, spry_vk_memory *m, size_t bytes, spry_vk_use use)
{
    const VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                     .size = bytes ? bytes : 1,
                                     .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                                              VK_BUFFER_USAGE_TRANSFER_DST_BIT |
                                              VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT};
    *m = (spry_vk_memory){.bytes = bytes};
    if (bytes > g->facts.max_allocation)
        return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    int result = g->vk.CreateBuffer(g->device, &info, NULL, &m->buffer);
    if (!result)
        result = bind(g, m, use);
    if (!result) {
        m->address = address_of(g, m->buffer);
        g->allocations++;
    } else {
        spry_vk_free(g, m);
    }
    return result;
}

/* The memory of an import, which its buffer is bound to. */
static int bind_import(spry_vk_gpu *g, spry_vk_memory *m, void *host)
{
    const VkExternalMemoryHandleTypeFlagBits from = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;
    VkMemoryHostPointerPropertiesEXT can = {.sType = VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT};
    VkMemoryRequirements needs;
    int result = g->vk.GetMemoryHostPointerPropertiesEXT(g->device, from, host, &can);
    if (result)
        return result;
    g->vk.GetBufferMemoryRequirements(g->device, m->buffer, &needs);
    uint32_t type = find_type(g, needs.memoryTypeBits & can.memoryTypeBits, 0);
    if (type == UINT32_MAX || needs.size > m->bytes)
        return VK_ERROR_FEATURE_NOT_PRESENT;
    const VkImportMemoryHostPointerInfoEXT import = {
        .sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT, .handleType = from, .pHostPointer = host};
    const VkMemoryAllocateFlagsInfo flags = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                             .pNext = &import,
                                             .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
    const VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                       .pNext = &flags,
                                       .allocationSize = m->bytes,
                                       .memoryTypeIndex = type};
    result = g->vk.AllocateMemory(g->device, &info, NULL, &m->memory);
    return result ? result : g->vk.BindBufferMemory(g->device, m->buffer, m->memory, 0);
}

int spry_vk_import(spry_vk_gpu *g, spry_vk_memory *m, void *host, size_t bytes)
{
    const VkExternalMemoryBufferCreateInfo from = {.sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO,
                                                   .handleTypes =
                                                       VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT};
    const VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                     .pNext = &from,
                                     .size = bytes,
                                     .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT |
                                              VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT};
    size_t alignment = g->facts.import_alignment;
    *m = (spry_vk_memory){.bytes = bytes};
    if (!alignment || !g->vk.GetMemoryHostPointerPropertiesEXT || ((uintptr_t)host | bytes) % alignment)
        return VK_ERROR_FEATURE_NOT_PRESENT;
    int result = g->vk.CreateBuffer(g->device, &info, NULL, &m->buffer);
    if (!result)
        result = bind_import(g, m, host);
    if (result)
        spry_vk_free(g, m);
    else
        m->address = address_of(g, m->buffer);
    return result;
}

void spry_vk_free(spry_vk_gpu *g, spry_vk_memory *m)
{
    if (m->buffer)
        g->vk.DestroyBuffer(g->device, m->buffer, NULL);
    if (m->memory)
        g->vk.FreeMemory(g->device, m->memory, NULL);
    *m = (spry_vk_memory){0};
}

int spry_vk_keep(spry_vk_gpu *g, const spry_vk_memory *m)
{
    if (g->n_memory == g->memory_capacity) {
        size_t more = g->memory_capacity ? 2 * g->memory_capacity : 32;
        spry_vk_memory *list = realloc(g->memory, more * sizeof *list);
        if (!list)
            return VK_ERROR_OUT_OF_HOST_MEMORY;
        g->memory = list;
        g->memory_capacity = more;
    }
    g->memory[g->n_memory++] = *m;
    return VK_SUCCESS;
}

void spry_vk_release(spry_vk_gpu *g, size_t index)
{
    spry_vk_free(g, &g->memory[index]);
    g->memory[index] = g->memory[--g->n_memory];
}

size_t spry_vk_find(const spry_vk_gpu *g, uint64_t address)
{
    size_t i = 0;
    while (i < g->n_memory && address - g->memory[i].address >= g->memory[i].bytes)
        i++;
    return i;
}

size_t spry_vk_find_host(const spry_vk_gpu *g, const void *host)
{
    size_t i = 0;
    while (i < g->n_memory &&
           (!g->memory[i].host || (uintptr_t)host - (uintptr_t)g->memory[i].host >= g->memory[i].bytes))
        i++;
    return i;
}
