/* Automata: states, edges and copies; products; shortest paths counted in units; and the cache of deterministic
 * automata. */
#include "grammar/automaton/automaton.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/map.h"
#include "grammar/ir/grow.h"

/* ---- construction of nondeterministic automata ------------------------------------------------------------------- */

void spry_automaton_deinit(spry_automaton *automaton)
{
    free(automaton->first_edge);
    free(automaton->first_call);
    free(automaton->edges);
    free(automaton->calls);
    free(automaton->tags);
    *automaton = (spry_automaton){0};
}

void spry_nfa_init(spry_nfa *nfa, size_t limit)
{
    *nfa = (spry_nfa){.limit = limit};
}

void spry_nfa_deinit(spry_nfa *nfa)
{
    free(nfa->states);
    free(nfa->edges);
    *nfa = (spry_nfa){0};
}

uint32_t spry_nfa_state_add(spry_nfa *nfa)
{
    if (nfa->result)
        return 0;
    if (nfa->n_states >= nfa->limit)
        nfa->result = SPRY_AUTOMATON_TOO_LARGE;
    else if (!spry_grow(&nfa->states, &nfa->states_room, nfa->n_states + 1, sizeof *nfa->states))
        nfa->result = SPRY_AUTOMATON_NO_MEMORY;
    if (nfa->result)
        return 0;
    nfa->states[nfa->n_states] = (spry_nfa_state){SPRY_NFA_NO_EDGE, 0};
    return (uint32_t)nfa->n_states++;
}

static void add_edge(spry_nfa *nfa, uint32_t from, spry_nfa_edge edge)
{
    if (nfa->result)
        return;
    if (nfa->n_edges >= nfa->limit * 4)
        nfa->result = SPRY_AUTOMATON_TOO_LARGE;
    else if (!spry_grow(&nfa->edges, &nfa->edges_room, nfa->n_edges + 1, sizeof *nfa->edges))
        nfa->result = SPRY_AUTOMATON_NO_MEMORY;
    if (nfa->result)
        return;
    edge.next = nfa->states[from].edge;
    nfa->states[from].edge = (uint32_t)nfa->n_edges;
    nfa->edges[nfa->n_edges++] = edge;
}

void spry_nfa_silent(spry_nfa *nfa, uint32_t from, uint32_t to)
{
    add_edge(nfa, from, (spry_nfa_edge){.target = to, .kind = SPRY_NFA_SILENT});
}

void spry_nfa_bytes(spry_nfa *nfa, uint32_t from, uint32_t to, unsigned char first, unsigned char last)
{
    add_edge(nfa, from, (spry_nfa_edge){.target = to, .kind = SPRY_NFA_BYTES, .first = first, .last = last});
}

void spry_nfa_call(spry_nfa *nfa, uint32_t from, uint32_t to, uint32_t callee)
{
    add_edge(nfa, from, (spry_nfa_edge){.target = to, .kind = SPRY_NFA_CALL, .callee = callee});
}

void spry_nfa_insert(spry_nfa *nfa, uint32_t from, uint32_t to, const spry_automaton *automaton)
{
    uint32_t base = (uint32_t)nfa->n_states;
    for (uint32_t i = 0; i < automaton->n_states; i++)
        spry_nfa_state_add(nfa);
    if (automaton->n_states)
        spry_nfa_silent(nfa, from, base);
    for (uint32_t i = 0; i < automaton->n_states && !nfa->result; i++) {
        for (uint32_t j = automaton->first_edge[i]; j < automaton->first_edge[i + 1]; j++) {
            spry_edge edge = automaton->edges[j];
            spry_nfa_bytes(nfa, base + i, base + edge.target, edge.first, edge.last);
        }
        if (automaton->tags[i])
            spry_nfa_silent(nfa, base + i, to);
    }
}

/* ---- writing state by state -------------------------------------------------------------------------------------- */

