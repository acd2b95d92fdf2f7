/* The state of a matcher (stacks.h): stores stacks, records and sets, each once, removes unused ones, and computes
 * digests of sets. */
#include "grammar/match/stacks.h"

#include "base/map.h"
#include "grammar/ir/grow.h"

enum { RETURNS_MAX = 1 << 16 }; /* maximum returns of one stack */

/* ---- hash tables: numbers by content ----------------------------------------------------------------------------- */

typedef uint64_t (*hash_fn)(const spry_places *places, uint32_t number);

static bool grow_table(spry_number_table *table, const spry_places *places, size_t count, hash_fn hash)
{
    if ((count + 1) * 2 <= table->size)
        return true;
    size_t size = table->size ? table->size * 2 : 64;
    uint32_t *slots = calloc(size, sizeof *slots);
    if (!slots)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        size_t at = (size_t)hash(places, i) & (size - 1);
        while (slots[at])
            at = (at + 1) & (size - 1);
        slots[at] = i + 1;
    }
    free(table->slots);
    table->slots = slots;
    table->size = size;
    return true;
}

static uint32_t out_of_memory(spry_places *places)
{
    places->failed = SPRY_ERR_MEMORY;
    return 0;
}

/* ---- stacks ------------------------------------------------------------------------------------------------------ */

static uint64_t stack_hash(const spry_places *places, uint32_t stack)
{
    spry_slice span = places->stacks[stack];
    return spry_hash_bytes(places->returns + span.first, span.count * sizeof *places->returns, 1);
}

static int compare_returns(const void *left, const void *right)
{
    const spry_return *a = left, *b = right;
    if (a->state != b->state)
        return a->state > b->state ? 1 : -1;
    if (a->data != b->data)
        return a->data > b->data ? 1 : -1;
    return (a->below > b->below) - (a->below < b->below);
}

