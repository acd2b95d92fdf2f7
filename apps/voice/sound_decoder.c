/* The child writes an opening, then blocks: a number of samples and these samples. After a block without samples
 * follows why reading ended early, or zeros. */
#include "voice/sound_decoder.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "platform/child.h"
#include "voice/sound.h"

enum { BLOCK = 1024, MESSAGE = 256, CPU_SECONDS = 300 };

struct spry_sound_decoding {
    spry_isolated *child;
    size_t ready; /* samples that were announced and not read */
    bool ended;
    char failure[MESSAGE];
};

/* ---- the child --------------------------------------------------------------------------------------------------- */

typedef struct opening {
    spry_status status;
    unsigned rate;
    char message[sizeof((spry_error *)NULL)->message];
} opening;

typedef struct source {
    const spry_sound_decoder *decoder;
    const void *data;
    size_t size;
    const char *name;
} source;

static void decode(void *context, spry_isolated_write write, void *self)
{
    const source *s = context;
    spry_error error = {0};
    opening o = {0};
    void *state;
    float samples[BLOCK];
    uint32_t count;
    char failure[MESSAGE] = {0};
    o.status = s->decoder->open(&state, &o.rate, s->data, s->size, s->name, &error);
    memcpy(o.message, error.message, sizeof o.message);
    if (!write(self, &o, sizeof o) || o.status != SPRY_OK)
        return;
    do {
        count = (uint32_t)s->decoder->read(state, samples, BLOCK);
        if (!write(self, &count, sizeof count) || !write(self, samples, count * sizeof *samples))
            return;
    } while (count);
    const char *why = s->decoder->failure(state);
    snprintf(failure, sizeof failure, "%s", why ? why : "");
    (void)write(self, failure, sizeof failure);
}

/* ---- the parent -------------------------------------------------------------------------------------------------- */

static bool receive(spry_sound_decoding *d, void *out, size_t size)
{
    size_t n = 1;
    for (char *at = out; size && n; at += n, size -= n)
        n = spry_isolated_read(d->child, at, size);
    return n != 0;
}

/* Ends the child, whose message is kept. */
static void lose(spry_sound_decoding *d)
{
    spry_error error;
    bool lost = spry_isolated_end(d->child, &error) != SPRY_OK;
    snprintf(d->failure, sizeof d->failure, "%.*s", MESSAGE - 1, lost ? error.message : "it ends too early");
    d->child = NULL;
    d->ended = true;
}

spry_status spry_sound_decoding_open(spry_sound_decoding **out, unsigned *rate, const void *data, size_t size,
                                     const char *name, spry_error *error)
{
    source s = {spry_voice_libraries_get()->decoder, data, size, name};
    opening o = {0};
    spry_sound_decoding *d = *out = calloc(1, sizeof *d);
    if (!d)
        return spry_fail_memory(error, "reading sound", sizeof *d);
    spry_status status = spry_isolated_start(&d->child, decode, &s, CPU_SECONDS, error);
    if (status == SPRY_OK && !receive(d, &o, sizeof o)) {
        lose(d);
        status = spry_fail(error, SPRY_ERR_FORMAT, "%s: not a sound file that can be read: %s", name, d->failure);
    } else if (status == SPRY_OK && o.status != SPRY_OK) {
        status = spry_fail(error, o.status, "%.*s", (int)sizeof o.message - 1, o.message);
    }
    *rate = o.rate;
    if (status == SPRY_OK && *rate >= SPRY_SOUND_RATE_LEAST && *rate <= SPRY_SOUND_RATE_MOST)
        return SPRY_OK;
    spry_sound_decoding_close(d);
    *out = NULL;
    return status ? status : spry_fail(error, SPRY_ERR_FORMAT, "%s: not a sound file that can be read", name);
}

void spry_sound_decoding_close(spry_sound_decoding *d)
{
    if (!d)
        return;
    (void)spry_isolated_end(d->child, NULL);
    free(d);
}

size_t spry_sound_decoding_read(void *decoding, float *samples, size_t count)
{
    spry_sound_decoding *d = decoding;
    uint32_t announced = 0;
    if (!d->ready && !d->ended) {
        bool fine = receive(d, &announced, sizeof announced) && announced <= BLOCK;
        d->ready = fine ? announced : 0;
        d->ended = fine && !announced;
        fine = fine && (!d->ended || receive(d, d->failure, sizeof d->failure));
        d->failure[MESSAGE - 1] = 0;
        if (!fine)
            lose(d);
    }
    size_t n = d->ended ? 0 : count < d->ready ? count : d->ready;
    if (!n)
        return 0;
    d->ready -= n;
    if (receive(d, samples, n * sizeof *samples))
        return n;
    lose(d);
    return 0;
}

const char *spry_sound_decoding_failure(const spry_sound_decoding *d)
{
    return d->failure[0] ? d->failure : NULL;
}
