/* Arithmetic of windows. The body is the text without its start token; a window has room for `room` tokens of it. */
#include "eval/eval_windows.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static size_t room_of(const spry_eval_windows *w)
{
    return w->context - (w->has_start ? 1 : 0);
}

static size_t body_size(const spry_eval_windows *w)
{
    return w->n_ids - (w->has_start ? 1 : 0);
}

/* Finds the token that the tokenizer adds before every text, if any. */
static spry_status find_start(spry_eval_windows *w, const spry_engine *engine, spry_error *error)
{
    int32_t id = -1;
    size_t count;
    spry_status status = spry_engine_tokenize(engine, &id, 1, &count, "", 0, false, error);
    w->has_start = status == SPRY_OK && count > 0 && w->n_ids > 0 && w->ids[0] == id;
    return status;
}

static spry_status tokenize(spry_eval_windows *w, const spry_engine *engine, const char *text, size_t size,
                            spry_error *error)
{
    size_t capacity = size + 16; /* an estimate that is nearly always enough */
    for (;;) {
        free(w->ids);
        w->ids = calloc(capacity, sizeof *w->ids);
        if (!w->ids)
            return spry_fail_memory(error, "the text's tokens", capacity * sizeof *w->ids);
        spry_status status = spry_engine_tokenize(engine, w->ids, capacity, &w->n_ids, text, size, w->special, error);
        if (status != SPRY_OK || w->n_ids <= capacity)
            return status;
        capacity = w->n_ids;
    }
}

static spry_status check(const spry_eval_windows *w, spry_error *error)
{
    if (w->n_ids < 2)
        return spry_fail(error, SPRY_ERR_INPUT, "the text has %zu token%s, but at least 2 are needed", w->n_ids,
                         w->n_ids == 1 ? "" : "s");
    if (w->context < 2)
        return spry_fail(error, SPRY_ERR_INPUT, "a context of %zu is too small, at least 2 are needed", w->context);
    if (w->stride >= w->context)
        return spry_fail(error, SPRY_ERR_INPUT, "the stride is %zu, but must be less than the context of %zu",
                         w->stride, w->context);
    return SPRY_OK;
}

spry_status spry_eval_windows_init(spry_eval_windows *w, const spry_engine *engine, const char *text, size_t size,
                                   size_t stride, bool special, spry_error *error)
{
    spry_engine_info info;
    spry_engine_describe(engine, &info);
    *w = (spry_eval_windows){
        .context = info.context, .stride = stride ? stride : (info.context + 1) / 2, .special = special};
    spry_status status = tokenize(w, engine, text, size, error);
    if (status == SPRY_OK)
        status = find_start(w, engine, error);
    if (status == SPRY_OK)
        status = check(w, error);
    if (status != SPRY_OK)
        return status;
    w->window = calloc(w->context, sizeof *w->window);
    if (!w->window)
        return spry_fail_memory(error, "a window of the text", w->context * sizeof *w->window);
    size_t body = body_size(w), room = room_of(w);
    w->count = body <= room ? 1 : 1 + (body - room + w->stride - 1) / w->stride;
    w->n_counted = w->n_ids - 1;
    return SPRY_OK;
}

void spry_eval_windows_deinit(spry_eval_windows *w)
{
    free(w->ids);
    free(w->window);
    *w = (spry_eval_windows){0};
}

spry_eval_window spry_eval_windows_at(const spry_eval_windows *w, size_t index)
{
    const size_t start = w->has_start ? 1 : 0, room = room_of(w), body = body_size(w), begin = index * w->stride;
    const size_t count = body - begin < room ? body - begin : room;
    if (start)
        w->window[0] = w->ids[0];
    memcpy(w->window + start, w->ids + start + begin, count * sizeof *w->ids);
    return (spry_eval_window){w->window, start + count, index ? start + room - w->stride : 1};
}