uint32_t spry_places_stack(spry_places *places, spry_return *returns, size_t count)
{
    spry_places_charge(places, count);
    if (places->failed)
        return SPRY_NO_STACK;
    if (count > 1)
        qsort(returns, count, sizeof *returns, compare_returns);
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (!kept || compare_returns(&returns[kept - 1], &returns[i]) != 0)
            returns[kept++] = returns[i];
    if (kept > RETURNS_MAX) {
        places->failed = SPRY_ERR_UNSUPPORTED;
        return SPRY_NO_STACK;
    }
    if (!grow_table(&places->stack_table, places, places->n_stacks, stack_hash) ||
        !spry_grow(&places->returns, &places->returns_room, places->n_returns + kept, sizeof *returns) ||
        !spry_grow(&places->stacks, &places->stacks_room, places->n_stacks + 1, sizeof *places->stacks))
        return out_of_memory(places);
    size_t bytes = kept * sizeof *returns, mask = places->stack_table.size - 1;
    size_t at = (size_t)spry_hash_bytes(returns, bytes, 1) & mask;
    for (; places->stack_table.slots[at]; at = (at + 1) & mask) {
        spry_slice there = places->stacks[places->stack_table.slots[at] - 1];
        if (there.count == kept && (!kept || memcmp(places->returns + there.first, returns, bytes) == 0))
            return places->stack_table.slots[at] - 1;
    }
    places->stacks[places->n_stacks] = (spry_slice){(uint32_t)places->n_returns, (uint32_t)kept};
    if (kept)
        memcpy(places->returns + places->n_returns, returns, bytes);
    places->n_returns += kept;
    places->stack_table.slots[at] = (uint32_t)++places->n_stacks;
    return (uint32_t)places->n_stacks - 1;
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

enum { HEADER_WORDS = 2 };

static uint32_t record_words(const spry_places *places, uint32_t record)
{
    uint64_t object = places->words[places->records[record]] >> 32;
    return HEADER_WORDS + places->grammar->objects[object].n_words;
}

/* The content of a record; then, whether `data` of a return to a state is the number of a record. */
static spry_view places_record_bytes(const spry_places *places, uint32_t record)
{
    return (spry_view){(const char *)(places->words + places->records[record]), record_words(places, record) * 8};
}

static bool places_holds_record(const spry_places *places, uint32_t state)
{
    spry_state_kind kind = (spry_state_kind)places->grammar->states[state].kind;
    return kind == SPRY_STATE_KEYS || kind == SPRY_STATE_MANY || kind == SPRY_STATE_AFTER_VALUE ||
           kind == SPRY_STATE_AFTER_COMMA;
}

static uint64_t record_hash(const spry_places *places, uint32_t record)
{
    return spry_hash_bytes(places->words + places->records[record], record_words(places, record) * 8, 2);
}

/* The number of the record whose words were appended last; an equal record is found. */
static uint32_t places_intern_record(spry_places *places, uint32_t n_words)
{
    const uint64_t *words = places->words + places->n_words;
    if (!grow_table(&places->record_table, places, places->n_records, record_hash) ||
        !spry_grow(&places->records, &places->records_room, places->n_records + 1, sizeof *places->records))
        return out_of_memory(places);
    size_t mask = places->record_table.size - 1, at = (size_t)spry_hash_bytes(words, n_words * 8, 2) & mask;
    for (; places->record_table.slots[at]; at = (at + 1) & mask) {
        uint32_t there = places->record_table.slots[at] - 1;
        if (record_words(places, there) == n_words &&
            memcmp(places->words + places->records[there], words, n_words * sizeof *words) == 0)
            return there;
    }
    places->records[places->n_records] = (uint32_t)places->n_words;
    places->n_words += n_words;
    places->record_table.slots[at] = (uint32_t)++places->n_records;
    return (uint32_t)places->n_records - 1;
}

uint32_t spry_places_no_members(spry_places *places, uint32_t object)
{
    const spry_object *made = &places->grammar->objects[object];
    uint32_t n = HEADER_WORDS + made->n_words;
    if (!spry_grow(&places->words, &places->words_room, places->n_words + n, sizeof *places->words))
        return out_of_memory(places);
    uint64_t *words = places->words + places->n_words;
    memset(words, 0, n * sizeof *words);
    words[0] = (uint64_t)object << 32;
    words[1] = made->n_required;
    return places_intern_record(places, n);
}

uint32_t spry_places_member(spry_places *places, uint32_t record, uint32_t declared)
{
    uint32_t n = record_words(places, record);
    if (!spry_grow(&places->words, &places->words_room, places->n_words + n, sizeof *places->words))
        return out_of_memory(places);
    uint64_t *words = places->words + places->n_words;
    memcpy(words, places->words + places->records[record], n * sizeof *words);
    const spry_object *object = &places->grammar->objects[words[0] >> 32];
    /* without a maximum, all counts above the minimum are equivalent */
    if (object->max != SPRY_IR_UNBOUNDED || (uint32_t)words[0] < object->min)
        words[0]++;
    if (declared != SPRY_NO_STATE) {
        uint64_t bit = (uint64_t)1 << declared % 64;
        words[HEADER_WORDS + declared / 64] |= bit;
        words[1] -= (object->required[declared / 64] & bit) != 0;
    }
    /* In an ordered object the keys before this one can no longer come. */
    uint32_t passed = !object->ordered ? 0 : declared == SPRY_NO_STATE ? object->n_declared : declared;
    for (uint32_t i = 0; i < passed; i++)
        words[HEADER_WORDS + i / 64] |= (uint64_t)1 << i % 64;
    return places_intern_record(places, n);
}

spry_record spry_places_record(const spry_places *places, uint32_t record)
{
    const uint64_t *words = places->words + places->records[record];
    return (spry_record){&places->grammar->objects[words[0] >> 32], (uint32_t)words[0], (uint32_t)words[1],
                         words + HEADER_WORDS};
}

/* True if only required members are still allowed, because the maximum leaves no room for others. */
static bool only_required(const spry_record *record)
{
    return record->object->max - record->count <= record->missing;
}

/* The bits of word `word` for keys below `end`. */
static uint64_t bits_below(uint32_t end, uint32_t word)
{
    uint32_t first = word * 64;
    return end <= first ? 0 : end - first >= 64 ? UINT64_MAX : ((uint64_t)1 << (end - first)) - 1;
}

/* In an ordered object: one past the last key that leaves enough keys for the minimum after it. */
static uint32_t last_start(const spry_record *record)
{
    const spry_object *object = record->object;
    uint32_t least = record->count < object->min ? object->min - record->count : 0;
    if (object->n_many || least <= 1)
        return object->n_declared;
    return object->n_declared >= least ? object->n_declared - least + 1 : 0;
}

bool spry_record_allows_declared(const spry_record *record, const uint64_t *keys)
{
    const spry_object *object = record->object;
    if (record->count >= object->max)
        return false;
    bool limited = only_required(record);
    uint32_t end = object->ordered ? last_start(record) : object->n_declared;
    for (uint32_t i = 0; i < object->n_words; i++) {
        uint64_t open = ~record->seen[i] & bits_below(end, i), needed = object->required[i] & ~record->seen[i];
        if (object->ordered && needed) /* nothing comes before a required key that is missing */
            open &= needed ^ (needed - 1);
        if (keys[i] & open & (limited ? object->required[i] : UINT64_MAX))
            return true;
        if (object->ordered && needed)
            return false;
    }
    return false;
}

bool spry_record_allows(const spry_record *record, uint32_t declared)
{
    uint64_t keys[SPRY_IR_MEMBERS_MAX / 64] = {0};
    keys[declared / 64] = (uint64_t)1 << declared % 64;
    return spry_record_allows_declared(record, keys);
}

bool spry_record_allows_many(const spry_record *record)
{
    return record->object->n_many && record->count < record->object->max && !only_required(record) &&
           !(record->object->ordered && record->missing);
}

bool spry_record_may_close(const spry_record *record)
{
    return record->missing == 0 && record->count >= record->object->min;
}

static bool key_alive(spry_places *places, uint32_t state, uint32_t stack)
{
    const spry_grammar *grammar = places->grammar;
    const spry_object *object = &grammar->objects[grammar->states[state].owner];
    uint32_t reach = grammar->reach[object->first_reach + (state - object->key_start)];
    spry_slice span = places->stacks[stack];
    for (uint32_t i = 0; i < span.count; i++) {
        spry_record record = spry_places_record(places, places->returns[span.first + i].data);
        spry_places_charge(places, object->n_words);
        if (spry_record_allows_declared(&record, object->reach_words + (size_t)reach * object->n_words))
            return true;
    }
    return false;
}

/* ---- limits ------------------------------------------------------------------------------------------------------ */

const spry_limit *spry_places_limit(const spry_places *places, const spry_return *back)
{
    return &places->grammar->limits[places->grammar->states[back->state].owner];
}

size_t spry_limit_way(const spry_limit *limit, uint32_t state, uint32_t count)
{
    size_t least = count < limit->min ? limit->min - count : 0;
    return least * limit->ways.n_states + (state - limit->first_state);
}

bool spry_limit_allows(const spry_limit *limit, uint32_t state, uint32_t count)
{
    if (count == SPRY_UNCOUNTED)
        return true;
    uint32_t units = limit->ways.units[spry_limit_way(limit, state, count)];
    return units != SPRY_NO_WAY && count <= limit->max && units <= limit->max - count;
}

uint32_t spry_limit_next(const spry_limit *limit, uint32_t count)
{
    /* without a maximum, all counts above the minimum are equivalent */
    bool same = count == SPRY_UNCOUNTED || (limit->max == SPRY_IR_UNBOUNDED && count >= limit->min);
    return same ? count : count + 1;
}

static bool limit_alive(spry_places *places, uint32_t state, uint32_t stack)
{
    bool unit = places->grammar->states[state].tag != 0;
    spry_slice span = places->stacks[stack];
    for (uint32_t i = 0; i < span.count; i++) {
        const spry_return *back = &places->returns[span.first + i];
        const spry_limit *limit = spry_places_limit(places, back);
        spry_places_charge(places, 1);
        if (spry_limit_allows(limit, state, unit ? spry_limit_next(limit, back->data) : back->data))
            return true;
    }
    return false;
}

bool spry_places_alive(spry_places *places, uint32_t state, uint32_t stack)
{
    switch ((spry_state_kind)places->grammar->states[state].kind) {
    case SPRY_STATE_KEY: return key_alive(places, state, stack);
    case SPRY_STATE_LIMITED: return limit_alive(places, state, stack);
    default: return true;
    }
}

/* ---- sets -------------------------------------------------------------------------------------------------------- */

static uint64_t positions_hash(const spry_position *positions, size_t count, bool may_end)
{
    return spry_hash_bytes(positions, count * sizeof *positions, 3 + may_end);
}

static uint64_t set_hash(const spry_places *places, uint32_t set)
{
    const spry_set *made = &places->sets[set];
    return positions_hash(places->positions + made->positions.first, made->positions.count, made->may_end);
}

static void add_bytes(uint64_t bytes[4], unsigned first, unsigned last)
{
    for (unsigned word = first / 64; word <= last / 64; word++) {
        unsigned low = word == first / 64 ? first % 64 : 0, high = word == last / 64 ? last % 64 : 63;
        bytes[word] |= (UINT64_MAX << low) & (UINT64_MAX >> (63 - high));
    }
}

static void find_bytes(spry_places *places, spry_set *set)
{
    const spry_grammar *grammar = places->grammar;
    for (uint32_t i = 0; i < set->positions.count; i++) {
        spry_position position = places->positions[set->positions.first + i];
        const spry_state *state = &grammar->states[position.state];
        for (uint32_t j = state->first_edge; j < state[1].first_edge; j++) {
            const spry_edge *edge = &grammar->edges[j];
            if (state->kind == SPRY_STATE_PLAIN || spry_places_alive(places, edge->target, position.stack))
                add_bytes(set->bytes, edge->first, edge->last);
        }
    }
}

uint32_t spry_places_set(spry_places *places, const spry_position *positions, size_t count, bool may_end)
{
    if (!grow_table(&places->set_table, places, places->n_sets, set_hash) ||
        !spry_grow(&places->positions, &places->positions_room, places->n_positions + count, sizeof *positions) ||
        !spry_grow(&places->sets, &places->sets_room, places->n_sets + 1, sizeof *places->sets))
        return out_of_memory(places);
    size_t bytes = count * sizeof *positions, mask = places->set_table.size - 1;
    size_t at = (size_t)positions_hash(positions, count, may_end) & mask;
    for (; places->set_table.slots[at]; at = (at + 1) & mask) {
        const spry_set *there = &places->sets[places->set_table.slots[at] - 1];
        if (there->positions.count == count && there->may_end == may_end &&
            (!count || memcmp(places->positions + there->positions.first, positions, bytes) == 0))
            return places->set_table.slots[at] - 1;
    }
    spry_set set = {.positions = {(uint32_t)places->n_positions, (uint32_t)count}, .may_end = may_end};
    if (count)
        memcpy(places->positions + places->n_positions, positions, bytes);
    places->n_positions += count;
    find_bytes(places, &set);
    places->sets[places->n_sets] = set;
    places->set_table.slots[at] = (uint32_t)++places->n_sets;
    return (uint32_t)places->n_sets - 1;
}

/* ---- creation ---------------------------------------------------------------------------------------------------- */

/* Number 0 of stacks and sets is the empty one. */
static bool add_empty(spry_places *places)
{
    spry_places_stack(places, NULL, 0);
    spry_places_set(places, NULL, 0, false);
    return !places->failed;
}

spry_status spry_places_init(spry_places *places, const spry_grammar *grammar, spry_error *error)
{
    *places = (spry_places){.grammar = grammar, .work_max = UINT64_MAX};
    places->closing = spry_closing_create();
    /* allocate all arrays at once, so that no pointer is NULL */
    bool room = spry_grow(&places->returns, &places->returns_room, 64, sizeof *places->returns) &&
                spry_grow(&places->positions, &places->positions_room, 64, sizeof *places->positions);
    if (places->closing && room && add_empty(places))
        return SPRY_OK;
    spry_places_deinit(places);
    return spry_fail_memory(error, "a place in a grammar", sizeof *places);
}

void spry_places_deinit(spry_places *places)
{
    free(places->returns);
    free(places->stacks);
    free(places->words);
    free(places->records);
    free(places->positions);
    free(places->sets);
    free(places->rows);
    free(places->stack_lengths);
    free(places->digests);
    free(places->undigested);
    free(places->stack_table.slots);
    free(places->record_table.slots);
    free(places->set_table.slots);
    spry_closing_destroy(places->closing);
    *places = (spry_places){0};
}

size_t spry_places_bytes(const spry_places *places)
{
    return places->n_returns * sizeof *places->returns + places->n_stacks * sizeof *places->stacks +
           places->n_words * sizeof *places->words + places->n_records * sizeof *places->records +
           places->n_positions * sizeof *places->positions + places->n_sets * sizeof *places->sets +
           places->n_rows * 256 * sizeof *places->rows + places->n_stack_lengths * sizeof *places->stack_lengths +
           places->n_digests * sizeof *places->digests;
}

spry_status spry_places_fail(const spry_places *places, spry_error *error)
{
    if (places->failed == SPRY_ERR_MEMORY)
        return spry_fail(error, SPRY_ERR_MEMORY, "not enough memory to follow the grammar");
    if (places->work > places->work_max)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                         "the grammar takes too long to follow: use fewer repetitions inside repetitions, and rules "
                         "of which only one can match at a place");
    return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                     "the grammar is too ambiguous: the text matches it in more than %d ways at once", RETURNS_MAX);
}

