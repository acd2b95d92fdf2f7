/* Whisper models: features of sound, and the model on a device. */
#include "voice/whisper.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "device/whisper_device.h"

/* ---- mel features ------------------------------------------------------------------------------------------------ */

/* The spectrum is computed in doubles: values 8 decades below the largest still count. One complex transform serves two
 * frames, one as its real and one as its imaginary part. */

#define PI 3.14159265358979323846

typedef struct complex_number {
    double re, im;
} complex_number;

typedef struct band {
    size_t begin, end; /* bins with a weight */
    const double *weights;
} band;

struct spry_mel {
    size_t n_bands;
    double window[SPRY_MEL_FRAME];
    complex_number roots[SPRY_MEL_FRAME]; /* exp(-2 pi i k / SPRY_MEL_FRAME) */
    band bands[SPRY_MEL_BANDS_MAX];
    double weights[SPRY_MEL_BANDS_MAX][SPRY_MEL_BINS];
};

/* Slaney's scale: linear up to 1 kHz, then logarithmic. */
static double mel_to_hertz(double mel)
{
    const double hertz_per_mel = 200.0 / 3, log_begin = 15, log_step = log(6.4) / 27;
    return mel < log_begin ? hertz_per_mel * mel : 1000 * exp(log_step * (mel - log_begin));
}

static double hertz_to_mel(double hertz)
{
    return hertz < 1000 ? hertz * 3 / 200 : 15 + log(hertz / 1000) * 27 / log(6.4);
}

/* Triangles of area 1 between the centres of their neighbours. */
static void make_bands(spry_mel *mel)
{
    double top = hertz_to_mel(SPRY_VOICE_RATE / 2.0), bin_hertz = (double)SPRY_VOICE_RATE / SPRY_MEL_FRAME;
    for (size_t b = 0; b < mel->n_bands; b++) {
        double edge[3];
        for (size_t i = 0; i < 3; i++)
            edge[i] = mel_to_hertz(top * (double)(b + i) / (double)(mel->n_bands + 1));
        band *own = &mel->bands[b];
        *own = (band){SPRY_MEL_BINS, 0, mel->weights[b]};
        for (size_t bin = 0; bin < SPRY_MEL_BINS; bin++) {
            double hertz = bin_hertz * (double)bin;
            double up = (hertz - edge[0]) / (edge[1] - edge[0]), down = (edge[2] - hertz) / (edge[2] - edge[1]);
            double weight = fmin(up, down);
            if (weight <= 0)
                continue;
            mel->weights[b][bin] = weight * 2 / (edge[2] - edge[0]);
            own->begin = bin < own->begin ? bin : own->begin;
            own->end = bin + 1;
        }
    }
}

spry_status spry_mel_create(spry_mel **out, size_t n_bands, spry_error *error)
{
    *out = NULL;
    if (n_bands < 1 || n_bands > SPRY_MEL_BANDS_MAX)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "%zu mel bands; supported are 1 to %d", n_bands,
                         SPRY_MEL_BANDS_MAX);
    spry_mel *mel = calloc(1, sizeof *mel);
    if (!mel)
        return spry_fail_memory(error, "the mel bands", sizeof *mel);
    mel->n_bands = n_bands;
    for (size_t i = 0; i < SPRY_MEL_FRAME; i++) {
        double angle = 2 * PI * (double)i / SPRY_MEL_FRAME;
        mel->roots[i] = (complex_number){cos(angle), -sin(angle)};
        mel->window[i] = 0.5 - 0.5 * cos(angle);
    }
    make_bands(mel);
    *out = mel;
    return SPRY_OK;
}

void spry_mel_destroy(spry_mel *mel)
{
    free(mel);
}

static const size_t factors[] = {4, 4, 5, 5}; /* factors of SPRY_MEL_FRAME */

/* out[0..n) = the transform of in[0], in[stride], ...; n is the product of the factors from `level` on, and
 * n * stride = SPRY_MEL_FRAME. */
static void transform(const spry_mel *mel, complex_number *out, const complex_number *in, size_t n, size_t stride,
                      size_t level)
{
    if (n == 1) {
        *out = *in;
        return;
    }
    size_t parts = factors[level], m = n / parts;
    for (size_t k = 0; k < parts; k++)
        transform(mel, out + k * m, in + k * stride, m, stride * parts, level + 1);
    for (size_t j = 0; j < m; j++) {
        complex_number part[5];
        for (size_t k = 0; k < parts; k++)
            part[k] = out[k * m + j];
        for (size_t q = 0; q < parts; q++) {
            complex_number sum = part[0];
            size_t step = (j + q * m) * stride, turn = 0;
            for (size_t k = 1; k < parts; k++) {
                turn = turn + step < SPRY_MEL_FRAME ? turn + step : turn + step - SPRY_MEL_FRAME;
                complex_number w = mel->roots[turn];
                sum.re += part[k].re * w.re - part[k].im * w.im;
                sum.im += part[k].re * w.im + part[k].im * w.re;
            }
            out[j + q * m] = sum;
        }
    }
}

