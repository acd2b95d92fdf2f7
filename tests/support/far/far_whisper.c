#include "support/far/far_device.h"

#include <stdlib.h>
#include <string.h>

#include "platform/memory.h"

typedef struct far_whisper {
    spry_whisper_device device;
    spry_whisper_device *cpu;
    spry_cpu_region region; /* its memory */
    spry_far_queue queue;
    spry_far_call call; /* the step under way */
    spry_whisper_step step;
    size_t n_vocab, n_audio_state;
    float *rows; /* logits or states that were asked for */
} far_whisper;

static void open_memory(void *device, bool open)
{
    const spry_cpu_region *region = &((const far_whisper *)device)->region;
    far_protect(region->memory, region->bytes, open);
}

static void run_step(void *device, spry_far_call *call)
{
    far_whisper *far = device;
    (void)call;
    far->cpu->ops->submit(far->cpu, &far->step, NULL); /* the CPU refuses nothing */
}

static spry_status submit(spry_whisper_device *device, const spry_whisper_step *step, spry_error *error)
{
    far_whisper *far = (far_whisper *)device;
    (void)error;
    far->step = *step;
    spry_far_queue_start(&far->queue, &far->call);
    return SPRY_OK;
}

static spry_status wait_step(spry_whisper_device *device, spry_error *error)
{
    far_whisper *far = (far_whisper *)device;
    (void)error;
    spry_far_queue_finish(&far->queue, &far->call);
    return SPRY_OK;
}

static void run_logits(void *device, spry_far_call *call)
{
    far_whisper *far = device;
    const float *logits;
    (void)call;
    if (far->cpu->ops->logits(far->cpu, &logits, NULL) == SPRY_OK)
        memcpy(far->rows, logits, far->n_vocab * sizeof *logits);
}

static void run_states(void *device, spry_far_call *call)
{
    far_whisper *far = device;
    const float *states;
    (void)call;
    if (far->cpu->ops->states(far->cpu, &states, NULL) == SPRY_OK)
        memcpy(far->rows, states, far->step.n_states * far->n_audio_state * sizeof *states);
}

static spry_status fetch(spry_whisper_device *device, const float **out, void (*run)(void *, spry_far_call *))
{
    far_whisper *far = (far_whisper *)device;
    spry_far_queue_call(&far->queue, &(spry_far_call){.run = run});
    *out = far->rows;
    return SPRY_OK;
}

static spry_status logits(spry_whisper_device *device, const float **out, spry_error *error)
{
    (void)error;
    return fetch(device, out, run_logits);
}

static spry_status states(spry_whisper_device *device, const float **out, spry_error *error)
{
    (void)error;
    return fetch(device, out, run_states);
}

static void release(far_whisper *far)
{
    if (far->cpu)
        far->cpu->ops->close(far->cpu);
    free(far->rows);
    free(far);
}

static void close_device(spry_whisper_device *device)
{
    far_whisper *far = (far_whisper *)device;
    spry_far_queue_close(&far->queue);
    release(far);
}

spry_cpu_region spry_far_whisper_region(const spry_whisper_device *device)
{
    return ((const far_whisper *)device)->region;
}

spry_status spry_far_whisper_open(spry_whisper_device **out, const char *piece, const spry_whisper_setup *setup,
                                  spry_error *error)
{
    static const spry_whisper_device_ops ops = {
        .close = close_device, .submit = submit, .wait = wait_step, .logits = logits, .states = states};
    const spry_whisper_shape *shape = &setup->weights->shape;
    *out = NULL;
    spry_status status = spry_device_only(&spry_device_kind_far, piece, error);
    if (status)
        return status;
    far_whisper *far = calloc(1, sizeof *far);
    if (!far)
        return spry_fail_memory(error, "a device", sizeof *far);
    far->device.ops = &ops;
    far->call.run = run_step;
    far->n_vocab = shape->n_vocab;
    far->n_audio_state = shape->n_audio_state;
    size_t n_states = (size_t)shape->n_audio_ctx * shape->n_audio_state;
    size_t count = n_states > shape->n_vocab ? n_states : shape->n_vocab;
    far->rows = calloc(count, sizeof *far->rows);
    status = far->rows ? SPRY_OK : spry_fail_memory(error, "a device", count * sizeof *far->rows);
    if (!status)
        status = spry_cpu_whisper_create(&far->cpu, &far->region, setup, true, error);
    if (!status)
        status = spry_far_queue_open(&far->queue, far, open_memory, error);
    if (status)
        release(far);
    else
        *out = &far->device;
    return status;
}
