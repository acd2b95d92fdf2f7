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
#include "platform/file.h"
#include "voice/sound_decoder.h"

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

struct spry_sound_file {
    spry_mapping mapping; /* mapping of a file that was opened by its path */
    spry_wave wave;
    spry_sound_decoding *decoding; /* NULL: the file is a WAV file */
    spry_resampler *resampler;     /* NULL: the file is at 16 kHz */
    spry_sound_reader read;
    void *source;
};

/* Whether bytes begin as WAV, FLAC, Ogg or MP3 do. Libsndfile reads twenty further formats, most of them for one
 * program of long ago, with readers that few inputs have tested. */
static bool is_common(const unsigned char *data, size_t size)
{
    return size >= 4 && (memcmp(data, "RIFF", 4) == 0 || memcmp(data, "fLaC", 4) == 0 || memcmp(data, "OggS", 4) == 0 ||
                         memcmp(data, "ID3", 3) == 0 || (data[0] == 0xFF && (data[1] & 0xE0) == 0xE0));
}

static spry_status open_source(spry_sound_file *f, unsigned *rate, const void *data, size_t size, const char *name,
                               spry_error *error)
{
    spry_status status = spry_wave_open(&f->wave, data, size, name, error);
    if (status == SPRY_OK) {
        f->read = spry_wave_read;
        f->source = &f->wave;
        *rate = f->wave.rate;
        return SPRY_OK;
    }
    if (!spry_voice_libraries_get()->decoder)
        return status == SPRY_ERR_FORMAT
                   ? spry_fail(error, status,
                               "%s: not a sound file that can be read: not WAV, and spry_voice.so, "
                               "which reads other formats with libsndfile, is not there",
                               name)
                   : status;
    if (!is_common(data, size))
        return spry_fail(error, SPRY_ERR_FORMAT,
                         "%s: not a sound file that can be read: it is no WAV, FLAC, Ogg or MP3", name);
    f->read = spry_sound_decoding_read;
    status = spry_sound_decoding_open(&f->decoding, rate, data, size, name, error);
    f->source = f->decoding;
    return status;
}

static spry_status open_file(spry_sound_file *f, const void *data, size_t size, const char *name, spry_error *error)
{
    unsigned rate = 0;
    spry_status status = open_source(f, &rate, data, size, name, error);
    if (status == SPRY_OK && rate != SPRY_SOUND_RATE)
        status = spry_resampler_create(&f->resampler, rate, f->read, f->source, error);
    return status;
}

spry_status spry_sound_file_open(spry_sound_file **out, const char *path, spry_error *error)
{
    spry_sound_file *f = *out = calloc(1, sizeof *f);
    if (!f)
        return spry_fail_memory(error, "reading sound", sizeof *f);
    spry_status status = spry_mapping_open(&f->mapping, path, error);
    if (status == SPRY_OK)
        status = open_file(f, f->mapping.data, f->mapping.size, path, error);
    if (status != SPRY_OK) {
        spry_sound_file_close(f);
        *out = NULL;
    }
    return status;
}

spry_status spry_sound_file_open_memory(spry_sound_file **out, const void *data, size_t size, const char *name,
                                        spry_error *error)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return spry_fail_memory(error, "reading sound", sizeof **out);
    spry_status status = open_file(*out, data, size, name, error);
    if (status != SPRY_OK) {
        spry_sound_file_close(*out);
        *out = NULL;
    }
    return status;
}

void spry_sound_file_close(spry_sound_file *f)
{
    if (!f)
        return;
    spry_resampler_destroy(f->resampler);
    spry_sound_decoding_close(f->decoding);
    spry_mapping_close(&f->mapping);
    free(f);
}

size_t spry_sound_file_read(void *file, float *samples, size_t count)
{
    spry_sound_file *f = file;
    return f->resampler ? spry_resampler_read(f->resampler, samples, count) : f->read(f->source, samples, count);
}

spry_status spry_sound_file_status(const spry_sound_file *f, spry_error *error)
{
    const char *failure = f->decoding ? spry_sound_decoding_failure(f->decoding) : NULL;
    return failure ? spry_fail(error, SPRY_ERR_FORMAT, "the sound cannot be read: %s", failure) : SPRY_OK;
}

struct spry_sound_writer {
    FILE *file;
    uint32_t bytes;
};

static spry_status not_written(const char *what, spry_error *error)
{
    return spry_fail(error, SPRY_ERR_FILE, "%s cannot be written: %s", what, strerror(errno));
}

spry_status spry_sound_writer_open(spry_sound_writer **out, const char *path, spry_error *error)
{
    unsigned char header[SPRY_WAVE_HEADER];
    *out = calloc(1, sizeof **out);
    if (!*out)
        return spry_fail_memory(error, "writing sound", sizeof **out);
    spry_wave_header(header, 0); /* the length is written at the end; where it cannot be, 0 means until the end */
    (*out)->file = fopen(path, "wb");
    if ((*out)->file && fwrite(header, sizeof header, 1, (*out)->file) == 1)
        return SPRY_OK;
    spry_status status = not_written(path, error);
    if ((*out)->file)
        fclose((*out)->file);
    free(*out);
    *out = NULL;
    return status;
}

spry_status spry_sound_writer_write(spry_sound_writer *writer, const int16_t *samples, size_t count, spry_error *error)
{
    if (count > (UINT32_MAX - SPRY_WAVE_HEADER - writer->bytes) / sizeof *samples)
        return spry_fail(error, SPRY_ERR_FILE, "a WAV file has at most 4 GiB");
    if (fwrite(samples, sizeof *samples, count, writer->file) != count)
        return not_written("the sound", error);
    writer->bytes += (uint32_t)(count * sizeof *samples);
    return SPRY_OK;
}

spry_status spry_sound_writer_close(spry_sound_writer *writer, spry_error *error)
{
    unsigned char header[SPRY_WAVE_HEADER];
    if (!writer)
        return SPRY_OK;
    spry_wave_header(header, writer->bytes);
    bool written = fflush(writer->file) == 0;
    if (written && fseek(writer->file, 0, SEEK_SET) == 0)
        written = fwrite(header, sizeof header, 1, writer->file) == 1;
    written = fclose(writer->file) == 0 && written;
    free(writer);
    return written ? SPRY_OK : not_written("the sound", error);
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
    uint64_t began_ns, steps; /* when reading a file began, and its steps so far */
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
