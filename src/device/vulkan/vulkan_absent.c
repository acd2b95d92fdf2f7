/* The driver's place in a program that was built without Vulkan. */
#include "device/vulkan/vulkan_device.h"

const void *const spry_vulkan_images[] = {NULL};

spry_status spry_vulkan_driver_open(spry_cuda *driver, spry_error *error)
{
    *driver = (spry_cuda){.vulkan = true};
    return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                     "this program was built without Vulkan: building it needs glslc and Vulkan's headers "
                     "(scripts/setup)");
}

bool spry_vulkan_is_cpu(int index)
{
    (void)index;
    return true;
}

bool spry_vulkan_is_portable(int index)
{
    (void)index;
    return true;
}
