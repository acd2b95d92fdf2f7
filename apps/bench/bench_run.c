/* Measures one model: the first token of a new process, load, prefill, decode of one sequence, decode of batches, the
 * batch size of offline mode, a request through a session, and memory. Nothing is measured when the machine or the
 * model differs from the one it would be compared with. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/bench_gate.h"
#include "bench/bench_runner.h"
#include "cli/interrupt.h"
#include "platform/clock.h"
#include "platform/memory.h"

spry_status spry_bench_go_on(spry_bench_runner *r)
{
    spry_progress_update(&r->line, r->measured, r->to_measure);
    if (spry_interrupt_seen())
        return spry_fail(r->error, SPRY_ERR_CANCELLED, "interrupted; nothing is reported");
    return SPRY_OK;
}

/* A model without a tokenizer cannot answer by itself; the rest is measured. */
static spry_status measure_first_token(spry_bench_runner *r)
{
    double ms[SPRY_BENCH_REPEAT_MAX], warm;
    snprintf(r->doing, sizeof r->doing, "first token of a new process:");
    spry_status status = spry_bench_first_token(&warm, r->settings, r->source, r->error);
    for (uint32_t i = 0; !status && i < r->settings->repeat; i++) {
        status = spry_bench_go_on(r);
        if (!status)
            status = spry_bench_first_token(&ms[i], r->settings, r->source, r->error);
    }
    r->measured++;
    if (!status)
        r->report->first_token_ms = spry_bench_stat_of(ms, r->settings->repeat);
    return spry_interrupt_seen() ? spry_bench_go_on(r) : SPRY_OK;
}

/* Opens and closes; the last one stays open. */
static spry_status measure_load(spry_bench_runner *r)
{
    double ms[SPRY_BENCH_REPEAT_MAX];
    snprintf(r->doing, sizeof r->doing, "opening the model:");
    spry_status status = SPRY_OK;
    for (uint32_t i = 0; !status && i < r->settings->repeat; i++) {
        spry_engine_close(r->engine);
        r->engine = NULL;
        status = spry_bench_go_on(r);
        uint64_t start = spry_clock_ns();
        spry_model_source source = {0};
        if (!status)
            status =
                spry_open_model(&r->engine, &source, r->model, &r->settings->model, &r->settings->engine, r->error);
        ms[i] = (double)(spry_clock_ns() - start) / 1e6;
        spry_model_source_deinit(&source);
    }
    r->measured++;
    if (!status)
        r->report->load_ms = spry_bench_stat_of(ms, r->settings->repeat);
    return status;
}

/* Ids that rarely repeat, like text. */
static spry_status make_text(spry_bench_runner *r, size_t n_vocab)
{
    r->n_ids = r->context > SPRY_STEPS_MAX ? r->context : SPRY_STEPS_MAX;
    r->ids = malloc(r->n_ids * sizeof *r->ids);
    if (!r->ids)
        return spry_fail_memory(r->error, "synthetic text", r->n_ids * sizeof *r->ids);
    uint64_t state = 1;
    for (size_t i = 0; i < r->n_ids; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        r->ids[i] = (int32_t)((state >> 33) % n_vocab);
    }
    return SPRY_OK;
}

/* ---- what and where ------------------------------------------------------------------------------------------------
 */

/* Identifies model and machine. */
static spry_status identify(spry_bench_runner *r)
{
    const spry_bench_machine *machine = &r->report->machine;
    spry_bench_identity *identity = &r->report->identity;
    const spry_engine_options *options = &r->settings->engine.options;
    spry_status status = spry_bench_machine_name(&r->report->machine, options, r->error);
    if (status)
        return status;
    identity->threads = machine->threads;
    identity->chunk = options->chunk;
    identity->tokens = r->settings->tokens;
    memcpy(identity->machine, machine->id, sizeof identity->machine);
    memcpy(identity->cpu, machine->cpu, sizeof identity->cpu);
    snprintf(identity->kernels, sizeof identity->kernels, "%s", machine->kernels);
    snprintf(identity->model_name, sizeof identity->model_name, "%s", r->report->model);
    snprintf(identity->kv_type, sizeof identity->kv_type, "%s", options->kv_type);
    snprintf(identity->quantize, sizeof identity->quantize, "%s", options->quantize ? options->quantize : "");
    return SPRY_OK;
}

/* The properties of the open engine. */
static spry_status describe(spry_bench_runner *r)
{
    spry_bench_report *report = r->report;
    spry_engine_info info;
    spry_engine_describe(r->engine, &info);
    r->context = (uint32_t)info.context;
    r->chunk = info.chunk;
    report->architecture = info.architecture;
    report->parameters = info.parameters;
    report->weight_bytes = info.weight_bytes;
    report->main_type = (spry_dtype)spry_engine_main_type(r->engine);
    report->device = spry_engine_device_kind(r->engine);
    report->repeat = r->settings->repeat;
    report->context = r->context;
    spry_time_text(report->when, (int64_t)time(NULL));
    spry_status status = SPRY_OK;
    if (report->machine.gpu[0] && strcmp(report->device, "cuda") != 0) /* the log says why */
        status = spry_bench_machine_without_gpu(&report->machine, &r->settings->engine.options, r->error);
    snprintf(report->identity.kernels, sizeof report->identity.kernels, "%s", report->machine.kernels);
    return status;
}

