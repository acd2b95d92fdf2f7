/* Compiles grammar nodes: decides which nodes become machines (automata that can be called), builds their automata, and
 * orders the machines by which other machines they may begin with. */
#include <jansson.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/map.h"
#include "grammar/automaton/ir_automaton.h"
#include "grammar/compile/program.h"
#include "grammar/complete/shortest.h"
#include "grammar/grammar.h"
#include "grammar/ir/grow.h"

/* Compiles a grammar: machines are built one after the other, each with the numbers of the machines it calls. */

typedef struct spry_compiler {
    const spry_ir *ir;
    spry_ir_facts facts;
    spry_grammar *grammar;
    uint32_t *machine_of;  /* [n_nodes] number of a node's machine, + 1 */
    uint32_t *limited_of;  /* [n_automata] number + 1 of the machine that has the states of a limited text */
    spry_ir_node *node_of; /* [n_machines] */
    size_t node_of_room;
    size_t states_room, edges_room, calls_room, machines_room, objects_room, many_room, counters_room, limits_room,
        reach_room;
    size_t n_edges, n_calls, n_reach;
    spry_error *error;
} spry_compiler;

enum {
    SPRY_PROGRAM_STATES_MAX = 1 << 22,
    SPRY_MACHINE_NFA_MAX = 1 << 21, /* states of one machine before it is determinised */
};

/* The machine of a node. A new one gets its number here and is built later. SPRY_NO_STATE when memory is short. */
static uint32_t compiler_machine(spry_compiler *compiler, spry_ir_node node);

/* Builds the machine of a limited node (a text with a limited number of units). */
static spry_status compiler_limited(spry_compiler *compiler, spry_ir_node node, uint32_t machine);

/* Creates the object of a members node. */
static spry_status compiler_object(spry_compiler *compiler, spry_ir_node node, uint32_t *index);

/* ---- machines ---------------------------------------------------------------------------------------------------- */

enum { SIMPLE_STATES_MAX = 1024, STATE_WORK = 16 };

static bool find_callee(void *user, spry_ir_node node, uint32_t *callee)
{
    *callee = compiler_machine(user, node);
    return *callee != SPRY_NO_STATE;
}

static spry_view rule_name(const spry_ir *ir, spry_ir_node node)
{
    return ir->nodes[node].kind == SPRY_IR_RULE ? ir->rules[ir->nodes[node].a].name : SPRY_VIEW("");
}

static uint32_t compiler_machine(spry_compiler *compiler, spry_ir_node node)
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

/* Adds a return state; SPRY_NO_STATE on failure. */
static uint32_t compiler_return_state(spry_compiler *compiler, spry_state_kind kind, uint32_t owner)
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

/* Appends the states of an automaton. *first becomes the number of its first state. */
static spry_status compiler_append(spry_compiler *compiler, const spry_automaton *automaton, spry_state_kind kind,
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

/* The error for an automaton that could not be built. */
static spry_status compiler_failed(spry_compiler *compiler, spry_automaton_result result, spry_view name)
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

/* Makes an automaton deterministic if its size stays proportional to the source; otherwise it stays
 * nondeterministic. */
static spry_automaton_result make_automaton(spry_automaton *out, const spry_nfa *nfa)
{
    spry_automaton_result result = spry_automaton_make(out, nfa, 4096 + 4 * nfa->n_states);
    bool large = result == SPRY_AUTOMATON_TOO_LARGE && !nfa->result && *nfa->spent < SPRY_AUTOMATON_WORK_MAX;
    return large ? spry_automaton_without_silent(out, nfa) : result;
}

/* Sets the digest of a machine to a digest of its automaton, unless the automaton calls other machines. */
static void compiler_digest(spry_machine *machine, const spry_automaton *automaton, uint64_t seed)
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
        status = compiler_failed(compiler, result, compiler->grammar->machines[machine].name);
    else
        status = compiler_append(compiler, &automaton, SPRY_STATE_PLAIN, machine, &first);
    spry_machine *made = &compiler->grammar->machines[machine];
    made->kind = SPRY_MACHINE_PLAIN;
    made->index = first;
    made->n_states = automaton.n_states;
    if (!status)
        compiler_digest(made, &automaton, 1);
    spry_automaton_deinit(&automaton);
    spry_nfa_deinit(&nfa);
    return status;
}

