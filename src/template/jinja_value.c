/* Values of templates, and the memory in which they are stored. */
#include "template/jinja_value.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/interrupt.h"
#include "base/number.h"

/* ---- memory, limits and failure of a rendering ------------------------------------------------------------------- */

/* Memory, limits and failure of one rendering. */

enum { BYTES_PER_STEP = 256, SMALLEST_BYTES = 64 };

void spry_jinja_run_init(spry_jinja_run *run, size_t max_text, size_t input_bytes, spry_error *error)
{
    size_t memory;
    *run = (spry_jinja_run){.max_text = max_text, .steps_left = SPRY_JINJA_MAX_STEPS, .error = error, .line = 1};
    if (!spry_checked_mul(&memory, input_bytes, SPRY_JINJA_MEMORY_FACTOR) ||
        !spry_checked_add(&run->memory_left, memory, SPRY_JINJA_BASE_MEMORY))
        run->memory_left = SIZE_MAX;
    spry_arena_init(&run->arena);
}

void spry_jinja_run_deinit(spry_jinja_run *run)
{
    spry_arena_deinit(&run->arena);
}

void *spry_jinja_alloc(spry_jinja_run *run, size_t count, size_t size)
{
    size_t bytes;
    if (run->status)
        return NULL;
    if (!spry_checked_mul(&bytes, count, size) || !spry_checked_align(&bytes, bytes ? bytes : 1, SMALLEST_BYTES) ||
        bytes > run->memory_left) {
        spry_jinja_fail(run, "the chat template needs more memory than the conversation warrants");
        return NULL;
    }
    void *memory = spry_arena_alloc(&run->arena, count, size);
    if (!memory) {
        run->status = spry_fail_memory(run->error, "a chat template", bytes);
        return NULL;
    }
    run->memory_left -= bytes;
    return memory;
}

bool spry_jinja_spend(spry_jinja_run *run, size_t bytes)
{
    uint64_t steps = 1 + bytes / BYTES_PER_STEP;
    if (run->status)
        return false;
    if (spry_interrupted(steps)) {
        run->status = spry_fail(run->error, SPRY_ERR_CANCELLED, "the chat template was not finished: cancelled");
        return false;
    }
    if (steps > run->steps_left) {
        spry_jinja_fail(run, "the chat template takes more than %d steps", SPRY_JINJA_MAX_STEPS);
        return false;
    }
    run->steps_left -= steps;
    return true;
}

bool spry_jinja_enter(spry_jinja_run *run)
{
    if (!spry_jinja_spend(run, 0))
        return false;
    if (run->depth >= SPRY_JINJA_MAX_DEPTH) {
        spry_jinja_fail(run, "the chat template nests deeper than %d levels", SPRY_JINJA_MAX_DEPTH);
        return false;
    }
    run->depth++;
    return true;
}

void spry_jinja_fail(spry_jinja_run *run, const char *format, ...)
{
    char sentence[SPRY_ERROR_MAX];
    va_list arguments;
    if (run->status)
        return;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    run->status = spry_fail(run->error, SPRY_ERR_INPUT, "chat template, line %u: %s", run->line, sentence);
}

/* ---- strings with marks ------------------------------------------------------------------------------------------ */

/* Growing strings with marks. Adjacent marks are merged. */

enum { FIRST_BYTES = 128, FIRST_MARKS = 4 };

void spry_jinja_builder_init(spry_jinja_builder *b, spry_jinja_run *run)
{
    *b = (spry_jinja_builder){.run = run};
}

/* Returns memory for `more` items of `size` bytes after `count` items; the old memory stays allocated until the run
 * ends. */
static void *grow(spry_jinja_run *run, void *old, size_t *capacity, size_t count, size_t more, size_t size,
                  size_t first)
{
    size_t needed;
    if (!spry_checked_add(&needed, count, more) || needed > SIZE_MAX / 2 / size) {
        spry_jinja_fail(run, "a text is too long");
        return NULL;
    }
    if (needed <= *capacity)
        return old;
    size_t wanted = 2 * *capacity > needed ? 2 * *capacity : needed;
    wanted = wanted > first ? wanted : first;
    void *memory = spry_jinja_alloc(run, wanted, size);
    if (!memory)
        return NULL;
    if (count)
        memcpy(memory, old, count * size);
    *capacity = wanted;
    return memory;
}

