/* The shortest text that completes an answer.
 *
 * Its length is known without building it: the length from a state to the end of its machine (shortest.h), plus that of
 * the stack. A stack refers only to older stacks, so its length is computed once and cached until unused stacks are
 * removed. The text is then written along the choices that gave the smallest length. Pending pieces of it are a list of
 * tasks; every task writes at least one byte, so their number is bounded like the text. */
#include <stdlib.h>

#include "grammar/complete/shortest.h"
#include "grammar/ir/grow.h"
#include "grammar/match/stacks.h"
#include "grammar/match/vocabulary.h"

#define UNKNOWN (UINT32_MAX - 1)

typedef enum task_kind { TASK_STATE, TASK_MACHINE, TASK_KEY } task_kind;

/* A piece of text still to be written: from a state to the end of its machine; a machine's text, several times; or a
 * text of the key automaton up to a state. */
typedef struct task {
    task_kind kind;
    uint32_t index, times;
} task;

typedef struct stack_visit {
    uint32_t stack, next;
} stack_visit;

typedef struct completion {
    const spry_grammar *grammar;
    spry_places *places;
    spry_needed_list members;
    stack_visit *path;
    task *tasks;
    uint32_t *key_ways; /* three arrays for spry_shortest_key_ways */
    size_t path_room, n_tasks, tasks_room, key_ways_room;
    spry_buffer text;
    bool failed; /* memory was short */
} completion;

/* ---- lengths ----------------------------------------------------------------------------------------------------- */

static uint32_t members_length(completion *c, const spry_record *record, bool one_more, bool comma_first)
{
    spry_shortest_members(&c->members, c->grammar, record, SPRY_NO_STATE, one_more);
    return spry_needed_length(&c->members, c->grammar, record->object, comma_first);
}

/* The length of what a return still needs, without the stack below it. */
static uint32_t return_length(completion *c, spry_return back)
{
    const spry_grammar *grammar = c->grammar;
    const spry_state *state = &grammar->states[back.state];
    switch ((spry_state_kind)state->kind) {
    case SPRY_STATE_PLAIN: return grammar->to_end[back.state];
    case SPRY_STATE_COUNT: {
        const spry_counter *counter = &grammar->counters[state->owner];
        uint32_t rounds = back.data < counter->min ? counter->min - back.data : 0;
        return spry_length_times(grammar->lengths[counter->body], rounds);
    }
    case SPRY_STATE_AFTER_VALUE: {
        spry_record record = spry_places_record(c->places, back.data);
        return members_length(c, &record, false, true);
    }
    case SPRY_STATE_AFTER_COMMA: {
        spry_record record = spry_places_record(c->places, back.data);
        return members_length(c, &record, true, false);
    }
    case SPRY_STATE_MANY: {
        spry_record record = spry_places_record(c->places, back.data);
        record.count++;
        uint32_t value = grammar->lengths[grammar->many[state->owner].value];
        return spry_length_sum(value, members_length(c, &record, false, true));
    }
    case SPRY_STATE_END: return 0;
    default: return SPRY_TOO_LONG; /* the length of a key comes from its automaton */
    }
}

static bool is_end(const completion *c, spry_return back)
{
    return c->grammar->states[back.state].kind == SPRY_STATE_END;
}

static bool make_room(completion *c)
{
    spry_places *places = c->places;
    if (!spry_grow(&places->stack_lengths, &places->stack_lengths_room, places->n_stacks,
                   sizeof *places->stack_lengths) ||
        !spry_grow(&c->path, &c->path_room, 16, sizeof *c->path))
        return false;
    while (places->n_stack_lengths < places->n_stacks)
        places->stack_lengths[places->n_stack_lengths++] = UNKNOWN;
    return true;
}

/* The length of a stack; the lengths of all stacks below it are known. */
static uint32_t find_stack_length(completion *c, uint32_t stack)
{
    const spry_places *places = c->places;
    uint32_t least = SPRY_TOO_LONG;
    spry_slice span = places->stacks[stack];
    for (uint32_t i = 0; i < span.count; i++) {
        spry_return back = places->returns[span.first + i];
        uint32_t below = is_end(c, back) ? 0 : places->stack_lengths[back.below];
        uint32_t length = below == SPRY_TOO_LONG ? below : spry_length_sum(return_length(c, back), below);
        least = length < least ? length : least;
    }
    return least;
}

