/* The device for a model that several ranks compute together. */
#include <stdlib.h>

#include "device/ranks/rank_part.h"
#include "device/ranks/ranks.h"

/* ---- rank 0 ------------------------------------------------------------------------------------------------------ */

/* Rank 0's device: the CPU device with rank 0's share of the model. Every call that changes pages or computes is first
 * sent to the other ranks. It replaces the device "cpu" when several ranks were started, and its pages have the same
 * bits. */

typedef struct rank_device {
    spry_device device;
    uint32_t id;
    const spry_kv_pool *pool; /* the caller's */
    spry_rank_part part;
    spry_buffer message;
    unsigned char *page;   /* memory for a page that is being written */
    unsigned char *pieces; /* the shares of a page, rank after rank */
} rank_device;

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static spry_status submit(spry_device *device, const spry_device_step *step, spry_error *error)
{
    rank_device *d = (rank_device *)device;
    spry_device *cpu = &d->part.cpu.device;
    spry_buffer_clear(&d->message);
    spry_rank_step_write(&d->message, step->segments, step->n_segments, &d->pool->turns);
    if (d->message.failed)
        return spry_fail_memory(error, "a step", d->message.size);
    d->part.pool.turns = d->pool->turns;
    spry_ranks_lock();
    spry_ranks_send(&(spry_rank_command){.op = SPRY_RANK_STEP, .device = d->id, .size = d->message.size},
                    d->message.data);
    cpu->sampling_ns = 0;
    spry_status status = cpu->ops->submit(cpu, step, error);
    spry_ranks_unlock();
    device->sampling_ns = cpu->sampling_ns;
    device->attention_ns = cpu->attention_ns;
    return status;
}

static spry_status wait_for_step(spry_device *device, spry_error *error)
{
    (void)device;
    (void)error;
    return SPRY_OK;
}

static spry_device *inside(spry_device *device)
{
    return &((rank_device *)device)->part.cpu.device;
}

static spry_status draw(spry_device *device, spry_draw *const *draws, size_t n, spry_error *error)
{
    return inside(device)->ops->draw(inside(device), draws, n, error);
}

static spry_status logits(spry_device *device, const float **out, size_t first, size_t count, spry_error *error)
{
    return inside(device)->ops->logits(inside(device), out, first, count, error);
}

static spry_status hidden(spry_device *device, const float **out, size_t first, size_t count, spry_error *error)
{
    return inside(device)->ops->hidden(inside(device), out, first, count, error);
}

/* ---- pages ------------------------------------------------------------------------------------------------------- */

static void copy_page(void *self, uint32_t to, uint32_t from)
{
    rank_device *d = self;
    spry_ranks_lock();
    spry_ranks_send(&(spry_rank_command){.op = SPRY_RANK_COPY_PAGE, .device = d->id, .page = to, .from = from}, NULL);
    spry_host_pages_copy(&d->part.cpu.pages, to, from);
    spry_ranks_unlock();
}

static const void *read_page(void *self, uint32_t page, void *room)
{
    rank_device *d = self;
    size_t bytes[SPRY_TEAM_MAX];
    spry_rank_page_bytes(bytes, &d->part);
    spry_ranks_lock();
    spry_ranks_send(&(spry_rank_command){.op = SPRY_RANK_READ_PAGE, .device = d->id, .page = page}, NULL);
    spry_ranks_link()->gather(d->pieces, spry_host_page(&d->part.cpu.pages, page), bytes, true);
    const unsigned char *piece = d->pieces;
    for (size_t rank = 0; rank < d->part.team.size; piece += bytes[rank++])
        spry_rank_page_put(room, &d->part, rank, piece);
    spry_ranks_unlock();
    return room;
}

static void *begin_write(void *self, uint32_t page)
{
    (void)page;
    return ((rank_device *)self)->page;
}

static bool end_write(void *self, uint32_t page, bool whole)
{
    rank_device *d = self;
    if (!whole)
        return true;
    spry_ranks_lock();
    spry_ranks_send(
        &(spry_rank_command){.op = SPRY_RANK_WRITE_PAGE, .device = d->id, .page = page, .size = d->pool->page_bytes},
        d->page);
    spry_rank_page_take(spry_host_page(&d->part.cpu.pages, page), &d->part, d->page);
    spry_ranks_unlock();
    return true;
}

static bool finish_writes(void *self)
{
    (void)self; /* each write was completed when it was sent */
    return true;
}

static void release_pages(void *self, uint32_t first, size_t count)
{
    rank_device *d = self;
    const uint32_t end = first + (uint32_t)count;
    spry_ranks_lock();
    spry_ranks_send(&(spry_rank_command){.op = SPRY_RANK_RELEASE_PAGES, .device = d->id, .page = first, .from = end},
                    NULL);
    spry_host_pages_release(&d->part.cpu.pages, first, count);
    spry_ranks_unlock();
}