static spry_status compile_counter(spry_compiler *compiler, spry_ir_node node, uint32_t machine)
{
    spry_grammar *grammar = compiler->grammar;
    const spry_ir_entry *entry = &compiler->ir->nodes[node];
    spry_counter counter = {.min = entry->b, .max = entry->c};
    counter.body = compiler_machine(compiler, entry->a);
    counter.return_state = compiler_return_state(compiler, SPRY_STATE_COUNT, grammar->n_counters);
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
        spry_status status = compiler_object(compiler, node, &index);
        compiler->grammar->machines[machine].kind = SPRY_MACHINE_OBJECT;
        compiler->grammar->machines[machine].index = index;
        return status;
    }
    if (entry->kind == SPRY_IR_LIMITED)
        return compiler_limited(compiler, node, machine);
    if (entry->kind == SPRY_IR_REPEAT && compiler->facts.flags[node] & SPRY_FACT_CALLED)
        return compile_counter(compiler, node, machine);
    return compile_plain(compiler, node, machine);
}

/* ---- the order of machines --------------------------------------------------------------------------------------- */

/* The machine with index `index` among those that `machine` may begin with; SPRY_NO_STATE after the last. */
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

/* ---- complete grammars ------------------------------------------------------------------------------------------- */

/* True if the rounds of a counter are unambiguous (see spry_counter.simple). */
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
        compiler_return_state(compiler, SPRY_STATE_END, 0) == SPRY_NO_STATE)
        return spry_fail_memory(compiler->error, "a grammar", compiler->ir->n_nodes * sizeof *compiler->machine_of);
    grammar->root = compiler_machine(compiler, root);
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

/* ---- texts with a limited number of units ------------------------------------------------------------------------ */

/* Adds the states of a limited text; all limits of that text share them. */
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
    compiler_digest(made, automaton, SPRY_STATE_LIMITED);
    return compiler_append(compiler, automaton, SPRY_STATE_LIMITED, machine, &made->index);
}

static spry_status compiler_limited(spry_compiler *compiler, spry_ir_node node, uint32_t machine)
{
    spry_grammar *grammar = compiler->grammar;
    const spry_ir_entry *entry = &compiler->ir->nodes[node];
    spry_status status = find_states(compiler, entry->a, machine);
    if (status)
        return status;
    spry_limit limit = {.min = entry->b, .max = entry->c, .first_state = grammar->machines[machine].index};
    limit.return_state = compiler_return_state(compiler, SPRY_STATE_LIMIT, grammar->n_limits);
    if (limit.return_state == SPRY_NO_STATE ||
        !spry_grow(&grammar->limits, &compiler->limits_room, grammar->n_limits + 1, sizeof *grammar->limits))
        return spry_fail_memory(compiler->error, "a grammar's limits", sizeof limit);
    spry_automaton_result result = spry_unit_ways_find(&limit.ways, &compiler->ir->automata[entry->a],
                                                       limit.min ? limit.min : 1, compiler->ir->spent);
    if (result)
        return compiler_failed(compiler, result, SPRY_VIEW(""));
    limit.extends = spry_unit_ways_extend(&limit.ways);
    for (uint32_t i = 0; i < limit.ways.n_states; i++)
        if (limit.ways.units[i] != SPRY_NO_WAY && limit.ways.units[i] > limit.farthest)
            limit.farthest = limit.ways.units[i];
    grammar->limits[grammar->n_limits++] = limit;
    return SPRY_OK;
}

/* ---- objects ----------------------------------------------------------------------------------------------------- */

/* Compiles the members of an object to a machine: one automaton matches all declared keys, and its tag identifies the
 * key. Each of its states stores the set of keys that it can still reach, so that the matcher drops a state as soon as
 * all of those keys have been seen. */

enum { REACH_WORDS_MAX = 1 << 23 };

static bool is_possible(const spry_compiler *compiler, const spry_ir_member *member)
{
    const unsigned char *flags = compiler->facts.flags;
    return flags[member->key] & SPRY_FACT_PRODUCTIVE && flags[member->value] & SPRY_FACT_PRODUCTIVE;
}

