/* Implements the recogniser of spry_voice.h: windows over sound of any length. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/utf8.h"
#include "device/device.h"
#include "platform/clock.h"
#include "voice/speech_state.h"

/* The languages of Whisper models, in the order of their tokens. */

typedef struct spry_whisper_language {
    const char *code, *name;
} spry_whisper_language;

enum { SPRY_WHISPER_LANGUAGES = 100 };
extern const spry_whisper_language spry_whisper_languages[SPRY_WHISPER_LANGUAGES];

const spry_whisper_language spry_whisper_languages[SPRY_WHISPER_LANGUAGES] = {
    {"en", "english"},        {"zh", "chinese"},       {"de", "german"},    {"es", "spanish"},    {"ru", "russian"},
    {"ko", "korean"},         {"fr", "french"},        {"ja", "japanese"},  {"pt", "portuguese"}, {"tr", "turkish"},
    {"pl", "polish"},         {"ca", "catalan"},       {"nl", "dutch"},     {"ar", "arabic"},     {"sv", "swedish"},
    {"it", "italian"},        {"id", "indonesian"},    {"hi", "hindi"},     {"fi", "finnish"},    {"vi", "vietnamese"},
    {"he", "hebrew"},         {"uk", "ukrainian"},     {"el", "greek"},     {"ms", "malay"},      {"cs", "czech"},
    {"ro", "romanian"},       {"da", "danish"},        {"hu", "hungarian"}, {"ta", "tamil"},      {"no", "norwegian"},
    {"th", "thai"},           {"ur", "urdu"},          {"hr", "croatian"},  {"bg", "bulgarian"},  {"lt", "lithuanian"},
    {"la", "latin"},          {"mi", "maori"},         {"ml", "malayalam"}, {"cy", "welsh"},      {"sk", "slovak"},
    {"te", "telugu"},         {"fa", "persian"},       {"lv", "latvian"},   {"bn", "bengali"},    {"sr", "serbian"},
    {"az", "azerbaijani"},    {"sl", "slovenian"},     {"kn", "kannada"},   {"et", "estonian"},   {"mk", "macedonian"},
    {"br", "breton"},         {"eu", "basque"},        {"is", "icelandic"}, {"hy", "armenian"},   {"ne", "nepali"},
    {"mn", "mongolian"},      {"bs", "bosnian"},       {"kk", "kazakh"},    {"sq", "albanian"},   {"sw", "swahili"},
    {"gl", "galician"},       {"mr", "marathi"},       {"pa", "punjabi"},   {"si", "sinhala"},    {"km", "khmer"},
    {"sn", "shona"},          {"yo", "yoruba"},        {"so", "somali"},    {"af", "afrikaans"},  {"oc", "occitan"},
    {"ka", "georgian"},       {"be", "belarusian"},    {"tg", "tajik"},     {"sd", "sindhi"},     {"gu", "gujarati"},
    {"am", "amharic"},        {"yi", "yiddish"},       {"lo", "lao"},       {"uz", "uzbek"},      {"fo", "faroese"},
    {"ht", "haitian creole"}, {"ps", "pashto"},        {"tk", "turkmen"},   {"nn", "nynorsk"},    {"mt", "maltese"},
    {"sa", "sanskrit"},       {"lb", "luxembourgish"}, {"my", "myanmar"},   {"bo", "tibetan"},    {"tl", "tagalog"},
    {"mg", "malagasy"},       {"as", "assamese"},      {"tt", "tatar"},     {"haw", "hawaiian"},  {"ln", "lingala"},
    {"ha", "hausa"},          {"ba", "bashkir"},       {"jw", "javanese"},  {"su", "sundanese"},  {"yue", "cantonese"},
};

