/* Minimises a deterministic automaton: removes states that reach no accepting state and merges equivalent states by
 * refining a partition of states and one of transitions (Valmari's formulation of Hopcroft's algorithm, O(n log n) in
 * the number of transitions). */
#include "grammar/automaton/automaton.h"
#include "grammar/automaton/automaton_writer.h"
#include "grammar/ir/grow.h"

enum { TRANSITIONS_MAX = 1 << 23 };

/* A partition of the numbers [0, n), refined by marking members and splitting. */
typedef struct partition {
    uint32_t n_sets;
    uint32_t *items, *place, *set_of; /* [n]: members by set, position of a member, its set */
    uint32_t *first, *end, *marked;   /* [n]: range of a set; its marked members come first */
    uint32_t *touched;                /* sets with marked members */
    uint32_t n_touched;
} partition;

typedef struct transition {
    uint32_t tail, label, head;
} transition;

typedef struct minimizer {
    const spry_automaton *from;
    bool *useful; /* [n_states] */
    transition *transitions;
    size_t n_transitions, transitions_room;
    uint32_t *incoming, *first_incoming; /* transitions by head */
    unsigned char class_of[256];
    unsigned n_classes;
    partition blocks, cords;
} minimizer;

static void partition_deinit(partition *p)
{
    free(p->items);
    free(p->place);
    free(p->set_of);
    free(p->first);
    free(p->end);
    free(p->marked);
    free(p->touched);
}

static bool partition_init(partition *p, size_t n)
{
    size_t room = n ? n : 1;
    p->items = malloc(room * sizeof *p->items);
    p->place = malloc(room * sizeof *p->place);
    p->set_of = calloc(room, sizeof *p->set_of);
    p->first = malloc(room * sizeof *p->first);
    p->end = malloc(room * sizeof *p->end);
    p->marked = calloc(room, sizeof *p->marked);
    p->touched = malloc(room * sizeof *p->touched);
    if (!p->items || !p->place || !p->set_of || !p->first || !p->end || !p->marked || !p->touched)
        return false;
    for (uint32_t i = 0; i < n; i++)
        p->items[i] = p->place[i] = i;
    p->n_sets = n != 0;
    p->first[0] = 0;
    p->end[0] = (uint32_t)n;
    return true;
}

static void mark(partition *p, uint32_t member)
{
    uint32_t set = p->set_of[member], at = p->place[member], to = p->first[set] + p->marked[set];
    if (at < to)
        return;
    p->items[at] = p->items[to];
    p->place[p->items[at]] = at;
    p->items[to] = member;
    p->place[member] = to;
    if (!p->marked[set]++)
        p->touched[p->n_touched++] = set;
}

/* Splits every touched set; the smaller part becomes a new set. */
static void split(partition *p)
{
    while (p->n_touched) {
        uint32_t set = p->touched[--p->n_touched], middle = p->first[set] + p->marked[set];
        if (middle == p->end[set]) {
            p->marked[set] = 0;
            continue;
        }
        uint32_t made = p->n_sets++;
        if (p->marked[set] <= p->end[set] - middle) {
            p->first[made] = p->first[set];
            p->end[made] = p->first[set] = middle;
        } else {
            p->end[made] = p->end[set];
            p->first[made] = p->end[set] = middle;
        }
        for (uint32_t i = p->first[made]; i < p->end[made]; i++)
            p->set_of[p->items[i]] = made;
        p->marked[set] = p->marked[made] = 0;
    }
}

/* Divides the bytes into classes that no edge distinguishes. */
static void find_classes(minimizer *min)
{
    bool starts[257] = {false};
    const spry_automaton *from = min->from;
    for (uint32_t i = 0; i < from->first_edge[from->n_states]; i++)
        starts[from->edges[i].first] = starts[from->edges[i].last + 1] = true;
    for (unsigned byte = 0; byte < 256; byte++) {
        if (byte && starts[byte])
            min->n_classes++;
        min->class_of[byte] = (unsigned char)min->n_classes;
    }
    min->n_classes++;
}

static bool add_transition(minimizer *min, uint32_t tail, uint32_t label, uint32_t head)
{
    if (!spry_grow(&min->transitions, &min->transitions_room, min->n_transitions + 1, sizeof *min->transitions))
        return false;
    min->transitions[min->n_transitions++] = (transition){tail, label, head};
    return true;
}

