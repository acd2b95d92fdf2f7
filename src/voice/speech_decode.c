/* One window of sound to tokens: the prompt, which tokens may come, and warmer attempts where one fails. The rules are
 * the same as in OpenAI's decoder: times come in pairs and never go back, and a time comes where times together are
 * more probable than any word. */
#include <math.h>
#include <string.h>

#include <zstd.h>

#include "voice/speech_state.h"

enum {
    FIRST_TIME_MOST = SPRY_SPEECH_TICKS, /* speech begins within the first second, or the window is moved on */
    PERIOD_MOST = 64,                    /* tokens that repeat */
    REPEATED_LEAST = 16,                 /* repeated tokens that end an attempt */
    RESTART = 3,                         /* tokens of a text's beginning that show it is written a second time */
    COMPRESS_LEVEL = 9,
};
#define TEMPERATURE_STEP 0.2f
#define SHORT_LOGPROB    -0.6f /* what is less probable in a shortened window is decoded again in a whole one */
#define LEAST_LIKELY     2.0   /* times the least log probability: below are no words */
#define TOKENS_A_SECOND  6.5   /* fast speech has 4 to 5 */

typedef struct attempt {
    spry_speech *s;
    bool timestamps;
    int32_t last_time; /* the last that may come */
    float temperature;
    size_t room; /* tokens that can be said in this sound; 0: not known */
} attempt;

static const spry_whisper_shape *shape_of(const spry_speech *s)
{
    return &spry_whisper_model(s->whisper)->shape;
}

/* weights = exp(logit - largest); returns their sum. */
static double weigh(spry_speech *s, const float *logits, size_t n, float *largest)
{
    double sum = 0;
    *largest = -INFINITY;
    for (size_t i = 0; i < n; i++)
        *largest = logits[i] > *largest ? logits[i] : *largest;
    s->ops->weigh(s->weights, logits, n, *largest);
    for (size_t i = 0; i < n; i++)
        sum += s->weights[i];
    return sum;
}

spry_status spry_speech_detect(spry_speech *s, spry_error *error)
{
    const float *logits;
    spry_status status = spry_whisper_decode(s->whisper, &logits, &s->ids.start, 1, 0, error);
    if (status != SPRY_OK)
        return status;
    int32_t best = s->ids.first_language;
    for (int32_t id = best; id < s->ids.first_language + (int32_t)s->ids.n_languages; id++)
        best = logits[id] > logits[best] ? id : best;
    s->language = best;
    return SPRY_OK;
}

/* ---- which tokens may come --------------------------------------------------------------------------------------- */

static void refuse(spry_speech *s, int32_t begin, int32_t end)
{
    for (int32_t id = begin; id < end; id++)
        s->filtered[id] = -INFINITY;
}

static void filter_times(attempt *a)
{
    spry_speech *s = a->s;
    const spry_speech_decoding *d = &s->decoding;
    int32_t first = s->ids.first_time, n_vocab = (int32_t)shape_of(s)->n_vocab, least = first;
    bool after_time = d->n >= 1 && d->ids[d->n - 1] >= first, after_two = d->n < 2 || d->ids[d->n - 2] >= first;
    if (after_time && after_two)
        refuse(s, first, n_vocab);
    else if (after_time)
        refuse(s, 0, s->ids.end);
    for (size_t i = d->n; i-- > 0;)
        if (d->ids[i] >= first) {
            least = after_time && !after_two ? d->ids[i] : d->ids[i] + 1;
            break;
        }
    int32_t most = d->n == 0 && first + FIRST_TIME_MOST < a->last_time ? first + FIRST_TIME_MOST : a->last_time;
    refuse(s, first, least < n_vocab ? least : n_vocab);
    refuse(s, most + 1 < least ? least : most + 1, n_vocab);
    if (d->n == 0)
        refuse(s, 0, first);
    /* Times against the best word. */
    float best = -INFINITY, largest;
    for (int32_t id = 0; id < first; id++)
        best = s->filtered[id] > best ? s->filtered[id] : best;
    double sum = weigh(s, s->filtered + first, (size_t)(n_vocab - first), &largest);
    if (largest > -INFINITY && log(sum) + (double)largest > (double)best)
        refuse(s, 0, first);
}

