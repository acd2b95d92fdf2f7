/* Methods of strings, lists, dicts and loops. */
#include "template/jinja_eval.h"

/* A string argument; if there is none, the run fails and NULL is returned. */
static const spry_jinja_string *string_arg(const spry_jinja_frame *f, size_t index)
{
    spry_jinja_value v = spry_jinja_arg(f->args, index, NULL, SPRY_JINJA_NOTHING);
    if (v.kind == SPRY_JINJA_STRING)
        return v.string;
    spry_jinja_fail(f->run, "%s() takes a str, not a %s", f->name, spry_jinja_kind_name(v));
    return NULL;
}

static spry_view view_of(const spry_jinja_string *string)
{
    return (spry_view){string->data, string->size};
}

static int64_t int_arg(const spry_jinja_frame *f, size_t index, const char *name, int64_t fallback)
{
    int64_t value = fallback;
    spry_jinja_value v = spry_jinja_arg(f->args, index, name, SPRY_JINJA_INTEGER(fallback));
    if (!spry_jinja_to_int(v, &value))
        spry_jinja_fail(f->run, "a whole number is expected, not a %s", spry_jinja_kind_name(v));
    return value;
}

/* ---- strings ----------------------------------------------------------------------------------------------------- */

/* strip, lstrip, rstrip; `how`: SPRY_JINJA_LEFT, SPRY_JINJA_RIGHT, or both. */
static spry_jinja_value str_strip(const spry_jinja_frame *f)
{
    bool given = spry_jinja_arg(f->args, 0, NULL, SPRY_JINJA_NULL).kind != SPRY_JINJA_NONE;
    const spry_jinja_string *set = given ? string_arg(f, 0) : NULL;
    if (given && !set)
        return SPRY_JINJA_NOTHING;
    return spry_jinja_strip(f->run, f->self, given ? &(spry_view){set->data, set->size} : NULL, f->how);
}

/* The methods that change case; `how` is a spry_jinja_case. */
static spry_jinja_value str_case(const spry_jinja_frame *f)
{
    return spry_jinja_change_case(f->run, f->self, (spry_jinja_case)f->how);
}

/* startswith (how: 0) and endswith (1). Like in Python the argument may be a tuple. */
static spry_jinja_value has_affix(const spry_jinja_frame *f)
{
    spry_jinja_value v = spry_jinja_arg(f->args, 0, NULL, SPRY_JINJA_NOTHING);
    spry_jinja_list one = {.items = &v, .count = 1};
    const spry_jinja_list *all = v.kind == SPRY_JINJA_TUPLE ? v.list : &one;
    for (size_t i = 0; i < all->count; i++) {
        spry_jinja_frame each = *f;
        each.args = &(spry_jinja_args){&all->items[i], 1, f->args->named};
        const spry_jinja_string *part = string_arg(&each, 0);
        if (part && spry_jinja_spend(f->run, part->size) &&
            (f->how ? spry_view_ends : spry_view_starts)(spry_jinja_view(f->self), view_of(part)))
            return SPRY_JINJA_BOOLEAN(true);
    }
    return SPRY_JINJA_BOOLEAN(false);
}

/* removeprefix (how: 0) and removesuffix (1). */
static spry_jinja_value without_affix(const spry_jinja_frame *f)
{
    const spry_jinja_string *part = string_arg(f, 0);
    spry_view text = spry_jinja_view(f->self);
    bool prefix = !f->how;
    if (!part || !spry_jinja_spend(f->run, part->size) ||
        !(prefix ? spry_view_starts : spry_view_ends)(text, view_of(part)))
        return f->self;
    return spry_jinja_substring(f->run, f->self, prefix ? part->size : 0, text.size - (prefix ? 0 : part->size));
}

static spry_jinja_value str_replace(const spry_jinja_frame *f)
{
    if (!string_arg(f, 0) || !string_arg(f, 1))
        return SPRY_JINJA_NOTHING;
    return spry_jinja_replace(f->run, f->self, f->args->items[0], f->args->items[1], int_arg(f, 2, "count", -1));
}

