/* Opens the Vulkan loader. A loader finds the drivers of the machine by itself (ICD files); a machine without any is
 * not an error here: the list of devices is empty then. */
#include "platform/vulkan_loader.h"

#include <dlfcn.h>
#include <string.h>

static PFN_vkVoidFunction find(const spry_vulkan *v, const char *name)
{
    return v->get(v->handle, name);
}

#define FIND(name) fine = (v->name = (PFN_vk##name)find(v, "vk" #name)) && fine;

static bool find_globals(spry_vulkan *v)
{
    bool fine = true;
    SPRY_VULKAN_GLOBALS(FIND)
    return fine;
}

static bool find_instance_functions(spry_vulkan *v)
{
    bool fine = true;
    SPRY_VULKAN_INSTANCE(FIND)
    return fine;
}

/* Drivers over another interface, such as MoltenVK's, are listed only if they are asked for. */
static bool lists_portable_drivers(const spry_vulkan *v)
{
    enum { MOST = 128 };
    VkExtensionProperties list[MOST];
    uint32_t n = MOST;
    if (v->EnumerateInstanceExtensionProperties(NULL, &n, list) < 0)
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (!strcmp(list[i].extensionName, VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME))
            return true;
    return false;
}

spry_status spry_vulkan_open(spry_vulkan *v, const char *library, spry_error *error)
{
    const VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                           .pApplicationName = "spry",
                                           .pEngineName = "spry",
                                           .apiVersion = VK_API_VERSION_1_3};
    static const char *const portable = VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME;
    VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                 .pApplicationInfo = &application,
                                 .ppEnabledExtensionNames = &portable};
    *v = (spry_vulkan){.library = dlopen(library, RTLD_NOW | RTLD_LOCAL)};
    if (!v->library) {
        const char *reason = dlerror();
        return spry_fail(error, SPRY_ERR_FILE, "no Vulkan loader: %s", reason ? reason : library);
    }
    *(void **)(void *)&v->get = dlsym(v->library, "vkGetInstanceProcAddr");
    if (!v->get || !find_globals(v)) {
        spry_vulkan_close(v);
        return spry_fail(error, SPRY_ERR_FILE, "%s is no Vulkan loader, or older than Vulkan 1.1", library);
    }
    if (lists_portable_drivers(v)) {
        info.enabledExtensionCount = 1;
        info.flags = VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR;
    }
    int result = v->CreateInstance(&info, NULL, &v->handle);
    if (result || !find_instance_functions(v)) {
        v->handle = result ? VK_NULL_HANDLE : v->handle;
        spry_vulkan_close(v);
        return spry_fail(error, SPRY_ERR_DEVICE, "the Vulkan loader found no usable driver: %s",
                         result ? spry_vulkan_result_name(result) : "functions are missing");
    }
    return SPRY_OK;
}

void spry_vulkan_close(spry_vulkan *v)
{
    if (v->handle && v->DestroyInstance)
        v->DestroyInstance(v->handle, NULL);
    if (v->library)
        dlclose(v->library);
    *v = (spry_vulkan){0};
}

bool spry_vulkan_find_calls(spry_vulkan_calls *calls, const spry_vulkan *vulkan, VkDevice device)
{
    bool fine = true;
#define FIND_CALL(name) fine = (calls->name = (PFN_vk##name)vulkan->GetDeviceProcAddr(device, "vk" #name)) && fine;
    SPRY_VULKAN_DEVICE(FIND_CALL)
    calls->GetMemoryHostPointerPropertiesEXT = (PFN_vkGetMemoryHostPointerPropertiesEXT)vulkan->GetDeviceProcAddr(
        device, "vkGetMemoryHostPointerPropertiesEXT");
    return fine;
}

const char *spry_vulkan_result_name(int result)
{
    static const struct {
        int result;
        const char *name;
    } names[] = {{VK_ERROR_OUT_OF_HOST_MEMORY, "VK_ERROR_OUT_OF_HOST_MEMORY"},
                 {VK_ERROR_OUT_OF_DEVICE_MEMORY, "VK_ERROR_OUT_OF_DEVICE_MEMORY"},
                 {VK_ERROR_INITIALIZATION_FAILED, "VK_ERROR_INITIALIZATION_FAILED"},
                 {VK_ERROR_DEVICE_LOST, "VK_ERROR_DEVICE_LOST"},
                 {VK_ERROR_MEMORY_MAP_FAILED, "VK_ERROR_MEMORY_MAP_FAILED"},
                 {VK_ERROR_EXTENSION_NOT_PRESENT, "VK_ERROR_EXTENSION_NOT_PRESENT"},
                 {VK_ERROR_FEATURE_NOT_PRESENT, "VK_ERROR_FEATURE_NOT_PRESENT"},
                 {VK_ERROR_INCOMPATIBLE_DRIVER, "VK_ERROR_INCOMPATIBLE_DRIVER"},
                 {VK_ERROR_TOO_MANY_OBJECTS, "VK_ERROR_TOO_MANY_OBJECTS"},
                 {VK_ERROR_OUT_OF_POOL_MEMORY, "VK_ERROR_OUT_OF_POOL_MEMORY"},
                 {VK_ERROR_INVALID_SHADER_NV, "VK_ERROR_INVALID_SHADER_NV"}};
    for (size_t i = 0; i < SPRY_COUNT(names); i++)
        if (names[i].result == result)
            return names[i].name;
    return "an error of Vulkan";
}
