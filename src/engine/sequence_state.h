/* What the two files of sequences share. */
#ifndef SPRY_ENGINE_SEQUENCE_STATE_H
#define SPRY_ENGINE_SEQUENCE_STATE_H

#include "engine/sequence.h"

/* Notes rows to be computed; rows that go on where the last ones end become one piece with them. */
spry_status spry_sequence_add_work(spry_sequence *sequence, const spry_work *work, spry_error *error);

/* Extends a table, letting cached pages go when there are too few free ones. */
spry_status spry_sequence_take_pages(spry_sequence *sequence, spry_kv_table *table, size_t count, spry_error *error);

/* Nothing is to be computed any more. */
void spry_sequence_forget_work(spry_sequence *sequence);

#endif
