/* Shortest lengths by Dijkstra's algorithm: when a length is final, everything that depends on it is updated. Lengths
 * are small numbers, so there is one bucket per length.
 *
 * A node is a state, or n_states + the number of a machine. A length is never smaller than the lengths it depends on,
 * so each becomes final once. A call of a nullable machine is ignored: its state also has all the edges of the state
 * after the call. So each step of a shortest path is at least one byte long. */
#include "grammar/complete/shortest.h"

#include "grammar/ir/grow.h"

/* ---- members that an object still needs -------------------------------------------------------------------------- */

spry_record spry_record_empty(const spry_object *object)
{
    static const uint64_t none[SPRY_IR_MEMBERS_MAX / 64];
    return (spry_record){object, 0, object->n_required, none};
}

uint32_t spry_member_length(const spry_grammar *grammar, const spry_object *object, uint32_t member)
{
    if (member < object->n_declared) {
        uint32_t end = object->key_ends[member], key = end == SPRY_NO_STATE ? SPRY_TOO_LONG : grammar->to_end[end];
        return spry_length_sum(key, grammar->lengths[object->values[member]]);
    }
    const spry_many_member *many = &grammar->many[object->first_many + member - object->n_declared];
    return spry_length_sum(grammar->lengths[many->key], grammar->lengths[many->value]);
}

static void push(spry_needed_list *list, spry_needed needed)
{
    if (!spry_grow(&list->items, &list->room, list->count + 1, sizeof *list->items))
        list->failed = true;
    else
        list->items[list->count++] = needed;
}

static void push_declared(spry_needed_list *list, const spry_grammar *grammar, const spry_record *record, uint32_t also,
                          bool required)
{
    const spry_object *object = record->object;
    uint32_t first = object->ordered && also != SPRY_NO_STATE ? also + 1 : 0;
    for (uint32_t i = first; i < object->n_declared && !list->failed; i++) {
        uint64_t bit = (uint64_t)1 << i % 64;
        if (i != also && !(record->seen[i / 64] & bit) && required == ((object->required[i / 64] & bit) != 0))
            push(list, (spry_needed){i, spry_member_length(grammar, object, i), 1});
    }
}

static int compare_lengths(const void *left, const void *right)
{
    const spry_needed *a = left, *b = right;
    if (a->length != b->length)
        return a->length > b->length ? 1 : -1;
    return (a->member > b->member) - (a->member < b->member);
}

static int compare_places(const void *left, const void *right)
{
    const spry_needed *a = left, *b = right;
    return (a->member > b->member) - (a->member < b->member);
}

/* Moves the `wanted` shortest items to the front, in order. Usually only one is wanted. */
static void sort_shortest(spry_needed *items, size_t count, size_t wanted)
{
    enum { FEW = 8 };
    if (wanted > FEW && count > 1)
        qsort(items, count, sizeof *items, compare_lengths);
    for (size_t i = 0; i < wanted && wanted <= FEW && i < count; i++) {
        size_t least = i;
        for (size_t k = i + 1; k < count; k++)
            if (compare_lengths(&items[k], &items[least]) < 0)
                least = k;
        spry_needed shortest = items[least];
        items[least] = items[i];
        items[i] = shortest;
    }
}

/* Adds list->extra members after the required ones. */
static void push_extra(spry_needed_list *list, const spry_grammar *grammar, const spry_record *record, uint32_t also)
{
    const spry_object *object = record->object;
    size_t first = list->count, kept = first;
    spry_needed often = {.length = SPRY_TOO_LONG, .times = list->extra};
    for (uint32_t i = object->n_declared; i < object->n_declared + object->n_many; i++) {
        uint32_t length = spry_member_length(grammar, object, i);
        if (length < often.length) {
            often.member = i;
            often.length = length;
        }
    }
    push_declared(list, grammar, record, also, false);
    if (list->count > first)
        sort_shortest(list->items + first, list->count - first, list->extra);
    while (kept < list->count && often.times && list->items[kept].length < often.length) {
        often.times--;
        kept++;
    }
    list->longest = kept > first ? list->items[kept - 1].length : 0;
    list->count = kept;
    if (!often.times)
        return;
    list->longest = often.length;
    push(list, often);
}

