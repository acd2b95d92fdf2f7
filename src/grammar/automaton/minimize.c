/* Minimises a deterministic automaton: removes states that reach no accepting state and merges equivalent states.
 *
 * States are divided into blocks, at first a single one. A state is described by its tag and by the blocks that its
 * bytes and calls lead to; a block whose states have different descriptions is split. The largest part keeps the
 * block's number. So a state changes its block at most O(log n) times, and only states with an edge to a state that
 * changed its block must be described again. */
#include "base/map.h"
#include "grammar/automaton/automaton.h"
#include "grammar/ir/grow.h"

#define USELESS UINT32_MAX

/* The states of one block that have the same description. */
typedef struct part {
    size_t first_word, n_words; /* its description in `words` */
    size_t slot;                /* its slot in the table */
    uint32_t count, at;         /* number of states; where the next one is stored */
} part;

typedef struct minimizer {
    const spry_automaton *from;
    uint32_t *into, *first_into;           /* [edges and calls], [n_states + 2]: for each state the states with an edge
                                            * to it */
    uint32_t *block_of;                    /* [n_states] block of a state; USELESS: the state reaches no accepting
                                            * state */
    uint32_t *items, *place;               /* [n_states] states sorted by block; the position of a state in `items` */
    uint32_t *first, *end, *marked;        /* [n_states] first and end of a block in `items`; its `marked` first states
                                            * must be described again */
    uint32_t *touched, *changed, *part_of; /* [n_states] blocks with marked states; states that came into new blocks;
                                            * part of each state */
    uint32_t n_blocks, n_touched, n_changed;
    part *parts;
    uint64_t *words; /* the descriptions of the parts */
    size_t n_parts, parts_room, n_words, words_room;
    uint32_t *table; /* [table_size] part + 1, 0: free */
    size_t table_size;
} minimizer;

/* ---- useful states ----------------------------------------------------------------------------------------------- */

static void count_into(minimizer *min, uint32_t state, uint32_t target)
{
    (void)state;
    min->first_into[target + 2]++;
}

static void list_into(minimizer *min, uint32_t state, uint32_t target)
{
    min->into[min->first_into[target + 1]++] = state;
}

static void for_each_target(minimizer *min, void (*visit)(minimizer *min, uint32_t state, uint32_t target))
{
    const spry_automaton *from = min->from;
    for (uint32_t state = 0; state < from->n_states; state++) {
        for (uint32_t i = from->first_edge[state]; i < from->first_edge[state + 1]; i++)
            visit(min, state, from->edges[i].target);
        for (uint32_t i = from->first_call[state]; i < from->first_call[state + 1]; i++)
            visit(min, state, from->calls[i].target);
    }
}

static void index_into(minimizer *min)
{
    for_each_target(min, count_into);
    for (size_t i = 1; i < (size_t)min->from->n_states + 2; i++)
        min->first_into[i] += min->first_into[i - 1];
    for_each_target(min, list_into);
}

/* Puts the states that reach an accepting state into block 0. */
static void find_useful(minimizer *min)
{
    const spry_automaton *from = min->from;
    uint32_t count = 0;
    for (uint32_t i = 0; i < from->n_states; i++) {
        min->block_of[i] = from->tags[i] ? 0 : USELESS;
        if (from->tags[i])
            min->items[count++] = i;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t target = min->items[i];
        min->place[target] = i;
        for (uint32_t k = min->first_into[target]; k < min->first_into[target + 1]; k++) {
            uint32_t state = min->into[k];
            if (min->block_of[state] != USELESS)
                continue;
            min->block_of[state] = 0;
            min->items[count++] = state;
        }
    }
    min->end[0] = count;
    min->n_blocks = count != 0;
}

/* ---- descriptions ------------------------------------------------------------------------------------------------ */

static bool add_word(minimizer *min, uint64_t word)
{
    if (!spry_grow(&min->words, &min->words_room, min->n_words + 1, sizeof *min->words))
        return false;
    min->words[min->n_words++] = word;
    return true;
}

/* Appends the description of a state. Neighbouring ranges of bytes that lead to the same block count as one range. */
static bool describe(minimizer *min, uint32_t state)
{
    const spry_automaton *from = min->from;
    bool ok = add_word(min, from->tags[state]);
    uint32_t block = USELESS;
    unsigned first = 0, last = 0;
    for (uint32_t i = from->first_edge[state]; i < from->first_edge[state + 1]; i++) {
        const spry_edge *edge = &from->edges[i];
        uint32_t leads = min->block_of[edge->target];
        if (leads == block && last + 1u == edge->first) {
            last = edge->last;
            continue;
        }
        if (block != USELESS)
            ok = ok && add_word(min, (uint64_t)block << 16 | first << 8 | last);
        block = leads;
        first = edge->first;
        last = edge->last;
    }
    if (block != USELESS)
        ok = ok && add_word(min, (uint64_t)block << 16 | first << 8 | last);
    for (uint32_t i = from->first_call[state]; i < from->first_call[state + 1]; i++)
        if (min->block_of[from->calls[i].target] != USELESS)
            ok = ok && add_word(min, (uint64_t)1 << 63 | from->calls[i].callee) &&
                 add_word(min, min->block_of[from->calls[i].target]);
    return ok;
}