static spry_kv_mover mover(spry_device *device)
{
    return (spry_kv_mover){.self = device,
                           .copy = copy_page,
                           .read = read_page,
                           .max_writes = 1,
                           .write_begin = begin_write,
                           .write_end = end_write,
                           .write_finish = finish_writes,
                           .release = release_pages};
}

/* ---- figures ----------------------------------------------------------------------------------------------------- */

static void set_trace(spry_device *device, spry_trace *trace, uint32_t lane)
{
    inside(device)->ops->set_trace(inside(device), trace, lane);
}

static void set_watch(spry_device *device, spry_op_watch *watch)
{
    inside(device)->ops->set_watch(inside(device), watch);
}

static void set_threads(spry_device *device, spry_threads *threads)
{
    inside(device)->ops->set_threads(inside(device), threads);
}

static bool measure(spry_device *device, spry_device_memory *memory)
{
    return inside(device)->ops->measure(inside(device), memory);
}

static bool measure_pages(spry_device *device, size_t *bytes, const uint32_t *pages, size_t n_pages)
{
    return inside(device)->ops->measure_pages(inside(device), bytes, pages, n_pages);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static void release(rank_device *d)
{
    spry_buffer_deinit(&d->message);
    free(d->page);
    free(d->pieces);
    free(d);
}

static void close_device(spry_device *device)
{
    rank_device *d = (rank_device *)device;
    spry_ranks_lock();
    spry_ranks_send(&(spry_rank_command){.op = SPRY_RANK_CLOSE, .device = d->id}, NULL);
    spry_ranks_unlock();
    spry_rank_part_close(&d->part);
    release(d);
}

static const spry_device_ops ops = {.close = close_device,
                                    .submit = submit,
                                    .wait = wait_for_step,
                                    .draw = draw,
                                    .logits = logits,
                                    .hidden = hidden,
                                    .mover = mover,
                                    .set_trace = set_trace,
                                    .set_watch = set_watch,
                                    .set_threads = set_threads,
                                    .measure = measure,
                                    .measure_pages = measure_pages};

/* Lets all ranks open their parts; either all succeed or none stays open. */
static spry_status open_parts(rank_device *d, const spry_device_setup *setup, spry_error *error)
{
    static uint32_t next_id;
    spry_error own;
    spry_ranks_lock();
    d->id = next_id++;
    spry_status status = spry_rank_send_open(d->id, setup, error);
    if (!status) {
        spry_status mine = spry_rank_part_open(&d->part, setup, &own);
        status = spry_ranks_agree(mine, &own, error);
        if (status && !mine)
            spry_rank_part_close(&d->part);
    }
    spry_ranks_unlock();
    return status;
}

static spry_status open_device(spry_device **out, const char *piece, const spry_device_setup *setup, spry_error *error)
{
    (void)piece;
    *out = NULL;
    rank_device *d = calloc(1, sizeof *d);
    if (!d)
        return spry_fail_memory(error, "a device", sizeof *d);
    d->device = (spry_device){.ops = &ops, .config = setup->config, .limits = setup->limits};
    d->pool = setup->pool;
    spry_buffer_init(&d->message, (size_t)1 << 32);
    d->page = malloc(setup->pool->page_bytes);
    spry_status status =
        d->page ? open_parts(d, setup, error) : spry_fail_memory(error, "a device", setup->pool->page_bytes);
    if (status) {
        release(d);
        return status;
    }
    *out = &d->device;
    size_t bytes[SPRY_TEAM_MAX];
    d->pieces = malloc(spry_rank_page_bytes(bytes, &d->part));
    if (d->pieces)
        return SPRY_OK;
    close_device(*out);
    *out = NULL;
    return spry_fail_memory(error, "a device", setup->pool->page_bytes);
}

static size_t total(const char *piece)
{
    (void)piece;
    return spry_ranks_memory();
}

static void identify(char *out, size_t size, const spry_device_setup *setup)
{
    spry_device_kind_cpu.identify(out, size, setup);
}

static bool estimate(spry_device_memory *memory, const spry_device_setup *setup, const spry_device_use *use)
{
    bool known = spry_device_kind_cpu.estimate(memory, setup, use);
    memory->experts = memory->expert = 0;
    return known;
}

/* Features that can be computed with divided heads and outputs. */
enum {
    FEATURES = SPRY_FEATURE_LAYER_NORM | SPRY_FEATURE_NORM_PLACES | SPRY_FEATURE_QK_NORM | SPRY_FEATURE_UNROTATED |
               SPRY_FEATURE_SCALES | SPRY_FEATURE_UNGATED | SPRY_FEATURE_SINKS | SPRY_FEATURE_CLAMPED |
               SPRY_FEATURE_ROUTING | SPRY_FEATURE_SHARED | SPRY_FEATURE_LATENT | SPRY_FEATURE_STREAMS
};

const spry_device_kind spry_device_kind_ranks = {.name = "cpu over ranks",
                                                 .features = FEATURES,
                                                 .total = total,
                                                 .identify = identify,
                                                 .open = open_device,
                                                 .estimate = estimate};

/* ---- the other ranks --------------------------------------------------------------------------------------------- */

enum { DEVICES_MAX = 64 }; /* maximum devices open at once */

typedef struct worker {
    spry_rank_command command;
    spry_buffer bytes;
    spry_rank_step step;
    struct {
        uint32_t id;
        spry_rank_model *model; /* NULL: free */
    } devices[DEVICES_MAX];
} worker;

static spry_rank_model **find(worker *w, uint32_t id)
{
    for (size_t i = 0; i < DEVICES_MAX; i++)
        if (w->devices[i].model && w->devices[i].id == id)
            return &w->devices[i].model;
    return NULL;
}

static void close_model(spry_rank_model **model)
{
    if (!model)
        return;
    spry_rank_model_close(*model);
    free(*model);
    *model = NULL;
}

static void open_model(worker *w)
{
    spry_error own, agreed;
    spry_status status = SPRY_OK;
    spry_rank_model *model = calloc(1, sizeof *model);
    size_t at = 0;
    while (at < DEVICES_MAX && w->devices[at].model)
        at++;
    if (!model || at == DEVICES_MAX) { /* the messages that follow this command must be received in any case */
        spry_ranks_link()->quit("there is no memory for one more model");
        return;
    }
    w->devices[at].id = w->command.device;
    w->devices[at].model = model;
    status = spry_rank_model_open(model, &w->bytes, &own);
    if (spry_ranks_agree(status, &own, &agreed))
        close_model(&w->devices[at].model);
}

static void worker_read_page(const spry_rank_model *model, uint32_t page)
{
    size_t bytes[SPRY_TEAM_MAX];
    spry_rank_page_bytes(bytes, &model->part);
    spry_ranks_link()->gather(NULL, spry_host_page(&model->part.cpu.pages, page), bytes, true);
}

static spry_status run_step(worker *w, spry_rank_model *model, spry_error *error)
{
    if (!spry_rank_step_read(&w->step, &model->part.pool.turns, &w->bytes))
        return spry_fail_memory(error, "a step", w->bytes.size);
    spry_pass_step(model->part.cpu.pass, w->step.segments, w->step.n_segments);
    return SPRY_OK;
}

static spry_status obey(worker *w, spry_error *error)
{
    const spry_rank_command *c = &w->command;
    spry_rank_model **model = find(w, c->device);
    if (c->op == SPRY_RANK_OPEN) {
        open_model(w);
        return SPRY_OK;
    }
    if (!model)
        return spry_fail(error, SPRY_ERR_INPUT, "rank 0 uses a model that is not open here");
    spry_host_pages *pages = &(*model)->part.cpu.pages;
    switch ((spry_rank_op)c->op) {
    case SPRY_RANK_STEP: return run_step(w, *model, error);
    case SPRY_RANK_CLOSE: close_model(model); break;
    case SPRY_RANK_COPY_PAGE: spry_host_pages_copy(pages, c->page, c->from); break;
    case SPRY_RANK_RELEASE_PAGES: spry_host_pages_release(pages, c->page, c->from - c->page); break;
    case SPRY_RANK_READ_PAGE: worker_read_page(*model, c->page); break;
    case SPRY_RANK_WRITE_PAGE:
        spry_rank_page_take(spry_host_page(pages, c->page), &(*model)->part, w->bytes.data);
        break;
    case SPRY_RANK_OPEN:
    case SPRY_RANK_STOP: break;
    }
    return SPRY_OK;
}

spry_status spry_rank_worker_run(spry_error *error)
{
    worker w = {.command = {0}};
    spry_status status = SPRY_OK;
    spry_buffer_init(&w.bytes, SIZE_MAX);
    while (!status) {
        if (!spry_ranks_receive(&w.command, &w.bytes))
            status = spry_fail_memory(error, "a command", w.command.size);
        else if (w.command.op == SPRY_RANK_STOP)
            break;
        else
            status = obey(&w, error);
    }
    for (size_t i = 0; i < DEVICES_MAX; i++)
        if (w.devices[i].model)
            close_model(&w.devices[i].model);
    spry_rank_step_deinit(&w.step);
    spry_buffer_deinit(&w.bytes);
    return status;
}
