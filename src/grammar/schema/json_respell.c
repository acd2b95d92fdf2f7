/* Converts a pattern to its JSON spelling: every character of a node is replaced by its spellings. */
#include "grammar/schema/json_spelling.h"

#include "grammar/automaton/ir_nfa.h"
#include "grammar/ir/grow.h"
#include "grammar/ir/ir_nodes.h"

/* ---- automata ---------------------------------------------------------------------------------------------------- */

/* The characters that lead from one state of an automaton over UTF-8 to another. */
typedef struct step {
    uint32_t target;
    spry_code_range range;
} step;

typedef struct steps {
    step *items;
    size_t count, room, visits;
    bool failed;
} steps;

static void add_step(steps *out, uint32_t target, uint32_t first, uint32_t last)
{
    step *before = out->count ? &out->items[out->count - 1] : NULL;
    if (before && before->target == target && before->range.last + 1 == first) {
        before->range.last = last;
        return;
    }
    if (!spry_grow(&out->items, &out->room, out->count + 1, sizeof *out->items)) {
        out->failed = true;
        return;
    }
    out->items[out->count++] = (step){target, {first, last}};
}

/* The one state that every text of `missing` continuation bytes leads to; UINT32_MAX when there is none. */
static uint32_t common_target(const spry_automaton *automaton, uint32_t state, unsigned missing)
{
    if (!automaton->deterministic)
        return UINT32_MAX;
    for (; missing && state != UINT32_MAX; missing--) {
        uint32_t i = automaton->first_edge[state], end = automaton->first_edge[state + 1];
        while (i < end && automaton->edges[i].last < 0xBF)
            i++;
        state = i < end && automaton->edges[i].first <= 0x80 ? automaton->edges[i].target : UINT32_MAX;
    }
    return state;
}

/* Follows the remaining `missing` bytes of a character. */
static void walk(steps *out, const spry_automaton *automaton, uint32_t state, uint32_t character, unsigned missing)
{
    uint32_t common = common_target(automaton, state, missing);
    out->visits++;
    if (common != UINT32_MAX) {
        add_step(out, common, character << 6 * missing, ((character + 1) << 6 * missing) - 1);
        return;
    }
    for (uint32_t i = automaton->first_edge[state]; i < automaton->first_edge[state + 1] && !out->failed; i++) {
        spry_edge edge = automaton->edges[i];
        if (edge.last < 0x80 || edge.first > 0xBF)
            continue;
        uint32_t first = edge.first > 0x80 ? edge.first - 0x80u : 0, last = edge.last < 0xBF ? edge.last - 0x80u : 0x3F;
        if (missing == 1) {
            add_step(out, edge.target, character << 6 | first, character << 6 | last);
            continue;
        }
        for (uint32_t low = first; low <= last; low++)
            walk(out, automaton, edge.target, character << 6 | low, missing - 1);
    }
}

static int by_target(const void *a, const void *b)
{
    const step *x = a, *y = b;
    if (x->target != y->target)
        return x->target < y->target ? -1 : 1;
    return (x->range.first > y->range.first) - (x->range.first < y->range.first);
}

/* All characters with a transition from a state at a character boundary. */
static void find_steps(steps *out, const spry_automaton *automaton, uint32_t state)
{
    out->count = out->visits = 0;
    for (uint32_t i = automaton->first_edge[state]; i < automaton->first_edge[state + 1]; i++) {
        spry_edge edge = automaton->edges[i];
        if (edge.first < 0x80)
            add_step(out, edge.target, edge.first, edge.last < 0x7F ? edge.last : 0x7F);
        for (uint32_t byte = edge.first > 0xC2 ? edge.first : 0xC2; byte <= edge.last && byte <= 0xF4; byte++) {
            unsigned missing = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
            walk(out, automaton, edge.target, byte & (0x3Fu >> missing), missing);
        }
    }
    if (out->count)
        qsort(out->items, out->count, sizeof *out->items, by_target);
}

/* Adds an edge for each target, with the spellings of its characters. */
static void spell_steps(spry_ir *ir, spry_ir_nfa *build, const steps *all, uint32_t state)
{
    for (size_t i = 0, end; i < all->count; i = end) {
        spry_code_range *ranges = malloc(all->count * sizeof *ranges);
        if (!ranges) {
            spry_ir_fail(ir, SPRY_ERR_MEMORY, "not enough memory for a grammar");
            return;
        }
        for (end = i; end < all->count && all->items[end].target == all->items[i].target; end++)
            ranges[end - i] = all->items[end].range;
        spry_ir_node spelled = spry_json_spell_class(ir, ranges, end - i);
        free(ranges);
        if (spelled != SPRY_IR_NONE)
            spry_ir_nfa_write(build, spelled, state, all->items[i].target, true);
    }
}

