/* One step: the positions after a byte, and everything that follows from them without a further byte.
 *
 * First completed machines return, repeatedly. Then machines are entered in the grammar's order, so that all returns
 * into a machine are known before the machines it begins with are entered. A call of a nullable machine can be skipped
 * (this is decided at compile time), so a machine that has just been entered never returns in the same step. */
#include "grammar/match/stacks.h"

#include "base/map.h"
#include "grammar/ir/grow.h"

enum {
    WORK_MAX = 1 << 17, /* maximum number of returns processed in one step */
    SEEN_SMALL = 16,
    STEPS_BEFORE_ROW = 4,
    PLACES_BYTES_MAX = 1 << 29, /* maximum bytes of stacks, records and sets that one call may add */
};

typedef struct entry_call {
    uint32_t rank;
    spry_return back;
} entry_call;

struct spry_closing {
    spry_return *pending; /* queue of (state, data, stack) to process */
    spry_position *found;
    entry_call *calls; /* a heap, smallest rank first */
    spry_return *group;
    size_t n_pending, n_found, n_calls, n_group;
    size_t pending_room, found_room, calls_room, group_room;
    uint32_t *seen; /* [seen_size] hash table: index in `pending`, + 1 */
    size_t seen_size;
    bool may_end;
};

spry_closing *spry_closing_create(void)
{
    return calloc(1, sizeof(spry_closing));
}

