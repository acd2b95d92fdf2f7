/* The device's function table; opening and closing. */
#include "device/cuda/cuda_device.h"

#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "device/cuda/cuda_state.h"
#include "device/cuda/cuda_whisper.h"
#include "model/arch.h"
#include "platform/clock.h"

/* Sizes of heads are multiples of these: of those up to the first, up to the second, and of larger ones. Vulkan's
 * kernels need the second at least. */
enum { SMALL_HEAD_DIM = 128, HEAD_DIM = 256, SMALL_HEAD_DIM_STEP = 4, HEAD_DIM_STEP = 8, LARGE_HEAD_DIM_STEP = 16 };

static spry_cuda_device *cuda_of(spry_device *device)
{
    return (spry_cuda_device *)device;
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static spry_status start_step(spry_cuda_device *d, const spry_device_step *step, const uint32_t *drawn,
                              spry_error *error)
{
    uint64_t begin_ns = d->watch || d->trace ? spry_clock_ns() : 0;
    if (d->watch)
        spry_cuda_watch_begin(d, begin_ns);
    d->marks.segments = step->segments;
    spry_cuda_tier_pass_step(d, step);
    spry_status status = spry_cuda_upload_step(d, step, drawn, error);
    if (status)
        return status;
    if (step->inputs)
        spry_cuda_write(&d->context, d->scratch.x, step->inputs, d->n_rows * d->config->n_embd * sizeof(float));
    spry_cuda_charge(d, SPRY_OP_EXCHANGE, SPRY_F32, 0, 0);
    spry_cuda_run_graph(d, spry_cuda_run);
    status = spry_cuda_draw_queue(d, step->draws, step->n_draws, error);
    spry_cuda_flush(&d->context);
    if (status) /* the upload is in use until it has been copied */
        spry_cuda_finish(&d->context);
    d->steps[d->newest].draws = step->draws;
    d->steps[d->newest].n_draws = step->n_draws;
    d->steps[d->newest].n_rows = d->n_rows;
    d->steps[d->newest].n_logits = d->n_logits;
    d->steps[d->newest].n_segments = d->n_segments;
    d->steps[d->newest].begin_ns = begin_ns;
    d->steps[d->newest].after = drawn != NULL;
    return status ? status : spry_cuda_fault(&d->context, "starting a step", error);
}

static spry_status submit(spry_device *device, const spry_device_step *step, spry_error *error)
{
    spry_cuda_device *d = cuda_of(device);
    spry_cuda_enter(&d->context);
    return start_step(d, step, NULL, error);
}

/* The other half of the upload and of the draws is free: its step has been waited for. */
static spry_status submit_after(spry_device *device, const spry_device_step *step, const uint32_t *drawn,
                                spry_error *error)
{
    spry_cuda_device *d = cuda_of(device);
    if (d->steps[d->newest].n_queued != d->steps[d->newest].n_draws) /* after an input error, draws and results have
                                                                      * different indices */
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "a draw of the step before failed");
    spry_cuda_enter(&d->context);
    spry_cuda_mark(&d->context);
    d->newest = !d->newest;
    spry_status status = start_step(d, step, drawn, error);
    if (status)
        d->newest = !d->newest;
    d->two = !status;
    return status;
}

static void trace_step(spry_cuda_device *d, size_t which)
{
    const spry_trace_span span = {.name = "step",
                                  .category = "step",
                                  .lane = d->lane,
                                  .begin_ns = d->steps[which].begin_ns,
                                  .end_ns = spry_clock_ns(),
                                  .args = {{"rows", (int64_t)d->steps[which].n_rows},
                                           {"logits", (int64_t)d->steps[which].n_logits},
                                           {"sequences", (int64_t)d->steps[which].n_segments},
                                           {"ahead", d->steps[which].after},
                                           {"waits", (int64_t)(d->context.waits - d->traced_waits)}}};
    d->traced_waits = d->context.waits;
    spry_trace_add(d->trace, &span);
}

static spry_status wait_step(spry_device *device, spry_error *error)
{
    spry_cuda_device *d = cuda_of(device);
    size_t which = d->two ? !d->newest : d->newest;
    spry_cuda_enter(&d->context);
    if (d->two)
        spry_cuda_finish_marked(&d->context);
    else if (d->watch && d->marks.under_way)
        spry_cuda_watch_end(d);
    else
        spry_cuda_finish(&d->context);
    d->two = false;
    spry_status status = spry_cuda_fault(&d->context, "a step", error);
    if (status)
        return status;
    spry_cuda_draw_take(d, which, d->steps[which].draws, d->steps[which].n_draws);
    if (d->watch)
        spry_op_watch_flush(d->watch);
    if (d->trace)
        trace_step(d, which);
    return SPRY_OK;
}

