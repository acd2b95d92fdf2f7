/* The output file of a batch: one JSON object per line, so that an interrupted batch can be continued. */
#ifndef SPRY_SERVER_BATCH_OUTPUT_H
#define SPRY_SERVER_BATCH_OUTPUT_H

#include <jansson.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/map.h"
#include "platform/file.h"

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

/* Appends a line. */
spry_status spry_batch_output_add(spry_batch_output *output, spry_view json, spry_error *error);

/* The custom_id of a line of the input; without one, it is named by its number, in `room`. */
enum { SPRY_BATCH_ID_BYTES = 32 };
const char *spry_batch_line_id(char room[SPRY_BATCH_ID_BYTES], const json_t *request, size_t number);

/* Replaces the file by one whose lines are in the order of the input. */
spry_status spry_batch_output_sort(spry_batch_output *output, const spry_mapping *input, spry_error *error);

#endif
