/* Recognisers: a command of the user, Whisper, and through the module PocketSphinx; and their transcripts as text. */
#include "voice/recogniser.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/interrupt.h"
#include "base/json.h"
#include "base/utf8.h"
#include "platform/child.h"
#include "voice/sound.h"
#include "voice/synthesiser.h"

typedef struct command {
    const char *line;
    spry_utterance utterance;
} command;

static bool wanted(const spry_recogniser_options *options)
{
    return options->command != NULL;
}

static spry_status open_command(void **state, const spry_recogniser_options *options, spry_error *error)
{
    if (!options->command)
        return spry_fail(error, SPRY_ERR_INPUT, "which command recognises speech? Give one with --stt-cmd");
    command *c = calloc(1, sizeof *c);
    if (!c)
        return spry_fail_memory(error, "a recogniser", sizeof *c);
    c->line = options->command;
    *state = c;
    return SPRY_OK;
}

static void close_command(void *state)
{
    free(((command *)state)->utterance.samples);
    free(state);
}

static spry_status begin(void *state, spry_error *error)
{
    (void)error;
    ((command *)state)->utterance.count = 0;
    return SPRY_OK;
}

static spry_status hear(void *state, const float *samples, size_t count, spry_error *error)
{
    return spry_utterance_add(&((command *)state)->utterance, samples, count, error);
}

static bool append(void *user, const char *data, size_t size)
{
    return spry_buffer_append(user, data, size);
}

static spry_status words(void *state, spry_buffer *text, bool over, bool (*proceed)(void *user), void *user,
                         spry_error *error)
{
    (void)proceed, (void)user;
    command *c = state;
    spry_buffer_clear(text);
    if (!over)
        return SPRY_OK;
    spry_buffer written;
    int16_t *pcm = calloc(c->utterance.count + 1, sizeof *pcm);
    if (!pcm)
        return spry_fail_memory(error, "an utterance", c->utterance.count * sizeof *pcm);
    spry_sound_to_pcm(pcm, c->utterance.samples, c->utterance.count);
    spry_buffer_init(&written, 1 << 20);
    const spry_child child = {.command = c->line,
                              .input = {(const char *)pcm, c->utterance.count * sizeof *pcm},
                              .on_output = append,
                              .user = &written};
    spry_status status = spry_child_run(&child, error);
    spry_utf8_append_valid(text, spry_buffer_view(&written));
    spry_text_trim(text);
    spry_buffer_deinit(&written);
    free(pcm);
    return status;
}

const spry_recogniser_kind spry_recogniser_command = {.name = "command",
                                                      .wanted = wanted,
                                                      .open = open_command,
                                                      .close = close_command,
                                                      .begin = begin,
                                                      .hear = hear,
                                                      .words = words};

/* ---- Whisper ----------------------------------------------------------------------------------------------------- */

/* A Whisper model. Words before the end come from recognising the sound so far again: short sound is encoded as short
 * sound, so that costs little. */

typedef struct whisper {
    spry_speech *speech;
    spry_recogniser_options options;
    spry_utterance utterance;
    size_t read; /* samples that the current transcription has read */
} whisper;

static bool whisper_wanted(const spry_recogniser_options *options)
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

static spry_status whisper_begin(void *state, spry_error *error)
{
    (void)error;
    ((whisper *)state)->utterance.count = 0;
    return SPRY_OK;
}

static spry_status whisper_hear(void *state, const float *samples, size_t count, spry_error *error)
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

static spry_status whisper_words(void *state, spry_buffer *text, bool over, bool (*proceed)(void *user), void *user,
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
                                                      .wanted = whisper_wanted,
                                                      .open = open_whisper,
                                                      .close = close_whisper,
                                                      .begin = whisper_begin,
                                                      .hear = whisper_hear,
                                                      .words = whisper_words,
                                                      .transcribe = transcribe,
                                                      .partial = true};

/* ---- the choice of a recogniser ---------------------------------------------------------------------------------- */

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
        if (spry_interrupted(SPRY_INTERRUPT_WORK))
            status = spry_fail(error, SPRY_ERR_CANCELLED, "the transcription was cancelled");
        else if (heard > SPRY_UTTERANCE_MAX)
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

/* ---- transcripts as text ----------------------------------------------------------------------------------------- */

enum { OUT_MAX = 64 << 20 };

