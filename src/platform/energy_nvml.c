/* GPUs through NVIDIA's management library, which comes with the driver and is loaded at run time. GPUs since 2017
 * count millijoules; for older ones the power is integrated between samples. */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "platform/energy_impl.h"

/* Counters change ten times a second, but reading one takes four milliseconds of CPU time on an H200. */
enum { GPU_SAMPLE_NS = 250000000 };

static const char library_name[] = "libnvidia-ml.so.1";

typedef struct gpu {
    void *device;
    bool by_power;
    unsigned milliwatts; /* at the last sample */
    uint64_t seen_ns;
    double millijoules; /* integrated until then */
} gpu;

typedef struct nvml {
    spry_nvml api;
    gpu gpus[SPRY_ENERGY_COUNTERS];
} nvml;

/* ---- the library ------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    size_t offset;
} symbols[] = {
    {"nvmlInit_v2", offsetof(spry_nvml, init)},
    {"nvmlShutdown", offsetof(spry_nvml, shutdown)},
    {"nvmlErrorString", offsetof(spry_nvml, error_text)},
    {"nvmlDeviceGetCount_v2", offsetof(spry_nvml, device_count)},
    {"nvmlDeviceGetHandleByIndex_v2", offsetof(spry_nvml, device_handle)},
    {"nvmlDeviceGetName", offsetof(spry_nvml, device_name)},
    {"nvmlDeviceGetTotalEnergyConsumption", offsetof(spry_nvml, device_energy)},
    {"nvmlDeviceGetPowerUsage", offsetof(spry_nvml, device_power)},
};

spry_status spry_nvml_load(spry_nvml *api, spry_error *why)
{
    *api = (spry_nvml){.library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL)};
    if (!api->library)
        return spry_fail(why, SPRY_ERR_UNSUPPORTED, "there is no %s, so no NVIDIA driver", library_name);
    for (size_t i = 0; i < SPRY_COUNT(symbols); i++) {
        void *symbol = dlsym(api->library, symbols[i].name);
        if (!symbol) {
            dlclose(api->library);
            return spry_fail(why, SPRY_ERR_UNSUPPORTED, "%s has no %s: the NVIDIA driver is too old", library_name,
                             symbols[i].name);
        }
        memcpy((char *)api + symbols[i].offset, &symbol, sizeof symbol);
    }
    return SPRY_OK;
}

static spry_status fail_nvml(const spry_nvml *api, const char *what, int result, spry_error *why)
{
    const char *text = api->error_text(result);
    return spry_fail(why, SPRY_ERR_FILE, "NVML: %.100s: %.200s", what, text ? text : "an error without a name");
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Adds the mean of the last and the current power, times the interval. */
static void add_power(gpu *device, unsigned milliwatts, uint64_t now_ns)
{
    double seconds = now_ns > device->seen_ns ? (double)(now_ns - device->seen_ns) * 1e-9 : 0;
    device->millijoules += ((double)device->milliwatts + (double)milliwatts) / 2 * seconds;
    device->milliwatts = milliwatts;
    device->seen_ns = now_ns;
}

static spry_status nvml_read(void *context, size_t index, uint64_t *value, uint64_t now_ns, spry_error *why)
{
    nvml *self = context;
    gpu *device = &self->gpus[index];
    unsigned milliwatts;
    unsigned long long millijoules;
    int result = device->by_power ? self->api.device_power(device->device, &milliwatts)
                                  : self->api.device_energy(device->device, &millijoules);
    if (result != SPRY_NVML_OK)
        return fail_nvml(&self->api, "the energy of a GPU can no longer be read", result, why);
    if (device->by_power) {
        add_power(device, milliwatts, now_ns);
        *value = (uint64_t)device->millijoules;
    } else {
        *value = millijoules;
    }
    return SPRY_OK;
}

static void nvml_close(void *context)
{
    nvml *self = context;
    self->api.shutdown();
    if (self->api.library)
        dlclose(self->api.library);
    free(self);
}

static const spry_energy_kind nvml_kind = {"NVML", nvml_read, nvml_close};

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static void name_counter(spry_energy_counter *counter, const spry_nvml *api, const gpu *device, unsigned index)
{
    char name[SPRY_ENERGY_NAME] = "";
    if (api->device_name(device->device, name, sizeof name) != SPRY_NVML_OK)
        name[0] = 0;
    name[sizeof name - 1] = 0;
    snprintf(counter->name, sizeof counter->name, "GPU %u%s%.48s%s", index, *name ? " " : "", name,
             device->by_power ? " (power, added up)" : "");
}

/* Adds a GPU, unless this process may not use it. */
static spry_status add_gpu(spry_energy_source *source, unsigned index, uint64_t now_ns)
{
    nvml *self = source->context;
    const spry_nvml *api = &self->api;
    gpu device = {.seen_ns = now_ns};
    unsigned long long millijoules = 0;
    char what[64];
    int result = api->device_handle(index, &device.device);
    if (result == SPRY_NVML_OK)
        result = api->device_energy(device.device, &millijoules);
    if (result == SPRY_NVML_NOT_SUPPORTED && device.device) {
        device.by_power = true;
        result = api->device_power(device.device, &device.milliwatts);
    }
    if (result != SPRY_NVML_OK) {
        snprintf(what, sizeof what, "GPU %u has no energy to read", index);
        return fail_nvml(api, what, result, &source->why);
    }
    spry_energy_counter *counter = spry_energy_source_add(source);
    if (!counter)
        return spry_fail(&source->why, SPRY_ERR_FORMAT, "there are more than %d GPUs", SPRY_ENERGY_COUNTERS);
    *counter = (spry_energy_counter){.joules = 1e-3};
    name_counter(counter, api, &device, index);
    spry_energy_counter_start(counter, device.by_power ? 0 : millijoules, now_ns);
    self->gpus[source->count - 1] = device;
    return SPRY_OK;
}

static spry_status add_gpus(spry_energy_source *source, const spry_energy_system *system)
{
    const spry_nvml *api = &((nvml *)source->context)->api;
    unsigned count = 0;
    int result = api->device_count(&count);
    if (result != SPRY_NVML_OK)
        return fail_nvml(api, "the GPUs cannot be counted", result, &source->why);
    if (!count)
        return spry_fail(&source->why, SPRY_ERR_UNSUPPORTED, "NVML: there is no GPU");
    for (unsigned i = 0; i < count; i++)
        add_gpu(source, i, system->clock());
    return source->count ? SPRY_OK : source->why.status;
}

spry_status spry_energy_open_nvml(spry_energy_source *source, const spry_energy_system *system)
{
    nvml *self = calloc(1, sizeof *self);
    if (!self)
        return spry_fail_memory(&source->why, "the energy counters", sizeof *self);
    spry_status status = system->nvml_load(&self->api, &source->why);
    if (status != SPRY_OK) {
        free(self);
        return status;
    }
    int result = self->api.init();
    if (result != SPRY_NVML_OK) {
        status = fail_nvml(&self->api, "it does not start", result, &source->why);
        if (self->api.library)
            dlclose(self->api.library);
        free(self);
        return status;
    }
    source->kind = &nvml_kind;
    source->context = self;
    source->sample_ns = GPU_SAMPLE_NS;
    status = add_gpus(source, system);
    if (status != SPRY_OK)
        spry_energy_source_close(source);
    return status;
}
