/* The spellings of characters, and the whitespace between JSON tokens. */
#include "grammar/schema/json_spelling.h"

#include "base/buffer.h"
#include "base/utf8.h"
#include "grammar/source/code_ranges.h"

#include <stdlib.h>

/* ---- \uXXXX ------------------------------------------------------------------------------------------------------ */

static spry_ir_node hex_digits(spry_ir *ir, uint32_t first, uint32_t last)
{
    spry_code_range ranges[3];
    size_t count = 0;
    if (first < 10)
        ranges[count++] = (spry_code_range){'0' + first, '0' + (last < 9 ? last : 9)};
    if (last >= 10) {
        uint32_t from = first > 10 ? first - 10 : 0, to = last - 10;
        ranges[count++] = (spry_code_range){'a' + from, 'a' + to};
        ranges[count++] = (spry_code_range){'A' + from, 'A' + to};
    }
    return spry_ir_class(ir, ranges, count, false);
}

/* The numbers from first to last, written with exactly `digits` hex digits. */
static spry_ir_node hex_range(spry_ir *ir, uint32_t first, uint32_t last, unsigned digits)
{
    if (digits == 0)
        return spry_ir_empty(ir);
    unsigned shift = 4 * (digits - 1);
    uint32_t low = first >> shift, high = last >> shift, rest = (1u << shift) - 1;
    spry_ir_node choices[3];
    size_t count = 0;
    if (low == high) {
        spry_ir_node parts[] = {hex_digits(ir, low, low), hex_range(ir, first & rest, last & rest, digits - 1)};
        return spry_ir_sequence(ir, parts, 2);
    }
    if ((first & rest) != 0) {
        spry_ir_node parts[] = {hex_digits(ir, low, low), hex_range(ir, first & rest, rest, digits - 1)};
        choices[count++] = spry_ir_sequence(ir, parts, 2);
        low++;
    }
    if ((last & rest) != rest) {
        spry_ir_node parts[] = {hex_digits(ir, high, high), hex_range(ir, 0, last & rest, digits - 1)};
        choices[count++] = spry_ir_sequence(ir, parts, 2);
        high--;
    }
    if (low <= high) {
        spry_ir_node parts[] = {hex_digits(ir, low, high),
                                spry_ir_repeat(ir, hex_digits(ir, 0, 15), digits - 1, digits - 1)};
        choices[count++] = spry_ir_sequence(ir, parts, 2);
    }
    return spry_ir_choice(ir, choices, count);
}

static spry_ir_node unit_range(spry_ir *ir, uint32_t first, uint32_t last)
{
    spry_ir_node parts[] = {spry_ir_literal(ir, SPRY_VIEW("\\u")), hex_range(ir, first, last, 4)};
    return spry_ir_sequence(ir, parts, 2);
}

/* Surrogate pairs for a range above U+FFFF. */
static spry_ir_node pair_range(spry_ir *ir, uint32_t first, uint32_t last)
{
    first -= 0x10000, last -= 0x10000;
    uint32_t low = first >> 10, high = last >> 10;
    spry_ir_node choices[3];
    size_t count = 0;
    if (low == high || (first & 0x3FF) != 0) {
        uint32_t end = low == high ? last & 0x3FF : 0x3FF;
        spry_ir_node parts[] = {unit_range(ir, 0xD800 + low, 0xD800 + low),
                                unit_range(ir, 0xDC00 + (first & 0x3FF), 0xDC00 + end)};
        choices[count++] = spry_ir_sequence(ir, parts, 2);
        if (low == high)
            return choices[0];
        low++;
    }
    if ((last & 0x3FF) != 0x3FF) {
        spry_ir_node parts[] = {unit_range(ir, 0xD800 + high, 0xD800 + high),
                                unit_range(ir, 0xDC00, 0xDC00 + (last & 0x3FF))};
        choices[count++] = spry_ir_sequence(ir, parts, 2);
        high--;
    }
    if (low <= high) {
        spry_ir_node parts[] = {unit_range(ir, 0xD800 + low, 0xD800 + high), unit_range(ir, 0xDC00, 0xDFFF)};
        choices[count++] = spry_ir_sequence(ir, parts, 2);
    }
    return spry_ir_choice(ir, choices, count);
}

/* ---- one character ----------------------------------------------------------------------------------------------- */

