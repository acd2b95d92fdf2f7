/* Speech to text and text to speech in OpenAI's interface. */
#include "server/server_setup.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/interrupt.h"
#include "base/number.h"
#include "base/utf8.h"
#include "server/api/apis.h"
#include "server/fields/fields.h"
#include "server/http/form_data.h"
#include "server/http/http_reply.h"
#include "server/http/http_server.h"
#include "spry_voice.h"
#include "voice/recogniser.h"
#include "voice/sound.h"
#include "voice/speaker.h"

/* ---- the speech service ------------------------------------------------------------------------------------------ */

enum { VOICES_MAX = 16, NAME_BYTES = 40 };

typedef struct open_voice {
    char name[NAME_BYTES]; /* empty: the first one */
    spry_synthesiser synthesiser;
    uint32_t users;
    uint64_t used; /* a later user has a larger number */
} open_voice;

struct spry_speech_service {
    const spry_speech_flags *flags;
    pthread_mutex_t listening; /* held while the recogniser is taken */
    spry_recogniser recogniser;
    pthread_mutex_t lock; /* guards the voices */
    open_voice voices[VOICES_MAX];
    size_t n_voices;
    uint64_t uses;
};

spry_status spry_speech_service_create(spry_speech_service **out, const spry_speech_flags *flags, spry_error *error)
{
    spry_speech_service *s = *out = calloc(1, sizeof *s);
    if (!s)
        return spry_fail_memory(error, "speech", sizeof *s);
    s->flags = flags;
    pthread_mutex_init(&s->listening, NULL);
    pthread_mutex_init(&s->lock, NULL);
    return SPRY_OK;
}