void spry_shortest_members(spry_needed_list *list, const spry_grammar *grammar, const spry_record *record,
                           uint32_t also, bool one_more)
{
    const spry_object *object = record->object;
    *list = (spry_needed_list){.items = list->items, .room = list->room, .failed = list->failed};
    push_declared(list, grammar, record, also, true);
    size_t least = record->count < object->min ? object->min - record->count : 0;
    if (!least && one_more)
        least = 1;
    list->extra = least > list->count ? (uint32_t)(least - list->count) : 0;
    if (list->extra)
        push_extra(list, grammar, record, also);
    if (list->extra && object->ordered)
        qsort(list->items, list->count, sizeof *list->items, compare_places);
    for (size_t i = 0; i < list->count; i++) {
        list->length = spry_length_sum(list->length, spry_length_times(list->items[i].length, list->items[i].times));
        list->n_members += list->items[i].times;
    }
}

uint32_t spry_needed_length(const spry_needed_list *list, const spry_grammar *grammar, const spry_object *object,
                            bool comma_first)
{
    uint32_t commas = list->n_members ? list->n_members - !comma_first : 0;
    uint32_t comma = object->comma == SPRY_NO_STATE ? SPRY_TOO_LONG : grammar->lengths[object->comma];
    return spry_length_sum(list->length, spry_length_times(comma, commas));
}

/* ---- lengths ----------------------------------------------------------------------------------------------------- */

/* A node whose length may depend on another one. */
typedef struct dependent {
    uint32_t node;
    uint32_t how; /* what it depends through: for a state the call, or NO_CALL for an edge; for an object 1 for a
                   * required member */
} dependent;

#define NO_CALL UINT32_MAX

typedef struct waiting_node {
    uint32_t node, next; /* next: index into `waiting`, + 1, of the next node in its bucket */
} waiting_node;

typedef struct search {
    const spry_grammar *grammar;
    uint32_t *lengths;     /* [n_nodes] shortest lengths */
    size_t *first;         /* [n_nodes + 2] index into `dependents` */
    dependent *dependents; /* NULL in the counting pass */
    uint32_t *required;    /* [n_objects] number of required members whose length is unknown */
    uint32_t *heads;       /* [SPRY_COMPLETION_MAX + 1] first of each bucket in `waiting`, + 1 */
    waiting_node *waiting;
    size_t n_waiting, waiting_room, n_taken;
    spry_needed_list members;
    bool failed; /* memory is short */
} search;

/* ---- dependencies between lengths -------------------------------------------------------------------------------- */

static void add_dependent(search *s, uint32_t of, uint32_t node, uint32_t how)
{
    if (s->dependents)
        s->dependents[s->first[of + 1]++] = (dependent){node, how};
    else
        s->first[of + 2]++;
}

static void note_state(search *s, uint32_t number)
{
    const spry_grammar *grammar = s->grammar;
    const spry_state *state = &grammar->states[number];
    for (uint32_t i = state->first_edge; i < state[1].first_edge; i++)
        add_dependent(s, grammar->edges[i].target, number, NO_CALL);
    for (uint32_t i = state->first_call; i < state[1].first_call; i++) {
        spry_call call = grammar->calls[i];
        if (grammar->machines[call.callee].nullable)
            continue;
        add_dependent(s, call.target, number, i);
        add_dependent(s, grammar->n_states + call.callee, number, i);
    }
}

static void note_object(search *s, const spry_object *object, uint32_t node)
{
    const spry_grammar *grammar = s->grammar;
    bool any = object->min > object->n_required;
    for (uint32_t i = 0; i < object->n_declared; i++) {
        bool required = object->required[i / 64] >> i % 64 & 1;
        if (required || any)
            add_dependent(s, grammar->n_states + object->values[i], node, required);
    }
    for (uint32_t i = 0; any && i < object->n_many; i++) {
        add_dependent(s, grammar->n_states + grammar->many[object->first_many + i].key, node, 0);
        add_dependent(s, grammar->n_states + grammar->many[object->first_many + i].value, node, 0);
    }
    if (object->comma != SPRY_NO_STATE)
        add_dependent(s, grammar->n_states + object->comma, node, 0);
}