const char *const spry_transcript_formats[SPRY_TRANSCRIPT_FORMATS + 1] = {
    [SPRY_TRANSCRIPT_JSON] = "json", [SPRY_TRANSCRIPT_TEXT] = "text",
    [SPRY_TRANSCRIPT_SRT] = "srt",   [SPRY_TRANSCRIPT_VERBOSE_JSON] = "verbose_json",
    [SPRY_TRANSCRIPT_VTT] = "vtt",
};

spry_transcript_format spry_transcript_format_find(const char *name)
{
    size_t i = 0;
    while (i < SPRY_TRANSCRIPT_FORMATS && strcmp(name, spry_transcript_formats[i]) != 0)
        i++;
    return (spry_transcript_format)i;
}

bool spry_transcript_needs_times(spry_transcript_format format)
{
    return format == SPRY_TRANSCRIPT_SRT || format == SPRY_TRANSCRIPT_VERBOSE_JSON || format == SPRY_TRANSCRIPT_VTT;
}

void spry_transcript_writer_init(spry_transcript_writer *w, spry_transcript_format format)
{
    *w = (spry_transcript_writer){.format = format, .segments = json_array()};
    spry_buffer_init(&w->out, OUT_MAX);
    if (format == SPRY_TRANSCRIPT_VTT)
        spry_buffer_text(&w->out, "WEBVTT\n\n");
}

void spry_transcript_writer_deinit(spry_transcript_writer *w)
{
    json_decref(w->segments);
    spry_buffer_deinit(&w->out);
}

/* "00:01:02.345"; subtitles of one kind have a comma. */
static void append_time(spry_buffer *out, double seconds, char point)
{
    unsigned long long ms = (unsigned long long)(seconds * 1000 + 0.5);
    spry_buffer_format(out, "%02llu:%02llu:%02llu%c%03llu", ms / 3600000, ms / 60000 % 60, ms / 1000 % 60, point,
                       ms % 1000);
}

static const char *without_space(const char *text)
{
    return text + strspn(text, " ");
}

static json_t *segment_json(const spry_speech_segment *s, size_t id)
{
    json_t *tokens = json_array();
    for (size_t i = 0; i < s->n_tokens; i++)
        json_array_append_new(tokens, json_integer(s->tokens[i]));
    return json_pack("{s:I, s:I, s:f, s:f, s:s, s:o, s:f, s:f, s:f, s:f}", "id", (json_int_t)id, "seek",
                     (json_int_t)(s->begin * 100), "start", s->begin, "end", s->end, "text", s->text, "tokens", tokens,
                     "temperature", s->temperature, "avg_logprob", s->mean_logprob, "compression_ratio",
                     s->compression_ratio, "no_speech_prob", s->no_speech);
}

bool spry_transcript_segment(void *user, const spry_speech_segment *s)
{
    spry_transcript_writer *w = user;
    bool vtt = w->format == SPRY_TRANSCRIPT_VTT;
    size_t id = w->n_segments++;
    if (w->format == SPRY_TRANSCRIPT_VERBOSE_JSON)
        return json_array_append_new(w->segments, segment_json(s, id)) == 0;
    if (w->format != SPRY_TRANSCRIPT_SRT && !vtt)
        return true;
    if (!vtt)
        spry_buffer_format(&w->out, "%zu\n", id + 1);
    append_time(&w->out, s->begin, vtt ? '.' : ',');
    spry_buffer_text(&w->out, " --> ");
    append_time(&w->out, s->end, vtt ? '.' : ',');
    return spry_buffer_format(&w->out, "\n%s\n\n", without_space(s->text));
}

bool spry_transcript_finish(spry_transcript_writer *w, const spry_transcript *t, const char *task)
{
    const char *text = without_space(t->text), *name = spry_speech_language_name(t->language);
    if (w->format == SPRY_TRANSCRIPT_TEXT)
        return spry_buffer_format(&w->out, "%s\n", text);
    if (w->format != SPRY_TRANSCRIPT_JSON && w->format != SPRY_TRANSCRIPT_VERBOSE_JSON)
        return !w->out.failed;
    json_t *json = json_pack("{s:s}", "text", text);
    if (w->format == SPRY_TRANSCRIPT_VERBOSE_JSON) {
        json_object_set_new(json, "task", json_string(task));
        json_object_set_new(json, "language", json_string(name ? name : t->language));
        json_object_set_new(json, "duration", json_real(t->seconds));
        json_object_set(json, "segments", w->segments);
    }
    char *dumped = json ? spry_json_text(json, JSON_REAL_PRECISION(9)) : NULL;
    bool done = dumped && spry_buffer_format(&w->out, "%s\n", dumped);
    free(dumped);
    json_decref(json);
    return done;
}
