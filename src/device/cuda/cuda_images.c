#include <pthread.h>
#include <stddef.h>

#include "device/cuda/cuda_device.h"
#include "platform/environment.h"

static const void *const none[] = {NULL};
static const void *const *images = none;

static void open_module(void)
{
    const void *const *found = spry_module_symbol("spry_cuda", "spry_cuda_images", NULL);
    if (found)
        images = found;
}

const void *const *spry_cuda_images(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_module);
    return images;
}
