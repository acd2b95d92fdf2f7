/* Growing strings with marks. Adjacent marks are merged. */
#include "template/jinja_builder.h"

#include "base/checked.h"

enum { FIRST_BYTES = 128, FIRST_MARKS = 4 };

void spry_jinja_builder_init(spry_jinja_builder *b, spry_jinja_run *run)
{
    *b = (spry_jinja_builder){.run = run};
}

/* Room for `more` items of `size` bytes after `count`; the old memory stays allocated until the run ends. */
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

void spry_jinja_append_part(spry_jinja_builder *b, const spry_jinja_string *string, size_t begin, size_t end)
{
    size_t start = b->size;
    spry_jinja_append(b, (spry_view){string->data + begin, end - begin}, false);
    for (size_t i = 0; i < string->n_marks && !b->run->status; i++) {
        spry_text_range range = string->marks[i];
        if (range.end <= begin || range.begin >= end)
            continue;
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
