/* Names with _v2 are the variants with 64-bit addresses; every driver of the last decade has them all. */
#include "platform/cuda_driver.h"

#include <dlfcn.h>
#include <stddef.h>

static const struct symbol {
    const char *name;
    size_t offset;
} symbols[] = {
    {"cuInit", offsetof(spry_cuda, init)},
    {"cuGetErrorString", offsetof(spry_cuda, error_string)},
    {"cuDriverGetVersion", offsetof(spry_cuda, driver_version)},
    {"cuDeviceGetCount", offsetof(spry_cuda, device_count)},
    {"cuDeviceGet", offsetof(spry_cuda, device)},
    {"cuDeviceGetName", offsetof(spry_cuda, device_name)},
    {"cuDeviceTotalMem_v2", offsetof(spry_cuda, device_memory)},
    {"cuDeviceGetAttribute", offsetof(spry_cuda, device_attribute)},
    {"cuDevicePrimaryCtxRetain", offsetof(spry_cuda, context_retain)},
    {"cuDevicePrimaryCtxRelease_v2", offsetof(spry_cuda, context_release)},
    {"cuCtxSetCurrent", offsetof(spry_cuda, context_set)},
    {"cuMemGetInfo_v2", offsetof(spry_cuda, memory_info)},
    {"cuMemAlloc_v2", offsetof(spry_cuda, memory_allocate)},
    {"cuMemFree_v2", offsetof(spry_cuda, memory_free)},
    {"cuMemsetD32_v2", offsetof(spry_cuda, memory_fill)},
    {"cuMemcpyHtoD_v2", offsetof(spry_cuda, memory_write)},
    {"cuMemcpyDtoH_v2", offsetof(spry_cuda, memory_read)},
    {"cuTensorMapEncodeTiled", offsetof(spry_cuda, tensor_map_encode)},
    {"cuMemHostAlloc", offsetof(spry_cuda, host_allocate)},
    {"cuMemFreeHost", offsetof(spry_cuda, host_free)},
    {"cuStreamCreate", offsetof(spry_cuda, stream_create)},
    {"cuStreamDestroy_v2", offsetof(spry_cuda, stream_destroy)},
    {"cuStreamSynchronize", offsetof(spry_cuda, stream_wait)},
    {"cuStreamQuery", offsetof(spry_cuda, stream_query)},
    {"cuStreamWaitEvent", offsetof(spry_cuda, stream_wait_event)},
    {"cuMemcpyHtoDAsync_v2", offsetof(spry_cuda, stream_write)},
    {"cuMemcpyDtoHAsync_v2", offsetof(spry_cuda, stream_read)},
    {"cuMemcpyDtoDAsync_v2", offsetof(spry_cuda, stream_copy)},
    {"cuStreamBeginCapture_v2", offsetof(spry_cuda, capture_begin)},
    {"cuStreamEndCapture", offsetof(spry_cuda, capture_end)},
    {"cuGraphInstantiateWithFlags", offsetof(spry_cuda, graph_prepare)},
    {"cuGraphLaunch", offsetof(spry_cuda, graph_launch)},
    {"cuGraphExecDestroy", offsetof(spry_cuda, graph_exec_destroy)},
    {"cuGraphDestroy", offsetof(spry_cuda, graph_destroy)},
    {"cuModuleLoadData", offsetof(spry_cuda, module_load)},
    {"cuModuleUnload", offsetof(spry_cuda, module_unload)},
    {"cuModuleGetFunction", offsetof(spry_cuda, module_function)},
    {"cuFuncSetAttribute", offsetof(spry_cuda, function_attribute)},
    {"cuLaunchKernel", offsetof(spry_cuda, launch)},
    {"cuLaunchKernelEx", offsetof(spry_cuda, launch_as)},
    {"cuEventCreate", offsetof(spry_cuda, event_create)},
    {"cuEventDestroy_v2", offsetof(spry_cuda, event_destroy)},
    {"cuEventRecord", offsetof(spry_cuda, event_record)},
    {"cuEventSynchronize", offsetof(spry_cuda, event_wait)},
    {"cuEventQuery", offsetof(spry_cuda, event_query)},
    {"cuEventElapsedTime", offsetof(spry_cuda, event_elapsed)},
};

spry_status spry_cuda_open(spry_cuda *cuda, const char *library, spry_error *error)
{
    *cuda = (spry_cuda){.library = dlopen(library, RTLD_NOW | RTLD_LOCAL)};
    if (!cuda->library) {
        const char *reason = dlerror();
        return spry_fail(error, SPRY_ERR_FILE, "no NVIDIA driver: %s", reason ? reason : library);
    }
    for (size_t i = 0; i < SPRY_COUNT(symbols); i++) {
        void *symbol = dlsym(cuda->library, symbols[i].name);
        if (!symbol) {
            spry_cuda_close(cuda);
            return spry_fail(error, SPRY_ERR_FILE, "%s has no %s: the NVIDIA driver is too old, or is none", library,
                             symbols[i].name);
        }
        *(void **)(void *)((char *)cuda + symbols[i].offset) = symbol;
    }
    return SPRY_OK;
}

void spry_cuda_close(spry_cuda *cuda)
{
    if (cuda->library)
        dlclose(cuda->library);
    *cuda = (spry_cuda){0};
}

const char *spry_cuda_reason(const spry_cuda *cuda, int result)
{
    const char *text = NULL;
    return cuda->error_string(result, &text) == 0 && text ? text : "an error that the driver has no words for";
}
