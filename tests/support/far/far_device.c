/* Every function is a call in a queue that one thread works off. A step's inputs are copied by submit and wait in the
 * queue, and so do copies of pages to and from host memory; every other call waits for its own end, so it can be on
 * its caller's stack. */
#include "support/far/far_device.h"

#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "platform/memory.h"

enum {
    WRITES = 8,  /* pages that are written at once */
    COPIES = 64, /* to and from host memory that are in the queue at once */
};

/* Everything of a step that its caller may change after submit. */
typedef struct step_copy {
    spry_far_call call;
    spry_device_step step;
    spry_segment *segments; /* [capacity_segments] */
    spry_kv_table *tables;  /* the same */
    int32_t *tokens;        /* [max_rows] */
    spry_kv_entry *entries; /* [capacity_entries] */
    size_t capacity_segments, capacity_entries;
    spry_kv_turns turns;
    bool after;     /* tokens are numbers of draws of the previous step */
    int32_t *drawn; /* [max_logits] tokens of its draws, for a step after it */
    uint64_t sampling_ns, attention_ns;
} step_copy;

typedef struct far_device {
    spry_device device;
    spry_cpu_device cpu;
    const spry_kv_pool *pool; /* the caller's; its turns are read by submit */
    spry_kv_pool own_pool;    /* what the CPU sees: layout, and the turns of the step under way */
    step_copy steps[2];
    size_t newest; /* of steps; the other one is older */
    bool two;      /* both are under way */
    float *rows;   /* logits or hidden states that were asked for */
    struct {       /* new bytes of pages, and where they go */
        unsigned char *bytes;
        uint32_t pages[WRITES];
        bool whole[WRITES];
        size_t n;
    } writes;
    struct page_call *copies; /* [COPIES] to and from host memory; number n is copies[n % COPIES] */
    uint64_t n_copies;
    unsigned char *state; /* new bytes of a recurrent state */
    spry_far_queue queue;
} far_device;

static void open_memory(void *device, bool open)
{
    const far_device *far = device;
    spry_cpu_region regions[SPRY_CPU_REGIONS];
    spry_cpu_device_regions(&far->cpu, regions);
    for (size_t i = 0; i < SPRY_CPU_REGIONS; i++)
        if (regions[i].memory)
            far_protect(regions[i].memory, regions[i].bytes, open);
}

static void make_call(far_device *far, spry_far_call *call)
{
    spry_far_queue_call(&far->queue, call);
}

const spry_cpu_device *spry_far_device_inside(const spry_device *device)
{
    return &((const far_device *)device)->cpu;
}

