/* Filters for sequences, and for texts, numbers and single values. */
#include <math.h>
#include <stdio.h>

#include "base/number.h"
#include "template/jinja_eval.h"
#include "template/jinja_value.h"

/* ---- sequences --------------------------------------------------------------------------------------------------- */

/* A list that is a generator in Jinja2 is marked lazy, so that its truth value is the same. */

static spry_jinja_value lazy(spry_jinja_run *run, spry_jinja_list *list)
{
    if (!run->status)
        list->lazy = true;
    return SPRY_JINJA_SEQUENCE(list);
}

/* Evaluates a path "a.b.0" of attributes; an integer is an index. */
static spry_jinja_value attribute_path(spry_jinja_run *run, spry_jinja_value v, spry_jinja_value path)
{
    if (path.kind != SPRY_JINJA_STRING)
        return spry_jinja_index(run, v, path);
    spry_view text = spry_jinja_view(path);
    spry_jinja_spend(run, SPRY_JINJA_SEARCHED * text.size);
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

/* The sort key of an item: an attribute, or the item itself if `by` is None. */
static spry_jinja_value key_of(spry_jinja_run *run, spry_jinja_value item, spry_jinja_value by)
{
    return by.kind == SPRY_JINJA_NONE ? item : attribute_path(run, item, by);
}

/* ---- order ------------------------------------------------------------------------------------------------------- */

typedef struct sort_key {
    spry_jinja_value key, item;
} sort_key;

/* A stable merge sort, because comparisons are expensive. */
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
    for (size_t i = 0; i < list->count && !run->status; i++)
        items[i] = (sort_key){key_of(run, list->items[i], by), list->items[i]};
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

static spry_jinja_value filter_sort(const spry_jinja_frame *f)
{
    spry_jinja_list *list = copy_items(f->run, f->self);
    sort_list(f->run, list, spry_jinja_arg(f->args, 2, "attribute", SPRY_JINJA_NULL),
              !spry_jinja_flag(f->args, 1, "case_sensitive"), spry_jinja_flag(f->args, 0, "reverse"));
    return SPRY_JINJA_SEQUENCE(list);
}

/* The filters items (how: 0) and dictsort (1). */
static spry_jinja_value filter_pairs(const spry_jinja_frame *f)
{
    size_t count = f->self.kind == SPRY_JINJA_DICT ? f->self.dict->count : 0;
    spry_jinja_list *list = spry_jinja_list_create(f->run, count);
    if (f->self.kind != SPRY_JINJA_DICT && f->self.kind != SPRY_JINJA_UNDEFINED)
        spry_jinja_fail(f->run, "%s takes a dict, not a %s", f->name, spry_jinja_kind_name(f->self));
    for (size_t i = 0; i < count && !f->run->status; i++) {
        const spry_jinja_entry *entry = &f->self.dict->entries[i];
        spry_jinja_list_push(f->run, list, spry_jinja_pair(f->run, entry->key, entry->value));
    }
    if (!f->how)
        return lazy(f->run, list);
    spry_jinja_value by = spry_jinja_arg(f->args, 1, "by", SPRY_JINJA_NULL);
    bool by_value = by.kind == SPRY_JINJA_STRING && spry_view_is(spry_jinja_view(by), "value");
    sort_list(f->run, list, SPRY_JINJA_INTEGER(by_value), !spry_jinja_flag(f->args, 0, "case_sensitive"),
              spry_jinja_flag(f->args, 2, "reverse"));
    return SPRY_JINJA_SEQUENCE(list);
}

static spry_jinja_value filter_reverse(const spry_jinja_frame *f)
{
    if (f->self.kind == SPRY_JINJA_STRING)
        return spry_jinja_slice(f->run, f->self,
                                (spry_jinja_value[]){SPRY_JINJA_NULL, SPRY_JINJA_NULL, SPRY_JINJA_INTEGER(-1)});
    const spry_jinja_list *items = spry_jinja_items(f->run, f->self);
    spry_jinja_list *list = spry_jinja_list_create(f->run, items->count);
    for (size_t i = items->count; i > 0; i--)
        spry_jinja_list_push(f->run, list, items->items[i - 1]);
    return lazy(f->run, list);
}

static spry_jinja_value filter_unique(const spry_jinja_frame *f)
{
    const spry_jinja_list *items = spry_jinja_items(f->run, f->self);
    spry_jinja_list *list = spry_jinja_list_create(f->run, 0), *keys = spry_jinja_list_create(f->run, 0);
    spry_jinja_value by = spry_jinja_arg(f->args, 1, "attribute", SPRY_JINJA_NULL);
    bool fold = !spry_jinja_flag(f->args, 0, "case_sensitive");
    for (size_t i = 0; i < items->count && !f->run->status; i++) {
        spry_jinja_value key = key_of(f->run, items->items[i], by);
        if (fold && key.kind == SPRY_JINJA_STRING)
            key = spry_jinja_change_case(f->run, key, SPRY_JINJA_LOWER);
        if (spry_jinja_contains(f->run, SPRY_JINJA_SEQUENCE(keys), key))
            continue;
        spry_jinja_list_push(f->run, keys, key);
        spry_jinja_list_push(f->run, list, items->items[i]);
    }
    return lazy(f->run, list);
}

/* ---- a single item of a sequence --------------------------------------------------------------------------------- */

/* The filters first (how: 0) and last (1). */
static spry_jinja_value filter_end(const spry_jinja_frame *f)
{
    const spry_jinja_list *items = spry_jinja_items(f->run, f->self);
    return items->count ? items->items[f->how ? items->count - 1 : 0] : SPRY_JINJA_NOTHING;
}

/* The filters min (how: -1) and max (1). */
static spry_jinja_value filter_extreme(const spry_jinja_frame *f)
{
    const spry_jinja_list *items = spry_jinja_items(f->run, f->self);
    spry_jinja_value by = spry_jinja_arg(f->args, 1, "attribute", SPRY_JINJA_NULL), best = SPRY_JINJA_NOTHING,
                     best_key = best;
    bool fold = !spry_jinja_flag(f->args, 0, "case_sensitive");
    for (size_t i = 0; i < items->count && !f->run->status; i++) {
        spry_jinja_value item = items->items[i], key = key_of(f->run, item, by);
        if (i && spry_jinja_order(f->run, key, best_key, fold) != f->how)
            continue;
        best = item;
        best_key = key;
    }
    return best;
}

/* ---- all items --------------------------------------------------------------------------------------------------- */

static spry_jinja_value filter_list(const spry_jinja_frame *f)
{
    return SPRY_JINJA_SEQUENCE(copy_items(f->run, f->self));
}

static spry_jinja_value filter_join(const spry_jinja_frame *f)
{
    const spry_jinja_list *items = spry_jinja_items(f->run, f->self);
    spry_jinja_value between = spry_jinja_arg(f->args, 0, "d", SPRY_JINJA_NOTHING);
    spry_jinja_value by = spry_jinja_arg(f->args, 1, "attribute", SPRY_JINJA_NULL);
    spry_jinja_builder b;
    spry_jinja_builder_init(&b, f->run);
    for (size_t i = 0; i < items->count && !f->run->status; i++) {
        if (i)
            spry_jinja_append_value(&b, between);
        spry_jinja_append_value(&b, key_of(f->run, items->items[i], by));
    }
    return spry_jinja_builder_string(&b);
}

static spry_jinja_value filter_sum(const spry_jinja_frame *f)
{
    const spry_jinja_list *items = spry_jinja_items(f->run, f->self);
    spry_jinja_value by = spry_jinja_arg(f->args, 0, "attribute", SPRY_JINJA_NULL);
    spry_jinja_value sum = spry_jinja_arg(f->args, 1, "start", SPRY_JINJA_INTEGER(0));
    for (size_t i = 0; i < items->count && !f->run->status; i++)
        sum = spry_jinja_arithmetic(f->run, SPRY_JINJA_ADD, sum, key_of(f->run, items->items[i], by));
    return sum;
}

static spry_jinja_args args_after(const spry_jinja_args *args, size_t skipped)
{
    size_t skip = skipped < args->count ? skipped : args->count;
    return (spry_jinja_args){args->items ? args->items + skip : NULL, args->count - skip, args->named};
}

static spry_jinja_value filter_map(const spry_jinja_frame *f)
{
    const spry_jinja_list *items = spry_jinja_items(f->run, spry_jinja_truth(f->self) ? f->self : SPRY_JINJA_NOTHING);
    spry_jinja_list *list = spry_jinja_list_create(f->run, items->count);
    const spry_jinja_value *by = spry_jinja_dict_find_text(f->args->named, SPRY_VIEW("attribute"));
    const spry_jinja_value *missing = spry_jinja_dict_find_text(f->args->named, SPRY_VIEW("default"));
    spry_jinja_args rest = args_after(f->args, 1);
    if (!by && (f->args->count == 0 || f->args->items[0].kind != SPRY_JINJA_STRING))
        spry_jinja_fail(f->run, "map() takes the name of a filter, or attribute=");
    for (size_t i = 0; i < items->count && !f->run->status; i++) {
        spry_jinja_value item =
            by ? attribute_path(f->run, items->items[i], *by)
               : spry_jinja_filter(f->run, spry_jinja_view(f->args->items[0]), items->items[i], &rest);
        spry_jinja_list_push(f->run, list, missing && item.kind == SPRY_JINJA_UNDEFINED ? *missing : item);
    }
    return lazy(f->run, list);
}

enum { WANTED = 1, BY_ATTRIBUTE = 2 };

/* The filters select, reject, selectattr, rejectattr: the items for which a test, or their truth value, has the wanted
 * result. */
static spry_jinja_value filter_select(const spry_jinja_frame *f)
{
    const spry_jinja_list *items = spry_jinja_items(f->run, spry_jinja_truth(f->self) ? f->self : SPRY_JINJA_NOTHING);
    spry_jinja_list *list = spry_jinja_list_create(f->run, 0);
    bool by_attribute = f->how & BY_ATTRIBUTE, wanted = f->how & WANTED;
    spry_jinja_value test = spry_jinja_arg(f->args, by_attribute, NULL, SPRY_JINJA_NULL);
    spry_jinja_args rest = args_after(f->args, 1u + by_attribute);
    if ((by_attribute && f->args->count == 0) || (test.kind != SPRY_JINJA_NONE && test.kind != SPRY_JINJA_STRING))
        spry_jinja_fail(f->run, "select, reject, selectattr and rejectattr take names of attributes and tests");
    for (size_t i = 0; i < items->count && !f->run->status; i++) {
        spry_jinja_value item = items->items[i];
        if (by_attribute)
            item = attribute_path(f->run, item, f->args->items[0]);
        bool is = test.kind == SPRY_JINJA_NONE ? spry_jinja_truth(item)
                                               : spry_jinja_test(f->run, spry_jinja_view(test), item, &rest);
        if (is == wanted)
            spry_jinja_list_push(f->run, list, items->items[i]);
    }
    return lazy(f->run, list);
}

/* Lists of `n` items each; the last is padded if a fill value is given. */
static spry_jinja_value filter_batch(const spry_jinja_frame *f)
{
    const spry_jinja_list *items = spry_jinja_items(f->run, f->self);
    spry_jinja_list *rows = spry_jinja_list_create(f->run, 0), *row = NULL;
    spry_jinja_value fill = spry_jinja_arg(f->args, 1, "fill_with", SPRY_JINJA_NULL);
    int64_t n = 0;
    if (!spry_jinja_to_int(spry_jinja_arg(f->args, 0, "linecount", SPRY_JINJA_NULL), &n) || n < 1)
        spry_jinja_fail(f->run, "batch() takes a number of items");
    for (size_t i = 0; i < items->count && !f->run->status; i++) {
        if (i % (uint64_t)n == 0) {
            row = spry_jinja_list_create(f->run, 0);
            spry_jinja_list_push(f->run, rows, SPRY_JINJA_SEQUENCE(row));
        }
        spry_jinja_list_push(f->run, row, items->items[i]);
    }
    while (row && fill.kind != SPRY_JINJA_NONE && row->count < (uint64_t)n && spry_jinja_spend(f->run, 0))
        spry_jinja_list_push(f->run, row, fill);
    return lazy(f->run, rows);
}

/* ---- texts ------------------------------------------------------------------------------------------------------- */

static spry_jinja_value filter_trim(const spry_jinja_frame *f)
{
    spry_jinja_value set = spry_jinja_arg(f->args, 0, "chars", SPRY_JINJA_NULL);
    spry_jinja_value text = spry_jinja_to_string(f->run, f->self);
    if (text.kind != SPRY_JINJA_STRING)
        return text;
    spry_view characters = {"", 0};
    if (set.kind == SPRY_JINJA_STRING)
        characters = spry_jinja_view(set);
    return spry_jinja_strip(f->run, text, set.kind == SPRY_JINJA_STRING ? &characters : NULL,
                            SPRY_JINJA_LEFT | SPRY_JINJA_RIGHT);
}

/* The filters that change case; `how` is a spry_jinja_case. */
static spry_jinja_value filter_case(const spry_jinja_frame *f)
{
    spry_jinja_value text = spry_jinja_to_string(f->run, f->self);
    return text.kind == SPRY_JINJA_STRING ? spry_jinja_change_case(f->run, text, (spry_jinja_case)f->how) : text;
}

static spry_jinja_value filter_string(const spry_jinja_frame *f)
{
    return spry_jinja_to_string(f->run, f->self);
}

static spry_jinja_value filter_replace(const spry_jinja_frame *f)
{
    spry_jinja_value text = spry_jinja_to_string(f->run, f->self);
    spry_jinja_value old = spry_jinja_to_string(f->run, spry_jinja_arg(f->args, 0, "old", SPRY_JINJA_NOTHING));
    spry_jinja_value with = spry_jinja_to_string(f->run, spry_jinja_arg(f->args, 1, "new", SPRY_JINJA_NOTHING));
    int64_t limit = -1;
    spry_jinja_to_int(spry_jinja_arg(f->args, 2, "count", SPRY_JINJA_NULL), &limit);
    return f->run->status ? SPRY_JINJA_NOTHING : spry_jinja_replace(f->run, text, old, with, limit);
}

static void append_many(spry_jinja_builder *b, char c, int64_t count)
{
    for (int64_t i = 0; i < count && !b->run->status; i++)
        spry_jinja_append(b, (spry_view){&c, 1}, false);
}

/* Indents all lines except the first; the first and blank lines only on request. */
static spry_jinja_value filter_indent(const spry_jinja_frame *f)
{
    spry_jinja_value width = spry_jinja_arg(f->args, 0, "width", SPRY_JINJA_INTEGER(4));
    bool first = spry_jinja_flag(f->args, 1, "first");
    bool blank = spry_jinja_flag(f->args, 2, "blank");
    int64_t spaces = 0;
    if (f->self.kind != SPRY_JINJA_STRING)
        spry_jinja_fail(f->run, "indent takes a str, not a %s", spry_jinja_kind_name(f->self));
    if (width.kind != SPRY_JINJA_STRING && !spry_jinja_to_int(width, &spaces))
        spry_jinja_fail(f->run, "indent() takes a width, not a %s", spry_jinja_kind_name(width));
    spry_jinja_builder b;
    spry_jinja_builder_init(&b, f->run);
    for (size_t at = 0; !f->run->status && at <= f->self.string->size;) {
        const char *newline =
            f->self.string->size > at ? memchr(f->self.string->data + at, '\n', f->self.string->size - at) : NULL;
        size_t end = newline ? (size_t)(newline - f->self.string->data) : f->self.string->size;
        if (at == 0 ? first : blank || end > at) {
            if (width.kind == SPRY_JINJA_STRING)
                spry_jinja_append_string(&b, width.string);
            else
                append_many(&b, ' ', spaces);
        }
        spry_jinja_append_part(&b, f->self.string, at, newline ? end + 1 : end);
        at = end + 1;
    }
    return spry_jinja_builder_string(&b);
}

/* The filters escape (how: 0) and safe (1), which only marks the text as escaped. */
static spry_jinja_value filter_escape(const spry_jinja_frame *f)
{
    spry_jinja_value text = spry_jinja_to_string(f->run, f->self);
    spry_jinja_string *copy = spry_jinja_alloc(f->run, 1, sizeof *copy);
    spry_jinja_builder b;
    if (f->run->status)
        return SPRY_JINJA_NOTHING;
    spry_jinja_builder_init(&b, f->run);
    (f->how ? spry_jinja_append_string : spry_jinja_append_escaped)(&b, text.string);
    spry_jinja_value made = spry_jinja_builder_string(&b);
    if (f->run->status)
        return SPRY_JINJA_NOTHING;
    *copy = *made.string;
    copy->escaped = true;
    return (spry_jinja_value){.kind = SPRY_JINJA_STRING, .string = copy};
}

static spry_jinja_value filter_format(const spry_jinja_frame *f)
{
    spry_jinja_list values = {.items = f->args->items, .count = f->args->count};
    spry_jinja_value text = spry_jinja_to_string(f->run, f->self);
    return f->run->status ? text : spry_jinja_format_percent(f->run, text, &values);
}

static spry_jinja_value filter_wordcount(const spry_jinja_frame *f)
{
    spry_jinja_value text = spry_jinja_to_string(f->run, f->self);
    int64_t words = 0;
    bool inside = false;
    uint32_t character;
    if (!f->run->status)
        spry_jinja_spend(f->run, SPRY_JINJA_DECODED * text.string->size);
    for (size_t at = 0; !f->run->status && at < text.string->size;) {
        at += spry_jinja_character(&character, spry_jinja_view(text), at);
        words += !inside && !spry_jinja_is_space(character);
        inside = !spry_jinja_is_space(character);
    }
    return SPRY_JINJA_INTEGER(words);
}

static spry_jinja_value filter_tojson(const spry_jinja_frame *f)
{
    spry_jinja_value indent = spry_jinja_arg(f->args, 1, "indent", SPRY_JINJA_NULL);
    spry_jinja_value separators = spry_jinja_arg(f->args, 2, "separators", SPRY_JINJA_NULL);
    spry_jinja_json_style style = {
        .ascii = spry_jinja_flag(f->args, 0, "ensure_ascii"),
        .sort = spry_jinja_flag(f->args, 3, "sort_keys"),
        .indent = -1,
    };
    if (indent.kind == SPRY_JINJA_INT && indent.integer >= 0)
        style.indent = indent.integer;
    if (spry_jinja_is_sequence(separators) && separators.list->count == 2 &&
        separators.list->items[0].kind == SPRY_JINJA_STRING && separators.list->items[1].kind == SPRY_JINJA_STRING) {
        style.item = spry_jinja_view(separators.list->items[0]);
        style.key = spry_jinja_view(separators.list->items[1]);
    }
    return spry_jinja_to_json(f->run, f->self, &style);
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

/* Checks that a value can be converted to a number; only undefined values cannot. */
static bool need_defined(spry_jinja_run *run, spry_jinja_value v)
{
    if (v.kind == SPRY_JINJA_UNDEFINED)
        spry_jinja_fail(run, "'%.*s' is undefined and no number", SPRY_VIEW_ARG(v.name ? *v.name : SPRY_VIEW("it")));
    return !run->status;
}

static spry_jinja_value filter_int(const spry_jinja_frame *f)
{
    spry_jinja_value fallback = spry_jinja_arg(f->args, 0, "default", SPRY_JINJA_INTEGER(0));
    double real = 0;
    int64_t whole;
    uint64_t digits;
    if (!need_defined(f->run, f->self))
        return SPRY_JINJA_NOTHING;
    if (spry_jinja_to_int(f->self, &whole))
        return SPRY_JINJA_INTEGER(whole);
    if (f->self.kind == SPRY_JINJA_FLOAT) {
        real = f->self.real;
    } else if (f->self.kind == SPRY_JINJA_STRING) {
        spry_jinja_value stripped = spry_jinja_strip(f->run, f->self, NULL, SPRY_JINJA_LEFT | SPRY_JINJA_RIGHT);
        if (f->run->status || !spry_jinja_spend(f->run, SPRY_JINJA_SEARCHED * stripped.string->size))
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

static spry_jinja_value filter_float(const spry_jinja_frame *f)
{
    double real;
    if (!need_defined(f->run, f->self))
        return SPRY_JINJA_NOTHING;
    if (spry_jinja_is_number(f->self))
        return SPRY_JINJA_REAL(spry_jinja_to_real(f->self));
    if (f->self.kind == SPRY_JINJA_STRING) {
        spry_jinja_value text = spry_jinja_strip(f->run, f->self, NULL, SPRY_JINJA_LEFT | SPRY_JINJA_RIGHT);
        if (!f->run->status && spry_number_double(&real, spry_jinja_view(text)))
            return SPRY_JINJA_REAL(real);
    }
    return spry_jinja_arg(f->args, 0, "default", SPRY_JINJA_REAL(0));
}

static spry_jinja_value filter_abs(const spry_jinja_frame *f)
{
    int64_t whole;
    if (f->self.kind == SPRY_JINJA_FLOAT)
        return SPRY_JINJA_REAL(fabs(f->self.real));
    if (spry_jinja_to_int(f->self, &whole) && whole >= 0)
        return SPRY_JINJA_INTEGER(whole);
    return spry_jinja_arithmetic(f->run, SPRY_JINJA_SUB, SPRY_JINJA_INTEGER(0), f->self);
}

static spry_jinja_value filter_round(const spry_jinja_frame *f)
{
    int64_t digits = 0;
    spry_jinja_value method = spry_jinja_arg(f->args, 1, "method", SPRY_JINJA_NULL);
    spry_jinja_to_int(spry_jinja_arg(f->args, 0, "precision", SPRY_JINJA_NULL), &digits);
    if (!spry_jinja_is_number(f->self)) {
        spry_jinja_fail(f->run, "a %s cannot be rounded", spry_jinja_kind_name(f->self));
        return SPRY_JINJA_NOTHING;
    }
    if (f->self.kind != SPRY_JINJA_FLOAT && method.kind != SPRY_JINJA_STRING && digits >= 0)
        return f->self; /* an integer is unchanged */
    double scale = pow(10, (double)(digits > 300 ? 300 : digits < -300 ? -300 : digits));
    double scaled = spry_jinja_to_real(f->self) * scale;
    if (method.kind == SPRY_JINJA_STRING && spry_view_is(spry_jinja_view(method), "ceil"))
        scaled = ceil(scaled);
    else if (method.kind == SPRY_JINJA_STRING && spry_view_is(spry_jinja_view(method), "floor"))
        scaled = floor(scaled);
    else
        scaled = nearbyint(scaled); /* rounds ties to even, like Python */
    return SPRY_JINJA_REAL(scaled / scale);
}

/* ---- any value --------------------------------------------------------------------------------------------------- */

static spry_jinja_value filter_default(const spry_jinja_frame *f)
{
    static const spry_jinja_string empty = {.data = ""};
    const spry_jinja_value nothing = {.kind = SPRY_JINJA_STRING, .string = &empty};
    bool falsy = spry_jinja_flag(f->args, 1, "boolean");
    if (f->self.kind == SPRY_JINJA_UNDEFINED || (falsy && !spry_jinja_truth(f->self)))
        return spry_jinja_arg(f->args, 0, "default_value", nothing);
    return f->self;
}

static spry_jinja_value filter_length(const spry_jinja_frame *f)
{
    return SPRY_JINJA_INTEGER((int64_t)spry_jinja_length(f->run, f->self));
}

static spry_jinja_value filter_attr(const spry_jinja_frame *f)
{
    return attribute_path(f->run, f->self, spry_jinja_arg(f->args, 0, "name", SPRY_JINJA_NOTHING));
}

static const spry_jinja_named filters[] = {
    {"trim", filter_trim, 0},
    {"upper", filter_case, SPRY_JINJA_UPPER},
    {"lower", filter_case, SPRY_JINJA_LOWER},
    {"capitalize", filter_case, SPRY_JINJA_CAPITALIZE},
    {"title", filter_case, SPRY_JINJA_WORDS},
    {"string", filter_string, 0},
    {"replace", filter_replace, 0},
    {"indent", filter_indent, 0},
    {"escape", filter_escape, 0},
    {"e", filter_escape, 0},
    {"forceescape", filter_escape, 0},
    {"safe", filter_escape, 1},
    {"format", filter_format, 0},
    {"wordcount", filter_wordcount, 0},
    {"tojson", filter_tojson, 0},
    {"int", filter_int, 0},
    {"float", filter_float, 0},
    {"abs", filter_abs, 0},
    {"round", filter_round, 0},
    {"default", filter_default, 0},
    {"d", filter_default, 0},
    {"length", filter_length, 0},
    {"count", filter_length, 0},
    {"attr", filter_attr, 0},
    {"sort", filter_sort, 0},
    {"items", filter_pairs, 0},
    {"dictsort", filter_pairs, 1},
    {"reverse", filter_reverse, 0},
    {"unique", filter_unique, 0},
    {"first", filter_end, 0},
    {"last", filter_end, 1},
    {"min", filter_extreme, -1},
    {"max", filter_extreme, 1},
    {"list", filter_list, 0},
    {"join", filter_join, 0},
    {"sum", filter_sum, 0},
    {"map", filter_map, 0},
    {"select", filter_select, WANTED},
    {"reject", filter_select, 0},
    {"selectattr", filter_select, BY_ATTRIBUTE | WANTED},
    {"rejectattr", filter_select, BY_ATTRIBUTE},
    {"batch", filter_batch, 0},
};

const spry_jinja_named *spry_jinja_find_filter(spry_view name)
{
    for (size_t i = 0; i < SPRY_COUNT(filters); i++)
        if (spry_view_is(name, filters[i].name))
            return &filters[i];
    return NULL;
}

spry_jinja_value spry_jinja_filter(spry_jinja_run *run, spry_view name, spry_jinja_value v, const spry_jinja_args *args)
{
    const spry_jinja_named *filter = spry_jinja_find_filter(name);
    if (run->status)
        return SPRY_JINJA_NOTHING;
    if (filter)
        return filter->call(&(spry_jinja_frame){run, v, args, filter->name, filter->how, NULL});
    spry_jinja_fail(run, "there is no filter '%.*s'", SPRY_VIEW_ARG(name));
    return SPRY_JINJA_NOTHING;
}