/* Bytes from a stack to the end of the text. */
static uint32_t stack_length(completion *c, uint32_t stack)
{
    spry_places *places = c->places;
    size_t depth = 0;
    if (places->stack_lengths[stack] != UNKNOWN)
        return places->stack_lengths[stack];
    c->path[depth++] = (stack_visit){stack, 0};
    while (depth) {
        stack_visit *top = &c->path[depth - 1];
        spry_slice span = places->stacks[top->stack];
        if (top->next == span.count) {
            uint32_t length = find_stack_length(c, top->stack);
            if (c->members.failed) /* do not cache a wrong length */
                return SPRY_TOO_LONG;
            places->stack_lengths[top->stack] = length;
            depth--;
            continue;
        }
        uint32_t below = places->returns[span.first + top->next++].below;
        if (places->stack_lengths[below] != UNKNOWN)
            continue;
        if (!spry_grow(&c->path, &c->path_room, depth + 1, sizeof *c->path)) {
            c->failed = true;
            return SPRY_TOO_LONG;
        }
        c->path[depth++] = (stack_visit){below, 0};
    }
    return places->stack_lengths[stack];
}

/* ---- the shortest text ------------------------------------------------------------------------------------------- */

/* A candidate for the shortest text: it begins at a position of the set. Keys and limited texts also have the return;
 * keys the state where the key ends. */
typedef struct way {
    uint32_t length;
    spry_position position;
    uint32_t key_end;
    spry_return back;
} way;

static uint32_t *key_ways(completion *c, const spry_object *object, uint32_t from)
{
    size_t n = object->n_key_states;
    if (!spry_grow(&c->key_ways, &c->key_ways_room, 3 * n, sizeof *c->key_ways)) {
        c->failed = true;
        return NULL;
    }
    spry_shortest_key_ways(c->grammar, object, from, c->key_ways, c->key_ways + n, c->key_ways + 2 * n);
    return c->key_ways;
}

/* The length of a declared member and everything after it; `key` is the length to the end of its key. c->members has
 * the members the object still needs, possibly including this one. */
static uint32_t declared_length(completion *c, const spry_record *record, uint32_t declared, uint32_t key)
{
    const spry_object *object = record->object;
    uint64_t bit = (uint64_t)1 << declared % 64;
    bool required = object->required[declared / 64] & bit;
    uint32_t all = spry_needed_length(&c->members, c->grammar, object, true);
    if (!spry_record_allows(record, declared) || all == SPRY_TOO_LONG)
        return SPRY_TOO_LONG;
    uint32_t comma = object->comma == SPRY_NO_STATE ? 0 : c->grammar->lengths[object->comma];
    uint32_t whole = spry_member_length(c->grammar, object, declared), saved = 0;
    if (required)
        saved = whole + comma;
    else if (c->members.extra)
        saved = (whole < c->members.longest ? whole : c->members.longest) + comma;
    return spry_length_sum(all - saved, spry_length_sum(key, c->grammar->lengths[object->values[declared]]));
}

static void try_key(completion *c, way *best, spry_position position)
{
    const spry_grammar *grammar = c->grammar;
    const spry_object *object = &grammar->objects[grammar->states[position.state].owner];
    const uint32_t *lengths = key_ways(c, object, position.state);
    spry_slice span = c->places->stacks[position.stack];
    for (uint32_t i = 0; lengths && i < span.count; i++) {
        spry_return back = c->places->returns[span.first + i];
        spry_record record = spry_places_record(c->places, back.data);
        uint32_t below = stack_length(c, back.below);
        spry_shortest_members(&c->members, grammar, &record, SPRY_NO_STATE, false);
        for (uint32_t j = 0; j < object->n_key_states; j++) {
            uint32_t tag = grammar->states[object->key_start + j].tag;
            if (!tag || lengths[j] == SPRY_TOO_LONG)
                continue;
            uint32_t length = spry_length_sum(declared_length(c, &record, tag - 1, lengths[j]), below);
            if (length < best->length)
                *best = (way){length, position, object->key_start + j, back};
        }
    }
}

