/* Arrays of which some items satisfy claims (contains, minContains, maxContains, negated items). The items are counted:
 * a *tally* is the number of items so far and, for each demand, the number of those that its claim holds for, each only
 * as far as it matters. Tallies become rules that refer to each other. An item counts for a set of demands: then their
 * claims hold for it, and the opposite of the claims of other demands that have a maximum. */
#include "grammar/schema/schema.h"

#include <stdio.h>

typedef struct tallies {
    const spry_array_shape *array;
    uint32_t n_places; /* items with claims of their own, and one more for all further ones */
    uint32_t n_sets;   /* of demands */
    uint32_t steps[SPRY_SCHEMA_COUNTED_MAX + 1], tops[SPRY_SCHEMA_COUNTED_MAX + 1]; /* items, then each demand */
    uint32_t count;                                                                 /* 0: too many */
} tallies;

static uint32_t largest(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static tallies tallies_of(const spry_array_shape *array)
{
    tallies t = {.array = array, .n_sets = 1u << array->n_demands, .count = 1};
    uint32_t places = (uint32_t)array->n_prefix;
    for (size_t i = 0; i < array->n_demands; i++)
        places = largest(places, array->demands[i].from);
    t.n_places = places + 1;
    for (size_t i = 0; i <= array->n_demands; i++) {
        const spry_array_demand *demand = &array->demands[i - (i > 0)];
        /* whether there is an item at all matters always: a comma comes before the next */
        uint32_t min = i ? demand->min : largest(largest(array->min, places), 1);
        uint32_t max = i ? demand->max : array->max;
        t.tops[i] = max == SPRY_IR_UNBOUNDED ? min : max;
        t.steps[i] = t.count;
        t.count = t.tops[i] < SPRY_SCHEMA_TALLIES_MAX ? t.count * (t.tops[i] + 1) : 0;
        if (t.count == 0 || t.count > SPRY_SCHEMA_TALLIES_MAX) {
            t.count = 0;
            break;
        }
    }
    return t;
}

static uint32_t digit(const tallies *t, uint32_t tally, size_t which)
{
    return tally / t->steps[which] % (t->tops[which] + 1);
}

/* Increments one number of a tally; false when that is not allowed. */
static bool increment(const tallies *t, uint32_t *tally, size_t which, uint32_t max)
{
    if (digit(t, *tally, which) < t->tops[which])
        *tally += t->steps[which];
    else if (max != SPRY_IR_UNBOUNDED)
        return false;
    return true;
}

/* The place of the next item. */
static uint32_t place_after(const tallies *t, uint32_t tally)
{
    uint32_t items = digit(t, tally, 0);
    return items < t->n_places - 1 ? items : t->n_places - 1;
}

/* The tally after one more item that counts for `set`; false when it must not. */
static bool advance(const tallies *t, uint32_t *tally, uint32_t set)
{
    const spry_array_shape *array = t->array;
    uint32_t place = place_after(t, *tally);
    for (size_t i = 0; i < array->n_demands; i++) {
        if (!(set >> i & 1))
            continue;
        if (place < array->demands[i].from || !increment(t, tally, i + 1, array->demands[i].max))
            return false;
    }
    return increment(t, tally, 0, array->max);
}

static bool may_end(const tallies *t, uint32_t tally)
{
    for (size_t i = 0; i < t->array->n_demands; i++)
        if (digit(t, tally, i + 1) < t->array->demands[i].min)
            return false;
    return digit(t, tally, 0) >= t->array->min;
}

static uint32_t goal_of(const tallies *t, const spry_shape *shape, uint32_t tally, uint32_t set)
{
    return shape->item_goals[place_after(t, tally) * t->n_sets + set];
}

static spry_claims claims_of(spry_schema *schema, const tallies *t, uint32_t place, uint32_t set)
{
    spry_claims claims = spry_array_claims(t->array, place);
    for (size_t i = 0; i < t->array->n_demands; i++) {
        const spry_array_demand *demand = &t->array->demands[i];
        if (set >> i & 1)
            claims = spry_claims_add(schema, claims, demand->claim);
        else if (demand->max != SPRY_IR_UNBOUNDED && place >= demand->from)
            claims = spry_claims_add(schema, claims, demand->claim ^ SPRY_CLAIM_NEGATED);
    }
    return claims;
}

void spry_array_lay_out_demands(spry_schema *schema, spry_shape *shape)
{
    const spry_array_shape *array = &shape->as.array;
    tallies t = {0};
    if (array->n_demands <= SPRY_SCHEMA_COUNTED_MAX)
        t = tallies_of(array);
    if (!t.count) {
        spry_schema_refuse(schema, SPRY_ERR_UNSUPPORTED, shape->at, NULL,
                           "too many items must be counted for contains and negated items (%zu claims, %d counts)",
                           array->n_demands, SPRY_SCHEMA_TALLIES_MAX);
        return;
    }
    if (array->unique_at && array->max > 1) {
        spry_schema_refuse(schema, SPRY_ERR_UNSUPPORTED, array->unique_at, "uniqueItems",
                           "cannot be enforced beside contains or a negated items");
        if (!spry_schema_excuse(schema))
            return;
    }
    uint32_t *goals = spry_schema_alloc(schema, (size_t)t.n_places * t.n_sets, sizeof *goals);
    for (uint32_t place = 0; goals && place < t.n_places; place++)
        for (uint32_t set = 0; set < t.n_sets; set++)
            goals[place * t.n_sets + set] = spry_schema_goal(schema, claims_of(schema, &t, place, set));
    shape->item_goals = goals;
}

/* Marks the tallies from which the array can be completed. Items only increase a tally: one pass from the largest. */
static void find_alive(const spry_schema *schema, const spry_shape *shape, const tallies *t, bool *alive)
{
    for (uint32_t tally = t->count; tally-- > 0;) {
        alive[tally] = may_end(t, tally);
        for (uint32_t set = 0; set < t->n_sets && !alive[tally]; set++) {
            uint32_t next = tally;
            alive[tally] = advance(t, &next, set) && next != tally && alive[next] &&
                           schema->goals[goal_of(t, shape, tally, set)]->productive;
        }
    }
}

bool spry_array_meets_demands(const spry_schema *schema, const spry_shape *shape)
{
    tallies t = tallies_of(&shape->as.array);
    bool alive[SPRY_SCHEMA_TALLIES_MAX];
    find_alive(schema, shape, &t, alive);
    return alive[0];
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

enum { NAME_SIZE = 80 };

static spry_view rule_name(char room[NAME_SIZE], const spry_schema *schema, uint32_t tally)
{
    int size = snprintf(room, NAME_SIZE, "json schema %zu array %zu.%u", schema->serial, schema->n_tallied, tally);
    return (spry_view){room, (size_t)size};
}

/* What may follow when so many items are complete; the first item has no comma before it. Items that change nothing
 * repeat. */
static spry_ir_node write_tally(spry_schema *schema, const spry_shape *shape, const tallies *t, const bool *alive,
                                uint32_t tally)
{
    spry_ir *ir = schema->ir;
    enum { SETS = 1 << SPRY_SCHEMA_COUNTED_MAX };
    spry_ir_node same[SETS], other[SETS + 1], comma = tally ? schema->comma : spry_ir_empty(ir);
    size_t n_same = 0, n_other = 0;
    for (uint32_t set = 0; set < t->n_sets; set++) {
        uint32_t next = tally, goal = goal_of(t, shape, tally, set);
        if (!advance(t, &next, set) || !alive[next] || !schema->goals[goal]->productive)
            continue;
        char room[NAME_SIZE];
        spry_ir_node item = spry_goal_node(schema, goal);
        if (next == tally)
            same[n_same++] = spry_ir_sequence(ir, (spry_ir_node[]){comma, item}, 2);
        else
            other[n_other++] =
                spry_ir_sequence(ir, (spry_ir_node[]){comma, item, spry_ir_rule(ir, rule_name(room, schema, next))}, 3);
    }
    if (tally && may_end(t, tally))
        other[n_other++] = spry_ir_empty(ir);
    spry_ir_node rounds = spry_ir_repeat(ir, spry_ir_choice(ir, same, n_same), 0, SPRY_IR_UNBOUNDED);
    return spry_ir_sequence(ir, (spry_ir_node[]){rounds, spry_ir_choice(ir, other, n_other)}, 2);
}

spry_ir_node spry_array_write_demands(spry_schema *schema, const spry_shape *shape)
{
    spry_ir *ir = schema->ir;
    tallies t = tallies_of(&shape->as.array);
    bool alive[SPRY_SCHEMA_TALLIES_MAX];
    find_alive(schema, shape, &t, alive);
    schema->n_tallied++;
    for (uint32_t tally = 1; tally < t.count && !spry_schema_failed(schema); tally++) {
        char room[NAME_SIZE];
        if (alive[tally])
            spry_ir_define(ir, rule_name(room, schema, tally), write_tally(schema, shape, &t, alive, tally));
    }
    spry_ir_node items = write_tally(schema, shape, &t, alive, 0);
    spry_ir_node inside = spry_ir_sequence(ir, (spry_ir_node[]){schema->gap, items, schema->gap}, 3);
    return may_end(&t, 0) ? spry_ir_choice(ir, (spry_ir_node[]){inside, schema->empty_gap}, 2) : inside;
}
