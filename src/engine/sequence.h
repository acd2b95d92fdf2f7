/* A sequence: its tokens, the table of pages that hold them, and the rows still to be computed.
 *
 * Beginning a prompt lays out its whole table: cached pages are shared; for the rest pages are allocated and *work* is
 * recorded: ranges of rows. The caller that runs steps gets the next rows as segments, alone or with segments of other
 * sequences, and reports when they are done. Computed pages are added to the cache at once.
 *
 * Spans are computed without the text before them, in separate tables that begin with the model's start token, and then
 * linked in at their position without it; some of their pages are recomputed in place. The same prompt with the same
 * spans therefore gives the same bits for any contents of the cache.
 *
 * A picture begins a page and ends one; its pages are found together or not at all, and it slides out whole. A prompt
 * with pictures has no fragments: their pages could be at other places of rope than tokens say.
 *
 * Sliding: when the table is full, pages after the kept head are removed and the rest moves up. The points where that
 * happens depend on the tokens alone. After it, the pages belong to this sequence only and are not cached. */
#ifndef SPRY_ENGINE_SEQUENCE_H
#define SPRY_ENGINE_SEQUENCE_H

#include "device/device.h"
#include "kv/kv_cache.h"

enum { SPRY_SLID_OUT = -1 };

/* A picture of a sequence, with its position in the table; SPRY_SLID_OUT when it is not there, or not yet. */
typedef struct spry_held_picture {
    spry_placed placed; /* referenced */
    int64_t position;
} spry_held_picture;

/* Rows of one table that must be computed. */
typedef struct spry_work {
    spry_kv_table *table;
    const int32_t *tokens; /* tokens of the table, from its beginning */
    spry_kv_key root;
    size_t first, end; /* [first, end) of the table */
    size_t needed_at;  /* position in the sequence's table that depends on this work */
} spry_work;

typedef struct spry_sequence {
    spry_kv_cache *cache;
    spry_kv_key root;
    spry_adapter_scales adapters; /* adapters of its rows; the root depends on them */
    spry_kv_table table;
    int32_t *tokens; /* all tokens so far, including those that slid out */
    size_t n_tokens, capacity;
    spry_held_picture *pictures; /* ascending */
    size_t n_pictures;
    int32_t *contents; /* NULL without pictures; else the tokens with the contents of pictures, until it slides */

    spry_work *work;
    size_t n_work, next_work, work_capacity;
    spry_kv_table *spans; /* tables of spans that are being computed */
    int32_t *span_texts;  /* their tokens, one text after another */
    size_t n_spans, n_span_texts;
    const int32_t *rest; /* the part of a long prompt that is still to be appended to the table; borrowed */
    size_t n_rest;

    bool slides;
    size_t keep;               /* tokens kept at the start when it slides */
    size_t n_dropped, slid_at; /* removed tokens; n_tokens when it last slid */
    size_t slid_keep;          /* `keep` at that time */
    bool unshared;             /* pages depend on the complete text and are not cached */
    bool fragments;            /* the prompt began with reused fragments */
    bool starved;              /* the last request for pages failed */
    bool prompting;            /* the prompt is not all computed */
    size_t *stops;             /* ascending: where its recurrent state is saved, at ends of declared fragments */
    size_t n_stops;
    bool fixed;          /* pages are valid only where they were computed: fragments are plain text */
    uint32_t span_pages; /* undeclared fragments with at least this number of cached pages are reused; 0: never */
    int32_t span_start;  /* spans are computed after this token, whose page is then left out; -1: after nothing */
} spry_sequence;

/* The contents of a sequence. */
typedef struct spry_prompt {
    const int32_t *ids; /* borrowed until everything is computed */
    size_t count;
    size_t compute_from;    /* rows from here on are always computed; at most count */
    const spry_span *spans; /* ascending */
    size_t n_spans;
    size_t repair;               /* as in spry_request; SPRY_REPAIR_ALL: spans are plain text */
    size_t n_more;               /* ids after the prompt, appended when it is computed */
    const spry_placed *pictures; /* ascending, borrowed during the call */
    size_t n_pictures;
} spry_prompt;

