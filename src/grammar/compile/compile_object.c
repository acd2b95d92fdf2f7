/* Compiles the members of an object to a machine: one automaton matches all declared keys, and its tag identifies the
 * key. Each of its states stores the set of keys it can still reach, so that a state is dropped as soon as all of those
 * keys have been seen. */
#include "base/map.h"
#include "grammar/compile/grammar_compiler.h"
#include "grammar/ir/grow.h"

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
        return spry_compiler_failed(compiler, result, SPRY_VIEW(""));
    return SPRY_OK;
}

/* For each state the keys it can reach: the union over its targets, iterated until nothing changes. States are numbered
 * breadth first, so one pass from last to first does nearly all of the work. */
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
        status = sets ? spry_compiler_append(compiler, &keys, SPRY_STATE_KEY, compiler->grammar->n_objects,
                                             &object->key_start)
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
    many.key = spry_compiler_machine(compiler, member->key);
    many.value = spry_compiler_machine(compiler, member->value);
    many.return_state = spry_compiler_return_state(compiler, SPRY_STATE_MANY, grammar->n_many);
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
    object->values[index] = spry_compiler_machine(compiler, member->value);
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

spry_status spry_compiler_object(spry_compiler *compiler, spry_ir_node node, uint32_t *index)
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
    object.keys_state = spry_compiler_return_state(compiler, SPRY_STATE_KEYS, *index);
    object.after_value = spry_compiler_return_state(compiler, SPRY_STATE_AFTER_VALUE, *index);
    object.after_comma = spry_compiler_return_state(compiler, SPRY_STATE_AFTER_COMMA, *index);
    if (compiler->facts.flags[from->comma] & SPRY_FACT_PRODUCTIVE)
        object.comma = spry_compiler_machine(compiler, from->comma);
    else if (object.max > 1)
        object.max = 1;
    if (object.after_comma == SPRY_NO_STATE ||
        !spry_grow(&grammar->objects, &compiler->objects_room, *index + 1, sizeof *grammar->objects))
        return spry_fail_memory(compiler->error, "an object's members", sizeof object);
    grammar->objects[grammar->n_objects++] = object;
    return SPRY_OK;
}