typedef struct mel_job {
    const spry_mel *mel;
    float *out;
    const float *samples;
    size_t n_samples, n_frames;
} mel_job;

static double sample_at(const mel_job *job, ptrdiff_t i)
{
    ptrdiff_t total = (ptrdiff_t)(job->n_frames * SPRY_MEL_HOP);
    i = i < 0 ? -i : i >= total ? 2 * (total - 1) - i : i;
    return i >= 0 && (size_t)i < job->n_samples ? (double)job->samples[i] : 0;
}

static void write_bands(const spry_mel *mel, float *out, const double power[SPRY_MEL_BINS])
{
    for (size_t b = 0; b < mel->n_bands; b++) {
        const band *own = &mel->bands[b];
        double sum = 0;
        for (size_t bin = own->begin; bin < own->end; bin++)
            sum += own->weights[bin] * power[bin];
        out[b] = (float)log10(fmax(sum, 1e-10));
    }
}

void spry_mel_frame(const spry_mel *mel, float *out, const float samples[SPRY_MEL_FRAME])
{
    complex_number in[SPRY_MEL_FRAME], spectrum[SPRY_MEL_FRAME];
    double power[SPRY_MEL_BINS];
    for (size_t i = 0; i < SPRY_MEL_FRAME; i++)
        in[i] = (complex_number){mel->window[i] * (double)samples[i], 0};
    transform(mel, spectrum, in, SPRY_MEL_FRAME, 1, 0);
    for (size_t bin = 0; bin < SPRY_MEL_BINS; bin++)
        power[bin] = spectrum[bin].re * spectrum[bin].re + spectrum[bin].im * spectrum[bin].im;
    write_bands(mel, out, power);
}

/* Frames `frame` and frame + 1, of which the second may be past the end. */
static void two_frames(const mel_job *job, size_t frame)
{
    const spry_mel *mel = job->mel;
    complex_number in[SPRY_MEL_FRAME], out[SPRY_MEL_FRAME];
    double power[2][SPRY_MEL_BINS];
    ptrdiff_t first = (ptrdiff_t)(frame * SPRY_MEL_HOP) - SPRY_MEL_FRAME / 2;
    for (ptrdiff_t i = 0; i < SPRY_MEL_FRAME; i++)
        in[i] = (complex_number){mel->window[i] * sample_at(job, first + i),
                                 mel->window[i] * sample_at(job, first + SPRY_MEL_HOP + i)};
    transform(mel, out, in, SPRY_MEL_FRAME, 1, 0);
    for (size_t bin = 0; bin < SPRY_MEL_BINS; bin++) {
        complex_number a = out[bin], b = out[(SPRY_MEL_FRAME - bin) % SPRY_MEL_FRAME];
        double re = a.re + b.re, im = a.im - b.im; /* twice the first frame's */
        power[0][bin] = (re * re + im * im) / 4;
        re = a.im + b.im;
        im = b.re - a.re;
        power[1][bin] = (re * re + im * im) / 4;
    }
    for (size_t i = 0; i < 2 && frame + i < job->n_frames; i++)
        write_bands(mel, job->out + (frame + i) * mel->n_bands, power[i]);
}

static void frames_part(void *context, size_t worker, size_t n_workers)
{
    const mel_job *job = context;
    size_t begin, end;
    spry_threads_part(&begin, &end, job->n_frames, 2, worker, n_workers);
    for (size_t frame = begin; frame < end; frame += 2)
        two_frames(job, frame);
}

/* Writes out[n_frames, n_bands]. The sound is `samples`, followed by zeros up to n_frames * SPRY_MEL_HOP samples;
 * beyond both ends it is mirrored. */
static void mel_compute(const spry_mel *mel, float *out, const float *samples, size_t n_samples, size_t n_frames,
                        spry_threads *threads)
{
    mel_job job = {mel, out, samples, n_samples, n_frames};
    size_t n = n_frames * mel->n_bands;
    float largest = -INFINITY;
    spry_threads_run(threads, frames_part, &job);
    for (size_t i = 0; i < n; i++)
        largest = out[i] > largest ? out[i] : largest;
    for (size_t i = 0; i < n; i++)
        out[i] = ((out[i] > largest - 8 ? out[i] : largest - 8) + 4) / 4;
}

