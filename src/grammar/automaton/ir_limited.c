/* Texts with a limited number of units. Small products of a text and its counts become one automaton; otherwise the
 * automaton of the text knows where a unit ends, and a matcher counts. */
#include "grammar/automaton/ir_nfa.h"
#include "grammar/automaton/unit_ways.h"

enum {
    MULTIPLIED_MAX = 2048, /* states times counts */
    WIDE_BYTES = 8,        /* first bytes of characters on one edge: many characters are allowed */
    WIDE_COUNTS = 3,       /* every count of such a state has its own mask, which is expensive */
};

static bool is_wide(const spry_automaton *automaton)
{
    for (uint32_t i = 0; automaton->n_states && i < automaton->first_edge[automaton->n_states]; i++)
        if (automaton->edges[i].first >= 0xC2 && automaton->edges[i].last - automaton->edges[i].first >= WIDE_BYTES)
            return true;
    return false;
}

/* Whether the product is small enough for one automaton. */
static bool is_small(const spry_automaton *automaton, uint32_t min, uint32_t max)
{
    uint64_t counts = max == SPRY_IR_UNBOUNDED ? min : max;
    return counts * automaton->n_states <= MULTIPLIED_MAX && (counts <= WIDE_COUNTS || !is_wide(automaton));
}

/* Adds the automaton of a text that consists of units, with marks behind units. */
static spry_automaton_result add_marked(spry_ir *ir, spry_ir_node text, spry_ir_node unit, uint32_t *index)
{
    spry_ir_node units = spry_ir_repeat(ir, unit, 0, SPRY_IR_UNBOUNDED), inside = spry_ir_intersect(ir, text, units);
    if (ir->error.status)
        return SPRY_AUTOMATON_OK;
    spry_automaton marked;
    uint32_t left, right;
    spry_automaton_result result = spry_ir_find_automaton(ir, inside, &left);
    if (!result)
        result = spry_ir_find_automaton(ir, units, &right);
    if (!result)
        result = spry_automaton_product(&marked, &ir->automata[left], &ir->automata[right], SPRY_PRODUCT_MARKED,
                                        SPRY_DFA_STATES_MAX, ir->spent);
    return result ? result : spry_ir_keep_automaton(ir, index, &marked);
}

/* The automaton with marks of a text, made once. */
static spry_automaton_result find_marked(spry_ir *ir, spry_ir_node text, spry_ir_node unit, uint32_t *index)
{
    if (spry_ir_recall(ir, index, SPRY_IR_MADE_MARKED, text, unit))
        return SPRY_AUTOMATON_OK;
    spry_automaton_result result = add_marked(ir, text, unit, index);
    if (result || ir->error.status)
        return result;
    return spry_ir_remember(ir, *index, SPRY_IR_MADE_MARKED, text, unit) ? SPRY_AUTOMATON_OK : SPRY_AUTOMATON_NO_MEMORY;
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
    spry_automaton_result result = spry_ir_find_automaton(ir, text, &index);
    bool small = !result && is_small(&ir->automata[index], min, max);
    if (result)
        return spry_ir_too_large(ir, result, "length");
    return small ? spry_ir_intersect(ir, spry_ir_repeat(ir, unit, min, max), text)
                 : spry_ir_counted(ir, text, unit, min, max);
}
