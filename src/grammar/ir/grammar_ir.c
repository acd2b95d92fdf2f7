/* Creates nodes. Equal nodes are stored once, so that equal parts of a grammar share one automaton, and simple nodes
 * are left out (an empty item of a sequence, a choice of one). */
#include "grammar/ir/grammar_ir.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/interrupt.h"
#include "base/utf8.h"
#include "grammar/ir/grow.h"
#include "grammar/ir/ir_nodes.h"

/* ---- sets of code points ----------------------------------------------------------------------------------------- */

enum { SURROGATE_FIRST = 0xD800, SURROGATE_LAST = 0xDFFF };

static int compare_ranges(const void *left, const void *right)
{
    const spry_code_range *a = left, *b = right;
    return (a->first > b->first) - (a->first < b->first);
}

size_t spry_code_ranges_normalize(spry_code_range *ranges, size_t count)
{
    if (count)
        qsort(ranges, count, sizeof *ranges, compare_ranges);
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        spry_code_range range = ranges[i];
        if (range.last > SPRY_CODE_LAST)
            range.last = SPRY_CODE_LAST;
        if (range.first > range.last)
            continue;
        if (kept && range.first <= ranges[kept - 1].last + 1) {
            if (range.last > ranges[kept - 1].last)
                ranges[kept - 1].last = range.last;
        } else {
            ranges[kept++] = range;
        }
    }
    return kept;
}

size_t spry_code_ranges_invert(spry_code_range *out, const spry_code_range *ranges, size_t count)
{
    size_t written = 0;
    uint32_t next = 0;
    for (size_t i = 0; i < count; i++) {
        if (ranges[i].first > next)
            out[written++] = (spry_code_range){next, ranges[i].first - 1};
        next = ranges[i].last + 1;
    }
    if (next <= SPRY_CODE_LAST)
        out[written++] = (spry_code_range){next, SPRY_CODE_LAST};
    return written;
}

/* Removes the surrogates from a normalised set with room for count + 1 ranges. Returns the number of ranges left. */
static size_t code_ranges_drop_surrogates(spry_code_range *ranges, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        spry_code_range *range = &ranges[i];
        if (range->last < SURROGATE_FIRST || range->first > SURROGATE_LAST)
            continue;
        bool before = range->first<SURROGATE_FIRST, after = range->last> SURROGATE_LAST;
        if (before && after) {
            for (size_t j = count; j > i; j--)
                ranges[j] = ranges[j - 1];
            ranges[i].last = SURROGATE_FIRST - 1;
            ranges[i + 1].first = SURROGATE_LAST + 1;
            return count + 1;
        }
        if (before) {
            range->last = SURROGATE_FIRST - 1;
        } else if (after) {
            range->first = SURROGATE_LAST + 1;
        } else {
            for (size_t j = i; j + 1 < count; j++)
                ranges[j] = ranges[j + 1];
            return code_ranges_drop_surrogates(ranges, count - 1);
        }
    }
    return count;
}

/* The last code point of the first part when the range must be split to become products of byte ranges; range.last when
 * it need not be. */
static uint32_t cut(spry_code_range range)
{
    static const uint32_t lengths[] = {0x7F, 0x7FF, 0xFFFF};
    for (size_t i = 0; i < SPRY_COUNT(lengths); i++)
        if (range.first <= lengths[i] && range.last > lengths[i])
            return lengths[i];
    if (range.last <= 0x7F)
        return range.last;
    for (unsigned bits = 6; bits < 24; bits += 6) {
        uint32_t low = ((uint32_t)1 << bits) - 1;
        if ((range.first & ~low) == (range.last & ~low))
            break;
        if (range.first & low)
            return range.first | low;
        if ((range.last & low) != low)
            return (range.last & ~low) - 1;
    }
    return range.last;
}