/* ---- removing unused objects ------------------------------------------------------------------------------------- */

/* Removes objects that no root set needs: needed objects are marked from newest to oldest, since objects refer only to
 * older ones, and rebuilt from oldest to newest. */

typedef struct marks {
    bool *stacks, *records;         /* for each object, whether it is needed */
    uint32_t *stack_to, *record_to; /* the new number of each object */
    spry_return *returns;
    spry_position *positions;
    size_t returns_room, positions_room;
} marks;

static void mark_all(const spry_places *places, marks *needed, const uint32_t *roots, size_t n_roots)
{
    for (size_t i = 0; i < n_roots; i++) {
        spry_slice positions = places->sets[roots[i]].positions;
        for (uint32_t j = 0; j < positions.count; j++)
            needed->stacks[places->positions[positions.first + j].stack] = true;
    }
    for (size_t i = places->n_stacks; i-- > 0;) {
        spry_slice returns = places->stacks[i];
        for (uint32_t j = 0; needed->stacks[i] && j < returns.count; j++) {
            spry_return back = places->returns[returns.first + j];
            needed->stacks[back.below] = true;
            if (places_holds_record(places, back.state))
                needed->records[back.data] = true;
        }
    }
}

static bool copy_record(spry_places *to, const spry_places *from, uint32_t record, uint32_t *number)
{
    const uint64_t *words = from->words + from->records[record];
    uint32_t n_words = 2 + from->grammar->objects[words[0] >> 32].n_words;
    if (!spry_grow(&to->words, &to->words_room, to->n_words + n_words, sizeof *to->words))
        return false;
    memcpy(to->words + to->n_words, words, n_words * sizeof *words);
    *number = places_intern_record(to, n_words);
    return !to->failed;
}

