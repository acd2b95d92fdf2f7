/* What every kind of measurement shares: the machine, the head of the report, the engine, synthetic text, and the loop
 * that repeats a measurement. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/number.h"
#include "bench/bench.h"
#include "cli/interrupt.h"
#include "platform/clock.h"
#include "platform/memory.h"
#include "platform/threads.h"

/* ---- the machine ------------------------------------------------------------------------------------------------- */

/* Finds the GPU that `device` names, with its read speed if `measure`; false: it names none, or there is none. */
static bool find_gpu(spry_gpu *out, const char *device, bool measure)
{
    uint64_t index = 0;
    if (device && strcmp(device, "auto") == 0)
        device = "cuda";
    if (!device || strncmp(device, "cuda", 4) != 0 || (device[4] && device[4] != ':') ||
        (device[4] && !spry_number_u64(&index, spry_view_of(device + 5))))
        return false;
    spry_gpus *gpus = calloc(1, sizeof *gpus);
    if (!gpus)
        return false;
    spry_gpus_open(gpus, SPRY_CUDA_LIBRARY, "");
    if (measure)
        spry_gpus_measure(gpus);
    bool found = index < gpus->count;
    if (found)
        *out = gpus->list[index];
    spry_gpus_close(gpus);
    free(gpus);
    return found;
}

spry_status spry_bench_machine_json(json_t **out, const spry_engine_options *options, spry_error *error)
{
    char cpu[SPRY_PROCESSOR_NAME_MAX], kernels[SPRY_KERNELS_NAME], id[SPRY_MACHINE_ID];
    const uint32_t threads = options->threads ? options->threads : (uint32_t)spry_threads_usable();
    const size_t memory = spry_memory_total();
    spry_gpu gpu;
    spry_status status = spry_kernels_name(kernels, options->cpu, error);
    if (status)
        return status;
    spry_processor_name(cpu);
    spry_machine_id(id, cpu, threads, kernels, memory);
    const bool has_gpu = find_gpu(&gpu, options->device, false);
    *out = json_pack("{s:s, s:I, s:s, s:I, s:s}", "cpu", cpu, "threads", (json_int_t)threads, "kernels",
                     has_gpu ? "cuda" : kernels, "memory_bytes", (json_int_t)memory, "id", id);
    if (has_gpu)
        json_object_set_new(*out, "gpu", json_string(gpu.name));
    return *out ? SPRY_OK : spry_fail_memory(error, "the machine's name", 0);
}

spry_status spry_bench_machine_measure(spry_bench *b)
{
    const spry_engine_options *options = &b->flags->engine.options;
    json_t *machine = json_object_get(b->report, "machine");
    const bool has_gpu = json_object_get(machine, "gpu");
    double read_gb_s = 0, multiply_g_s = 0; /* limits that are not known stay 0, and so do shares of them */
    spry_gpu gpu;
    spry_status status = SPRY_OK;
    if (has_gpu && find_gpu(&gpu, options->device, true)) {
        read_gb_s = gpu.read_gb_s;
        multiply_g_s = spry_gpu_peak(&gpu) / 2 / 1e9;
    } else if (!has_gpu) {
        status = spry_machine_peaks(&read_gb_s, &multiply_g_s, options->cpu,
                                    (uint32_t)spry_bench_number(machine, "threads"), b->main_type, b->error);
    }
    json_object_set_new(machine, "read_gb_s", json_real(read_gb_s));
    json_object_set_new(machine, "multiply_g_s", json_real(multiply_g_s));
    json_object_set_new(machine, "multiply_type", json_string(has_gpu ? "F16" : spry_dtype_name(b->main_type)));
    return status;
}

/* ---- the report -------------------------------------------------------------------------------------------------- */

void spry_bench_put(spry_bench *b, const char *key, json_t *value)
{
    b->lacks_memory = json_object_set_new(b->report, key, value) != 0 || b->lacks_memory;
}

