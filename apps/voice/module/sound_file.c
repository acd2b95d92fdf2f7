#include "voice/sound.h"

#ifdef SPRY_HAVE_SNDFILE

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <samplerate.h>
#include <sndfile.h>

#include "spry_voice.h"

enum { BLOCK = 4096, CHANNELS_MAX = 64, RATE_LEAST = 1000, RATE_MOST = 768000, MESSAGE = 256 };

struct spry_sound_file {
    SNDFILE *file;
    SF_INFO info;
    SRC_STATE *converter; /* NULL: the file is at 16 kHz */
    float *frames;        /* [BLOCK, channels] */
    float mono[BLOCK];
    size_t at, n_mono; /* of mono: not converted yet */
    bool ended;
    bool failed;
    char message[MESSAGE];
    /* A file in memory. */
    const unsigned char *data;
    sf_count_t size, position;
};

/* ---- memory as a file ----------------------------------------------------------------------------------------------
 */

static sf_count_t memory_size(void *user)
{
    return ((const spry_sound_file *)user)->size;
}

static sf_count_t memory_seek(sf_count_t offset, int whence, void *user)
{
    spry_sound_file *f = user;
    sf_count_t from = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? f->position : f->size;
    if (offset >= -from && offset <= f->size - from)
        f->position = from + offset;
    return f->position;
}

static sf_count_t memory_read(void *out, sf_count_t count, void *user)
{
    spry_sound_file *f = user;
    sf_count_t left = f->size - f->position, n = count < left ? count : left;
    if (n <= 0)
        return 0;
    memcpy(out, f->data + f->position, (size_t)n);
    f->position += n;
    return n;
}

static sf_count_t memory_tell(void *user)
{
    return ((const spry_sound_file *)user)->position;
}

/* ---- reading -------------------------------------------------------------------------------------------------------
 */

static spry_status set_up(spry_sound_file *f, const char *name, spry_error *error)
{
    if (!f->file)
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: not a sound file that can be read: %s", name, sf_strerror(NULL));
    if (f->info.channels < 1 || f->info.channels > CHANNELS_MAX || f->info.samplerate < RATE_LEAST ||
        f->info.samplerate > RATE_MOST)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s: %d channels at %d Hz; at most %d channels at %d to %d Hz",
                         name, f->info.channels, f->info.samplerate, CHANNELS_MAX, RATE_LEAST, RATE_MOST);
    int code = 0;
    if (f->info.samplerate != SPRY_SOUND_RATE)
        f->converter = src_new(SRC_SINC_FASTEST, 1, &code);
    f->frames = calloc(BLOCK * (size_t)f->info.channels, sizeof *f->frames);
    if (code || !f->frames)
        return spry_fail_memory(error, "reading sound", BLOCK * sizeof *f->frames);
    return SPRY_OK;
}

static spry_status begin(spry_sound_file **out, spry_error *error)
{
    *out = calloc(1, sizeof **out);
    return *out ? SPRY_OK : spry_fail_memory(error, "reading sound", sizeof **out);
}

spry_status spry_sound_file_open(spry_sound_file **out, const char *path, spry_error *error)
{
    spry_status status = begin(out, error);
    if (status != SPRY_OK)
        return status;
    (*out)->file = sf_open(path, SFM_READ, &(*out)->info);
    status = set_up(*out, path, error);
    if (status != SPRY_OK) {
        spry_sound_file_close(*out);
        *out = NULL;
    }
    return status;
}

spry_status spry_sound_file_open_memory(spry_sound_file **out, const void *data, size_t size, const char *name,
                                        spry_error *error)
{
    static SF_VIRTUAL_IO memory = {memory_size, memory_seek, memory_read, NULL, memory_tell};
    spry_status status = begin(out, error);
    if (status != SPRY_OK)
        return status;
    (*out)->data = data;
    (*out)->size = (sf_count_t)size;
    (*out)->file = sf_open_virtual(&memory, SFM_READ, &(*out)->info, *out);
    status = set_up(*out, name, error);
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
    if (f->file)
        sf_close(f->file);
    if (f->converter)
        src_delete(f->converter);
    free(f->frames);
    free(f);
}

/* Fills `mono` with the mean of the channels. Values that are no numbers become silence. */
static void refill(spry_sound_file *f)
{
    size_t channels = (size_t)f->info.channels;
    sf_count_t got = f->ended ? 0 : sf_readf_float(f->file, f->frames, BLOCK);
    f->at = 0;
    f->n_mono = got > 0 ? (size_t)got : 0;
    f->ended = f->n_mono == 0;
    if (f->ended && sf_error(f->file) != SF_ERR_NO_ERROR && !f->failed) {
        f->failed = true;
        snprintf(f->message, sizeof f->message, "%s", sf_strerror(f->file));
    }
    for (size_t i = 0; i < f->n_mono; i++) {
        float sum = 0;
        for (size_t c = 0; c < channels; c++)
            sum += f->frames[i * channels + c];
        sum /= (float)channels;
        f->mono[i] = isfinite(sum) ? fmaxf(-1, fminf(1, sum)) : 0;
    }
}