static void try_limited(completion *c, way *best, spry_position position)
{
    spry_slice span = c->places->stacks[position.stack];
    for (uint32_t i = 0; i < span.count; i++) {
        spry_return back = c->places->returns[span.first + i];
        const spry_limit *limit = spry_places_limit(c->places, &back);
        if (!spry_limit_allows(limit, position.state, back.data))
            continue;
        uint32_t bytes = limit->ways.bytes[spry_limit_way(limit, position.state, back.data)];
        uint32_t length = spry_length_sum(bytes, stack_length(c, back.below));
        if (length < best->length)
            *best = (way){.length = length, .position = position, .back = back};
    }
}

static way find_way(completion *c, uint32_t set)
{
    const spry_places *places = c->places;
    way best = {.length = SPRY_TOO_LONG};
    spry_slice positions = places->sets[set].positions;
    if (!make_room(c))
        c->failed = true;
    for (uint32_t i = 0; i < positions.count && !c->failed; i++) {
        spry_position position = places->positions[positions.first + i];
        if (c->grammar->states[position.state].kind == SPRY_STATE_KEY) {
            try_key(c, &best, position);
            continue;
        }
        if (c->grammar->states[position.state].kind == SPRY_STATE_LIMITED) {
            try_limited(c, &best, position);
            continue;
        }
        uint32_t length = spry_length_sum(c->grammar->to_end[position.state], stack_length(c, position.stack));
        if (length < best.length)
            best = (way){.length = length, .position = position};
    }
    c->failed |= c->members.failed;
    return best;
}

/* ---- writing the text -------------------------------------------------------------------------------------------- */

static void push(completion *c, task_kind kind, uint32_t index, uint32_t times)
{
    if (!spry_grow(&c->tasks, &c->tasks_room, c->n_tasks + 1, sizeof *c->tasks))
        c->failed = true;
    else if (times)
        c->tasks[c->n_tasks++] = (task){kind, index, times};
}

/* Adds tasks in reverse order, because tasks are executed from last to first. */
static void push_members(completion *c, const spry_object *object, bool comma_first)
{
    for (size_t i = c->members.count; i-- > 0;) {
        spry_needed needed = c->members.items[i];
        for (uint32_t j = needed.times; j-- > 0;) {
            if (needed.member < object->n_declared) {
                push(c, TASK_MACHINE, object->values[needed.member], 1);
                push(c, TASK_KEY, object->key_ends[needed.member], 1);
            } else {
                const spry_many_member *many =
                    &c->grammar->many[object->first_many + needed.member - object->n_declared];
                push(c, TASK_MACHINE, many->value, 1);
                push(c, TASK_MACHINE, many->key, 1);
            }
            if (i || j || comma_first)
                push(c, TASK_MACHINE, object->comma, 1);
        }
    }
}

static void push_return(completion *c, spry_return back)
{
    const spry_grammar *grammar = c->grammar;
    const spry_state *state = &grammar->states[back.state];
    if (state->kind == SPRY_STATE_PLAIN) {
        push(c, TASK_STATE, back.state, 1);
    } else if (state->kind == SPRY_STATE_COUNT) {
        const spry_counter *counter = &grammar->counters[state->owner];
        push(c, TASK_MACHINE, counter->body, back.data < counter->min ? counter->min - back.data : 0);
    } else if (state->kind != SPRY_STATE_END) {
        return_length(c, back); /* fills c->members */
        spry_record record = spry_places_record(c->places, back.data);
        push_members(c, record.object, state->kind != SPRY_STATE_AFTER_COMMA);
        if (state->kind == SPRY_STATE_MANY)
            push(c, TASK_MACHINE, grammar->many[state->owner].value, 1);
    }
}