void spry_bench_put_figure(spry_bench *b, const char *what, spry_bench_unit unit, bool less_is_better, double value)
{
    json_t *figures = json_object_get(b->report, "figures");
    if (!figures)
        spry_bench_put(b, "figures", figures = json_array());
    for (size_t i = 0; i < json_array_size(figures); i++)
        if (strcmp(spry_bench_text(json_array_get(figures, i), "what"), what) == 0)
            return; /* measured twice */
    json_t *figure = json_pack("{s:o, s:s, s:s, s:f}", "what", spry_bench_text_json(what), "unit",
                               spry_bench_unit_name(unit), "better", less_is_better ? "less" : "more", "value", value);
    b->lacks_memory = json_array_append_new(figures, figure) != 0 || b->lacks_memory;
}

json_t *spry_bench_positive_json(double value)
{
    return value > 0 ? json_real(value) : json_null();
}

/* The properties by which reports are recognised as comparable. */
static spry_status put_head(spry_bench *b, const char *format)
{
    const spry_engine_options *o = &b->flags->engine.options;
    const spry_model_file file = spry_model_source_file(b->source);
    char fingerprint[40], when[SPRY_TIME_TEXT];
    static const char *const of_the_engine[] = {"architecture", "parameters", "weight_bytes", "main_type"};
    json_t *machine = NULL;
    spry_status status = spry_bench_machine_json(&machine, o, b->error);
    if (!status)
        status = spry_checkpoint_fingerprint(fingerprint, &file, o->threads, b->error);
    if (status) {
        json_decref(machine);
        return status;
    }
    spry_bench_put(b, "format", json_string(format));
    spry_bench_put(b, "spry", json_string(spry_version()));
    spry_bench_put(b, "when", json_string(spry_time_text(when, (int64_t)time(NULL))));
    spry_bench_put(b, "model", spry_bench_text_json(b->name));
    for (size_t i = 0; i < SPRY_COUNT(of_the_engine); i++)
        spry_bench_put(b, of_the_engine[i], json_null());
    spry_bench_put(b, "model_id", json_string(fingerprint));
    spry_bench_put(b, "machine", machine);
    spry_bench_put(b, "settings",
                   json_pack("{s:I, s:s, s:I, s:I, s:n, s:s?}", "chunk", (json_int_t)o->chunk, "kv_type", o->kv_type,
                             "tokens", (json_int_t)b->flags->tokens, "repeat", (json_int_t)b->flags->repeat, "context",
                             "quantize", o->quantize));
    return SPRY_OK;
}

spry_status spry_bench_check_baseline(spry_bench *b)
{
    const spry_bench_judge *judge = &b->flags->judge;
    return judge->baseline && !judge->force
               ? spry_bench_check_same(judge->baseline, judge->baseline_path, b->report, b->error)
               : SPRY_OK;
}

spry_status spry_bench_run(spry_bench *b, const spry_bench_kind *kind)
{
    b->report = json_object();
    b->passed = true;
    spry_progress_begin(&b->line, b->doing);
    spry_status status = put_head(b, kind->format);
    if (!status)
        status = kind->measure(b);
    spry_progress_end(&b->line);
    spry_bench_close(b);
    free(b->ids);
    b->ids = NULL;
    if (!status && b->lacks_memory)
        status = spry_fail(b->error, SPRY_ERR_MEMORY, "not enough memory for the report as JSON");
    return status;
}

/* ---- the engine -------------------------------------------------------------------------------------------------- */

