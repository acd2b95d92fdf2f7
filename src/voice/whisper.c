#include "voice/whisper.h"

#include <stdlib.h>
#include <string.h>

#include "device/whisper_device.h"

struct spry_whisper {
    spry_whisper_weights weights;
    spry_ops ops; /* for a device that takes rows as they lie in files */
    spry_whisper_device *device;
    spry_threads *threads;
    spry_mel *mel;
    float *features; /* [1 + 2 * n_audio_ctx + 1, n_bands]: a frame of zeros at both ends of the sound */
};

/* The host's kernels, or those of them that need no packing where nothing but the rows is wanted: mapped files are then
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
    spry_mel_compute(w->mel, w->features + n_bands, samples, n_samples < most ? n_samples : most, 2 * n_states,
                     w->threads);
    memset(w->features + (1 + 2 * n_states) * n_bands, 0, n_bands * sizeof *w->features);
    return run(w, &(spry_whisper_step){.features = w->features, .n_states = n_states}, error);
}

spry_status spry_whisper_decode(spry_whisper *w, const float **logits, const int32_t *ids, size_t count, size_t past,
                                spry_error *error)
{
    spry_status status = run(w, &(spry_whisper_step){.tokens = ids, .n_tokens = count, .past = past}, error);
    return status ? status : w->device->ops->logits(w->device, logits, error);
}
