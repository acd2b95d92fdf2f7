/* The file of answers of a batch: one JSON object a line, appended whole, so that a batch that was cut off can go on.
 */
#ifndef SPRY_SERVER_BATCH_OUTPUT_H
#define SPRY_SERVER_BATCH_OUTPUT_H

#include <jansson.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/map.h"

typedef struct spry_batch_output {
    const char *path;
    int file;
    spry_arena arena; /* of the names */
    spry_map done;    /* custom_id: answered before */
} spry_batch_output;

/* Reads what was answered before; half a line at the end is taken off. */
spry_status spry_batch_output_open(spry_batch_output *output, const char *path, spry_error *error);
void spry_batch_output_close(spry_batch_output *output);

bool spry_batch_output_has(const spry_batch_output *output, const char *custom_id);

/* Takes the reference. */
spry_status spry_batch_output_add(spry_batch_output *output, json_t *line, spry_error *error);

#endif
