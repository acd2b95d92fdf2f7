/* Methods of strings, lists, dicts and loops. */
#include "template/jinja_eval.h"

typedef spry_jinja_value method(spry_jinja_run *run, const spry_jinja_callable *callee, const spry_jinja_args *args);

/* A string argument; if there is none, the run fails and NULL is returned. */
static const spry_jinja_string *string_arg(spry_jinja_run *run, const spry_jinja_callable *callee,
                                           const spry_jinja_args *args, size_t index)
{
    spry_jinja_value v = spry_jinja_arg(args, index, NULL, SPRY_JINJA_NOTHING);
    if (v.kind == SPRY_JINJA_STRING)
        return v.string;
    spry_jinja_fail(run, "%s() takes a str, not a %s", callee->name, spry_jinja_kind_name(v));
    return NULL;
}

static spry_view view_of(const spry_jinja_string *string)
{
    return (spry_view){string->data, string->size};
}

static int64_t int_arg(spry_jinja_run *run, const spry_jinja_args *args, size_t index, const char *name,
                       int64_t fallback)
{
    int64_t value = fallback;
    spry_jinja_value v = spry_jinja_arg(args, index, name, SPRY_JINJA_INTEGER(fallback));
    if (!spry_jinja_to_int(v, &value))
        spry_jinja_fail(run, "a whole number is expected, not a %s", spry_jinja_kind_name(v));
    return value;
}

/* ---- strings ----------------------------------------------------------------------------------------------------- */

static spry_jinja_value strip(spry_jinja_run *run, const spry_jinja_callable *callee, const spry_jinja_args *args,
                              int sides)
{
    spry_jinja_value set = spry_jinja_arg(args, 0, NULL, SPRY_JINJA_NULL);
    spry_view characters;
    if (set.kind == SPRY_JINJA_NONE)
        return spry_jinja_strip(run, callee->self, NULL, sides);
    if (!string_arg(run, callee, args, 0))
        return SPRY_JINJA_NOTHING;
    characters = spry_jinja_view(set);
    return spry_jinja_strip(run, callee->self, &characters, sides);
}

static spry_jinja_value str_strip(spry_jinja_run *run, const spry_jinja_callable *callee, const spry_jinja_args *args)
{
    return strip(run, callee, args, SPRY_JINJA_LEFT | SPRY_JINJA_RIGHT);
}

static spry_jinja_value str_lstrip(spry_jinja_run *run, const spry_jinja_callable *callee, const spry_jinja_args *args)
{
    return strip(run, callee, args, SPRY_JINJA_LEFT);
}

static spry_jinja_value str_rstrip(spry_jinja_run *run, const spry_jinja_callable *callee, const spry_jinja_args *args)
{
    return strip(run, callee, args, SPRY_JINJA_RIGHT);
}

static spry_jinja_value change_case(spry_jinja_run *run, const spry_jinja_callable *callee, const spry_jinja_args *args)
{
    static const char *const names[] = {"upper", "lower", "capitalize", "title"}; /* in the order of spry_jinja_case */
    size_t how = 0;
    (void)args;
    while (how + 1 < SPRY_COUNT(names) && strcmp(callee->name, names[how]) != 0)
        how++;
    return spry_jinja_change_case(run, callee->self, (spry_jinja_case)how);
}

/* Also accepts a tuple, like Python. */
static spry_jinja_value affix(spry_jinja_run *run, const spry_jinja_callable *callee, const spry_jinja_args *args,
                              bool (*has)(spry_view, spry_view))
{
    spry_jinja_value v = spry_jinja_arg(args, 0, NULL, SPRY_JINJA_NOTHING);
    spry_jinja_list one = {.items = &v, .count = 1};
    const spry_jinja_list *all = v.kind == SPRY_JINJA_TUPLE ? v.list : &one;
    for (size_t i = 0; i < all->count; i++) {
        spry_jinja_args each = {&all->items[i], 1, args->named};
        const spry_jinja_string *part = string_arg(run, callee, &each, 0);
        if (part && spry_jinja_spend(run, part->size) && has(spry_jinja_view(callee->self), view_of(part)))
            return SPRY_JINJA_BOOLEAN(true);
    }
    return SPRY_JINJA_BOOLEAN(false);
}

