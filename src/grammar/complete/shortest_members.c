/* The members an object still needs: the missing required ones and, up to the minimum count, the shortest of the
 * others. */
#include "grammar/complete/shortest.h"
#include "grammar/ir/grow.h"

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

/* Moves the `wanted` shortest to the front, in order; mostly that is one. */
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
