/* The functions of Vulkan that are used here, found at run time through the system's loader: one program runs with and
 * without Vulkan. Headers are the system's (libvulkan-dev); nothing is linked. */
#ifndef SPRY_PLATFORM_VULKAN_LOADER_H
#define SPRY_PLATFORM_VULKAN_LOADER_H

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#include "base/error.h"

#if defined(__APPLE__)
#define SPRY_VULKAN_LIBRARY "libvulkan.1.dylib"
#else
#define SPRY_VULKAN_LIBRARY "libvulkan.so.1"
#endif

#define SPRY_VULKAN_GLOBALS(X) X(CreateInstance) X(EnumerateInstanceVersion) X(EnumerateInstanceExtensionProperties)

#define SPRY_VULKAN_INSTANCE(X)                                                                                        \
    X(DestroyInstance)                                                                                                 \
    X(EnumeratePhysicalDevices)                                                                                        \
    X(EnumerateDeviceExtensionProperties)                                                                              \
    X(GetPhysicalDeviceProperties2)                                                                                    \
    X(GetPhysicalDeviceFeatures2)                                                                                      \
    X(GetPhysicalDeviceMemoryProperties2)                                                                              \
    X(GetPhysicalDeviceQueueFamilyProperties)                                                                          \
    X(CreateDevice)                                                                                                    \
    X(GetDeviceProcAddr)

#define SPRY_VULKAN_DEVICE(X)                                                                                          \
    X(DestroyDevice)                                                                                                   \
    X(GetDeviceQueue)                                                                                                  \
    X(DeviceWaitIdle)                                                                                                  \
    X(CreateBuffer)                                                                                                    \
    X(DestroyBuffer)                                                                                                   \
    X(GetBufferMemoryRequirements)                                                                                     \
    X(GetBufferDeviceAddress)                                                                                          \
    X(AllocateMemory)                                                                                                  \
    X(FreeMemory)                                                                                                      \
    X(BindBufferMemory)                                                                                                \
    X(MapMemory)                                                                                                       \
    X(CreateCommandPool)                                                                                               \
    X(DestroyCommandPool)                                                                                              \
    X(AllocateCommandBuffers)                                                                                          \
    X(FreeCommandBuffers)                                                                                              \
    X(BeginCommandBuffer)                                                                                              \
    X(EndCommandBuffer)                                                                                                \
    X(CmdPipelineBarrier)                                                                                              \
    X(CmdCopyBuffer)                                                                                                   \
    X(CmdFillBuffer)                                                                                                   \
    X(CmdBindPipeline)                                                                                                 \
    X(CmdPushConstants)                                                                                                \
    X(CmdDispatch)                                                                                                     \
    X(CmdExecuteCommands)                                                                                              \
    X(CmdResetQueryPool)                                                                                               \
    X(CmdWriteTimestamp)                                                                                               \
    X(CreateQueryPool)                                                                                                 \
    X(DestroyQueryPool)                                                                                                \
    X(GetQueryPoolResults)                                                                                             \
    X(QueueSubmit)                                                                                                     \
    X(CreateSemaphore)                                                                                                 \
    X(DestroySemaphore)                                                                                                \
    X(GetSemaphoreCounterValue)                                                                                        \
    X(WaitSemaphores)                                                                                                  \
    X(CreatePipelineLayout)                                                                                            \
    X(DestroyPipelineLayout)                                                                                           \
    X(CreateShaderModule)                                                                                              \
    X(DestroyShaderModule)                                                                                             \
    X(CreateComputePipelines)                                                                                          \
    X(DestroyPipeline)                                                                                                 \
    X(CreatePipelineCache)                                                                                             \
    X(DestroyPipelineCache)                                                                                            \
    X(GetPipelineCacheData)

#define SPRY_VULKAN_MEMBER(name) PFN_vk##name name;

/* An instance; `library` NULL: not open. */
typedef struct spry_vulkan {
    void *library;
    VkInstance handle;
    PFN_vkGetInstanceProcAddr get;
    SPRY_VULKAN_GLOBALS(SPRY_VULKAN_MEMBER)
    SPRY_VULKAN_INSTANCE(SPRY_VULKAN_MEMBER)
} spry_vulkan;

/* The functions of one device. */
typedef struct spry_vulkan_calls {
    SPRY_VULKAN_DEVICE(SPRY_VULKAN_MEMBER)
    PFN_vkGetMemoryHostPointerPropertiesEXT GetMemoryHostPointerPropertiesEXT; /* NULL: it is an extension */
} spry_vulkan_calls;

/* Loads `library` and creates an instance of Vulkan 1.3. Closing when it is not open has no effect. */
spry_status spry_vulkan_open(spry_vulkan *vulkan, const char *library, spry_error *error);
void spry_vulkan_close(spry_vulkan *vulkan);

/* Looks up the functions of a device; false if one is missing. */
bool spry_vulkan_find_calls(spry_vulkan_calls *calls, const spry_vulkan *vulkan, VkDevice device);

/* The name of a result, "VK_ERROR_DEVICE_LOST". */
const char *spry_vulkan_result_name(int result);

#endif
