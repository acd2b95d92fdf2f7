/* Where in a grammar the text so far may be: the "places" of a matcher. There are three kinds of objects. Equal objects
 * are stored once and identified by a number, so that comparing, storing and undoing need only that number:
 *
 *   a stack   a set of returns: where to continue when the current machine is complete. One stack may represent many,
 *             since each return has a stack below it; this keeps ambiguous grammars small.
 *   a record  the members seen in an object.
 *   a set     every (state, stack) the text could be in, at most one stack per state, and whether it may end here.
 *
 * spry_places holds all objects of one matcher, or of one mask store. Objects refer only to older objects. Numbers are
 * valid until the next spry_places_collect, which keeps the objects that the caller's roots need and removes the
 * rest. */
#ifndef SPRY_GRAMMAR_MATCH_STACKS_H
#define SPRY_GRAMMAR_MATCH_STACKS_H

#include "grammar/compile/program.h"

typedef struct spry_return {
    uint32_t state, data, below;
} spry_return;

typedef struct spry_position {
    uint32_t state, stack;
} spry_position;

typedef struct spry_slice {
    uint32_t first, count;
} spry_slice;

typedef struct spry_set {
    spry_slice positions;
    uint64_t bytes[4]; /* bytes allowed next: bit b % 64 of word b / 64 */
    bool may_end;
    uint8_t steps; /* number of steps computed, until a row is allocated */
    uint32_t row;  /* index into `rows`, 0: none; the target of each byte */
} spry_set;

/* A hash table of objects by content. */
typedef struct spry_number_table {
    uint32_t *slots; /* [size], a power of two; number + 1, 0: free */
    size_t size;
} spry_number_table;

/* A hash of 128 bits. */
typedef struct spry_digest {
    uint64_t words[2];
} spry_digest;

typedef struct spry_closing spry_closing;

typedef struct spry_places {
    const spry_grammar *grammar;
    spry_return *returns;
    spry_slice *stacks;
    uint64_t *words; /* contents of records: object and count, missing keys, keys seen */
    uint32_t *records;
    spry_position *positions;
    spry_set *sets;
    uint32_t *rows; /* rows of 256 sets each; the first row is unused */
    size_t n_returns, n_stacks, n_words, n_records, n_positions, n_sets, n_rows;
    size_t returns_room, stacks_room, words_room, records_room, positions_room, sets_room, rows_room;
    spry_number_table stack_table, record_table, set_table;
    uint32_t *stack_lengths; /* [n_stack_lengths] bytes to the end of the text, where known (completion.c) */
    size_t n_stack_lengths, stack_lengths_room;
    spry_digest *digests; /* [n_digests] digests of stacks; words[0] is 0 where not known */
    uint32_t *undigested;
    size_t n_digests, digests_room, undigested_room;
    spry_closing *closing;
    uint64_t work, work_max; /* positions, returns and tree nodes visited so far; exceeding work_max fails */
    spry_status failed;      /* memory or a limit; stays until the next collection */
} spry_places;

enum {
    SPRY_NO_SET = 0,   /* no match */
    SPRY_NO_STACK = 0, /* a stack without returns */
};

spry_status spry_places_init(spry_places *places, const spry_grammar *grammar, spry_error *error);
void spry_places_deinit(spry_places *places);

/* The set before any text. */
uint32_t spry_places_start(spry_places *places);

/* The set in which all machines that wait for these returns have just been completed. */
uint32_t spry_places_resume(spry_places *places, spry_slice returns);

/* Every operation whose cost depends on the grammar is charged here, so that no grammar can delay a step without
 * limit. */
static inline void spry_places_charge(spry_places *places, uint64_t work)
{
    places->work += work;
    if (places->work > places->work_max && !places->failed)
        places->failed = SPRY_ERR_UNSUPPORTED;
}

static inline bool spry_set_takes(const spry_set *set, unsigned char byte)
{
    return set->bytes[byte / 64] >> byte % 64 & 1;
}

#define SPRY_STEP_UNKNOWN UINT32_MAX

/* Computes a step that is not cached. */
uint32_t spry_places_compute_step(spry_places *places, uint32_t set, unsigned char byte);