static void mark(spry_jinja_builder *b, size_t begin, size_t end)
{
    if (begin == end)
        return;
    if (b->n_marks && b->marks[b->n_marks - 1].end == begin) {
        b->marks[b->n_marks - 1].end = end;
        return;
    }
    spry_text_range *marks = grow(b->run, b->marks, &b->marks_capacity, b->n_marks, 1, sizeof *marks, FIRST_MARKS);
    if (!marks)
        return;
    b->marks = marks;
    b->marks[b->n_marks++] = (spry_text_range){begin, end};
}

void spry_jinja_append(spry_jinja_builder *b, spry_view text, bool marked)
{
    if (text.size == 0 || !spry_jinja_spend(b->run, text.size))
        return;
    if (text.size > b->run->max_text || b->size > b->run->max_text - text.size) {
        spry_jinja_fail(b->run, "the conversation grows longer than %zu bytes", b->run->max_text);
        return;
    }
    char *data = grow(b->run, b->data, &b->capacity, b->size, text.size, 1, FIRST_BYTES);
    if (!data)
        return;
    b->data = data;
    memcpy(b->data + b->size, text.data, text.size);
    b->size += text.size;
    if (marked)
        mark(b, b->size - text.size, b->size);
}

void spry_jinja_append_text(spry_jinja_builder *b, const char *text)
{
    spry_jinja_append(b, spry_view_of(text), false);
}

