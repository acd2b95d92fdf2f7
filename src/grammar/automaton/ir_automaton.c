/* Automata of grammar nodes (ir/grammar_ir.h): conversion of nodes to states; intersection, difference and emptiness of
 * regular nodes; texts with a limited number of units. */
#include "grammar/automaton/ir_automaton.h"

#include "grammar/automaton/automaton.h"
#include "grammar/ir/grammar_ir.h"
#include "grammar/ir/grow.h"

/* ---- from nodes to states ---------------------------------------------------------------------------------------- */

/* Pending work is kept on an explicit stack, so that nesting uses no C stack. No node adds an edge into its first state
 * or out of its last one, so adjacent nodes can share those states. */

typedef struct task {
    spry_ir_node node;
    uint32_t from, to;
} task;

typedef struct writer {
    const spry_ir_nfa *build;
    spry_nfa *nfa;
    const spry_ir *ir;
    task *tasks;
    size_t n_tasks, tasks_room;
} writer;

static void later(writer *at, spry_ir_node node, uint32_t from, uint32_t to)
{
    if (at->nfa->result)
        return;
    if (!spry_grow(&at->tasks, &at->tasks_room, at->n_tasks + 1, sizeof *at->tasks))
        at->nfa->result = SPRY_AUTOMATON_NO_MEMORY;
    else
        at->tasks[at->n_tasks++] = (task){node, from, to};
}

static void write_literal(writer *at, const spry_ir_entry *entry, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < entry->b && !at->nfa->result; i++) {
        unsigned char byte = (unsigned char)at->ir->bytes[entry->a + i];
        uint32_t next = i + 1 == entry->b ? to : spry_nfa_state_add(at->nfa);
        spry_nfa_bytes(at->nfa, from, next, byte, byte);
        from = next;
    }
}

/* A character class is written as products of byte ranges. Products are sorted: each shares the states of the previous
 * one for their common prefix of bytes. */
static void write_class(writer *at, const spry_ir_entry *entry, uint32_t from, uint32_t to)
{
    spry_utf8_product products[SPRY_UTF8_PRODUCTS_MAX], last = {0};
    uint32_t states[5] = {from};
    for (uint32_t i = 0; i < entry->b && !at->nfa->result; i++) {
        size_t count = spry_utf8_products(products, at->ir->ranges[entry->a + i]);
        for (size_t j = 0; j < count; j++) {
            const spry_utf8_product *product = &products[j];
            unsigned same = 0;
            while (same + 1 < product->size && same + 1 < last.size && product->first[same] == last.first[same] &&
                   product->last[same] == last.last[same])
                same++;
            for (unsigned k = same; k < product->size; k++) {
                states[k + 1] = k + 1 == product->size ? to : spry_nfa_state_add(at->nfa);
                spry_nfa_bytes(at->nfa, states[k], states[k + 1], product->first[k], product->last[k]);
            }
            last = *product;
        }
    }
}

static void write_sequence(writer *at, const spry_ir_entry *entry, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < entry->b && !at->nfa->result; i++) {
        uint32_t next = i + 1 == entry->b ? to : spry_nfa_state_add(at->nfa);
        later(at, at->ir->children[entry->a + i], from, next);
        from = next;
    }
}

static void write_repeat(writer *at, const spry_ir_entry *entry, uint32_t from, uint32_t to)
{
    spry_nfa *nfa = at->nfa;
    bool endless = entry->c == SPRY_IR_UNBOUNDED;
    uint32_t copies = endless ? entry->b : entry->c;
    if (copies > nfa->limit)
        nfa->result = SPRY_AUTOMATON_TOO_LARGE;
    uint32_t state = spry_nfa_state_add(nfa);
    spry_nfa_silent(nfa, from, state);
    for (uint32_t i = 0; i < copies && !nfa->result; i++) {
        if (i >= entry->b)
            spry_nfa_silent(nfa, state, to);
        uint32_t next = spry_nfa_state_add(nfa);
        later(at, entry->a, state, next);
        state = next;
    }
    if (endless) {
        uint32_t next = spry_nfa_state_add(nfa);
        later(at, entry->a, state, next);
        spry_nfa_silent(nfa, next, state);
    }
    spry_nfa_silent(nfa, state, to);
}

static void write_call(writer *at, spry_ir_node node, uint32_t from, uint32_t to)
{
    uint32_t callee;
    if (!at->build->callee(at->build->user, node, &callee)) {
        at->nfa->result = SPRY_AUTOMATON_NO_MEMORY;
        return;
    }
    spry_nfa_call(at->nfa, from, to, callee);
    if (at->build->facts->flags[node] & SPRY_FACT_NULLABLE)
        spry_nfa_silent(at->nfa, from, to);
}