static spry_status make_keys(spry_compiler *compiler, const spry_ir_object *from, spry_automaton *out)
{
    spry_nfa nfa;
    spry_nfa_init(&nfa, SPRY_MACHINE_NFA_MAX);
    nfa.spent = compiler->ir->spent;
    spry_ir_nfa build = {.nfa = &nfa, .ir = compiler->ir};
    uint32_t start = spry_nfa_state_add(&nfa), tag = 0;
    for (uint32_t i = 0; i < from->count && !nfa.result; i++) {
        const spry_ir_member *member = &compiler->ir->members[from->first + i];
        if (member->many || !is_possible(compiler, member))
            continue;
        uint32_t end = spry_nfa_state_add(&nfa);
        if (!nfa.result)
            nfa.states[end].tag = ++tag;
        spry_ir_nfa_write(&build, member->key, start, end, true);
    }
    /* Different keys end in states with different tags, so minimising would merge nearly nothing. */
    spry_automaton_result result = spry_automaton_determinize(out, &nfa, 4096 + 4 * nfa.n_states);
    spry_nfa_deinit(&nfa);
    if (result)
        return compiler_failed(compiler, result, SPRY_VIEW(""));
    return SPRY_OK;
}

/* Finds the keys that each state can reach: the union over its targets, iterated until nothing changes. States are
 * numbered breadth first, so one pass from the last state to the first does nearly all of the work. */
static void spread_reach(uint64_t *sets, const spry_automaton *keys, uint32_t n_words)
{
    for (uint32_t i = 0; i < keys->n_states; i++)
        if (keys->tags[i])
            sets[(size_t)i * n_words + (keys->tags[i] - 1) / 64] |= (uint64_t)1 << (keys->tags[i] - 1) % 64;
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = keys->n_states; i-- > 0;) {
            for (uint32_t j = keys->first_edge[i]; j < keys->first_edge[i + 1]; j++) {
                const uint64_t *more = sets + (size_t)keys->edges[j].target * n_words;
                for (uint32_t k = 0; k < n_words; k++) {
                    uint64_t joined = sets[(size_t)i * n_words + k] | more[k];
                    changed |= joined != sets[(size_t)i * n_words + k];
                    sets[(size_t)i * n_words + k] = joined;
                }
            }
        }
    }
}

/* Stores equal sets once. */
static spry_status intern_reach(spry_compiler *compiler, spry_object *object, const uint64_t *sets, uint32_t n_states)
{
    spry_grammar *grammar = compiler->grammar;
    size_t bytes = object->n_words * sizeof *sets;
    spry_map map;
    spry_map_init(&map);
    bool ok = spry_grow(&grammar->reach, &compiler->reach_room, compiler->n_reach + n_states, sizeof *grammar->reach);
    object->first_reach = (uint32_t)compiler->n_reach;
    for (uint32_t i = 0; i < n_states && ok; i++) {
        bool added;
        spry_view key = {(const char *)(sets + (size_t)i * object->n_words), bytes};
        uint32_t number = (uint32_t)map.count;
        ok = spry_map_add(&map, key, number, &added) && spry_map_find(&map, key, &number);
        grammar->reach[compiler->n_reach++] = number;
    }
    object->reach_words = ok ? spry_arena_alloc(&grammar->arena, map.count, bytes) : NULL;
    for (uint32_t i = 0; i < n_states && object->reach_words; i++)
        memcpy(object->reach_words + (size_t)grammar->reach[object->first_reach + i] * object->n_words,
               sets + (size_t)i * object->n_words, bytes);
    spry_map_deinit(&map);
    return object->reach_words ? SPRY_OK : spry_fail_memory(compiler->error, "an object's keys", n_states * bytes);
}

static spry_status compile_keys(spry_compiler *compiler, const spry_ir_object *from, spry_object *object)
{
    spry_automaton keys;
    uint64_t *sets = NULL;
    spry_status status = make_keys(compiler, from, &keys);
    if (!status && (size_t)keys.n_states * object->n_words > REACH_WORDS_MAX)
        status = spry_fail(compiler->error, SPRY_ERR_INPUT, "the %u keys of an object are too long together",
                           object->n_declared);
    if (!status && keys.tags[0])
        status = spry_fail(compiler->error, SPRY_ERR_INPUT, "a key of an object matches the empty text");
    if (!status) {
        sets = calloc((size_t)keys.n_states * object->n_words, sizeof *sets);
        status =
            sets ? compiler_append(compiler, &keys, SPRY_STATE_KEY, compiler->grammar->n_objects, &object->key_start)
                 : spry_fail_memory(compiler->error, "an object's keys", keys.n_states * sizeof *sets);
    }
    if (!status) {
        object->n_key_states = keys.n_states;
        *compiler->ir->spent += (uint64_t)keys.n_states * object->n_words * 2;
        spread_reach(sets, &keys, object->n_words);
        status = intern_reach(compiler, object, sets, keys.n_states);
    }
    free(sets);
    spry_automaton_deinit(&keys);
    return status;
}

