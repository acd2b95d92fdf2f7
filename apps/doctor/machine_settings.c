/* Choices keep the default unless a measurement is clearly better. */
#include "doctor/machine_profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/dtype.h"
#include "cli/model_source.h"
#include "cli/settings_profile.h"
#include "platform/clock.h"
#include "platform/file.h"

enum { PARALLEL_LEAST = 2, PARALLEL_SIZES = 6, PARALLEL_MAX = 1 << (PARALLEL_SIZES - 1) };

static const double clearly = 1.1;              /* a chunk is taken instead of the default from this gain on */
static const double worthwhile = 1.3;           /* weights are quantised from this gain on */
static const char speed_shape[] = "qwen3-1.7b"; /* settings are chosen by the expected speed of this shape */

/* ---- choosing ---------------------------------------------------------------------------------------------------- */

static spry_chosen_setting *add(spry_chosen_settings *out, const char *command, const char *key)
{
    spry_chosen_setting *s = &out->list[out->count++];
    *s = (spry_chosen_setting){.command = command, .key = key};
    return s;
}

static void choose_threads(spry_chosen_settings *out, const spry_machine_profile *p, const spry_settings_evidence *e)
{
    spry_chosen_setting *s = add(out, NULL, "threads");
    spry_prediction all = {0}, cores = {0};
    spry_error error;
    s->number = p->speed.threads;
    if (!e->on_cores.threads || spry_predict_shape(&all, &p->speed, speed_shape, "q8_0", &error) ||
        spry_predict_shape(&cores, &e->on_cores, speed_shape, "q8_0", &error)) {
        snprintf(s->why, sizeof s->why, "every processor available: there are no more of them than cores");
        return;
    }
    bool fewer = cores.decode_tps >= all.decode_tps && cores.prefill_tps >= all.prefill_tps;
    s->number = fewer ? e->on_cores.threads : p->speed.threads;
    snprintf(s->why, sizeof s->why,
             "%s as q8_0 is expected to read %.0f and write %.1f tokens/s with %u threads, %.0f and %.1f with %u, one "
             "a core",
             speed_shape, all.prefill_tps, all.decode_tps, p->speed.threads, cores.prefill_tps, cores.decode_tps,
             e->on_cores.threads);
}

static void choose_chunk(spry_chosen_settings *out, const spry_settings_evidence *e)
{
    spry_chosen_setting *s = add(out, NULL, "chunk");
    size_t usual = 0, best = 0, used = 0;
    for (size_t i = 0; i < SPRY_SETTINGS_CHUNKS; i++) {
        if (e->chunks[i] == SPRY_SETTINGS_CHUNK)
            usual = i;
        if (e->chunk_tps[i] > e->chunk_tps[best])
            best = i;
        used += (size_t)snprintf(s->why + used, sizeof s->why - used, "%s%.0f with %u", i ? ", " : "", e->chunk_tps[i],
                                 e->chunks[i]);
    }
    size_t chosen = e->chunk_tps[best] > clearly * e->chunk_tps[usual] ? best : usual;
    s->number = e->chunks[chosen];
    snprintf(s->why + used, sizeof s->why - used,
             " prompt tokens/s with the bundled model; another than %d must be a tenth faster", SPRY_SETTINGS_CHUNK);
}

static const spry_candidate *find_candidate(const spry_machine_profile *p, const char *type)
{
    for (size_t i = 0; i < p->n_candidates; i++)
        if (strcmp(p->candidates[i].shape, speed_shape) == 0 && strcmp(p->candidates[i].type, type) == 0)
            return &p->candidates[i];
    return NULL;
}

static void choose_types(spry_chosen_settings *out, const spry_machine_profile *p)
{
    const spry_candidate *floats = find_candidate(p, "f16"), *bytes = find_candidate(p, "q8_0");
    spry_chosen_setting *kv = add(out, NULL, "kv_type");
    snprintf(kv->value, sizeof kv->value, "auto");
    snprintf(kv->why, sizeof kv->why,
             "f16; q8_0, half the memory, where a full context of f16 does not fit into what is left of %.1f GB",
             (double)p->hardware.usable_bytes / 1e9);
    if (!floats || !bytes)
        return;
    double before = floats->predicted.decode_tps, after = bytes->predicted.decode_tps;
    bool pays = after >= worthwhile * before;
    spry_chosen_setting *weights = pays ? add(out, NULL, "quantize") : NULL;
    if (!weights)
        return;
    snprintf(weights->value, sizeof weights->value, "auto");
    snprintf(weights->why, sizeof weights->why,
             "q8_0 for models of floats: %s is expected to write %.1f tokens/s as q8_0 and %.1f as f16", speed_shape,
             after, before);
}

/* How many rows are multiplied in the time that reading the weights of one takes. */
static double rows_of_one(const spry_machine_speed *speed)
{
    const spry_type_speed *q8 = &speed->types[SPRY_Q8_0];
    size_t bytes = 0;
    if (!spry_dtype_size(&bytes, SPRY_Q8_0, 32) || !(q8->decode_gb_s > 0))
        return 1;
    return q8->multiply_g_s / (q8->decode_gb_s * 32 / (double)bytes);
}

/* The size that the policy offline takes where steps last as long as reading the weights until that many rows are
 * multiplied meanwhile, and then grow with the rows. */