static void write_node(writer *at, task now, bool inside)
{
    const spry_ir *ir = at->ir;
    const spry_ir_facts *facts = at->build->facts;
    const spry_ir_entry *entry = &ir->nodes[now.node];
    if (facts && !(facts->flags[now.node] & SPRY_FACT_PRODUCTIVE))
        return;
    if (facts && facts->flags[now.node] & SPRY_FACT_CALLED && !inside) {
        write_call(at, now.node, now.from, now.to);
        return;
    }
    switch ((spry_ir_kind)entry->kind) {
    case SPRY_IR_EMPTY: spry_nfa_silent(at->nfa, now.from, now.to); break;
    case SPRY_IR_NEVER: break;
    case SPRY_IR_LITERAL: write_literal(at, entry, now.from, now.to); break;
    case SPRY_IR_CLASS: write_class(at, entry, now.from, now.to); break;
    case SPRY_IR_SEQUENCE: write_sequence(at, entry, now.from, now.to); break;
    case SPRY_IR_CHOICE:
        for (uint32_t i = 0; i < entry->b; i++)
            later(at, ir->children[entry->a + i], now.from, now.to);
        break;
    case SPRY_IR_REPEAT:
        if (facts && !(facts->flags[entry->a] & SPRY_FACT_PRODUCTIVE))
            spry_nfa_silent(at->nfa, now.from, now.to);
        else
            write_repeat(at, entry, now.from, now.to);
        break;
    case SPRY_IR_RULE:
        if (ir->rules[entry->a].node == SPRY_IR_NONE)
            at->nfa->result = SPRY_AUTOMATON_TOO_LARGE;
        else
            later(at, ir->rules[entry->a].node, now.from, now.to);
        break;
    case SPRY_IR_LIMITED:
    case SPRY_IR_MEMBERS: at->nfa->result = SPRY_AUTOMATON_TOO_LARGE; break;
    case SPRY_IR_AUTOMATON: spry_nfa_insert(at->nfa, now.from, now.to, &ir->automata[entry->a]); break;
    }
}

void spry_ir_nfa_write(const spry_ir_nfa *build, spry_ir_node node, uint32_t from, uint32_t to, bool inside)
{
    writer at = {.build = build, .nfa = build->nfa, .ir = build->ir};
    write_node(&at, (task){node, from, to}, inside);
    size_t rounds = 0; /* bounds the loop: rules that only refer to each other add nothing and would never end */
    while (at.n_tasks && !at.nfa->result) {
        task now = at.tasks[--at.n_tasks];
        write_node(&at, now, false);
        if (++rounds > 8 * build->nfa->limit)
            at.nfa->result = SPRY_AUTOMATON_TOO_LARGE;
    }
    free(at.tasks);
}

/* ---- operations on regular nodes --------------------------------------------------------------------------------- */

enum { REGULAR_STATES_MAX = 1 << 17 };

/* Converts a regular node completely. A recursive rule would grow without end, so it is refused as too large. */
static void write_nfa(const spry_ir *ir, spry_ir_node node, spry_nfa *nfa)
{
    spry_nfa_init(nfa, REGULAR_STATES_MAX);
    nfa->spent = ir->spent;
    spry_ir_nfa build = {.nfa = nfa, .ir = ir};
    uint32_t from = spry_nfa_state_add(nfa), to = spry_nfa_state_add(nfa);
    if (!nfa->result)
        nfa->states[to].tag = 1;
    spry_ir_nfa_write(&build, node, from, to, true);
}

static bool ir_recall(const spry_ir *ir, uint32_t *made, spry_ir_making how, spry_ir_node a, spry_ir_node b)
{
    uint32_t key[] = {how, a, b};
    return spry_map_find(&ir->made, (spry_view){(const char *)key, sizeof key}, made);
}

/* Records the result of an operation on one or two nodes; false when memory is short. */
static bool ir_remember(spry_ir *ir, uint32_t made, spry_ir_making how, spry_ir_node a, spry_ir_node b)
{
    uint32_t key[] = {how, a, b};
    bool added;
    char *copy = spry_arena_copy(&ir->arena, (spry_view){(const char *)key, sizeof key});
    return copy && spry_map_add(&ir->made, (spry_view){copy, sizeof key}, made, &added);
}

