/* Operations on the whole automaton of a regular node: intersection, difference, emptiness. */
#include "grammar/automaton/ir_nfa.h"

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

spry_automaton_result spry_ir_find_automaton(const spry_ir *ir, spry_ir_node node, spry_automaton *made,
                                             const spry_automaton **out)
{
    const spry_ir_entry *entry = &ir->nodes[node];
    *out = made;
    if (entry->kind == SPRY_IR_AUTOMATON && ir->automata[entry->a].deterministic) {
        *out = &ir->automata[entry->a];
        return SPRY_AUTOMATON_OK;
    }
    spry_nfa nfa;
    write_nfa(ir, node, &nfa);
    spry_automaton_result result = spry_automaton_make(made, &nfa, SPRY_DFA_STATES_MAX);
    spry_nfa_deinit(&nfa);
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
    if (ir->error.status)
        return SPRY_IR_NONE;
    spry_automaton first = {0}, second = {0}, both = {0};
    const spry_automaton *left, *right = &second;
    spry_automaton_result result = spry_ir_find_automaton(ir, a, &first, &left);
    if (!result)
        result = spry_ir_find_automaton(ir, b, &second, &right);
    if (!result)
        result = spry_automaton_product(&both, left, right, kind, SPRY_DFA_STATES_MAX, ir->spent);
    spry_automaton_deinit(&first);
    spry_automaton_deinit(&second);
    if (!result)
        return spry_ir_take_automaton(ir, &both);
    spry_automaton_deinit(&both);
    return spry_ir_too_large(ir, result, kind == SPRY_PRODUCT_WITHOUT ? "difference" : "intersection");
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
    spry_automaton made = {0}, marked = {0};
    const spry_automaton *plain;
    spry_nfa nfa;
    spry_nfa_init(&nfa, REGULAR_STATES_MAX);
    nfa.spent = ir->spent;
    nfa.result = spry_ir_find_automaton(ir, node, &made, &plain);
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
    spry_automaton_deinit(&made);
    if (!result)
        return spry_ir_take_automaton(ir, &marked);
    spry_automaton_deinit(&marked);
    return spry_ir_too_large(ir, result, "look-around");
}

/* Nodes that match nothing are never parts of other nodes, and automata have no states that do not reach an end. */
bool spry_ir_is_never(spry_ir *ir, spry_ir_node node)
{
    return !ir->error.status && ir->nodes[node].kind == SPRY_IR_NEVER;
}