static bool copy_stack(spry_places *to, const spry_places *from, marks *needed, uint32_t stack)
{
    spry_slice returns = from->stacks[stack];
    if (!spry_grow(&needed->returns, &needed->returns_room, returns.count, sizeof *needed->returns))
        return false;
    for (uint32_t i = 0; i < returns.count; i++) {
        spry_return back = from->returns[returns.first + i];
        back.below = needed->stack_to[back.below];
        if (places_holds_record(from, back.state))
            back.data = needed->record_to[back.data];
        needed->returns[i] = back;
    }
    needed->stack_to[stack] = spry_places_stack(to, needed->returns, returns.count);
    return !to->failed;
}

static bool copy_set(spry_places *to, const spry_places *from, marks *needed, uint32_t *set)
{
    const spry_set *old = &from->sets[*set];
    uint32_t count = old->positions.count;
    if (!spry_grow(&needed->positions, &needed->positions_room, count, sizeof *needed->positions))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        spry_position position = from->positions[old->positions.first + i];
        needed->positions[i] = (spry_position){position.state, needed->stack_to[position.stack]};
    }
    *set = spry_places_set(to, needed->positions, count, old->may_end);
    return !to->failed;
}

static bool copy_all(spry_places *to, const spry_places *from, marks *needed, uint32_t *roots, size_t n_roots)
{
    for (uint32_t i = 0; i < from->n_records; i++)
        if (needed->records[i] && !copy_record(to, from, i, &needed->record_to[i]))
            return false;
    for (uint32_t i = 0; i < from->n_stacks; i++)
        if (needed->stacks[i] && !copy_stack(to, from, needed, i))
            return false;
    for (size_t i = 0; i < n_roots; i++)
        if (!copy_set(to, from, needed, &roots[i]))
            return false;
    return true;
}

