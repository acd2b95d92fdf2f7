/* Rows of a device's last step. Include after cmocka.h. */
#ifndef SPRY_TESTS_DEVICE_ROWS_H
#define SPRY_TESTS_DEVICE_ROWS_H

#include "device/device.h"

/* Runs a step without draws. */
static inline spry_status step_run(spry_device *device, const spry_segment *segments, size_t n_segments,
                                   spry_error *error)
{
    const spry_device_step step = {.segments = segments, .n_segments = n_segments};
    spry_status status = spry_device_submit(device, &step, error);
    return status ? status : spry_device_wait(device, error);
}

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