static void choose_parallel(spry_chosen_setting *parallel, double rows)
{
    spry_policy_step steps[PARALLEL_SIZES * SPRY_POLICY_STEPS];
    char why[160];
    for (uint32_t i = 0; i < SPRY_COUNT(steps); i++) {
        uint32_t size = 1u << i / SPRY_POLICY_STEPS;
        steps[i] = (spry_policy_step){size, size > rows ? size / rows : 1};
    }
    uint32_t taken = spry_policy_choose(why, sizeof why, SPRY_POLICY_OFFLINE, PARALLEL_MAX, steps, SPRY_COUNT(steps));
    parallel->number = taken < PARALLEL_LEAST ? PARALLEL_LEAST : taken;
    snprintf(
        parallel->why, sizeof parallel->why,
        "%.1f rows are multiplied in the time that reading the weights takes: the policy offline takes %u together; "
        "at least %d, so that a short request need not wait for a long one",
        rows, taken, PARALLEL_LEAST);
}

static void choose_batches(spry_chosen_settings *out, const spry_machine_profile *p)
{
    double rows = rows_of_one(&p->speed);
    spry_chosen_setting *draft = add(out, NULL, "draft");
    snprintf(draft->value, sizeof draft->value, "%s", rows >= 2 ? "auto" : "none");
    snprintf(draft->why, sizeof draft->why, "%.1f rows are multiplied in the time that reading the weights takes%s",
             rows,
             rows >= 2 ? ": drafted tokens cost little, as long as they are accepted" : ": drafts would cost more");
    spry_chosen_setting *policy = add(out, "serve", "policy"), *parallel = add(out, "serve", "parallel");
    snprintf(policy->value, sizeof policy->value, "auto");
    snprintf(policy->why, sizeof policy->why, "every request begins at once; throughput counts when many wait");
    choose_parallel(parallel, rows);
    spry_chosen_setting *batch = add(out, "batch", "policy");
    snprintf(batch->value, sizeof batch->value, "throughput");
    snprintf(batch->why, sizeof batch->why,
             "a file of requests has no deadline: the most tokens a second finish it soonest");
}

void spry_settings_choose(spry_chosen_settings *out, const spry_machine_profile *profile,
                          const spry_settings_evidence *evidence)
{
    out->count = 0;
    choose_threads(out, profile, evidence);
    choose_chunk(out, evidence);
    choose_types(out, profile);
    choose_batches(out, profile);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static json_t *value_json(const spry_chosen_setting *s)
{
    return s->number ? json_integer(s->number) : json_string(s->value);
}

static bool add_setting(json_t *settings, json_t *why, const spry_chosen_setting *s)
{
    char key[64];
    snprintf(key, sizeof key, "%s%s%s", s->command ? s->command : "", s->command ? "." : "", s->key);
    json_t *into = settings;
    if (s->command && !json_object_get(settings, s->command))
        json_object_set_new(settings, s->command, json_object());
    if (s->command)
        into = json_object_get(settings, s->command);
    return json_object_set_new(into, s->key, value_json(s)) == 0 &&
           json_object_set_new(why, key, json_string(s->why)) == 0;
}

/* What counts as fast enough until the user says otherwise: the speed of the balanced choice. */
static json_t *usual_targets(void)
{
    return json_pack("{s:{s:i}, s:i}", "decode_tps", "0", 10, "ttft_cold_ms", 8000);
}

static json_t *section_json(const spry_chosen_settings *chosen, const spry_machine_profile *profile,
                            const json_t *before)
{
    char when[SPRY_TIME_TEXT];
    json_t *settings = json_object(), *why = json_object(), *targets = json_object_get(before, "targets");
    bool whole = settings && why;
    for (size_t i = 0; whole && i < chosen->count; i++)
        whole = add_setting(settings, why, &chosen->list[i]);
    spry_time_text(when, (int64_t)time(NULL));
    json_t *section = json_pack("{s:s, s:s, s:o, s:o, s:o}", "cpu", profile->hardware.cpu, "written", when, "settings",
                                settings, "why", why, "targets", targets ? json_incref(targets) : usual_targets());
    if (whole)
        return section;
    json_decref(section);
    return NULL;
}

spry_status spry_settings_write(const spry_chosen_settings *settings, const spry_machine_profile *profile,
                                spry_error *error)
{
    const spry_settings_profile *loaded = spry_settings_profile_get();
    if (!loaded->path)
        return spry_fail(error, SPRY_ERR_INPUT, "there is no file for the profile: name one with --profile");
    json_t *document = loaded->document ? json_deep_copy(loaded->document)
                                        : json_pack("{s:s, s:{}}", "format", SPRY_SETTINGS_FORMAT, "machines");
    json_t *section = section_json(settings, profile, loaded->section);
    bool whole =
        document && section && json_object_set(json_object_get(document, "machines"), loaded->id, section) == 0;
    spry_status status = spry_file_write_json(loaded->path, whole ? document : NULL, JSON_INDENT(2), error);
    json_decref(section);
    json_decref(document);
    return status;
}

/* ---- measuring -------------------------------------------------------------------------------------------------- */

/* Measures what the choice of settings needs beside the machine's speeds. */
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