/* Splits a string at whitespace. */
static void split_words(spry_jinja_run *run, spry_jinja_list *out, spry_jinja_value string, int64_t limit)
{
    spry_view text = spry_jinja_view(string);
    uint32_t character;
    size_t at = 0, size;
    spry_jinja_spend(run, SPRY_JINJA_DECODED * text.size);
    while (spry_jinja_spend(run, 0)) {
        for (; at < text.size; at += size) {
            size = spry_jinja_character(&character, text, at);
            if (!spry_jinja_is_space(character))
                break;
        }
        if (at >= text.size)
            return;
        size_t begin = at;
        if (limit == 0) {
            string = spry_jinja_substring(run, string, begin, text.size);
            if (!run->status)
                spry_jinja_list_push(run, out, spry_jinja_strip(run, string, NULL, SPRY_JINJA_RIGHT));
            return;
        }
        for (; at < text.size; at += size) {
            size = spry_jinja_character(&character, text, at);
            if (spry_jinja_is_space(character))
                break;
        }
        spry_jinja_list_push(run, out, spry_jinja_substring(run, string, begin, at));
        limit -= limit > 0;
    }
}

static void split_at(spry_jinja_run *run, spry_jinja_list *out, spry_jinja_value string, spry_view separator,
                     int64_t limit)
{
    spry_view text = spry_jinja_view(string);
    size_t at = 0;
    for (; limit != 0 && !run->status; limit -= limit > 0) {
        size_t found = spry_jinja_find(run, text, separator, at);
        if (found == text.size)
            break;
        spry_jinja_list_push(run, out, spry_jinja_substring(run, string, at, found));
        at = found + separator.size;
    }
    spry_jinja_list_push(run, out, spry_jinja_substring(run, string, at, text.size));
}

/* For rsplit: the string was split at all separators like in split(); this joins the pieces before the last `limit`. */
static spry_jinja_list *join_front(spry_jinja_run *run, const spry_jinja_list *all, spry_jinja_value string,
                                   int64_t limit, size_t separator)
{
    size_t keep = (size_t)limit, end = 0;
    if (limit < 0 || all->count <= keep + 1)
        return NULL;
    spry_jinja_list *out = spry_jinja_list_create(run, keep + 1);
    for (size_t i = 0; i < all->count - keep; i++)
        end += all->items[i].string->size + (i ? separator : 0);
    spry_jinja_list_push(run, out, spry_jinja_substring(run, string, 0, end));
    for (size_t i = all->count - keep; i < all->count; i++)
        spry_jinja_list_push(run, out, all->items[i]);
    return out;
}

static spry_jinja_value str_split(const spry_jinja_frame *f)
{
    spry_jinja_value separator = spry_jinja_arg(f->args, 0, "sep", SPRY_JINJA_NULL);
    int64_t limit = int_arg(f, 1, "maxsplit", -1);
    bool from_right = f->how && limit >= 0;
    spry_jinja_list *list = spry_jinja_list_create(f->run, 0);
    if (separator.kind == SPRY_JINJA_NONE && !from_right) {
        split_words(f->run, list, f->self, limit);
        return SPRY_JINJA_SEQUENCE(list);
    }
    if (separator.kind != SPRY_JINJA_STRING || separator.string->size == 0) {
        spry_jinja_fail(f->run, "%s() takes a separator that is a str and not empty", f->name);
        return SPRY_JINJA_NOTHING;
    }
    split_at(f->run, list, f->self, spry_jinja_view(separator), from_right ? -1 : limit);
    spry_jinja_list *joined =
        from_right && !f->run->status ? join_front(f->run, list, f->self, limit, separator.string->size) : NULL;
    return SPRY_JINJA_SEQUENCE(joined ? joined : list);
}

static spry_jinja_value str_partition(const spry_jinja_frame *f)
{
    const spry_jinja_string *part = string_arg(f, 0);
    spry_view text = spry_jinja_view(f->self);
    size_t found = text.size, at = 0;
    if (!part || part->size == 0)
        return SPRY_JINJA_NOTHING;
    do {
        size_t next = spry_jinja_find(f->run, text, view_of(part), at);
        if (next == text.size)
            break;
        found = next;
        at = next + 1;
    } while (f->how && !f->run->status);
    bool missing = found == text.size;
    size_t begin = missing && f->how ? 0 : found, end = missing ? begin : found + part->size;
    spry_jinja_list *list = spry_jinja_list_create(f->run, 3);
    spry_jinja_list_push(f->run, list, spry_jinja_substring(f->run, f->self, 0, begin));
    spry_jinja_list_push(f->run, list, spry_jinja_substring(f->run, f->self, begin, end));
    spry_jinja_list_push(f->run, list, spry_jinja_substring(f->run, f->self, end, text.size));
    return (spry_jinja_value){.kind = SPRY_JINJA_TUPLE, .list = list};
}

