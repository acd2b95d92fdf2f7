/* Sound in formats other than WAV, by libsndfile. */
#include "voice/sound.h"

#ifdef SPRY_HAVE_SNDFILE

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sndfile.h>

enum { BLOCK = 1024, MESSAGE = 256 };

typedef struct decoder {
    SNDFILE *file;
    SF_INFO info;
    float frames[BLOCK * SPRY_SOUND_CHANNELS_MAX];
    char message[MESSAGE]; /* empty: nothing failed */
    const unsigned char *data;
    sf_count_t size, position;
} decoder;

/* ---- memory as a file -------------------------------------------------------------------------------------------- */

static sf_count_t memory_size(void *user)
{
    return ((const decoder *)user)->size;
}

static sf_count_t memory_seek(sf_count_t offset, int whence, void *user)
{
    decoder *d = user;
    sf_count_t from = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? d->position : d->size;
    if (offset >= -from && offset <= d->size - from)
        d->position = from + offset;
    return d->position;
}

static sf_count_t memory_read(void *out, sf_count_t count, void *user)
{
    decoder *d = user;
    sf_count_t left = d->size - d->position, n = count < left ? count : left;
    if (n <= 0)
        return 0;
    memcpy(out, d->data + d->position, (size_t)n);
    d->position += n;
    return n;
}

static sf_count_t memory_tell(void *user)
{
    return ((const decoder *)user)->position;
}

/* ---- the decoder ------------------------------------------------------------------------------------------------- */

static void close_decoder(void *state)
{
    decoder *d = state;
    if (d->file)
        sf_close(d->file);
    free(d);
}

static spry_status open_decoder(void **state, unsigned *rate, const void *data, size_t size, const char *name,
                                spry_error *error)
{
    static SF_VIRTUAL_IO memory = {memory_size, memory_seek, memory_read, NULL, memory_tell};
    spry_status status = SPRY_OK;
    decoder *d = *state = calloc(1, sizeof *d);
    if (!d)
        return spry_fail_memory(error, "reading sound", sizeof *d);
    d->data = data;
    d->size = (sf_count_t)size;
    d->file = sf_open_virtual(&memory, SFM_READ, &d->info, d);
    if (!d->file)
        status =
            spry_fail(error, SPRY_ERR_FORMAT, "%s: not a sound file that can be read: %s", name, sf_strerror(NULL));
    else if (d->info.channels < 1 || d->info.channels > SPRY_SOUND_CHANNELS_MAX ||
             d->info.samplerate < SPRY_SOUND_RATE_LEAST || d->info.samplerate > SPRY_SOUND_RATE_MOST)
        status = spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s: %d channels at %d Hz; at most %d channels at %d to %d Hz",
                           name, d->info.channels, d->info.samplerate, SPRY_SOUND_CHANNELS_MAX, SPRY_SOUND_RATE_LEAST,
                           SPRY_SOUND_RATE_MOST);
    if (status != SPRY_OK) {
        close_decoder(d);
        *state = NULL;
        return status;
    }
    *rate = (unsigned)d->info.samplerate;
    return SPRY_OK;
}

/* The mean of the channels. Values that are no numbers become silence. */
static size_t read_decoder(void *state, float *samples, size_t count)
{
    decoder *d = state;
    size_t channels = (size_t)d->info.channels;
    sf_count_t got = sf_readf_float(d->file, d->frames, (sf_count_t)(count < BLOCK ? count : BLOCK));
    size_t n = got > 0 ? (size_t)got : 0;
    if (!n && sf_error(d->file) != SF_ERR_NO_ERROR)
        snprintf(d->message, sizeof d->message, "%s", sf_strerror(d->file));
    for (size_t i = 0; i < n; i++) {
        float sum = 0;
        for (size_t c = 0; c < channels; c++)
            sum += d->frames[i * channels + c];
        sum /= (float)channels;
        samples[i] = isfinite(sum) ? fmaxf(-1, fminf(1, sum)) : 0;
    }
    return n;
}

static const char *decoder_failure(void *state)
{
    const decoder *d = state;
    return d->message[0] ? d->message : NULL;
}

extern const spry_sound_decoder spry_sound_decoder_sndfile;
const spry_sound_decoder spry_sound_decoder_sndfile = {open_decoder, read_decoder, decoder_failure, close_decoder};

#endif