static const struct {
    char character;
    char escape[3];
} short_escapes[] = {{'"', "\\\""}, {'\\', "\\\\"}, {'/', "\\/"},  {'\b', "\\b"},
                     {'\f', "\\f"}, {'\n', "\\n"},  {'\r', "\\r"}, {'\t', "\\t"}};

/* The allowed spellings by range, in order: the character itself, \uXXXX, surrogate pairs. */
static const struct {
    spry_code_range range;
    enum { PLAIN, UNIT, PAIR } how;
} manners[] = {
    {{0x20, 0x21}, PLAIN}, {{0x23, 0x5B}, PLAIN},  {{0x5D, 0xD7FF}, PLAIN},  {{0xE000, 0x10FFFF}, PLAIN},
    {{0x00, 0x1F}, UNIT},  {{0x7F, 0xD7FF}, UNIT}, {{0xE000, 0xFFFF}, UNIT}, {{0x10000, 0x10FFFF}, PAIR},
};

/* The combined spellings of several ranges. */
typedef struct spelling {
    spry_ir *ir;
    spry_code_range *plain;
    spry_ir_node *choices;
    size_t n_plain, n_choices;
} spelling;

static void spell_range(spelling *out, spry_code_range range)
{
    for (size_t i = 0; i < sizeof manners / sizeof *manners; i++) {
        spry_code_range cut = manners[i].range;
        cut.first = cut.first > range.first ? cut.first : range.first;
        cut.last = cut.last < range.last ? cut.last : range.last;
        if (cut.first > cut.last)
            continue;
        if (manners[i].how == PLAIN)
            out->plain[out->n_plain++] = cut;
        else if (manners[i].how == UNIT)
            out->choices[out->n_choices++] = unit_range(out->ir, cut.first, cut.last);
        else
            out->choices[out->n_choices++] = pair_range(out->ir, cut.first, cut.last);
    }
}

static bool has_character(const spry_code_range *ranges, size_t count, uint32_t character)
{
    for (size_t i = 0; i < count; i++)
        if (ranges[i].first <= character && character <= ranges[i].last)
            return true;
    return false;
}

spry_ir_node spry_json_spell_class(spry_ir *ir, const spry_code_range *ranges, size_t count)
{
    enum { MANNERS = sizeof manners / sizeof *manners, SHORT = sizeof short_escapes / sizeof *short_escapes };
    if (count == 0)
        return spry_ir_never(ir);
    spelling out = {.ir = ir,
                    .plain = calloc(count * MANNERS, sizeof *out.plain),
                    .choices = calloc(count * MANNERS + SHORT + 1, sizeof *out.choices)};
    spry_ir_node node = SPRY_IR_NONE;
    if (out.plain && out.choices) {
        for (size_t i = 0; i < count; i++)
            spell_range(&out, ranges[i]);
        for (size_t i = 0; i < SHORT; i++)
            if (has_character(ranges, count, (unsigned char)short_escapes[i].character))
                out.choices[out.n_choices++] = spry_ir_literal(ir, spry_view_of(short_escapes[i].escape));
        if (out.n_plain)
            out.choices[out.n_choices++] = spry_ir_class(ir, out.plain, out.n_plain, false);
        node = spry_ir_choice(ir, out.choices, out.n_choices);
    } else {
        spry_ir_fail(ir, SPRY_ERR_MEMORY, "not enough memory for a class of %zu ranges", count);
    }
    free(out.plain);
    free(out.choices);
    return node;
}

spry_ir_node spry_json_any_character(spry_ir *ir, bool escapes)
{
    spry_ir_node plain = spry_json_spell_class(ir, &(spry_code_range){0, SPRY_CODE_LAST}, 1);
    if (!escapes)
        return plain;
    return spry_ir_choice(ir, (spry_ir_node[]){plain, unit_range(ir, 0x20, 0x7E)}, 2);
}

/* ---- texts ------------------------------------------------------------------------------------------------------- */

/* Whether the byte itself is its only spelling. */
static bool is_plain(char c)
{
    return c >= 0x20 && c < 0x7F && c != '"' && c != '\\' && c != '/';
}