spry_status spry_bench_describe(spry_bench *b)
{
    spry_engine_info info;
    spry_status status = SPRY_OK;
    spry_engine_describe(b->engine, &info);
    b->context = (uint32_t)info.context;
    b->chunk = info.chunk;
    b->main_type = (spry_dtype)spry_engine_main_type(b->engine);
    json_t *machine = json_object_get(b->report, "machine");
    if (json_object_get(machine, "gpu") && strcmp(spry_engine_device_kind(b->engine), "cuda") != 0) {
        char kernels[SPRY_KERNELS_NAME]; /* the log says why the GPU is not used */
        status = spry_kernels_name(kernels, b->flags->engine.options.cpu, b->error);
        json_object_del(machine, "gpu");
        json_object_set_new(machine, "kernels", status ? json_null() : json_string(kernels));
    }
    spry_bench_put(b, "architecture", json_string(info.architecture));
    if (spry_engine_why_cpu(b->engine)[0])
        spry_bench_put(b, "why_cpu", spry_bench_text_json(spry_engine_why_cpu(b->engine)));
    spry_bench_put(b, "parameters", json_integer((json_int_t)info.parameters));
    spry_bench_put(b, "weight_bytes", json_integer((json_int_t)info.weight_bytes));
    spry_bench_put(b, "main_type", json_string(spry_dtype_name(b->main_type)));
    json_object_set_new(json_object_get(b->report, "settings"), "context", json_integer((json_int_t)b->context));
    return status;
}

spry_status spry_bench_open(spry_bench *b, const char *cache_dir, bool with_session)
{
    spry_engine_options options = b->flags->engine.options;
    options.cache_dir = cache_dir ? cache_dir : options.cache_dir;
    spry_status status = spry_model_source_engine(&b->engine, b->source, &options, b->error);
    if (!status)
        status = spry_bench_describe(b);
    return status || !with_session ? status : spry_session_create(&b->session, b->engine, b->error);
}

void spry_bench_close(spry_bench *b)
{
    spry_session_destroy(b->session);
    spry_engine_close(b->engine);
    b->session = NULL;
    b->engine = NULL;
}

spry_status spry_bench_make_text(spry_bench *b, size_t count)
{
    spry_engine_info info;
    uint64_t state = 1;
    spry_engine_describe(b->engine, &info);
    free(b->ids);
    b->n_ids = count;
    b->ids = malloc(count * sizeof *b->ids);
    if (!b->ids)
        return spry_fail_memory(b->error, "synthetic text", count * sizeof *b->ids);
    for (size_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        b->ids[i] = (int32_t)((state >> 33) % info.vocabulary);
    }
    return SPRY_OK;
}

spry_request spry_bench_request(const int32_t *ids, size_t count, uint32_t max_tokens)
{
    spry_request request;
    spry_request_default(&request);
    request.prompt = ids;
    request.n_prompt = count;
    request.max_tokens = max_tokens;
    request.ignore_end = true;
    request.speculation = SPRY_DRAFT_NONE;
    request.sampling.temperature = 0;
    return request;
}

/* ---- repeating --------------------------------------------------------------------------------------------------- */

double spry_bench_ms_since(uint64_t start_ns)
{
    return (double)(spry_clock_ns() - start_ns) / 1e6;
}

spry_status spry_bench_go_on(spry_bench *b)
{
    spry_progress_update(&b->line, b->done, b->whole);
    if (spry_interrupt_seen())
        return spry_fail(b->error, SPRY_ERR_CANCELLED, "interrupted; nothing is reported");
    return SPRY_OK;
}

spry_status spry_bench_repeat(spry_bench *b, spry_bench_series *out, bool warm_up, spry_bench_once once, void *context)
{
    double values[SPRY_BENCH_SERIES_MAX] = {0};
    spry_status status = spry_bench_go_on(b);
    out->count = 0;
    if (!status && warm_up)
        status = once(b, context, values);
    while (!status && out->count < b->flags->repeat) {
        status = spry_bench_go_on(b);
        if (!status)
            status = once(b, context, values);
        for (size_t i = 0; i < SPRY_BENCH_SERIES_MAX; i++)
            out->values[i][out->count] = values[i];
        out->count += !status;
    }
    b->done++;
    return status;
}