/* Reads once: the memory of a GPU's library counts as the program's, for every model. */
static spry_status open_meter(spry_bench_runner *r)
{
    spry_joules none;
    spry_status status = spry_energy_open(&r->energy, "", r->error);
    spry_energy_read(r->energy, &none);
    return status;
}

/* ---- memory --------------------------------------------------------------------------------------------------------
 */

static void estimate_memory(spry_bench_runner *r, const spry_bench_needs *needs)
{
    const spry_model_source *s = r->source;
    uint32_t chunk = r->settings->engine.options.chunk;
    spry_memory_use use;
    spry_memory_use_default(&use);
    use.tokens = needs->pages * SPRY_PAGE_TOKENS;
    use.rows = needs->rows < chunk ? needs->rows : chunk;
    spry_error error;
    if (spry_memory_estimate(&r->report->memory.estimated, s->data ? s->name : s->path, s->data, s->size,
                             &r->settings->engine.options, &use, &error))
        snprintf(r->report->memory.why_not, sizeof r->report->memory.why_not, "%.*s", 150, error.message);
}

static void measure_memory(spry_bench_runner *r)
{
    spry_error error;
    if (spry_memory_measure(&r->report->memory.measured, r->engine, &error))
        snprintf(r->report->memory.why_not, sizeof r->report->memory.why_not, "%.*s", 150, error.message);
}

/* ---- all of it -----------------------------------------------------------------------------------------------------
 */

static spry_status make_room(spry_bench_runner *r, const spry_bench_needs *needs)
{
    size_t steps = (size_t)r->settings->tokens * r->settings->repeat,
           policy = SPRY_BENCH_POLICY_WARM + SPRY_POLICY_STEPS;
    steps = steps < policy ? policy : steps;
    r->step_ms = malloc(steps * sizeof *r->step_ms);
    if (!r->step_ms)
        return spry_fail_memory(r->error, "the times of steps", steps * sizeof *r->step_ms);
    spry_engine_info info;
    spry_engine_describe(r->engine, &info);
    spry_status status = make_text(r, info.vocabulary);
    return status ? status : spry_steps_create(&r->steps, r->engine, needs->batch, r->error);
}

static spry_status measure_points(spry_bench_runner *r, const spry_bench_needs *needs)
{
    spry_status status = make_room(r, needs);
    if (!status)
        status = spry_bench_measure_stage(r, SPRY_BENCH_PREFILL);
    if (!status)
        status = spry_bench_measure_stage(r, SPRY_BENCH_ONE);
    r->report->one_peak_bytes = spry_memory_peak();
    if (!status)
        status = spry_bench_measure_stage(r, SPRY_BENCH_BATCHES);
    if (!status)
        status = spry_bench_measure_policy(r);
    r->report->peak_bytes = spry_memory_peak();
    measure_memory(r);
    spry_steps_destroy(r->steps);
    r->steps = NULL;
    return status;
}

static spry_status measure_all(spry_bench_runner *r, const spry_bench_needs *needs)
{
    spry_status status = measure_first_token(r);
    r->settings->engine.options.context = needs->context;
    r->settings->engine.options.sessions = needs->sessions;
    if (!status)
        status = open_meter(r);
    estimate_memory(r, needs);
    if (!status)
        status = measure_load(r);
    if (status)
        return status;
    status = describe(r);
    if (!status)
        status = measure_points(r, needs);
    if (!status)
        status = spry_bench_measure_ttft(r);
    if (!status)
        status = spry_bench_measure_call(r);
    if (!status)
        status = spry_bench_measure_answer(r);
    if (!status)
        spry_energy_describe(r->energy, &r->report->energy);
    return status;
}

/* Reads the model's file, without opening an engine, to see what can be run. */
static spry_status plan(spry_bench_runner *r, spry_bench_needs *needs)
{
    const spry_engine_options *options = &r->settings->engine.options;
    const spry_model_file file = spry_model_source_file(r->source);
    spry_checkpoint checkpoint;
    spry_status status = spry_checkpoint_read(&checkpoint, &file, options->kv_type, r->error);
    if (status)
        return status;
    spry_bench_plan(r->report, needs, r->settings, &checkpoint);
    status = spry_checkpoint_fingerprint(r->report->identity.model, &file, options->threads, r->error);
    if (!status)
        status = identify(r);
    if (!status && r->settings->like)
        status = spry_bench_identity_check(r->settings->like, r->settings->like_what, &r->report->identity, r->error);
    r->to_measure = 4 + r->report->policy.count;
    for (size_t i = 0; i < r->report->n_points; i++)
        r->to_measure += !r->report->points[i].skipped[0];
    return status;
}

spry_status spry_bench_run(spry_bench_report *report, spry_bench_settings *settings, const char *model,
                           const spry_model_source *source, spry_error *error)
{
    spry_bench_runner r = {.report = report, .settings = settings, .model = model, .source = source, .error = error};
    spry_bench_needs needs;
    spry_progress_begin(&r.line, r.doing);
    spry_status status = plan(&r, &needs);
    if (!status)
        status = measure_all(&r, &needs);
    spry_progress_end(&r.line);
    spry_steps_destroy(r.steps);
    spry_engine_close(r.engine);
    spry_energy_close(r.energy);
    free(r.step_ms);
    free(r.ids);
    return status;
}
