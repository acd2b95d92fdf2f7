/* The registry as text: GET /metrics, /watch and /slots. */
#ifndef SPRY_SERVER_STATUS_STATUS_TEXT_H
#define SPRY_SERVER_STATUS_STATUS_TEXT_H

#include <jansson.h>

#include "server/server.h"

/* Appends to `out`; out->failed when memory is short. */
void spry_metrics_print(spry_buffer *out, spry_server *server);

/* ---- the watch --------------------------------------------------------------------------------------------------- */

/* The registry as JSON, for GET /watch and /slots; apps/web/WATCH.md documents the members. */

/* The text of one snapshot, which the caller frees; NULL when memory is short. It has the requests of `key` that run or
 * ended in the last seconds; the first snapshot of a stream has the requests of the last two minutes. */
char *spry_watch_snapshot(spry_server *server, spry_view key, bool first);

/* The requests of one key that have not ended, or ended less than `ended_ns` ago. */
json_t *spry_watch_requests(spry_server *server, spry_view key, uint64_t ended_ns);

/* Memory of a model, in use and its limits apart, in bytes. */
json_t *spry_watch_memory(const spry_model_status *model);

/* {"limit", "why"}: how many answers of a model are decoded in one step at present. */
json_t *spry_watch_batch(const spry_model_status *model);

#endif
