/* Pending work is kept on an explicit stack, so that nesting uses no C stack. No part adds an edge into its first state
 * or out of its last one, so adjacent parts can share those states. */
#include "grammar/automaton/ir_nfa.h"

#include "grammar/ir/grow.h"
#include "grammar/source/code_ranges.h"

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

/* Products are sorted: each shares the states of the previous one for their common prefix of bytes. */
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
    size_t rounds = 0; /* rules that only refer to themselves add nothing and would loop forever */
    while (at.n_tasks && !at.nfa->result) {
        task now = at.tasks[--at.n_tasks];
        write_node(&at, now, false);
        if (++rounds > 8 * build->nfa->limit)
            at.nfa->result = SPRY_AUTOMATON_TOO_LARGE;
    }
    free(at.tasks);
}