/* The index of a code or English name, in any case; SPRY_WHISPER_LANGUAGES: none. */
static size_t whisper_language_find(const char *text)
{
    size_t i = 0;
    while (i < SPRY_WHISPER_LANGUAGES && strcasecmp(text, spry_whisper_languages[i].code) != 0 &&
           strcasecmp(text, spry_whisper_languages[i].name) != 0)
        i++;
    return i;
}

enum {
    TIMES = SPRY_WHISPER_SECONDS * SPRY_SPEECH_TICKS + 1, /* tokens of times */
    SHORTEST = SPRY_VOICE_RATE / 10,                      /* less sound than this has no word */
    STATE_SAMPLES = 2 * SPRY_MEL_HOP,
    MARGIN_STATES = 64, /* states of silence after short sound, at which the model ends its text */
};

#define LOUD 0.05f /* share of the loudest sample below which sound is no speech */

/* ---- opening ----------------------------------------------------------------------------------------------------- */

void spry_speech_options_default_sized(spry_speech_options *options, size_t size)
{
    const spry_speech_options own = {.cpu = "auto", .device = "cpu"};
    spry_sized_default(options, size, &own, sizeof own);
}

/* The control tokens of every published model are at the end of the vocabulary in the same order. */
static spry_status find_ids(spry_speech *s, const char *path, spry_error *error)
{
    const spry_whisper_weights *w = spry_whisper_model(s->whisper);
    enum { TASKS = 6 }; /* translate, transcribe, a language model's, previous, no speech, no times */
    int32_t n_vocab = (int32_t)w->shape.n_vocab, first_time = n_vocab - TIMES;
    if (!w->n_token_bytes)
        return spry_fail(error, SPRY_ERR_FORMAT, "%s: no tokenizer.json, so its tokens cannot become text", path);
    /* A ggml file lists the words only, English ones with the end token; a folder's tokenizer likewise. */
    int32_t end = n_vocab >= 51865 ? 50257 : 50256;
    if (first_time <= end + TASKS + 1 || w->shape.n_text_ctx < 16 || w->n_token_bytes < (size_t)end)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s: a vocabulary of %d tokens is not one of Whisper's", path,
                         n_vocab);
    s->ids = (spry_speech_ids){.end = end,
                               .start = end + 1,
                               .first_language = end + 2,
                               .translate = first_time - 6,
                               .transcribe = first_time - 5,
                               .previous = first_time - 3,
                               .no_speech = first_time - 2,
                               .no_timestamps = first_time - 1,
                               .first_time = first_time};
    s->ids.n_languages = end == 50257 ? (uint32_t)(s->ids.translate - s->ids.first_language) : 0;
    if (s->ids.n_languages > SPRY_WHISPER_LANGUAGES)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s: %u languages", path, s->ids.n_languages);
    return SPRY_OK;
}

/* Whether all characters of a token denote sounds or notes, not words. */
static bool is_noise(spry_view bytes)
{
    static const char *const marks[] = {"#",  "(",  ")",  "*",  "+", "/", ":", ";", "<", "=", ">",
                                        "@",  "[",  "\\", "]",  "^", "_", "`", "{", "|", "}", "~",
                                        "「", "」", "『", "』", "♩", "♪", "♫", "♬", "♭", "♮", "♯"};
    size_t at = bytes.size && bytes.data[0] == ' ' ? 1 : 0;
    if (at == bytes.size)
        return false;
    if (spry_view_is(bytes, " -") || spry_view_is(bytes, " '"))
        return true;
    while (at < bytes.size) {
        size_t i = 0;
        while (i < SPRY_COUNT(marks) &&
               !spry_view_starts((spry_view){bytes.data + at, bytes.size - at}, spry_view_of(marks[i])))
            i++;
        if (i == SPRY_COUNT(marks))
            return false;
        at += strlen(marks[i]);
    }
    return true;
}