static spry_automaton_result list_transitions(minimizer *min)
{
    const spry_automaton *from = min->from;
    for (uint32_t state = 0; state < from->n_states; state++) {
        for (uint32_t i = from->first_edge[state]; i < from->first_edge[state + 1]; i++) {
            spry_edge edge = from->edges[i];
            for (unsigned label = min->class_of[edge.first]; label <= min->class_of[edge.last]; label++)
                if (!add_transition(min, state, label, edge.target))
                    return SPRY_AUTOMATON_NO_MEMORY;
        }
        for (uint32_t i = from->first_call[state]; i < from->first_call[state + 1]; i++)
            if (!add_transition(min, state, 256 + from->calls[i].callee, from->calls[i].target))
                return SPRY_AUTOMATON_NO_MEMORY;
        if (min->n_transitions > TRANSITIONS_MAX)
            return SPRY_AUTOMATON_TOO_LARGE;
    }
    return SPRY_AUTOMATON_OK;
}

static bool index_incoming(minimizer *min)
{
    size_t n = min->from->n_states;
    free(min->incoming);
    free(min->first_incoming);
    min->incoming = malloc((min->n_transitions + 1) * sizeof *min->incoming);
    min->first_incoming = calloc(n + 2, sizeof *min->first_incoming);
    if (!min->incoming || !min->first_incoming)
        return false;
    for (size_t i = 0; i < min->n_transitions; i++)
        min->first_incoming[min->transitions[i].head + 2]++;
    for (size_t i = 1; i < n + 2; i++)
        min->first_incoming[i] += min->first_incoming[i - 1];
    for (size_t i = 0; i < min->n_transitions; i++)
        min->incoming[min->first_incoming[min->transitions[i].head + 1]++] = (uint32_t)i;
    return true;
}

/* Marks states that reach an accepting one, and removes the other transitions. */
static bool drop_useless(minimizer *min)
{
    const spry_automaton *from = min->from;
    uint32_t *stack = malloc(from->n_states * sizeof *stack);
    min->useful = calloc(from->n_states, sizeof *min->useful);
    size_t depth = 0, kept = 0;
    bool ok = stack && min->useful && index_incoming(min);
    for (uint32_t i = 0; ok && i < from->n_states; i++)
        if (from->tags[i])
            min->useful[stack[depth++] = i] = true;
    while (ok && depth) {
        uint32_t head = stack[--depth];
        for (uint32_t i = min->first_incoming[head]; i < min->first_incoming[head + 1]; i++) {
            uint32_t tail = min->transitions[min->incoming[i]].tail;
            if (!min->useful[tail])
                min->useful[stack[depth++] = tail] = true;
        }
    }
    for (size_t i = 0; ok && i < min->n_transitions; i++)
        if (min->useful[min->transitions[i].tail] && min->useful[min->transitions[i].head])
            min->transitions[kept++] = min->transitions[i];
    min->n_transitions = kept;
    free(stack);
    return ok && index_incoming(min);
}

typedef struct keyed {
    uint32_t key, item;
} keyed;

static int compare_keys(const void *left, const void *right)
{
    const keyed *a = left, *b = right;
    return (a->key > b->key) - (a->key < b->key);
}

/* Keys are tags and byte classes, nearly always small: they are counted, not compared. */
static bool sort_keys(keyed *keys, size_t n)
{
    uint32_t most = 0;
    for (size_t i = 0; i < n; i++)
        most = keys[i].key > most ? keys[i].key : most;
    if (most > 2 * n + 256) {
        qsort(keys, n, sizeof *keys, compare_keys);
        return true;
    }
    uint32_t *starts = calloc((size_t)most + 2, sizeof *starts);
    keyed *sorted = malloc((n + 1) * sizeof *sorted);
    if (starts && sorted) {
        for (size_t i = 0; i < n; i++)
            starts[keys[i].key + 1]++;
        for (uint32_t i = 0; i < most; i++)
            starts[i + 1] += starts[i];
        for (size_t i = 0; i < n; i++)
            sorted[starts[keys[i].key]++] = keys[i];
        memcpy(keys, sorted, n * sizeof *keys);
    }
    bool ok = starts && sorted;
    free(starts);
    free(sorted);
    return ok;
}

/* The initial partition: members with equal keys are in one set. */
static bool partition_by_key(partition *p, keyed *keys, size_t n)
{
    if (!partition_init(p, n) || (n && !sort_keys(keys, n)))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (i && keys[i].key != keys[i - 1].key)
            p->first[p->n_sets++] = (uint32_t)i;
        p->items[i] = keys[i].item;
        p->place[keys[i].item] = (uint32_t)i;
        p->set_of[keys[i].item] = p->n_sets - 1;
        p->end[p->n_sets - 1] = (uint32_t)i + 1;
    }
    return true;
}

