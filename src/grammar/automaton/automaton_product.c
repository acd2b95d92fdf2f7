/* The product of two deterministic automata: intersection, difference, or the first one with marks. */
#include "base/map.h"
#include "grammar/automaton/automaton.h"
#include "grammar/automaton/automaton_writer.h"
#include "grammar/ir/grow.h"

#define NOWHERE UINT32_MAX

enum { PAIR_WORK = 384 }; /* making and minimising one costs about as much as this many visited edges */

typedef struct pair {
    uint32_t a, b; /* b may be NOWHERE when subtracting */
} pair;

typedef struct walker {
    const spry_automaton *a, *b;
    spry_product kind;
    size_t max_states;
    pair *pairs;
    size_t n_pairs, pairs_room;
    uint32_t *table; /* pair + 1, 0: free */
    size_t table_size;
    spry_automaton_result result;
} walker;

static size_t pair_slot(const walker *walk, pair wanted)
{
    size_t at = (size_t)spry_hash_bytes(&wanted, sizeof wanted, 3) & (walk->table_size - 1);
    for (; walk->table[at]; at = (at + 1) & (walk->table_size - 1)) {
        pair there = walk->pairs[walk->table[at] - 1];
        if (there.a == wanted.a && there.b == wanted.b)
            break;
    }
    return at;
}

static bool grow_table(walker *walk)
{
    if ((walk->n_pairs + 1) * 2 <= walk->table_size)
        return true;
    size_t size = walk->table_size ? walk->table_size * 2 : 64;
    uint32_t *table = calloc(size, sizeof *table);
    if (!table)
        return false;
    free(walk->table);
    walk->table = table;
    walk->table_size = size;
    for (size_t i = 0; i < walk->n_pairs; i++)
        walk->table[pair_slot(walk, walk->pairs[i])] = (uint32_t)i + 1;
    return true;
}

static uint32_t number_of(walker *walk, pair wanted)
{
    if (walk->result)
        return 0;
    if (!grow_table(walk) || !spry_grow(&walk->pairs, &walk->pairs_room, walk->n_pairs + 1, sizeof *walk->pairs)) {
        walk->result = SPRY_AUTOMATON_NO_MEMORY;
        return 0;
    }
    size_t slot = pair_slot(walk, wanted);
    if (walk->table[slot])
        return walk->table[slot] - 1;
    if (walk->n_pairs >= walk->max_states) {
        walk->result = SPRY_AUTOMATON_TOO_LARGE;
        return 0;
    }
    walk->pairs[walk->n_pairs] = wanted;
    walk->table[slot] = (uint32_t)++walk->n_pairs;
    return (uint32_t)walk->n_pairs - 1;
}

/* Adds the edges for the bytes [first, last], on which `a` goes to one state: they are divided by the edges of `b` from
 * `edge` on. */
static void write_range(walker *walk, spry_automaton_writer *writer, uint32_t target, unsigned first, unsigned last,
                        const spry_edge *edge, const spry_edge *end)
{
    while (first <= last) {
        while (edge < end && edge->last < first)
            edge++;
        bool inside = edge < end && edge->first <= first;
        unsigned stop = inside ? edge->last : edge < end && edge->first <= last ? edge->first - 1u : last;
        stop = stop < last ? stop : last;
        if (inside || walk->kind == SPRY_PRODUCT_WITHOUT) {
            uint32_t number = number_of(walk, (pair){target, inside ? edge->target : NOWHERE});
            spry_automaton_add_edge(writer, (spry_edge){number, (unsigned char)first, (unsigned char)stop});
        }
        first = stop + 1;
    }
}

static void write_pair(walker *walk, spry_automaton_writer *writer, pair at)
{
    const spry_automaton *a = walk->a, *b = walk->b;
    bool in_b = at.b != NOWHERE && b->tags[at.b];
    const spry_edge *edge = NULL, *end = NULL;
    if (at.b != NOWHERE) {
        edge = b->edges + b->first_edge[at.b];
        end = b->edges + b->first_edge[at.b + 1];
    }
    uint32_t tag = in_b != (walk->kind == SPRY_PRODUCT_WITHOUT) ? a->tags[at.a] : 0;
    if (walk->kind == SPRY_PRODUCT_MARKED)
        tag = in_b ? 1 + (a->tags[at.a] != 0) : 0;
    spry_automaton_begin_state(writer, tag);
    for (uint32_t i = a->first_edge[at.a]; i < a->first_edge[at.a + 1]; i++)
        write_range(walk, writer, a->edges[i].target, a->edges[i].first, a->edges[i].last, edge, end);
}

spry_automaton_result spry_automaton_product(spry_automaton *out, const spry_automaton *a, const spry_automaton *b,
                                             spry_product kind, size_t max_states, uint64_t *spent)
{
    walker walk = {.a = a, .b = b, .kind = kind, .max_states = max_states};
    spry_automaton_writer writer = {0};
    *out = (spry_automaton){0};
    if (a->n_states && (b->n_states || kind == SPRY_PRODUCT_WITHOUT))
        number_of(&walk, (pair){0, b->n_states ? 0 : NOWHERE});
    for (size_t i = 0; i < walk.n_pairs && !walk.result; i++) {
        write_pair(&walk, &writer, walk.pairs[i]);
        *spent += PAIR_WORK;
        if (*spent >= SPRY_AUTOMATON_WORK_MAX)
            walk.result = SPRY_AUTOMATON_TOO_LARGE;
    }
    spry_automaton_result written = spry_automaton_finish(&writer, out, true);
    free(walk.pairs);
    free(walk.table);
    if (!walk.result && !written)
        return kind == SPRY_PRODUCT_MARKED ? SPRY_AUTOMATON_OK : spry_automaton_minimize(out);
    spry_automaton_deinit(out);
    return walk.result ? walk.result : written;
}