/* The byte of a range that is most usual in texts. */
static unsigned char pick_byte(spry_edge edge, unsigned *rank)
{
    static const char liked[] = "a0A e1E\"}]),.-_";
    for (*rank = 0; *rank < sizeof liked - 1; ++*rank)
        if (edge.first <= (unsigned char)liked[*rank] && (unsigned char)liked[*rank] <= edge.last)
            return (unsigned char)liked[*rank];
    bool printable = edge.first <= '~' && edge.last > ' ';
    *rank += !printable;
    return edge.first <= ' ' && printable ? '!' : edge.first;
}

/* Follows an edge to a state that has `wanted` bytes to the end, and writes the most usual byte of such edges. Returns
 * the state; SPRY_NO_STATE: there is none. */
static uint32_t take_edge(completion *c, uint32_t from, uint32_t wanted)
{
    const spry_state *state = &c->grammar->states[from];
    uint32_t target = SPRY_NO_STATE;
    unsigned best = UINT32_MAX, rank;
    char byte = 0;
    for (uint32_t i = state->first_edge; i < state[1].first_edge; i++) {
        spry_edge edge = c->grammar->edges[i];
        unsigned char picked = pick_byte(edge, &rank);
        if (c->grammar->to_end[edge.target] != wanted || rank >= best)
            continue;
        best = rank;
        byte = (char)picked;
        target = edge.target;
    }
    if (target != SPRY_NO_STATE)
        spry_buffer_append(&c->text, &byte, 1);
    return target;
}

static void write_state(completion *c, uint32_t number)
{
    const spry_grammar *grammar = c->grammar;
    while (grammar->to_end[number]) {
        uint32_t length = grammar->to_end[number], next = take_edge(c, number, length - 1);
        if (next != SPRY_NO_STATE) {
            number = next;
            continue;
        }
        const spry_state *state = &grammar->states[number];
        for (uint32_t i = state->first_call; i < state[1].first_call; i++) {
            spry_call call = grammar->calls[i];
            if (grammar->machines[call.callee].nullable ||
                spry_length_sum(grammar->lengths[call.callee], grammar->to_end[call.target]) != length)
                continue;
            push(c, TASK_STATE, call.target, 1);
            push(c, TASK_MACHINE, call.callee, 1);
            return;
        }
        return;
    }
}

/* Writes a limited text from a state after `count` units. */
static void write_limited(completion *c, const spry_limit *limit, uint32_t number, uint32_t count)
{
    const spry_grammar *grammar = c->grammar;
    const spry_unit_ways *ways = &limit->ways;
    for (size_t at = spry_limit_way(limit, number, count); ways->bytes[at] && !c->text.failed;) {
        const spry_state *state = &grammar->states[number];
        uint32_t units = ways->units[at], bytes = ways->bytes[at];
        unsigned best = UINT32_MAX, rank;
        char byte = 0;
        for (uint32_t i = state->first_edge; i < state[1].first_edge; i++) {
            spry_edge edge = grammar->edges[i];
            uint32_t unit = grammar->states[edge.target].tag != 0;
            size_t next = spry_limit_way(limit, edge.target, unit ? spry_limit_next(limit, count) : count);
            unsigned char picked = pick_byte(edge, &rank);
            if (ways->units[next] + unit != units || ways->bytes[next] + 1 != bytes || rank >= best)
                continue;
            best = rank;
            byte = (char)picked;
            number = edge.target;
            at = next;
        }
        if (best == UINT32_MAX)
            return;
        spry_buffer_append(&c->text, &byte, 1);
        if (grammar->states[number].tag)
            count = spry_limit_next(limit, count);
    }
}

static void write_machine(completion *c, uint32_t number)
{
    const spry_machine *machine = &c->grammar->machines[number];
    if (c->grammar->lengths[number] == 0)
        return;
    if (machine->kind == SPRY_MACHINE_PLAIN) {
        push(c, TASK_STATE, machine->index, 1);
    } else if (machine->kind == SPRY_MACHINE_COUNTER) {
        const spry_counter *counter = &c->grammar->counters[machine->index];
        push(c, TASK_MACHINE, counter->body, counter->min);
    } else if (machine->kind == SPRY_MACHINE_LIMITED) {
        write_limited(c, &c->grammar->limits[machine->limit], machine->index, 0);
    } else {
        const spry_object *object = &c->grammar->objects[machine->index];
        spry_record none = spry_record_empty(object);
        members_length(c, &none, false, false);
        push_members(c, object, false);
    }
}

