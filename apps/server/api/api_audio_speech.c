/* OpenAI's /v1/audio/speech: text to sound, clause by clause, so that the first sound comes early. */
#include <stdlib.h>

#include "server/api/apis.h"
#include "server/audio/speech_service.h"
#include "server/http/http_reply.h"
#include "server/request/request_fields.h"
#include "spry_voice.h"
#include "voice/speaker.h"

enum { INPUT_MAX = 1 << 16, SOUND_MAX = 1 << 28, WAV_HEADER = 44, PCM_RATE = 24000 };

typedef struct speaking {
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
    while (s->sound.size == 0 && spry_clauses_take(&s->clauses, &s->clause, s->clauses.text.size > 0))
        if (spry_synthesiser_speak(s->synthesiser, spry_buffer_view(&s->clause), on_sound, s, NULL) != SPRY_OK)
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
    free(s);
}

/* OpenAI's voices are taken for those that sound alike; others are the synthesiser's own. */
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
        spry_reply_error(x, MHD_HTTP_SERVICE_UNAVAILABLE, NULL, "not enough memory for speech");
        return;
    }
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
    if (!spry_fields_open(&fields, &root, x))
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
