/* The lines of a batch's input: which are taken, and by which rank. Any thread. */
#ifndef SPRY_SERVER_BATCH_LINES_H
#define SPRY_SERVER_BATCH_LINES_H

#include <pthread.h>

#include "base/view.h"
#include "platform/file.h"

typedef struct spry_batch_line {
    spry_view text;
    size_t number; /* from 1 */
    uint32_t rank; /* that answers it */
    bool free;     /* its rank is lost: another one may take it */
} spry_batch_line;

typedef struct spry_batch_lines {
    spry_mapping input;
    bool (*skip)(void *user, const spry_batch_line *line); /* NULL, or whether a line needs no answer */
    void *user;
    pthread_mutex_t lock; /* of all members below */
    pthread_cond_t changed;
    size_t at, line;        /* position in the input: byte and line */
    spry_batch_line *taken; /* and not answered yet */
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

#endif