/* The set after one more byte; SPRY_NO_SET when the byte does not match, or when places->failed. */
static inline uint32_t spry_places_step(spry_places *places, uint32_t set, unsigned char byte)
{
    const spry_set *from = &places->sets[set];
    if (from->row) {
        uint32_t known = places->rows[(size_t)from->row * 256 + byte];
        if (known != SPRY_STEP_UNKNOWN)
            return known;
    } else if (!spry_set_takes(from, byte)) {
        return SPRY_NO_SET;
    }
    return spry_places_compute_step(places, set, byte);
}

/* A digest of everything that decides what may follow a set: equal for equivalent sets in any two matchers of a
 * grammar. False when memory is short. */
bool spry_places_digest(spry_places *places, spry_digest *out, uint32_t set);

/* Bytes used. */
size_t spry_places_bytes(const spry_places *places);

/* Removes all objects that `roots` (sets, renumbered in place) do not need. False when memory is short; then nothing
 * changes. */
bool spry_places_collect(spry_places *places, uint32_t *roots, size_t n_roots);

/* The error for places->failed. */
spry_status spry_places_fail(const spry_places *places, spry_error *error);

/* ---- for the files of this folder -------------------------------------------------------------------------------- */

/* The stack with these returns, which are sorted and deduplicated in place. */
uint32_t spry_places_stack(spry_places *places, spry_return *returns, size_t count);

/* The record of an object without members, and one with a member added (`declared`: its number, or SPRY_NO_STATE for a
 * repeatable one). */
uint32_t spry_places_no_members(spry_places *places, uint32_t object);
uint32_t spry_places_member(spry_places *places, uint32_t record, uint32_t declared);

typedef struct spry_record {
    const spry_object *object;
    uint32_t count, missing; /* number of members so far; number of required members that are missing */
    const uint64_t *seen;
} spry_record;

spry_record spry_places_record(const spry_places *places, uint32_t record);

/* Whether a declared key of `keys`, or a repeatable key, may come next. */
bool spry_record_allows_declared(const spry_record *record, const uint64_t *keys);
bool spry_record_allows(const spry_record *record, uint32_t declared);
bool spry_record_allows_many(const spry_record *record);
bool spry_record_may_close(const spry_record *record);

/* The set with these positions: at most one per state, sorted by state. */
uint32_t spry_places_set(spry_places *places, const spry_position *positions, size_t count, bool may_end);

/* True if a state over this stack can still lead to an allowed text: a state of a key automaton to an allowed key, a
 * state of a limited text to an allowed length (the stack has the number of units before the byte that led to the
 * state). */
bool spry_places_alive(spry_places *places, uint32_t state, uint32_t stack);

/* The limit that a return below a limited text belongs to; then, whether a text of `count` units can be completed from
 * a state. */
const spry_limit *spry_places_limit(const spry_places *places, const spry_return *back);
bool spry_limit_allows(const spry_limit *limit, uint32_t state, uint32_t count);
/* The number of units after one more unit. */
uint32_t spry_limit_next(const spry_limit *limit, uint32_t count);
/* The index into limit->ways of the shortest paths from a state after `count` units. */
size_t spry_limit_way(const spry_limit *limit, uint32_t state, uint32_t count);

/* Scratch memory of a step. */

typedef struct spry_closing spry_closing;

spry_closing *spry_closing_create(void); /* NULL when memory is short */
void spry_closing_destroy(spry_closing *closing);

/* Internals of a matcher. */

struct spry_matcher {
    spry_grammar *grammar;
    const spry_vocabulary *vocabulary;
    spry_places places;
    uint32_t set;      /* current set */
    uint32_t *history; /* [n_history] the set before each token */
    size_t n_history, history_room;
    size_t collect_at;        /* bytes of all objects at which unused ones are removed */
    uint32_t *mask, *scratch; /* [n_words] of the vocabulary */
    bool walked;              /* computing the mask needed a walk over tokens */
    uint32_t *path;           /* sets along the current trie path */
};

/* Removes unused stacks, records and sets when there are many. Set numbers change. */
spry_status spry_matcher_keep_bounded(spry_matcher *matcher, spry_error *error);

#endif
