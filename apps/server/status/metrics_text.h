/* The registry as the text of GET /metrics, in the format of Prometheus. */
#ifndef SPRY_SERVER_METRICS_TEXT_H
#define SPRY_SERVER_METRICS_TEXT_H

#include "server/server.h"

/* Appends to `out`; out->failed when memory is short. */
void spry_metrics_print(spry_buffer *out, spry_server *server);

#endif