static void mark_tokens(spry_speech *s)
{
    const spry_whisper_weights *w = spry_whisper_model(s->whisper);
    s->blank = -1;
    for (int32_t id = 0; id < s->ids.end; id++) {
        s->silent[id] = is_noise(w->token_bytes[id]);
        if (spry_view_is(w->token_bytes[id], " "))
            s->blank = id;
    }
    for (int32_t id = s->ids.start; id < s->ids.first_time; id++)
        s->silent[id] = true;
}

static spry_status allocate(spry_speech *s, spry_error *error)
{
    const spry_whisper_shape *shape = &spry_whisper_model(s->whisper)->shape;
    size_t n_window = spry_whisper_window(s->whisper);
    s->silent = calloc(shape->n_vocab, sizeof *s->silent);
    s->filtered = calloc(shape->n_vocab, sizeof *s->filtered);
    s->weights = calloc(shape->n_vocab, sizeof *s->weights);
    s->window = calloc(n_window, sizeof *s->window);
    s->prompt = calloc(shape->n_text_ctx, sizeof *s->prompt);
    s->past = calloc(shape->n_text_ctx, sizeof *s->past);
    s->decoding.ids = calloc(shape->n_text_ctx, sizeof *s->decoding.ids);
    s->best.ids = calloc(shape->n_text_ctx, sizeof *s->best.ids);
    if (s->silent && s->filtered && s->weights && s->window && s->prompt && s->past && s->decoding.ids && s->best.ids)
        return SPRY_OK;
    return spry_fail_memory(error, "a recogniser of speech", n_window * sizeof *s->window);
}

spry_status spry_speech_open(spry_speech **out, const char *path, const spry_speech_options *options, spry_error *error)
{
    *out = NULL;
    spry_speech_options own;
    spry_dtype type = SPRY_DTYPE_COUNT;
    spry_speech_options_default(&own);
    if (options && spry_sized_read(&own, sizeof own, options, "spry_speech_options", error) != SPRY_OK)
        return SPRY_ERR_INPUT;
    if (own.type && !spry_dtype_find(&type, spry_view_of(own.type)))
        return spry_fail(error, SPRY_ERR_INPUT, "unknown type %.40s; known are %s", own.type, spry_dtype_names());
    spry_speech *s = calloc(1, sizeof *s);
    if (!s)
        return spry_fail_memory(error, "a recogniser of speech", sizeof *s);
    spry_error none;
    bool automatic = own.device && !strcmp(own.device, "auto");
    const char *gpu = automatic ? spry_device_auto(NULL, NULL, &none) : own.device;
    const spry_whisper_options whisper = {.device = gpu ? gpu : "cpu",
                                          .kernels = own.cpu,
                                          .threads = own.threads,
                                          .type = type,
                                          .log = {own.log, own.log_user}};
    spry_status status = spry_ops_get(&s->ops, own.cpu, error);
    if (status == SPRY_OK)
        status = spry_whisper_open(&s->whisper, path, &whisper, error);
    if (status == SPRY_OK)
        status = find_ids(s, path, error);
    if (status == SPRY_OK)
        status = allocate(s, error);
    if (status != SPRY_OK) {
        spry_speech_close(s);
        return status;
    }
    mark_tokens(s);
    *out = s;
    return SPRY_OK;
}

void spry_speech_close(spry_speech *s)
{
    if (!s)
        return;
    spry_whisper_close(s->whisper);
    free(s->silent);
    free(s->filtered);
    free(s->weights);
    free(s->window);
    free(s->prompt);
    free(s->past);
    free(s->decoding.ids);
    free(s->best.ids);
    free(s);
}

bool spry_speech_knows(const spry_speech *s, const char *language)
{
    size_t i = whisper_language_find(language);
    return s->ids.n_languages ? i < s->ids.n_languages : i == 0;
}

