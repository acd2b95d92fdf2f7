/* Compiles nodes to a grammar: decides which nodes become machines, builds their automata, and orders the machines by
 * which other machines they may begin with. */
#include "base/map.h"
#include "grammar/compile/grammar_compiler.h"
#include "grammar/complete/shortest.h"
#include "grammar/ir/grow.h"

enum { SIMPLE_STATES_MAX = 1024, STATE_WORK = 16 };

static bool find_callee(void *user, spry_ir_node node, uint32_t *callee)
{
    *callee = spry_compiler_machine(user, node);
    return *callee != SPRY_NO_STATE;
}

static spry_view rule_name(const spry_ir *ir, spry_ir_node node)
{
    return ir->nodes[node].kind == SPRY_IR_RULE ? ir->rules[ir->nodes[node].a].name : SPRY_VIEW("");
}

uint32_t spry_compiler_machine(spry_compiler *compiler, spry_ir_node node)
{
    spry_grammar *grammar = compiler->grammar;
    spry_ir_node resolved = spry_ir_resolve(compiler->ir, node);
    if (compiler->machine_of[resolved])
        return compiler->machine_of[resolved] - 1;
    spry_view name = rule_name(compiler->ir, node);
    char *copy = spry_arena_copy(&grammar->arena, name);
    size_t n = grammar->n_machines;
    if (!copy || !spry_grow(&grammar->machines, &compiler->machines_room, n + 1, sizeof *grammar->machines) ||
        !spry_grow(&compiler->node_of, &compiler->node_of_room, n + 1, sizeof *compiler->node_of))
        return SPRY_NO_STATE;
    bool nullable = (compiler->facts.flags[resolved] & SPRY_FACT_NULLABLE) != 0;
    grammar->machines[n] = (spry_machine){.nullable = nullable, .name = {copy, name.size}};
    compiler->node_of[n] = resolved;
    compiler->machine_of[resolved] = ++grammar->n_machines;
    return (uint32_t)n;
}

static bool room_for_states(spry_compiler *compiler, size_t more)
{
    spry_grammar *grammar = compiler->grammar;
    return grammar->n_states + more <= SPRY_PROGRAM_STATES_MAX &&
           spry_grow(&grammar->states, &compiler->states_room, grammar->n_states + more + 1, sizeof *grammar->states);
}

uint32_t spry_compiler_return_state(spry_compiler *compiler, spry_state_kind kind, uint32_t owner)
{
    spry_grammar *grammar = compiler->grammar;
    if (!room_for_states(compiler, 1))
        return SPRY_NO_STATE;
    grammar->states[grammar->n_states] = (spry_state){.first_edge = (uint32_t)compiler->n_edges,
                                                      .first_call = (uint32_t)compiler->n_calls,
                                                      .owner = owner,
                                                      .kind = (unsigned char)kind};
    return grammar->n_states++;
}

spry_status spry_compiler_append(spry_compiler *compiler, const spry_automaton *automaton, spry_state_kind kind,
                                 uint32_t owner, uint32_t *first)
{
    spry_grammar *grammar = compiler->grammar;
    uint32_t n = automaton->n_states, base = grammar->n_states;
    size_t n_edges = automaton->first_edge[n], n_calls = automaton->first_call[n];
    if (base + (size_t)n > SPRY_PROGRAM_STATES_MAX)
        return spry_fail(compiler->error, SPRY_ERR_INPUT, "the grammar needs more than %d states",
                         SPRY_PROGRAM_STATES_MAX);
    *compiler->ir->spent += STATE_WORK * (uint64_t)n + 2 * n_edges;
    if (!room_for_states(compiler, n) ||
        !spry_grow(&grammar->edges, &compiler->edges_room, compiler->n_edges + n_edges, sizeof *grammar->edges) ||
        !spry_grow(&grammar->calls, &compiler->calls_room, compiler->n_calls + n_calls, sizeof *grammar->calls))
        return spry_fail_memory(compiler->error, "a grammar's states", n * sizeof *grammar->states);
    for (uint32_t i = 0; i < n; i++) {
        bool goes_on = automaton->first_edge[i] < automaton->first_edge[i + 1] ||
                       automaton->first_call[i] < automaton->first_call[i + 1];
        grammar->states[base + i] = (spry_state){.first_edge = (uint32_t)compiler->n_edges + automaton->first_edge[i],
                                                 .first_call = (uint32_t)compiler->n_calls + automaton->first_call[i],
                                                 .tag = automaton->tags[i],
                                                 .owner = owner,
                                                 .kind = (unsigned char)kind,
                                                 .last = automaton->tags[i] && !goes_on,
                                                 .deterministic = automaton->deterministic};
    }
    for (size_t i = 0; i < n_edges; i++) {
        grammar->edges[compiler->n_edges + i] = automaton->edges[i];
        grammar->edges[compiler->n_edges + i].target += base;
    }
    for (size_t i = 0; i < n_calls; i++)
        grammar->calls[compiler->n_calls + i] =
            (spry_call){automaton->calls[i].callee, automaton->calls[i].target + base};
    compiler->n_edges += n_edges;
    compiler->n_calls += n_calls;
    grammar->n_states += n;
    *first = base;
    return SPRY_OK;
}

