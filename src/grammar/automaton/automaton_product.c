/* The product of two deterministic automata: intersection or difference. */
#include "base/map.h"
#include "grammar/automaton/automaton.h"
#include "grammar/automaton/automaton_writer.h"
#include "grammar/ir/grow.h"

#define NOWHERE UINT32_MAX

typedef struct pair {
    uint32_t a, b; /* b may be NOWHERE when subtracting */
} pair;

typedef struct walker {
    const spry_automaton *a, *b;
    bool subtract;
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

/* The target of each byte from a state. */
static void spread(uint32_t targets[256], const spry_automaton *automaton, uint32_t state)
{
    for (unsigned i = 0; i < 256; i++)
        targets[i] = NOWHERE;
    if (state == NOWHERE)
        return;
    for (uint32_t i = automaton->first_edge[state]; i < automaton->first_edge[state + 1]; i++)
        for (unsigned byte = automaton->edges[i].first; byte <= automaton->edges[i].last; byte++)
            targets[byte] = automaton->edges[i].target;
}

static void write_pair(walker *walk, spry_automaton_writer *writer, pair at)
{
    uint32_t from_a[256], from_b[256];
    spread(from_a, walk->a, at.a);
    spread(from_b, walk->b, at.b);
    bool in_b = at.b != NOWHERE && walk->b->tags[at.b];
    uint32_t tag = walk->a->tags[at.a];
    spry_automaton_begin_state(writer, in_b != walk->subtract ? tag : 0);
    for (unsigned byte = 0; byte < 256; byte++) {
        if (from_a[byte] == NOWHERE || (!walk->subtract && from_b[byte] == NOWHERE))
            continue;
        uint32_t target = number_of(walk, (pair){from_a[byte], from_b[byte]});
        spry_automaton_add_edge(writer, (spry_edge){target, (unsigned char)byte, (unsigned char)byte});
    }
}

spry_automaton_result spry_automaton_product(spry_automaton *out, const spry_automaton *a, const spry_automaton *b,
                                             bool subtract, size_t max_states)
{
    walker walk = {.a = a, .b = b, .subtract = subtract, .max_states = max_states};
    spry_automaton_writer writer = {0};
    *out = (spry_automaton){0};
    if (a->n_states && (b->n_states || subtract))
        number_of(&walk, (pair){0, b->n_states ? 0 : NOWHERE});
    for (size_t i = 0; i < walk.n_pairs && !walk.result; i++)
        write_pair(&walk, &writer, walk.pairs[i]);
    spry_automaton_result written = spry_automaton_finish(&writer, out, true);
    free(walk.pairs);
    free(walk.table);
    if (!walk.result && !written)
        return spry_automaton_minimize(out);
    spry_automaton_deinit(out);
    return walk.result ? walk.result : written;
}
