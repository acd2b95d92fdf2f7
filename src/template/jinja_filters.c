/* Filters, for sequences and for texts, numbers and single values. */
#include <math.h>
#include <stdio.h>

#include "base/number.h"
#include "template/jinja_eval.h"
#include "template/jinja_value.h"

typedef spry_jinja_value spry_jinja_filter_call(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args);

typedef struct spry_jinja_filter_entry {
    const char *name;
    spry_jinja_filter_call *call;
} spry_jinja_filter_entry;

/* ---- sequences --------------------------------------------------------------------------------------------------- */

/* Sequence filters. Where Jinja2 returns a generator, the list is marked lazy, so that its truth value is the same. */

static spry_jinja_value lazy(spry_jinja_run *run, spry_jinja_list *list)
{
    if (!run->status)
        list->lazy = true;
    return SPRY_JINJA_SEQUENCE(list);
}

/* "a.b.0": attributes of attributes; an integer is an index. */
static spry_jinja_value attribute_path(spry_jinja_run *run, spry_jinja_value v, spry_jinja_value path)
{
    if (path.kind != SPRY_JINJA_STRING)
        return spry_jinja_index(run, v, path);
    spry_view text = spry_jinja_view(path);
    for (size_t at = 0, end; at <= text.size && !run->status; at = end + 1) {
        uint64_t index;
        for (end = at; end < text.size && text.data[end] != '.';)
            end++;
        spry_view *part = spry_jinja_alloc(run, 1, sizeof *part);
        if (!part)
            break;
        *part = (spry_view){text.data + at, end - at};
        v = spry_number_u64(&index, *part) && index <= INT64_MAX
                ? spry_jinja_index(run, v, SPRY_JINJA_INTEGER((int64_t)index))
            : v.kind == SPRY_JINJA_DICT ? spry_jinja_index(run, v, spry_jinja_text(run, *part, false))
                                        : spry_jinja_attribute(run, v, part);
    }
    return v;
}

/* ---- order ------------------------------------------------------------------------------------------------------- */

typedef struct sort_key {
    spry_jinja_value key, item;
} sort_key;

/* A stable merge sort, for few comparisons. */
static void merge_sort(spry_jinja_run *run, sort_key *items, sort_key *spare, size_t count, bool fold, bool descending)
{
    if (count < 2 || !spry_jinja_enter(run))
        return;
    size_t half = count / 2, a = 0, b = half;
    merge_sort(run, items, spare, half, fold, descending);
    merge_sort(run, items + half, spare, count - half, fold, descending);
    for (size_t i = 0; i < count; i++) {
        bool left = a < half;
        if (left && b < count) {
            int order = spry_jinja_order(run, items[a].key, items[b].key, fold);
            left = descending ? order >= 0 : order <= 0;
        }
        spare[i] = left ? items[a++] : items[b++];
    }
    memcpy(items, spare, count * sizeof *items);
    run->depth--;
}

/* Sorts in place by the attribute `by` of the items, or by the items. */
static void sort_list(spry_jinja_run *run, spry_jinja_list *list, spry_jinja_value by, bool fold, bool descending)
{
    sort_key *items = spry_jinja_alloc(run, list->count + 1, sizeof *items);
    sort_key *spare = spry_jinja_alloc(run, list->count + 1, sizeof *spare);
    if (!items || !spare)
        return;
    for (size_t i = 0; i < list->count && !run->status; i++) {
        spry_jinja_value item = list->items[i];
        items[i] = (sort_key){by.kind == SPRY_JINJA_NONE ? item : attribute_path(run, item, by), item};
    }
    if (!run->status)
        merge_sort(run, items, spare, list->count, fold, descending);
    for (size_t i = 0; i < list->count && !run->status; i++)
        list->items[i] = items[i].item;
}

static spry_jinja_list *copy_items(spry_jinja_run *run, spry_jinja_value v)
{
    const spry_jinja_list *items = spry_jinja_items(run, v);
    spry_jinja_list *copy = spry_jinja_list_create(run, items->count);
    for (size_t i = 0; i < items->count; i++)
        spry_jinja_list_push(run, copy, items->items[i]);
    return copy;
}

static bool flag_arg(const spry_jinja_args *args, size_t index, const char *name)
{
    return spry_jinja_truth(spry_jinja_arg(args, index, name, SPRY_JINJA_BOOLEAN(false)));
}

