#include "voice/sound_port.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "platform/clock.h"
#include "voice/sound_device.h"
#include "voice/sound_file.h"

enum { STEP_NS = SPRY_VAD_STEP * (1000000000 / SPRY_SOUND_RATE) };

struct spry_sound_port {
    spry_sound_device *device; /* NULL: none */
    spry_sound_file *file;
    spry_sound_writer *writer;
    bool pipe_in, pipe_out;
    uint64_t began_ns, steps; /* of a file */
};

spry_status spry_sound_port_open(spry_sound_port **out, const char *in, const char *to, spry_error *error)
{
    spry_sound_port *p = *out = calloc(1, sizeof *p);
    if (!p)
        return spry_fail_memory(error, "sound", sizeof *p);
    spry_status status = SPRY_OK;
    p->pipe_in = in && strcmp(in, "-") == 0;
    p->pipe_out = to && strcmp(to, "-") == 0;
    if (!in)
        status = spry_sound_device_open(&p->device, to == NULL, error);
    else if (!p->pipe_in)
        status = spry_sound_file_open(&p->file, in, error);
    if (status == SPRY_OK && to && !p->pipe_out)
        status = spry_sound_writer_open(&p->writer, to, error);
    if (status != SPRY_OK) {
        spry_sound_port_close(p, NULL);
        *out = NULL;
    }
    return status;
}

spry_status spry_sound_port_close(spry_sound_port *p, spry_error *error)
{
    if (!p)
        return SPRY_OK;
    spry_sound_device_close(p->device);
    spry_sound_file_close(p->file);
    spry_status status = spry_sound_writer_close(p->writer, error);
    if (p->pipe_out && fflush(stdout) != 0 && status == SPRY_OK)
        status = spry_fail(error, SPRY_ERR_FILE, "sound cannot be written to standard output: %s", strerror(errno));
    free(p);
    return status;
}

/* Waits until the step would have been heard. */
static void keep_pace(spry_sound_port *p)
{
    p->began_ns = p->began_ns ? p->began_ns : spry_clock_ns();
    uint64_t due = p->began_ns + ++p->steps * STEP_NS, now = spry_clock_ns();
    if (due > now)
        nanosleep(&(struct timespec){.tv_sec = (time_t)((due - now) / 1000000000),
                                     .tv_nsec = (long)((due - now) % 1000000000)},
                  NULL);
}

static spry_status read_file(spry_sound_port *p, float *samples, bool *more, spry_error *error)
{
    size_t n = 0, got;
    while (n < SPRY_VAD_STEP && (got = spry_sound_file_read(p->file, samples + n, SPRY_VAD_STEP - n)) > 0)
        n += got;
    memset(samples + n, 0, (SPRY_VAD_STEP - n) * sizeof *samples);
    *more = n > 0;
    keep_pace(p);
    return spry_sound_file_status(p->file, error);
}

spry_status spry_sound_port_read(spry_sound_port *p, float samples[SPRY_VAD_STEP], bool *more, spry_error *error)
{
    int16_t pcm[SPRY_VAD_STEP];
    *more = true;
    if (p->file)
        return read_file(p, samples, more, error);
    if (p->device) {
        spry_status status = spry_sound_device_read(p->device, pcm, SPRY_VAD_STEP, error);
        if (status != SPRY_OK)
            return status;
    } else {
        size_t n = fread(pcm, sizeof *pcm, SPRY_VAD_STEP, stdin);
        *more = n > 0;
        memset(pcm + n, 0, (SPRY_VAD_STEP - n) * sizeof *pcm);
    }
    for (size_t i = 0; i < SPRY_VAD_STEP; i++)
        samples[i] = (float)pcm[i] / 32768;
    return SPRY_OK;
}

spry_status spry_sound_port_write(spry_sound_port *p, const int16_t samples[SPRY_VAD_STEP], spry_error *error)
{
    if (p->writer)
        return spry_sound_writer_write(p->writer, samples, SPRY_VAD_STEP, error);
    if (p->pipe_out) {
        if (fwrite(samples, sizeof *samples, SPRY_VAD_STEP, stdout) == SPRY_VAD_STEP && fflush(stdout) == 0)
            return SPRY_OK;
        return spry_fail(error, SPRY_ERR_FILE, "sound cannot be written to standard output: %s", strerror(errno));
    }
    return p->device ? spry_sound_device_write(p->device, samples, SPRY_VAD_STEP, error) : SPRY_OK;
}
