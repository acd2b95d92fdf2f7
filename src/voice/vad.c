/* Where speech begins and ends. The noise of every band is the least that its smoothed power was within the last two
 * seconds; a step is speech when the bands of a voice are together far enough above their noise. Speech pauses often
 * enough for its own bands to be found again, and steady noise, however loud, is its own least. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "spry_voice.h"
#include "voice/whisper.h"

enum {
    BANDS = 24,
    FIRST_BAND = 2,     /* hum is below */
    LAST_BAND = 20,     /* a voice has little above */
    MINIMA = 8,         /* the noise is the least of this number of minima ... */
    MINIMUM_STEPS = 25, /* ... each over this number of steps: two seconds */
    LOUD_STEPS = 3,     /* steps of speech that interrupt the silence at the end of an utterance */
    STEP_MS = 10,
    LEAD_MS = 250, /* kept before the first step of speech: words often begin softly */
};
#define SMOOTHING 0.35f
#define QUIET     -4.0f /* log10 of a band's power below which any sound is silence */
#define BAND_MOST 3.0f  /* decades that one band can count */
#define CONTINUE  0.7f  /* share of the threshold that continues an utterance */

struct spry_vad {
    spry_vad_options options;
    spry_mel *mel;
    float samples[SPRY_MEL_FRAME]; /* the last frame */
    float power[BANDS];            /* log10, smoothed */
    float minima[MINIMA][BANDS];   /* minima of `power` */
    size_t n_minima, minimum_steps;
    uint64_t position; /* samples taken */
    uint64_t begin_at, end_at;
    uint32_t speech_steps, quiet_steps, loud_steps;
    float level;
    bool speaking;
};

void spry_vad_options_default_sized(spry_vad_options *options, size_t size)
{
    const spry_vad_options own = {.begin_ms = 80, .end_ms = 500, .threshold = 7};
    spry_sized_default(options, size, &own, sizeof own);
}

spry_status spry_vad_create(spry_vad **out, const spry_vad_options *options, spry_error *error)
{
    *out = NULL;
    spry_vad *vad = calloc(1, sizeof *vad);
    if (!vad)
        return spry_fail_memory(error, "voice activity detection", sizeof *vad);
    spry_vad_options_default(&vad->options);
    spry_status status = SPRY_OK;
    if (options)
        status = spry_sized_read(&vad->options, sizeof vad->options, options, "spry_vad_options", error);
    if (status == SPRY_OK)
        status = spry_mel_create(&vad->mel, BANDS, error);
    if (status != SPRY_OK) {
        spry_vad_destroy(vad);
        return status;
    }
    *out = vad;
    return SPRY_OK;
}

void spry_vad_destroy(spry_vad *vad)
{
    if (!vad)
        return;
    spry_mel_destroy(vad->mel);
    free(vad);
}

/* Smooths the bands of the last frame and keeps their minima; returns decibels above the noise. */
static float measure(spry_vad *vad)
{
    float now[BANDS], above = 0;
    float *minimum = vad->minima[vad->n_minima % MINIMA];
    bool first = vad->n_minima == 0 && vad->minimum_steps == 0, begins = vad->minimum_steps == 0;
    spry_mel_frame(vad->mel, now, vad->samples);
    for (size_t b = FIRST_BAND; b < LAST_BAND; b++) {
        float loud = now[b] > QUIET ? now[b] : QUIET;
        float smooth = vad->power[b] = first ? loud : vad->power[b] + SMOOTHING * (loud - vad->power[b]);
        minimum[b] = begins || smooth < minimum[b] ? smooth : minimum[b];
        float noise = minimum[b];
        for (size_t i = 0; i < MINIMA && i < vad->n_minima; i++)
            noise = fminf(noise, vad->minima[i][b]);
        above += fminf(smooth - noise, BAND_MOST);
    }
    if (++vad->minimum_steps == MINIMUM_STEPS) {
        vad->minimum_steps = 0;
        vad->n_minima++;
    }
    return 10 * above / (LAST_BAND - FIRST_BAND);
}

static spry_vad_event begin_or_wait(spry_vad *vad, bool speech)
{
    vad->speech_steps = speech ? vad->speech_steps + 1 : vad->speech_steps ? vad->speech_steps - 1 : 0;
    if (vad->speech_steps * STEP_MS < vad->options.begin_ms)
        return SPRY_VAD_NONE;
    uint64_t lead = (uint64_t)(vad->speech_steps * STEP_MS + LEAD_MS) * SPRY_VOICE_RATE / 1000;
    uint64_t from = vad->position > lead ? vad->position - lead : 0;
    vad->begin_at = from > vad->end_at ? from : vad->end_at;
    vad->end_at = vad->position;
    vad->speech_steps = vad->quiet_steps = vad->loud_steps = 0;
    vad->speaking = true;
    return SPRY_VAD_BEGIN;
}

static spry_vad_event end_or_continue(spry_vad *vad, bool speech)
{
    vad->loud_steps = speech ? vad->loud_steps + 1 : 0;
    vad->quiet_steps++;
    if (vad->loud_steps >= LOUD_STEPS) {
        vad->quiet_steps = 0;
        vad->end_at = vad->position;
    }
    if (vad->quiet_steps * STEP_MS < vad->options.end_ms)
        return SPRY_VAD_NONE;
    vad->speaking = false;
    return SPRY_VAD_END;
}

spry_vad_event spry_vad_push(spry_vad *vad, const float samples[SPRY_VAD_STEP])
{
    memmove(vad->samples, vad->samples + SPRY_VAD_STEP, (SPRY_MEL_FRAME - SPRY_VAD_STEP) * sizeof *samples);
    memcpy(vad->samples + SPRY_MEL_FRAME - SPRY_VAD_STEP, samples, SPRY_VAD_STEP * sizeof *samples);
    vad->position += SPRY_VAD_STEP;
    if (vad->position < SPRY_MEL_FRAME)
        return SPRY_VAD_NONE;
    vad->level = measure(vad);
    bool speech = vad->level > vad->options.threshold * (vad->speaking ? CONTINUE : 1);
    return vad->speaking ? end_or_continue(vad, speech) : begin_or_wait(vad, speech);
}

uint64_t spry_vad_begin_at(const spry_vad *vad)
{
    return vad->begin_at;
}

uint64_t spry_vad_end_at(const spry_vad *vad)
{
    return vad->end_at;
}

bool spry_vad_speaking(const spry_vad *vad)
{
    return vad->speaking;
}

float spry_vad_level(const spry_vad *vad)
{
    return vad->level;
}