static spry_jinja_value str_startswith(spry_jinja_run *run, const spry_jinja_callable *callee,
                                       const spry_jinja_args *args)
{
    return affix(run, callee, args, spry_view_starts);
}

static spry_jinja_value str_endswith(spry_jinja_run *run, const spry_jinja_callable *callee,
                                     const spry_jinja_args *args)
{
    return affix(run, callee, args, spry_view_ends);
}

static spry_jinja_value without_affix(spry_jinja_run *run, const spry_jinja_callable *callee,
                                      const spry_jinja_args *args)
{
    const spry_jinja_string *part = string_arg(run, callee, args, 0);
    spry_view text = spry_jinja_view(callee->self);
    bool prefix = strcmp(callee->name, "removeprefix") == 0;
    if (!part || !(prefix ? spry_view_starts : spry_view_ends)(text, view_of(part)))
        return callee->self;
    return spry_jinja_substring(run, callee->self, prefix ? part->size : 0, text.size - (prefix ? 0 : part->size));
}

static spry_jinja_value str_replace(spry_jinja_run *run, const spry_jinja_callable *callee, const spry_jinja_args *args)
{
    if (!string_arg(run, callee, args, 0) || !string_arg(run, callee, args, 1))
        return SPRY_JINJA_NOTHING;
    return spry_jinja_replace(run, callee->self, args->items[0], args->items[1], int_arg(run, args, 2, "count", -1));
}