static spry_jinja_value str_splitlines(const spry_jinja_frame *f)
{
    spry_jinja_list *list = spry_jinja_list_create(f->run, 0);
    spry_view text = spry_jinja_view(f->self);
    bool keep = spry_jinja_flag(f->args, 0, "keepends");
    for (size_t at = 0, end; at < text.size && !f->run->status;) {
        for (end = at; end < text.size && text.data[end] != '\n' && text.data[end] != '\r';)
            end++;
        size_t next = end < text.size ? end + 1 : end;
        next += next < text.size && text.data[end] == '\r' && text.data[next] == '\n';
        spry_jinja_spend(f->run, SPRY_JINJA_SEARCHED * (next - at));
        spry_jinja_list_push(f->run, list, spry_jinja_substring(f->run, f->self, at, keep ? next : end));
        at = next;
    }
    return SPRY_JINJA_SEQUENCE(list);
}

enum { FROM_LEFT, FROM_RIGHT, OR_FAIL };

/* find, rfind and index: a position in characters; -1 when the part is not found. */
static spry_jinja_value str_find(const spry_jinja_frame *f)
{
    const spry_jinja_string *part = string_arg(f, 0);
    spry_view text = spry_jinja_view(f->self);
    bool there = false;
    size_t place = 0;
    for (size_t at = 0; part && at <= text.size && !f->run->status; at = place + 1) {
        size_t found = spry_jinja_find(f->run, text, view_of(part), at);
        if (found == text.size && part->size)
            break;
        there = true;
        place = found;
        if (f->how != FROM_RIGHT)
            break;
    }
    if (!there && f->how == OR_FAIL)
        spry_jinja_fail(f->run, "index(): there is no such part");
    return SPRY_JINJA_INTEGER(there ? (int64_t)spry_jinja_count_characters(f->run, (spry_view){text.data, place}) : -1);
}

static spry_jinja_value str_count(const spry_jinja_frame *f)
{
    const spry_jinja_string *part = string_arg(f, 0);
    spry_view text = spry_jinja_view(f->self);
    int64_t count = 0;
    if (part && part->size == 0)
        return SPRY_JINJA_INTEGER((int64_t)spry_jinja_count_characters(f->run, text) + 1);
    for (size_t at = 0; part && !f->run->status; count++) {
        size_t found = spry_jinja_find(f->run, text, view_of(part), at);
        if (found == text.size)
            break;
        at = found + part->size;
    }
    return SPRY_JINJA_INTEGER(count);
}

static spry_jinja_value str_join(const spry_jinja_frame *f)
{
    const spry_jinja_list *items = spry_jinja_items(f->run, spry_jinja_arg(f->args, 0, NULL, SPRY_JINJA_NOTHING));
    spry_jinja_builder b;
    spry_jinja_builder_init(&b, f->run);
    for (size_t i = 0; i < items->count && !f->run->status; i++) {
        if (items->items[i].kind != SPRY_JINJA_STRING) {
            spry_jinja_fail(f->run, "join() takes strs, not a %s", spry_jinja_kind_name(items->items[i]));
            break;
        }
        if (i)
            spry_jinja_append_string(&b, f->self.string);
        spry_jinja_append_string(&b, items->items[i].string);
    }
    return spry_jinja_builder_string(&b);
}

