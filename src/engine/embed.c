#include "engine/embed.h"

#include <math.h>

#include "engine/engine_state.h"

spry_status spry_embed_check(const spry_engine *e, const int32_t *ids, size_t count, spry_error *error)
{
    if (!count)
        return spry_fail(error, SPRY_ERR_INPUT, "an empty text has no embedding");
    return spry_engine_check_ids(e, ids, count, false, error);
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