spry_status spry_compiler_failed(spry_compiler *compiler, spry_automaton_result result, spry_view name)
{
    if (result == SPRY_AUTOMATON_NO_MEMORY)
        return spry_fail_memory(compiler->error, "a grammar's states", SPRY_MACHINE_NFA_MAX);
    if (*compiler->ir->spent >= SPRY_AUTOMATON_WORK_MAX)
        return spry_fail(compiler->error, SPRY_ERR_UNSUPPORTED, "%s", SPRY_IR_TOO_MUCH_WORK);
    const char *what = name.size ? "the rule '" : "the grammar", *end = name.size ? "'" : "";
    return spry_fail(compiler->error, SPRY_ERR_INPUT, "%s%.*s%s needs more than %d states; make it simpler", what,
                     SPRY_VIEW_ARG(name), end, SPRY_MACHINE_NFA_MAX);
}

/* ---- machines ---------------------------------------------------------------------------------------------------- */

/* Deterministic if its size stays proportional to the source; otherwise nondeterministic. */
static spry_automaton_result make_automaton(spry_automaton *out, const spry_nfa *nfa)
{
    spry_automaton_result result = spry_automaton_make(out, nfa, 4096 + 4 * nfa->n_states);
    bool large = result == SPRY_AUTOMATON_TOO_LARGE && !nfa->result && *nfa->spent < SPRY_AUTOMATON_WORK_MAX;
    return large ? spry_automaton_without_silent(out, nfa) : result;
}

void spry_compiler_digest(spry_machine *machine, const spry_automaton *automaton, uint64_t seed)
{
    uint32_t n = automaton->n_states;
    uint64_t *digest = machine->digest;
    if (automaton->first_call[n])
        return;
    digest[0] = seed;
    digest[1] = seed + 1;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t state = (uint64_t)automaton->tags[i] << 32 | automaton->first_edge[i + 1];
        for (unsigned k = 0; k < 2; k++)
            digest[k] = spry_hash_bytes(&state, sizeof state, digest[k]);
    }
    for (uint32_t i = 0; i < automaton->first_edge[n]; i++) {
        spry_edge edge = automaton->edges[i];
        uint64_t word = (uint64_t)edge.target << 16 | (uint64_t)edge.first << 8 | edge.last;
        for (unsigned k = 0; k < 2; k++)
            digest[k] = spry_hash_bytes(&word, sizeof word, digest[k]);
    }
    digest[0] |= 1;
}

static spry_status compile_plain(spry_compiler *compiler, spry_ir_node node, uint32_t machine)
{
    spry_nfa nfa;
    spry_nfa_init(&nfa, SPRY_MACHINE_NFA_MAX);
    nfa.spent = compiler->ir->spent;
    spry_ir_nfa build = {&nfa, compiler->ir, &compiler->facts, find_callee, compiler};
    uint32_t from = spry_nfa_state_add(&nfa), to = spry_nfa_state_add(&nfa), first = 0;
    if (!nfa.result)
        nfa.states[to].tag = 1;
    spry_ir_nfa_write(&build, node, from, to, true);
    spry_automaton automaton = {0};
    spry_automaton_result result = make_automaton(&automaton, &nfa);
    spry_status status = SPRY_OK;
    if (result)
        status = spry_compiler_failed(compiler, result, compiler->grammar->machines[machine].name);
    else
        status = spry_compiler_append(compiler, &automaton, SPRY_STATE_PLAIN, machine, &first);
    spry_machine *made = &compiler->grammar->machines[machine];
    made->kind = SPRY_MACHINE_PLAIN;
    made->index = first;
    made->n_states = automaton.n_states;
    if (!status)
        spry_compiler_digest(made, &automaton, 1);
    spry_automaton_deinit(&automaton);
    spry_nfa_deinit(&nfa);
    return status;
}