/* Finds or adds the part of the block with the description that was appended last. If the part is known, the
 * description is removed again. */
static bool find_part(minimizer *min, uint32_t *found, size_t first_word)
{
    size_t n_words = min->n_words - first_word, bytes = n_words * sizeof *min->words;
    size_t slot = (size_t)spry_hash_bytes(min->words + first_word, bytes, 5) & (min->table_size - 1);
    for (; min->table[slot]; slot = (slot + 1) & (min->table_size - 1)) {
        const part *known = &min->parts[min->table[slot] - 1];
        if (known->n_words == n_words && memcmp(min->words + known->first_word, min->words + first_word, bytes) == 0) {
            *found = min->table[slot] - 1;
            min->n_words = first_word;
            return true;
        }
    }
    if (!spry_grow(&min->parts, &min->parts_room, min->n_parts + 1, sizeof *min->parts))
        return false;
    min->parts[min->n_parts] = (part){.first_word = first_word, .n_words = n_words, .slot = slot};
    *found = (uint32_t)min->n_parts++;
    min->table[slot] = *found + 1;
    return true;
}

/* Finds the part of each marked state of a block. */
static bool find_parts(minimizer *min, uint32_t block)
{
    bool ok = true;
    min->n_parts = min->n_words = 0;
    for (uint32_t i = 0; i < min->marked[block] && ok; i++) {
        size_t first_word = min->n_words;
        ok = describe(min, min->items[min->first[block] + i]) && find_part(min, &min->part_of[i], first_word);
        if (ok)
            min->parts[min->part_of[i]].count++;
    }
    for (size_t i = 0; i < min->n_parts; i++)
        min->table[min->parts[i].slot] = 0;
    return ok;
}

/* ---- splitting of blocks ----------------------------------------------------------------------------------------- */

static void mark(minimizer *min, uint32_t state)
{
    uint32_t block = min->block_of[state];
    if (block == USELESS)
        return;
    uint32_t at = min->place[state], to = min->first[block] + min->marked[block];
    if (at < to)
        return;
    uint32_t other = min->items[to];
    min->items[at] = other;
    min->place[other] = at;
    min->items[to] = state;
    min->place[state] = to;
    if (!min->marked[block]++)
        min->touched[min->n_touched++] = block;
}

/* Orders the marked states of a block by their parts. `sorted` is scratch memory for them. */
static void sort_marked(minimizer *min, uint32_t *sorted, uint32_t block)
{
    uint32_t first = min->first[block], count = min->marked[block], at = 0;
    for (size_t i = 0; i < min->n_parts; i++) {
        min->parts[i].at = at;
        at += min->parts[i].count;
    }
    for (uint32_t i = 0; i < count; i++)
        sorted[min->parts[min->part_of[i]].at++] = min->items[first + i];
    for (uint32_t i = 0; i < count; i++) {
        min->items[first + i] = sorted[i];
        min->place[sorted[i]] = first + i;
    }
}

/* Makes a new block of the states [first, end). */
static void part_off(minimizer *min, uint32_t first, uint32_t end)
{
    uint32_t made = min->n_blocks++;
    min->first[made] = first;
    min->end[made] = end;
    min->marked[made] = 0;
    for (uint32_t i = first; i < end; i++) {
        min->block_of[min->items[i]] = made;
        min->changed[min->n_changed++] = min->items[i];
    }
}

/* Splits a block: each part becomes a block, and so do the states that were not marked; the largest of them keeps the
 * number. */
static bool part_block(minimizer *min, uint32_t block)
{
    uint32_t first = min->first[block], end = min->end[block], rest = first + min->marked[block];
    if (!find_parts(min, block))
        return false;
    bool whole = min->n_parts == 1 && rest == end;
    size_t largest = 0;
    for (size_t i = 1; i < min->n_parts; i++)
        if (min->parts[i].count > min->parts[largest].count)
            largest = i;
    if (!whole) {
        sort_marked(min, min->changed + min->n_changed, block);
        if (end - rest >= min->parts[largest].count) {
            largest = min->n_parts;
            min->first[block] = rest;
        } else if (rest < end) {
            part_off(min, rest, end);
        }
        for (size_t i = 0; i < min->n_parts; i++) {
            uint32_t stop = first + min->parts[i].at, start = stop - min->parts[i].count;
            if (i != largest) {
                part_off(min, start, stop);
                continue;
            }
            min->first[block] = start;
            min->end[block] = stop;
        }
    }
    min->marked[block] = 0;
    return true;
}