void spry_far_device_hold(spry_device *device, bool hold)
{
    spry_far_queue_hold(&((far_device *)device)->queue, hold);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static void run_step(void *device, spry_far_call *call)
{
    far_device *far = device;
    step_copy *copy = (step_copy *)call;
    const step_copy *before = &far->steps[copy == &far->steps[0]];
    for (size_t i = 0; copy->after && i < copy->step.n_segments; i++)
        copy->tokens[i] = before->drawn[copy->tokens[i]];
    far->own_pool.turns = copy->turns;
    far->cpu.device.sampling_ns = 0;
    far->cpu.device.ops->submit(&far->cpu.device, &copy->step, NULL); /* the CPU refuses nothing */
    for (size_t i = 0; i < copy->step.n_draws && i < far->device.limits.max_logits; i++)
        copy->drawn[i] = copy->step.draws[i]->status ? 0 : copy->step.draws[i]->token;
    copy->sampling_ns = far->cpu.device.sampling_ns;
    copy->attention_ns = far->cpu.device.attention_ns;
}

static bool grow(void **list, size_t *capacity, size_t needed, size_t size)
{
    if (needed <= *capacity)
        return true;
    void *grown = realloc(*list, needed * size);
    if (grown) {
        *list = grown;
        *capacity = needed;
    }
    return grown;
}

static bool reserve(step_copy *copy, const spry_device_step *step)
{
    size_t n_entries = 0, n = step->n_segments, same = copy->capacity_segments;
    void *segments = copy->segments, *tables = copy->tables, *entries = copy->entries;
    for (size_t i = 0; i < n; i++)
        n_entries += step->segments[i].table->n_entries;
    bool room = grow(&segments, &same, n, sizeof *copy->segments) &&
                grow(&tables, &copy->capacity_segments, n, sizeof *copy->tables) &&
                grow(&entries, &copy->capacity_entries, n_entries, sizeof *copy->entries);
    copy->segments = segments;
    copy->tables = tables;
    copy->entries = entries;
    return room;
}

static void copy_step(far_device *far, step_copy *copy, const spry_device_step *step, const uint32_t *drawn)
{
    spry_kv_entry *entries = copy->entries;
    int32_t *tokens = copy->tokens;
    for (size_t i = 0; i < step->n_segments; i++) {
        const spry_segment *from = &step->segments[i];
        size_t n = from->table->n_entries;
        copy->tables[i] = (spry_kv_table){.entries = entries,
                                          .n_entries = n,
                                          .n_tokens = from->table->n_tokens,
                                          .state = from->table->state,
                                          .state_from = from->table->state_from};
        copy->segments[i] = *from;
        copy->segments[i].table = &copy->tables[i];
        copy->segments[i].tokens = tokens;
        if (n)
            memcpy(entries, from->table->entries, n * sizeof *entries);
        if (drawn)
            *tokens = (int32_t)drawn[i];
        else if (from->n_rows)
            memcpy(tokens, from->tokens, from->n_rows * sizeof *tokens);
        entries += n;
        tokens += from->n_rows;
    }
    copy->step = *step;
    copy->step.segments = copy->segments;
    copy->turns = far->pool->turns;
    copy->after = drawn != NULL;
}

static spry_status start_step(far_device *far, const spry_device_step *step, const uint32_t *drawn, spry_error *error)
{
    size_t at = drawn ? !far->newest : far->newest;
    step_copy *copy = &far->steps[at];
    if (!reserve(copy, step))
        return spry_fail_memory(error, "a step", step->n_segments * sizeof *step->segments);
    copy_step(far, copy, step, drawn);
    far->newest = at;
    far->two = drawn != NULL;
    spry_far_queue_start(&far->queue, &copy->call);
    return SPRY_OK;
}

static spry_status submit(spry_device *device, const spry_device_step *step, spry_error *error)
{
    return start_step((far_device *)device, step, NULL, error);
}

static spry_status submit_after(spry_device *device, const spry_device_step *step, const uint32_t *drawn,
                                spry_error *error)
{
    return start_step((far_device *)device, step, drawn, error);
}

static spry_status wait_step(spry_device *device, spry_error *error)
{
    far_device *far = (far_device *)device;
    const step_copy *oldest = &far->steps[far->two ? !far->newest : far->newest];
    (void)error;
    spry_far_queue_finish(&far->queue, &oldest->call);
    far->two = false;
    device->sampling_ns = oldest->sampling_ns;
    device->attention_ns = oldest->attention_ns;
    return SPRY_OK;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

typedef struct draw_call {
    spry_far_call call;
    spry_draw *const *draws;
    size_t n;
} draw_call;

static void run_draws(void *device, spry_far_call *call)
{
    far_device *far = device;
    const draw_call *c = (const draw_call *)call;
    far->cpu.device.ops->draw(&far->cpu.device, c->draws, c->n, NULL);
}

static spry_status draw(spry_device *device, spry_draw *const *draws, size_t n, spry_error *error)
{
    draw_call c = {.call = {.run = run_draws}, .draws = draws, .n = n};
    (void)error;
    make_call((far_device *)device, &c.call);
    return SPRY_OK;
}

typedef struct rows_call {
    spry_far_call call;
    size_t first, count;
    bool hidden;
} rows_call;

static void run_rows(void *device, spry_far_call *call)
{
    far_device *far = device;
    const rows_call *c = (const rows_call *)call;
    const spry_device_ops *ops = far->cpu.device.ops;
    size_t width = c->hidden ? far->device.config->n_embd : far->device.config->n_vocab;
    const float *rows;
    if (!(c->hidden ? ops->hidden : ops->logits)(&far->cpu.device, &rows, c->first, c->count, NULL) && c->count)
        memcpy(far->rows, rows, c->count * width * sizeof *rows);
}

static const float *fetch_rows(spry_device *device, size_t first, size_t count, bool hidden)
{
    far_device *far = (far_device *)device;
    rows_call c = {.call = {.run = run_rows}, .first = first, .count = count, .hidden = hidden};
    make_call(far, &c.call);
    return far->rows;
}

static spry_status logits(spry_device *device, const float **out, size_t first, size_t count, spry_error *error)
{
    (void)error;
    *out = fetch_rows(device, first, count, false);
    return SPRY_OK;
}

static spry_status hidden(spry_device *device, const float **out, size_t first, size_t count, spry_error *error)
{
    (void)error;
    *out = fetch_rows(device, first, count, true);
    return SPRY_OK;
}

/* ---- pages ------------------------------------------------------------------------------------------------------- */

typedef struct page_call {
    spry_far_call call;
    spry_host_pages *pages; /* or states */
    uint32_t page, from;
    size_t count;
    void *bytes;
} page_call;

static void run_copy(void *device, spry_far_call *call)
{
    const page_call *c = (const page_call *)call;
    (void)device;
    spry_host_pages_copy(c->pages, c->page, c->from);
}

static void run_read(void *device, spry_far_call *call)
{
    const page_call *c = (const page_call *)call;
    (void)device;
    memcpy(c->bytes, spry_host_page(c->pages, c->page), c->pages->page_bytes);
}

static void run_writes(void *device, spry_far_call *call)
{
    far_device *far = device;
    size_t bytes = far->cpu.pages.page_bytes;
    (void)call;
    for (size_t i = 0; i < far->writes.n; i++)
        if (far->writes.whole[i])
            memcpy(spry_host_page(&far->cpu.pages, far->writes.pages[i]), far->writes.bytes + i * bytes, bytes);
}

static void copy_page(void *self, uint32_t to, uint32_t from)
{
    far_device *far = self;
    page_call c = {.call = {.run = run_copy}, .pages = &far->cpu.pages, .page = to, .from = from};
    make_call(far, &c.call);
}

static const void *read_page(void *self, uint32_t page, void *room)
{
    far_device *far = self;
    page_call c = {.call = {.run = run_read}, .pages = &far->cpu.pages, .page = page, .bytes = room};
    make_call(far, &c.call);
    return room;
}

static void *begin_write(void *self, uint32_t page)
{
    far_device *far = self;
    size_t at = far->writes.n;
    if (at == WRITES)
        return NULL;
    far->writes.pages[at] = page;
    far->writes.whole[at] = false;
    far->writes.n++;
    return far->writes.bytes + at * far->cpu.pages.page_bytes;
}

static bool end_write(void *self, uint32_t page, bool whole)
{
    far_device *far = self;
    for (size_t i = 0; i < far->writes.n; i++)
        if (far->writes.pages[i] == page)
            far->writes.whole[i] = whole;
    return true;
}

static bool finish_writes(void *self)
{
    far_device *far = self;
    spry_far_call call = {.run = run_writes};
    make_call(far, &call);
    far->writes.n = 0;
    return true;
}

static void run_release(void *device, spry_far_call *call)
{
    const page_call *c = (const page_call *)call;
    (void)device;
    spry_host_pages_release(c->pages, c->page, c->count);
}

static void release_pages(void *self, uint32_t first, size_t count)
{
    far_device *far = self;
    page_call c = {.call = {.run = run_release}, .pages = &far->cpu.pages, .page = first, .count = count};
    make_call(far, &c.call);
}

/* ---- pages in host memory ---------------------------------------------------------------------------------------- */

static void run_load(void *device, spry_far_call *call)
{
    const page_call *c = (const page_call *)call;
    (void)device;
    c->pages->changes++;
    memcpy(spry_host_page(c->pages, c->page), c->bytes, c->pages->page_bytes);
}

static uint64_t start_copy(far_device *far, void (*run)(void *, spry_far_call *), uint32_t page, void *bytes)
{
    page_call *c = &far->copies[++far->n_copies % COPIES];
    if (far->n_copies > COPIES)
        spry_far_queue_finish(&far->queue, &c->call);
    *c = (page_call){.call = {.run = run}, .pages = &far->cpu.pages, .page = page, .bytes = bytes};
    spry_far_queue_start(&far->queue, &c->call);
    return far->n_copies;
}

static uint64_t save_page(void *self, void *to, uint32_t page)
{
    return start_copy(self, run_read, page, to);
}

static bool load_page(void *self, uint32_t page, const void *from)
{
    return start_copy(self, run_load, page, (void *)(uintptr_t)from);
}

static bool page_is_saved(void *self, uint64_t copy)
{
    far_device *far = self;
    return copy + COPIES <= far->n_copies || spry_far_queue_is_done(&far->queue, &far->copies[copy % COPIES].call);
}

static void *allocate_host(void *self, size_t bytes)
{
    (void)self;
    return malloc(bytes);
}

static void free_host(void *self, void *memory)
{
    far_device *far = self;
    if (far->n_copies)
        spry_far_queue_finish(&far->queue, &far->copies[far->n_copies % COPIES].call);
    free(memory);
}

static spry_kv_mover mover(spry_device *device)
{
    return (spry_kv_mover){.self = device,
                           .copy = copy_page,
                           .read = read_page,
                           .max_writes = WRITES,
                           .write_begin = begin_write,
                           .write_end = end_write,
                           .write_finish = finish_writes,
                           .release = release_pages,
                           .host_allocate = allocate_host,
                           .host_free = free_host,
                           .save = save_page,
                           .load = load_page,
                           .saved = page_is_saved};
}

/* ---- figures ----------------------------------------------------------------------------------------------------- */

static uint64_t waits(spry_device *device)
{
    return spry_far_queue_waits(&((far_device *)device)->queue);
}

typedef struct setting_call {
    spry_far_call call;
    spry_trace *trace;
    uint32_t lane;
    spry_op_watch *watch;
    spry_threads *threads;
} setting_call;

static void run_set_trace(void *device, spry_far_call *call)
{
    far_device *far = device;
    const setting_call *c = (const setting_call *)call;
    far->cpu.device.ops->set_trace(&far->cpu.device, c->trace, c->lane);
}

static void run_set_watch(void *device, spry_far_call *call)
{
    far_device *far = device;
    far->cpu.device.ops->set_watch(&far->cpu.device, ((const setting_call *)call)->watch);
}

static void run_set_threads(void *device, spry_far_call *call)
{
    far_device *far = device;
    far->cpu.device.ops->set_threads(&far->cpu.device, ((const setting_call *)call)->threads);
}

static void set_trace(spry_device *device, spry_trace *trace, uint32_t lane)
{
    setting_call c = {.call = {.run = run_set_trace}, .trace = trace, .lane = lane};
    make_call((far_device *)device, &c.call);
}

static void set_watch(spry_device *device, spry_op_watch *watch)
{
    setting_call c = {.call = {.run = run_set_watch}, .watch = watch};
    make_call((far_device *)device, &c.call);
}

static void set_threads(spry_device *device, spry_threads *threads)
{
    setting_call c = {.call = {.run = run_set_threads}, .threads = threads};
    make_call((far_device *)device, &c.call);
}

static bool measure(spry_device *device, spry_device_memory *memory)
{
    spry_device *cpu = &((far_device *)device)->cpu.device;
    return cpu->ops->measure(cpu, memory); /* the system is asked, no byte is read */
}

static bool measure_pages(spry_device *device, size_t *bytes, const uint32_t *pages, size_t n_pages)
{
    spry_device *cpu = &((far_device *)device)->cpu.device;
    return cpu->ops->measure_pages(cpu, bytes, pages, n_pages);
}

/* ---- recurrent states -------------------------------------------------------------------------------------------- */

static void call_with_state(far_device *far, void (*run)(void *, spry_far_call *), page_call c)
{
    c.call.run = run;
    c.pages = &far->cpu.states;
    make_call(far, &c.call);
}

static void copy_state(void *self, uint32_t to, uint32_t from)
{
    call_with_state(self, run_copy, (page_call){.page = to, .from = from});
}

static const void *read_state(void *self, uint32_t state, void *room)
{
    call_with_state(self, run_read, (page_call){.page = state, .bytes = room});
    return room;
}

static void *begin_state(void *self, uint32_t state)
{
    (void)state;
    return ((far_device *)self)->state;
}

static bool end_state(void *self, uint32_t state, bool whole)
{
    far_device *far = self;
    if (whole)
        call_with_state(far, run_load, (page_call){.page = state, .bytes = far->state});
    return true;
}

static bool finish_states(void *self)
{
    (void)self;
    return true;
}

static void release_states(void *self, uint32_t first, size_t count)
{
    call_with_state(self, run_release, (page_call){.page = first, .count = count});
}

static spry_kv_mover state_mover(spry_device *device)
{
    return (spry_kv_mover){.self = device,
                           .copy = copy_state,
                           .read = read_state,
                           .max_writes = 1,
                           .write_begin = begin_state,
                           .write_end = end_state,
                           .write_finish = finish_states,
                           .release = release_states};
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static void release(far_device *far)
{
    for (size_t i = 0; i < 2; i++) {
        free(far->steps[i].segments);
        free(far->steps[i].tables);
        free(far->steps[i].entries);
        free(far->steps[i].tokens);
        free(far->steps[i].drawn);
    }
    free(far->rows);
    free(far->writes.bytes);
    free(far->copies);
    free(far->state);
    free(far);
}

static void close_device(spry_device *device)
{
    far_device *far = (far_device *)device;
    spry_far_queue_close(&far->queue);
    spry_cpu_device_deinit(&far->cpu);
    release(far);
}

static const spry_device_ops ops = {.close = close_device,
                                    .submit = submit,
                                    .submit_after = submit_after,
                                    .wait = wait_step,
                                    .draw = draw,
                                    .logits = logits,
                                    .hidden = hidden,
                                    .mover = mover,
                                    .state_mover = state_mover,
                                    .waits = waits,
                                    .set_trace = set_trace,
                                    .set_watch = set_watch,
                                    .set_threads = set_threads,
                                    .measure = measure,
                                    .measure_pages = measure_pages};

static spry_status allocate(far_device *far, const spry_device_setup *setup, spry_error *error)
{
    size_t logit_floats, hidden_floats, writes;
    const spry_step_limits *limits = &setup->limits;
    if (!spry_checked_mul(&logit_floats, limits->max_logits, setup->config->n_vocab) ||
        !spry_checked_mul(&hidden_floats, limits->max_rows, setup->config->n_embd) ||
        !spry_checked_mul(&writes, setup->pool->page_bytes, WRITES))
        return spry_fail(error, SPRY_ERR_MEMORY, "a step of %u rows needs more than any memory", limits->max_rows);
    far->rows = calloc(logit_floats > hidden_floats ? logit_floats : hidden_floats, sizeof *far->rows);
    far->copies = calloc(COPIES, sizeof *far->copies);
    far->state = malloc(setup->pool->shape.state + 1);
    bool fine = far->rows && far->copies && far->state && (far->writes.bytes = malloc(writes));
    for (size_t i = 0; i < 2; i++) {
        step_copy *copy = &far->steps[i];
        copy->call.run = run_step;
        copy->tokens = calloc(limits->max_rows, sizeof *copy->tokens);
        copy->drawn = calloc(limits->max_logits, sizeof *copy->drawn);
        fine = fine && copy->tokens && copy->drawn;
    }
    return fine ? SPRY_OK : spry_fail_memory(error, "a device", sizeof *far);
}

static spry_status open_device(spry_device **out, const char *piece, const spry_device_setup *setup, spry_error *error)
{
    *out = NULL;
    spry_status status = spry_device_only(&spry_device_kind_far, piece, error);
    if (status)
        return status;
    far_device *far = calloc(1, sizeof *far);
    if (!far)
        return spry_fail_memory(error, "a device", sizeof *far);
    far->device = (spry_device){.ops = &ops, .config = setup->config, .limits = setup->limits};
    far->pool = setup->pool;
    far->own_pool = *setup->pool;
    spry_device_setup inner = *setup;
    inner.pool = &far->own_pool;
    status = allocate(far, setup, error);
    if (!status)
        status = spry_cpu_device_init(&far->cpu, &inner, true, NULL, error);
    if (status) {
        release(far);
        return status;
    }
    status = spry_far_queue_open(&far->queue, far, open_memory, error);
    if (status) {
        spry_cpu_device_deinit(&far->cpu);
        release(far);
        return status;
    }
    far->device.pictures = far->cpu.device.pictures;
    far->device.two_way = far->cpu.device.two_way;
    *out = &far->device;
    return SPRY_OK;
}

static size_t total(const char *piece)
{
    return spry_device_kind_cpu.total(piece);
}

/* The CPU's kernels, and so its pages. */
static void identify(char *out, size_t size, const spry_device_setup *setup)
{
    spry_device_kind_cpu.identify(out, size, setup);
}

static bool estimate(spry_device_memory *memory, const spry_device_setup *setup, const spry_device_use *use)
{
    bool known = spry_device_kind_cpu.estimate(memory, setup, use);
    memory->experts = memory->expert = 0; /* all are in its memory */
    return known;
}

const spry_device_kind spry_device_kind_far = {.name = "far",
                                               .adapters = true,
                                               .nibbles = true,
                                               .features = SPRY_FEATURES_END - 1,
                                               .total = total,
                                               .identify = identify,
                                               .open = open_device,
                                               .estimate = estimate,
                                               .open_whisper = spry_far_whisper_open};

__attribute__((constructor)) static void add_kind(void)
{
    spry_device_add_kind(&spry_device_kind_far);
}