static void filter(attempt *a, const float *logits)
{
    spry_speech *s = a->s;
    size_t n_vocab = shape_of(s)->n_vocab;
    for (size_t i = 0; i < n_vocab; i++)
        s->filtered[i] = s->silent[i] ? -INFINITY : logits[i];
    if (!a->timestamps)
        refuse(s, s->ids.first_time, (int32_t)n_vocab);
    if (s->decoding.n == 0 && !a->timestamps) {
        if (s->blank >= 0)
            s->filtered[s->blank] = -INFINITY;
        s->filtered[s->ids.end] = -INFINITY;
    }
    if (a->timestamps)
        filter_times(a);
}

/* Draws a token from the filtered logits; *logprob is its own at temperature 1. */
static int32_t draw(attempt *a, double *logprob)
{
    spry_speech *s = a->s;
    size_t n_vocab = shape_of(s)->n_vocab, best = 0;
    float largest;
    for (size_t i = 1; i < n_vocab; i++)
        best = s->filtered[i] > s->filtered[best] ? i : best;
    if (a->temperature > 0) {
        double sum = 0, at, scale = 1 / (double)a->temperature, top = (double)s->filtered[best];
        for (size_t i = 0; i < n_vocab; i++)
            sum += s->weights[i] = exp(((double)s->filtered[i] - top) * scale);
        at = spry_random_unit(&s->random) * sum;
        for (size_t i = 0; i < n_vocab && at >= 0; i++)
            if (s->weights[i] > 0) {
                best = i;
                at -= s->weights[i];
            }
    }
    double sum = weigh(s, s->filtered, n_vocab, &largest);
    *logprob = (double)s->filtered[best] - (double)largest - log(sum);
    return (int32_t)best;
}

/* ---- one attempt ------------------------------------------------------------------------------------------------- */

static bool repeats(const int32_t *ids, size_t n)
{
    for (size_t period = 1; period <= PERIOD_MOST && n >= REPEATED_LEAST + period; period++) {
        size_t same = 0;
        while (same < REPEATED_LEAST && ids[n - 1 - same] == ids[n - 1 - same - period])
            same++;
        if (same == REPEATED_LEAST)
            return true;
    }
    return false;
}

/* Whether the text begins again. A model whose window is shorter than it was trained with writes a sentence again
 * instead of ending it. */
static bool restarts(const attempt *a)
{
    const spry_speech_decoding *d = &a->s->decoding;
    return a->room && !a->timestamps && d->n >= 2 * RESTART &&
           memcmp(d->ids, d->ids + d->n - RESTART, RESTART * sizeof *d->ids) == 0;
}

/* Whether two tokens in a row come twice, or one twice in a row. */
static bool echoes(const int32_t *ids, size_t n)
{
    for (size_t j = 1; j < n; j++)
        for (size_t i = 0; i < j; i++)
            if (ids[i] == ids[j] && (i + 1 == j || (j + 1 < n && ids[i + 1] == ids[j + 1])))
                return true;
    return false;
}

static double compression(const spry_speech *s)
{
    spry_buffer text;
    char packed[1 << 14];
    spry_buffer_init(&text, sizeof packed / 2);
    spry_speech_append(s, &text, s->decoding.ids, s->decoding.n);
    size_t size = text.size ? ZSTD_compress(packed, sizeof packed, text.data, text.size, COMPRESS_LEVEL) : 0;
    double ratio = text.size && !ZSTD_isError(size) ? (double)text.size / (double)size : 0;
    spry_buffer_deinit(&text);
    return ratio;
}

/* [previous, what was said] start [language, task] [no times]; returns how many tokens end with `start`. */
static size_t lay_prompt(const attempt *a, size_t *n_prompt)
{
    const spry_speech *s = a->s;
    int32_t *ids = s->prompt;
    size_t n = 0, most = shape_of(s)->n_text_ctx / 2 - 1, n_past = s->n_past < most ? s->n_past : most;
    if (n_past) {
        ids[n++] = s->ids.previous;
        memcpy(ids + n, s->past + (s->n_past - n_past), n_past * sizeof *ids);
        n += n_past;
    }
    ids[n++] = s->ids.start;
    size_t begin = n;
    if (s->language >= 0) {
        ids[n++] = s->language;
        ids[n++] = s->options.translate ? s->ids.translate : s->ids.transcribe;
    }
    if (!a->timestamps)
        ids[n++] = s->ids.no_timestamps;
    *n_prompt = n;
    return begin;
}