/* Takes ownership of an automaton; *index becomes its number in ir->automata. */
static spry_automaton_result keep_automaton(spry_ir *ir, uint32_t *index, spry_automaton *automaton)
{
    if (!spry_grow(&ir->automata, &ir->automata_room, ir->n_automata + 1, sizeof *ir->automata)) {
        spry_automaton_deinit(automaton);
        return SPRY_AUTOMATON_NO_MEMORY;
    }
    *index = (uint32_t)ir->n_automata;
    ir->automata[ir->n_automata++] = *automaton;
    return SPRY_AUTOMATON_OK;
}

/* Finds the deterministic automaton of a regular node; *index is its number in ir->automata. */
static spry_automaton_result find_automaton(spry_ir *ir, spry_ir_node node, uint32_t *index)
{
    const spry_ir_entry *entry = &ir->nodes[node];
    if (entry->kind == SPRY_IR_AUTOMATON && ir->automata[entry->a].deterministic) {
        *index = entry->a;
        return SPRY_AUTOMATON_OK;
    }
    if (ir_recall(ir, index, SPRY_IR_MADE_WHOLE, node, 0))
        return SPRY_AUTOMATON_OK;
    spry_nfa nfa;
    spry_automaton made;
    write_nfa(ir, node, &nfa);
    spry_automaton_result result = spry_automaton_make(&made, &nfa, SPRY_DFA_STATES_MAX);
    spry_nfa_deinit(&nfa);
    if (!result)
        result = keep_automaton(ir, index, &made);
    if (!result && !ir_remember(ir, *index, SPRY_IR_MADE_WHOLE, node, 0))
        result = SPRY_AUTOMATON_NO_MEMORY;
    return result;
}

spry_ir_node spry_ir_too_large(spry_ir *ir, spry_automaton_result result, const char *what)
{
    if (result == SPRY_AUTOMATON_NO_MEMORY)
        return spry_ir_fail(ir, SPRY_ERR_MEMORY, "not enough memory for the %s of patterns", what);
    if (*ir->spent >= SPRY_AUTOMATON_WORK_MAX)
        return spry_ir_fail(ir, SPRY_ERR_UNSUPPORTED, "%s", SPRY_IR_TOO_MUCH_WORK);
    return spry_ir_fail(ir, SPRY_ERR_UNSUPPORTED,
                        "the %s of patterns needs more than %d states, or one of them reaches itself", what,
                        SPRY_DFA_STATES_MAX);
}

static spry_ir_node combine(spry_ir *ir, spry_ir_node a, spry_ir_node b, spry_product kind)
{
    bool without = kind == SPRY_PRODUCT_WITHOUT;
    spry_ir_making how = without ? SPRY_IR_MADE_WITHOUT : SPRY_IR_MADE_BOTH;
    spry_ir_node node = SPRY_IR_NONE;
    if (ir->error.status || ir_recall(ir, &node, how, a, b))
        return node;
    spry_automaton product;
    uint32_t left, right;
    spry_automaton_result result = find_automaton(ir, a, &left);
    if (!result)
        result = find_automaton(ir, b, &right);
    if (!result)
        result = spry_automaton_product(&product, &ir->automata[left], &ir->automata[right], kind, SPRY_DFA_STATES_MAX,
                                        ir->spent);
    if (result)
        return spry_ir_too_large(ir, result, without ? "difference" : "intersection");
    node = spry_ir_take_automaton(ir, &product);
    if (node != SPRY_IR_NONE && !ir_remember(ir, node, how, a, b))
        return spry_ir_too_large(ir, SPRY_AUTOMATON_NO_MEMORY, "product");
    return node;
}

spry_ir_node spry_ir_intersect(spry_ir *ir, spry_ir_node a, spry_ir_node b)
{
    return combine(ir, a, b, SPRY_PRODUCT_BOTH);
}

spry_ir_node spry_ir_subtract(spry_ir *ir, spry_ir_node a, spry_ir_node b)
{
    return combine(ir, a, b, SPRY_PRODUCT_WITHOUT);
}

/* ---- anchors ----------------------------------------------------------------------------------------------------- */

/* The phases of reading a text: nothing yet; characters; characters and an end mark; an end mark of an empty text. */
enum { NOTHING, CHARACTERS, ENDED, ENDED_EMPTY, PHASES, NO_PHASE = PHASES };

/* The phase after a byte. Only the marks of anchors change it. */
static unsigned next_phase(unsigned phase, unsigned byte)
{
    static const unsigned char begin[] = {NOTHING, NO_PHASE, NO_PHASE, ENDED_EMPTY};
    static const unsigned char end[] = {ENDED_EMPTY, ENDED, ENDED, ENDED_EMPTY};
    static const unsigned char other[] = {CHARACTERS, CHARACTERS, NO_PHASE, NO_PHASE};
    if (byte < SPRY_IR_MARKS)
        return other[phase];
    return byte == SPRY_IR_BEGIN ? begin[phase] : byte == SPRY_IR_END ? end[phase] : phase;
}

