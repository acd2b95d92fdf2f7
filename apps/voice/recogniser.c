#include "voice/recogniser.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "voice/voice_libraries.h"

static const spry_recogniser_kind *const kinds[] = {&spry_recogniser_whisper, &spry_recogniser_command};

/* Names separated by ", ". */
static const char *kind_names(void)
{
    return spry_voice_libraries_get()->sphinx ? "whisper, command, pocketsphinx" : "whisper, command";
}

const spry_recogniser_kind *spry_recogniser_find(const spry_recogniser_options *options)
{
    bool any = strcmp(options->name, "auto") == 0;
    for (size_t i = 0; i <= SPRY_COUNT(kinds); i++) {
        const spry_recogniser_kind *kind = i < SPRY_COUNT(kinds) ? kinds[i] : spry_voice_libraries_get()->sphinx;
        if (kind && (any ? kind->wanted(options) : strcmp(options->name, kind->name) == 0))
            return kind;
    }
    return NULL;
}

spry_status spry_recogniser_open(spry_recogniser *recogniser, const spry_recogniser_options *options, spry_error *error)
{
    *recogniser = (spry_recogniser){.kind = spry_recogniser_find(options)};
    if (!recogniser->kind)
        return spry_fail(error, SPRY_ERR_INPUT,
                         "there is no recogniser '%.40s'; known are %s. A Whisper model is named with --whisper",
                         options->name, kind_names());
    spry_status status = recogniser->kind->open(&recogniser->state, options, error);
    if (status != SPRY_OK)
        *recogniser = (spry_recogniser){0};
    return status;
}

void spry_recogniser_close(spry_recogniser *recogniser)
{
    if (recogniser->kind)
        recogniser->kind->close(recogniser->state);
    *recogniser = (spry_recogniser){0};
}

/* One utterance after the other, for recognisers that know no segments. */
static spry_status by_utterance(spry_recogniser *r, spry_transcript *transcript, spry_sound_reader read,
                                void *read_user, spry_error *error)
{
    spry_buffer text;
    float samples[SPRY_VAD_STEP * 10];
    size_t n, heard = 0;
    spry_buffer_init(&text, 1 << 20);
    *transcript = (spry_transcript){.size = sizeof *transcript, .language = "en", .windows = 1};
    spry_status status = r->kind->begin(r->state, error);
    while (status == SPRY_OK && (n = read(read_user, samples, SPRY_COUNT(samples))) > 0) {
        transcript->seconds += (double)n / SPRY_SOUND_RATE;
        heard += n;
        if (heard > SPRY_UTTERANCE_MAX)
            status =
                spry_fail(error, SPRY_ERR_INPUT, "the sound is longer than %d seconds; a Whisper model has no limit",
                          SPRY_UTTERANCE_MAX / SPRY_SOUND_RATE);
        else
            status = r->kind->hear(r->state, samples, n, error);
    }
    if (status == SPRY_OK)
        status = r->kind->words(r->state, &text, true, NULL, NULL, error);
    spry_buffer_extend(&text, 0);
    if (status == SPRY_OK && text.failed)
        status = spry_fail_memory(error, "a transcript", text.size);
    if (status == SPRY_OK)
        transcript->text = text.data;
    else
        spry_buffer_deinit(&text);
    return status;
}

spry_status spry_recogniser_transcribe(spry_recogniser *r, spry_transcript *transcript, spry_sound_reader read,
                                       void *read_user, const spry_transcribe_options *options, spry_error *error)
{
    if (r->kind->transcribe)
        return r->kind->transcribe(r->state, transcript, read, read_user, options, error);
    if (options->translate)
        return spry_fail(error, SPRY_ERR_INPUT, "%s cannot translate; a Whisper model can", r->kind->name);
    spry_status status = by_utterance(r, transcript, read, read_user, error);
    if (status == SPRY_OK && options->on_segment && transcript->text[0]) {
        spry_speech_segment whole = {.end = transcript->seconds, .text = transcript->text};
        options->on_segment(options->user, &whole);
    }
    return status;
}
