/* A batch over the processes that mpirun started: rank 0 hands lines out one by one and stores the answers; each rank
 * has an engine of its own. A rank that is not heard of any more is lost, and its lines are given to others. */
#ifndef SPRY_SERVER_BATCH_RANKS_H
#define SPRY_SERVER_BATCH_RANKS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "server/batch/batch_lines.h"

/* ---- rank 0 ------------------------------------------------------------------------------------------------------ */

typedef struct spry_batch_host spry_batch_host;

/* `on_answer` gets each answer of another rank, as JSON text without a newline, from one thread. */
spry_status spry_batch_host_start(spry_batch_host **out, spry_batch_lines *lines, uint32_t n_ranks,
                                  void (*on_answer)(void *user, spry_view json, bool failed), void *user,
                                  spry_error *error);

/* Returns when every other rank has left or is lost; the number of lost ones. */
size_t spry_batch_host_finish(spry_batch_host *host);

/* ---- other ranks ------------------------------------------------------------------------------------------------- */

typedef struct spry_batch_guest spry_batch_guest;

spry_status spry_batch_guest_start(spry_batch_guest **out, spry_error *error);

/* The text stays until it is freed by the caller. False: there are no more. Any thread. */
bool spry_batch_guest_next(spry_batch_guest *guest, spry_batch_line *line, char **text);
void spry_batch_guest_answer(spry_batch_guest *guest, size_t number, const char *json, bool failed);

/* Tells rank 0 that this rank is done. */
void spry_batch_guest_finish(spry_batch_guest *guest);

#endif
