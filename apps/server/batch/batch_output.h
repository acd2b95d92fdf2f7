/* The output file of a batch: one JSON object per line, so that an interrupted batch can be continued. */
#ifndef SPRY_SERVER_BATCH_OUTPUT_H
#define SPRY_SERVER_BATCH_OUTPUT_H

#include <jansson.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/map.h"

typedef struct spry_batch_output {
    const char *path;
    int file;
    spry_arena arena; /* memory of the names */
    spry_map done;    /* every custom_id that has an answer */
} spry_batch_output;

/* Reads the earlier answers; an incomplete last line is removed. */
spry_status spry_batch_output_open(spry_batch_output *output, const char *path, spry_error *error);
void spry_batch_output_close(spry_batch_output *output);

bool spry_batch_output_has(const spry_batch_output *output, const char *custom_id);

/* Appends a line; takes the reference. */
spry_status spry_batch_output_add(spry_batch_output *output, json_t *line, spry_error *error);

#endif
