/* The machine's microphone and loudspeaker, through PortAudio. Without PortAudio opening fails and says so. */
#ifndef SPRY_APPS_SOUND_DEVICE_H
#define SPRY_APPS_SOUND_DEVICE_H

#include <stdint.h>

#include "base/error.h"

typedef struct spry_sound_device spry_sound_device;

/* One channel of 16 bits at 16 kHz. */
spry_status spry_sound_device_open(spry_sound_device **out, bool loudspeaker, spry_error *error);
void spry_sound_device_close(spry_sound_device *device);

/* Both wait for the device. A device that is unplugged is an error. */
spry_status spry_sound_device_read(spry_sound_device *device, int16_t *samples, size_t count, spry_error *error);
spry_status spry_sound_device_write(spry_sound_device *device, const int16_t *samples, size_t count, spry_error *error);

#endif
