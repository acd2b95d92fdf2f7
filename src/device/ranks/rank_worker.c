#include "device/ranks/rank_worker.h"

#include <stdlib.h>

#include "device/ranks/rank_open.h"
#include "device/ranks/rank_step.h"
#include "device/ranks/ranks.h"

enum { DEVICES_MAX = 64 }; /* open at once */

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
    if (!model || at == DEVICES_MAX) { /* the messages that follow cannot be skipped */
        spry_ranks_link()->quit("there is no memory for one more model");
        return;
    }
    w->devices[at].id = w->command.device;
    w->devices[at].model = model;
    status = spry_rank_model_open(model, &w->bytes, &own);
    if (spry_ranks_agree(status, &own, &agreed))
        close_model(&w->devices[at].model);
}

static void read_page(const spry_rank_model *model, uint32_t page)
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
    case SPRY_RANK_READ_PAGE: read_page(*model, c->page); break;
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