static void note_all(search *s)
{
    const spry_grammar *grammar = s->grammar;
    for (uint32_t i = 0; i < grammar->n_states; i++)
        if (grammar->states[i].kind == SPRY_STATE_PLAIN)
            note_state(s, i);
    for (uint32_t i = 0; i < grammar->n_machines; i++) {
        const spry_machine *machine = &grammar->machines[i];
        uint32_t node = grammar->n_states + i;
        if (machine->kind == SPRY_MACHINE_PLAIN)
            add_dependent(s, machine->index, node, 0);
        else if (machine->kind == SPRY_MACHINE_COUNTER)
            add_dependent(s, grammar->n_states + grammar->counters[machine->index].body, node, 0);
        else if (machine->kind == SPRY_MACHINE_OBJECT)
            note_object(s, &grammar->objects[machine->index], node);
    }
}

static bool find_dependents(search *s)
{
    size_t n_nodes = (size_t)s->grammar->n_states + s->grammar->n_machines;
    s->first = calloc(n_nodes + 2, sizeof *s->first);
    if (!s->first)
        return false;
    note_all(s);
    for (size_t i = 0; i < n_nodes; i++)
        s->first[i + 2] += s->first[i + 1];
    s->dependents = malloc((s->first[n_nodes + 1] + 1) * sizeof *s->dependents);
    if (!s->dependents)
        return false;
    note_all(s);
    return true;
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

void spry_shortest_key_ways(const spry_grammar *grammar, const spry_object *object, uint32_t from, uint32_t *lengths,
                            uint32_t *before, uint32_t *queue)
{
    size_t n_queue = 0;
    for (uint32_t i = 0; i < object->n_key_states; i++)
        lengths[i] = SPRY_TOO_LONG;
    lengths[from - object->key_start] = 0;
    queue[n_queue++] = from;
    for (size_t i = 0; i < n_queue; i++) {
        const spry_state *state = &grammar->states[queue[i]];
        uint32_t next = spry_length_sum(lengths[queue[i] - object->key_start], 1);
        for (uint32_t j = state->first_edge; j < state[1].first_edge && next != SPRY_TOO_LONG; j++) {
            uint32_t target = grammar->edges[j].target;
            if (lengths[target - object->key_start] != SPRY_TOO_LONG)
                continue;
            lengths[target - object->key_start] = next;
            before[target - object->key_start] = queue[i];
            queue[n_queue++] = target;
        }
    }
}

static bool find_keys(spry_grammar *grammar, spry_object *object)
{
    if (!object->n_key_states)
        return true;
    uint32_t *queue = malloc(object->n_key_states * sizeof *queue), *lengths = grammar->to_end + object->key_start;
    object->key_before = spry_arena_alloc(&grammar->arena, object->n_key_states, sizeof *object->key_before);
    object->key_ends = spry_arena_alloc(&grammar->arena, object->n_declared, sizeof *object->key_ends);
    bool ok = queue && object->key_before && object->key_ends;
    if (ok)
        spry_shortest_key_ways(grammar, object, object->key_start, lengths, object->key_before, queue);
    for (uint32_t i = 0; i < object->n_declared && ok; i++)
        object->key_ends[i] = SPRY_NO_STATE;
    for (uint32_t i = 0; i < object->n_key_states && ok; i++) {
        uint32_t tag = grammar->states[object->key_start + i].tag;
        if (!tag)
            continue;
        uint32_t *end = &object->key_ends[tag - 1];
        if (*end == SPRY_NO_STATE || lengths[i] < grammar->to_end[*end])
            *end = object->key_start + i;
    }
    free(queue);
    return ok;
}

/* ---- the search -------------------------------------------------------------------------------------------------- */

static void improve(search *s, uint32_t node, uint32_t length)
{
    if (length >= s->lengths[node] || s->failed)
        return;
    s->lengths[node] = length;
    if (!spry_grow(&s->waiting, &s->waiting_room, s->n_waiting + 1, sizeof *s->waiting)) {
        s->failed = true;
        return;
    }
    s->waiting[s->n_waiting++] = (waiting_node){node, s->heads[length]};
    s->heads[length] = (uint32_t)s->n_waiting;
}

static void look_at_machine(search *s, uint32_t node, uint32_t how, uint32_t length)
{
    const spry_grammar *grammar = s->grammar;
    const spry_machine *machine = &grammar->machines[node - grammar->n_states];
    if (machine->kind == SPRY_MACHINE_PLAIN) {
        improve(s, node, length);
    } else if (machine->kind == SPRY_MACHINE_COUNTER) {
        improve(s, node, spry_length_times(length, grammar->counters[machine->index].min));
    } else {
        const spry_object *object = &grammar->objects[machine->index];
        s->required[machine->index] -= how;
        if (s->required[machine->index])
            return;
        spry_record none = spry_record_empty(object);
        spry_shortest_members(&s->members, grammar, &none, SPRY_NO_STATE, false);
        s->failed |= s->members.failed;
        improve(s, node, spry_needed_length(&s->members, grammar, object, false));
    }
}

static void finalize(search *s, uint32_t node, uint32_t length)
{
    const spry_grammar *grammar = s->grammar;
    for (size_t i = s->first[node]; i < s->first[node + 1] && !s->failed; i++) {
        dependent user = s->dependents[i];
        bool again = i + 1 < s->first[node + 1] && s->dependents[i + 1].node == user.node && !user.how;
        if (again && user.node >= grammar->n_states)
            continue; /* an object with several such members is handled once */
        if (user.node >= grammar->n_states) {
            look_at_machine(s, user.node, user.how, length);
        } else if (user.how == NO_CALL) {
            improve(s, user.node, spry_length_sum(length, 1));
        } else {
            spry_call call = grammar->calls[user.how];
            improve(s, user.node,
                    spry_length_sum(s->lengths[grammar->n_states + call.callee], s->lengths[call.target]));
        }
    }
}

/* Bytes of the shortest text of a limit. */
static uint32_t limited_length(const spry_limit *limit)
{
    uint32_t bytes = limit->ways.bytes[spry_limit_way(limit, limit->first_state, 0)];
    return bytes > SPRY_COMPLETION_MAX ? SPRY_TOO_LONG : bytes;
}

static void run(search *s)
{
    const spry_grammar *grammar = s->grammar;
    for (uint32_t i = 0; i < grammar->n_objects; i++)
        s->required[i] = grammar->objects[i].n_required;
    for (uint32_t i = 0; i < grammar->n_states; i++)
        if (grammar->states[i].kind == SPRY_STATE_PLAIN && grammar->states[i].tag)
            improve(s, i, 0);
    for (uint32_t i = 0; i < grammar->n_machines; i++) {
        const spry_machine *machine = &grammar->machines[i];
        if (machine->nullable)
            improve(s, grammar->n_states + i, 0);
        else if (machine->kind == SPRY_MACHINE_LIMITED)
            improve(s, grammar->n_states + i, limited_length(&grammar->limits[machine->limit]));
    }
    for (uint32_t length = 0; length <= SPRY_COMPLETION_MAX && s->n_taken < s->n_waiting; length++) {
        while (s->heads[length] && !s->failed) {
            waiting_node first = s->waiting[s->heads[length] - 1];
            s->heads[length] = first.next;
            s->n_taken++;
            if (s->lengths[first.node] == length)
                finalize(s, first.node, length);
        }
    }
}

spry_status spry_shortest_find(spry_grammar *grammar, spry_error *error)
{
    size_t n_nodes = (size_t)grammar->n_states + grammar->n_machines;
    search s = {.grammar = grammar};
    s.lengths = grammar->to_end = malloc(n_nodes * sizeof *grammar->to_end);
    s.required = calloc(grammar->n_objects + 1, sizeof *s.required);
    s.heads = calloc(SPRY_COMPLETION_MAX + 1, sizeof *s.heads);
    s.failed = !s.lengths || !s.required || !s.heads;
    for (size_t i = 0; i < n_nodes && !s.failed; i++)
        s.lengths[i] = SPRY_TOO_LONG;
    for (uint32_t i = 0; i < grammar->n_objects && !s.failed; i++)
        s.failed = !find_keys(grammar, &grammar->objects[i]);
    s.failed = s.failed || !find_dependents(&s);
    if (!s.failed) {
        grammar->lengths = grammar->to_end + grammar->n_states;
        run(&s);
    }
    free(s.first);
    free(s.dependents);
    free(s.required);
    free(s.heads);
    free(s.waiting);
    free(s.members.items);
    return s.failed ? spry_fail_memory(error, "a grammar's lengths", n_nodes * sizeof *s.lengths) : SPRY_OK;
}
