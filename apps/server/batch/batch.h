/* The parts of `spry batch`: lines of the input file, lines of the output file, and several processes. */
#ifndef SPRY_SERVER_BATCH_BATCH_H
#define SPRY_SERVER_BATCH_BATCH_H

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/map.h"
#include "base/view.h"
#include "platform/file.h"

typedef struct spry_batch_line {
    spry_view text;
    size_t number; /* from 1 */
    uint32_t rank; /* the process that answers it */
    bool free;     /* the rank that took the line is lost: another one may take it */
} spry_batch_line;

typedef struct spry_batch_lines {
    spry_mapping input;
    bool (*skip)(void *user, const spry_batch_line *line); /* NULL, or whether a line needs no answer */
    void *user;
    pthread_mutex_t lock; /* guards all members below */
    pthread_cond_t changed;
    size_t at, line;        /* position in the input: byte and line */
    spry_batch_line *taken; /* lines that are taken and not answered yet */
    size_t n_taken, capacity;
    bool stopped;
} spry_batch_lines;

typedef enum spry_batch_take { SPRY_BATCH_LINE, SPRY_BATCH_LATER, SPRY_BATCH_END } spry_batch_take;

spry_status spry_batch_lines_open(spry_batch_lines *lines, const char *path, spry_error *error);
void spry_batch_lines_close(spry_batch_lines *lines);

/* The next line that is not blank. LATER: all are taken, but a rank that is lost would leave some. */
spry_batch_take spry_batch_lines_take(spry_batch_lines *lines, spry_batch_line *line, uint32_t rank);

/* The same, waiting for a line or the end. */
bool spry_batch_lines_next(spry_batch_lines *lines, spry_batch_line *line, uint32_t rank);

/* A line is answered. False: this rank has no such line, because it was given to another one. */
bool spry_batch_lines_done(spry_batch_lines *lines, size_t number, uint32_t rank);

/* Its lines are given to others. */
void spry_batch_lines_lose(spry_batch_lines *lines, uint32_t rank);

/* No more lines are taken. */
void spry_batch_lines_stop(spry_batch_lines *lines);

/* ---- the output file --------------------------------------------------------------------------------------------- */

/* The output file of a batch: one JSON object per line, so that an interrupted batch can be continued. */

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

/* ---- several processes ------------------------------------------------------------------------------------------- */

/* A batch over the processes that mpirun started: rank 0 hands lines out one by one and stores the answers; each rank
 * has an engine of its own. A rank that is not heard of any more is lost, and its lines are given to others. */

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