static spry_jinja_value filter_sort(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    spry_jinja_list *list = copy_items(run, v);
    sort_list(run, list, spry_jinja_arg(args, 2, "attribute", SPRY_JINJA_NULL), !flag_arg(args, 1, "case_sensitive"),
              flag_arg(args, 0, "reverse"));
    return SPRY_JINJA_SEQUENCE(list);
}

static spry_jinja_list *dict_pairs(spry_jinja_run *run, spry_jinja_value v, const char *filter)
{
    spry_jinja_list *list = spry_jinja_list_create(run, v.kind == SPRY_JINJA_DICT ? v.dict->count : 0);
    if (v.kind == SPRY_JINJA_DICT)
        for (size_t i = 0; i < v.dict->count && !run->status; i++)
            spry_jinja_list_push(run, list, spry_jinja_pair(run, v.dict->entries[i].key, v.dict->entries[i].value));
    else if (v.kind != SPRY_JINJA_UNDEFINED)
        spry_jinja_fail(run, "%s takes a dict, not a %s", filter, spry_jinja_kind_name(v));
    return list;
}

static spry_jinja_value filter_items(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    (void)args;
    return lazy(run, dict_pairs(run, v, "items"));
}

static spry_jinja_value filter_dictsort(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    spry_jinja_list *list = dict_pairs(run, v, "dictsort");
    spry_jinja_value by = spry_jinja_arg(args, 1, "by", SPRY_JINJA_NULL);
    bool by_value = by.kind == SPRY_JINJA_STRING && spry_view_is(spry_jinja_view(by), "value");
    sort_list(run, list, SPRY_JINJA_INTEGER(by_value), !flag_arg(args, 0, "case_sensitive"),
              flag_arg(args, 2, "reverse"));
    return SPRY_JINJA_SEQUENCE(list);
}

static spry_jinja_value filter_reverse(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    (void)args;
    if (v.kind == SPRY_JINJA_STRING)
        return spry_jinja_slice(run, v, (spry_jinja_value[]){SPRY_JINJA_NULL, SPRY_JINJA_NULL, SPRY_JINJA_INTEGER(-1)});
    const spry_jinja_list *items = spry_jinja_items(run, v);
    spry_jinja_list *list = spry_jinja_list_create(run, items->count);
    for (size_t i = items->count; i > 0; i--)
        spry_jinja_list_push(run, list, items->items[i - 1]);
    return lazy(run, list);
}

static spry_jinja_value filter_unique(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    const spry_jinja_list *items = spry_jinja_items(run, v);
    spry_jinja_list *list = spry_jinja_list_create(run, 0), *keys = spry_jinja_list_create(run, 0);
    spry_jinja_value by = spry_jinja_arg(args, 1, "attribute", SPRY_JINJA_NULL);
    bool fold = !flag_arg(args, 0, "case_sensitive");
    for (size_t i = 0; i < items->count && !run->status; i++) {
        spry_jinja_value key = items->items[i];
        if (by.kind != SPRY_JINJA_NONE)
            key = attribute_path(run, key, by);
        if (fold && key.kind == SPRY_JINJA_STRING)
            key = spry_jinja_change_case(run, key, SPRY_JINJA_LOWER);
        if (spry_jinja_contains(run, SPRY_JINJA_SEQUENCE(keys), key))
            continue;
        spry_jinja_list_push(run, keys, key);
        spry_jinja_list_push(run, list, items->items[i]);
    }
    return lazy(run, list);
}

/* ---- one of them ------------------------------------------------------------------------------------------------- */

static spry_jinja_value filter_first(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    const spry_jinja_list *items = spry_jinja_items(run, v);
    (void)args;
    return items->count ? items->items[0] : SPRY_JINJA_NOTHING;
}

static spry_jinja_value filter_last(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    const spry_jinja_list *items = spry_jinja_items(run, v);
    (void)args;
    return items->count ? items->items[items->count - 1] : SPRY_JINJA_NOTHING;
}

