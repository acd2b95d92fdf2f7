/* Memory that a thread takes for a request: JSON values, buffers, token ids and arenas, whose sizes the request
 * decides. All requests together have a limit, so that none of them, however it is answered, takes the memory of the
 * machine.
 *
 * A thread that serves a request begins with a function that grants parts of the limit, and ends when the request is
 * over. What another thread frees stays counted until then. Threads without one have no limit. */
#ifndef SPRY_BASE_METER_H
#define SPRY_BASE_METER_H

#include <stdbool.h>
#include <stddef.h>

/* `take` is asked for parts of SPRY_METER_PART bytes, or for as much as one allocation needs. The end returns how many
 * of the granted bytes are not in use. */
void spry_meter_begin(bool (*take)(void *user, size_t bytes), void *user);
size_t spry_meter_end(void);

/* Between the two, what the thread allocates and frees is not its request's: a model that others will use, too, or the
 * sentence that says that memory is short. Pairs nest. */
void spry_meter_pause(void);
void spry_meter_resume(void);

enum { SPRY_METER_PART = 1 << 20 };

/* Before `bytes` are allocated. False: there are no more, and the allocation fails. */
bool spry_meter_take(size_t bytes);

/* How often memory was short in this thread: an allocation of a buffer or an arena failed, or spry_fail_memory said so. Code that
 * leaves out what it cannot get compares two counts, so that something that is there never passes for absent. */
unsigned spry_meter_shortages(void);
void spry_meter_count_shortage(void);

/* After `bytes` were freed, or were not allocated after all. */
void spry_meter_give(size_t bytes);

#endif