static spry_status compile_counter(spry_compiler *compiler, spry_ir_node node, uint32_t machine)
{
    spry_grammar *grammar = compiler->grammar;
    const spry_ir_entry *entry = &compiler->ir->nodes[node];
    spry_counter counter = {.min = entry->b, .max = entry->c};
    counter.body = spry_compiler_machine(compiler, entry->a);
    counter.return_state = spry_compiler_return_state(compiler, SPRY_STATE_COUNT, grammar->n_counters);
    if (counter.body == SPRY_NO_STATE || counter.return_state == SPRY_NO_STATE ||
        !spry_grow(&grammar->counters, &compiler->counters_room, grammar->n_counters + 1, sizeof *grammar->counters))
        return spry_fail_memory(compiler->error, "a grammar's counters", sizeof counter);
    if (grammar->machines[counter.body].nullable)
        counter.min = 0;
    grammar->machines[machine].kind = SPRY_MACHINE_COUNTER;
    grammar->machines[machine].index = grammar->n_counters;
    grammar->counters[grammar->n_counters++] = counter;
    return SPRY_OK;
}

static spry_status compile_machine(spry_compiler *compiler, uint32_t machine)
{
    spry_ir_node node = compiler->node_of[machine];
    const spry_ir_entry *entry = &compiler->ir->nodes[node];
    if (entry->kind == SPRY_IR_MEMBERS) {
        uint32_t index = 0;
        spry_status status = spry_compiler_object(compiler, node, &index);
        compiler->grammar->machines[machine].kind = SPRY_MACHINE_OBJECT;
        compiler->grammar->machines[machine].index = index;
        return status;
    }
    if (entry->kind == SPRY_IR_LIMITED)
        return spry_compiler_limited(compiler, node, machine);
    if (entry->kind == SPRY_IR_REPEAT && compiler->facts.flags[node] & SPRY_FACT_CALLED)
        return compile_counter(compiler, node, machine);
    return compile_plain(compiler, node, machine);
}

/* ---- the order of machines --------------------------------------------------------------------------------------- */

/* The `index`-th machine that `machine` may begin with; SPRY_NO_STATE after the last. */
static uint32_t beginning(const spry_grammar *grammar, uint32_t machine, uint32_t index)
{
    const spry_machine *made = &grammar->machines[machine];
    if (made->kind == SPRY_MACHINE_COUNTER)
        return index == 0 ? grammar->counters[made->index].body : SPRY_NO_STATE;
    if (made->kind == SPRY_MACHINE_OBJECT) {
        const spry_object *object = &grammar->objects[made->index];
        return index < object->n_many ? grammar->many[object->first_many + index].key : SPRY_NO_STATE;
    }
    const spry_state *state = &grammar->states[made->index];
    return index < state[1].first_call - state->first_call ? grammar->calls[state->first_call + index].callee
                                                           : SPRY_NO_STATE;
}

typedef struct step {
    uint32_t machine, next;
} step;

enum { UNSEEN, OPEN, DONE };

static spry_status left_recursion(const spry_grammar *grammar, const step *path, size_t depth, uint32_t machine,
                                  spry_error *error)
{
    spry_view name = grammar->machines[machine].name;
    for (size_t i = depth; i > 0 && !name.size; i--)
        name = grammar->machines[path[i - 1].machine].name;
    return spry_fail(error, SPRY_ERR_INPUT,
                     "the rule '%.*s' reaches itself before any character (left recursion); write it as a repetition",
                     SPRY_VIEW_ARG(name));
}

/* Fills `order` from its end: a machine is placed after all machines it may begin with. */
static spry_status place(spry_grammar *grammar, step *path, unsigned char *seen, uint32_t machine, uint32_t *left,
                         spry_error *error)
{
    size_t depth = 0;
    path[depth++] = (step){machine, 0};
    seen[machine] = OPEN;
    while (depth) {
        step *top = &path[depth - 1];
        uint32_t next = beginning(grammar, top->machine, top->next++);
        if (next == SPRY_NO_STATE) {
            seen[top->machine] = DONE;
            grammar->order[--*left] = top->machine;
            grammar->rank[top->machine] = *left;
            depth--;
        } else if (seen[next] == OPEN) {
            return left_recursion(grammar, path, depth, next, error);
        } else if (seen[next] == UNSEEN) {
            seen[next] = OPEN;
            path[depth++] = (step){next, 0};
        }
    }
    return SPRY_OK;
}