/* The result of beginning a prompt, in tokens. */
typedef struct spry_found {
    size_t reused;                  /* not computed, including spans and restored pages */
    size_t restored;                /* number of reused tokens that came from disk */
    size_t spans;                   /* number of reused tokens in spans */
    size_t repaired;                /* number of tokens in spans that were recomputed in place */
    double divergence;              /* estimate of what the reused spans cost, in nats per token */
    uint64_t lookup_ns, restore_ns; /* lookup; of that, restoring from disk */
} spry_found;

spry_status spry_sequence_init(spry_sequence *sequence, spry_kv_cache *cache, spry_kv_key root, size_t max_tokens,
                               spry_error *error);
void spry_sequence_deinit(spry_sequence *sequence);

/* Lays out a prompt. One that cannot fit changes nothing; when pages or memory are short the sequence is empty. */
spry_status spry_sequence_begin(spry_sequence *sequence, spry_found *found, const spry_prompt *prompt,
                                spry_error *error);

/* How far rope's position is from a position of the table, because of the pictures before it. */
int32_t spry_sequence_shift(const spry_sequence *sequence, size_t position);

/* Rows still to be computed. */
size_t spry_sequence_pending(const spry_sequence *sequence);

/* The fewest rows that the next fill can take: those of a picture whose rows see each other, or one. */
size_t spry_sequence_least_rows(const spry_sequence *sequence);

/* The next rows, at most `max_rows` in at most `capacity` segments; *n is the number of segments. Rows from position
 * `want_from` on get logits, at most `max_wanted` of them. Fails when a full table cannot hold the rest. */
spry_status spry_sequence_fill(spry_sequence *sequence, spry_segment *segments, size_t *n, size_t capacity,
                               size_t max_rows, size_t want_from, size_t max_wanted, spry_error *error);

/* Reports that the rows of the last fill have been computed. Pages with some of the last `n_drafts` tokens, which may
 * be refused, are not cached yet. */
void spry_sequence_computed(spry_sequence *sequence, size_t n_rows, size_t n_drafts);

/* Drops the rows still to be computed, and keeps those before them. */
void spry_sequence_stop(spry_sequence *sequence);

/* Appends tokens, to be computed like any others; slides first when the table is full. */
spry_status spry_sequence_append(spry_sequence *sequence, const int32_t *ids, size_t count, spry_error *error);

/* Empties the sequence; its computed pages are added to the cache, and its ids stay. */
void spry_sequence_release(spry_sequence *sequence);

/* Removes tokens from the end, computed or not; at most those since it last slid. */
void spry_sequence_truncate(spry_sequence *sequence, size_t n_tokens);

/* Fragments of a prompt whose cached pages are reused after other text than they were computed after. */

/* What reusing `spans` tokens of a prompt, with `repaired` more of them recomputed in place, is expected to cost: the
 * mean KL divergence from full prefill, in nats per token, as measured with a model that has a start token or one that
 * has none. */
double spry_span_divergence(size_t spans, size_t repaired, size_t prompt, bool start_token);

/* The share of the spans that must be recomputed for a divergence of at most `bound`, if all of a prompt is spans. */
double spry_span_share(double bound, bool start_token);

/* ---- shared by sequence.c and sequence_layout.c ------------------------------------------------------------------ */

static inline size_t spry_placed_end(const spry_placed *placed)
{
    return placed->at + placed->picture->n_rows;
}

/* Replaces the pictures, which the sequence then owns, and drops the contents that were made of the old ones. */
void spry_sequence_set_pictures(spry_sequence *sequence, spry_held_picture *pictures, size_t n);

/* Records rows to be computed; adjacent rows are merged. */
spry_status spry_sequence_add_work(spry_sequence *sequence, const spry_work *work, spry_error *error);

/* Extends a table, and evicts cached pages when there are too few free ones. */
spry_status spry_sequence_take_pages(spry_sequence *sequence, spry_kv_table *table, size_t count, spry_error *error);

/* Drops all work and all pages of the table, which are not cached. */
void spry_sequence_forget(spry_sequence *sequence);

#endif
