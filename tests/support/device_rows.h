/* Rows of a device's last step. Include after cmocka.h. */
#ifndef SPRY_TESTS_DEVICE_ROWS_H
#define SPRY_TESTS_DEVICE_ROWS_H

#include "device/device.h"

/* [count, n_vocab], from this row on. */
static inline const float *step_logits(spry_device *device, size_t first, size_t count)
{
    const float *logits;
    spry_error error = {0};
    if (spry_device_logits(device, &logits, first, count, &error))
        fail_msg("%s", error.message);
    return logits;
}

/* [count, n_embd] */
static inline const float *step_hidden(spry_device *device, size_t first, size_t count)
{
    const float *hidden;
    spry_error error = {0};
    if (spry_device_hidden(device, &hidden, first, count, &error))
        fail_msg("%s", error.message);
    return hidden;
}

#endif