/* The next part of a text: a run of plain bytes, or one character. Moves *at past it. */
static spry_ir_node spell_part(spry_ir *ir, spry_view text, size_t *at)
{
    size_t begin = *at;
    while (*at < text.size && is_plain(text.data[*at]))
        ++*at;
    if (*at > begin)
        return spry_ir_literal(ir, (spry_view){text.data + begin, *at - begin});
    uint32_t character;
    size_t size = spry_utf8_decode(&character, text.data + begin, text.size - begin);
    *at = size ? begin + size : text.size;
    if (size == 0)
        return spry_ir_fail(ir, SPRY_ERR_INPUT, "a text of the JSON schema is not valid UTF-8");
    return spry_json_spell_class(ir, &(spry_code_range){character, character}, 1);
}

spry_ir_node spry_json_spell_text(spry_ir *ir, spry_view text)
{
    spry_ir_node *parts = malloc((text.size + 1) * sizeof *parts);
    size_t count = 0;
    if (!parts)
        return spry_ir_fail(ir, SPRY_ERR_MEMORY, "not enough memory for a text of %zu bytes", text.size);
    for (size_t at = 0; at < text.size;)
        parts[count++] = spell_part(ir, text, &at);
    spry_ir_node whole = spry_ir_sequence(ir, parts, count);
    free(parts);
    return whole;
}

spry_ir_node spry_json_spell_usual(spry_ir *ir, spry_view text)
{
    spry_buffer out;
    spry_buffer_init(&out, 6 * text.size + 1);
    for (size_t i = 0; i < text.size; i++) {
        unsigned char byte = (unsigned char)text.data[i];
        const char *escape = NULL;
        for (size_t k = 0; k < sizeof short_escapes / sizeof *short_escapes; k++)
            if (byte == (unsigned char)short_escapes[k].character && byte != '/')
                escape = short_escapes[k].escape;
        if (escape)
            spry_buffer_text(&out, escape);
        else if (byte < 0x20)
            spry_buffer_format(&out, "\\u%04x", byte);
        else
            spry_buffer_append(&out, text.data + i, 1);
    }
    spry_ir_node node = out.failed
                            ? spry_ir_fail(ir, SPRY_ERR_MEMORY, "not enough memory for a text of %zu bytes", text.size)
                            : spry_ir_literal(ir, spry_buffer_view(&out));
    spry_buffer_deinit(&out);
    return node;
}

/* ---- blanks ------------------------------------------------------------------------------------------------------ */

enum { INDENT_MAX = 40 };

spry_ir_node spry_json_gap(spry_ir *ir)
{
    spry_ir_node space = spry_ir_literal(ir, SPRY_VIEW(" "));
    spry_ir_node blank = spry_ir_class(ir, (spry_code_range[]){{' ', ' '}, {'\t', '\t'}}, 2, false);
    spry_ir_node line[] = {spry_ir_repeat(ir, spry_ir_literal(ir, SPRY_VIEW("\r")), 0, 1),
                           spry_ir_literal(ir, SPRY_VIEW("\n")), spry_ir_repeat(ir, blank, 0, INDENT_MAX)};
    spry_ir_node gap[] = {spry_ir_empty(ir), space, spry_ir_sequence(ir, line, 3)};
    return spry_ir_choice(ir, gap, 3);
}

spry_ir_node spry_json_line(spry_ir *ir)
{
    spry_ir_node space = spry_ir_literal(ir, SPRY_VIEW(" "));
    return spry_ir_sequence(
        ir, (spry_ir_node[]){spry_ir_literal(ir, SPRY_VIEW("\n")), spry_ir_repeat(ir, space, 0, INDENT_MAX)}, 2);
}

spry_ir_node spry_json_prose(spry_ir *ir)
{
    static const spry_code_range others[] = {{0, '\n' - 1}, {'\n' + 1, ' ' - 1}, {' ' + 1, SPRY_CODE_LAST}};
    spry_ir_node blank = spry_ir_literal(ir, SPRY_VIEW(" ")), blanks = spry_ir_repeat(ir, blank, 0, 1);
    spry_ir_node line[] = {spry_ir_literal(ir, SPRY_VIEW("\\n")), spry_ir_repeat(ir, blank, 0, SPRY_JSON_INDENT_MAX)};
    spry_ir_node either[] = {spry_json_spell_class(ir, others, 3), spry_ir_sequence(ir, line, 2)};
    spry_ir_node round[] = {blanks, spry_ir_choice(ir, either, 2)};
    spry_ir_node rounds = spry_ir_repeat(ir, spry_ir_sequence(ir, round, 2), 0, SPRY_IR_UNBOUNDED);
    return spry_ir_sequence(ir, (spry_ir_node[]){rounds, blanks}, 2);
}
