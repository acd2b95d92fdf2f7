/* A Whisper model. Words before the end come from recognising the sound so far again: short sound is encoded as short
 * sound, so that costs little. */
#include <stdlib.h>
#include <string.h>

#include "voice/recogniser.h"

typedef struct whisper {
    spry_speech *speech;
    spry_recogniser_options options;
    spry_utterance utterance;
    size_t read; /* samples that the transcription at hand has taken */
} whisper;

static bool wanted(const spry_recogniser_options *options)
{
    return options->whisper != NULL;
}

static void close_whisper(void *state)
{
    whisper *w = state;
    spry_speech_close(w->speech);
    free(w->utterance.samples);
    free(w);
}

static spry_status open_whisper(void **state, const spry_recogniser_options *options, spry_error *error)
{
    if (!options->whisper)
        return spry_fail(error, SPRY_ERR_INPUT, "which Whisper model? Name one with --whisper");
    whisper *w = calloc(1, sizeof *w);
    if (!w)
        return spry_fail_memory(error, "a recogniser", sizeof *w);
    spry_speech_options own;
    spry_speech_options_default(&own);
    own.type = options->type;
    if (options->engine) {
        own.device = options->engine->device;
        own.cpu = options->engine->cpu;
        own.threads = options->engine->threads;
        own.log = options->engine->log;
        own.log_user = options->engine->log_user;
    }
    w->options = *options;
    spry_status status = spry_speech_open(&w->speech, options->whisper, &own, error);
    if (status == SPRY_OK && options->language && !spry_speech_knows(w->speech, options->language))
        status = spry_fail(error, SPRY_ERR_INPUT, "%s does not know the language '%.40s'", options->whisper,
                           options->language);
    if (status != SPRY_OK) {
        close_whisper(w);
        return status;
    }
    *state = w;
    return SPRY_OK;
}

static spry_status begin(void *state, spry_error *error)
{
    (void)error;
    ((whisper *)state)->utterance.count = 0;
    return SPRY_OK;
}

static spry_status hear(void *state, const float *samples, size_t count, spry_error *error)
{
    return spry_utterance_add(&((whisper *)state)->utterance, samples, count, error);
}

static size_t read_utterance(void *user, float *samples, size_t count)
{
    whisper *w = user;
    size_t left = w->utterance.count - w->read, n = left < count ? left : count;
    if (n)
        memcpy(samples, w->utterance.samples + w->read, n * sizeof *samples);
    w->read += n;
    return n;
}

static void fill_options(spry_transcribe_options *out, const spry_recogniser_options *options)
{
    out->language = out->language ? out->language : options->language;
    out->prompt = out->prompt ? out->prompt : options->prompt;
    out->translate = out->translate || options->translate;
    out->whole_window = out->whole_window || options->whole_window;
}

static spry_status words(void *state, spry_buffer *text, bool over, bool (*proceed)(void *user), void *user,
                         spry_error *error)
{
    (void)over;
    whisper *w = state;
    spry_transcribe_options options;
    spry_transcript transcript;
    spry_transcribe_options_default(&options);
    fill_options(&options, &w->options);
    options.proceed = proceed;
    options.user = user;
    w->read = 0;
    spry_status status = spry_speech_transcribe(w->speech, &transcript, read_utterance, w, &options, error);
    spry_buffer_clear(text);
    if (status == SPRY_OK)
        spry_buffer_text(text, transcript.text);
    spry_free(transcript.text);
    spry_text_trim(text);
    return status;
}

static spry_status transcribe(void *state, spry_transcript *transcript, spry_sound_reader read, void *read_user,
                              const spry_transcribe_options *options, spry_error *error)
{
    whisper *w = state;
    spry_transcribe_options own = *options;
    fill_options(&own, &w->options);
    return spry_speech_transcribe(w->speech, transcript, read, read_user, &own, error);
}

const spry_recogniser_kind spry_recogniser_whisper = {.name = "whisper",
                                                      .wanted = wanted,
                                                      .open = open_whisper,
                                                      .close = close_whisper,
                                                      .begin = begin,
                                                      .hear = hear,
                                                      .words = words,
                                                      .transcribe = transcribe,
                                                      .partial = true};