static spry_ir_node respell_automaton(spry_ir *ir, uint32_t number)
{
    spry_nfa nfa;
    spry_ir_nfa build = {.nfa = &nfa, .ir = ir};
    steps all = {0};
    spry_automaton spelled = {0};
    uint32_t n_states = ir->automata[number].n_states;
    spry_nfa_init(&nfa, (size_t)1 << 18);
    nfa.spent = ir->spent;
    for (uint32_t i = 0; i < n_states + !n_states; i++)
        spry_nfa_state_add(&nfa);
    for (uint32_t i = 0; i < n_states && !nfa.result && !all.failed && !ir->error.status; i++) {
        nfa.states[i].tag = ir->automata[number].tags[i];
        find_steps(&all, &ir->automata[number], i);
        spry_ir_spend(ir, 8 * (all.count + all.visits + 1));
        spell_steps(ir, &build, &all, i);
    }
    spry_automaton_result result = all.failed ? SPRY_AUTOMATON_NO_MEMORY : SPRY_AUTOMATON_TOO_LARGE;
    if (!all.failed && !ir->error.status)
        result = spry_automaton_make(&spelled, &nfa, SPRY_DFA_STATES_MAX);
    free(all.items);
    spry_nfa_deinit(&nfa);
    if (result == SPRY_AUTOMATON_OK)
        return spry_ir_take_automaton(ir, &spelled);
    spry_automaton_deinit(&spelled);
    return spry_ir_too_large(ir, result, "spelling");
}

/* ---- trees of nodes ---------------------------------------------------------------------------------------------- */

static spry_ir_node respell(spry_ir *ir, spry_ir_node node, spry_ir_node *done);

/* Children are copied first: creating nodes moves the arrays. */
static spry_ir_node respell_children(spry_ir *ir, spry_ir_entry entry, spry_ir_node *done)
{
    spry_ir_node *children = malloc((entry.b + 1) * sizeof *children);
    if (!children)
        return spry_ir_fail(ir, SPRY_ERR_MEMORY, "not enough memory for a grammar");
    for (uint32_t i = 0; i < entry.b; i++)
        children[i] = ir->children[entry.a + i];
    for (uint32_t i = 0; i < entry.b; i++)
        children[i] = respell(ir, children[i], done);
    spry_ir_node node = entry.kind == SPRY_IR_SEQUENCE ? spry_ir_sequence(ir, children, entry.b)
                                                       : spry_ir_choice(ir, children, entry.b);
    free(children);
    return node;
}

static spry_ir_node respell_class(spry_ir *ir, spry_ir_entry entry)
{
    spry_code_range *ranges = malloc((entry.b + 1) * sizeof *ranges);
    if (!ranges)
        return spry_ir_fail(ir, SPRY_ERR_MEMORY, "not enough memory for a grammar");
    memcpy(ranges, ir->ranges + entry.a, entry.b * sizeof *ranges);
    spry_ir_node node = spry_json_spell_class(ir, ranges, entry.b);
    free(ranges);
    return node;
}

static spry_ir_node respell_literal(spry_ir *ir, spry_ir_entry entry)
{
    char *bytes = malloc(entry.b + 1);
    if (!bytes)
        return spry_ir_fail(ir, SPRY_ERR_MEMORY, "not enough memory for a grammar");
    memcpy(bytes, ir->bytes + entry.a, entry.b);
    spry_ir_node node = spry_json_spell_text(ir, (spry_view){bytes, entry.b});
    free(bytes);
    return node;
}

/* `done` holds the results, so that a node used in many places is converted once. */
static spry_ir_node respell(spry_ir *ir, spry_ir_node node, spry_ir_node *done)
{
    if (spry_ir_status(ir, NULL) != SPRY_OK || done[node] != SPRY_IR_NONE)
        return spry_ir_status(ir, NULL) != SPRY_OK ? SPRY_IR_NONE : done[node];
    spry_ir_entry entry = ir->nodes[node];
    switch ((spry_ir_kind)entry.kind) {
    case SPRY_IR_EMPTY:
    case SPRY_IR_NEVER: done[node] = node; break;
    case SPRY_IR_LITERAL: done[node] = respell_literal(ir, entry); break;
    case SPRY_IR_CLASS: done[node] = respell_class(ir, entry); break;
    case SPRY_IR_SEQUENCE:
    case SPRY_IR_CHOICE: done[node] = respell_children(ir, entry, done); break;
    case SPRY_IR_REPEAT: done[node] = spry_ir_repeat(ir, respell(ir, entry.a, done), entry.b, entry.c); break;
    case SPRY_IR_AUTOMATON: done[node] = respell_automaton(ir, entry.a); break;
    default: return spry_ir_fail(ir, SPRY_ERR_UNSUPPORTED, "a pattern uses what cannot be spelled in a JSON string");
    }
    return done[node];
}

spry_ir_node spry_json_respell(spry_ir *ir, spry_ir_node node)
{
    if (spry_ir_status(ir, NULL) != SPRY_OK || node >= ir->n_nodes)
        return SPRY_IR_NONE;
    size_t count = (size_t)node + 1; /* children have smaller numbers */
    spry_ir_node *done = malloc(count * sizeof *done);
    if (!done)
        return spry_ir_fail(ir, SPRY_ERR_MEMORY, "not enough memory for a grammar");
    for (size_t i = 0; i < count; i++)
        done[i] = SPRY_IR_NONE;
    node = respell(ir, node, done);
    free(done);
    return node;
}
