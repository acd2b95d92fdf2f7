/* Operations on the whole automaton of a regular node: intersection, difference, emptiness. */
#include "grammar/automaton/ir_nfa.h"
#include "grammar/ir/grow.h"

enum { REGULAR_STATES_MAX = 1 << 17 };

/* Writes the whole of a regular node. A recursive rule would grow without end, so it is refused as too large. */
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

bool spry_ir_recall(const spry_ir *ir, uint32_t *made, spry_ir_making how, spry_ir_node a, spry_ir_node b)
{
    uint32_t key[] = {how, a, b};
    return spry_map_find(&ir->made, (spry_view){(const char *)key, sizeof key}, made);
}

bool spry_ir_remember(spry_ir *ir, uint32_t made, spry_ir_making how, spry_ir_node a, spry_ir_node b)
{
    uint32_t key[] = {how, a, b};
    bool added;
    char *copy = spry_arena_copy(&ir->arena, (spry_view){(const char *)key, sizeof key});
    return copy && spry_map_add(&ir->made, (spry_view){copy, sizeof key}, made, &added);
}

spry_automaton_result spry_ir_keep_automaton(spry_ir *ir, uint32_t *index, spry_automaton *automaton)
{
    if (!spry_grow(&ir->automata, &ir->automata_room, ir->n_automata + 1, sizeof *ir->automata)) {
        spry_automaton_deinit(automaton);
        return SPRY_AUTOMATON_NO_MEMORY;
    }
    *index = (uint32_t)ir->n_automata;
    ir->automata[ir->n_automata++] = *automaton;
    return SPRY_AUTOMATON_OK;
}

spry_automaton_result spry_ir_find_automaton(spry_ir *ir, spry_ir_node node, uint32_t *index)
{
    const spry_ir_entry *entry = &ir->nodes[node];
    if (entry->kind == SPRY_IR_AUTOMATON && ir->automata[entry->a].deterministic) {
        *index = entry->a;
        return SPRY_AUTOMATON_OK;
    }
    if (spry_ir_recall(ir, index, SPRY_IR_MADE_WHOLE, node, 0))
        return SPRY_AUTOMATON_OK;
    spry_nfa nfa;
    spry_automaton made;
    write_nfa(ir, node, &nfa);
    spry_automaton_result result = spry_automaton_make(&made, &nfa, SPRY_DFA_STATES_MAX);
    spry_nfa_deinit(&nfa);
    if (!result)
        result = spry_ir_keep_automaton(ir, index, &made);
    if (!result && !spry_ir_remember(ir, *index, SPRY_IR_MADE_WHOLE, node, 0))
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
    if (ir->error.status || spry_ir_recall(ir, &node, how, a, b))
        return node;
    spry_automaton product;
    uint32_t left, right;
    spry_automaton_result result = spry_ir_find_automaton(ir, a, &left);
    if (!result)
        result = spry_ir_find_automaton(ir, b, &right);
    if (!result)
        result = spry_automaton_product(&product, &ir->automata[left], &ir->automata[right], kind, SPRY_DFA_STATES_MAX,
                                        ir->spent);
    if (result)
        return spry_ir_too_large(ir, result, without ? "difference" : "intersection");
    node = spry_ir_take_automaton(ir, &product);
    if (node != SPRY_IR_NONE && !spry_ir_remember(ir, node, how, a, b))
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

/* ---- anchors -------------------------------------------------------------------------------------------------------
 */

/* Input read so far: nothing; characters; characters and an end mark; an end mark of an empty text. */
enum { NOTHING, CHARACTERS, ENDED, ENDED_EMPTY, PHASES, NO_PHASE = PHASES };

/* The phase after a byte; other marks than anchors change nothing. */
static unsigned next_phase(unsigned phase, unsigned byte)
{
    static const unsigned char begin[] = {NOTHING, NO_PHASE, NO_PHASE, ENDED_EMPTY};
    static const unsigned char end[] = {ENDED_EMPTY, ENDED, ENDED, ENDED_EMPTY};
    static const unsigned char other[] = {CHARACTERS, CHARACTERS, NO_PHASE, NO_PHASE};
    if (byte < SPRY_IR_MARKS)
        return other[phase];
    return byte == SPRY_IR_BEGIN ? begin[phase] : byte == SPRY_IR_END ? end[phase] : phase;
}

/* One edge from a state in a phase: its marks become silent. */
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
    nfa.result = spry_ir_find_automaton(ir, node, &index);
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

/* Nodes that match nothing are never parts of other nodes, and automata have no states that do not reach an end. */
bool spry_ir_is_never(spry_ir *ir, spry_ir_node node)
{
    return !ir->error.status && ir->nodes[node].kind == SPRY_IR_NEVER;
}