/* The logits after the prompt; those after its `start` say whether anything is said. */
static spry_status prefill(attempt *a, const float **logits, size_t *n_prompt, spry_error *error)
{
    spry_speech *s = a->s;
    size_t begin = lay_prompt(a, n_prompt);
    float largest;
    spry_status status = spry_whisper_decode(s->whisper, logits, s->prompt, begin, 0, error);
    if (status != SPRY_OK)
        return status;
    double sum = weigh(s, *logits, shape_of(s)->n_vocab, &largest);
    s->decoding.no_speech = s->weights[s->ids.no_speech] / sum;
    return *n_prompt == begin
               ? SPRY_OK
               : spry_whisper_decode(s->whisper, logits, s->prompt + begin, *n_prompt - begin, begin, error);
}

static spry_status decode_once(attempt *a, spry_error *error)
{
    spry_speech *s = a->s;
    spry_speech_decoding *d = &s->decoding;
    size_t n_prompt, n_ctx = shape_of(s)->n_text_ctx;
    double total = 0, logprob;
    size_t drawn = 0;
    const float *logits;
    d->n = 0;
    d->repeats = false;
    d->temperature = (double)a->temperature;
    spry_status status = prefill(a, &logits, &n_prompt, error);
    while (status == SPRY_OK) {
        if (s->options.proceed && !s->options.proceed(s->options.user))
            return spry_fail(error, SPRY_ERR_CANCELLED, "the transcription was cancelled");
        filter(a, logits);
        int32_t id = draw(a, &logprob);
        total += logprob;
        drawn++;
        if (id == s->ids.end)
            break;
        d->ids[d->n++] = id;
        s->transcript->tokens++;
        d->repeats = repeats(d->ids, d->n);
        if (restarts(a)) {
            d->n -= RESTART;
            d->repeats = 2 * d->n <= a->room; /* the words may have been said twice */
            break;
        }
        if (d->repeats || d->n >= n_ctx / 2 || n_prompt + d->n >= n_ctx)
            break;
        status = spry_whisper_decode(s->whisper, &logits, &id, 1, n_prompt + d->n - 1, error);
    }
    if (status != SPRY_OK)
        return status;
    if (a->room && !a->timestamps)
        d->repeats = d->repeats || echoes(d->ids, d->n);
    d->mean_logprob = total / (double)drawn;
    d->compression_ratio = compression(s);
    return SPRY_OK;
}

/* The best of attempts that failed: one that does not repeat itself before one that does, then the more probable one.
 */
static double rank(const spry_speech_decoding *d)
{
    return d->repeats ? d->mean_logprob - 1e6 : d->mean_logprob;
}

static void swap(spry_speech_decoding *a, spry_speech_decoding *b)
{
    spry_speech_decoding c = *a;
    *a = *b;
    *b = c;
}

spry_status spry_speech_decode(spry_speech *s, bool timestamps, size_t ticks, bool once, spry_error *error)
{
    attempt a = {.s = s, .timestamps = timestamps, .temperature = s->options.temperature};
    double least =
        once && s->options.least_logprob < SHORT_LOGPROB ? (double)SHORT_LOGPROB : (double)s->options.least_logprob;
    a.room = once ? (size_t)(s->spoken * TOKENS_A_SECOND) : 0;
    spry_speech_decoding *d = &s->decoding;
    int32_t last = (int32_t)shape_of(s)->n_vocab - 1;
    a.last_time = s->ids.first_time + (int32_t)ticks < last ? s->ids.first_time + (int32_t)ticks : last;
    bool kept = false;
    for (;; a.temperature += TEMPERATURE_STEP, s->transcript->retries++) {
        spry_status status = decode_once(&a, error);
        if (status != SPRY_OK)
            return status;
        bool improbable = d->mean_logprob < least;
        d->repeats = d->repeats || d->compression_ratio > (double)s->options.most_compression;
        bool unsaid = d->no_speech > (double)s->options.no_speech;
        d->failed = improbable || d->repeats;
        d->silent = improbable && unsaid;
        if (!d->failed || unsaid || once)
            return SPRY_OK;
        if (!kept || rank(d) > rank(&s->best))
            swap(d, &s->best);
        kept = true;
        if (a.temperature + TEMPERATURE_STEP > 1.01f)
            break;
    }
    swap(d, &s->best);
    d->silent = d->repeats || d->mean_logprob < LEAST_LIKELY * least; /* no temperature gives words */
    return SPRY_OK;
}
