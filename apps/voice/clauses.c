#include "voice/clauses.h"

#include <ctype.h>
#include <string.h>

enum {
    TEXT_MAX = 1 << 20,
    FIRST_LEAST = 10, /* bytes of a first clause that ends at a comma */
    LATER_LEAST = 40, /* and of a later one */
    LONGEST = 240,    /* bytes; a clause without an end is cut at a space */
};

void spry_clauses_init(spry_clauses *clauses)
{
    *clauses = (spry_clauses){0};
    spry_buffer_init(&clauses->text, TEXT_MAX);
}

void spry_clauses_deinit(spry_clauses *clauses)
{
    spry_buffer_deinit(&clauses->text);
}

void spry_clauses_clear(spry_clauses *clauses)
{
    spry_buffer_clear(&clauses->text);
    clauses->given = 0;
}

bool spry_clauses_add(spry_clauses *clauses, spry_view text)
{
    return spry_buffer_append(&clauses->text, text.data, text.size);
}

/* Whether the full stop at `at` is one of a number or of an abbreviation: "3.14", "e.g.", "Dr." */
static bool is_inner_stop(const char *text, size_t at)
{
    static const char *const titles[] = {"Mr", "Mrs", "Ms", "Dr", "St", "vs", "etc", "Prof"};
    if (at >= 1 && isdigit((unsigned char)text[at - 1]) && isdigit((unsigned char)text[at + 1]))
        return true;
    size_t begin = at;
    while (begin > 0 && isalpha((unsigned char)text[begin - 1]))
        begin--;
    size_t size = at - begin;
    if (size == 1 && !(text[begin] == 'I' || text[begin] == 'a'))
        return true;
    for (size_t i = 0; i < sizeof titles / sizeof *titles; i++)
        if (strlen(titles[i]) == size && strncmp(titles[i], text + begin, size) == 0)
            return true;
    return false;
}

/* The end of the clause whose mark is at `at`, or 0: the mark ends none. The space behind a mark tells that it is one,
 * so it must have come. */
static size_t end_at(const spry_clauses *c, size_t at)
{
    const char *text = c->text.data;
    size_t least = c->given ? LATER_LEAST : FIRST_LEAST, end = at + 1;
    if (text[at] == '\n')
        return at + 1;
    if (!strchr(".!?;:,", text[at]))
        return 0;
    while (end < c->text.size && strchr("\"')]*", text[end]))
        end++;
    if (end >= c->text.size || !isspace((unsigned char)text[end]))
        return 0;
    if (text[at] == '.' && is_inner_stop(text, at))
        return 0;
    if (strchr(",;:", text[at]) && at + 1 < least)
        return 0;
    return end;
}

static bool is_blank(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (!isspace((unsigned char)text[i]))
            return false;
    return true;
}

bool spry_clauses_take(spry_clauses *clauses, spry_buffer *out, bool over)
{
    const spry_buffer *text = &clauses->text;
    size_t end = 0, space = 0;
    for (size_t i = 0; i < text->size && !end; i++) {
        size_t found = end_at(clauses, i);
        if (found && !is_blank(text->data, found))
            end = found;
        if (text->data[i] == ' ')
            space = i;
        if (!end && i >= LONGEST && space)
            end = space;
    }
    if (!end && over)
        end = text->size;
    if (!end)
        return false;
    spry_buffer_clear(out);
    spry_buffer_append(out, text->data, end);
    spry_buffer_consume(&clauses->text, end);
    clauses->given++;
    return true;
}
