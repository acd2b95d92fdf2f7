/* The kind "vulkan". */
#include "device/vulkan/vulkan_device.h"

#include "base/number.h"
#include "device/cuda/cuda_device.h"
#include "device/device_impl.h"
#include "platform/gpu.h"

/* A CPU that imitates a GPU may be busy with other programs, so its steps may take long. */
enum { CPU_TIMEOUT_MS = 3600000 };

/* Reads the number of a device; an empty piece selects the first one. */
static spry_status open_driver(spry_cuda *driver, int *index, const char *piece, spry_error *error)
{
    uint64_t number = 0;
    int device;
    if (piece[0] && (!spry_number_u64(&number, spry_view_of(piece)) || number > INT16_MAX))
        return spry_fail(error, SPRY_ERR_INPUT, "vulkan:%.40s: the number after the colon selects the device", piece);
    *index = (int)number;
    spry_status status = spry_vulkan_driver_open(driver, error);
    if (!status && driver->device(&device, *index)) {
        int count = 0;
        driver->device_count(&count);
        status = spry_fail(error, SPRY_ERR_INPUT, "there is no Vulkan device %d: usable ones are %d", *index, count);
    }
    if (!status && spry_vulkan_is_cpu(*index))
        driver->timeout_ms = CPU_TIMEOUT_MS;
    return status;
}

static spry_status open_piece(spry_device **out, const char *piece, const spry_device_setup *setup, spry_error *error)
{
    spry_cuda driver;
    int index;
    *out = NULL;
    spry_status status = open_driver(&driver, &index, piece, error);
    return status ? status : spry_cuda_device_open(out, &driver, spry_vulkan_images, index, setup, error);
}

static size_t count_memory(const char *piece, bool free_only)
{
    spry_cuda driver;
    int index;
    size_t bytes = 0;
    if (open_driver(&driver, &index, piece, NULL))
        return 0;
    return (free_only ? driver.device_free(&bytes, index) : driver.device_memory(&bytes, index)) ? 0 : bytes;
}

static size_t total(const char *piece)
{
    return count_memory(piece, false);
}

static size_t available(const char *piece)
{
    return count_memory(piece, true);
}

static bool is_host(const char *piece)
{
    spry_cuda driver;
    int index;
    if (!spry_gpu_is_likely())
        return true;
    return !open_driver(&driver, &index, piece, NULL) && (spry_vulkan_is_cpu(index) || spry_vulkan_is_portable(index));
}

static void explain(const char *piece, spry_error *why)
{
    spry_cuda driver;
    int index;
    open_driver(&driver, &index, piece, why);
}

static bool estimate(spry_device_memory *memory, const spry_device_setup *setup, const spry_device_use *use)
{
    (void)use; /* everything is allocated at once */
    return spry_cuda_device_estimate(memory, setup, true);
}

const spry_device_kind spry_device_kind_vulkan = {
    .name = "vulkan",
    .features = SPRY_FEATURE_LAYER_NORM | SPRY_FEATURE_NORM_PLACES | SPRY_FEATURE_QK_NORM | SPRY_FEATURE_UNROTATED |
                SPRY_FEATURE_SCALES | SPRY_FEATURE_UNGATED | SPRY_FEATURE_SINKS | SPRY_FEATURE_CLAMPED |
                SPRY_FEATURE_ROUTING | SPRY_FEATURE_SHARED | SPRY_FEATURE_ENCODER | SPRY_FEATURE_CHUNKED |
                SPRY_FEATURE_TYPES,
    .chunk = 2048,
    .total = total,
    .available = available,
    .is_host = is_host,
    .explain = explain,
    .open = open_piece,
    .estimate = estimate};