bool spry_places_collect(spry_places *places, uint32_t *roots, size_t n_roots)
{
    spry_places made;
    uint64_t work = places->work, work_max = places->work_max;
    if (spry_places_init(&made, places->grammar, NULL))
        return false;
    marks needed = {0};
    needed.stacks = calloc(places->n_stacks + 1, sizeof *needed.stacks);
    needed.records = calloc(places->n_records + 1, sizeof *needed.records);
    needed.stack_to = calloc(places->n_stacks + 1, sizeof *needed.stack_to);
    needed.record_to = calloc(places->n_records + 1, sizeof *needed.record_to);
    uint32_t *copied = malloc((n_roots + 1) * sizeof *copied);
    bool ok = needed.stacks && needed.records && needed.stack_to && needed.record_to && copied;
    if (ok) {
        mark_all(places, &needed, roots, n_roots);
        memcpy(copied, roots, n_roots * sizeof *copied);
        ok = copy_all(&made, places, &needed, copied, n_roots);
    }
    if (ok)
        memcpy(roots, copied, n_roots * sizeof *roots);
    free(needed.stacks);
    free(needed.records);
    free(needed.stack_to);
    free(needed.record_to);
    free(needed.returns);
    free(needed.positions);
    free(copied);
    spry_places_deinit(ok ? places : &made);
    if (ok) {
        made.work = work;
        made.work_max = work_max;
        *places = made;
    }
    return ok;
}