/* Writes the text of a key automaton that leads to a state; `before` holds the previous states. */
static void write_key(completion *c, const uint32_t *before, uint32_t length, uint32_t end)
{
    const spry_grammar *grammar = c->grammar;
    uint32_t start = grammar->objects[grammar->states[end].owner].key_start;
    char *text = spry_buffer_extend(&c->text, length);
    for (uint32_t i = length; text && i-- > 0;) {
        uint32_t from = before[end - start], edge = grammar->states[from].first_edge;
        unsigned rank;
        while (grammar->edges[edge].target != end)
            edge++;
        text[i] = (char)pick_byte(grammar->edges[edge], &rank);
        end = from;
    }
}

static void run_tasks(completion *c)
{
    while (c->n_tasks && !c->failed && !c->text.failed) {
        task *top = &c->tasks[c->n_tasks - 1], now = *top;
        if (--top->times == 0)
            c->n_tasks--;
        if (now.kind == TASK_STATE)
            write_state(c, now.index);
        else if (now.kind == TASK_MACHINE)
            write_machine(c, now.index);
        else
            write_key(c, c->grammar->objects[c->grammar->states[now.index].owner].key_before,
                      c->grammar->to_end[now.index], now.index);
    }
}

/* Writes the rest of a key, its value and the remaining members of its object. */
static void write_from_key(completion *c, const way *best)
{
    const spry_state *end = &c->grammar->states[best->key_end];
    const spry_object *object = &c->grammar->objects[end->owner];
    const uint32_t *ways = key_ways(c, object, best->position.state);
    if (!ways)
        return;
    write_key(c, ways + object->n_key_states, ways[best->key_end - object->key_start], best->key_end);
    spry_record record = spry_places_record(c->places, best->back.data);
    record.count++;
    spry_shortest_members(&c->members, c->grammar, &record, end->tag - 1, false);
    push_members(c, object, true);
    push(c, TASK_MACHINE, object->values[end->tag - 1], 1);
    run_tasks(c);
}

static void write_stack(completion *c, uint32_t stack)
{
    const spry_places *places = c->places;
    while (!c->failed && !c->text.failed) {
        spry_slice span = places->stacks[stack];
        spry_return best = places->returns[span.first];
        for (uint32_t i = 0; i < span.count; i++) {
            best = places->returns[span.first + i];
            uint32_t below = is_end(c, best) ? 0 : places->stack_lengths[best.below];
            if (below != SPRY_TOO_LONG &&
                spry_length_sum(return_length(c, best), below) == places->stack_lengths[stack])
                break;
        }
        push_return(c, best);
        run_tasks(c);
        if (is_end(c, best))
            return;
        stack = best.below;
    }
}

/* ---- functions for other files ----------------------------------------------------------------------------------- */

static void init(completion *c, spry_matcher *matcher)
{
    *c = (completion){.grammar = matcher->grammar, .places = &matcher->places};
    spry_buffer_init(&c->text, SPRY_COMPLETION_MAX + 1);
}

static void deinit(completion *c)
{
    free(c->members.items);
    free(c->path);
    free(c->tasks);
    free(c->key_ways);
    spry_buffer_deinit(&c->text);
}

size_t spry_matcher_completion_bound(spry_matcher *matcher)
{
    if (spry_matcher_may_end(matcher))
        return 0;
    completion c;
    init(&c, matcher);
    way best = find_way(&c, matcher->set);
    deinit(&c);
    return c.failed || best.length == SPRY_TOO_LONG ? SIZE_MAX : best.length;
}

static void write_way(completion *c, const way *best)
{
    if (c->grammar->states[best->position.state].kind == SPRY_STATE_KEY) {
        write_from_key(c, best);
        write_stack(c, best->back.below);
        return;
    }
    if (c->grammar->states[best->position.state].kind == SPRY_STATE_LIMITED) {
        write_limited(c, spry_places_limit(c->places, &best->back), best->position.state, best->back.data);
        write_stack(c, best->back.below);
        return;
    }
    push(c, TASK_STATE, best->position.state, 1);
    run_tasks(c);
    write_stack(c, best->position.stack);
}

