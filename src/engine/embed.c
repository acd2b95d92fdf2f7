#include "engine/embed.h"

#include "engine/engine_state.h"

spry_status spry_embed_check(const spry_engine *e, const int32_t *ids, size_t count, spry_error *error)
{
    if (!count)
        return spry_fail(error, SPRY_ERR_INPUT, "an empty text has no embedding");
    return spry_engine_check_ids(e, ids, count, false, error);
}