void spry_automaton_begin_state(spry_automaton_writer *writer, uint32_t tag)
{
    spry_automaton *made = &writer->made;
    size_t n = writer->n_states + 2;
    if (writer->failed || !spry_grow(&made->tags, &writer->tags_room, n, sizeof *made->tags) ||
        !spry_grow(&made->first_edge, &writer->first_edge_room, n, sizeof *made->first_edge) ||
        !spry_grow(&made->first_call, &writer->first_call_room, n, sizeof *made->first_call)) {
        writer->failed = true;
        return;
    }
    made->tags[writer->n_states] = tag;
    made->first_edge[writer->n_states] = (uint32_t)writer->n_edges;
    made->first_call[writer->n_states] = (uint32_t)writer->n_calls;
    writer->n_states++;
}

void spry_automaton_add_edge(spry_automaton_writer *writer, spry_edge edge)
{
    spry_automaton *made = &writer->made;
    if (writer->failed)
        return;
    if (writer->n_edges > made->first_edge[writer->n_states - 1]) {
        spry_edge *last = &made->edges[writer->n_edges - 1];
        if (last->target == edge.target && last->last + 1 == edge.first) {
            last->last = edge.last;
            return;
        }
    }
    if (!spry_grow(&made->edges, &writer->edges_room, writer->n_edges + 1, sizeof *made->edges))
        writer->failed = true;
    else
        made->edges[writer->n_edges++] = edge;
}

void spry_automaton_add_call(spry_automaton_writer *writer, spry_call call)
{
    spry_automaton *made = &writer->made;
    if (writer->failed)
        return;
    if (!spry_grow(&made->calls, &writer->calls_room, writer->n_calls + 1, sizeof *made->calls))
        writer->failed = true;
    else
        made->calls[writer->n_calls++] = call;
}

spry_automaton_result spry_automaton_finish(spry_automaton_writer *writer, spry_automaton *out, bool deterministic)
{
    spry_automaton *made = &writer->made;
    if (writer->failed) {
        spry_automaton_deinit(made);
        *out = (spry_automaton){0};
        return SPRY_AUTOMATON_NO_MEMORY;
    }
    if (writer->n_states) {
        made->first_edge[writer->n_states] = (uint32_t)writer->n_edges;
        made->first_call[writer->n_states] = (uint32_t)writer->n_calls;
    }
    made->n_states = (uint32_t)writer->n_states;
    made->deterministic = deterministic;
    *out = *made;
    *made = (spry_automaton){0};
    return SPRY_AUTOMATON_OK;
}

/* ---- products of two automata ------------------------------------------------------------------------------------ */

/* The product of two deterministic automata: intersection, difference, or the first one with marks. */

#define NOWHERE UINT32_MAX

enum {
    PAIR_WORK = 384
}; /* constructing and minimising one pair of states costs about as much as visiting this many
    * edges */

typedef struct pair {
    uint32_t a, b; /* b may be NOWHERE in a difference: `b` does not match any more */
} pair;