void spry_speech_service_destroy(spry_speech_service *s)
{
    if (!s)
        return;
    spry_recogniser_close(&s->recogniser);
    for (size_t i = 0; i < s->n_voices; i++)
        spry_synthesiser_close(&s->voices[i].synthesiser);
    pthread_mutex_destroy(&s->listening);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* The names of the recogniser and the synthesiser; NULL where there is none. The recogniser is not opened. */
static void speech_service_names(spry_speech_service *s, const char **recogniser, const char **synthesiser)
{
    spry_synthesiser *first;
    const spry_recogniser_kind *kind = spry_recogniser_find(&s->flags->recogniser);
    *recogniser = kind ? kind->name : NULL;
    *synthesiser = spry_speech_service_voice(s, &first, NULL, NULL) == SPRY_OK ? first->kind->name : NULL;
    if (*synthesiser)
        spry_speech_service_leave(s, first);
}

/* The recogniser, for this caller alone until it is returned. */
static spry_status speech_service_take(spry_speech_service *s, spry_recogniser **recogniser, spry_error *error)
{
    pthread_mutex_lock(&s->listening);
    spry_status status = SPRY_OK;
    if (!s->recogniser.kind)
        status = spry_recogniser_open(&s->recogniser, &s->flags->recogniser, error);
    if (status != SPRY_OK)
        pthread_mutex_unlock(&s->listening);
    *recogniser = status == SPRY_OK ? &s->recogniser : NULL;
    return status;
}

static void speech_service_return(spry_speech_service *s)
{
    pthread_mutex_unlock(&s->listening);
}

/* Under the lock: a place for another voice; SIZE_MAX: all are in use. */
static size_t make_place(spry_speech_service *s)
{
    size_t oldest = SIZE_MAX;
    if (s->n_voices < VOICES_MAX)
        return s->n_voices++;
    for (size_t i = 0; i < s->n_voices; i++)
        if (!s->voices[i].users && (oldest == SIZE_MAX || s->voices[i].used < s->voices[oldest].used))
            oldest = i;
    if (oldest != SIZE_MAX)
        spry_synthesiser_close(&s->voices[oldest].synthesiser);
    return oldest;
}

/* Under the lock. */
static spry_status open_voice_at(spry_speech_service *s, size_t *at, const char *name, spry_error *error)
{
    spry_synthesiser opened;
    spry_synthesiser_options options = s->flags->synthesiser;
    options.voice = name ? name : options.voice;
    spry_status status = spry_synthesiser_open(&opened, &options, error);
    if (status != SPRY_OK)
        return status;
    *at = make_place(s);
    if (*at == SIZE_MAX) {
        spry_synthesiser_close(&opened);
        return spry_fail(error, SPRY_ERR_BUSY, "%d voices speak at the moment", VOICES_MAX);
    }
    s->voices[*at] = (open_voice){.synthesiser = opened};
    snprintf(s->voices[*at].name, NAME_BYTES, "%s", name ? name : "");
    return SPRY_OK;
}

/* Whether a name has the form of one: synthesisers take paths, too. */
static bool is_voice_name(const char *name)
{
    size_t size = strlen(name);
    return size < NAME_BYTES && !strstr(name, "..") && !strchr(name, '/') && name[0] != '-';
}

spry_status spry_speech_service_voice(spry_speech_service *s, spry_synthesiser **synthesiser, const char *name,
                                      spry_error *error)
{
    spry_status status = SPRY_OK;
    size_t i = 0;
    const char *key = name ? name : "";
    *synthesiser = NULL;
    if (!is_voice_name(key))
        return spry_fail(error, SPRY_ERR_INPUT, "there is no voice '%.40s'", key);
    pthread_mutex_lock(&s->lock);
    while (i < s->n_voices && strcmp(s->voices[i].name, key) != 0)
        i++;
    if (i == s->n_voices)
        status = open_voice_at(s, &i, name, error);
    if (status == SPRY_OK) {
        s->voices[i].users++;
        s->voices[i].used = ++s->uses;
        *synthesiser = &s->voices[i].synthesiser;
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

void spry_speech_service_leave(spry_speech_service *s, const spry_synthesiser *synthesiser)
{
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->n_voices; i++)
        s->voices[i].users -= &s->voices[i].synthesiser == synthesiser;
    pthread_mutex_unlock(&s->lock);
}

/* ---- transcriptions and translations ----------------------------------------------------------------------------- */

/* GET /v1/audio names the recogniser and the synthesiser. */

typedef struct listening {
    spry_exchange *exchange;
    spry_transcript_writer writer;
} listening;

/* A text field; `fallback` where it is absent or empty. False: it is no text, and a reply was given. */
static bool text_field(spry_exchange *x, const spry_form *form, const char *name, const char **out,
                       const char *fallback)
{
    spry_view value = spry_form_get(form, name);
    *out = value.size ? value.data : fallback;
    if (!value.size || (!memchr(value.data, 0, value.size) && spry_utf8_valid(value)))
        return true;
    spry_reply_error(x, SPRY_HTTP_BAD_REQUEST, name, "%s must be text", name);
    return false;
}

static bool read_options(spry_exchange *x, const spry_form *form, spry_transcribe_options *options,
                         spry_transcript_format *format)
{
    const char *name, *temperature, *stream, *granularity;
    double degrees = 0;
    if (!text_field(x, form, "language", &options->language, NULL) ||
        !text_field(x, form, "prompt", &options->prompt, NULL) ||
        !text_field(x, form, "response_format", &name, "json") ||
        !text_field(x, form, "temperature", &temperature, "0") || !text_field(x, form, "stream", &stream, "false") ||
        !text_field(x, form, "timestamp_granularities[]", &granularity, "segment"))
        return false;
    *format = spry_transcript_format_find(name);
    const char *wrong = NULL;
    if (*format == SPRY_TRANSCRIPT_FORMATS) {
        spry_reply_error(x, SPRY_HTTP_BAD_REQUEST, "response_format",
                         "response_format is '%.40s'; known are json, text, srt, verbose_json and vtt", name);
        return false;
    }
    if (!spry_number_double(&degrees, spry_view_of(temperature)) || degrees < 0 || degrees > 1)
        wrong = "temperature";
    else if (strcmp(stream, "false") != 0)
        wrong = "stream";
    else if (strcmp(granularity, "segment") != 0)
        wrong = "timestamp_granularities";
    if (wrong)
        spry_reply_error(x, SPRY_HTTP_BAD_REQUEST, wrong,
                         strcmp(wrong, "temperature") == 0 ? "temperature must be a number from 0 to 1"
                         : strcmp(wrong, "stream") == 0    ? "transcripts are not streamed"
                                                           : "timestamps are per segment, not per word");
    options->temperature = (float)degrees;
    options->timestamps = spry_transcript_needs_times(*format);
    return !wrong;
}

static bool wanted(void *user)
{
    (void)user;
    return !spry_interrupted(SPRY_INTERRUPT_WORK);
}

static bool on_segment(void *user, const spry_speech_segment *segment)
{
    return spry_transcript_segment(&((listening *)user)->writer, segment);
}

static spry_status write_down(listening *l, spry_view sound, spry_transcribe_options *options,
                              spry_transcript *transcript, spry_error *error)
{
    spry_speech_service *service = l->exchange->server->speech;
    spry_recogniser *recogniser;
    spry_sound_file *file;
    options->on_segment = on_segment;
    options->proceed = wanted;
    options->user = l;
    spry_status status = spry_sound_file_open_memory(&file, sound.data, sound.size, "the file", error);
    if (status != SPRY_OK)
        return status;
    status = speech_service_take(service, &recogniser, error);
    if (status == SPRY_OK) {
        status = spry_recogniser_transcribe(recogniser, transcript, spry_sound_file_read, file, options, error);
        speech_service_return(service);
    }
    if (status == SPRY_OK)
        status = spry_sound_file_status(file, error);
    if (status == SPRY_OK && transcript->seconds == 0)
        status = spry_fail(error, SPRY_ERR_INPUT, "there is no sound in the file");
    spry_sound_file_close(file);
    return status;
}

static void reply(listening *l, const spry_transcript *transcript, bool translate)
{
    static const char *const types[SPRY_TRANSCRIPT_FORMATS] = {
        [SPRY_TRANSCRIPT_JSON] = "application/json; charset=utf-8",
        [SPRY_TRANSCRIPT_VERBOSE_JSON] = "application/json; charset=utf-8",
        [SPRY_TRANSCRIPT_TEXT] = "text/plain; charset=utf-8",
        [SPRY_TRANSCRIPT_SRT] = "text/plain; charset=utf-8",
        [SPRY_TRANSCRIPT_VTT] = "text/vtt; charset=utf-8",
    };
    if (spry_transcript_finish(&l->writer, transcript, translate ? "translate" : "transcribe"))
        spry_reply_text(l->exchange, spry_buffer_view(&l->writer.out), types[l->writer.format], NULL);
    else
        spry_reply_error(l->exchange, SPRY_HTTP_SERVICE_UNAVAILABLE, NULL, "not enough memory for the transcript");
}

static void serve(spry_exchange *x, bool translate)
{
    spry_form form;
    spry_transcribe_options options;
    spry_transcript transcript = {0};
    spry_transcript_format format;
    spry_error error;
    if (!spry_form_open(&form, x))
        return;
    spry_transcribe_options_default(&options);
    options.translate = translate;
    spry_view sound = spry_form_get(&form, "file");
    if (!sound.data)
        spry_reply_error(x, SPRY_HTTP_BAD_REQUEST, "file", "file is missing: a sound file (wav, flac, ogg)");
    else if (read_options(x, &form, &options, &format)) {
        listening l = {.exchange = x};
        spry_transcript_writer_init(&l.writer, format);
        if (write_down(&l, sound, &options, &transcript, &error) == SPRY_OK)
            reply(&l, &transcript, translate);
        else
            spry_reply_failure(x, &error);
        spry_free(transcript.text);
        spry_transcript_writer_deinit(&l.writer);
    }
}

void spry_audio_transcriptions(spry_exchange *exchange)
{
    serve(exchange, false);
}

void spry_audio_translations(spry_exchange *exchange)
{
    serve(exchange, true);
}

void spry_audio_parts(spry_exchange *x)
{
    const char *recogniser, *synthesiser;
    speech_service_names(x->server->speech, &recogniser, &synthesiser);
    spry_reply_json(x, SPRY_HTTP_OK, json_pack("{s:s?, s:s?}", "recogniser", recogniser, "synthesiser", synthesiser));
}

/* ---- POST /v1/audio/speech --------------------------------------------------------------------------------------- */

/* OpenAI's /v1/audio/speech: text to sound, clause by clause, so that the first sound comes early. */

enum { INPUT_MAX = 1 << 16, SOUND_MAX = 1 << 28, WAV_HEADER = 44, PCM_RATE = 24000 };

typedef struct speaking {
    spry_exchange *exchange;
    spry_synthesiser *synthesiser;
    spry_clauses clauses;
    spry_buffer clause, sound; /* sound that was not sent */
    bool pcm;                  /* no header, 24 kHz: as OpenAI's interface has it */
    int16_t last;              /* sample before the next, for the change of rate */
    unsigned phase;            /* thirds of a sample of 16 kHz */
} speaking;

static void put(spry_buffer *out, uint32_t value, size_t bytes)
{
    unsigned char b[4] = {(unsigned char)value, (unsigned char)(value >> 8), (unsigned char)(value >> 16),
                          (unsigned char)(value >> 24)};
    spry_buffer_append(out, b, bytes);
}

/* A header of unknown length: the sound ends where the reply does. */
static void put_header(spry_buffer *out)
{
    spry_buffer_text(out, "RIFF");
    put(out, UINT32_MAX, 4);
    spry_buffer_text(out, "WAVEfmt ");
    put(out, 16, 4);
    put(out, 1, 2); /* PCM */
    put(out, 1, 2); /* channels */
    put(out, SPRY_SOUND_RATE, 4);
    put(out, SPRY_SOUND_RATE * 2, 4);
    put(out, 2, 2);
    put(out, 16, 2);
    spry_buffer_text(out, "data");
    put(out, UINT32_MAX, 4);
}

/* Three samples for every two, on the lines between them. */
static bool put_faster(speaking *s, const int16_t *samples, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        for (; s->phase < 3; s->phase += 2) {
            int between = ((int)s->last * (3 - (int)s->phase) + (int)samples[i] * (int)s->phase) / 3;
            put(&s->sound, (uint32_t)between, 2);
        }
        s->phase -= 3;
        s->last = samples[i];
    }
    return !s->sound.failed;
}

static bool on_sound(void *user, const int16_t *samples, size_t count)
{
    speaking *s = user;
    if (s->pcm)
        return put_faster(s, samples, count);
    for (size_t i = 0; i < count; i++)
        put(&s->sound, (uint32_t)samples[i], 2);
    return !s->sound.failed;
}

static ssize_t more(void *self, char *out, size_t size)
{
    speaking *s = self;
    spry_status status = SPRY_OK;
    spry_http_interrupt_begin(s->exchange);
    while (!status && s->sound.size == 0 && spry_clauses_take(&s->clauses, &s->clause, s->clauses.text.size > 0))
        status = spry_interrupted(SPRY_INTERRUPT_WORK)
                     ? SPRY_ERR_CANCELLED
                     : spry_synthesiser_speak(s->synthesiser, spry_buffer_view(&s->clause), on_sound, s, NULL);
    spry_interrupt_end();
    if (status)
        return -1;
    size_t n = s->sound.size < size ? s->sound.size : size;
    if (n)
        memcpy(out, s->sound.data, n);
    spry_buffer_consume(&s->sound, n);
    return s->sound.failed ? -1 : (ssize_t)n;
}

static void end(void *self)
{
    speaking *s = self;
    spry_clauses_deinit(&s->clauses);
    spry_buffer_deinit(&s->clause);
    spry_buffer_deinit(&s->sound);
    spry_speech_service_leave(s->exchange->server->speech, s->synthesiser);
    free(s);
}

/* OpenAI's voices are mapped to similar voices of the synthesiser; other names are the synthesiser's own. */
static const char *voice_of(const char *name)
{
    static const char *const high[] = {"alloy", "coral", "fable", "nova", "sage", "shimmer", "ballad", "marin"};
    static const char *const low[] = {"ash", "cedar", "echo", "onyx", "verse"};
    for (size_t i = 0; i < SPRY_COUNT(high); i++)
        if (strcmp(name, high[i]) == 0)
            return NULL;
    for (size_t i = 0; i < SPRY_COUNT(low); i++)
        if (strcmp(name, low[i]) == 0)
            return "rms";
    return name;
}

static void start(spry_exchange *x, const char *input, const char *voice, bool pcm)
{
    spry_synthesiser *synthesiser;
    spry_error error;
    const char *known = voice_of(voice);
    spry_status status = spry_speech_service_voice(x->server->speech, &synthesiser, known, &error);
    if (status != SPRY_OK && known && known != voice) /* a synthesiser without that voice has another one */
        status = spry_speech_service_voice(x->server->speech, &synthesiser, NULL, &error);
    if (status != SPRY_OK) {
        spry_reply_failure(x, &error);
        return;
    }
    speaking *s = calloc(1, sizeof *s);
    if (!s) {
        spry_speech_service_leave(x->server->speech, synthesiser);
        spry_reply_error(x, SPRY_HTTP_SERVICE_UNAVAILABLE, NULL, "not enough memory for speech");
        return;
    }
    s->exchange = x;
    s->synthesiser = synthesiser;
    s->pcm = pcm;
    spry_clauses_init(&s->clauses);
    spry_buffer_init(&s->clause, INPUT_MAX);
    spry_buffer_init(&s->sound, SOUND_MAX);
    spry_clauses_add(&s->clauses, spry_view_of(input));
    if (!pcm)
        put_header(&s->sound);
    spry_reply_stream(x, pcm ? "audio/pcm" : "audio/wav", (spry_reply_source){more, end, s});
}

void spry_audio_speech(spry_exchange *x)
{
    spry_fields fields;
    json_t *root;
    if (!spry_fields_open(&fields, &root, x, NULL))
        return;
    const char *input = spry_fields_string(&fields, "input", NULL);
    const char *voice = spry_fields_string(&fields, "voice", "alloy");
    const char *format = spry_fields_string(&fields, "response_format", "wav");
    const char *stream = spry_fields_string(&fields, "stream_format", "audio");
    const json_t *speed = spry_fields_get(&fields, "speed");
    bool pcm = strcmp(format, "pcm") == 0;
    if (!fields.wrong[0] && (!input || !input[0]))
        spry_fields_refuse(&fields, "input", "input is missing: the text to speak");
    else if (!fields.wrong[0] && strlen(input) > INPUT_MAX)
        spry_fields_refuse(&fields, "input", "input has more than %d bytes", INPUT_MAX);
    if (!pcm && strcmp(format, "wav") != 0)
        spry_fields_refuse(&fields, "response_format", "response_format is '%.40s'; known are wav and pcm", format);
    if (strcmp(stream, "audio") != 0)
        spry_fields_refuse(&fields, "stream_format", "stream_format must be audio");
    if (speed && !(json_is_number(speed) && json_number_value(speed) == 1))
        spry_fields_refuse(&fields, "speed", "speed must be 1");
    if (spry_fields_fine(&fields, x))
        start(x, input, voice, pcm);
    json_decref(root);
}