const char *spry_speech_language_name(const char *code)
{
    size_t i = whisper_language_find(code);
    return i < SPRY_WHISPER_LANGUAGES ? spry_whisper_languages[i].name : NULL;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

void spry_speech_append(const spry_speech *s, spry_buffer *out, const int32_t *ids, size_t count)
{
    const spry_whisper_weights *w = spry_whisper_model(s->whisper);
    for (size_t i = 0; i < count; i++)
        if (ids[i] < s->ids.end)
            spry_buffer_append(out, w->token_bytes[ids[i]].data, w->token_bytes[ids[i]].size);
}

/* The ids of a text, at most `most`; returns their number. The longest token at each place: not always the tokens of
 * the model's own tokenizer, but the same text. */
static size_t encode_text(const spry_speech *s, int32_t *ids, size_t most, const char *text)
{
    const spry_whisper_weights *w = spry_whisper_model(s->whisper);
    spry_view rest = spry_view_of(text);
    size_t n = 0;
    while (rest.size && n < most) {
        int32_t best = -1;
        for (int32_t id = 0; id < s->ids.end; id++)
            if (w->token_bytes[id].size && spry_view_starts(rest, w->token_bytes[id]) &&
                (best < 0 || w->token_bytes[id].size > w->token_bytes[best].size))
                best = id;
        size_t size = best < 0 ? 1 : w->token_bytes[best].size;
        if (best >= 0)
            ids[n++] = best;
        rest = (spry_view){rest.data + size, rest.size - size};
    }
    return n;
}

static void remember(spry_speech *s, const int32_t *ids, size_t count)
{
    size_t room = spry_whisper_model(s->whisper)->shape.n_text_ctx;
    for (size_t i = 0; i < count; i++) {
        if (s->n_past == room)
            memmove(s->past, s->past + 1, --s->n_past * sizeof *s->past);
        s->past[s->n_past++] = ids[i];
    }
}

/* ---- segments ---------------------------------------------------------------------------------------------------- */

/* Passes on the words ids[begin, end). False: the caller wants no more. */
static bool emit(spry_speech *s, size_t begin, size_t end, double from, double to)
{
    const spry_speech_decoding *d = &s->decoding;
    spry_buffer bytes, text;
    bool more = true;
    spry_buffer_init(&bytes, SPRY_SPEECH_TEXT_MAX);
    spry_buffer_init(&text, SPRY_SPEECH_TEXT_MAX);
    spry_speech_append(s, &bytes, d->ids + begin, end - begin);
    spry_utf8_append_valid(&text, spry_buffer_view(&bytes));
    if (text.size) {
        spry_speech_segment segment = {.begin = from,
                                       .end = to,
                                       .text = text.data,
                                       .tokens = d->ids + begin,
                                       .n_tokens = end - begin,
                                       .temperature = d->temperature,
                                       .mean_logprob = d->mean_logprob,
                                       .compression_ratio = d->compression_ratio,
                                       .no_speech = d->no_speech};
        spry_buffer_append(&s->text, text.data, text.size);
        remember(s, d->ids + begin, end - begin);
        more = !s->options.on_segment || s->options.on_segment(s->options.user, &segment);
    }
    spry_buffer_deinit(&bytes);
    spry_buffer_deinit(&text);
    return more;
}

/* Splits the tokens at their times and passes the segments on. *used: samples of the window that are written down; an
 * open segment at its end is decoded again with the sound after it. */
static bool split(spry_speech *s, size_t *used, double start, size_t n_samples)
{
    const spry_speech_decoding *d = &s->decoding;
    double begin = 0, whole = (double)n_samples / SPRY_VOICE_RATE, last = 0;
    size_t first = 0;
    bool more = true;
    *used = n_samples;
    for (size_t i = 0; i < d->n && more; i++) {
        if (d->ids[i] < s->ids.first_time)
            continue;
        double time = (double)(d->ids[i] - s->ids.first_time) / SPRY_SPEECH_TICKS;
        time = time < whole ? time : whole;
        if (i > first) {
            more = emit(s, first, i, start + begin, start + time);
            last = time;
        }
        begin = time;
        first = i + 1;
    }
    bool open = first < d->n;
    if (open && last > 0)
        *used = (size_t)(last * SPRY_VOICE_RATE);
    else if (open && more)
        more = emit(s, first, d->n, start + begin, start + whole);
    else if (d->n >= 2 && d->ids[d->n - 1] >= s->ids.first_time && d->ids[d->n - 2] >= s->ids.first_time && last > 0)
        *used = (size_t)(last * SPRY_VOICE_RATE); /* two times at the end: more speech follows */
    return more;
}

/* ---- windows ----------------------------------------------------------------------------------------------------- */

void spry_transcribe_options_default_sized(spry_transcribe_options *options, size_t size)
{
    const spry_transcribe_options own = {.no_speech = 0.6f, .least_logprob = -1, .most_compression = 2.4f};
    spry_sized_default(options, size, &own, sizeof own);
}

static spry_status choose_language(spry_speech *s, spry_error *error)
{
    const char *wanted = s->options.language;
    s->language = -1;
    if (wanted && !spry_speech_knows(s, wanted))
        return spry_fail(error, SPRY_ERR_INPUT, "the recogniser does not know the language '%.40s'", wanted);
    if (s->ids.n_languages)
        s->language = wanted ? s->ids.first_language + (int32_t)whisper_language_find(wanted) : 0;
    if (!s->ids.n_languages && s->options.translate)
        return spry_fail(error, SPRY_ERR_INPUT, "this recogniser knows English only and cannot translate");
    return SPRY_OK;
}

/* Reads until the window is full or the sound ends. */
static void fill(spry_speech *s, size_t *n, bool *ended, spry_sound_reader read, void *user)
{
    size_t room = spry_whisper_window(s->whisper);
    while (!*ended && *n < room) {
        size_t got = read(user, s->window + *n, room - *n);
        *ended = got == 0;
        *n += got;
        s->transcript->seconds += (double)got / SPRY_VOICE_RATE;
    }
}

/* Encodes the window, with no more silence than `whole` asks for. *is_short: that was less than all of it. */
static spry_status encode(spry_speech *s, bool *is_short, size_t n_samples, bool whole, spry_error *error)
{
    size_t most = spry_whisper_model(s->whisper)->shape.n_audio_ctx;
    size_t states = (n_samples + STATE_SAMPLES - 1) / STATE_SAMPLES + MARGIN_STATES;
    uint64_t began = spry_clock_ns();
    states = whole || states > most ? most : states;
    spry_status status = spry_whisper_encode(s->whisper, s->window, n_samples, states, error);
    s->transcript->encode_ms += (double)(spry_clock_ns() - began) / 1e6;
    *is_short = states < most;
    return status;
}

/* Seconds from the first to the last loud sample. */
static double spoken(const float *samples, size_t n)
{
    float loud = 0;
    size_t begin = 0, end = n;
    for (size_t i = 0; i < n; i++)
        loud = fabsf(samples[i]) > loud ? fabsf(samples[i]) : loud;
    loud *= LOUD;
    while (begin < end && fabsf(samples[begin]) < loud)
        begin++;
    while (end > begin && fabsf(samples[end - 1]) < loud)
        end--;
    return (double)(end - begin) / SPRY_VOICE_RATE;
}

/* Decodes the window; where short sound gives no good text it is encoded again as the model was trained. */
static spry_status decode(spry_speech *s, size_t n, bool timestamps, spry_error *error)
{
    size_t ticks = (n * SPRY_SPEECH_TICKS + SPRY_VOICE_RATE - 1) / SPRY_VOICE_RATE;
    bool is_short;
    spry_status status = encode(s, &is_short, n, s->options.whole_window, error);
    s->spoken = spoken(s->window, n);
    uint64_t began = spry_clock_ns();
    double encode_ms = s->transcript->encode_ms;
    if (status == SPRY_OK && s->language == 0)
        status = spry_speech_detect(s, error);
    if (status == SPRY_OK)
        status = spry_speech_decode(s, timestamps, ticks, is_short, error);
    if (status == SPRY_OK && is_short && s->decoding.failed) {
        status = encode(s, &is_short, n, true, error);
        s->transcript->retries++;
        if (status == SPRY_OK)
            status = spry_speech_decode(s, timestamps, ticks, false, error);
    }
    s->transcript->decode_ms += (double)(spry_clock_ns() - began) / 1e6 - (s->transcript->encode_ms - encode_ms);
    s->transcript->windows++;
    return status;
}

/* Whether there is any sound at all: below -80 decibels nothing is said. */
static bool is_silent(const float *samples, size_t n)
{
    size_t i = 0;
    while (i < n && fabsf(samples[i]) < 1e-4f)
        i++;
    return i == n;
}

/* Writes down one window. */
static spry_status window(spry_speech *s, size_t *used, bool *more, size_t n, double start, bool timestamps,
                          spry_error *error)
{
    *used = n;
    if (is_silent(s->window, n)) {
        s->transcript->silent_windows++;
        return SPRY_OK;
    }
    spry_status status = decode(s, n, timestamps, error);
    if (status == SPRY_OK && s->decoding.silent)
        s->transcript->silent_windows++;
    else if (status == SPRY_OK)
        *more = split(s, used, start, n);
    if (s->decoding.temperature > 0.5)
        s->n_past = 0; /* a guessed text must not guide the next window */
    return status;
}

static spry_status windows(spry_speech *s, spry_sound_reader read, void *user, spry_error *error)
{
    size_t n = 0, done = 0, room = spry_whisper_window(s->whisper);
    bool ended = false, more = true, timestamps = s->options.timestamps;
    spry_status status = SPRY_OK;
    while (status == SPRY_OK && more) {
        fill(s, &n, &ended, read, user);
        if (n < SHORTEST)
            break;
        timestamps = timestamps || n == room; /* where windows meet, times say how far one was written down */
        size_t used = n;
        status = window(s, &used, &more, n, (double)done / SPRY_VOICE_RATE, timestamps, error);
        used = used < SHORTEST ? n : used;
        done += used;
        n -= used;
        memmove(s->window, s->window + used, n * sizeof *s->window);
    }
    return status;
}

spry_status spry_speech_transcribe(spry_speech *s, spry_transcript *transcript, spry_sound_reader read, void *read_user,
                                   const spry_transcribe_options *options, spry_error *error)
{
    *transcript = (spry_transcript){.size = sizeof *transcript};
    spry_transcribe_options_default(&s->options);
    if (options) {
        spry_status status = spry_sized_read(&s->options, sizeof s->options, options, "spry_transcribe_options", error);
        if (status != SPRY_OK)
            return status;
    }
    spry_status status = choose_language(s, error);
    if (status != SPRY_OK)
        return status;
    s->transcript = transcript;
    spry_random_seed(&s->random, 0);
    spry_buffer_init(&s->text, SPRY_SPEECH_TEXT_MAX);
    s->n_past = s->options.prompt
                    ? encode_text(s, s->past, spry_whisper_model(s->whisper)->shape.n_text_ctx / 2, s->options.prompt)
                    : 0;
    status = windows(s, read, read_user, error);
    size_t language = s->language > 0 ? (size_t)(s->language - s->ids.first_language) : 0;
    memcpy(transcript->language, spry_whisper_languages[language].code,
           strlen(spry_whisper_languages[language].code) + 1);
    spry_buffer_extend(&s->text, 0); /* an empty text is one, too */
    if (status == SPRY_OK && (s->text.failed || !s->text.data))
        status = spry_fail_memory(error, "a transcript", s->text.size);
    if (status == SPRY_OK) {
        transcript->text = s->text.data;
        spry_buffer_init(&s->text, 0);
    }
    spry_buffer_deinit(&s->text);
    return status;
}