static spry_status add_many(spry_compiler *compiler, const spry_ir_member *member, spry_object *object)
{
    spry_grammar *grammar = compiler->grammar;
    if (member->required)
        return spry_fail(compiler->error, SPRY_ERR_INPUT, "a member that may come often cannot be required");
    if (compiler->facts.flags[member->key] & SPRY_FACT_NULLABLE)
        return spry_fail(compiler->error, SPRY_ERR_INPUT, "a key of an object matches the empty text");
    spry_many_member many = {.object = grammar->n_objects};
    many.key = compiler_machine(compiler, member->key);
    many.value = compiler_machine(compiler, member->value);
    many.return_state = compiler_return_state(compiler, SPRY_STATE_MANY, grammar->n_many);
    if (many.key == SPRY_NO_STATE || many.value == SPRY_NO_STATE || many.return_state == SPRY_NO_STATE ||
        !spry_grow(&grammar->many, &compiler->many_room, grammar->n_many + 1, sizeof *grammar->many))
        return spry_fail_memory(compiler->error, "an object's members", sizeof many);
    grammar->many[grammar->n_many++] = many;
    object->n_many++;
    return SPRY_OK;
}

static spry_status add_declared(spry_compiler *compiler, const spry_ir_member *member, spry_object *object)
{
    uint32_t index = object->n_declared++;
    object->values[index] = compiler_machine(compiler, member->value);
    if (object->values[index] == SPRY_NO_STATE)
        return spry_fail_memory(compiler->error, "an object's members", sizeof *member);
    if (member->required) {
        object->required[index / 64] |= (uint64_t)1 << index % 64;
        object->n_required++;
    }
    return SPRY_OK;
}

static spry_status add_members(spry_compiler *compiler, const spry_ir_object *from, spry_object *object)
{
    spry_grammar *grammar = compiler->grammar;
    object->n_words = (from->count + 63) / 64 + !from->count;
    object->values = spry_arena_alloc(&grammar->arena, from->count + 1, sizeof *object->values);
    object->required = spry_arena_alloc(&grammar->arena, object->n_words, sizeof *object->required);
    if (!object->values || !object->required)
        return spry_fail_memory(compiler->error, "an object's members", from->count * sizeof *object->values);
    object->first_many = grammar->n_many;
    spry_status status = SPRY_OK;
    for (uint32_t i = 0; i < from->count && !status; i++) {
        const spry_ir_member *member = &compiler->ir->members[from->first + i];
        if (is_possible(compiler, member))
            status = member->many ? add_many(compiler, member, object) : add_declared(compiler, member, object);
    }
    return status;
}

static spry_status compiler_object(spry_compiler *compiler, spry_ir_node node, uint32_t *index)
{
    spry_grammar *grammar = compiler->grammar;
    const spry_ir_object *from = &compiler->ir->objects[compiler->ir->nodes[node].a];
    spry_object object = {.key_start = SPRY_NO_STATE,
                          .comma = SPRY_NO_STATE,
                          .min = from->min,
                          .max = from->max,
                          .ordered = from->ordered};
    spry_status status = add_members(compiler, from, &object);
    if (!status && object.n_declared)
        status = compile_keys(compiler, from, &object);
    if (status)
        return status;
    *index = grammar->n_objects;
    object.keys_state = compiler_return_state(compiler, SPRY_STATE_KEYS, *index);
    object.after_value = compiler_return_state(compiler, SPRY_STATE_AFTER_VALUE, *index);
    object.after_comma = compiler_return_state(compiler, SPRY_STATE_AFTER_COMMA, *index);
    if (compiler->facts.flags[from->comma] & SPRY_FACT_PRODUCTIVE)
        object.comma = compiler_machine(compiler, from->comma);
    else if (object.max > 1)
        object.max = 1;
    if (object.after_comma == SPRY_NO_STATE ||
        !spry_grow(&grammar->objects, &compiler->objects_room, *index + 1, sizeof *grammar->objects))
        return spry_fail_memory(compiler->error, "an object's members", sizeof object);
    grammar->objects[grammar->n_objects++] = object;
    return SPRY_OK;
}