typedef struct walker {
    const spry_automaton *a, *b;
    spry_product kind;
    size_t max_states;
    pair *pairs;
    size_t n_pairs, pairs_room;
    uint32_t *table; /* a hash table of pairs: number + 1, 0: free */
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

/* Adds the edges for the bytes [first, last], for which `a` has one target. The range is split where the edges of `b`,
 * from `edge` on, begin or end. */
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

/* ---- shortest paths counted in units ----------------------------------------------------------------------------- */

/* States are numbered from the start, so few passes from the last state to the first find all shortest paths to the
 * end. */

enum { ENTRIES_MAX = 1 << 20 };

/* Shortens the path of a state by its edges; `less` has the paths for one unit less. */
static bool improve(uint32_t *units, uint32_t *bytes, const spry_unit_ways *less, const spry_automaton *automaton,
                    uint32_t state)
{
    bool better = false;
    for (uint32_t i = automaton->first_edge[state]; i < automaton->first_edge[state + 1]; i++) {
        uint32_t target = automaton->edges[i].target, unit = automaton->tags[target] != 0;
        uint32_t to_go = unit ? less->units[target] : units[target];
        uint32_t length = unit ? less->bytes[target] : bytes[target];
        if (to_go == SPRY_NO_WAY || to_go + unit > units[state] ||
            (to_go + unit == units[state] && length + 1 >= bytes[state]))
            continue;
        units[state] = to_go + unit;
        bytes[state] = length + 1;
        better = true;
    }
    return better;
}

static void find_level(spry_unit_ways *ways, const spry_automaton *automaton, uint32_t least, uint64_t *spent)
{
    uint32_t n = ways->n_states;
    uint32_t *units = ways->units + (size_t)least * n, *bytes = ways->bytes + (size_t)least * n;
    spry_unit_ways less = {n, least ? units - n : units, least ? bytes - n : bytes};
    for (uint32_t i = 0; i < n; i++) {
        bool complete = least == 0 && automaton->tags[i] == SPRY_TAG_COMPLETE;
        units[i] = bytes[i] = complete ? 0 : SPRY_NO_WAY;
    }
    for (bool better = true; better && *spent < SPRY_AUTOMATON_WORK_MAX;) {
        better = false;
        for (uint32_t i = n; i-- > 0;)
            better |= improve(units, bytes, &less, automaton, i);
        *spent += automaton->first_edge[n];
    }
}

spry_automaton_result spry_unit_ways_find(spry_unit_ways *out, const spry_automaton *automaton, uint32_t minimum,
                                          uint64_t *spent)
{
    uint32_t n = automaton->n_states;
    *out = (spry_unit_ways){.n_states = n};
    if (n == 0 || minimum >= ENTRIES_MAX / n)
        return SPRY_AUTOMATON_TOO_LARGE;
    size_t entries = (size_t)(minimum + 1) * n;
    out->units = malloc(entries * sizeof *out->units);
    out->bytes = malloc(entries * sizeof *out->bytes);
    spry_automaton_result result = out->units && out->bytes ? SPRY_AUTOMATON_OK : SPRY_AUTOMATON_NO_MEMORY;
    for (uint32_t least = 0; least <= minimum && !result; least++) {
        find_level(out, automaton, least, spent);
        if (*spent >= SPRY_AUTOMATON_WORK_MAX)
            result = SPRY_AUTOMATON_TOO_LARGE;
    }
    if (result)
        spry_unit_ways_deinit(out);
    return result;
}

void spry_unit_ways_deinit(spry_unit_ways *ways)
{
    free(ways->units);
    free(ways->bytes);
    *ways = (spry_unit_ways){0};
}

bool spry_unit_ways_extend(const spry_unit_ways *ways)
{
    for (uint32_t i = 0; i < ways->n_states; i++) {
        uint32_t fewest = ways->units[i], one = ways->units[ways->n_states + i];
        if (one != (fewest > 1 ? fewest : 1))
            return false;
    }
    return true;
}

/* ---- the cache of deterministic automata ------------------------------------------------------------------------- */

/* Deterministic automata, found by the nondeterministic automata from which they were constructed. All grammars of the
 * process share this cache, because schemas use the same strings, numbers and formats again and again. Whole keys are
 * compared, so a cached automaton is never a wrong one. The size is bounded; a full cache is cleared. */

enum {
    SLOTS = 2048, /* a power of two */
    KEY_WORDS_MAX = 1 << 14,
    STATES_MAX = 1 << 12,
    BYTES_MAX = 24 << 20, /* maximum bytes of all keys and automata */
};

typedef struct slot {
    uint32_t *key;
    size_t n_words;
    spry_automaton automaton;
    uint64_t work; /* cost of the construction, in units of SPRY_AUTOMATON_WORK_MAX */
} slot;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects the table and its size */
static slot slots[SLOTS];
static size_t used_bytes;

/* ---- calls ------------------------------------------------------------------------------------------------------- */

typedef struct callee {
    uint32_t number, edge; /* a called machine, and the index of the first edge that calls it */
} callee;

static int by_number(const void *left, const void *right)
{
    const callee *a = left, *b = right;
    if (a->number != b->number)
        return a->number > b->number ? 1 : -1;
    return (a->edge > b->edge) - (a->edge < b->edge);
}

static int by_edge(const void *left, const void *right)
{
    const callee *a = left, *b = right;
    return (a->edge > b->edge) - (a->edge < b->edge);
}

/* A cached automaton must not depend on the numbers of the machines it calls. So `edges` gets a copy in which callees
 * are numbered by their first use, and *callees their real numbers; then the same rule of another grammar has the same
 * key. False when memory is short. */
static bool renumber_calls(const spry_nfa *nfa, spry_nfa_edge **edges, callee **callees)
{
    size_t n = 0, kept = 0;
    *edges = malloc((nfa->n_edges + 1) * sizeof **edges);
    *callees = malloc((nfa->n_edges + 1) * sizeof **callees);
    uint32_t *place = malloc((nfa->n_edges + 1) * sizeof *place); /* indices into `callees`, by the first edge that
                                                                   * calls them */
    bool ok = *edges && *callees && place;
    for (uint32_t i = 0; i < nfa->n_edges && ok; i++) {
        (*edges)[i] = nfa->edges[i];
        if (nfa->edges[i].kind == SPRY_NFA_CALL)
            (*callees)[n++] = (callee){nfa->edges[i].callee, i};
    }
    if (n && ok) {
        qsort(*callees, n, sizeof **callees, by_number);
        for (size_t i = 0; i < n; i++) {
            bool first = !kept || (*callees)[kept - 1].number != (*callees)[i].number;
            if (first)
                (*callees)[kept++] = (*callees)[i];
            (*edges)[(*callees)[i].edge].callee = (*callees)[kept - 1].edge;
        }
        qsort(*callees, kept, sizeof **callees, by_edge);
        for (uint32_t i = 0; i < kept; i++)
            place[(*callees)[i].edge] = i;
        for (uint32_t i = 0; i < nfa->n_edges; i++)
            if ((*edges)[i].kind == SPRY_NFA_CALL)
                (*edges)[i].callee = place[(*edges)[i].callee];
    }
    free(place);
    return ok;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* The states and edges as words, which is the key; NULL: it is too large, or memory is short. */
static uint32_t *make_key(const spry_nfa *nfa, size_t max_states, size_t *n_words)
{
    *n_words = 1 + 2 * nfa->n_states + 4 * nfa->n_edges;
    uint32_t *key = *n_words > KEY_WORDS_MAX ? NULL : malloc(*n_words * sizeof *key), *at = key;
    if (!key)
        return NULL;
    *at++ = (uint32_t)max_states;
    for (size_t i = 0; i < nfa->n_states; i++) {
        *at++ = nfa->states[i].edge;
        *at++ = nfa->states[i].tag;
    }
    for (size_t i = 0; i < nfa->n_edges; i++) {
        const spry_nfa_edge *edge = &nfa->edges[i];
        *at++ = edge->target;
        *at++ = edge->next;
        *at++ = edge->kind == SPRY_NFA_CALL ? edge->callee : 0;
        *at++ = edge->kind == SPRY_NFA_BYTES ? (uint32_t)edge->kind << 16 | (uint32_t)edge->first << 8 | edge->last
                                             : (uint32_t)edge->kind << 16;
    }
    return key;
}

static void *copy_of(const void *from, size_t count, size_t size)
{
    void *to = malloc(count ? count * size : 1);
    if (to && count)
        memcpy(to, from, count * size);
    return to;
}

static bool copy_automaton(spry_automaton *to, const spry_automaton *from)
{
    uint32_t n = from->n_states;
    *to = (spry_automaton){.n_states = n, .deterministic = from->deterministic};
    if (!n)
        return true;
    to->first_edge = copy_of(from->first_edge, n + (size_t)1, sizeof *to->first_edge);
    to->first_call = copy_of(from->first_call, n + (size_t)1, sizeof *to->first_call);
    to->tags = copy_of(from->tags, n, sizeof *to->tags);
    to->edges = copy_of(from->edges, from->first_edge[n], sizeof *to->edges);
    to->calls = copy_of(from->calls, from->first_call[n], sizeof *to->calls);
    if (to->first_edge && to->first_call && to->tags && to->edges && to->calls)
        return true;
    spry_automaton_deinit(to);
    return false;
}

static size_t slot_bytes(const slot *s)
{
    const spry_automaton *a = &s->automaton;
    size_t edges = a->n_states ? a->first_edge[a->n_states] : 0;
    return s->n_words * sizeof *s->key + a->n_states * 12 + edges * sizeof *a->edges;
}

static void clear(slot *s)
{
    used_bytes -= s->key ? slot_bytes(s) : 0;
    free(s->key);
    spry_automaton_deinit(&s->automaton);
    *s = (slot){0};
}

static bool find(spry_automaton *out, uint64_t *work, size_t at, const uint32_t *key, size_t n_words)
{
    pthread_mutex_lock(&lock);
    const slot *there = &slots[at];
    bool found = there->key && there->n_words == n_words && memcmp(there->key, key, n_words * sizeof *key) == 0 &&
                 copy_automaton(out, &there->automaton);
    *work = found ? there->work : 0;
    pthread_mutex_unlock(&lock);
    return found;
}

/* Adds an automaton to the cache, which takes ownership of `key`. */
static void keep(size_t at, uint32_t *key, size_t n_words, const spry_automaton *made, uint64_t work)
{
    slot fresh = {.key = key, .n_words = n_words, .work = work};
    if (made->n_states > STATES_MAX || !copy_automaton(&fresh.automaton, made)) {
        free(key);
        return;
    }
    pthread_mutex_lock(&lock);
    clear(&slots[at]);
    if (used_bytes + slot_bytes(&fresh) > BYTES_MAX)
        for (size_t i = 0; i < SLOTS; i++)
            clear(&slots[i]);
    slots[at] = fresh;
    used_bytes += slot_bytes(&fresh);
    pthread_mutex_unlock(&lock);
}

static spry_automaton_result make_small(spry_automaton *out, const spry_nfa *nfa, size_t max_states)
{
    spry_automaton_result result = spry_automaton_determinize(out, nfa, max_states);
    return result ? result : spry_automaton_minimize(out);
}

static spry_automaton_result find_or_make(spry_automaton *out, const spry_nfa *nfa, size_t max_states)
{
    size_t n_words = 0, at = 0;
    uint32_t *key = make_key(nfa, max_states, &n_words);
    uint64_t work = 0, uncounted = 0, *spent = nfa->spent ? nfa->spent : &uncounted, before = *spent;
    spry_automaton_result result = SPRY_AUTOMATON_OK;
    if (key)
        at = (size_t)spry_hash_bytes(key, n_words * sizeof *key, 7) & (SLOTS - 1);
    if (key && find(out, &work, at, key, n_words)) {
        *spent += work; /* counted as if it had been constructed, so that the work limit does not depend on what is
                         * cached */
        free(key);
    } else {
        result = make_small(out, nfa, max_states);
        if (!result && key)
            keep(at, key, n_words, out, *spent - before);
        else
            free(key);
    }
    if (result || *spent <= SPRY_AUTOMATON_WORK_MAX)
        return result;
    spry_automaton_deinit(out);
    return SPRY_AUTOMATON_TOO_LARGE;
}

static bool has_calls(const spry_nfa *nfa)
{
    for (size_t i = 0; i < nfa->n_edges; i++)
        if (nfa->edges[i].kind == SPRY_NFA_CALL)
            return true;
    return false;
}

spry_automaton_result spry_automaton_make(spry_automaton *out, const spry_nfa *nfa, size_t max_states)
{
    *out = (spry_automaton){0};
    if (nfa->result)
        return nfa->result;
    if (!has_calls(nfa))
        return find_or_make(out, nfa, max_states);
    spry_nfa renumbered = *nfa;
    callee *callees = NULL;
    spry_automaton_result result = SPRY_AUTOMATON_NO_MEMORY;
    if (renumber_calls(nfa, &renumbered.edges, &callees))
        result = find_or_make(out, &renumbered, max_states);
    for (uint32_t i = 0; !result && out->n_states && i < out->first_call[out->n_states]; i++)
        out->calls[i].callee = callees[out->calls[i].callee].number;
    free(renumbered.edges);
    free(callees);
    return result;
}