/* ---- digests ----------------------------------------------------------------------------------------------------- */

/* Digests of sets by their content: equal for equal sets in all matchers of a grammar, although their stacks and
 * records have different numbers. */

typedef struct hashed_return {
    uint64_t state, data[2], below[2];
} hashed_return;

static spry_digest digest_of(const void *data, size_t size)
{
    return (spry_digest){{spry_hash_bytes(data, size, 11) | 1, spry_hash_bytes(data, size, 12)}};
}

static bool is_known(const spry_places *places, uint32_t stack)
{
    return places->digests[stack].words[0] != 0;
}

static void digest_stack(spry_places *places, uint32_t stack)
{
    spry_slice span = places->stacks[stack];
    spry_digest sum = {{1, span.count}};
    for (uint32_t i = 0; i < span.count; i++) {
        spry_return back = places->returns[span.first + i];
        hashed_return part = {back.state, {back.data, 0}, {0, 0}};
        memcpy(part.below, places->digests[back.below].words, sizeof part.below);
        if (places_holds_record(places, back.state)) {
            spry_view words = places_record_bytes(places, back.data);
            memcpy(part.data, digest_of(words.data, words.size).words, sizeof part.data);
        }
        spry_digest one = digest_of(&part, sizeof part);
        /* The order of a stack's returns depends on numbers, so the digest must not depend on the order. */
        sum.words[0] += one.words[0];
        sum.words[1] += one.words[1];
    }
    places->digests[stack] = digest_of(&sum, sizeof sum);
}

/* Computes the digests of a stack and of all stacks below it that have none; nested stacks use no C stack. */
static bool digest_all(spry_places *places, uint32_t stack)
{
    size_t count = 1;
    if (!spry_grow(&places->undigested, &places->undigested_room, 1, sizeof *places->undigested))
        return false;
    places->undigested[0] = stack;
    while (count) {
        uint32_t top = places->undigested[count - 1];
        spry_slice span = places->stacks[top];
        size_t before = count;
        for (uint32_t i = 0; i < span.count && !is_known(places, top); i++) {
            uint32_t below = places->returns[span.first + i].below;
            if (is_known(places, below))
                continue;
            if (!spry_grow(&places->undigested, &places->undigested_room, count + 1, sizeof *places->undigested))
                return false;
            places->undigested[count++] = below;
        }
        if (count > before)
            continue;
        if (!is_known(places, top))
            digest_stack(places, top);
        count--;
    }
    return true;
}

bool spry_places_digest(spry_places *places, spry_digest *out, uint32_t set)
{
    size_t known = places->n_digests;
    spry_slice positions = places->sets[set].positions;
    if (known < places->n_stacks) {
        if (!spry_grow(&places->digests, &places->digests_room, places->n_stacks, sizeof *places->digests))
            return false;
        memset(places->digests + known, 0, (places->n_stacks - known) * sizeof *places->digests);
        places->n_digests = places->n_stacks;
    }
    *out = (spry_digest){{positions.count, places->sets[set].may_end}};
    for (uint32_t i = 0; i < positions.count; i++) {
        spry_position position = places->positions[positions.first + i];
        if (!digest_all(places, position.stack))
            return false;
        uint64_t part[5] = {out->words[0], out->words[1], position.state, places->digests[position.stack].words[0],
                            places->digests[position.stack].words[1]};
        *out = digest_of(part, sizeof part);
    }
    return true;
}
