/* Reads a trace file, line by line in bounded memory, into sums and distributions over its requests, steps and ops. */
#ifndef SPRY_APPS_TRACE_READ_H
#define SPRY_APPS_TRACE_READ_H

#include <jansson.h>
#include <stdio.h>

#include "base/error.h"

/* What a spoken turn comes to, each a span of category "turn" since the end of speech. */
enum { SPRY_TURN_ENDS = 4 };
extern const char *const spry_turn_end_names[SPRY_TURN_ENDS];

/* A part of a request by name; SPRY_PART_COUNT: unknown. */
size_t spry_trace_part(const char *name);

/* Reads an open file to its end. Messages contain no file name. The caller releases *out with json_decref:
 *
 *   requests, steps, cut (the last line is incomplete and was ignored), generated_tokens, rows_a_step, waits_a_token,
 *   ahead_share, covered_share (of the requests' time, by their parts), first and between (distributions of ms),
 *   parts (distributions of ms per request, with "part" and "share"), turns (with "turn", since the end of speech),
 *   ops (op, kernel, ms, share, calls; longest first), and shown, the first requests in detail: request,
 *   prompt_tokens, generated_tokens, first_ms, whole_ms, tps, parts_ms (until the first token).
 *
 * A distribution has count, sum, p50, p95, p99 and most. What is unknown is missing. */
spry_status spry_trace_read(json_t **out, FILE *file, spry_error *error);

#endif