/* Copies one edge from a state in a phase; the marks on it become epsilon edges. */
static void write_edge(spry_nfa *out, const spry_nfa_edge *edge, uint32_t from, unsigned phase)
{
    if (edge->kind == SPRY_NFA_SILENT) {
        spry_nfa_silent(out, from, edge->target * PHASES + phase);
        return;
    }
    unsigned next = next_phase(phase, edge->first), last = edge->last < SPRY_IR_MARKS ? edge->last : SPRY_IR_MARKS - 1;
    if (edge->first < SPRY_IR_MARKS && next != NO_PHASE)
        spry_nfa_bytes(out, from, edge->target * PHASES + next, edge->first, (unsigned char)last);
    for (unsigned mark = edge->first > SPRY_IR_MARKS ? edge->first : SPRY_IR_MARKS; mark <= edge->last; mark++)
        if ((next = next_phase(phase, mark)) != NO_PHASE)
            spry_nfa_silent(out, from, edge->target * PHASES + next);
}

static void write_phases(spry_nfa *out, const spry_nfa *from)
{
    for (size_t i = 0; i < from->n_states * PHASES; i++)
        spry_nfa_state_add(out);
    for (uint32_t i = 0; i < from->n_states && !out->result; i++) {
        for (uint32_t phase = 0; phase < PHASES; phase++) {
            out->states[i * PHASES + phase].tag = from->states[i].tag;
            for (uint32_t e = from->states[i].edge; e != SPRY_NFA_NO_EDGE; e = from->edges[e].next)
                write_edge(out, &from->edges[e], i * PHASES + phase, phase);
        }
    }
}

spry_ir_node spry_ir_anchored(spry_ir *ir, spry_ir_node node)
{
    if (ir->error.status)
        return SPRY_IR_NONE;
    spry_nfa plain, phases;
    spry_nfa_init(&phases, REGULAR_STATES_MAX);
    phases.spent = ir->spent;
    write_nfa(ir, node, &plain);
    phases.result = plain.result;
    write_phases(&phases, &plain);
    spry_automaton made = {0};
    spry_automaton_result result = spry_automaton_determinize(&made, &phases, 4096);
    if (!result)
        result = spry_automaton_minimize(&made);
    else if (result == SPRY_AUTOMATON_TOO_LARGE && !phases.result)
        result = spry_automaton_without_silent(&made, &phases);
    spry_nfa_deinit(&plain);
    spry_nfa_deinit(&phases);
    if (!result)
        return spry_ir_take_automaton(ir, &made);
    spry_automaton_deinit(&made);
    return spry_ir_too_large(ir, result, "anchored form");
}

spry_ir_node spry_ir_marked(spry_ir *ir, spry_ir_node node)
{
    if (ir->error.status)
        return SPRY_IR_NONE;
    spry_automaton marked = {0}, none = {0};
    uint32_t index;
    spry_nfa nfa;
    spry_nfa_init(&nfa, REGULAR_STATES_MAX);
    nfa.spent = ir->spent;
    nfa.result = find_automaton(ir, node, &index);
    const spry_automaton *plain = nfa.result ? &none : &ir->automata[index];
    for (uint32_t i = 0; i < plain->n_states + !plain->n_states; i++)
        spry_nfa_state_add(&nfa);
    for (uint32_t i = 0; i < plain->n_states && !nfa.result; i++) {
        nfa.states[i].tag = plain->tags[i];
        spry_nfa_bytes(&nfa, i, i, SPRY_IR_MARKS, SPRY_IR_END);
        for (uint32_t e = plain->first_edge[i]; e < plain->first_edge[i + 1]; e++)
            spry_nfa_bytes(&nfa, i, plain->edges[e].target, plain->edges[e].first, plain->edges[e].last);
    }
    spry_automaton_result result = nfa.result;
    if (!result)
        result = spry_automaton_make(&marked, &nfa, SPRY_DFA_STATES_MAX);
    spry_nfa_deinit(&nfa);
    if (!result)
        return spry_ir_take_automaton(ir, &marked);
    return spry_ir_too_large(ir, result, "look-around");
}

/* A node that matches nothing is never a part of another node, and every state of an automaton reaches an end. */
bool spry_ir_is_never(spry_ir *ir, spry_ir_node node)
{
    return !ir->error.status && ir->nodes[node].kind == SPRY_IR_NEVER;
}

