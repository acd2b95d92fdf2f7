/* What an engine takes of memory, by part: told before it is opened, and counted while it is open. Resident bytes are
 * meant throughout, the steady ones: what stays once a session holds so many tokens. While a model is opened no more is
 * in use, as packing gives the file's pages back as it goes; only quantising holds what it made beside what is packed
 * of it. spry_memory_peak tells the most there ever was. */
#ifndef SPRY_ENGINE_MEMORY_PARTS_H
#define SPRY_ENGINE_MEMORY_PARTS_H

#include "spry.h"

typedef struct spry_memory_parts {
    size_t weights; /* as they lie in their file, copied, quantised and packed */
    size_t kv;      /* pages of keys and values, free ones included that were in use before */
    size_t cache;   /* pages kept for reuse, which no sequence holds */
    size_t scratch; /* working memory of steps, as far as their rows reach */
    size_t program; /* the rest of the process: code, libraries, heap, tokenizer, stacks */
    size_t whole;   /* the process; the sum of the above */
} spry_memory_parts;

/* How the engine will be used. */
typedef struct spry_memory_use {
    size_t tokens; /* the most that are held at once, of all sequences */
    size_t cached; /* kept beside them */
    size_t rows;   /* of the longest step; 0: as many as tokens and chunk allow */
    size_t logits; /* rows of logits a step gives; 0: one */
} spry_memory_use;

/* Of an engine that this process would open now; `program` is what the process holds already, and what the engine will
 * add to that. `data` NULL: `name` is a path. */
spry_status spry_memory_estimate(spry_memory_parts *parts, const char *name, const void *data, size_t size,
                                 const spry_engine_options *options, const spry_memory_use *use, spry_error *error);

/* Of an open engine, counted page by page. Whoever owns the engine calls it, between steps. Fails where the system does
 * not tell which pages are resident. */
spry_status spry_memory_measure(spry_memory_parts *parts, const spry_engine *engine, spry_error *error);

#endif
