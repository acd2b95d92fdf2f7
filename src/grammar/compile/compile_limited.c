/* Machines of texts with a limited number of units. */
#include "grammar/compile/grammar_compiler.h"
#include "grammar/ir/grow.h"

/* The states of a limited text, which all limits of the text share. */
static spry_status find_states(spry_compiler *compiler, uint32_t index, uint32_t machine)
{
    spry_grammar *grammar = compiler->grammar;
    const spry_automaton *automaton = &compiler->ir->automata[index];
    spry_machine *made = &grammar->machines[machine];
    made->kind = SPRY_MACHINE_LIMITED;
    made->limit = grammar->n_limits;
    made->n_states = automaton->n_states;
    if (compiler->limited_of[index]) {
        const spry_machine *first = &grammar->machines[compiler->limited_of[index] - 1];
        made->index = first->index;
        return SPRY_OK;
    }
    compiler->limited_of[index] = machine + 1;
    spry_compiler_digest(made, automaton, SPRY_STATE_LIMITED);
    return spry_compiler_append(compiler, automaton, SPRY_STATE_LIMITED, machine, &made->index);
}

spry_status spry_compiler_limited(spry_compiler *compiler, spry_ir_node node, uint32_t machine)
{
    spry_grammar *grammar = compiler->grammar;
    const spry_ir_entry *entry = &compiler->ir->nodes[node];
    spry_status status = find_states(compiler, entry->a, machine);
    if (status)
        return status;
    spry_limit limit = {.min = entry->b, .max = entry->c, .first_state = grammar->machines[machine].index};
    limit.return_state = spry_compiler_return_state(compiler, SPRY_STATE_LIMIT, grammar->n_limits);
    if (limit.return_state == SPRY_NO_STATE ||
        !spry_grow(&grammar->limits, &compiler->limits_room, grammar->n_limits + 1, sizeof *grammar->limits))
        return spry_fail_memory(compiler->error, "a grammar's limits", sizeof limit);
    spry_automaton_result result = spry_unit_ways_find(&limit.ways, &compiler->ir->automata[entry->a],
                                                       limit.min ? limit.min : 1, compiler->ir->spent);
    if (result)
        return spry_compiler_failed(compiler, result, SPRY_VIEW(""));
    limit.extends = spry_unit_ways_extend(&limit.ways);
    for (uint32_t i = 0; i < limit.ways.n_states; i++)
        if (limit.ways.units[i] != SPRY_NO_WAY && limit.ways.units[i] > limit.farthest)
            limit.farthest = limit.ways.units[i];
    grammar->limits[grammar->n_limits++] = limit;
    return SPRY_OK;
}