/* ---- from source text -------------------------------------------------------------------------------------------- */

enum { SOURCE_BYTES_MAX = 1 << 24 };

bool spry_grammar_kind_of(spry_grammar_kind *kind, spry_constraint constraint)
{
    static const spry_grammar_kind kinds[] = {[SPRY_GBNF] = SPRY_GRAMMAR_GBNF,
                                              [SPRY_JSON_SCHEMA] = SPRY_GRAMMAR_JSON_SCHEMA,
                                              [SPRY_REGEX] = SPRY_GRAMMAR_REGEX,
                                              [SPRY_CHOICE] = SPRY_GRAMMAR_CHOICE,
                                              [SPRY_JSON_OBJECT] = SPRY_GRAMMAR_JSON_OBJECT,
                                              [SPRY_TOOL_CALLS] = SPRY_GRAMMAR_TOOL_CALLS};
    if (constraint == SPRY_ANY_TEXT || (size_t)constraint >= SPRY_COUNT(kinds))
        return false;
    *kind = kinds[constraint];
    return true;
}

static spry_ir_node read_choice(spry_ir *ir, spry_view source)
{
    json_t *list = spry_json_value(source);
    if (!json_is_array(list) || json_array_size(list) == 0) {
        json_decref(list);
        return spry_ir_fail(ir, SPRY_ERR_INPUT, "a choice is a JSON array of at least one string");
    }
    size_t count = json_array_size(list);
    spry_ir_node *nodes = malloc(count * sizeof *nodes), node = SPRY_IR_NONE;
    if (!nodes)
        spry_ir_fail(ir, SPRY_ERR_MEMORY, "not enough memory for %zu choices", count);
    for (size_t i = 0; nodes && i < count; i++) {
        const json_t *item = json_array_get(list, i);
        if (!json_is_string(item))
            spry_ir_fail(ir, SPRY_ERR_INPUT, "item %zu of the choices is not a string", i + 1);
        nodes[i] = json_is_string(item)
                       ? spry_ir_literal(ir, (spry_view){json_string_value(item), json_string_length(item)})
                       : SPRY_IR_NONE;
    }
    if (!spry_ir_status(ir, NULL))
        node = spry_ir_choice(ir, nodes, count);
    free(nodes);
    json_decref(list);
    return node;
}

static spry_ir_node read_source(spry_ir *ir, spry_grammar_kind kind, spry_json_style style, spry_view source)
{
    switch (kind) {
    case SPRY_GRAMMAR_GBNF: return spry_ir_gbnf(ir, source);
    case SPRY_GRAMMAR_JSON_SCHEMA: return spry_ir_json_schema(ir, source, style);
    case SPRY_GRAMMAR_REGEX: return spry_ir_regex(ir, source, false);
    case SPRY_GRAMMAR_CHOICE: return read_choice(ir, source);
    case SPRY_GRAMMAR_JSON_OBJECT: return spry_ir_json_object(ir, style);
    case SPRY_GRAMMAR_TOOL_CALLS: return spry_ir_tool_calls(ir, source);
    }
    return spry_ir_fail(ir, SPRY_ERR_INPUT, "a grammar of an unknown kind");
}

spry_status spry_grammar_create(spry_grammar **out, spry_grammar_kind kind, spry_view source, spry_error *error)
{
    return spry_grammar_create_styled(out, kind, SPRY_JSON_ANY, source, error);
}

spry_status spry_grammar_create_styled(spry_grammar **out, spry_grammar_kind kind, spry_json_style style,
                                       spry_view source, spry_error *error)
{
    *out = NULL;
    if (source.size > SOURCE_BYTES_MAX)
        return spry_fail(error, SPRY_ERR_INPUT, "the grammar has %zu bytes; at most %d are taken", source.size,
                         SOURCE_BYTES_MAX);
    spry_ir *ir;
    spry_status status = spry_ir_create(&ir, error);
    if (status)
        return status;
    spry_ir_node root = read_source(ir, kind, style, source);
    status = spry_grammar_from_ir(out, ir, root, error);
    spry_ir_destroy(ir);
    return status;
}