/* ---- the model --------------------------------------------------------------------------------------------------- */

struct spry_whisper {
    spry_whisper_weights weights;
    spry_ops ops; /* for a device that takes rows as their file has them */
    spry_whisper_device *device;
    spry_threads *threads;
    spry_mel *mel;
    float *features; /* [1 + 2 * n_audio_ctx + 1, n_bands]: a frame of zeros at both ends of the sound */
};

/* The host's kernels, or only the kernels that need no packing, where only the rows are wanted: mapped files are then
 * not copied. */
static spry_status choose_ops(spry_whisper *w, const spry_ops **out, const spry_whisper_options *o, spry_error *error)
{
    const spry_ops *ref;
    spry_status status = spry_ops_get(out, o->kernels, error);
    if (status || !spry_whisper_device_takes_rows(o->device))
        return status;
    status = spry_ops_get(&ref, "ref", error);
    if (status)
        return status;
    w->ops = **out;
    memcpy(w->ops.matmul, ref->matmul, sizeof w->ops.matmul);
    *out = &w->ops;
    return SPRY_OK;
}

spry_status spry_whisper_open(spry_whisper **out, const char *path, const spry_whisper_options *options,
                              spry_error *error)
{
    *out = NULL;
    spry_whisper *w = calloc(1, sizeof *w);
    if (!w)
        return spry_fail_memory(error, "a Whisper model", sizeof *w);
    spry_whisper_setup setup = {.weights = &w->weights};
    const spry_whisper_shape *shape = &w->weights.shape;
    spry_status status = choose_ops(w, &setup.ops, options, error);
    if (status == SPRY_OK)
        status = spry_whisper_weights_open(&w->weights, path, setup.ops, options->type, error);
    if (status == SPRY_OK)
        status = spry_mel_create(&w->mel, shape->n_bands, error);
    if (status == SPRY_OK) {
        size_t frames = 2 * (size_t)shape->n_audio_ctx + 2;
        w->features = calloc(frames * shape->n_bands, sizeof *w->features);
        status = w->features ? spry_threads_create(&w->threads, options->threads, error)
                             : spry_fail_memory(error, "features of sound", frames * shape->n_bands);
    }
    setup.threads = w->threads;
    if (status == SPRY_OK)
        status = spry_whisper_device_open(&w->device, options->device, &setup, &options->log, error);
    if (status != SPRY_OK) {
        spry_whisper_close(w);
        return status;
    }
    *out = w;
    return SPRY_OK;
}

void spry_whisper_close(spry_whisper *w)
{
    if (!w)
        return;
    if (w->device)
        w->device->ops->close(w->device);
    spry_threads_destroy(w->threads);
    free(w->features);
    spry_mel_destroy(w->mel);
    spry_whisper_weights_close(&w->weights);
    free(w);
}

const spry_whisper_weights *spry_whisper_model(const spry_whisper *whisper)
{
    return &whisper->weights;
}

size_t spry_whisper_window(const spry_whisper *whisper)
{
    return (size_t)whisper->weights.shape.n_audio_ctx * 2 * SPRY_MEL_HOP;
}

const float *spry_whisper_features(const spry_whisper *whisper)
{
    return whisper->features + whisper->weights.shape.n_bands;
}

spry_status spry_whisper_states(spry_whisper *whisper, const float **states, spry_error *error)
{
    return whisper->device->ops->states(whisper->device, states, error);
}

static spry_status run(spry_whisper *w, const spry_whisper_step *step, spry_error *error)
{
    spry_status status = w->device->ops->submit(w->device, step, error);
    return status ? status : w->device->ops->wait(w->device, error);
}

spry_status spry_whisper_encode(spry_whisper *w, const float *samples, size_t n_samples, size_t n_states,
                                spry_error *error)
{
    size_t most = n_states * 2 * SPRY_MEL_HOP, n_bands = w->weights.shape.n_bands;
    mel_compute(w->mel, w->features + n_bands, samples, n_samples < most ? n_samples : most, 2 * n_states, w->threads);
    memset(w->features + (1 + 2 * n_states) * n_bands, 0, n_bands * sizeof *w->features);
    return run(w, &(spry_whisper_step){.features = w->features, .n_states = n_states}, error);
}

spry_status spry_whisper_decode(spry_whisper *w, const float **logits, const int32_t *ids, size_t count, size_t past,
                                spry_error *error)
{
    spry_status status = run(w, &(spry_whisper_step){.tokens = ids, .n_tokens = count, .past = past}, error);
    return status ? status : w->device->ops->logits(w->device, logits, error);
}