static spry_status draw(spry_device *device, spry_draw *const *draws, size_t n, spry_error *error)
{
    spry_cuda_device *d = cuda_of(device);
    spry_cuda_enter(&d->context);
    spry_status status = spry_cuda_draw_queue(d, draws, n, error);
    if (status)
        return status;
    spry_cuda_finish(&d->context);
    status = spry_cuda_fault(&d->context, "drawing tokens", error);
    if (!status)
        spry_cuda_draw_take(d, d->newest, draws, n);
    return status;
}

/* Copies rows of floats to host memory, which is enlarged when a request needs more. */
static spry_status fetch(spry_cuda_device *d, const float **out, spry_cuda_memory from, size_t bytes, spry_error *error)
{
    spry_cuda_enter(&d->context);
    if (bytes > d->host_rows_bytes) {
        spry_cuda_free_host(&d->context, d->host_rows);
        d->host_rows = spry_cuda_allocate_host(&d->context, bytes);
        d->host_rows_bytes = d->host_rows ? bytes : 0;
    }
    spry_cuda_read(&d->context, d->host_rows, from, bytes);
    spry_cuda_finish(&d->context);
    *out = d->host_rows;
    return spry_cuda_fault(&d->context, "copying results", error);
}

static spry_status logits(spry_device *device, const float **out, size_t first, size_t count, spry_error *error)
{
    spry_cuda_device *d = cuda_of(device);
    size_t row = d->config->n_vocab * sizeof(float);
    return fetch(d, out, d->scratch.logits + first * row, count * row, error);
}

static spry_status hidden(spry_device *device, const float **out, size_t first, size_t count, spry_error *error)
{
    spry_cuda_device *d = cuda_of(device);
    size_t row = d->config->n_embd * sizeof(float), n_hidden = d->n_wanted - d->n_logits;
    spry_cuda_memory from =
        first < n_hidden ? d->scratch.h + (d->n_logits + first) * row : d->scratch.taps + (first - n_hidden) * row;
    return fetch(d, out, from, count * row, error);
}

/* ---- statistics -------------------------------------------------------------------------------------------------- */

static uint64_t waits(spry_device *device)
{
    return cuda_of(device)->context.waits;
}

static void set_trace(spry_device *device, spry_trace *trace, uint32_t lane)
{
    cuda_of(device)->trace = trace;
    cuda_of(device)->traced_waits = cuda_of(device)->context.waits;
    cuda_of(device)->lane = lane;
}

static void set_watch(spry_device *device, spry_op_watch *watch)
{
    cuda_of(device)->watch = watch;
    cuda_of(device)->marks.under_way = false;
}

static void set_threads(spry_device *device, spry_threads *threads)
{
    (void)device;
    (void)threads;
}

static bool measure(spry_device *device, spry_device_memory *memory)
{
    const spry_cuda_device *d = cuda_of(device);
    *memory =
        (spry_device_memory){.weights = d->model.bytes,
                             .kv = d->pool->page_bytes * d->pool->n_pages + spry_kv_states_bytes(&d->pool->shape),
                             .scratch = d->scratch.bytes + 2 * d->upload.bytes + d->draws[0].bytes + d->draws[1].bytes};
    return true;
}

static bool measure_pages(spry_device *device, size_t *bytes, const uint32_t *pages, size_t n_pages)
{
    (void)pages;
    *bytes = n_pages * cuda_of(device)->pool->page_bytes;
    return true;
}

bool spry_cuda_device_estimate(spry_device_memory *memory, const spry_device_setup *s, bool vulkan)
{
    memory->weights = spry_cuda_model_bytes(NULL, s->config, s->weights, &s->limits, 0, vulkan);
    memory->scratch = spry_cuda_scratch_bytes(s->config, &s->limits);
    return spry_checked_mul(&memory->kv, s->pool->page_bytes, s->pool->n_pages) &&
           spry_checked_add(&memory->kv, memory->kv, spry_kv_states_bytes(&s->pool->shape));
}

