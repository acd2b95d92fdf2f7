#include "grammar/automaton/automaton_writer.h"

#include "grammar/ir/grow.h"

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
