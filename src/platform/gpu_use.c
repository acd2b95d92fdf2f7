#include "platform/gpu_use.h"

#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/compiler.h"

double spry_gpu_busy_of(const spry_gpu_use_api *api)
{
    unsigned count = 0, percent[2];
    double busiest = NAN;
    void *device;
    if (api->device_count(&count))
        return NAN;
    for (unsigned i = 0; i < count; i++)
        if (!api->device_handle(i, &device) && !api->device_use(device, percent) && percent[0] <= 100 &&
            !(percent[0] <= busiest))
            busiest = percent[0];
    return busiest;
}

double spry_gpu_busy_percent(void)
{
    static const struct {
        const char *name;
        size_t offset;
    } symbols[] = {{"nvmlDeviceGetCount_v2", offsetof(spry_gpu_use_api, device_count)},
                   {"nvmlDeviceGetHandleByIndex_v2", offsetof(spry_gpu_use_api, device_handle)},
                   {"nvmlDeviceGetUtilizationRates", offsetof(spry_gpu_use_api, device_use)}};
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    spry_gpu_use_api api;
    bool whole = library;
    for (size_t i = 0; whole && i < SPRY_COUNT(symbols); i++) {
        void *symbol = dlsym(library, symbols[i].name);
        memcpy((char *)&api + symbols[i].offset, &symbol, sizeof symbol);
        whole = symbol;
    }
    double busy = whole ? spry_gpu_busy_of(&api) : NAN;
    if (library)
        dlclose(library);
    return busy;
}