static bool refine(minimizer *min)
{
    for (uint32_t i = 0; min->n_blocks && i < min->end[0]; i++)
        mark(min, min->items[i]);
    while (min->n_touched) {
        min->n_changed = 0;
        while (min->n_touched)
            if (!part_block(min, min->touched[--min->n_touched]))
                return false;
        for (uint32_t i = 0; i < min->n_changed; i++)
            for (uint32_t k = min->first_into[min->changed[i]]; k < min->first_into[min->changed[i] + 1]; k++)
                mark(min, min->into[k]);
    }
    return true;
}

/* Puts each useful state into a block of its own, so that nothing is merged. */
static void part_all(minimizer *min)
{
    min->n_blocks = min->n_blocks ? min->end[0] : 0;
    for (uint32_t i = 0; i < min->n_blocks; i++) {
        min->block_of[min->items[i]] = min->first[i] = i;
        min->end[i] = i + 1;
    }
}

/* ---- the result -------------------------------------------------------------------------------------------------- */

/* Numbers of blocks in the order in which they are first visited. */
typedef struct numbering {
    uint32_t *number; /* [n_blocks] number of a block, + 1 */
    uint32_t *order;  /* [n_blocks] */
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
        if (min->block_of[edge.target] == USELESS)
            continue;
        edge.target = number_of(met, min->block_of[edge.target]);
        spry_automaton_add_edge(writer, edge);
    }
    for (uint32_t i = from->first_call[state]; i < from->first_call[state + 1]; i++) {
        spry_call call = from->calls[i];
        if (min->block_of[call.target] == USELESS)
            continue;
        call.target = number_of(met, min->block_of[call.target]);
        spry_automaton_add_call(writer, call);
    }
}

/* Writes one state for each block reachable from the start, in breadth-first order. */
static spry_automaton_result write_blocks(const minimizer *min, spry_automaton *out)
{
    numbering met = {calloc(min->n_blocks + (size_t)1, sizeof *met.number),
                     malloc((min->n_blocks + (size_t)1) * sizeof *met.order), 0};
    spry_automaton_writer writer = {.failed = !met.number || !met.order};
    if (!writer.failed && min->block_of[0] != USELESS)
        number_of(&met, min->block_of[0]);
    for (uint32_t i = 0; i < met.count && !writer.failed; i++)
        write_block(min, &writer, &met, min->items[min->first[met.order[i]]]);
    free(met.number);
    free(met.order);
    return spry_automaton_finish(&writer, out, min->from->deterministic);
}

/* Takes one array from the memory that all arrays of known size share. */
static uint32_t *take(uint32_t **memory, size_t count)
{
    uint32_t *taken = *memory;
    *memory += count;
    return taken;
}

static uint32_t *start(minimizer *min, const spry_automaton *from)
{
    size_t n = from->n_states, n_into = (size_t)from->first_edge[n] + from->first_call[n], table = 16;
    while (table < 2 * n)
        table *= 2;
    uint32_t *memory = malloc((10 * n + 2 + n_into + table) * sizeof *memory), *rest = memory;
    *min = (minimizer){.from = from, .table_size = table};
    if (!memory)
        return NULL;
    min->first_into = take(&rest, n + 2);
    min->marked = take(&rest, n);
    min->first = take(&rest, n);
    min->table = take(&rest, table);
    memset(memory, 0, (size_t)(rest - memory) * sizeof *memory);
    min->end = take(&rest, n);
    min->block_of = take(&rest, n);
    min->items = take(&rest, n);
    min->place = take(&rest, n);
    min->touched = take(&rest, n);
    min->changed = take(&rest, n);
    min->part_of = take(&rest, n);
    min->into = take(&rest, n_into);
    return memory;
}

spry_automaton_result spry_automaton_minimize(spry_automaton *automaton)
{
    if (!automaton->n_states)
        return SPRY_AUTOMATON_OK;
    minimizer min;
    spry_automaton made = {0};
    spry_automaton_result result = SPRY_AUTOMATON_NO_MEMORY;
    uint32_t *memory = start(&min, automaton);
    if (memory) {
        index_into(&min);
        find_useful(&min);
        bool ok = true;
        if (automaton->deterministic)
            ok = refine(&min);
        else
            part_all(&min);
        if (ok)
            result = write_blocks(&min, &made);
    }
    free(memory);
    free(min.parts);
    free(min.words);
    if (!result) {
        spry_automaton_deinit(automaton);
        *automaton = made;
    }
    return result;
}
