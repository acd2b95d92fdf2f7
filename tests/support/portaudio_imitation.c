/* PortAudio as on a machine whose microphone or loudspeaker ($UNPLUGGED) is unplugged in the middle of a sentence. The
 * microphone hears syllables. Built by cli_voice.py as a library in place of the real one. */
#include <stdlib.h>
#include <string.h>

enum { NO_ERROR = 0, UNANTICIPATED_HOST_ERROR = -9999, STEPS = 150 };

static int stream, read_steps, written_steps;

int Pa_Initialize(void)
{
    return NO_ERROR;
}

int Pa_Terminate(void)
{
    return NO_ERROR;
}

int Pa_GetDefaultInputDevice(void)
{
    return 0;
}

int Pa_GetDefaultOutputDevice(void)
{
    return 0;
}

int Pa_OpenDefaultStream(void **out, int n_in, int n_out, unsigned long format, double rate, unsigned long frames,
                         void *callback, void *user)
{
    (void)n_in, (void)n_out, (void)format, (void)rate, (void)frames, (void)callback, (void)user;
    *out = &stream;
    return NO_ERROR;
}

int Pa_StartStream(void *s)
{
    (void)s;
    return NO_ERROR;
}

int Pa_AbortStream(void *s)
{
    (void)s;
    return NO_ERROR;
}

int Pa_CloseStream(void *s)
{
    (void)s;
    return NO_ERROR;
}

static int end_of(int *steps, const char *what)
{
    return ++*steps > STEPS && !strcmp(getenv("UNPLUGGED"), what) ? UNANTICIPATED_HOST_ERROR : NO_ERROR;
}

/* Half a second of quiet, then pulses of 125 Hz in syllables of a quarter of a second. */
int Pa_ReadStream(void *s, short *samples, unsigned long count)
{
    (void)s;
    for (unsigned long i = 0; i < count; i++) {
        int at = read_steps * (int)count + (int)i, syllable = at % 4000;
        samples[i] = (short)(at < 8000 || syllable > 3000 ? 0 : at % 128 < 20 ? 8000 : -1000);
    }
    return end_of(&read_steps, "microphone");
}

int Pa_WriteStream(void *s, const short *samples, unsigned long count)
{
    (void)s, (void)samples, (void)count;
    return end_of(&written_steps, "loudspeaker");
}

const char *Pa_GetErrorText(int code)
{
    return code == UNANTICIPATED_HOST_ERROR ? "unplugged" : "success";
}
