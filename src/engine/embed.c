/* The mean and the sum of hidden states point the same way, so only the sum is made. */
#include "engine/embed.h"

#include <math.h>
#include <stdlib.h>

#include "engine/engine_state.h"
#include "platform/clock.h"

spry_status spry_embed_check(const spry_engine *e, const int32_t *ids, size_t count, spry_error *error)
{
    if (!count)
        return spry_fail(error, SPRY_ERR_INPUT, "an empty text has no embedding");
    return spry_engine_check_ids(e, ids, count, false, error);
}

/* Adds those rows of a step that stand at `first` or behind it. */
static spry_status add_rows(double *sum, spry_device *device, const spry_segment *segments, size_t n_segments,
                            size_t first, size_t width, spry_error *error)
{
    size_t index = 0;
    for (size_t s = 0; s < n_segments; s++)
        for (size_t i = 0; segments[s].want == SPRY_WANT_HIDDEN && i < segments[s].n_rows; i++, index++) {
            const float *row;
            spry_status status = spry_device_hidden(device, &row, index, 1, error);
            if (status)
                return status;
            for (size_t k = 0; segments[s].first_position + i >= first && k < width; k++)
                sum[k] += (double)row[k];
        }
    return SPRY_OK;
}

static spry_status step(spry_session *s, double *sum, size_t first, spry_error *error)
{
    spry_engine *e = s->engine;
    spry_segment segments[SPRY_STEP_SEGMENTS];
    size_t n, rows = 0;
    spry_status status =
        spry_sequence_fill(&s->sequence, segments, &n, SPRY_STEP_SEGMENTS, e->chunk, SIZE_MAX, 0, error);
    for (size_t i = 0; !status && i < n; rows += segments[i++].n_rows)
        if (segments[i].first_position + segments[i].n_rows > first)
            segments[i].want = SPRY_WANT_HIDDEN;
    uint64_t start = spry_clock_ns();
    if (!status)
        status = spry_device_run(e->device, segments, n, error);
    uint64_t end = spry_clock_ns();
    if (!status)
        status = add_rows(sum, e->device, segments, n, first, e->model->config.n_embd, error);
    if (status) {
        spry_sequence_stop(&s->sequence);
        return status;
    }
    spry_engine_stepped(e, rows, end - start);
    spry_sequence_computed(&s->sequence, rows);
    return SPRY_OK;
}

spry_status spry_embed_add(spry_session *s, double *sum, const int32_t *ids, size_t count, size_t first,
                           spry_error *error)
{
    spry_found found;
    const spry_prompt prompt = {.ids = ids, .count = count, .compute_from = first};
    spry_status status = spry_sequence_begin(&s->sequence, &found, &prompt, error);
    while (!status && spry_sequence_pending(&s->sequence))
        status = step(s, sum, first, error);
    return status;
}

spry_status spry_embed_scale(float *out, const double *sum, size_t n, spry_error *error)
{
    double square = 0;
    for (size_t i = 0; i < n; i++)
        square += sum[i] * sum[i];
    if (!isfinite(square))
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "the model's numbers for this text are not finite");
    double scale = square > 0 ? 1 / sqrt(square) : 0;
    for (size_t i = 0; i < n; i++)
        out[i] = (float)(sum[i] * scale);
    return SPRY_OK;
}

spry_status spry_session_embed(spry_session *s, float *out, const int32_t *ids, size_t count, spry_error *error)
{
    size_t width = s->engine->model->config.n_embd;
    spry_status status = spry_embed_check(s->engine, ids, count, error);
    if (status)
        return status;
    double *sum = calloc(width, sizeof *sum);
    if (!sum)
        return spry_fail_memory(error, "an embedding", width * sizeof *sum);
    status = spry_embed_add(s, sum, ids, count, 0, error);
    if (!status)
        status = spry_embed_scale(out, sum, width, error);
    free(sum);
    return status;
}