size_t spry_utf8_products(spry_utf8_product out[SPRY_UTF8_PRODUCTS_MAX], spry_code_range range)
{
    size_t count = 0;
    while (range.first <= range.last) {
        spry_code_range part = {range.first, range.last};
        for (uint32_t last = cut(part); last != part.last; last = cut(part))
            part.last = last;
        spry_utf8_product *product = &out[count++];
        product->size = (unsigned)spry_utf8_encode((char *)product->first, part.first);
        spry_utf8_encode((char *)product->last, part.last);
        range.first = part.last + 1;
    }
    return count;
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

enum {
    NODES_MAX = 1 << 22,
    BYTES_MAX = 1 << 25, /* maximum bytes of all literals */
    ITEMS_MAX = 1 << 23, /* maximum number of ranges, and of children */
    RULES_MAX = 1 << 18,
    WARNINGS_MAX = 1 << 12, /* maximum bytes of warnings */
    NODE_WORK = 16,
};

spry_status spry_ir_create(spry_ir **out, spry_error *error)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return spry_fail_memory(error, "a grammar", sizeof **out);
    spry_arena_init(&(*out)->arena);
    (*out)->spent = &(*out)->work;
    spry_map_init(&(*out)->rule_names);
    spry_map_init(&(*out)->made);
    spry_buffer_init(&(*out)->warnings, WARNINGS_MAX);
    return SPRY_OK;
}

void spry_ir_destroy(spry_ir *ir)
{
    if (!ir)
        return;
    for (size_t i = 0; i < ir->n_automata; i++)
        spry_automaton_deinit(&ir->automata[i]);
    free(ir->nodes);
    free(ir->bytes);
    free(ir->ranges);
    free(ir->children);
    free(ir->objects);
    free(ir->members);
    free(ir->automata);
    free(ir->rules);
    free(ir->interned);
    spry_map_deinit(&ir->rule_names);
    spry_map_deinit(&ir->made);
    spry_buffer_deinit(&ir->warnings);
    spry_arena_deinit(&ir->arena);
    free(ir);
}

spry_status spry_ir_status(const spry_ir *ir, spry_error *error)
{
    if (ir->error.status && error)
        *error = ir->error;
    return ir->error.status;
}