static spry_status order_machines(spry_grammar *grammar, spry_error *error)
{
    size_t n = grammar->n_machines;
    step *path = malloc(n * sizeof *path);
    unsigned char *seen = calloc(n, 1);
    grammar->order = malloc(n * sizeof *grammar->order);
    grammar->rank = malloc(n * sizeof *grammar->rank);
    spry_status status = SPRY_OK;
    if (!path || !seen || !grammar->order || !grammar->rank)
        status = spry_fail_memory(error, "a grammar's rules", n * 16);
    uint32_t left = (uint32_t)n;
    for (uint32_t i = 0; i < n && !status; i++)
        if (seen[i] == UNSEEN)
            status = place(grammar, path, seen, i, &left, error);
    free(path);
    free(seen);
    return status;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

/* Whether the rounds of a counter are unambiguous (see spry_counter.simple). */
static bool is_simple(const spry_grammar *grammar, const spry_counter *counter)
{
    const spry_machine *body = &grammar->machines[counter->body];
    if (body->kind != SPRY_MACHINE_PLAIN || body->nullable || !body->digest[0] || body->n_states > SIMPLE_STATES_MAX)
        return false;
    for (uint32_t i = 0; i < body->n_states; i++) {
        const spry_state *state = &grammar->states[body->index + i];
        if (!state->deterministic || (state->tag && !state->last))
            return false;
    }
    return true;
}

static void mark_simple_counters(spry_grammar *grammar)
{
    for (uint32_t i = 0; i < grammar->n_counters; i++) {
        spry_counter *counter = &grammar->counters[i];
        counter->simple = is_simple(grammar, counter);
        if (counter->simple)
            grammar->machines[counter->body].counted = true;
    }
}

static spry_status compile_all(spry_compiler *compiler, spry_ir_node root)
{
    spry_grammar *grammar = compiler->grammar;
    if (!(compiler->facts.flags[root] & SPRY_FACT_PRODUCTIVE))
        return spry_fail(compiler->error, SPRY_ERR_INPUT, "no text at all can match the grammar");
    compiler->machine_of = calloc(compiler->ir->n_nodes, sizeof *compiler->machine_of);
    compiler->limited_of = calloc(compiler->ir->n_automata + 1, sizeof *compiler->limited_of);
    if (!compiler->machine_of || !compiler->limited_of ||
        spry_compiler_return_state(compiler, SPRY_STATE_END, 0) == SPRY_NO_STATE)
        return spry_fail_memory(compiler->error, "a grammar", compiler->ir->n_nodes * sizeof *compiler->machine_of);
    grammar->root = spry_compiler_machine(compiler, root);
    if (grammar->root == SPRY_NO_STATE)
        return spry_fail_memory(compiler->error, "a grammar", sizeof *grammar);
    for (uint32_t i = 0; i < grammar->n_machines; i++) {
        spry_status status = compile_machine(compiler, i);
        if (status)
            return status;
    }
    grammar->states[grammar->n_states] =
        (spry_state){.first_edge = (uint32_t)compiler->n_edges, .first_call = (uint32_t)compiler->n_calls};
    mark_simple_counters(grammar);
    spry_status status = order_machines(grammar, compiler->error);
    return status ? status : spry_shortest_find(grammar, compiler->error);
}

spry_status spry_grammar_from_ir(spry_grammar **out, spry_ir *ir, spry_ir_node root, spry_error *error)
{
    *out = NULL;
    spry_status status = spry_ir_status(ir, error);
    if (status)
        return status;
    spry_compiler compiler = {.ir = ir, .error = error};
    compiler.grammar = calloc(1, sizeof *compiler.grammar);
    if (!compiler.grammar)
        return spry_fail_memory(error, "a grammar", sizeof *compiler.grammar);
    atomic_init(&compiler.grammar->references, 1);
    spry_arena_init(&compiler.grammar->arena);
    pthread_mutex_init(&compiler.grammar->lock, NULL);
    status = spry_ir_facts_init(&compiler.facts, ir, root, error);
    if (!status &&
        !(compiler.grammar->warnings = spry_arena_copy(&compiler.grammar->arena, spry_buffer_view(&ir->warnings))))
        status = spry_fail_memory(error, "a grammar", ir->warnings.size);
    if (!status)
        status = compile_all(&compiler, root);
    spry_ir_facts_deinit(&compiler.facts);
    free(compiler.machine_of);
    free(compiler.limited_of);
    free(compiler.node_of);
    if (status) {
        spry_grammar_unref(compiler.grammar);
        return status;
    }
    *out = compiler.grammar;
    return SPRY_OK;
}

const char *spry_grammar_warnings(const spry_grammar *grammar)
{
    return grammar->warnings;
}

spry_grammar *spry_grammar_ref(spry_grammar *grammar)
{
    atomic_fetch_add(&grammar->references, 1);
    return grammar;
}

void spry_grammar_unref(spry_grammar *grammar)
{
    if (!grammar || atomic_fetch_sub(&grammar->references, 1) != 1)
        return;
    spry_mask_stores_destroy(grammar->stores);
    pthread_mutex_destroy(&grammar->lock);
    free(grammar->states);
    free(grammar->edges);
    free(grammar->calls);
    free(grammar->machines);
    free(grammar->order);
    free(grammar->rank);
    free(grammar->objects);
    free(grammar->many);
    free(grammar->counters);
    for (uint32_t i = 0; i < grammar->n_limits; i++)
        spry_unit_ways_deinit(&grammar->limits[i].ways);
    free(grammar->limits);
    free(grammar->reach);
    free(grammar->to_end);
    spry_arena_deinit(&grammar->arena);
    free(grammar);
}