static bool estimate(spry_device_memory *memory, const spry_device_setup *setup, const spry_device_use *use)
{
    (void)use; /* everything is allocated at once */
    return spry_cuda_device_estimate(memory, setup, false);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static void close_device(spry_device *device)
{
    spry_cuda_device *d = cuda_of(device);
    spry_cuda driver = d->driver;
    if (d->context.context)
        d->context.cuda->context_set(d->context.context);
    spry_cuda_graphs_deinit(d);
    spry_cuda_watch_deinit(d);
    spry_cuda_draw_deinit(d);
    spry_cuda_upload_deinit(d);
    spry_cuda_scratch_deinit(d);
    spry_cuda_tier_deinit(d);
    spry_cuda_pages_deinit(d);
    spry_cuda_free_host(&d->context, d->host_rows);
    spry_cuda_model_deinit(&d->model, &d->context);
    spry_cuda_context_deinit(&d->context);
    free(d);
    spry_cuda_close(&driver);
}

static const spry_device_ops ops = {.close = close_device,
                                    .submit = submit,
                                    .submit_after = submit_after,
                                    .wait = wait_step,
                                    .draw = draw,
                                    .logits = logits,
                                    .hidden = hidden,
                                    .mover = spry_cuda_pages_mover,
                                    .state_mover = spry_cuda_states_mover,
                                    .waits = waits,
                                    .set_trace = set_trace,
                                    .set_watch = set_watch,
                                    .set_threads = set_threads,
                                    .measure = measure,
                                    .measure_pages = measure_pages};

/* Refuses models that the kernels do not support, before anything is allocated. */
static spry_status check_model(const spry_device_setup *s, bool vulkan, spry_error *error)
{
    const uint32_t sizes[] = {s->config->head_dim, s->config->slide.head_dim};
    for (size_t i = 0; i < SPRY_COUNT(sizes); i++) {
        uint32_t step = sizes[i] > HEAD_DIM                   ? LARGE_HEAD_DIM_STEP
                        : sizes[i] > SMALL_HEAD_DIM || vulkan ? HEAD_DIM_STEP
                                                              : SMALL_HEAD_DIM_STEP;
        if ((sizes[i] % step && !s->config->n_kv_rank) || sizes[i] > SPRY_ATTEND_HEAD_DIM_MAX)
            return spry_fail(error, SPRY_ERR_UNSUPPORTED, "heads of %u values: GPU kernels need multiples of %u",
                             sizes[i], step);
    }
    return SPRY_OK;
}

/* Checks the total need first, because the driver would name only the one allocation that failed. */
static spry_status check_memory(spry_cuda_device *d, const spry_device_setup *s, spry_error *error)
{
    spry_device_memory need = {0};
    size_t free_bytes = 0, bytes = 0;
    if (!spry_cuda_device_estimate(&need, s, d->context.vulkan))
        return spry_fail(error, SPRY_ERR_MEMORY, "%s: the KV pages are larger than any memory", d->context.name);
    size_t sum = need.weights + need.kv + need.scratch;
    bool known = d->context.cuda->memory_info(&free_bytes, &bytes) == 0;
    bool limited = s->gpu_bytes && (!known || s->gpu_bytes < free_bytes);
    if (limited)
        free_bytes = s->gpu_bytes;
    if ((known || limited) && sum > free_bytes)
        return spry_fail(error, SPRY_ERR_MEMORY,
                         "%s has %zu MB %s, and %zu are needed: %zu for weights, %zu for KV pages, %zu for steps",
                         d->context.name, free_bytes / 1000000, limited ? "by --gpu-memory" : "free", sum / 1000000,
                         need.weights / 1000000, need.kv / 1000000, need.scratch / 1000000);
    return SPRY_OK;
}

static spry_status open_parts(spry_cuda_device *d, const spry_device_setup *s, spry_error *error)
{
    spry_cuda_context *c = &d->context;
    spry_status status = check_memory(d, s, error);
    if (!status)
        status = spry_cuda_model_init(&d->model, c, s->config, s->weights, s->ops, &s->limits, s->log, error);
    if (status)
        return status;
    status = spry_cuda_pages_init(d, s->restores, error);
    if (!status)
        status = spry_cuda_scratch_init(d, error);
    return status ? status : spry_cuda_upload_init(d, error);
}

spry_status spry_cuda_device_open(spry_device **out, const spry_cuda *driver, const void *const *images, int index,
                                  const spry_device_setup *setup, spry_error *error)
{
    *out = NULL;
    spry_cuda_device *d = calloc(1, sizeof *d);
    spry_cuda own = *driver;
    spry_status status = d ? check_model(setup, driver->vulkan, error) : spry_fail_memory(error, "a device", sizeof *d);
    if (!status) {
        d->driver = *driver;
        d->device = (spry_device){.ops = &ops, .config = setup->config, .limits = setup->limits};
        d->config = setup->config;
        d->pool = setup->pool;
        status = spry_cuda_context_init(&d->context, &d->driver, index, images, error);
        d->device.pictures = d->device.two_way = !setup->config->arch->streams && !d->context.vulkan;
        for (size_t i = 0; i < 2; i++)
            d->attention[i] = spry_cuda_attention_of(&d->context, setup->config, setup->pool->shape.type, i);
    }
    if (status) {
        free(d);
        spry_cuda_close(&own);
        return status;
    }
    status = open_parts(d, setup, error);
    if (status) {
        close_device(&d->device);
        return status;
    }
    *out = &d->device;
    return SPRY_OK;
}

/* Reads the number of a GPU; an empty piece selects the first one. */
static bool read_index(int *index, const char *piece)
{
    uint64_t number = 0;
    bool fine = !piece[0] || (spry_number_u64(&number, spry_view_of(piece)) && number <= INT16_MAX);
    *index = fine ? (int)number : -1;
    return fine;
}

static spry_status open_driver(spry_cuda *driver, int *index, const char *piece, spry_error *error)
{
    if (!read_index(index, piece))
        return spry_fail(error, SPRY_ERR_INPUT, "cuda:%.40s: the number after the colon selects the GPU", piece);
    return spry_cuda_open(driver, SPRY_CUDA_LIBRARY, error);
}

static spry_status open_piece(spry_device **out, const char *piece, const spry_device_setup *setup, spry_error *error)
{
    spry_cuda driver;
    int index;
    *out = NULL;
    spry_status status = open_driver(&driver, &index, piece, error);
    return status ? status : spry_cuda_device_open(out, &driver, spry_cuda_images(), index, setup, error);
}

static spry_status open_whisper(spry_whisper_device **out, const char *piece, const spry_whisper_setup *setup,
                                spry_error *error)
{
    spry_cuda driver;
    int index;
    *out = NULL;
    spry_status status = open_driver(&driver, &index, piece, error);
    return status ? status : spry_cuda_whisper_open(out, &driver, spry_cuda_images(), index, setup, error);
}

/* Total or free memory of a GPU. */
static size_t count_memory(const char *piece, bool free_only)
{
    spry_cuda driver;
    int index, device = 0;
    size_t bytes = 0, all;
    void *context;
    if (!spry_cuda_images()[0] || !read_index(&index, piece) || spry_cuda_open(&driver, SPRY_CUDA_LIBRARY, NULL))
        return 0;
    if (driver.init(0) || driver.device(&device, index) || driver.device_memory(&bytes, device))
        bytes = 0;
    if (bytes && free_only && !driver.context_retain(&context, device)) {
        if (driver.context_set(context) || driver.memory_info(&bytes, &all))
            bytes = 0;
        driver.context_set(NULL);
        driver.context_release(device);
    }
    spry_cuda_close(&driver);
    return bytes;
}

static size_t total(const char *piece)
{
    return count_memory(piece, false);
}

static size_t available(const char *piece)
{
    return count_memory(piece, true);
}

/* Opens the GPU to find out what is missing. */
static void explain(const char *piece, spry_error *why)
{
    spry_cuda driver;
    spry_cuda_context *c = calloc(1, sizeof *c);
    int index;
    if (c && read_index(&index, piece) && !spry_cuda_open(&driver, SPRY_CUDA_LIBRARY, why)) {
        if (!spry_cuda_context_init(c, &driver, index, spry_cuda_images(), why))
            spry_cuda_context_deinit(c);
        spry_cuda_close(&driver);
    }
    free(c);
}

const spry_device_kind spry_device_kind_cuda = {
    .name = "cuda",
    .features = SPRY_FEATURE_LAYER_NORM | SPRY_FEATURE_NORM_PLACES | SPRY_FEATURE_QK_NORM | SPRY_FEATURE_UNROTATED |
                SPRY_FEATURE_SCALES | SPRY_FEATURE_UNGATED | SPRY_FEATURE_SINKS | SPRY_FEATURE_CLAMPED |
                SPRY_FEATURE_ROUTING | SPRY_FEATURE_SHARED | SPRY_FEATURE_LATENT | SPRY_FEATURE_CONVOLUTIONS |
                SPRY_FEATURE_STREAMS | SPRY_FEATURE_DELTA | SPRY_FEATURE_ENCODER | SPRY_FEATURE_TEMPERATURE |
                SPRY_FEATURE_CHUNKED | SPRY_FEATURE_GATES | SPRY_FEATURE_BARE_NORM | SPRY_FEATURE_KINDS |
                SPRY_FEATURE_MIXING | SPRY_FEATURE_BESIDE | SPRY_FEATURE_TYPES | SPRY_FEATURE_MAMBA,
    .adapters = true,
    .towers = true,
    .chunk = 2048,
    .total = total,
    .available = available,
    .explain = explain,
    .open = open_piece,
    .estimate = estimate,
    .open_whisper = open_whisper,
    .whisper_rows = true};