/* isdigit and similar methods, for ASCII only: true for non-empty strings whose characters all have the property. */
static spry_jinja_value str_is(const spry_jinja_frame *f)
{
    spry_view text = spry_jinja_view(f->self);
    const char *what = f->name + 2;
    bool all = text.size != 0, cased = false;
    for (size_t i = 0; i < text.size && all && spry_jinja_spend(f->run, 0); i++) {
        char c = text.data[i];
        bool digit = c >= '0' && c <= '9', upper = c >= 'A' && c <= 'Z', lower = c >= 'a' && c <= 'z';
        bool alpha = upper || lower || (unsigned char)c >= 0x80;
        cased |= upper || lower;
        all = strcmp(what, "digit") == 0 || strcmp(what, "numeric") == 0 || strcmp(what, "decimal") == 0 ? digit
              : strcmp(what, "alpha") == 0                                                               ? alpha
              : strcmp(what, "alnum") == 0 ? alpha || digit
              : strcmp(what, "space") == 0 ? spry_jinja_is_space((unsigned char)c)
              : strcmp(what, "upper") == 0 ? !lower
                                           : !upper;
    }
    return SPRY_JINJA_BOOLEAN(all && (cased || (strcmp(what, "upper") != 0 && strcmp(what, "lower") != 0)));
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

static spry_jinja_value list_append(const spry_jinja_frame *f)
{
    spry_jinja_list_push(f->run, f->self.list, spry_jinja_arg(f->args, 0, NULL, SPRY_JINJA_NULL));
    return SPRY_JINJA_NULL;
}

static spry_jinja_value list_extend(const spry_jinja_frame *f)
{
    const spry_jinja_list *more = spry_jinja_items(f->run, spry_jinja_arg(f->args, 0, NULL, SPRY_JINJA_NOTHING));
    size_t count = more->count; /* `more` may be the list that grows */
    for (size_t i = 0; i < count; i++)
        spry_jinja_list_push(f->run, f->self.list, more->items[i]);
    return SPRY_JINJA_NULL;
}

static spry_jinja_value list_insert(const spry_jinja_frame *f)
{
    spry_jinja_list *list = f->self.list;
    int64_t at = int_arg(f, 0, NULL, 0), count = (int64_t)list->count;
    at = at < 0 ? (at < -count ? 0 : at + count) : at > count ? count : at;
    spry_jinja_list_push(f->run, list, SPRY_JINJA_NULL);
    if (!spry_jinja_spend(f->run, (size_t)(count - at) * sizeof *list->items))
        return SPRY_JINJA_NOTHING;
    memmove(list->items + at + 1, list->items + at, (size_t)(count - at) * sizeof *list->items);
    list->items[at] = spry_jinja_arg(f->args, 1, NULL, SPRY_JINJA_NULL);
    return SPRY_JINJA_NULL;
}

static spry_jinja_value list_pop(const spry_jinja_frame *f)
{
    spry_jinja_list *list = f->self.list;
    int64_t at = int_arg(f, 0, NULL, -1);
    at += at < 0 ? (int64_t)list->count : 0;
    if (at < 0 || at >= (int64_t)list->count) {
        spry_jinja_fail(f->run, "pop() from a list of %zu", list->count);
        return SPRY_JINJA_NOTHING;
    }
    spry_jinja_value out = list->items[at];
    if (!spry_jinja_spend(f->run, (list->count - (size_t)at) * sizeof *list->items))
        return SPRY_JINJA_NOTHING;
    memmove(list->items + at, list->items + at + 1, (list->count - (size_t)at - 1) * sizeof *list->items);
    list->count--;
    return out;
}

static spry_jinja_value list_index(const spry_jinja_frame *f)
{
    const spry_jinja_list *list = f->self.list;
    spry_jinja_value what = spry_jinja_arg(f->args, 0, NULL, SPRY_JINJA_NOTHING);
    for (size_t i = 0; i < list->count && !f->run->status; i++)
        if (spry_jinja_equal(f->run, list->items[i], what))
            return SPRY_JINJA_INTEGER((int64_t)i);
    spry_jinja_fail(f->run, "index(): there is no such item");
    return SPRY_JINJA_NOTHING;
}

static spry_jinja_value list_count(const spry_jinja_frame *f)
{
    const spry_jinja_list *list = f->self.list;
    spry_jinja_value what = spry_jinja_arg(f->args, 0, NULL, SPRY_JINJA_NOTHING);
    int64_t count = 0;
    for (size_t i = 0; i < list->count && !f->run->status; i++)
        count += spry_jinja_equal(f->run, list->items[i], what);
    return SPRY_JINJA_INTEGER(count);
}

/* ---- dicts ------------------------------------------------------------------------------------------------------- */

enum { KEYS, VALUES, PAIRS };

static spry_jinja_value dict_column(const spry_jinja_frame *f)
{
    const spry_jinja_dict *dict = f->self.dict;
    spry_jinja_list *list = spry_jinja_list_create(f->run, dict->count);
    for (size_t i = 0; i < dict->count && spry_jinja_spend(f->run, 0); i++) {
        spry_jinja_value key = dict->entries[i].key, value = dict->entries[i].value;
        spry_jinja_list_push(f->run, list,
                             f->how == KEYS     ? key
                             : f->how == VALUES ? value
                                                : spry_jinja_pair(f->run, key, value));
    }
    return SPRY_JINJA_SEQUENCE(list);
}

static spry_jinja_value dict_get(const spry_jinja_frame *f)
{
    const spry_jinja_value *found =
        spry_jinja_dict_find(f->run, f->self.dict, spry_jinja_arg(f->args, 0, NULL, SPRY_JINJA_NOTHING));
    return found ? *found : spry_jinja_arg(f->args, 1, "default", SPRY_JINJA_NULL);
}

static spry_jinja_value dict_update(const spry_jinja_frame *f)
{
    static const spry_jinja_dict nothing;
    spry_jinja_value v = spry_jinja_arg(f->args, 0, NULL, SPRY_JINJA_NOTHING);
    const spry_jinja_dict *from[] = {v.kind == SPRY_JINJA_DICT ? v.dict : &nothing, f->args->named};
    for (size_t k = 0; k < SPRY_COUNT(from); k++)
        for (size_t i = 0; i < from[k]->count && !f->run->status; i++)
            spry_jinja_dict_set(f->run, f->self.dict, from[k]->entries[i].key, from[k]->entries[i].value);
    return SPRY_JINJA_NULL;
}

static spry_jinja_value dict_pop(const spry_jinja_frame *f)
{
    spry_jinja_dict *dict = f->self.dict;
    spry_jinja_value *found = spry_jinja_dict_find(f->run, dict, spry_jinja_arg(f->args, 0, NULL, SPRY_JINJA_NOTHING));
    if (!found) {
        if (f->args->count < 2)
            spry_jinja_fail(f->run, "pop(): there is no such key");
        return spry_jinja_arg(f->args, 1, NULL, SPRY_JINJA_NOTHING);
    }
    spry_jinja_value out = *found;
    spry_jinja_entry *entry = (spry_jinja_entry *)(void *)((char *)found - offsetof(spry_jinja_entry, value));
    size_t after = (size_t)(dict->entries + dict->count - (entry + 1));
    if (spry_jinja_spend(f->run, after * sizeof *entry)) {
        memmove(entry, entry + 1, after * sizeof *entry);
        dict->count--;
    }
    return out;
}

static spry_jinja_value copy(const spry_jinja_frame *f)
{
    if (f->self.kind == SPRY_JINJA_DICT) {
        const spry_jinja_dict *from = f->self.dict;
        spry_jinja_dict *dict = spry_jinja_dict_create(f->run, from->count);
        for (size_t i = 0; i < from->count && !f->run->status; i++)
            dict->entries[dict->count++] = from->entries[i];
        return SPRY_JINJA_DICT_OF(dict);
    }
    spry_jinja_list *list = spry_jinja_list_create(f->run, f->self.list->count);
    for (size_t i = 0; i < f->self.list->count; i++)
        spry_jinja_list_push(f->run, list, f->self.list->items[i]);
    return SPRY_JINJA_SEQUENCE(list);
}

/* ---- loops ------------------------------------------------------------------------------------------------------- */

static spry_jinja_value loop_cycle(const spry_jinja_frame *f)
{
    if (f->args->count)
        return f->args->items[f->self.loop->index % f->args->count];
    spry_jinja_fail(f->run, "cycle() takes values");
    return SPRY_JINJA_NOTHING;
}

static spry_jinja_value loop_changed(const spry_jinja_frame *f)
{
    spry_jinja_loop *loop = (spry_jinja_loop *)(uintptr_t)f->self.loop; /* memory of the run */
    spry_jinja_list *now = spry_jinja_list_create(f->run, f->args->count);
    for (size_t i = 0; i < f->args->count; i++)
        spry_jinja_list_push(f->run, now, f->args->items[i]);
    spry_jinja_value v = SPRY_JINJA_SEQUENCE(now);
    bool changed = !spry_jinja_equal(f->run, loop->changed, v);
    loop->changed = v;
    return SPRY_JINJA_BOOLEAN(changed);
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static const struct {
    spry_jinja_kind kind;
    spry_jinja_named named;
} methods[] = {
    {SPRY_JINJA_STRING, {"strip", str_strip, SPRY_JINJA_LEFT | SPRY_JINJA_RIGHT}},
    {SPRY_JINJA_STRING, {"lstrip", str_strip, SPRY_JINJA_LEFT}},
    {SPRY_JINJA_STRING, {"rstrip", str_strip, SPRY_JINJA_RIGHT}},
    {SPRY_JINJA_STRING, {"split", str_split, 0}},
    {SPRY_JINJA_STRING, {"rsplit", str_split, 1}},
    {SPRY_JINJA_STRING, {"splitlines", str_splitlines, 0}},
    {SPRY_JINJA_STRING, {"partition", str_partition, 0}},
    {SPRY_JINJA_STRING, {"rpartition", str_partition, 1}},
    {SPRY_JINJA_STRING, {"startswith", has_affix, 0}},
    {SPRY_JINJA_STRING, {"endswith", has_affix, 1}},
    {SPRY_JINJA_STRING, {"removeprefix", without_affix, 0}},
    {SPRY_JINJA_STRING, {"removesuffix", without_affix, 1}},
    {SPRY_JINJA_STRING, {"replace", str_replace, 0}},
    {SPRY_JINJA_STRING, {"upper", str_case, SPRY_JINJA_UPPER}},
    {SPRY_JINJA_STRING, {"lower", str_case, SPRY_JINJA_LOWER}},
    {SPRY_JINJA_STRING, {"title", str_case, SPRY_JINJA_TITLE}},
    {SPRY_JINJA_STRING, {"capitalize", str_case, SPRY_JINJA_CAPITALIZE}},
    {SPRY_JINJA_STRING, {"find", str_find, FROM_LEFT}},
    {SPRY_JINJA_STRING, {"rfind", str_find, FROM_RIGHT}},
    {SPRY_JINJA_STRING, {"index", str_find, OR_FAIL}},
    {SPRY_JINJA_STRING, {"count", str_count, 0}},
    {SPRY_JINJA_STRING, {"join", str_join, 0}},
    {SPRY_JINJA_STRING, {"format", spry_jinja_format_braces, 0}},
    {SPRY_JINJA_STRING, {"isdigit", str_is, 0}},
    {SPRY_JINJA_STRING, {"isnumeric", str_is, 0}},
    {SPRY_JINJA_STRING, {"isdecimal", str_is, 0}},
    {SPRY_JINJA_STRING, {"isalpha", str_is, 0}},
    {SPRY_JINJA_STRING, {"isalnum", str_is, 0}},
    {SPRY_JINJA_STRING, {"isspace", str_is, 0}},
    {SPRY_JINJA_STRING, {"isupper", str_is, 0}},
    {SPRY_JINJA_STRING, {"islower", str_is, 0}},
    {SPRY_JINJA_LIST, {"append", list_append, 0}},
    {SPRY_JINJA_LIST, {"extend", list_extend, 0}},
    {SPRY_JINJA_LIST, {"insert", list_insert, 0}},
    {SPRY_JINJA_LIST, {"pop", list_pop, 0}},
    {SPRY_JINJA_LIST, {"index", list_index, 0}},
    {SPRY_JINJA_LIST, {"count", list_count, 0}},
    {SPRY_JINJA_LIST, {"copy", copy, 0}},
    {SPRY_JINJA_TUPLE, {"index", list_index, 0}},
    {SPRY_JINJA_TUPLE, {"count", list_count, 0}},
    {SPRY_JINJA_DICT, {"items", dict_column, PAIRS}},
    {SPRY_JINJA_DICT, {"keys", dict_column, KEYS}},
    {SPRY_JINJA_DICT, {"values", dict_column, VALUES}},
    {SPRY_JINJA_DICT, {"get", dict_get, 0}},
    {SPRY_JINJA_DICT, {"update", dict_update, 0}},
    {SPRY_JINJA_DICT, {"pop", dict_pop, 0}},
    {SPRY_JINJA_DICT, {"copy", copy, 0}},
    {SPRY_JINJA_LOOP, {"cycle", loop_cycle, 0}},
    {SPRY_JINJA_LOOP, {"changed", loop_changed, 0}},
};

spry_jinja_value spry_jinja_method(spry_jinja_run *run, spry_jinja_value self, spry_view name)
{
    for (size_t i = 0; i < SPRY_COUNT(methods); i++) {
        const spry_jinja_named *row = &methods[i].named;
        if (methods[i].kind != self.kind || !spry_view_is(name, row->name))
            continue;
        spry_jinja_callable *bound = spry_jinja_alloc(run, 1, sizeof *bound);
        if (!bound)
            break;
        *bound = (spry_jinja_callable){.name = row->name, .call = row->call, .how = row->how, .self = self};
        return (spry_jinja_value){.kind = SPRY_JINJA_CALLABLE, .callable = bound};
    }
    return SPRY_JINJA_NOTHING;
}