/* ---- texts with a limited number of units ------------------------------------------------------------------------ */

/* Texts with a limited number of units, such as characters. A small product of a text's automaton and the counts
 * becomes one automaton. Otherwise the automaton of the text marks where a unit ends, and the matcher counts units. */

enum {
    MULTIPLIED_MAX = 2048, /* maximum of states times counts */
    WIDE_BYTES = 8,        /* an edge with this many first bytes of characters allows many characters (is_wide) */
    WIDE_COUNTS = 3,       /* maximum counts for such automata, because each count of a state has its own mask, which is
                            * expensive */
};

static bool is_wide(const spry_automaton *automaton)
{
    for (uint32_t i = 0; automaton->n_states && i < automaton->first_edge[automaton->n_states]; i++)
        if (automaton->edges[i].first >= 0xC2 && automaton->edges[i].last - automaton->edges[i].first >= WIDE_BYTES)
            return true;
    return false;
}

/* True if the product with the counts is small enough for one automaton. */
static bool is_small(const spry_automaton *automaton, uint32_t min, uint32_t max)
{
    uint64_t counts = max == SPRY_IR_UNBOUNDED ? min : max;
    return counts * automaton->n_states <= MULTIPLIED_MAX && (counts <= WIDE_COUNTS || !is_wide(automaton));
}

/* Constructs the automaton of a text that consists of units, with tags where a unit ends. */
static spry_automaton_result add_marked(spry_ir *ir, spry_ir_node text, spry_ir_node unit, uint32_t *index)
{
    spry_ir_node units = spry_ir_repeat(ir, unit, 0, SPRY_IR_UNBOUNDED), inside = spry_ir_intersect(ir, text, units);
    if (ir->error.status)
        return SPRY_AUTOMATON_OK;
    spry_automaton marked;
    uint32_t left, right;
    spry_automaton_result result = find_automaton(ir, inside, &left);
    if (!result)
        result = find_automaton(ir, units, &right);
    if (!result)
        result = spry_automaton_product(&marked, &ir->automata[left], &ir->automata[right], SPRY_PRODUCT_MARKED,
                                        SPRY_DFA_STATES_MAX, ir->spent);
    return result ? result : keep_automaton(ir, index, &marked);
}

/* The automaton of a text with tags where a unit ends, which is constructed once. */
static spry_automaton_result find_marked(spry_ir *ir, spry_ir_node text, spry_ir_node unit, uint32_t *index)
{
    if (ir_recall(ir, index, SPRY_IR_MADE_MARKED, text, unit))
        return SPRY_AUTOMATON_OK;
    spry_automaton_result result = add_marked(ir, text, unit, index);
    if (result || ir->error.status)
        return result;
    return ir_remember(ir, *index, SPRY_IR_MADE_MARKED, text, unit) ? SPRY_AUTOMATON_OK : SPRY_AUTOMATON_NO_MEMORY;
}

spry_ir_node spry_ir_counted(spry_ir *ir, spry_ir_node text, spry_ir_node unit, uint32_t min, uint32_t max)
{
    uint32_t index = 0;
    spry_automaton_result result = find_marked(ir, text, unit, &index);
    if (!result && ir->error.status)
        return SPRY_IR_NONE;
    if (!result && ir->automata[index].n_states == 0)
        return spry_ir_never(ir);
    spry_unit_ways ways = {0};
    if (!result)
        result = spry_unit_ways_find(&ways, &ir->automata[index], min, ir->spent);
    if (result)
        return spry_ir_too_large(ir, result, "length");
    uint32_t fewest = ways.units[(size_t)min * ways.n_states];
    spry_unit_ways_deinit(&ways);
    if (fewest == SPRY_NO_WAY || fewest > max)
        return spry_ir_never(ir);
    return spry_ir_add(ir, (spry_ir_entry){SPRY_IR_LIMITED, index, min, max});
}

spry_ir_node spry_ir_limited(spry_ir *ir, spry_ir_node text, spry_ir_node unit, uint32_t min, uint32_t max)
{
    if (ir->error.status || (min == 0 && max == SPRY_IR_UNBOUNDED))
        return ir->error.status ? SPRY_IR_NONE : text;
    if (min > max)
        return spry_ir_never(ir);
    uint32_t index;
    spry_automaton_result result = find_automaton(ir, text, &index);
    bool small = !result && is_small(&ir->automata[index], min, max);
    if (result)
        return spry_ir_too_large(ir, result, "length");
    return small ? spry_ir_intersect(ir, spry_ir_repeat(ir, unit, min, max), text)
                 : spry_ir_counted(ir, text, unit, min, max);
}