/* The first mark that ends after `at`. */
static size_t mark_after(const spry_jinja_string *string, size_t at)
{
    size_t low = 0, high = string->n_marks;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (string->marks[middle].end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool spry_jinja_is_marked(const spry_jinja_string *string, size_t at)
{
    size_t i = mark_after(string, at);
    return i < string->n_marks && string->marks[i].begin <= at;
}

void spry_jinja_append_part(spry_jinja_builder *b, const spry_jinja_string *string, size_t begin, size_t end)
{
    size_t start = b->size;
    spry_jinja_append(b, (spry_view){string->data + begin, end - begin}, false);
    for (size_t i = mark_after(string, begin); i < string->n_marks && !b->run->status; i++) {
        spry_text_range range = string->marks[i];
        if (range.begin >= end)
            break;
        range.begin = range.begin > begin ? range.begin : begin;
        range.end = range.end < end ? range.end : end;
        mark(b, start + (range.begin - begin), start + (range.end - begin));
    }
}

void spry_jinja_append_string(spry_jinja_builder *b, const spry_jinja_string *string)
{
    spry_jinja_append_part(b, string, 0, string->size);
}

void spry_jinja_append_escaped(spry_jinja_builder *b, const spry_jinja_string *string)
{
    static const struct {
        char plain;
        const char *escaped;
    } table[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&#34;"}, {'\'', "&#39;"}};
    size_t begin = 0;
    if (string->escaped) {
        spry_jinja_append_string(b, string);
        return;
    }
    for (size_t i = 0; i < string->size; i++)
        for (size_t k = 0; k < SPRY_COUNT(table); k++)
            if (string->data[i] == table[k].plain) {
                spry_jinja_append_part(b, string, begin, i);
                spry_jinja_append(b, spry_view_of(table[k].escaped), spry_jinja_is_marked(string, i));
                begin = i + 1;
            }
    spry_jinja_append_part(b, string, begin, string->size);
}

spry_jinja_value spry_jinja_builder_string(spry_jinja_builder *b)
{
    spry_jinja_string *string = spry_jinja_alloc(b->run, 1, sizeof *string);
    if (!string)
        return SPRY_JINJA_NOTHING;
    *string = (spry_jinja_string){b->data ? b->data : "", b->size, b->marks, b->n_marks, {0, 0}, false};
    return (spry_jinja_value){.kind = SPRY_JINJA_STRING, .string = string};
}

/* ---- lists and dicts --------------------------------------------------------------------------------------------- */

/* Lists and dicts, and operations on all values. */

/* ---- creation ---------------------------------------------------------------------------------------------------- */

spry_jinja_value spry_jinja_text(spry_jinja_run *run, spry_view text, bool marked)
{
    spry_jinja_string *string = spry_jinja_alloc(run, 1, sizeof *string);
    if (!string)
        return SPRY_JINJA_NOTHING;
    *string = (spry_jinja_string){text.data, text.size, &string->whole, marked && text.size, {0, text.size}, false};
    return (spry_jinja_value){.kind = SPRY_JINJA_STRING, .string = string};
}

spry_jinja_list *spry_jinja_list_create(spry_jinja_run *run, size_t capacity)
{
    static spry_jinja_list nowhere; /* target of writes after a failure: its count stays zero */
    spry_jinja_list *list = spry_jinja_alloc(run, 1, sizeof *list);
    if (list && capacity) {
        list->items = spry_jinja_alloc(run, capacity, sizeof *list->items);
        list->capacity = list->items ? capacity : 0;
    }
    return list ? list : &nowhere;
}

void spry_jinja_list_push(spry_jinja_run *run, spry_jinja_list *list, spry_jinja_value item)
{
    if (run->status)
        return;
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 4;
        spry_jinja_value *items = spry_jinja_alloc(run, capacity, sizeof *items);
        if (!items)
            return;
        if (list->count)
            memcpy(items, list->items, list->count * sizeof *items);
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = item;
}

spry_jinja_value spry_jinja_pair(spry_jinja_run *run, spry_jinja_value a, spry_jinja_value b)
{
    spry_jinja_list *list = spry_jinja_list_create(run, 2);
    spry_jinja_list_push(run, list, a);
    spry_jinja_list_push(run, list, b);
    return (spry_jinja_value){.kind = SPRY_JINJA_TUPLE, .list = list};
}

spry_jinja_dict *spry_jinja_dict_create(spry_jinja_run *run, size_t capacity)
{
    static spry_jinja_dict nowhere; /* see above */
    spry_jinja_dict *dict = spry_jinja_alloc(run, 1, sizeof *dict);
    if (dict && capacity) {
        dict->entries = spry_jinja_alloc(run, capacity, sizeof *dict->entries);
        dict->capacity = dict->entries ? capacity : 0;
    }
    return dict ? dict : &nowhere;
}

void spry_jinja_dict_set(spry_jinja_run *run, spry_jinja_dict *dict, spry_jinja_value key, spry_jinja_value value)
{
    spry_jinja_value *old = spry_jinja_dict_find(run, dict, key);
    if (run->status)
        return;
    if (old) {
        *old = value;
        return;
    }
    if (dict->count == dict->capacity) {
        size_t capacity = dict->capacity ? 2 * dict->capacity : 4;
        spry_jinja_entry *entries = spry_jinja_alloc(run, capacity, sizeof *entries);
        if (!entries)
            return;
        if (dict->count)
            memcpy(entries, dict->entries, dict->count * sizeof *entries);
        dict->entries = entries;
        dict->capacity = capacity;
    }
    dict->entries[dict->count++] = (spry_jinja_entry){key, value};
}

spry_jinja_value *spry_jinja_dict_find(spry_jinja_run *run, const spry_jinja_dict *dict, spry_jinja_value key)
{
    if (!spry_jinja_spend(run, 16 * dict->count))
        return NULL;
    if (key.kind == SPRY_JINJA_LIST || key.kind == SPRY_JINJA_DICT) {
        spry_jinja_fail(run, "a %s cannot be a key", spry_jinja_kind_name(key));
        return NULL;
    }
    for (size_t i = 0; i < dict->count && !run->status; i++) {
        spry_jinja_value one = dict->entries[i].key;
        bool text = one.kind == SPRY_JINJA_STRING && key.kind == SPRY_JINJA_STRING;
        if (text && one.string->size != key.string->size)
            continue;
        if (spry_jinja_equal(run, one, key))
            return &dict->entries[i].value;
    }
    return NULL;
}

spry_jinja_value *spry_jinja_dict_find_text(const spry_jinja_dict *dict, spry_view key)
{
    for (size_t i = 0; i < dict->count; i++)
        if (dict->entries[i].key.kind == SPRY_JINJA_STRING &&
            spry_view_equal(spry_jinja_view(dict->entries[i].key), key))
            return &dict->entries[i].value;
    return NULL;
}

/* ---- queries ----------------------------------------------------------------------------------------------------- */

const char *spry_jinja_kind_name(spry_jinja_value v)
{
    static const char *const names[] = {"Undefined", "NoneType", "bool", "int",       "float",       "str",
                                        "list",      "tuple",    "dict", "namespace", "LoopContext", "function"};
    return spry_jinja_is_sequence(v) && v.list->lazy ? "generator" : names[v.kind];
}

bool spry_jinja_truth(spry_jinja_value v)
{
    switch (v.kind) {
    case SPRY_JINJA_UNDEFINED:
    case SPRY_JINJA_NONE: return false;
    case SPRY_JINJA_BOOL: return v.boolean;
    case SPRY_JINJA_INT: return v.integer != 0;
    case SPRY_JINJA_FLOAT: return v.real != 0;
    case SPRY_JINJA_STRING: return v.string->size != 0;
    case SPRY_JINJA_LIST:
    case SPRY_JINJA_TUPLE: return v.list->lazy || v.list->count != 0;
    case SPRY_JINJA_DICT: return v.dict->count != 0;
    default: return true;
    }
}

bool spry_jinja_to_int(spry_jinja_value v, int64_t *out)
{
    if (v.kind == SPRY_JINJA_BOOL)
        *out = v.boolean;
    else if (v.kind == SPRY_JINJA_INT)
        *out = v.integer;
    else
        return false;
    return true;
}

double spry_jinja_to_real(spry_jinja_value number)
{
    int64_t whole = 0;
    return spry_jinja_to_int(number, &whole) ? (double)whole : number.real;
}

static bool equal_dicts(spry_jinja_run *run, const spry_jinja_dict *a, const spry_jinja_dict *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++) {
        const spry_jinja_value *other = spry_jinja_dict_find(run, b, a->entries[i].key);
        if (!other || !spry_jinja_equal(run, a->entries[i].value, *other))
            return false;
    }
    return true;
}

static bool equal_lists(spry_jinja_run *run, const spry_jinja_list *a, const spry_jinja_list *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (!spry_jinja_equal(run, a->items[i], b->items[i]))
            return false;
    return true;
}

static bool equal_kinds(spry_jinja_run *run, spry_jinja_value a, spry_jinja_value b)
{
    switch (a.kind) {
    case SPRY_JINJA_UNDEFINED:
    case SPRY_JINJA_NONE: return true;
    case SPRY_JINJA_STRING:
        return a.string->size == b.string->size && spry_jinja_spend(run, a.string->size) &&
               spry_view_equal(spry_jinja_view(a), spry_jinja_view(b));
    case SPRY_JINJA_LIST:
    case SPRY_JINJA_TUPLE: return a.list == b.list || equal_lists(run, a.list, b.list);
    case SPRY_JINJA_DICT: return a.dict == b.dict || equal_dicts(run, a.dict, b.dict);
    case SPRY_JINJA_NAMESPACE: return a.dict == b.dict;
    case SPRY_JINJA_LOOP: return a.loop == b.loop;
    case SPRY_JINJA_CALLABLE: return a.callable == b.callable;
    default: return false;
    }
}

bool spry_jinja_equal(spry_jinja_run *run, spry_jinja_value a, spry_jinja_value b)
{
    int64_t i, k;
    if (!spry_jinja_spend(run, 0))
        return false;
    if (spry_jinja_to_int(a, &i) && spry_jinja_to_int(b, &k))
        return i == k;
    if (spry_jinja_is_number(a) && spry_jinja_is_number(b))
        return spry_jinja_to_real(a) == spry_jinja_to_real(b);
    if (a.kind != b.kind || !spry_jinja_enter(run))
        return false;
    bool equal = equal_kinds(run, a, b);
    run->depth--;
    return equal;
}

static int sign(bool less, bool more)
{
    return more - less;
}

static int order_strings(spry_jinja_run *run, spry_jinja_value a, spry_jinja_value b, bool fold)
{
    if (fold) {
        a = spry_jinja_change_case(run, a, SPRY_JINJA_LOWER);
        b = spry_jinja_change_case(run, b, SPRY_JINJA_LOWER);
        if (run->status)
            return 0;
    }
    size_t n = a.string->size < b.string->size ? a.string->size : b.string->size;
    if (!spry_jinja_spend(run, n))
        return 0;
    int order = n ? memcmp(a.string->data, b.string->data, n) : 0; /* byte order of UTF-8 is code point order */
    return order ? sign(order<0, order> 0) : sign(a.string->size<b.string->size, a.string->size> b.string->size);
}

static int order_lists(spry_jinja_run *run, const spry_jinja_list *a, const spry_jinja_list *b, bool fold)
{
    for (size_t i = 0; i < a->count && i < b->count; i++)
        if (!spry_jinja_equal(run, a->items[i], b->items[i]))
            return run->status ? 0 : spry_jinja_order(run, a->items[i], b->items[i], fold);
    return sign(a->count<b->count, a->count> b->count);
}

int spry_jinja_order(spry_jinja_run *run, spry_jinja_value a, spry_jinja_value b, bool fold)
{
    int64_t i, k;
    int order = 0;
    if (!spry_jinja_enter(run))
        return 0;
    if (spry_jinja_to_int(a, &i) && spry_jinja_to_int(b, &k)) {
        order = sign(i<k, i> k);
    } else if (spry_jinja_is_number(a) && spry_jinja_is_number(b)) {
        double x = spry_jinja_to_real(a), y = spry_jinja_to_real(b);
        order = sign(x<y, x> y);
    } else if (a.kind == SPRY_JINJA_STRING && b.kind == SPRY_JINJA_STRING) {
        order = order_strings(run, a, b, fold);
    } else if (spry_jinja_is_sequence(a) && a.kind == b.kind) {
        order = order_lists(run, a.list, b.list, fold);
    } else {
        spry_jinja_fail(run, "a %s and a %s have no order", spry_jinja_kind_name(a), spry_jinja_kind_name(b));
    }
    run->depth--;
    return order;
}

bool spry_jinja_contains(spry_jinja_run *run, spry_jinja_value where, spry_jinja_value what)
{
    if (where.kind == SPRY_JINJA_STRING) {
        if (what.kind != SPRY_JINJA_STRING) {
            spry_jinja_fail(run, "a str holds no %s", spry_jinja_kind_name(what));
            return false;
        }
        return what.string->size == 0 ||
               spry_jinja_find(run, spry_jinja_view(where), spry_jinja_view(what), 0) < where.string->size;
    }
    if (where.kind == SPRY_JINJA_DICT)
        return spry_jinja_dict_find(run, where.dict, what) != NULL;
    const spry_jinja_list *items = spry_jinja_items(run, where);
    for (size_t i = 0; i < items->count && !run->status; i++)
        if (spry_jinja_equal(run, items->items[i], what))
            return true;
    return false;
}

bool spry_jinja_is_iterable(spry_jinja_value v)
{
    return v.kind == SPRY_JINJA_UNDEFINED || v.kind == SPRY_JINJA_STRING || v.kind == SPRY_JINJA_DICT ||
           spry_jinja_is_sequence(v) || v.kind == SPRY_JINJA_LOOP;
}

const spry_jinja_list *spry_jinja_items(spry_jinja_run *run, spry_jinja_value v)
{
    spry_jinja_list *items;
    uint32_t character;
    if (spry_jinja_is_sequence(v)) {
        run->parts_used |= v.list->parts;
        return v.list;
    }
    items = spry_jinja_list_create(run, v.kind == SPRY_JINJA_DICT ? v.dict->count : 0);
    if (v.kind == SPRY_JINJA_DICT)
        for (size_t i = 0; i < v.dict->count; i++)
            spry_jinja_list_push(run, items, v.dict->entries[i].key);
    else if (v.kind == SPRY_JINJA_STRING)
        for (size_t at = 0, size; at < v.string->size && spry_jinja_spend(run, 0); at += size) {
            size = spry_jinja_character(&character, spry_jinja_view(v), at);
            spry_jinja_list_push(run, items, spry_jinja_substring(run, v, at, at + size));
        }
    else if (v.kind != SPRY_JINJA_UNDEFINED)
        spry_jinja_fail(run, "a %s cannot be gone through", spry_jinja_kind_name(v));
    return items;
}

size_t spry_jinja_length(spry_jinja_run *run, spry_jinja_value v)
{
    switch (v.kind) {
    case SPRY_JINJA_UNDEFINED: return 0;
    case SPRY_JINJA_STRING: return spry_jinja_count_characters(run, spry_jinja_view(v));
    case SPRY_JINJA_DICT: return v.dict->count;
    case SPRY_JINJA_LIST:
    case SPRY_JINJA_TUPLE:
        if (!v.list->lazy)
            return v.list->count;
        break;
    case SPRY_JINJA_LOOP: return v.loop->items->count;
    default: break;
    }
    spry_jinja_fail(run, "a %s has no length", spry_jinja_kind_name(v));
    return 0;
}

spry_jinja_value spry_jinja_arg(const spry_jinja_args *args, size_t index, const char *name, spry_jinja_value fallback)
{
    if (index < args->count)
        return args->items[index];
    const spry_jinja_value *named = name ? spry_jinja_dict_find_text(args->named, spry_view_of(name)) : NULL;
    return named ? *named : fallback;
}
