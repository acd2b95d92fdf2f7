/* Any bytes as a WAV file: all of its samples can be read, or it is refused. */
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "voice/wave.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    spry_wave wave;
    spry_error error;
    float samples[333];
    if (spry_wave_open(&wave, data, size, "fuzz", &error) == SPRY_OK)
        while (spry_wave_read(&wave, samples, SPRY_COUNT(samples)))
            ;
    return 0;
}