void spry_closing_destroy(spry_closing *closing)
{
    if (!closing)
        return;
    free(closing->pending);
    free(closing->found);
    free(closing->calls);
    free(closing->group);
    free(closing->seen);
    free(closing);
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

static bool same(const spry_return *a, const spry_return *b)
{
    return a->state == b->state && a->data == b->data && a->below == b->below;
}

static bool grow_seen(spry_closing *closing)
{
    size_t size = closing->seen_size ? closing->seen_size * 2 : 64;
    uint32_t *seen = calloc(size, sizeof *seen);
    if (!seen)
        return false;
    for (uint32_t i = 0; i < closing->n_pending; i++) {
        size_t at = (size_t)spry_hash_bytes(&closing->pending[i], sizeof *closing->pending, 0) & (size - 1);
        while (seen[at])
            at = (at + 1) & (size - 1);
        seen[at] = i + 1;
    }
    free(closing->seen);
    closing->seen = seen;
    closing->seen_size = size;
    return true;
}

/* Whether an item is already in `pending`; records it if not. Short lists are compared one by one. */
static bool seen_before(spry_places *places, const spry_return *item)
{
    spry_closing *closing = places->closing;
    if (closing->n_pending < SEEN_SMALL) {
        for (size_t i = 0; i < closing->n_pending; i++)
            if (same(&closing->pending[i], item))
                return true;
        return false;
    }
    if (closing->n_pending == SEEN_SMALL || (closing->n_pending + 1) * 2 > closing->seen_size) {
        if (closing->n_pending == SEEN_SMALL)
            closing->seen_size = 0;
        if (!grow_seen(closing)) {
            places->failed = SPRY_ERR_MEMORY;
            return true;
        }
    }
    size_t mask = closing->seen_size - 1, at = (size_t)spry_hash_bytes(item, sizeof *item, 0) & mask;
    for (; closing->seen[at]; at = (at + 1) & mask)
        if (same(&closing->pending[closing->seen[at] - 1], item))
            return true;
    closing->seen[at] = (uint32_t)closing->n_pending + 1;
    return false;
}

/* Adds a state over a stack to the pending ones. */
static void add_pending(spry_places *places, spry_return item)
{
    spry_closing *closing = places->closing;
    spry_places_charge(places, 1);
    if (places->failed || seen_before(places, &item))
        return;
    if (closing->n_pending >= WORK_MAX)
        places->failed = SPRY_ERR_UNSUPPORTED;
    else if (!spry_grow(&closing->pending, &closing->pending_room, closing->n_pending + 1, sizeof item))
        places->failed = SPRY_ERR_MEMORY;
    else
        closing->pending[closing->n_pending++] = item;
}

static void add_position(spry_places *places, uint32_t state, uint32_t stack)
{
    spry_closing *closing = places->closing;
    if (!spry_grow(&closing->found, &closing->found_room, closing->n_found + 1, sizeof *closing->found))
        places->failed = SPRY_ERR_MEMORY;
    else
        closing->found[closing->n_found++] = (spry_position){state, stack};
}

static void push_call(spry_places *places, uint32_t machine, spry_return back)
{
    spry_closing *closing = places->closing;
    spry_places_charge(places, 1);
    if (closing->n_calls >= WORK_MAX)
        places->failed = SPRY_ERR_UNSUPPORTED;
    else if (!spry_grow(&closing->calls, &closing->calls_room, closing->n_calls + 1, sizeof *closing->calls))
        places->failed = SPRY_ERR_MEMORY;
    if (places->failed)
        return;
    uint32_t rank = places->grammar->rank[machine];
    size_t at = closing->n_calls++;
    while (at && closing->calls[(at - 1) / 2].rank > rank) {
        closing->calls[at] = closing->calls[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    closing->calls[at] = (entry_call){rank, back};
}

static entry_call pop_call(spry_closing *closing)
{
    entry_call first = closing->calls[0], last = closing->calls[--closing->n_calls];
    size_t at = 0, child;
    while ((child = 2 * at + 1) < closing->n_calls) {
        child += child + 1 < closing->n_calls && closing->calls[child + 1].rank < closing->calls[child].rank;
        if (closing->calls[child].rank >= last.rank)
            break;
        closing->calls[at] = closing->calls[child];
        at = child;
    }
    if (closing->n_calls)
        closing->calls[at] = last;
    return first;
}

/* ---- objects and counters ---------------------------------------------------------------------------------------- */

static void begin_member(spry_places *places, const spry_object *object, uint32_t record_number, uint32_t below)
{
    spry_record record = spry_places_record(places, record_number);
    bool many = spry_record_allows_many(&record);
    if (object->key_start != SPRY_NO_STATE) {
        spry_return back = {object->keys_state, record_number, below};
        uint32_t stack = spry_places_stack(places, &back, 1);
        if (!places->failed && spry_places_alive(places, object->key_start, stack))
            add_position(places, object->key_start, stack);
    }
    for (uint32_t i = 0; many && i < object->n_many; i++) {
        const spry_many_member *member = &places->grammar->many[object->first_many + i];
        push_call(places, member->key, (spry_return){member->return_state, record_number, below});
    }
}

static void begin_value(spry_places *places, const spry_object *object, uint32_t machine, uint32_t record,
                        uint32_t below)
{
    spry_return back = {object->after_value, record, below};
    if (places->failed)
        return;
    push_call(places, machine, back);
    if (places->grammar->machines[machine].nullable)
        add_pending(places, back);
}

static void after_value(spry_places *places, const spry_object *object, uint32_t record_number, uint32_t below)
{
    spry_record record = spry_places_record(places, record_number);
    if (spry_record_may_close(&record)) {
        spry_slice span = places->stacks[below];
        for (uint32_t i = 0; i < span.count; i++)
            add_pending(places, places->returns[span.first + i]);
    }
    bool more = spry_record_allows_many(&record);
    if (!more && object->key_start != SPRY_NO_STATE) {
        uint32_t reach = places->grammar->reach[object->first_reach];
        more = spry_record_allows_declared(&record, object->reach_words + (size_t)reach * object->n_words);
    }
    if (!more || object->comma == SPRY_NO_STATE)
        return;
    spry_return back = {object->after_comma, record_number, below};
    push_call(places, object->comma, back);
    if (places->grammar->machines[object->comma].nullable)
        add_pending(places, back);
}

static void after_key(spry_places *places, uint32_t tag, const spry_return *back)
{
    const spry_object *object = &places->grammar->objects[places->grammar->states[back->state].owner];
    spry_record record = spry_places_record(places, back->data);
    uint32_t declared = tag - 1;
    if (spry_record_allows(&record, declared))
        begin_value(places, object, object->values[declared], spry_places_member(places, back->data, declared),
                    back->below);
}

static void after_count(spry_places *places, const spry_counter *counter, uint32_t count, uint32_t below)
{
    if (count >= counter->min) {
        spry_slice span = places->stacks[below];
        for (uint32_t i = 0; i < span.count; i++)
            add_pending(places, places->returns[span.first + i]);
    }
    if (count >= counter->max)
        return;
    /* Without a maximum, counts above the minimum need not be distinguished. */
    uint32_t next = counter->max == SPRY_IR_UNBOUNDED && count >= counter->min ? count : count + 1;
    push_call(places, counter->body, (spry_return){counter->return_state, next, below});
}

/* ---- states ------------------------------------------------------------------------------------------------------ */

static void return_to(spry_places *places, const spry_state *state, spry_return item)
{
    const spry_grammar *grammar = places->grammar;
    switch ((spry_state_kind)state->kind) {
    case SPRY_STATE_END: places->closing->may_end = true; break;
    case SPRY_STATE_MANY: {
        const spry_many_member *member = &grammar->many[state->owner];
        begin_value(places, &grammar->objects[member->object], member->value,
                    spry_places_member(places, item.data, SPRY_NO_STATE), item.below);
        break;
    }
    case SPRY_STATE_AFTER_VALUE: after_value(places, &grammar->objects[state->owner], item.data, item.below); break;
    case SPRY_STATE_AFTER_COMMA: begin_member(places, &grammar->objects[state->owner], item.data, item.below); break;
    case SPRY_STATE_COUNT: after_count(places, &grammar->counters[state->owner], item.data, item.below); break;
    default: break;
    }
}

static void add_to_group(spry_places *places, const spry_return *returns, size_t count)
{
    spry_closing *closing = places->closing;
    if (!spry_grow(&closing->group, &closing->group_room, closing->n_group + count, sizeof *closing->group)) {
        places->failed = SPRY_ERR_MEMORY;
        return;
    }
    memcpy(closing->group + closing->n_group, returns, count * sizeof *returns);
    closing->n_group += count;
}

/* Counts a completed unit of a limited text: all counts on the stack below increase, and counts that become too large
 * are dropped. */
static void count_unit(spry_places *places, const spry_state *state, spry_return item)
{
    spry_slice span = places->stacks[item.below];
    places->closing->n_group = 0;
    for (uint32_t i = 0; i < span.count && !places->failed; i++) {
        spry_return back = places->returns[span.first + i];
        const spry_limit *limit = spry_places_limit(places, &back);
        back.data = spry_limit_next(limit, back.data);
        if (!spry_limit_allows(limit, item.state, back.data))
            continue;
        add_to_group(places, &back, 1);
        spry_slice below = places->stacks[back.below];
        for (uint32_t j = 0; state->tag == SPRY_TAG_COMPLETE && back.data >= limit->min && j < below.count; j++)
            add_pending(places, places->returns[below.first + j]);
    }
    if (places->failed || !places->closing->n_group || state->last)
        return;
    uint32_t stack = spry_places_stack(places, places->closing->group, places->closing->n_group);
    if (!places->failed)
        add_position(places, item.state, stack);
}

static void process(spry_places *places, spry_return item)
{
    const spry_state *state = &places->grammar->states[item.state];
    if (state->kind > SPRY_STATE_LIMITED) {
        return_to(places, state, item);
        return;
    }
    if (state->kind == SPRY_STATE_LIMITED && state->tag) {
        count_unit(places, state, item);
        return;
    }
    if (!state->last && spry_places_alive(places, item.state, item.below))
        add_position(places, item.state, item.below);
    spry_slice span = places->stacks[item.below];
    for (uint32_t i = 0; state->tag && i < span.count && !places->failed; i++) {
        spry_return back = places->returns[span.first + i];
        if (state->kind == SPRY_STATE_PLAIN)
            add_pending(places, back);
        else
            after_key(places, state->tag, &back);
    }
}

static int compare_positions(const void *left, const void *right)
{
    const spry_position *a = left, *b = right;
    if (a->state != b->state)
        return a->state > b->state ? 1 : -1;
    return (a->stack > b->stack) - (a->stack < b->stack);
}

/* Merges the stacks of equal states: one stack per state. */
static void join_positions(spry_places *places)
{
    spry_closing *closing = places->closing;
    if (closing->n_found > 1)
        qsort(closing->found, closing->n_found, sizeof *closing->found, compare_positions);
    size_t kept = 0;
    for (size_t i = 0; i < closing->n_found && !places->failed;) {
        spry_position position = closing->found[i];
        size_t end = i + 1;
        while (end < closing->n_found && closing->found[end].state == position.state)
            end++;
        if (closing->found[end - 1].stack != position.stack) {
            closing->n_group = 0;
            for (size_t j = i; j < end && !places->failed; j++) {
                spry_slice span = places->stacks[closing->found[j].stack];
                add_to_group(places, places->returns + span.first, span.count);
            }
            position.stack = spry_places_stack(places, closing->group, closing->n_group);
        }
        closing->found[kept++] = position;
        i = end;
    }
    closing->n_found = kept;
}

static void call_from(spry_places *places, uint32_t state_number, uint32_t stack)
{
    const spry_grammar *grammar = places->grammar;
    const spry_state *state = &grammar->states[state_number];
    for (uint32_t i = state->first_call; i < state[1].first_call && !places->failed; i++) {
        spry_call call = grammar->calls[i];
        if (!grammar->states[call.target].last) {
            push_call(places, call.callee, (spry_return){call.target, 0, stack});
            continue;
        }
        /* a tail call: the called machine returns to where this state's machine would return */
        spry_slice span = places->stacks[stack];
        for (uint32_t j = 0; j < span.count && !places->failed; j++)
            push_call(places, call.callee, places->returns[span.first + j]);
    }
}

static void enter_machine(spry_places *places, uint32_t machine_number, uint32_t stack)
{
    const spry_grammar *grammar = places->grammar;
    const spry_machine *machine = &grammar->machines[machine_number];
    if (machine->kind == SPRY_MACHINE_PLAIN) {
        add_position(places, machine->index, stack);
        call_from(places, machine->index, stack);
    } else if (machine->kind == SPRY_MACHINE_OBJECT) {
        uint32_t record = spry_places_no_members(places, machine->index);
        if (!places->failed)
            begin_member(places, &grammar->objects[machine->index], record, stack);
    } else if (machine->kind == SPRY_MACHINE_LIMITED) {
        spry_return back = {grammar->limits[machine->limit].return_state, 0, stack};
        stack = spry_places_stack(places, &back, 1);
        if (!places->failed)
            add_position(places, machine->index, stack);
    } else {
        const spry_counter *counter = &grammar->counters[machine->index];
        push_call(places, counter->body, (spry_return){counter->return_state, 1, stack});
    }
}

static void enter_machines(spry_places *places)
{
    spry_closing *closing = places->closing;
    while (closing->n_calls && !places->failed) {
        uint32_t rank = closing->calls[0].rank;
        closing->n_group = 0;
        while (closing->n_calls && closing->calls[0].rank == rank && !places->failed) {
            entry_call call = pop_call(closing);
            add_to_group(places, &call.back, 1);
        }
        if (places->failed)
            return;
        uint32_t stack = spry_places_stack(places, closing->group, closing->n_group);
        if (!places->failed)
            enter_machine(places, places->grammar->order[rank], stack);
    }
}

static void begin(spry_places *places)
{
    spry_closing *closing = places->closing;
    closing->n_pending = closing->n_found = closing->n_calls = 0;
    closing->may_end = false;
}

/* Computes the set that follows from all pending states and calls. */
static uint32_t close_step(spry_places *places)
{
    spry_closing *closing = places->closing;
    for (size_t i = 0; i < closing->n_pending && !places->failed; i++)
        process(places, closing->pending[i]);
    join_positions(places);
    for (size_t i = 0, n = closing->n_found; i < n && !places->failed; i++)
        call_from(places, closing->found[i].state, closing->found[i].stack);
    if (closing->n_calls) {
        enter_machines(places);
        join_positions(places);
    }
    if (!places->failed && spry_places_bytes(places) > PLACES_BYTES_MAX)
        places->failed = SPRY_ERR_UNSUPPORTED;
    if (places->failed)
        return SPRY_NO_SET;
    size_t kept = 0;
    for (size_t i = 0; i < closing->n_found; i++) {
        const spry_state *state = &places->grammar->states[closing->found[i].state];
        if (state->first_edge < state[1].first_edge)
            closing->found[kept++] = closing->found[i];
    }
    return spry_places_set(places, closing->found, kept, closing->may_end);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

uint32_t spry_places_start(spry_places *places)
{
    begin(places);
    spry_return end = {SPRY_END_STATE, 0, SPRY_NO_STACK};
    push_call(places, places->grammar->root, end);
    places->closing->may_end = places->grammar->machines[places->grammar->root].nullable;
    return close_step(places);
}

uint32_t spry_places_resume(spry_places *places, spry_slice returns)
{
    begin(places);
    for (uint32_t i = 0; i < returns.count; i++)
        add_pending(places, places->returns[returns.first + i]);
    return close_step(places);
}

/* Caches the step when it comes from a set that is used often. */
static void remember(spry_places *places, uint32_t set, unsigned char byte, uint32_t target)
{
    spry_set *from = &places->sets[set];
    if (!from->row && from->steps < STEPS_BEFORE_ROW) {
        from->steps++;
        return;
    }
    if (!from->row) {
        if (!spry_grow(&places->rows, &places->rows_room, (places->n_rows + 2) * 256, sizeof *places->rows))
            return;
        from->row = (uint32_t)++places->n_rows;
        for (size_t i = 0; i < 256; i++)
            places->rows[(size_t)from->row * 256 + i] =
                spry_set_takes(from, (unsigned char)i) ? SPRY_STEP_UNKNOWN : SPRY_NO_SET;
    }
    places->rows[(size_t)from->row * 256 + byte] = target;
}

uint32_t spry_places_compute_step(spry_places *places, uint32_t set_number, unsigned char byte)
{
    const spry_grammar *grammar = places->grammar;
    spry_slice positions = places->sets[set_number].positions;
    spry_places_charge(places, positions.count + 1);
    if (places->failed)
        return SPRY_NO_SET;
    begin(places);
    for (uint32_t i = 0; i < positions.count; i++) {
        spry_position position = places->positions[positions.first + i];
        const spry_state *state = &grammar->states[position.state];
        for (uint32_t j = state->first_edge; j < state[1].first_edge && grammar->edges[j].first <= byte; j++)
            if (grammar->edges[j].last >= byte)
                add_pending(places, (spry_return){grammar->edges[j].target, 0, position.stack});
    }
    uint32_t target = close_step(places);
    if (!places->failed)
        remember(places, set_number, byte, target);
    return target;
}