static size_t convert(spry_sound_file *f, float *samples, size_t count)
{
    for (;;) {
        if (f->at == f->n_mono)
            refill(f);
        SRC_DATA d = {.data_in = f->mono + f->at,
                      .data_out = samples,
                      .input_frames = (long)(f->n_mono - f->at),
                      .output_frames = (long)(count < BLOCK ? count : BLOCK),
                      .end_of_input = f->ended,
                      .src_ratio = (double)SPRY_SOUND_RATE / f->info.samplerate};
        int code = src_process(f->converter, &d);
        if (code) {
            f->failed = true;
            snprintf(f->message, sizeof f->message, "%s", src_strerror(code));
            return 0;
        }
        f->at += (size_t)d.input_frames_used;
        if (d.output_frames_gen > 0 || f->ended)
            return (size_t)d.output_frames_gen;
    }
}

size_t spry_sound_file_read(void *file, float *samples, size_t count)
{
    spry_sound_file *f = file;
    if (f->converter)
        return convert(f, samples, count);
    if (f->at == f->n_mono)
        refill(f);
    size_t n = f->n_mono - f->at < count ? f->n_mono - f->at : count;
    memcpy(samples, f->mono + f->at, n * sizeof *samples);
    f->at += n;
    return n;
}

spry_status spry_sound_file_status(const spry_sound_file *f, spry_error *error)
{
    return f->failed ? spry_fail(error, SPRY_ERR_FILE, "the sound cannot be read: %s", f->message) : SPRY_OK;
}

/* ---- writing -------------------------------------------------------------------------------------------------------
 */

struct spry_sound_writer {
    SNDFILE *file;
};

spry_status spry_sound_writer_open(spry_sound_writer **out, const char *path, spry_error *error)
{
    SF_INFO info = {.samplerate = SPRY_SOUND_RATE, .channels = 1, .format = SF_FORMAT_WAV | SF_FORMAT_PCM_16};
    *out = calloc(1, sizeof **out);
    if (!*out)
        return spry_fail_memory(error, "writing sound", sizeof **out);
    (*out)->file = sf_open(path, SFM_WRITE, &info);
    if ((*out)->file)
        return SPRY_OK;
    free(*out);
    *out = NULL;
    return spry_fail(error, SPRY_ERR_FILE, "%s: cannot be written: %s", path, sf_strerror(NULL));
}

spry_status spry_sound_writer_write(spry_sound_writer *writer, const int16_t *samples, size_t count, spry_error *error)
{
    if (sf_write_short(writer->file, samples, (sf_count_t)count) == (sf_count_t)count)
        return SPRY_OK;
    return spry_fail(error, SPRY_ERR_FILE, "the sound cannot be written: %s", sf_strerror(writer->file));
}

spry_status spry_sound_writer_close(spry_sound_writer *writer, spry_error *error)
{
    if (!writer)
        return SPRY_OK;
    int code = sf_close(writer->file);
    free(writer);
    return code ? spry_fail(error, SPRY_ERR_FILE, "the sound cannot be written: %s", sf_error_number(code)) : SPRY_OK;
}

spry_status spry_sound_convert(int16_t **out, size_t *n_out, const int16_t *samples, size_t count, unsigned rate,
                               spry_error *error)
{
    double ratio = (double)SPRY_SOUND_RATE / rate;
    size_t room = (size_t)((double)count * ratio) + 16;
    float *in = calloc(count + 1, sizeof *in), *converted = calloc(room, sizeof *converted);
    *out = calloc(room, sizeof **out);
    *n_out = 0;
    SRC_DATA d = {.data_in = in,
                  .data_out = converted,
                  .input_frames = (long)count,
                  .output_frames = (long)room,
                  .src_ratio = ratio};
    int code = -1;
    if (in && converted && *out) {
        src_short_to_float_array(samples, in, (int)count);
        code = src_simple(&d, SRC_SINC_FASTEST, 1);
    }
    if (code == 0) {
        *n_out = (size_t)d.output_frames_gen;
        src_float_to_short_array(converted, *out, (int)*n_out);
    }
    free(in);
    free(converted);
    if (code == 0)
        return SPRY_OK;
    free(*out);
    *out = NULL;
    return spry_fail(error, SPRY_ERR_MEMORY, "sound at %u Hz cannot be converted", rate);
}

#endif