spry_status spry_matcher_completion(spry_matcher *matcher, spry_buffer *out, spry_error *error)
{
    if (spry_matcher_may_end(matcher))
        return SPRY_OK;
    completion c;
    init(&c, matcher);
    way best = find_way(&c, matcher->set);
    bool too_long = best.length == SPRY_TOO_LONG;
    if (!c.failed && !too_long)
        write_way(&c, &best);
    bool failed = c.failed || c.members.failed || c.text.failed;
    if (!failed && !too_long)
        failed = !spry_buffer_append(out, c.text.data, c.text.size);
    deinit(&c);
    if (failed)
        return spry_fail(error, SPRY_ERR_MEMORY, "not enough memory to complete a text");
    if (too_long)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "the grammar needs more than %d further bytes for a whole text",
                         SPRY_COMPLETION_MAX);
    return SPRY_OK;
}

/* ---- the completion as tokens ------------------------------------------------------------------------------------ */

typedef struct spelling {
    uint32_t count; /* number of tokens from here to the end of the text */
    int32_t id;     /* the first of them */
} spelling;

/* Replaces `best` if a token at the beginning of `text`, from one slice of the vocabulary, needs fewer tokens in all,
 * or as few and is longer. `tails[n]` is the best spelling of the text after n bytes. */
static spelling better_token(spelling best, const spry_vocabulary *vocabulary, const spry_trie *trie, spry_view text,
                             const spelling *tails)
{
    const spry_trie_node *nodes = vocabulary->nodes;
    uint32_t at = trie->begin, end = trie->end;
    for (size_t i = 0; i < text.size; i++) {
        while (at < end && nodes[at].byte != (unsigned char)text.data[i])
            at = nodes[at].skip;
        if (at >= end)
            break;
        int32_t id = vocabulary->order[nodes[at].first_token];
        uint32_t count = tails[i + 1].count == UINT32_MAX ? UINT32_MAX : tails[i + 1].count + 1;
        if (vocabulary->texts[id].size == i + 1 &&
            (count < best.count || (count == best.count && best.id >= 0 && i + 1 > vocabulary->texts[best.id].size)))
            best = (spelling){count, id};
        end = nodes[at].skip;
        at++;
    }
    return best;
}

static spelling best_token(const spry_vocabulary *vocabulary, spry_view text, const spelling *tails)
{
    spelling best = {UINT32_MAX, -1};
    for (unsigned i = 0; i < SPRY_SLICES; i++)
        best = better_token(best, vocabulary, &vocabulary->tries[i], text, tails);
    return best;
}

spry_status spry_matcher_completion_tokens(spry_matcher *matcher, spry_tokens *out, spry_error *error)
{
    spry_buffer made;
    spry_buffer_init(&made, SPRY_COMPLETION_MAX + 1);
    spry_status status = spry_matcher_completion(matcher, &made, error);
    spry_view text = spry_buffer_view(&made);
    spelling *spellings = malloc((text.size + 1) * sizeof *spellings);
    size_t before = out->count;
    if (!status && !spellings)
        status = spry_fail_memory(error, "the tokens of a completion", text.size * sizeof *spellings);
    if (!status)
        spellings[text.size] = (spelling){0, -1};
    for (size_t i = text.size; !status && i-- > 0;)
        spellings[i] = best_token(matcher->vocabulary, (spry_view){text.data + i, text.size - i}, spellings + i);
    if (!status && text.size && spellings[0].id < 0)
        status = spry_fail(error, SPRY_ERR_INPUT, "the model's vocabulary cannot spell what completes the text");
    for (size_t i = 0; !status && i < text.size; i += matcher->vocabulary->texts[spellings[i].id].size)
        if (!spry_tokens_push(out, spellings[i].id))
            status = spry_fail_memory(error, "the tokens of a completion", text.size * sizeof *out->ids);
    if (status)
        out->count = before;
    free(spellings);
    spry_buffer_deinit(&made);
    return status;
}
