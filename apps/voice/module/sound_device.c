#include "voice/sound.h"

#ifdef SPRY_HAVE_PORTAUDIO

#include <stdlib.h>

#include <portaudio.h>

#include "spry_voice.h"

struct spry_sound_device {
    PaStream *stream;
    bool loudspeaker;
};

spry_status spry_sound_device_open(spry_sound_device **out, bool loudspeaker, spry_error *error)
{
    *out = NULL;
    PaError code = Pa_Initialize();
    if (code != paNoError)
        return spry_fail(error, SPRY_ERR_DEVICE, "the machine's sound cannot be used: %s", Pa_GetErrorText(code));
    spry_sound_device *d = calloc(1, sizeof *d);
    spry_status status = d ? SPRY_OK : spry_fail_memory(error, "sound", sizeof *d);
    if (status == SPRY_OK && Pa_GetDefaultInputDevice() == paNoDevice)
        status = spry_fail(error, SPRY_ERR_DEVICE, "there is no microphone; --in takes a sound file");
    if (status == SPRY_OK && loudspeaker && Pa_GetDefaultOutputDevice() == paNoDevice)
        status = spry_fail(error, SPRY_ERR_DEVICE, "there is no loudspeaker; --out takes a file for the answers");
    if (status == SPRY_OK) {
        code = Pa_OpenDefaultStream(&d->stream, 1, loudspeaker ? 1 : 0, paInt16, SPRY_SOUND_RATE, SPRY_VAD_STEP, NULL,
                                    NULL);
        code = code == paNoError ? Pa_StartStream(d->stream) : code;
        if (code != paNoError)
            status = spry_fail(error, SPRY_ERR_DEVICE, "the microphone cannot be used: %s", Pa_GetErrorText(code));
    }
    if (status != SPRY_OK) {
        if (d && d->stream)
            Pa_CloseStream(d->stream);
        free(d);
        Pa_Terminate();
        return status;
    }
    d->loudspeaker = loudspeaker;
    *out = d;
    return SPRY_OK;
}

void spry_sound_device_close(spry_sound_device *d)
{
    if (!d)
        return;
    Pa_AbortStream(d->stream);
    Pa_CloseStream(d->stream);
    free(d);
    Pa_Terminate();
}

/* Lost or late sound is not an error: the conversation goes on. */
spry_status spry_sound_device_read(spry_sound_device *d, int16_t *samples, size_t count, spry_error *error)
{
    PaError code = Pa_ReadStream(d->stream, samples, count);
    return code == paNoError || code == paInputOverflowed
               ? SPRY_OK
               : spry_fail(error, SPRY_ERR_DEVICE, "the microphone is gone: %s", Pa_GetErrorText(code));
}

spry_status spry_sound_device_write(spry_sound_device *d, const int16_t *samples, size_t count, spry_error *error)
{
    if (!d->loudspeaker)
        return SPRY_OK;
    PaError code = Pa_WriteStream(d->stream, samples, count);
    return code == paNoError || code == paOutputUnderflowed
               ? SPRY_OK
               : spry_fail(error, SPRY_ERR_DEVICE, "the loudspeaker is gone: %s", Pa_GetErrorText(code));
}

#endif
