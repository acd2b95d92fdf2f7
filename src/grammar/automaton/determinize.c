/* Subset construction: a state of the result is a set of NFA states. Sets are sorted lists in one array, interned by
 * hash; only states with a non-epsilon edge or a tag are stored. */
#include "base/map.h"
#include "grammar/automaton/automaton.h"
#include "grammar/ir/grow.h"

enum {
    SET_ITEMS_MAX = 1 << 22, /* total number of items in all sets */
    SORT_SMALL = 16,
    SET_WORK = 16,      /* finding a set costs about as much as this many edges, */
    EDGES_A_STATE = 96, /* minimising is charged as this many edges for each state */
};

typedef struct set_span {
    uint32_t first, count;
} set_span;

typedef struct maker {
    const spry_nfa *nfa;
    size_t max_states, work;
    uint32_t *items; /* the items of all sets */
    set_span *sets;
    size_t n_items, n_sets, items_room, sets_room;
    uint32_t *table; /* [table_size] set + 1, 0: free */
    size_t table_size;
    uint32_t *mark; /* [n_states] the round in which a state was reached */
    uint32_t round;
    uint32_t *stack;     /* [n_states] */
    uint32_t *set_alone; /* [n_states] number + 1 of the set that is a state's epsilon closure; 0: not known */
    bool *kept;          /* [n_states] the state has a tag or an edge that is not an epsilon edge */
    struct found_edge *found;
    struct segment_target *targets;
    spry_call *calls;
    size_t n_found, n_calls, n_targets, found_room, calls_room, targets_room;
    spry_automaton_writer writer;
    spry_automaton_result result;
} maker;

struct found_edge {
    unsigned char first, last;
    uint32_t target;
};

/* The edges of a set divide the bytes into ranges. This is one target of a range. */
struct segment_target {
    uint32_t target, next; /* index of another target of the range, + 1 */
};

