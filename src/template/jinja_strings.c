/* String operations. Python counts characters; these functions count bytes of UTF-8 and never split a character. */
#include <utf8proc.h>

#include "base/utf8.h"
#include "template/jinja_builder.h"

spry_jinja_value spry_jinja_to_string(spry_jinja_run *run, spry_jinja_value v)
{
    spry_jinja_builder b;
    if (v.kind == SPRY_JINJA_STRING)
        return v;
    spry_jinja_builder_init(&b, run);
    spry_jinja_append_value(&b, v);
    return spry_jinja_builder_string(&b);
}

spry_jinja_value spry_jinja_substring(spry_jinja_run *run, spry_jinja_value string, size_t begin, size_t end)
{
    const spry_jinja_string *from = string.string;
    if (begin == 0 && end == from->size)
        return string;
    spry_jinja_string *part = spry_jinja_alloc(run, 1, sizeof *part);
    if (!part)
        return SPRY_JINJA_NOTHING;
    *part = (spry_jinja_string){.data = from->data + begin, .size = end - begin, .escaped = from->escaped};
    if (from->n_marks == 1 && from->marks->begin <= begin && from->marks->end >= end) {
        part->whole.end = part->size;
        part->marks = &part->whole;
        part->n_marks = part->size != 0;
    } else if (from->n_marks) {
        spry_jinja_builder b;
        spry_jinja_builder_init(&b, run);
        spry_jinja_append_part(&b, from, begin, end);
        part->marks = b.marks;
        part->n_marks = b.n_marks;
    }
    return (spry_jinja_value){.kind = SPRY_JINJA_STRING, .string = part};
}

bool spry_jinja_is_marked(const spry_jinja_string *string, size_t at)
{
    size_t low = 0, high = string->n_marks; /* the first mark that ends after `at` */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (string->marks[middle].end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low < string->n_marks && string->marks[low].begin <= at;
}

size_t spry_jinja_character(uint32_t *character, spry_view text, size_t at)
{
    size_t size = spry_utf8_decode(character, text.data + at, text.size - at);
    if (size)
        return size;
    *character = 0xfffd;
    return 1;
}

size_t spry_jinja_count_characters(spry_view text)
{
    size_t count = 0;
    uint32_t character;
    for (size_t i = 0; i < text.size; i += spry_jinja_character(&character, text, i))
        count++;
    return count;
}

bool spry_jinja_is_space(uint32_t c)
{
    if (c < 0x80)
        return (c >= 9 && c <= 13) || (c >= 28 && c <= 32);
    if (c == 0x85)
        return true;
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
}

size_t spry_jinja_find(spry_jinja_run *run, spry_view text, spry_view part, size_t from)
{
    if (run->status)
        return text.size;
    const char *found = memmem(text.data + from, text.size - from, part.data, part.size);
    size_t at = found ? (size_t)(found - text.data) : text.size;
    return spry_jinja_spend(run, at - from) ? at : text.size;
}

static bool is_stripped(uint32_t character, const spry_view *set)
{
    if (!set)
        return spry_jinja_is_space(character);
    uint32_t other;
    for (size_t i = 0; i < set->size;) {
        i += spry_jinja_character(&other, *set, i);
        if (other == character)
            return true;
    }
    return false;
}

spry_jinja_value spry_jinja_strip(spry_jinja_run *run, spry_jinja_value string, const spry_view *set, int sides)
{
    spry_view text = spry_jinja_view(string);
    size_t begin = 0, end = text.size, work = text.size;
    uint32_t character;
    if (set)
        work = set->size < SIZE_MAX / (text.size + 1) ? set->size * text.size : SIZE_MAX;
    if (!spry_jinja_spend(run, work))
        return SPRY_JINJA_NOTHING;
    while ((sides & SPRY_JINJA_LEFT) && begin < end) {
        size_t size = spry_jinja_character(&character, text, begin);
        if (!is_stripped(character, set))
            break;
        begin += size;
    }
    while ((sides & SPRY_JINJA_RIGHT) && begin < end) {
        size_t last = end - 1;
        while (last > begin && end - last < 4 && (text.data[last] & 0xc0) == 0x80)
            last--;
        if (last + spry_jinja_character(&character, text, last) != end) {
            last = end - 1; /* invalid UTF-8 */
            character = 0xfffd;
        }
        if (!is_stripped(character, set))
            break;
        end = last;
    }
    return spry_jinja_substring(run, string, begin, end);
}

/* For an empty pattern Python inserts `with` between all characters and at both ends. */
static void replace_nothing(spry_jinja_builder *b, const spry_jinja_string *from, const spry_jinja_string *with,
                            int64_t limit)
{
    size_t at = 0;
    uint32_t character;
    for (; !b->run->status && limit != 0; limit--) {
        spry_jinja_append_string(b, with);
        if (at == from->size)
            return;
        size_t size = spry_jinja_character(&character, (spry_view){from->data, from->size}, at);
        spry_jinja_append_part(b, from, at, at + size);
        at += size;
    }
    spry_jinja_append_part(b, from, at, from->size);
}

spry_jinja_value spry_jinja_replace(spry_jinja_run *run, spry_jinja_value string, spry_jinja_value old,
                                    spry_jinja_value with, int64_t limit)
{
    spry_view text = spry_jinja_view(string), part = spry_jinja_view(old);
    spry_jinja_builder b;
    size_t at = 0;
    spry_jinja_builder_init(&b, run);
    if (part.size == 0) {
        replace_nothing(&b, string.string, with.string, limit);
        return spry_jinja_builder_string(&b);
    }
    for (; limit != 0 && !run->status; limit--) {
        size_t found = spry_jinja_find(run, text, part, at);
        if (found == text.size)
            break;
        spry_jinja_append_part(&b, string.string, at, found);
        spry_jinja_append_string(&b, with.string);
        at = found + part.size;
    }
    if (at == 0)
        return string;
    spry_jinja_append_part(&b, string.string, at, text.size);
    return spry_jinja_builder_string(&b);
}

static bool is_letter(uint32_t character)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)character);
    return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

static bool opens_word(uint32_t character)
{
    return spry_jinja_is_space(character) || (character < 0x80 && character && strchr("-({[<", (char)character));
}

spry_jinja_value spry_jinja_change_case(spry_jinja_run *run, spry_jinja_value string, spry_jinja_case how)
{
    spry_view text = spry_jinja_view(string);
    spry_jinja_builder b;
    bool first = true;
    uint32_t character;
    spry_jinja_builder_init(&b, run);
    for (size_t at = 0, size; at < text.size && !run->status; at += size) {
        char out[4];
        size = spry_jinja_character(&character, text, at);
        bool large = how == SPRY_JINJA_UPPER || (how != SPRY_JINJA_LOWER && first);
        int32_t changed =
            large ? utf8proc_toupper((utf8proc_int32_t)character) : utf8proc_tolower((utf8proc_int32_t)character);
        first = how == SPRY_JINJA_TITLE ? !is_letter(character) : how == SPRY_JINJA_WORDS && opens_word(character);
        if (character == 0xfffd || changed < 0)
            spry_jinja_append_part(&b, string.string, at, at + size);
        else
            spry_jinja_append(&b, (spry_view){out, spry_utf8_encode(out, (uint32_t)changed)},
                              spry_jinja_is_marked(string.string, at));
    }
    return spry_jinja_builder_string(&b);
}
