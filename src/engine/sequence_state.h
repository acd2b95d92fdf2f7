/* Shared by the two files of sequences. */
#ifndef SPRY_ENGINE_SEQUENCE_STATE_H
#define SPRY_ENGINE_SEQUENCE_STATE_H

#include "engine/sequence.h"

/* Records rows to be computed; adjacent rows are merged. */
spry_status spry_sequence_add_work(spry_sequence *sequence, const spry_work *work, spry_error *error);

/* Extends a table and evicts cached pages when there are too few free ones. */
spry_status spry_sequence_take_pages(spry_sequence *sequence, spry_kv_table *table, size_t count, spry_error *error);

/* Drops all work. */
void spry_sequence_forget_work(spry_sequence *sequence);

#endif