static int compare_numbers(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

static int compare_calls(const void *left, const void *right)
{
    const spry_call *a = left, *b = right;
    if (a->callee != b->callee)
        return a->callee > b->callee ? 1 : -1;
    return (a->target > b->target) - (a->target < b->target);
}

static void fail(maker *made, spry_automaton_result result)
{
    if (!made->result)
        made->result = result;
}

static void find_kept(maker *made)
{
    const spry_nfa *nfa = made->nfa;
    for (uint32_t state = 0; state < nfa->n_states; state++) {
        uint32_t e = nfa->states[state].edge;
        while (e != SPRY_NFA_NO_EDGE && nfa->edges[e].kind == SPRY_NFA_SILENT)
            e = nfa->edges[e].next;
        made->kept[state] = nfa->states[state].tag || e != SPRY_NFA_NO_EDGE;
    }
}

/* Adds the epsilon closure of `state` to the set under construction, the last items of `items`. */
static void reach(maker *made, uint32_t state)
{
    const spry_nfa *nfa = made->nfa;
    size_t depth = 0;
    if (made->mark[state] == made->round)
        return;
    made->mark[state] = made->round;
    made->stack[depth++] = state;
    while (depth && !made->result) {
        uint32_t at = made->stack[--depth];
        if (made->kept[at]) {
            if (made->n_items >= SET_ITEMS_MAX)
                fail(made, SPRY_AUTOMATON_TOO_LARGE);
            else if (!spry_grow(&made->items, &made->items_room, made->n_items + 1, sizeof *made->items))
                fail(made, SPRY_AUTOMATON_NO_MEMORY);
            else
                made->items[made->n_items++] = at;
        }
        for (uint32_t e = nfa->states[at].edge; e != SPRY_NFA_NO_EDGE; e = nfa->edges[e].next) {
            const spry_nfa_edge *edge = &nfa->edges[e];
            made->work++;
            if (edge->kind != SPRY_NFA_SILENT || made->mark[edge->target] == made->round)
                continue;
            made->mark[edge->target] = made->round;
            made->stack[depth++] = edge->target;
        }
    }
    if ((made->nfa->spent ? *made->nfa->spent : 0) + made->work > SPRY_AUTOMATON_WORK_MAX)
        fail(made, SPRY_AUTOMATON_TOO_LARGE);
}

static uint64_t set_hash(const maker *made, set_span set)
{
    return spry_hash_bytes(made->items + set.first, set.count * sizeof *made->items, 7);
}

static size_t set_slot(const maker *made, set_span set)
{
    size_t at = (size_t)set_hash(made, set) & (made->table_size - 1);
    for (; made->table[at]; at = (at + 1) & (made->table_size - 1)) {
        set_span other = made->sets[made->table[at] - 1];
        if (other.count == set.count &&
            memcmp(made->items + other.first, made->items + set.first, set.count * sizeof *made->items) == 0)
            break;
    }
    return at;
}

static bool grow_table(maker *made)
{
    if ((made->n_sets + 1) * 2 <= made->table_size)
        return true;
    size_t size = made->table_size ? made->table_size * 2 : 64;
    uint32_t *table = calloc(size, sizeof *table);
    if (!table)
        return false;
    free(made->table);
    made->table = table;
    made->table_size = size;
    for (size_t i = 0; i < made->n_sets; i++)
        made->table[set_slot(made, made->sets[i])] = (uint32_t)i + 1;
    return true;
}

static void sort_items(uint32_t *items, size_t count)
{
    if (count > SORT_SMALL) {
        qsort(items, count, sizeof *items, compare_numbers);
        return;
    }
    for (size_t i = 1; i < count; i++) {
        uint32_t item = items[i];
        size_t at = i;
        for (; at && items[at - 1] > item; at--)
            items[at] = items[at - 1];
        items[at] = item;
    }
}

/* The number of the set whose items were added from index `first` on. */
static uint32_t intern(maker *made, size_t first)
{
    if (made->result)
        return 0;
    set_span set = {(uint32_t)first, (uint32_t)(made->n_items - first)};
    made->work += SET_WORK + 6 * (size_t)set.count;
    sort_items(made->items + first, set.count);
    if (!grow_table(made) || !spry_grow(&made->sets, &made->sets_room, made->n_sets + 1, sizeof *made->sets)) {
        fail(made, SPRY_AUTOMATON_NO_MEMORY);
        return 0;
    }
    size_t slot = set_slot(made, set);
    if (made->table[slot]) {
        made->n_items = first;
        return made->table[slot] - 1;
    }
    if (made->n_sets >= made->max_states) {
        fail(made, SPRY_AUTOMATON_TOO_LARGE);
        return 0;
    }
    made->sets[made->n_sets] = set;
    made->table[slot] = (uint32_t)++made->n_sets;
    return (uint32_t)made->n_sets - 1;
}

/* Lists the edges and calls of all states of a set; returns its tag. */
static uint32_t list_edges(maker *made, set_span set)
{
    const spry_nfa *nfa = made->nfa;
    uint32_t tag = 0;
    made->n_found = made->n_calls = 0;
    for (uint32_t i = 0; i < set.count; i++) {
        const spry_nfa_state *state = &nfa->states[made->items[set.first + i]];
        if (state->tag && (!tag || state->tag < tag))
            tag = state->tag;
        for (uint32_t e = state->edge; e != SPRY_NFA_NO_EDGE; e = nfa->edges[e].next) {
            const spry_nfa_edge *edge = &nfa->edges[e];
            if (!spry_grow(&made->found, &made->found_room, made->n_found + 1, sizeof *made->found) ||
                !spry_grow(&made->calls, &made->calls_room, made->n_calls + 1, sizeof *made->calls))
                fail(made, SPRY_AUTOMATON_NO_MEMORY);
            if (made->result)
                return 0;
            if (edge->kind == SPRY_NFA_BYTES)
                made->found[made->n_found++] = (struct found_edge){edge->first, edge->last, edge->target};
            else if (edge->kind == SPRY_NFA_CALL)
                made->calls[made->n_calls++] = (spry_call){edge->callee, edge->target};
        }
    }
    made->work += 4 * (size_t)set.count + made->n_found;
    return tag;
}

/* The set of all targets of a range, which are a list that begins at index `first` - 1. */
static uint32_t join_targets(maker *made, uint32_t first)
{
    const struct segment_target *targets = made->targets;
    bool alone = !targets[first - 1].next;
    uint32_t *known = &made->set_alone[targets[first - 1].target];
    if (alone && *known)
        return *known - 1;
    size_t begin = made->n_items;
    made->round++;
    for (uint32_t i = first; i; i = targets[i - 1].next)
        reach(made, targets[i - 1].target);
    uint32_t set = intern(made, begin);
    if (alone && !made->result)
        *known = set + 1;
    return set;
}

/* Finds where ranges begin: a range is a maximal run of bytes that no edge divides. Most states have few edges. */
static unsigned find_ranges(const maker *made, unsigned short begins[258])
{
    unsigned count = 0;
    for (size_t i = 0; i < 2 * made->n_found; i++) {
        const struct found_edge *edge = &made->found[i / 2];
        unsigned short begin = (unsigned short)(i % 2 ? edge->last + 1 : edge->first);
        unsigned at = count;
        while (at && begins[at - 1] > begin)
            at--;
        if (at && begins[at - 1] == begin)
            continue;
        memmove(begins + at + 1, begins + at, (count - at) * sizeof *begins);
        begins[at] = begin;
        count++;
    }
    return count;
}

/* Lists the targets of each range: `lists` has the index of the first target, + 1. */
static void list_targets(maker *made, uint32_t *lists, const unsigned short *begins, unsigned n_ranges)
{
    made->n_targets = 0;
    memset(lists, 0, n_ranges * sizeof *lists);
    for (size_t i = 0; i < made->n_found; i++) {
        unsigned range = 0;
        while (begins[range] != made->found[i].first)
            range++;
        for (; range < n_ranges && begins[range] <= made->found[i].last; range++) {
            if (!spry_grow(&made->targets, &made->targets_room, made->n_targets + 1, sizeof *made->targets)) {
                fail(made, SPRY_AUTOMATON_NO_MEMORY);
                return;
            }
            made->targets[made->n_targets++] = (struct segment_target){made->found[i].target, lists[range]};
            lists[range] = (uint32_t)made->n_targets;
        }
    }
    made->work += made->n_targets;
}

static void write_edges(maker *made)
{
    unsigned short begins[258];
    uint32_t lists[257];
    unsigned n_ranges = find_ranges(made, begins);
    begins[n_ranges] = 256;
    list_targets(made, lists, begins, n_ranges);
    for (unsigned i = 0; i < n_ranges && !made->result; i++)
        if (lists[i])
            spry_automaton_add_edge(&made->writer, (spry_edge){join_targets(made, lists[i]), (unsigned char)begins[i],
                                                               (unsigned char)(begins[i + 1] - 1)});
}

static void write_calls(maker *made)
{
    if (made->n_calls)
        qsort(made->calls, made->n_calls, sizeof *made->calls, compare_calls);
    for (size_t i = 0; i < made->n_calls && !made->result;) {
        uint32_t callee = made->calls[i].callee;
        size_t begin = made->n_items;
        made->round++;
        for (; i < made->n_calls && made->calls[i].callee == callee; i++)
            reach(made, made->calls[i].target);
        spry_automaton_add_call(&made->writer, (spry_call){callee, intern(made, begin)});
    }
}

static bool start(maker *made, const spry_nfa *nfa, size_t max_states)
{
    *made = (maker){
        .nfa = nfa, .max_states = max_states, .work = nfa->n_states + nfa->n_edges, .round = 1, .result = nfa->result};
    if (made->result)
        return false;
    made->mark = calloc(nfa->n_states, sizeof *made->mark);
    made->stack = malloc(nfa->n_states * sizeof *made->stack);
    made->set_alone = calloc(nfa->n_states, sizeof *made->set_alone);
    made->kept = calloc(nfa->n_states, sizeof *made->kept);
    if (!made->mark || !made->stack || !made->set_alone || !made->kept ||
        !spry_grow(&made->items, &made->items_room, 1, sizeof *made->items))
        fail(made, SPRY_AUTOMATON_NO_MEMORY);
    else
        find_kept(made);
    return !made->result;
}

static spry_automaton_result finish(maker *made, spry_automaton *out, bool deterministic)
{
    spry_automaton_result written = spry_automaton_finish(&made->writer, out, deterministic);
    free(made->items);
    free(made->sets);
    free(made->table);
    free(made->mark);
    free(made->stack);
    free(made->set_alone);
    free(made->kept);
    free(made->targets);
    free(made->found);
    free(made->calls);
    if (!made->result)
        return written;
    spry_automaton_deinit(out);
    return made->result;
}

spry_automaton_result spry_automaton_determinize(spry_automaton *out, const spry_nfa *nfa, size_t max_states)
{
    maker made;
    if (start(&made, nfa, max_states)) {
        reach(&made, 0);
        intern(&made, 0);
    }
    for (size_t i = 0; i < made.n_sets && !made.result; i++) {
        uint32_t tag = list_edges(&made, made.sets[i]);
        spry_automaton_begin_state(&made.writer, tag);
        write_edges(&made);
        write_calls(&made);
    }
    if (nfa->spent)
        *nfa->spent += made.work + EDGES_A_STATE * made.n_sets;
    return finish(&made, out, true);
}

static int compare_edges(const void *left, const void *right)
{
    const struct found_edge *a = left, *b = right;
    if (a->first != b->first)
        return a->first > b->first ? 1 : -1;
    return (a->target > b->target) - (a->target < b->target);
}

/* Each NFA state stays one state: the "set" of state i is its epsilon closure. */
spry_automaton_result spry_automaton_without_silent(spry_automaton *out, const spry_nfa *nfa)
{
    maker made;
    start(&made, nfa, 0);
    for (uint32_t state = 0; !made.result && state < nfa->n_states; state++) {
        made.round++;
        made.n_items = 0;
        reach(&made, state);
        uint32_t tag = list_edges(&made, (set_span){0, (uint32_t)made.n_items});
        spry_automaton_begin_state(&made.writer, tag);
        if (made.n_found)
            qsort(made.found, made.n_found, sizeof *made.found, compare_edges);
        for (size_t i = 0; i < made.n_found; i++)
            spry_automaton_add_edge(&made.writer,
                                    (spry_edge){made.found[i].target, made.found[i].first, made.found[i].last});
        for (size_t i = 0; i < made.n_calls; i++)
            spry_automaton_add_call(&made.writer, made.calls[i]);
        if (made.writer.n_edges > SET_ITEMS_MAX)
            fail(&made, SPRY_AUTOMATON_TOO_LARGE);
    }
    if (nfa->spent)
        *nfa->spent += made.work;
    spry_automaton_result result = finish(&made, out, false);
    return result ? result : spry_automaton_minimize(out);
}
