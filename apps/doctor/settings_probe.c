/* Measures what the choice of settings needs beside the machine's speeds. */
#include "cli/model_source.h"
#include "doctor/machine_settings.h"
#include "platform/clock.h"

enum { PROMPT = 512, TRIES = 2 };

/* Prompt tokens a second, the best of some tries. */
static spry_status measure_prefill(double *tps, spry_engine *engine, uint32_t chunk, spry_error *error)
{
    int32_t ids[PROMPT];
    spry_engine_info info;
    spry_steps *steps = NULL;
    spry_engine_describe(engine, &info);
    for (uint32_t i = 0; i < PROMPT; i++)
        ids[i] = (int32_t)((i * 2654435761u >> 8) % info.vocabulary);
    spry_status status = spry_steps_create(&steps, engine, 1, error);
    for (int try = 0; !status && try < TRIES; try++) {
        uint64_t began = spry_clock_ns();
        spry_steps_truncate(steps, 0);
        for (uint32_t at = 0; !status && at < PROMPT; at += chunk) {
            uint32_t left = PROMPT - at, count = left < chunk ? left : chunk;
            status = spry_steps_prefill(steps, ids + at, count, at + count == PROMPT, error);
        }
        double now = PROMPT * 1e9 / (double)(spry_clock_ns() - began + 1);
        *tps = now > *tps ? now : *tps;
    }
    spry_steps_destroy(steps);
    return status;
}

static spry_status measure_chunk(double *tps, uint32_t chunk, uint32_t threads, spry_error *error)
{
    spry_model_source source;
    spry_engine *engine = NULL;
    spry_engine_options options;
    spry_engine_options_default(&options);
    options.chunk = chunk;
    options.threads = threads;
    options.context = 2 * PROMPT;
    options.data_is_mapped = true;
    spry_status status = spry_model_source_find(&source, NULL, NULL, error);
    if (!status)
        status = spry_model_source_engine(&engine, &source, &options, error);
    if (!status)
        status = measure_prefill(tps, engine, chunk, error);
    spry_engine_close(engine);
    spry_model_source_deinit(&source);
    return status;
}

spry_status spry_settings_measure(spry_settings_evidence *evidence, const spry_machine_profile *profile,
                                  const spry_speed_progress *progress, spry_error *error)
{
    const spry_hardware *h = &profile->hardware;
    uint32_t threads = profile->speed.threads;
    spry_status status = SPRY_OK;
    *evidence = (spry_settings_evidence){.chunks = {64, SPRY_SETTINGS_CHUNK, 256, 512}};
    for (size_t i = 0; !status && i < SPRY_SETTINGS_CHUNKS; i++)
        status = measure_chunk(&evidence->chunk_tps[i], evidence->chunks[i], threads, error);
    if (!status && h->cores && h->cores < threads)
        status = spry_machine_speed_measure(&evidence->on_cores, "auto", h->cores, progress, error);
    return status;
}