static spry_jinja_value extreme(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args, int wanted)
{
    const spry_jinja_list *items = spry_jinja_items(run, v);
    spry_jinja_value by = spry_jinja_arg(args, 1, "attribute", SPRY_JINJA_NULL), best = SPRY_JINJA_NOTHING,
                     best_key = best;
    bool fold = !flag_arg(args, 0, "case_sensitive");
    for (size_t i = 0; i < items->count && !run->status; i++) {
        spry_jinja_value item = items->items[i];
        spry_jinja_value key = by.kind == SPRY_JINJA_NONE ? item : attribute_path(run, item, by);
        if (i && spry_jinja_order(run, key, best_key, fold) != wanted)
            continue;
        best = item;
        best_key = key;
    }
    return best;
}

static spry_jinja_value filter_min(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    return extreme(run, v, args, -1);
}

static spry_jinja_value filter_max(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    return extreme(run, v, args, 1);
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static spry_jinja_value filter_list(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    (void)args;
    return SPRY_JINJA_SEQUENCE(copy_items(run, v));
}

static spry_jinja_value filter_join(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    const spry_jinja_list *items = spry_jinja_items(run, v);
    spry_jinja_value between = spry_jinja_arg(args, 0, "d", SPRY_JINJA_NOTHING);
    spry_jinja_value by = spry_jinja_arg(args, 1, "attribute", SPRY_JINJA_NULL);
    spry_jinja_builder b;
    spry_jinja_builder_init(&b, run);
    for (size_t i = 0; i < items->count && !run->status; i++) {
        if (i)
            spry_jinja_append_value(&b, between);
        spry_jinja_append_value(&b, by.kind == SPRY_JINJA_NONE ? items->items[i]
                                                               : attribute_path(run, items->items[i], by));
    }
    return spry_jinja_builder_string(&b);
}

static spry_jinja_value filter_sum(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    const spry_jinja_list *items = spry_jinja_items(run, v);
    spry_jinja_value by = spry_jinja_arg(args, 0, "attribute", SPRY_JINJA_NULL);
    spry_jinja_value sum = spry_jinja_arg(args, 1, "start", SPRY_JINJA_INTEGER(0));
    for (size_t i = 0; i < items->count && !run->status; i++)
        sum = spry_jinja_arithmetic(run, SPRY_JINJA_ADD, sum,
                                    by.kind == SPRY_JINJA_NONE ? items->items[i]
                                                               : attribute_path(run, items->items[i], by));
    return sum;
}

/* The input of map and select filters: a false value counts as empty. */
static const spry_jinja_list *items_if_true(spry_jinja_run *run, spry_jinja_value v)
{
    return spry_jinja_items(run, spry_jinja_truth(v) ? v : SPRY_JINJA_NOTHING);
}

static spry_jinja_args behind(const spry_jinja_args *args, size_t skipped)
{
    size_t skip = skipped < args->count ? skipped : args->count;
    return (spry_jinja_args){args->items ? args->items + skip : NULL, args->count - skip, args->named};
}

static spry_jinja_value filter_map(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    const spry_jinja_list *items = items_if_true(run, v);
    spry_jinja_list *list = spry_jinja_list_create(run, items->count);
    const spry_jinja_value *by = spry_jinja_dict_find_text(args->named, SPRY_VIEW("attribute"));
    const spry_jinja_value *missing = spry_jinja_dict_find_text(args->named, SPRY_VIEW("default"));
    spry_jinja_args rest = behind(args, 1);
    if (!by && (args->count == 0 || args->items[0].kind != SPRY_JINJA_STRING))
        spry_jinja_fail(run, "map() takes the name of a filter, or attribute=");
    for (size_t i = 0; i < items->count && !run->status; i++) {
        spry_jinja_value item = by ? attribute_path(run, items->items[i], *by)
                                   : spry_jinja_filter(run, spry_jinja_view(args->items[0]), items->items[i], &rest);
        spry_jinja_list_push(run, list, missing && item.kind == SPRY_JINJA_UNDEFINED ? *missing : item);
    }
    return lazy(run, list);
}

/* The items for which a test (or their truth value) is `wanted`; with `by_attribute`, of the items' attribute. */
static spry_jinja_value choose(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args, bool by_attribute,
                               bool wanted)
{
    const spry_jinja_list *items = items_if_true(run, v);
    spry_jinja_list *list = spry_jinja_list_create(run, 0);
    spry_jinja_value test = spry_jinja_arg(args, by_attribute, NULL, SPRY_JINJA_NULL);
    spry_jinja_args rest = behind(args, 1u + by_attribute);
    if ((by_attribute && args->count == 0) || (test.kind != SPRY_JINJA_NONE && test.kind != SPRY_JINJA_STRING))
        spry_jinja_fail(run, "select, reject, selectattr and rejectattr take names of attributes and tests");
    for (size_t i = 0; i < items->count && !run->status; i++) {
        spry_jinja_value item = items->items[i];
        if (by_attribute)
            item = attribute_path(run, item, args->items[0]);
        bool is = test.kind == SPRY_JINJA_NONE ? spry_jinja_truth(item)
                                               : spry_jinja_test(run, spry_jinja_view(test), item, &rest);
        if (is == wanted)
            spry_jinja_list_push(run, list, items->items[i]);
    }
    return lazy(run, list);
}

static spry_jinja_value filter_select(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    return choose(run, v, args, false, true);
}

static spry_jinja_value filter_reject(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    return choose(run, v, args, false, false);
}

static spry_jinja_value filter_selectattr(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    return choose(run, v, args, true, true);
}

static spry_jinja_value filter_rejectattr(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    return choose(run, v, args, true, false);
}

/* Lists of `n` items each; the last is padded if a fill value is given. */
static spry_jinja_value filter_batch(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    const spry_jinja_list *items = spry_jinja_items(run, v);
    spry_jinja_list *rows = spry_jinja_list_create(run, 0), *row = NULL;
    spry_jinja_value fill = spry_jinja_arg(args, 1, "fill_with", SPRY_JINJA_NULL);
    int64_t n = 0;
    if (!spry_jinja_to_int(spry_jinja_arg(args, 0, "linecount", SPRY_JINJA_NULL), &n) || n < 1)
        spry_jinja_fail(run, "batch() takes a number of items");
    for (size_t i = 0; i < items->count && !run->status; i++) {
        if (i % (uint64_t)n == 0) {
            row = spry_jinja_list_create(run, 0);
            spry_jinja_list_push(run, rows, SPRY_JINJA_SEQUENCE(row));
        }
        spry_jinja_list_push(run, row, items->items[i]);
    }
    while (row && fill.kind != SPRY_JINJA_NONE && row->count < (uint64_t)n && spry_jinja_spend(run, 0))
        spry_jinja_list_push(run, row, fill);
    return lazy(run, rows);
}

/* NULL: not a sequence filter. */
static spry_jinja_filter_call *find_sequence_filter(spry_view name)
{
    static const spry_jinja_filter_entry filters[] = {
        {"sort", filter_sort},
        {"items", filter_items},
        {"dictsort", filter_dictsort},
        {"reverse", filter_reverse},
        {"unique", filter_unique},
        {"first", filter_first},
        {"last", filter_last},
        {"min", filter_min},
        {"max", filter_max},
        {"list", filter_list},
        {"join", filter_join},
        {"sum", filter_sum},
        {"map", filter_map},
        {"select", filter_select},
        {"reject", filter_reject},
        {"selectattr", filter_selectattr},
        {"rejectattr", filter_rejectattr},
        {"batch", filter_batch},
    };
    for (size_t i = 0; i < SPRY_COUNT(filters); i++)
        if (spry_view_is(name, filters[i].name))
            return filters[i].call;
    return NULL;
}

/* ---- texts, numbers and single values ---------------------------------------------------------------------------- */

/* Filters for texts, numbers and single values. */

/* ---- texts ------------------------------------------------------------------------------------------------------- */

static spry_jinja_value filter_trim(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    spry_jinja_value set = spry_jinja_arg(args, 0, "chars", SPRY_JINJA_NULL);
    spry_jinja_value text = spry_jinja_to_string(run, v);
    if (text.kind != SPRY_JINJA_STRING)
        return text;
    spry_view characters = {"", 0};
    if (set.kind == SPRY_JINJA_STRING)
        characters = spry_jinja_view(set);
    return spry_jinja_strip(run, text, set.kind == SPRY_JINJA_STRING ? &characters : NULL,
                            SPRY_JINJA_LEFT | SPRY_JINJA_RIGHT);
}

static spry_jinja_value with_case(spry_jinja_run *run, spry_jinja_value v, spry_jinja_case how)
{
    spry_jinja_value text = spry_jinja_to_string(run, v);
    return text.kind == SPRY_JINJA_STRING ? spry_jinja_change_case(run, text, how) : text;
}

static spry_jinja_value filter_upper(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    (void)args;
    return with_case(run, v, SPRY_JINJA_UPPER);
}

static spry_jinja_value filter_lower(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    (void)args;
    return with_case(run, v, SPRY_JINJA_LOWER);
}

static spry_jinja_value filter_capitalize(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    (void)args;
    return with_case(run, v, SPRY_JINJA_CAPITALIZE);
}

static spry_jinja_value filter_title(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    (void)args;
    return with_case(run, v, SPRY_JINJA_WORDS);
}

static spry_jinja_value filter_string(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    (void)args;
    return spry_jinja_to_string(run, v);
}

static spry_jinja_value filter_replace(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    spry_jinja_value text = spry_jinja_to_string(run, v);
    spry_jinja_value old = spry_jinja_to_string(run, spry_jinja_arg(args, 0, "old", SPRY_JINJA_NOTHING));
    spry_jinja_value with = spry_jinja_to_string(run, spry_jinja_arg(args, 1, "new", SPRY_JINJA_NOTHING));
    int64_t limit = -1;
    spry_jinja_to_int(spry_jinja_arg(args, 2, "count", SPRY_JINJA_NULL), &limit);
    return run->status ? SPRY_JINJA_NOTHING : spry_jinja_replace(run, text, old, with, limit);
}

static void append_many(spry_jinja_builder *b, char c, int64_t count)
{
    for (int64_t i = 0; i < count && !b->run->status; i++)
        spry_jinja_append(b, (spry_view){&c, 1}, false);
}

/* Indents all lines except the first; the first and blank lines only on request. */
static spry_jinja_value filter_indent(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    spry_jinja_value width = spry_jinja_arg(args, 0, "width", SPRY_JINJA_INTEGER(4));
    bool first = spry_jinja_truth(spry_jinja_arg(args, 1, "first", SPRY_JINJA_BOOLEAN(false)));
    bool blank = spry_jinja_truth(spry_jinja_arg(args, 2, "blank", SPRY_JINJA_BOOLEAN(false)));
    int64_t spaces = 0;
    if (v.kind != SPRY_JINJA_STRING)
        spry_jinja_fail(run, "indent takes a str, not a %s", spry_jinja_kind_name(v));
    if (width.kind != SPRY_JINJA_STRING && !spry_jinja_to_int(width, &spaces))
        spry_jinja_fail(run, "indent() takes a width, not a %s", spry_jinja_kind_name(width));
    spry_jinja_builder b;
    spry_jinja_builder_init(&b, run);
    for (size_t at = 0; !run->status && at <= v.string->size;) {
        const char *newline = v.string->size > at ? memchr(v.string->data + at, '\n', v.string->size - at) : NULL;
        size_t end = newline ? (size_t)(newline - v.string->data) : v.string->size;
        if (at == 0 ? first : blank || end > at) {
            if (width.kind == SPRY_JINJA_STRING)
                spry_jinja_append_string(&b, width.string);
            else
                append_many(&b, ' ', spaces);
        }
        spry_jinja_append_part(&b, v.string, at, newline ? end + 1 : end);
        at = end + 1;
    }
    return spry_jinja_builder_string(&b);
}

static spry_jinja_value escaped_copy(spry_jinja_run *run, spry_jinja_value v,
                                     void (*append)(spry_jinja_builder *, const spry_jinja_string *))
{
    spry_jinja_value text = spry_jinja_to_string(run, v);
    spry_jinja_string *copy = spry_jinja_alloc(run, 1, sizeof *copy);
    spry_jinja_builder b;
    if (run->status)
        return SPRY_JINJA_NOTHING;
    spry_jinja_builder_init(&b, run);
    append(&b, text.string);
    spry_jinja_value made = spry_jinja_builder_string(&b);
    if (run->status)
        return SPRY_JINJA_NOTHING;
    *copy = *made.string;
    copy->escaped = true;
    return (spry_jinja_value){.kind = SPRY_JINJA_STRING, .string = copy};
}

static spry_jinja_value filter_escape(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    (void)args;
    return escaped_copy(run, v, spry_jinja_append_escaped);
}

static spry_jinja_value filter_safe(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    (void)args;
    return escaped_copy(run, v, spry_jinja_append_string);
}

static spry_jinja_value filter_format(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    spry_jinja_list values = {.items = args->items, .count = args->count};
    spry_jinja_value text = spry_jinja_to_string(run, v);
    return run->status ? text : spry_jinja_format_percent(run, text, &values);
}

static spry_jinja_value filter_wordcount(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    spry_jinja_value text = spry_jinja_to_string(run, v);
    int64_t words = 0;
    bool inside = false;
    uint32_t character;
    (void)args;
    for (size_t at = 0; !run->status && at < text.string->size;) {
        at += spry_jinja_character(&character, spry_jinja_view(text), at);
        words += !inside && !spry_jinja_is_space(character);
        inside = !spry_jinja_is_space(character);
    }
    return SPRY_JINJA_INTEGER(words);
}

static spry_jinja_value filter_tojson(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    spry_jinja_value indent = spry_jinja_arg(args, 1, "indent", SPRY_JINJA_NULL);
    spry_jinja_value separators = spry_jinja_arg(args, 2, "separators", SPRY_JINJA_NULL);
    spry_jinja_json_style style = {
        .ascii = spry_jinja_truth(spry_jinja_arg(args, 0, "ensure_ascii", SPRY_JINJA_NULL)),
        .sort = spry_jinja_truth(spry_jinja_arg(args, 3, "sort_keys", SPRY_JINJA_NULL)),
        .indent = -1,
    };
    if (indent.kind == SPRY_JINJA_INT && indent.integer >= 0)
        style.indent = indent.integer;
    if (spry_jinja_is_sequence(separators) && separators.list->count == 2 &&
        separators.list->items[0].kind == SPRY_JINJA_STRING && separators.list->items[1].kind == SPRY_JINJA_STRING) {
        style.item = spry_jinja_view(separators.list->items[0]);
        style.key = spry_jinja_view(separators.list->items[1]);
    }
    return spry_jinja_to_json(run, v, &style);
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

/* Conversion to a number fails only for undefined values. */
static bool need_defined(spry_jinja_run *run, spry_jinja_value v)
{
    if (v.kind == SPRY_JINJA_UNDEFINED)
        spry_jinja_fail(run, "'%.*s' is undefined and no number", SPRY_VIEW_ARG(v.name ? *v.name : SPRY_VIEW("it")));
    return !run->status;
}

static spry_jinja_value filter_int(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    spry_jinja_value fallback = spry_jinja_arg(args, 0, "default", SPRY_JINJA_INTEGER(0));
    double real = 0;
    int64_t whole;
    uint64_t digits;
    if (!need_defined(run, v))
        return SPRY_JINJA_NOTHING;
    if (spry_jinja_to_int(v, &whole))
        return SPRY_JINJA_INTEGER(whole);
    if (v.kind == SPRY_JINJA_FLOAT) {
        real = v.real;
    } else if (v.kind == SPRY_JINJA_STRING) {
        spry_jinja_value stripped = spry_jinja_strip(run, v, NULL, SPRY_JINJA_LEFT | SPRY_JINJA_RIGHT);
        if (run->status)
            return SPRY_JINJA_NOTHING;
        spry_view text = spry_jinja_view(stripped);
        bool minus = text.size && text.data[0] == '-';
        size_t skip = text.size && (minus || text.data[0] == '+');
        if (spry_number_u64(&digits, (spry_view){text.data + skip, text.size - skip}) && digits <= INT64_MAX)
            return SPRY_JINJA_INTEGER(minus ? -(int64_t)digits : (int64_t)digits);
        if (!spry_number_double(&real, text))
            return fallback;
    } else {
        return fallback;
    }
    return fabs(real) < 9e18 ? SPRY_JINJA_INTEGER((int64_t)real) : fallback;
}

static spry_jinja_value filter_float(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    double real;
    if (!need_defined(run, v))
        return SPRY_JINJA_NOTHING;
    if (spry_jinja_is_number(v))
        return SPRY_JINJA_REAL(spry_jinja_to_real(v));
    if (v.kind == SPRY_JINJA_STRING) {
        v = spry_jinja_strip(run, v, NULL, SPRY_JINJA_LEFT | SPRY_JINJA_RIGHT);
        if (!run->status && spry_number_double(&real, spry_jinja_view(v)))
            return SPRY_JINJA_REAL(real);
    }
    return spry_jinja_arg(args, 0, "default", SPRY_JINJA_REAL(0));
}

static spry_jinja_value filter_abs(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    int64_t whole;
    (void)args;
    if (v.kind == SPRY_JINJA_FLOAT)
        return SPRY_JINJA_REAL(fabs(v.real));
    if (spry_jinja_to_int(v, &whole) && whole >= 0)
        return SPRY_JINJA_INTEGER(whole);
    return spry_jinja_arithmetic(run, SPRY_JINJA_SUB, SPRY_JINJA_INTEGER(0), v);
}

static spry_jinja_value filter_round(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    int64_t digits = 0;
    spry_jinja_value method = spry_jinja_arg(args, 1, "method", SPRY_JINJA_NULL);
    spry_jinja_to_int(spry_jinja_arg(args, 0, "precision", SPRY_JINJA_NULL), &digits);
    if (!spry_jinja_is_number(v)) {
        spry_jinja_fail(run, "a %s cannot be rounded", spry_jinja_kind_name(v));
        return SPRY_JINJA_NOTHING;
    }
    if (v.kind != SPRY_JINJA_FLOAT && method.kind != SPRY_JINJA_STRING && digits >= 0)
        return v; /* an integer stays one */
    double scale = pow(10, (double)(digits > 300 ? 300 : digits < -300 ? -300 : digits));
    double scaled = spry_jinja_to_real(v) * scale;
    if (method.kind == SPRY_JINJA_STRING && spry_view_is(spry_jinja_view(method), "ceil"))
        scaled = ceil(scaled);
    else if (method.kind == SPRY_JINJA_STRING && spry_view_is(spry_jinja_view(method), "floor"))
        scaled = floor(scaled);
    else
        scaled = nearbyint(scaled); /* to even, like Python */
    return SPRY_JINJA_REAL(scaled / scale);
}

/* ---- any value --------------------------------------------------------------------------------------------------- */

static spry_jinja_value filter_default(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    static const spry_jinja_string empty = {.data = ""};
    const spry_jinja_value nothing = {.kind = SPRY_JINJA_STRING, .string = &empty};
    bool falsy = spry_jinja_truth(spry_jinja_arg(args, 1, "boolean", SPRY_JINJA_BOOLEAN(false)));
    (void)run;
    if (v.kind == SPRY_JINJA_UNDEFINED || (falsy && !spry_jinja_truth(v)))
        return spry_jinja_arg(args, 0, "default_value", nothing);
    return v;
}

static spry_jinja_value filter_length(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    (void)args;
    return SPRY_JINJA_INTEGER((int64_t)spry_jinja_length(run, v));
}

static spry_jinja_value filter_attr(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    return attribute_path(run, v, spry_jinja_arg(args, 0, "name", SPRY_JINJA_NOTHING));
}

static const spry_jinja_filter_entry filters[] = {
    {"trim", filter_trim},          {"upper", filter_upper},
    {"lower", filter_lower},        {"capitalize", filter_capitalize},
    {"title", filter_title},        {"string", filter_string},
    {"replace", filter_replace},    {"indent", filter_indent},
    {"escape", filter_escape},      {"e", filter_escape},
    {"forceescape", filter_escape}, {"safe", filter_safe},
    {"format", filter_format},      {"wordcount", filter_wordcount},
    {"tojson", filter_tojson},      {"int", filter_int},
    {"float", filter_float},        {"abs", filter_abs},
    {"round", filter_round},        {"default", filter_default},
    {"d", filter_default},          {"length", filter_length},
    {"count", filter_length},       {"attr", filter_attr},
};

static spry_jinja_filter_call *find_filter(spry_view name)
{
    for (size_t i = 0; i < SPRY_COUNT(filters); i++)
        if (spry_view_is(name, filters[i].name))
            return filters[i].call;
    return find_sequence_filter(name);
}

bool spry_jinja_has_filter(spry_view name)
{
    return find_filter(name) != NULL;
}

spry_jinja_value spry_jinja_filter(spry_jinja_run *run, spry_view name, spry_jinja_value v, const spry_jinja_args *args)
{
    spry_jinja_filter_call *call = find_filter(name);
    if (run->status)
        return SPRY_JINJA_NOTHING;
    if (call)
        return call(run, v, args);
    spry_jinja_fail(run, "there is no filter '%.*s'", SPRY_VIEW_ARG(name));
    return SPRY_JINJA_NOTHING;
}
