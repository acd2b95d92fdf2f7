/* A sequence: its tokens, the table of pages that hold them, and what of it is still to be computed.
 *
 * Beginning a prompt lays out its whole table: cached pages are shared; for the rest pages are
 * allocated and *work* is recorded: ranges of rows. The caller that runs steps gets the next rows as segments, alone or
 * with those of other sequences, and reports when they are done. Computed pages are added to the cache at once.
 *
 * Spans are computed as if nothing stood before them, in tables of their own, and then linked in where they stand; the
 * first rows of each are computed again in place. The same prompt with the same spans therefore gives the same bits
 * whatever was cached.
 *
 * Sliding: when the table is full, pages after the kept head go and the rest moves up. When that happens depends on the
 * tokens alone. Once it has happened, pages are this sequence's own and are not made known. */
#ifndef SPRY_ENGINE_SEQUENCE_H
#define SPRY_ENGINE_SEQUENCE_H

#include "device/device.h"
#include "kv/kv_cache.h"

/* Rows of one table that are to be computed. */
typedef struct spry_work {
    spry_kv_table *table;
    const int32_t *tokens; /* of the table, from its beginning */
    spry_kv_key root;
    size_t first, end; /* [first, end) of the table */
    size_t needed_at;  /* position in the sequence's own table from which on nothing can be used without it */
} spry_work;

typedef struct spry_sequence {
    spry_kv_cache *cache;
    spry_kv_key root;
    spry_kv_table table;
    int32_t *tokens; /* everything so far, also what slid away */
    size_t n_tokens, capacity;

    spry_work *work;
    size_t n_work, next_work, work_capacity;
    spry_kv_table *spans; /* tables of spans that are being computed */
    size_t n_spans, span_capacity;
    const int32_t *rest; /* of a prompt longer than the table: what is still to be appended; borrowed */
    size_t n_rest;

    bool slides;
    size_t keep;               /* tokens of the head that stay, when it slides */
    size_t n_dropped, slid_at; /* tokens that went; n_tokens when it last slid */
    size_t slid_keep;          /* `keep` at that time */
    bool fragments;            /* it began with fragments, as computed elsewhere */
    bool starved;              /* the last time it asked for pages there were too few */
} spry_sequence;

/* What a sequence is to hold. */
typedef struct spry_prompt {
    const int32_t *ids; /* borrowed until all of it is computed */
    size_t count;
    size_t compute_from;    /* rows from here on are computed in any case; at most count */
    const spry_span *spans; /* ascending */
    size_t n_spans;
    size_t repair; /* tokens of each span that are computed in place; SPRY_REPAIR_ALL: spans are plain text */
    size_t n_more; /* ids behind the prompt, that are appended to it when it is computed */
} spry_prompt;

/* What came of beginning a prompt, in tokens of it. */
typedef struct spry_found {
    size_t reused;                  /* need not be computed, spans and restored ones included */
    size_t restored;                /* of them: read from disk */
    size_t spans;                   /* of them: in spans, as computed elsewhere */
    size_t repaired;                /* of spans, computed again in place */
    uint64_t lookup_ns, restore_ns; /* finding; of that, reading from disk */
} spry_found;

spry_status spry_sequence_init(spry_sequence *sequence, spry_kv_cache *cache, spry_kv_key root, size_t max_tokens,
                               spry_error *error);
void spry_sequence_deinit(spry_sequence *sequence);

/* Lays out a prompt. One that cannot fit changes nothing; when pages or memory are short the sequence is empty. */
spry_status spry_sequence_begin(spry_sequence *sequence, spry_found *found, const spry_prompt *prompt,
                                spry_error *error);

/* Rows that are still to be computed. */
size_t spry_sequence_pending(const spry_sequence *sequence);

/* The next rows, at most `max_rows` in at most `capacity` segments; *n says how many segments. Rows of the sequence
 * from position `want_from` on want their logits, and at most `max_wanted` of them are given. Fails when a full table
 * cannot take what is left. */
spry_status spry_sequence_fill(spry_sequence *sequence, spry_segment *segments, size_t *n, size_t capacity,
                               size_t max_rows, size_t want_from, size_t max_wanted, spry_error *error);

/* The rows that fill gave have been computed. */
void spry_sequence_computed(spry_sequence *sequence, size_t n_rows);

/* Gives up what is still to be computed, and keeps what stands before it. */
void spry_sequence_stop(spry_sequence *sequence);

/* Appends tokens, to be computed like any others; slides before that when the table is full. */
spry_status spry_sequence_append(spry_sequence *sequence, const int32_t *ids, size_t count, spry_error *error);

/* Empties the sequence; what it computed becomes known, and its ids stay where they are. */
void spry_sequence_release(spry_sequence *sequence);

/* Takes back tokens from the end, computed or not; at most those since it last slid. */
void spry_sequence_truncate(spry_sequence *sequence, size_t n_tokens);

#endif