spry_ir_node spry_ir_fail(spry_ir *ir, spry_status status, const char *format, ...)
{
    if (ir->error.status)
        return SPRY_IR_NONE;
    char sentence[SPRY_ERROR_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    spry_fail(&ir->error, status, "%s", sentence);
    return SPRY_IR_NONE;
}

void spry_ir_spend(spry_ir *ir, uint64_t work)
{
    *ir->spent += work;
    if (spry_interrupted(work))
        spry_ir_fail(ir, SPRY_ERR_CANCELLED, "the grammar was not compiled: cancelled");
    if (*ir->spent > SPRY_AUTOMATON_WORK_MAX)
        spry_ir_fail(ir, SPRY_ERR_UNSUPPORTED, "%s", SPRY_IR_TOO_MUCH_WORK);
}

void spry_ir_warn(spry_ir *ir, const char *sentence)
{
    spry_buffer *all = &ir->warnings;
    if (all->size + strlen(sentence) + 2 > WARNINGS_MAX || (all->size && strstr(all->data, sentence)))
        return;
    spry_buffer_text(all, all->size ? "\n" : "");
    spry_buffer_text(all, sentence);
}

static spry_ir_node fail_memory(spry_ir *ir)
{
    return spry_ir_fail(ir, SPRY_ERR_MEMORY, "not enough memory for a grammar of %zu parts", ir->n_nodes);
}

/* ---- equal nodes are stored once --------------------------------------------------------------------------------- */

/* The contents of arrays that a node refers to. */
static const void *payload(const spry_ir *ir, const spry_ir_entry *entry, size_t *size)
{
    switch (entry->kind) {
    case SPRY_IR_LITERAL: *size = entry->b; return ir->bytes + entry->a;
    case SPRY_IR_CLASS: *size = entry->b * sizeof *ir->ranges; return ir->ranges + entry->a;
    case SPRY_IR_SEQUENCE:
    case SPRY_IR_CHOICE: *size = entry->b * sizeof *ir->children; return ir->children + entry->a;
    default: *size = 0; return NULL;
    }
}

static void drop_payload(spry_ir *ir, const spry_ir_entry *entry)
{
    switch (entry->kind) {
    case SPRY_IR_LITERAL: ir->n_bytes = entry->a; break;
    case SPRY_IR_CLASS: ir->n_ranges = entry->a; break;
    case SPRY_IR_SEQUENCE:
    case SPRY_IR_CHOICE: ir->n_children = entry->a; break;
    default: break;
    }
}

static uint64_t entry_hash(const spry_ir *ir, const spry_ir_entry *entry)
{
    size_t size;
    const void *data = payload(ir, entry, &size);
    if (data)
        return spry_hash_bytes(data, size, entry->kind);
    return spry_hash_bytes(entry, sizeof *entry, 0);
}

static bool entry_equal(const spry_ir *ir, const spry_ir_entry *a, const spry_ir_entry *b)
{
    size_t a_size, b_size;
    const void *a_data = payload(ir, a, &a_size), *b_data = payload(ir, b, &b_size);
    if (a->kind != b->kind)
        return false;
    if (a_data)
        return a_size == b_size && memcmp(a_data, b_data, a_size) == 0;
    return a->a == b->a && a->b == b->b && a->c == b->c;
}

static size_t find_slot(const spry_ir *ir, const spry_ir_entry *entry)
{
    size_t at = (size_t)entry_hash(ir, entry) & (ir->interned_size - 1);
    while (ir->interned[at] && !entry_equal(ir, &ir->nodes[ir->interned[at] - 1], entry))
        at = (at + 1) & (ir->interned_size - 1);
    return at;
}

static bool grow_interned(spry_ir *ir)
{
    if ((ir->n_nodes + 1) * 2 <= ir->interned_size)
        return true;
    size_t size = ir->interned_size ? ir->interned_size * 2 : 256;
    uint32_t *slots = calloc(size, sizeof *slots);
    if (!slots)
        return false;
    free(ir->interned);
    ir->interned = slots;
    ir->interned_size = size;
    for (size_t i = 0; i < ir->n_nodes; i++)
        ir->interned[find_slot(ir, &ir->nodes[i])] = (uint32_t)i + 1;
    return true;
}

spry_ir_node spry_ir_add(spry_ir *ir, spry_ir_entry entry)
{
    if (ir->error.status)
        return SPRY_IR_NONE;
    if (ir->n_nodes >= NODES_MAX)
        return spry_ir_fail(ir, SPRY_ERR_INPUT, "the grammar has more than %d parts", NODES_MAX);
    spry_ir_spend(ir, NODE_WORK);
    if (!grow_interned(ir) || !spry_grow(&ir->nodes, &ir->nodes_room, ir->n_nodes + 1, sizeof *ir->nodes))
        return fail_memory(ir);
    size_t slot = find_slot(ir, &entry);
    if (ir->interned[slot]) {
        drop_payload(ir, &entry);
        return ir->interned[slot] - 1;
    }
    ir->nodes[ir->n_nodes] = entry;
    ir->interned[slot] = (uint32_t)++ir->n_nodes;
    return (spry_ir_node)ir->n_nodes - 1;
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

spry_ir_node spry_ir_empty(spry_ir *ir)
{
    return spry_ir_add(ir, (spry_ir_entry){.kind = SPRY_IR_EMPTY});
}

spry_ir_node spry_ir_never(spry_ir *ir)
{
    return spry_ir_add(ir, (spry_ir_entry){.kind = SPRY_IR_NEVER});
}

spry_ir_node spry_ir_literal(spry_ir *ir, spry_view bytes)
{
    if (ir->error.status)
        return SPRY_IR_NONE;
    if (bytes.size == 0)
        return spry_ir_empty(ir);
    if (bytes.size > BYTES_MAX - ir->n_bytes)
        return spry_ir_fail(ir, SPRY_ERR_INPUT, "the literals of the grammar have more than %d bytes", BYTES_MAX);
    if (!spry_grow(&ir->bytes, &ir->bytes_room, ir->n_bytes + bytes.size, 1))
        return fail_memory(ir);
    uint32_t first = (uint32_t)ir->n_bytes;
    memcpy(ir->bytes + first, bytes.data, bytes.size);
    ir->n_bytes += bytes.size;
    return spry_ir_add(ir, (spry_ir_entry){SPRY_IR_LITERAL, first, (uint32_t)bytes.size, 0});
}

spry_ir_node spry_ir_class(spry_ir *ir, const spry_code_range *ranges, size_t count, bool negated)
{
    if (ir->error.status)
        return SPRY_IR_NONE;
    if (count > (ITEMS_MAX - ir->n_ranges) / 2 - 2)
        return spry_ir_fail(ir, SPRY_ERR_INPUT, "the character classes of the grammar have more than %d ranges",
                            ITEMS_MAX / 2);
    if (!spry_grow(&ir->ranges, &ir->ranges_room, ir->n_ranges + 2 * count + 3, sizeof *ir->ranges))
        return fail_memory(ir);
    spry_code_range *given = ir->ranges + ir->n_ranges, *kept = given;
    if (count)
        memcpy(given, ranges, count * sizeof *given);
    size_t n = spry_code_ranges_normalize(given, count);
    if (negated) {
        spry_code_range *inverse = given + n;
        n = spry_code_ranges_invert(inverse, given, n);
        memmove(kept, inverse, n * sizeof *kept);
    }
    n = code_ranges_drop_surrogates(kept, n);
    if (n == 0)
        return spry_ir_never(ir);
    uint32_t first = (uint32_t)ir->n_ranges;
    ir->n_ranges += n;
    return spry_ir_add(ir, (spry_ir_entry){SPRY_IR_CLASS, first, (uint32_t)n, 0});
}

/* Copies children that are not of kind `without`; false when the builder has failed. */
static bool add_children(spry_ir *ir, const spry_ir_node *nodes, size_t count, spry_ir_kind without)
{
    if (ir->error.status)
        return false;
    if (count > ITEMS_MAX - ir->n_children) {
        spry_ir_fail(ir, SPRY_ERR_INPUT, "the grammar has more than %d parts", ITEMS_MAX);
        return false;
    }
    if (!spry_grow(&ir->children, &ir->children_room, ir->n_children + count, sizeof *ir->children)) {
        fail_memory(ir);
        return false;
    }
    for (size_t i = 0; i < count; i++)
        if (ir->nodes[nodes[i]].kind != without)
            ir->children[ir->n_children++] = nodes[i];
    return true;
}

/* Creates a node of the children added since index `first`; without children, a node of kind `nothing`. */
static spry_ir_node finish_children(spry_ir *ir, spry_ir_kind kind, size_t first, spry_ir_kind nothing)
{
    size_t count = ir->n_children - first;
    if (count == 0)
        return spry_ir_add(ir, (spry_ir_entry){.kind = nothing});
    if (count == 1) {
        ir->n_children = first;
        return ir->children[first];
    }
    return spry_ir_add(ir, (spry_ir_entry){kind, (uint32_t)first, (uint32_t)count, 0});
}

spry_ir_node spry_ir_sequence(spry_ir *ir, const spry_ir_node *nodes, size_t count)
{
    size_t first = ir->n_children;
    if (!add_children(ir, nodes, count, SPRY_IR_EMPTY))
        return SPRY_IR_NONE;
    for (size_t i = first; i < ir->n_children; i++) {
        if (ir->nodes[ir->children[i]].kind == SPRY_IR_NEVER) {
            ir->n_children = first;
            return spry_ir_never(ir);
        }
    }
    return finish_children(ir, SPRY_IR_SEQUENCE, first, SPRY_IR_EMPTY);
}

spry_ir_node spry_ir_choice(spry_ir *ir, const spry_ir_node *nodes, size_t count)
{
    size_t first = ir->n_children;
    if (!add_children(ir, nodes, count, SPRY_IR_NEVER))
        return SPRY_IR_NONE;
    return finish_children(ir, SPRY_IR_CHOICE, first, SPRY_IR_NEVER);
}

/* Simplifies a repetition whose body is x{0,n} or x{1,n} to a repetition of x; every count between minimum and maximum
 * stays possible. */
static void flatten_repeat(const spry_ir *ir, spry_ir_entry *outer)
{
    const spry_ir_entry *inner = &ir->nodes[outer->a];
    if (inner->kind != SPRY_IR_REPEAT || inner->b > 1)
        return;
    bool endless = inner->c == SPRY_IR_UNBOUNDED || outer->c == SPRY_IR_UNBOUNDED;
    uint64_t most = endless ? SPRY_IR_UNBOUNDED : (uint64_t)inner->c * outer->c;
    if (!endless && most >= SPRY_IR_UNBOUNDED)
        return;
    *outer = (spry_ir_entry){SPRY_IR_REPEAT, inner->a, inner->b * outer->b, (uint32_t)most};
}

spry_ir_node spry_ir_repeat(spry_ir *ir, spry_ir_node node, uint32_t min, uint32_t max)
{
    if (ir->error.status)
        return SPRY_IR_NONE;
    if (min > max)
        return spry_ir_fail(ir, SPRY_ERR_INPUT, "a repetition of at least %u and at most %u times", min, max);
    spry_ir_kind kind = ir->nodes[node].kind;
    if (max == 0 || kind == SPRY_IR_EMPTY || (kind == SPRY_IR_NEVER && min == 0))
        return spry_ir_empty(ir);
    if (kind == SPRY_IR_NEVER || (min == 1 && max == 1))
        return node;
    spry_ir_entry made = {SPRY_IR_REPEAT, node, min, max};
    flatten_repeat(ir, &made);
    return spry_ir_add(ir, made);
}

spry_ir_node spry_ir_take_automaton(spry_ir *ir, spry_automaton *automaton)
{
    if (ir->error.status || automaton->n_states == 0) {
        spry_automaton_deinit(automaton);
        return spry_ir_never(ir);
    }
    if (!spry_grow(&ir->automata, &ir->automata_room, ir->n_automata + 1, sizeof *ir->automata)) {
        spry_automaton_deinit(automaton);
        return fail_memory(ir);
    }
    ir->automata[ir->n_automata++] = *automaton;
    return spry_ir_add(ir, (spry_ir_entry){.kind = SPRY_IR_AUTOMATON, .a = (uint32_t)ir->n_automata - 1});
}

/* ---- rules and members ------------------------------------------------------------------------------------------- */

/* The number of a rule, new or known; false when the builder has failed. */
static bool find_rule(spry_ir *ir, spry_view name, uint32_t *rule)
{
    if (ir->error.status)
        return false;
    if (spry_map_find(&ir->rule_names, name, rule))
        return true;
    if (ir->n_rules >= RULES_MAX) {
        spry_ir_fail(ir, SPRY_ERR_INPUT, "the grammar has more than %d rules", RULES_MAX);
        return false;
    }
    char *copy = spry_arena_copy(&ir->arena, name);
    bool added;
    if (!copy || !spry_grow(&ir->rules, &ir->rules_room, ir->n_rules + 1, sizeof *ir->rules) ||
        !spry_map_add(&ir->rule_names, (spry_view){copy, name.size}, (uint32_t)ir->n_rules, &added)) {
        fail_memory(ir);
        return false;
    }
    *rule = (uint32_t)ir->n_rules;
    ir->rules[ir->n_rules++] = (spry_ir_rule_entry){{copy, name.size}, SPRY_IR_NONE};
    return true;
}

spry_ir_node spry_ir_rule(spry_ir *ir, spry_view name)
{
    uint32_t rule;
    if (!find_rule(ir, name, &rule))
        return SPRY_IR_NONE;
    return spry_ir_add(ir, (spry_ir_entry){.kind = SPRY_IR_RULE, .a = rule});
}

void spry_ir_define(spry_ir *ir, spry_view name, spry_ir_node node)
{
    uint32_t rule;
    if (!find_rule(ir, name, &rule))
        return;
    if (ir->rules[rule].node != SPRY_IR_NONE)
        spry_ir_fail(ir, SPRY_ERR_INPUT, "the rule '%.*s' is defined twice", SPRY_VIEW_ARG(name));
    else
        ir->rules[rule].node = node;
}

bool spry_ir_is_defined(const spry_ir *ir, spry_view name)
{
    uint32_t rule;
    return spry_map_find(&ir->rule_names, name, &rule) && ir->rules[rule].node != SPRY_IR_NONE;
}

static spry_ir_node add_members(spry_ir *ir, const spry_ir_member *members, size_t count, spry_ir_object object)
{
    if (ir->error.status)
        return SPRY_IR_NONE;
    if (count > SPRY_IR_MEMBERS_MAX)
        return spry_ir_fail(ir, SPRY_ERR_INPUT, "an object with %zu declared keys; at most %d can be enforced", count,
                            SPRY_IR_MEMBERS_MAX);
    if (!spry_grow(&ir->members, &ir->members_room, ir->n_members + count, sizeof *ir->members) ||
        !spry_grow(&ir->objects, &ir->objects_room, ir->n_objects + 1, sizeof *ir->objects))
        return fail_memory(ir);
    object.first = (uint32_t)ir->n_members;
    object.count = (uint32_t)count;
    if (count)
        memcpy(ir->members + ir->n_members, members, count * sizeof *members);
    ir->n_members += count;
    ir->objects[ir->n_objects++] = object;
    return spry_ir_add(ir, (spry_ir_entry){.kind = SPRY_IR_MEMBERS, .a = (uint32_t)ir->n_objects - 1});
}

spry_ir_node spry_ir_members(spry_ir *ir, const spry_ir_member *members, size_t count, spry_ir_node comma, uint32_t min,
                             uint32_t max)
{
    return add_members(ir, members, count, (spry_ir_object){.comma = comma, .min = min, .max = max});
}

spry_ir_node spry_ir_members_ordered(spry_ir *ir, const spry_ir_member *members, size_t count, spry_ir_node comma,
                                     uint32_t min, uint32_t max)
{
    return add_members(ir, members, count, (spry_ir_object){.comma = comma, .min = min, .max = max, .ordered = true});
}

/* ---- nested alternatives ----------------------------------------------------------------------------------------- */

void spry_ir_groups_init(spry_ir_groups *groups, spry_ir *ir)
{
    *groups = (spry_ir_groups){.ir = ir};
}

void spry_ir_groups_deinit(spry_ir_groups *groups)
{
    free(groups->items);
    free(groups->alternatives);
    free(groups->open);
    *groups = (spry_ir_groups){0};
}

static void groups_fail_memory(spry_ir_groups *groups)
{
    spry_ir_fail(groups->ir, SPRY_ERR_MEMORY, "not enough memory for a grammar of %zu parts", groups->n_items);
}

void spry_ir_groups_open(spry_ir_groups *groups)
{
    if (!spry_grow(&groups->open, &groups->open_room, groups->n_open + 1, sizeof *groups->open))
        groups_fail_memory(groups);
    else
        groups->open[groups->n_open++] = (spry_ir_group){groups->n_items, groups->n_alternatives};
}

void spry_ir_groups_item(spry_ir_groups *groups, spry_ir_node node)
{
    if (!spry_grow(&groups->items, &groups->items_room, groups->n_items + 1, sizeof *groups->items))
        groups_fail_memory(groups);
    else
        groups->items[groups->n_items++] = node;
}

void spry_ir_groups_alternative(spry_ir_groups *groups)
{
    if (spry_ir_status(groups->ir, NULL))
        return;
    size_t first = groups->open[groups->n_open - 1].first_item;
    spry_ir_node node = groups->n_items > first
                            ? spry_ir_sequence(groups->ir, groups->items + first, groups->n_items - first)
                            : spry_ir_empty(groups->ir);
    groups->n_items = first;
    if (!spry_grow(&groups->alternatives, &groups->alternatives_room, groups->n_alternatives + 1, sizeof node))
        groups_fail_memory(groups);
    else
        groups->alternatives[groups->n_alternatives++] = node;
}

spry_ir_node spry_ir_groups_close(spry_ir_groups *groups)
{
    spry_ir_groups_alternative(groups);
    if (spry_ir_status(groups->ir, NULL))
        return SPRY_IR_NONE;
    size_t first = groups->open[--groups->n_open].first_alternative;
    spry_ir_node node = spry_ir_choice(groups->ir, groups->alternatives + first, groups->n_alternatives - first);
    groups->n_alternatives = first;
    return node;
}

spry_ir_node *spry_ir_groups_last(spry_ir_groups *groups)
{
    if (spry_ir_status(groups->ir, NULL) || groups->n_items == groups->open[groups->n_open - 1].first_item)
        return NULL;
    return &groups->items[groups->n_items - 1];
}
