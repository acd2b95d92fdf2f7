/* OpenAI's /v1/audio/transcriptions and /v1/audio/translations, and GET /v1/audio: what hears and speaks here. */
#include "base/number.h"
#include "base/utf8.h"
#include "server/api/apis.h"
#include "server/audio/form_data.h"
#include "server/audio/speech_service.h"
#include "server/http/http_reply.h"
#include "server/http/http_server.h"
#include "voice/recogniser.h"
#include "voice/sound.h"

typedef struct listening {
    spry_exchange *exchange;
    spry_transcript_writer writer;
} listening;

/* A text field; `fallback` where it is absent or empty. False: it is no text, and a reply was given. */
static bool text_field(spry_exchange *x, const spry_form *form, const char *name, const char **out,
                       const char *fallback)
{
    const spry_buffer *value = spry_form_get(form, name);
    *out = value && value->size ? value->data : fallback;
    if (!value || (!memchr(value->data ? value->data : "", 0, value->size) && spry_utf8_valid(spry_buffer_view(value))))
        return true;
    spry_reply_error(x, MHD_HTTP_BAD_REQUEST, name, "%s must be text", name);
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
        spry_reply_error(x, MHD_HTTP_BAD_REQUEST, "response_format",
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
        spry_reply_error(x, MHD_HTTP_BAD_REQUEST, wrong,
                         strcmp(wrong, "temperature") == 0 ? "temperature must be a number from 0 to 1"
                         : strcmp(wrong, "stream") == 0    ? "transcripts are not streamed"
                                                           : "timestamps are those of segments, not of words");
    options->temperature = (float)degrees;
    options->timestamps = spry_transcript_needs_times(*format);
    return !wrong;
}

static bool wanted(void *user)
{
    spry_error ignored;
    return spry_http_check_reader(((listening *)user)->exchange, &ignored) == SPRY_OK;
}

static bool on_segment(void *user, const spry_speech_segment *segment)
{
    return spry_transcript_segment(&((listening *)user)->writer, segment);
}

static spry_status write_down(listening *l, const spry_buffer *sound, spry_transcribe_options *options,
                              spry_transcript *transcript, spry_error *error)
{
    spry_speech_service *service = l->exchange->server->speech;
    spry_recogniser *recogniser;
    spry_sound_file *file;
    options->on_segment = on_segment;
    options->proceed = wanted;
    options->user = l;
    spry_status status =
        spry_sound_file_open_memory(&file, sound->data ? sound->data : "", sound->size, "the file", error);
    if (status != SPRY_OK)
        return status;
    status = spry_speech_service_take(service, &recogniser, error);
    if (status == SPRY_OK) {
        status = spry_recogniser_transcribe(recogniser, transcript, spry_sound_file_read, file, options, error);
        spry_speech_service_return(service);
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
        spry_reply_error(l->exchange, MHD_HTTP_SERVICE_UNAVAILABLE, NULL, "not enough memory for the transcript");
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
    const spry_buffer *sound = spry_form_get(&form, "file");
    if (!sound)
        spry_reply_error(x, MHD_HTTP_BAD_REQUEST, "file", "file is missing: a sound file (wav, flac, ogg)");
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
    spry_form_close(&form);
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
    spry_speech_service_names(x->server->speech, &recogniser, &synthesiser);
    spry_reply_json(x, MHD_HTTP_OK, json_pack("{s:s?, s:s?}", "recogniser", recogniser, "synthesiser", synthesiser));
}
