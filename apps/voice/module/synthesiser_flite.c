/* Flite, whose sound is passed on while it is made. It runs in a child process (voice/synthesiser.c). */
#include "voice/synthesiser.h"

#ifdef SPRY_HAVE_FLITE

#include <stdlib.h>
#include <string.h>

#include <flite/flite.h>

#include "spry_voice.h"
#include "voice/sound.h"

cst_voice *register_cmu_us_slt(const char *folder);
cst_voice *register_cmu_us_rms(const char *folder);

enum { PIECE = 1600 }; /* samples passed on at a time, at least */

typedef struct flite_state {
    cst_voice *voice;
} flite_state;

typedef struct speaking {
    spry_sound_sink sink;
    void *user;
    bool stopped;
} speaking;

static bool wanted(const spry_synthesiser_options *options)
{
    return !options->language || strncmp(options->language, "en", 2) == 0;
}

static spry_status open_flite(void **state, const spry_synthesiser_options *options, spry_error *error)
{
    static const struct {
        const char *name;
        cst_voice *(*make)(const char *folder);
    } voices[] = {{"slt", register_cmu_us_slt}, {"rms", register_cmu_us_rms}};
    size_t i = 0;
    while (options->voice && i < SPRY_COUNT(voices) && strcmp(options->voice, voices[i].name) != 0)
        i++;
    if (i == SPRY_COUNT(voices))
        return spry_fail(error, SPRY_ERR_INPUT, "flite has no voice '%.40s'; it has slt and rms", options->voice);
    flite_state *s = calloc(1, sizeof *s);
    if (!s)
        return spry_fail_memory(error, "a synthesiser", sizeof *s);
    flite_init();
    s->voice = voices[i].make(NULL);
    if (!s->voice) {
        free(s);
        return spry_fail(error, SPRY_ERR_DEVICE, "flite cannot make the voice %s", voices[i].name);
    }
    *state = s;
    return SPRY_OK;
}

static void close_flite(void *state)
{
    free(state); /* voices belong to the library */
}

static int on_piece(const cst_wave *wave, int start, int size, int last, cst_audio_streaming_info *info)
{
    (void)last;
    speaking *s = info->userdata;
    s->stopped = s->stopped || !s->sink(s->user, wave->samples + start, (size_t)size);
    return s->stopped ? CST_AUDIO_STREAM_STOP : CST_AUDIO_STREAM_CONT;
}

static spry_status speak(void *state, const char *text, spry_sound_sink sink, void *user, spry_error *error)
{
    flite_state *s = state;
    speaking speaking_now = {sink, user, false};
    cst_audio_streaming_info *info = new_audio_streaming_info();
    if (!info)
        return spry_fail_memory(error, "speaking", sizeof *info);
    info->min_buffsize = PIECE;
    info->asc = on_piece;
    info->userdata = &speaking_now;
    feat_set(s->voice->features, "streaming_info", audio_streaming_info_val(info)); /* takes ownership */
    cst_wave *wave = flite_text_to_wave(text, s->voice);
    feat_remove(s->voice->features, "streaming_info");
    bool right = wave && (wave->num_samples == 0 || wave->sample_rate == SPRY_SOUND_RATE);
    delete_wave(wave);
    return right || speaking_now.stopped ? SPRY_OK : spry_fail(error, SPRY_ERR_DEVICE, "flite cannot speak this text");
}

const spry_synthesiser_kind spry_synthesiser_flite = {
    .name = "flite", .wanted = wanted, .open = open_flite, .close = close_flite, .speak = speak};

#endif