/* Words separated by whitespace. */
static void split_words(spry_jinja_run *run, spry_jinja_list *out, spry_jinja_value string, int64_t limit)
{
    spry_view text = spry_jinja_view(string);
    uint32_t character;
    size_t at = 0, size;
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

/* rsplit: splits at all separators like split(), then joins those before the last `limit`. */
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

static spry_jinja_value str_split(spry_jinja_run *run, const spry_jinja_callable *callee, const spry_jinja_args *args)
{
    spry_jinja_value separator = spry_jinja_arg(args, 0, "sep", SPRY_JINJA_NULL);
    int64_t limit = int_arg(run, args, 1, "maxsplit", -1);
    bool from_right = callee->name[0] == 'r' && limit >= 0;
    spry_jinja_list *list = spry_jinja_list_create(run, 0);
    if (separator.kind == SPRY_JINJA_NONE && !from_right) {
        split_words(run, list, callee->self, limit);
        return SPRY_JINJA_SEQUENCE(list);
    }
    if (separator.kind != SPRY_JINJA_STRING || separator.string->size == 0) {
        spry_jinja_fail(run, "%s() takes a separator that is a str and not empty", callee->name);
        return SPRY_JINJA_NOTHING;
    }
    split_at(run, list, callee->self, spry_jinja_view(separator), from_right ? -1 : limit);
    spry_jinja_list *joined =
        from_right && !run->status ? join_front(run, list, callee->self, limit, separator.string->size) : NULL;
    return SPRY_JINJA_SEQUENCE(joined ? joined : list);
}

static spry_jinja_value str_partition(spry_jinja_run *run, const spry_jinja_callable *callee,
                                      const spry_jinja_args *args)
{
    const spry_jinja_string *part = string_arg(run, callee, args, 0);
    spry_view text = spry_jinja_view(callee->self);
    size_t found = text.size, at = 0;
    if (!part || part->size == 0)
        return SPRY_JINJA_NOTHING;
    do {
        size_t next = spry_jinja_find(run, text, view_of(part), at);
        if (next == text.size)
            break;
        found = next;
        at = next + 1;
    } while (callee->name[0] == 'r' && !run->status);
    bool missing = found == text.size, right = callee->name[0] == 'r';
    size_t begin = missing && right ? 0 : found, end = missing ? begin : found + part->size;
    spry_jinja_list *list = spry_jinja_list_create(run, 3);
    spry_jinja_list_push(run, list, spry_jinja_substring(run, callee->self, 0, begin));
    spry_jinja_list_push(run, list, spry_jinja_substring(run, callee->self, begin, end));
    spry_jinja_list_push(run, list, spry_jinja_substring(run, callee->self, end, text.size));
    return (spry_jinja_value){.kind = SPRY_JINJA_TUPLE, .list = list};
}

static spry_jinja_value str_splitlines(spry_jinja_run *run, const spry_jinja_callable *callee,
                                       const spry_jinja_args *args)
{
    spry_jinja_list *list = spry_jinja_list_create(run, 0);
    spry_view text = spry_jinja_view(callee->self);
    bool keep = spry_jinja_truth(spry_jinja_arg(args, 0, "keepends", SPRY_JINJA_BOOLEAN(false)));
    for (size_t at = 0, end; at < text.size && spry_jinja_spend(run, 0);) {
        for (end = at; end < text.size && text.data[end] != '\n' && text.data[end] != '\r';)
            end++;
        size_t next = end < text.size ? end + 1 : end;
        next += next < text.size && text.data[end] == '\r' && text.data[next] == '\n';
        spry_jinja_list_push(run, list, spry_jinja_substring(run, callee->self, at, keep ? next : end));
        at = next;
    }
    return SPRY_JINJA_SEQUENCE(list);
}

/* In characters; -1 when it is not found. */
static spry_jinja_value str_find(spry_jinja_run *run, const spry_jinja_callable *callee, const spry_jinja_args *args)
{
    const spry_jinja_string *part = string_arg(run, callee, args, 0);
    spry_view text = spry_jinja_view(callee->self);
    bool there = false;
    size_t place = 0;
    for (size_t at = 0; part && at <= text.size && !run->status; at = place + 1) {
        size_t found = spry_jinja_find(run, text, view_of(part), at);
        if (found == text.size && part->size)
            break;
        there = true;
        place = found;
        if (callee->name[0] != 'r')
            break;
    }
    if (!there && strcmp(callee->name, "index") == 0)
        spry_jinja_fail(run, "index(): there is no such part");
    return SPRY_JINJA_INTEGER(there ? (int64_t)spry_jinja_count_characters((spry_view){text.data, place}) : -1);
}

static spry_jinja_value str_count(spry_jinja_run *run, const spry_jinja_callable *callee, const spry_jinja_args *args)
{
    const spry_jinja_string *part = string_arg(run, callee, args, 0);
    spry_view text = spry_jinja_view(callee->self);
    int64_t count = 0;
    if (part && part->size == 0)
        return SPRY_JINJA_INTEGER((int64_t)spry_jinja_count_characters(text) + 1);
    for (size_t at = 0; part && !run->status; count++) {
        size_t found = spry_jinja_find(run, text, view_of(part), at);
        if (found == text.size)
            break;
        at = found + part->size;
    }
    return SPRY_JINJA_INTEGER(count);
}

static spry_jinja_value str_join(spry_jinja_run *run, const spry_jinja_callable *callee, const spry_jinja_args *args)
{
    const spry_jinja_list *items = spry_jinja_items(run, spry_jinja_arg(args, 0, NULL, SPRY_JINJA_NOTHING));
    spry_jinja_builder b;
    spry_jinja_builder_init(&b, run);
    for (size_t i = 0; i < items->count && !run->status; i++) {
        if (items->items[i].kind != SPRY_JINJA_STRING) {
            spry_jinja_fail(run, "join() takes strs, not a %s", spry_jinja_kind_name(items->items[i]));
            break;
        }
        if (i)
            spry_jinja_append_string(&b, callee->self.string);
        spry_jinja_append_string(&b, items->items[i].string);
    }
    return spry_jinja_builder_string(&b);
}

static spry_jinja_value str_format(spry_jinja_run *run, const spry_jinja_callable *callee, const spry_jinja_args *args)
{
    return spry_jinja_format_braces(run, callee->self, args);
}

/* isdigit and similar methods, for ASCII: true for non-empty strings of this class. */
static spry_jinja_value str_is(spry_jinja_run *run, const spry_jinja_callable *callee, const spry_jinja_args *args)
{
    spry_view text = spry_jinja_view(callee->self);
    const char *what = callee->name + 2;
    bool all = text.size != 0, cased = false;
    (void)args;
    for (size_t i = 0; i < text.size && all && spry_jinja_spend(run, 0); i++) {
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

static spry_jinja_value list_append(spry_jinja_run *run, const spry_jinja_callable *callee, const spry_jinja_args *args)
{
    spry_jinja_list_push(run, callee->self.list, spry_jinja_arg(args, 0, NULL, SPRY_JINJA_NULL));
    return SPRY_JINJA_NULL;
}

static spry_jinja_value list_extend(spry_jinja_run *run, const spry_jinja_callable *callee, const spry_jinja_args *args)
{
    const spry_jinja_list *more = spry_jinja_items(run, spry_jinja_arg(args, 0, NULL, SPRY_JINJA_NOTHING));
    size_t count = more->count; /* it may be the same list */
    for (size_t i = 0; i < count; i++)
        spry_jinja_list_push(run, callee->self.list, more->items[i]);
    return SPRY_JINJA_NULL;
}

static spry_jinja_value list_insert(spry_jinja_run *run, const spry_jinja_callable *callee, const spry_jinja_args *args)
{
    spry_jinja_list *list = callee->self.list;
    int64_t at = int_arg(run, args, 0, NULL, 0), count = (int64_t)list->count;
    at = at < 0 ? (at < -count ? 0 : at + count) : at > count ? count : at;
    spry_jinja_list_push(run, list, SPRY_JINJA_NULL);
    if (run->status)
        return SPRY_JINJA_NOTHING;
    memmove(list->items + at + 1, list->items + at, (size_t)(count - at) * sizeof *list->items);
    list->items[at] = spry_jinja_arg(args, 1, NULL, SPRY_JINJA_NULL);
    return SPRY_JINJA_NULL;
}

static spry_jinja_value list_pop(spry_jinja_run *run, const spry_jinja_callable *callee, const spry_jinja_args *args)
{
    spry_jinja_list *list = callee->self.list;
    int64_t at = int_arg(run, args, 0, NULL, -1);
    at += at < 0 ? (int64_t)list->count : 0;
    if (at < 0 || at >= (int64_t)list->count) {
        spry_jinja_fail(run, "pop() from a list of %zu", list->count);
        return SPRY_JINJA_NOTHING;
    }
    spry_jinja_value out = list->items[at];
    memmove(list->items + at, list->items + at + 1, (list->count - (size_t)at - 1) * sizeof *list->items);
    list->count--;
    return out;
}

static spry_jinja_value list_index(spry_jinja_run *run, const spry_jinja_callable *callee, const spry_jinja_args *args)
{
    const spry_jinja_list *list = callee->self.list;
    spry_jinja_value what = spry_jinja_arg(args, 0, NULL, SPRY_JINJA_NOTHING);
    for (size_t i = 0; i < list->count && !run->status; i++)
        if (spry_jinja_equal(run, list->items[i], what))
            return SPRY_JINJA_INTEGER((int64_t)i);
    spry_jinja_fail(run, "index(): there is no such item");
    return SPRY_JINJA_NOTHING;
}

static spry_jinja_value list_count(spry_jinja_run *run, const spry_jinja_callable *callee, const spry_jinja_args *args)
{
    const spry_jinja_list *list = callee->self.list;
    spry_jinja_value what = spry_jinja_arg(args, 0, NULL, SPRY_JINJA_NOTHING);
    int64_t count = 0;
    for (size_t i = 0; i < list->count && !run->status; i++)
        count += spry_jinja_equal(run, list->items[i], what);
    return SPRY_JINJA_INTEGER(count);
}

/* ---- dicts ------------------------------------------------------------------------------------------------------- */

static spry_jinja_value dict_items(spry_jinja_run *run, const spry_jinja_callable *callee, const spry_jinja_args *args)
{
    const spry_jinja_dict *dict = callee->self.dict;
    spry_jinja_list *list = spry_jinja_list_create(run, dict->count);
    (void)args;
    for (size_t i = 0; i < dict->count && !run->status; i++)
        spry_jinja_list_push(run, list, spry_jinja_pair(run, dict->entries[i].key, dict->entries[i].value));
    return SPRY_JINJA_SEQUENCE(list);
}

static spry_jinja_value dict_column(spry_jinja_run *run, const spry_jinja_callable *callee, const spry_jinja_args *args)
{
    const spry_jinja_dict *dict = callee->self.dict;
    spry_jinja_list *list = spry_jinja_list_create(run, dict->count);
    bool keys = callee->name[0] == 'k';
    (void)args;
    for (size_t i = 0; i < dict->count && !run->status; i++)
        spry_jinja_list_push(run, list, keys ? dict->entries[i].key : dict->entries[i].value);
    return SPRY_JINJA_SEQUENCE(list);
}

static spry_jinja_value dict_get(spry_jinja_run *run, const spry_jinja_callable *callee, const spry_jinja_args *args)
{
    const spry_jinja_value *found =
        spry_jinja_dict_find(run, callee->self.dict, spry_jinja_arg(args, 0, NULL, SPRY_JINJA_NOTHING));
    return found ? *found : spry_jinja_arg(args, 1, "default", SPRY_JINJA_NULL);
}

static spry_jinja_value dict_update(spry_jinja_run *run, const spry_jinja_callable *callee, const spry_jinja_args *args)
{
    static const spry_jinja_dict nothing;
    spry_jinja_value v = spry_jinja_arg(args, 0, NULL, SPRY_JINJA_NOTHING);
    const spry_jinja_dict *from[] = {v.kind == SPRY_JINJA_DICT ? v.dict : &nothing, args->named};
    for (size_t k = 0; k < SPRY_COUNT(from); k++)
        for (size_t i = 0; i < from[k]->count && !run->status; i++)
            spry_jinja_dict_set(run, callee->self.dict, from[k]->entries[i].key, from[k]->entries[i].value);
    return SPRY_JINJA_NULL;
}

static spry_jinja_value dict_pop(spry_jinja_run *run, const spry_jinja_callable *callee, const spry_jinja_args *args)
{
    spry_jinja_dict *dict = callee->self.dict;
    spry_jinja_value *found = spry_jinja_dict_find(run, dict, spry_jinja_arg(args, 0, NULL, SPRY_JINJA_NOTHING));
    if (!found) {
        if (args->count < 2)
            spry_jinja_fail(run, "pop(): there is no such key");
        return spry_jinja_arg(args, 1, NULL, SPRY_JINJA_NOTHING);
    }
    spry_jinja_value out = *found;
    for (size_t i = 0; i < dict->count; i++)
        if (&dict->entries[i].value == found) {
            memmove(dict->entries + i, dict->entries + i + 1, (dict->count - i - 1) * sizeof *dict->entries);
            dict->count--;
            break;
        }
    return out;
}

static spry_jinja_value copy(spry_jinja_run *run, const spry_jinja_callable *callee, const spry_jinja_args *args)
{
    (void)args;
    if (callee->self.kind == SPRY_JINJA_DICT) {
        const spry_jinja_dict *from = callee->self.dict;
        spry_jinja_dict *dict = spry_jinja_dict_create(run, from->count);
        for (size_t i = 0; i < from->count && !run->status; i++)
            dict->entries[dict->count++] = from->entries[i];
        return SPRY_JINJA_DICT_OF(dict);
    }
    spry_jinja_list *list = spry_jinja_list_create(run, callee->self.list->count);
    for (size_t i = 0; i < callee->self.list->count; i++)
        spry_jinja_list_push(run, list, callee->self.list->items[i]);
    return SPRY_JINJA_SEQUENCE(list);
}

/* ---- loops ------------------------------------------------------------------------------------------------------- */

static spry_jinja_value loop_cycle(spry_jinja_run *run, const spry_jinja_callable *callee, const spry_jinja_args *args)
{
    if (args->count)
        return args->items[callee->self.loop->index % args->count];
    spry_jinja_fail(run, "cycle() takes values");
    return SPRY_JINJA_NOTHING;
}

static spry_jinja_value loop_changed(spry_jinja_run *run, const spry_jinja_callable *callee,
                                     const spry_jinja_args *args)
{
    spry_jinja_loop *loop = (spry_jinja_loop *)(uintptr_t)callee->self.loop; /* memory of the run */
    spry_jinja_list *now = spry_jinja_list_create(run, args->count);
    for (size_t i = 0; i < args->count; i++)
        spry_jinja_list_push(run, now, args->items[i]);
    spry_jinja_value v = SPRY_JINJA_SEQUENCE(now);
    bool changed = !spry_jinja_equal(run, loop->changed, v);
    loop->changed = v;
    return SPRY_JINJA_BOOLEAN(changed);
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static const struct {
    spry_jinja_kind kind;
    const char *name;
    method *call;
} methods[] = {
    {SPRY_JINJA_STRING, "strip", str_strip},
    {SPRY_JINJA_STRING, "lstrip", str_lstrip},
    {SPRY_JINJA_STRING, "rstrip", str_rstrip},
    {SPRY_JINJA_STRING, "split", str_split},
    {SPRY_JINJA_STRING, "rsplit", str_split},
    {SPRY_JINJA_STRING, "splitlines", str_splitlines},
    {SPRY_JINJA_STRING, "partition", str_partition},
    {SPRY_JINJA_STRING, "rpartition", str_partition},
    {SPRY_JINJA_STRING, "startswith", str_startswith},
    {SPRY_JINJA_STRING, "endswith", str_endswith},
    {SPRY_JINJA_STRING, "removeprefix", without_affix},
    {SPRY_JINJA_STRING, "removesuffix", without_affix},
    {SPRY_JINJA_STRING, "replace", str_replace},
    {SPRY_JINJA_STRING, "upper", change_case},
    {SPRY_JINJA_STRING, "lower", change_case},
    {SPRY_JINJA_STRING, "title", change_case},
    {SPRY_JINJA_STRING, "capitalize", change_case},
    {SPRY_JINJA_STRING, "find", str_find},
    {SPRY_JINJA_STRING, "rfind", str_find},
    {SPRY_JINJA_STRING, "index", str_find},
    {SPRY_JINJA_STRING, "count", str_count},
    {SPRY_JINJA_STRING, "join", str_join},
    {SPRY_JINJA_STRING, "format", str_format},
    {SPRY_JINJA_STRING, "isdigit", str_is},
    {SPRY_JINJA_STRING, "isnumeric", str_is},
    {SPRY_JINJA_STRING, "isdecimal", str_is},
    {SPRY_JINJA_STRING, "isalpha", str_is},
    {SPRY_JINJA_STRING, "isalnum", str_is},
    {SPRY_JINJA_STRING, "isspace", str_is},
    {SPRY_JINJA_STRING, "isupper", str_is},
    {SPRY_JINJA_STRING, "islower", str_is},
    {SPRY_JINJA_LIST, "append", list_append},
    {SPRY_JINJA_LIST, "extend", list_extend},
    {SPRY_JINJA_LIST, "insert", list_insert},
    {SPRY_JINJA_LIST, "pop", list_pop},
    {SPRY_JINJA_LIST, "index", list_index},
    {SPRY_JINJA_LIST, "count", list_count},
    {SPRY_JINJA_LIST, "copy", copy},
    {SPRY_JINJA_TUPLE, "index", list_index},
    {SPRY_JINJA_TUPLE, "count", list_count},
    {SPRY_JINJA_DICT, "items", dict_items},
    {SPRY_JINJA_DICT, "keys", dict_column},
    {SPRY_JINJA_DICT, "values", dict_column},
    {SPRY_JINJA_DICT, "get", dict_get},
    {SPRY_JINJA_DICT, "update", dict_update},
    {SPRY_JINJA_DICT, "pop", dict_pop},
    {SPRY_JINJA_DICT, "copy", copy},
    {SPRY_JINJA_LOOP, "cycle", loop_cycle},
    {SPRY_JINJA_LOOP, "changed", loop_changed},
};

spry_jinja_value spry_jinja_method(spry_jinja_run *run, spry_jinja_value self, spry_view name)
{
    for (size_t i = 0; i < SPRY_COUNT(methods); i++) {
        if (methods[i].kind != self.kind || !spry_view_is(name, methods[i].name))
            continue;
        spry_jinja_callable *bound = spry_jinja_alloc(run, 1, sizeof *bound);
        if (!bound)
            break;
        *bound = (spry_jinja_callable){.name = methods[i].name, .call = methods[i].call, .self = self};
        return (spry_jinja_value){.kind = SPRY_JINJA_CALLABLE, .callable = bound};
    }
    return SPRY_JINJA_NOTHING;
}
