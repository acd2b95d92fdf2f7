/* For programs whose device is "cuda": the imitated driver and its kernels in place of the system's, unless they set
 * cuda_default_real. Linked with
 * --wrap=spry_cuda_open,--wrap=spry_cuda_context_init,--wrap=spry_device_total. */
#include "device/cuda/cuda_context.h"
#include "support/cuda_imitation.h"

size_t __wrap_spry_device_total(const char *name);
spry_status __real_spry_cuda_open(spry_cuda *cuda, const char *library, spry_error *error);
spry_status __wrap_spry_cuda_open(spry_cuda *cuda, const char *library, spry_error *error);
spry_status __real_spry_cuda_context_init(spry_cuda_context *context, const spry_cuda *cuda, int index,
                                          const void *const *images, spry_error *error);
spry_status __wrap_spry_cuda_context_init(spry_cuda_context *context, const spry_cuda *cuda, int index,
                                          const void *const *images, spry_error *error);

extern bool cuda_default_real;
bool cuda_default_real;

/* Also for programs that were built without kernels. */
size_t __wrap_spry_device_total(const char *name)
{
    (void)name;
    return (size_t)8 << 30;
}

spry_status __wrap_spry_cuda_open(spry_cuda *cuda, const char *library, spry_error *error)
{
    static bool ready;
    if (cuda_default_real)
        return __real_spry_cuda_open(cuda, library, error);
    if (!ready)
        cuda_imitation_reset();
    ready = true;
    *cuda = cuda_imitation_driver();
    return SPRY_OK;
}

spry_status __wrap_spry_cuda_context_init(spry_cuda_context *context, const spry_cuda *cuda, int index,
                                          const void *const *images, spry_error *error)
{
    return __real_spry_cuda_context_init(context, cuda, index, cuda_default_real ? images : cuda_imitation_images,
                                         error);
}