static bool first_partitions(minimizer *min)
{
    size_t n_states = min->from->n_states;
    size_t n = n_states > min->n_transitions ? n_states : min->n_transitions;
    keyed *keys = malloc((n + 1) * sizeof *keys);
    if (!keys)
        return false;
    for (uint32_t i = 0; i < n_states; i++)
        keys[i] = (keyed){min->useful[i] ? min->from->tags[i] + 1 : 0, i};
    bool ok = partition_by_key(&min->blocks, keys, n_states);
    for (uint32_t i = 0; i < min->n_transitions; i++)
        keys[i] = (keyed){min->transitions[i].label, i};
    ok = ok && partition_by_key(&min->cords, keys, min->n_transitions);
    free(keys);
    return ok;
}

/* Each state in its own set: nothing is merged. */
static void part_all(partition *p, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        p->items[i] = p->set_of[i] = p->first[i] = i;
        p->end[i] = i + 1;
    }
    p->n_sets = n;
}

static void refine(minimizer *min)
{
    uint32_t block = 0;
    for (uint32_t cord = 0; cord < min->cords.n_sets; cord++) {
        for (uint32_t i = min->cords.first[cord]; i < min->cords.end[cord]; i++)
            mark(&min->blocks, min->transitions[min->cords.items[i]].tail);
        split(&min->blocks);
        for (; block < min->blocks.n_sets; block++) {
            for (uint32_t i = min->blocks.first[block]; i < min->blocks.end[block]; i++) {
                uint32_t head = min->blocks.items[i];
                for (uint32_t j = min->first_incoming[head]; j < min->first_incoming[head + 1]; j++)
                    mark(&min->cords, min->incoming[j]);
            }
            split(&min->cords);
        }
    }
}

/* Blocks in the order of the first visit. */
typedef struct numbering {
    uint32_t *number; /* [n_sets] number of a block, + 1 */
    uint32_t *order;  /* [n_sets] */
    uint32_t count;
} numbering;

static uint32_t number_of(numbering *met, uint32_t block)
{
    if (!met->number[block]) {
        met->order[met->count++] = block;
        met->number[block] = met->count;
    }
    return met->number[block] - 1;
}

static void write_block(const minimizer *min, spry_automaton_writer *writer, numbering *met, uint32_t state)
{
    const spry_automaton *from = min->from;
    spry_automaton_begin_state(writer, from->tags[state]);
    for (uint32_t i = from->first_edge[state]; i < from->first_edge[state + 1]; i++) {
        spry_edge edge = from->edges[i];
        if (!min->useful[edge.target])
            continue;
        edge.target = number_of(met, min->blocks.set_of[edge.target]);
        spry_automaton_add_edge(writer, edge);
    }
    for (uint32_t i = from->first_call[state]; i < from->first_call[state + 1]; i++) {
        spry_call call = from->calls[i];
        if (!min->useful[call.target])
            continue;
        call.target = number_of(met, min->blocks.set_of[call.target]);
        spry_automaton_add_call(writer, call);
    }
}

/* Writes one state for each block reachable from the start, in breadth-first order. */
static spry_automaton_result write_blocks(const minimizer *min, spry_automaton *out)
{
    const partition *blocks = &min->blocks;
    numbering met = {calloc(blocks->n_sets, sizeof *met.number), malloc(blocks->n_sets * sizeof *met.order), 0};
    spry_automaton_writer writer = {.failed = !met.number || !met.order};
    if (!writer.failed && min->useful[0])
        number_of(&met, blocks->set_of[0]);
    for (uint32_t i = 0; i < met.count && !writer.failed; i++)
        write_block(min, &writer, &met, blocks->items[blocks->first[met.order[i]]]);
    free(met.number);
    free(met.order);
    return spry_automaton_finish(&writer, out, min->from->deterministic);
}

spry_automaton_result spry_automaton_minimize(spry_automaton *automaton)
{
    if (!automaton->n_states)
        return SPRY_AUTOMATON_OK;
    minimizer min = {.from = automaton};
    find_classes(&min);
    spry_automaton_result result = list_transitions(&min);
    if (!result && (!drop_useless(&min) || !first_partitions(&min)))
        result = SPRY_AUTOMATON_NO_MEMORY;
    spry_automaton made = {0};
    if (!result) {
        if (automaton->deterministic)
            refine(&min);
        else
            part_all(&min.blocks, automaton->n_states);
        result = write_blocks(&min, &made);
    }
    free(min.useful);
    free(min.transitions);
    free(min.incoming);
    free(min.first_incoming);
    partition_deinit(&min.blocks);
    partition_deinit(&min.cords);
    if (!result) {
        spry_automaton_deinit(automaton);
        *automaton = made;
    }
    return result;
}
