/* Automata under construction: states, edges, copies. */
#include "grammar/automaton/automaton.h"

#include "grammar/ir/grow.h"

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
