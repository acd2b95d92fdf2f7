/* The module with the libraries for sound and speech, and sound in and out in steps. */
#include "voice/sound.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "platform/clock.h"
#include "platform/environment.h"

static const spry_voice_libraries none, *libraries = &none;

static void open_module(void)
{
    const spry_voice_libraries *found = spry_module_symbol("spry_voice", "spry_voice_module", NULL);
    if (found)
        libraries = found;
}

const spry_voice_libraries *spry_voice_libraries_get(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_module);
    return libraries;
}

/* ---- sound files ------------------------------------------------------------------------------------------------- */

static const struct spry_sound_files *files(spry_error *error)
{
    const struct spry_sound_files *found = spry_voice_libraries_get()->files;
    if (!found)
        spry_fail(error, SPRY_ERR_UNSUPPORTED,
                  "spry_voice.so is not there, or was built without libsndfile and libsamplerate: sound files can "
                  "neither be read nor written");
    return found;
}

spry_status spry_sound_file_open(spry_sound_file **out, const char *path, spry_error *error)
{
    *out = NULL;
    return files(error) ? libraries->files->open(out, path, error) : SPRY_ERR_UNSUPPORTED;
}

spry_status spry_sound_file_open_memory(spry_sound_file **out, const void *data, size_t size, const char *name,
                                        spry_error *error)
{
    *out = NULL;
    return files(error) ? libraries->files->open_memory(out, data, size, name, error) : SPRY_ERR_UNSUPPORTED;
}

void spry_sound_file_close(spry_sound_file *file)
{
    if (file)
        libraries->files->close(file);
}

size_t spry_sound_file_read(void *file, float *samples, size_t count)
{
    return libraries->files->read(file, samples, count);
}

spry_status spry_sound_file_status(const spry_sound_file *file, spry_error *error)
{
    return libraries->files->status(file, error);
}

spry_status spry_sound_writer_open(spry_sound_writer **out, const char *path, spry_error *error)
{
    *out = NULL;
    return files(error) ? libraries->files->open_writer(out, path, error) : SPRY_ERR_UNSUPPORTED;
}

spry_status spry_sound_writer_write(spry_sound_writer *writer, const int16_t *samples, size_t count, spry_error *error)
{
    return libraries->files->write(writer, samples, count, error);
}

spry_status spry_sound_writer_close(spry_sound_writer *writer, spry_error *error)
{
    return writer ? libraries->files->close_writer(writer, error) : SPRY_OK;
}

spry_status spry_sound_convert(int16_t **out, size_t *n_out, const int16_t *samples, size_t count, unsigned rate,
                               spry_error *error)
{
    *out = NULL;
    *n_out = 0;
    return files(error) ? libraries->files->convert(out, n_out, samples, count, rate, error) : SPRY_ERR_UNSUPPORTED;
}

/* ---- microphone and loudspeaker ---------------------------------------------------------------------------------- */

spry_status spry_sound_device_open(spry_sound_device **out, bool loudspeaker, spry_error *error)
{
    *out = NULL;
    if (!spry_voice_libraries_get()->devices)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                         "spry_voice.so is not there, or was built without PortAudio: there is no microphone; --in "
                         "takes a sound file");
    return libraries->devices->open(out, loudspeaker, error);
}

void spry_sound_device_close(spry_sound_device *device)
{
    if (device)
        libraries->devices->close(device);
}

spry_status spry_sound_device_read(spry_sound_device *device, int16_t *samples, size_t count, spry_error *error)
{
    return libraries->devices->read(device, samples, count, error);
}

spry_status spry_sound_device_write(spry_sound_device *device, const int16_t *samples, size_t count, spry_error *error)
{
    return libraries->devices->write(device, samples, count, error);
}

/* ---- sound in and out -------------------------------------------------------------------------------------------- */

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
