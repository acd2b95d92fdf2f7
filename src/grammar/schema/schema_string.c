/* Strings: keywords, conjunction of two shapes, and spelling. */
#include "base/buffer.h"
#include "base/utf8.h"
#include "grammar/schema/json_spelling.h"
#include "grammar/schema/schema.h"

enum { PROSE_MIN_MAX = 4096 }; /* for a larger minimum length, repeated blanks are not excluded */

static const spry_shapes *one_string(spry_schema *schema, spry_string_shape string)
{
    spry_shape *shape = spry_shape_new(schema, SPRY_SHAPE_STRING);
    if (!shape)
        return NULL;
    shape->as.string = string;
    return spry_shapes_of(schema, &shape, 1);
}

/* ---- the keywords ------------------------------------------------------------------------------------------------ */

const spry_shapes *spry_schema_length(spry_schema *schema, uint32_t place, const char *keyword, const json_t *value,
                                      bool negated)
{
    spry_string_shape string = {.max = SPRY_IR_UNBOUNDED};
    if (!spry_schema_range(schema, &string.min, &string.max, place, keyword, value, negated))
        return spry_schema_failed(schema) ? NULL : spry_shapes_none(schema);
    return one_string(schema, string);
}

spry_ir_node spry_schema_pattern_node(spry_schema *schema, const json_t *where, const char *keyword, spry_view pattern)
{
    uint32_t node;
    bool added;
    if (spry_map_find(&schema->pattern_index, pattern, &node))
        return node;
    if (spry_schema_failed(schema))
        return SPRY_IR_NONE;
    node = spry_json_respell(schema->ir, spry_ir_regex(schema->ir, pattern, true));
    spry_schema_blame(schema, where, keyword);
    if (!spry_map_add(&schema->pattern_index, pattern, node, &added))
        return spry_ir_fail(schema->ir, SPRY_ERR_MEMORY, "not enough memory for the JSON schema");
    return node;
}

/* Strings whose spelling is in a set; with `negated`, whose spelling is not. */
static const spry_shapes *schema_spelled(spry_schema *schema, spry_ir_node spelled, bool negated)
{
    if (negated)
        spelled = spry_ir_subtract(schema->ir, spry_strings_except(schema, NULL, 0), spelled);
    return one_string(schema, (spry_string_shape){.max = SPRY_IR_UNBOUNDED, .also = spry_nodes_one(schema, spelled)});
}

const spry_shapes *spry_schema_pattern(spry_schema *schema, uint32_t place, const char *keyword, const json_t *value,
                                       bool negated)
{
    const json_t *json = schema->places[place]->json;
    if (!json_is_string(value)) {
        spry_schema_refuse(schema, SPRY_ERR_INPUT, json, keyword, "must be a string");
        return NULL;
    }
    spry_view pattern = {json_string_value(value), json_string_length(value)};
    return schema_spelled(schema, spry_schema_pattern_node(schema, json, keyword, pattern), negated);
}

const spry_shapes *spry_schema_lark(spry_schema *schema, uint32_t place, const char *keyword, const json_t *value,
                                    bool negated)
{
    const json_t *json = schema->places[place]->json;
    if (!json_is_string(value)) {
        spry_schema_refuse(schema, SPRY_ERR_INPUT, json, keyword, "must be a string");
        return NULL;
    }
    spry_view text = {json_string_value(value), json_string_length(value)};
    spry_ir_node node = spry_ir_lark(schema->ir, text, true);
    spry_schema_blame(schema, json, keyword);
    return schema_spelled(schema, node, negated);
}

/* ---- conjunction of two shapes ----------------------------------------------------------------------------------- */

static uint32_t length_of(const json_t *string)
{
    uint32_t count = 0;
    const char *text = json_string_value(string);
    for (size_t i = 0; i < json_string_length(string); i++)
        count += (text[i] & 0xC0) != 0x80;
    return count;
}

static bool has_value(const spry_string_shape *string, const json_t *value)
{
    for (size_t i = 0; i < string->n_values; i++)
        if (json_equal(string->values[i], value))
            return true;
    return !string->values;
}

static bool has_patterns(spry_schema *schema, spry_nodes patterns, const json_t *value)
{
    for (size_t i = 0; i < patterns.count; i++)
        if (!spry_schema_accepts(schema, patterns.items[i],
                                 (spry_view){json_string_value(value), json_string_length(value)}))
            return false;
    return true;
}

/* Removes the values that do not match the patterns; then the patterns are no longer needed. */
static void apply_patterns(spry_schema *schema, spry_string_shape *string, const json_t **values, const json_t *at)
{
    size_t kept = 0;
    for (size_t i = 0; i < string->n_values; i++)
        if (json_string_length(values[i]) > SPRY_SCHEMA_NAME_MAX)
            return;
    for (size_t i = 0; i < string->n_values; i++)
        if (has_patterns(schema, string->also, values[i]))
            values[kept++] = values[i];
    string->n_values = kept;
    string->also = (spry_nodes){NULL, 0};
    spry_schema_blame(schema, at, NULL);
}

spry_shape *spry_string_both(spry_schema *schema, const spry_shape *first, const spry_shape *second)
{
    const spry_string_shape *a = &first->as.string, *b = &second->as.string;
    spry_string_shape out = {.min = a->min > b->min ? a->min : b->min, .max = a->max < b->max ? a->max : b->max};
    if (out.min > out.max)
        return NULL;
    if (!a->values) {
        const spry_string_shape *swap = a;
        a = b;
        b = swap;
    }
    if (a->values) {
        const json_t **kept = spry_schema_alloc(schema, a->n_values, sizeof *kept);
        if (!kept)
            return NULL;
        for (size_t i = 0; i < a->n_values; i++) {
            uint32_t length = length_of(a->values[i]);
            if (length >= out.min && length <= out.max && has_value(b, a->values[i]))
                kept[out.n_values++] = a->values[i];
        }
        out.values = kept;
        out.also = spry_nodes_join(schema, a->also, b->also);
        apply_patterns(schema, &out, kept, first->at);
        if (out.n_values == 0 || spry_schema_failed(schema))
            return NULL;
    } else {
        out.also = spry_nodes_join(schema, a->also, b->also);
    }
    spry_shape *shape = spry_shape_new(schema, SPRY_SHAPE_STRING);
    if (shape)
        shape->as.string = out;
    return shape;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static spry_ir_node write_values(spry_schema *schema, const spry_string_shape *string)
{
    spry_ir_node *choices = spry_schema_alloc(schema, string->n_values, sizeof *choices);
    if (!choices)
        return SPRY_IR_NONE;
    for (size_t i = 0; i < string->n_values; i++) {
        spry_view text = {json_string_value(string->values[i]), json_string_length(string->values[i])};
        choices[i] = spry_schema_writes(schema) ? spry_json_spell_usual(schema->ir, text)
                                                : spry_json_spell_text(schema->ir, text);
    }
    return spry_ir_choice(schema->ir, choices, string->n_values);
}

/* Strings of limited length without patterns. */
static spry_ir_node write_length(spry_schema *schema, const spry_string_shape *string)
{
    bool writes = spry_schema_writes(schema);
    if (writes && string->min <= PROSE_MIN_MAX)
        return spry_schema_limited(schema, spry_json_prose(schema->ir), string->min, string->max);
    return spry_ir_repeat(schema->ir, spry_json_any_character(schema->ir, !writes), string->min, string->max);
}

/* The text between the quotes. */
static spry_ir_node write_inside(spry_schema *schema, const spry_string_shape *string)
{
    if (string->values) {
        spry_ir_node inside = write_values(schema, string);
        for (size_t i = 0; i < string->also.count; i++)
            inside = spry_ir_intersect(schema->ir, inside, string->also.items[i]);
        return inside;
    }
    if (string->also.count == 0)
        return write_length(schema, string);
    spry_ir_node inside = string->also.items[0];
    for (size_t i = 1; i < string->also.count; i++)
        inside = spry_ir_intersect(schema->ir, inside, string->also.items[i]);
    return spry_schema_limited(schema, inside, string->min, string->max);
}

spry_ir_node spry_string_write(spry_schema *schema, const spry_string_shape *string)
{
    spry_ir_node quote = spry_ir_literal(schema->ir, SPRY_VIEW("\""));
    return spry_ir_sequence(schema->ir, (spry_ir_node[]){quote, write_inside(schema, string), quote}, 3);
}

/* The text between the quotes as a regular node, because names of members are compared with each other. */
static spry_ir_node write_regular(spry_schema *schema, const spry_string_shape *string)
{
    spry_ir *ir = schema->ir;
    bool escapes = string->also.count == 0 && !spry_schema_writes(schema);
    if (string->values || (string->min == 0 && string->max == SPRY_IR_UNBOUNDED))
        return write_inside(schema, string);
    spry_ir_node inside = spry_ir_repeat(ir, spry_json_any_character(ir, escapes), string->min, string->max);
    for (size_t i = 0; i < string->also.count; i++)
        inside = spry_ir_intersect(schema->ir, inside, string->also.items[i]);
    return inside;
}

spry_ir_node spry_schema_key_language(spry_schema *schema, spry_claims claims)
{
    const spry_shapes *shapes = spry_goal_shapes(schema, spry_schema_goal(schema, claims));
    spry_ir_node language = spry_ir_never(schema->ir);
    for (size_t i = 0; shapes && i < shapes->count; i++) {
        if (shapes->items[i]->kind != SPRY_SHAPE_STRING)
            continue;
        spry_ir_node inside = write_regular(schema, &shapes->items[i]->as.string);
        language = spry_ir_choice(schema->ir, (spry_ir_node[]){language, inside}, 2);
    }
    return language;
}

/* ---- format ------------------------------------------------------------------------------------------------------ */

/* The keyword "format": regular expressions for strings, bounds for numbers. Unknown formats are annotations, as in the
 * specification. */

#define ANY_OF(...) "(?:" __VA_ARGS__ ")"

#define DATE                                                                                                           \
    ANY_OF("[0-9]{4}-" ANY_OF("(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|"                                         \
                              "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"                                                 \
                              "02-(?:0[1-9]|1[0-9]|2[0-8])") "|"                                                       \
                                                             "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468]" \
                                                             "[048]|[13579][26])00)-02-29")
#define FRACTION "(?:\\.[0-9]{1,18})?"
#define TIME                                                                                                           \
    ANY_OF("(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]" FRACTION "(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])|"       \
           "23:59:60" FRACTION "(?:[Zz]|[+-]00:00)")
#define DURATION_DAYS "(?:[0-9]+D|[0-9]+M(?:[0-9]+D)?|[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?)"
#define DURATION_TIME "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"

#define OCTET "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4  OCTET "(?:\\." OCTET "){3}"
#define H16   "[0-9A-Fa-f]{1,4}"
#define LS32  "(?:" H16 ":" H16 "|" IPV4 ")"
#define IPV6                                                                                                           \
    ANY_OF("(?:" H16 ":){6}" LS32 "|::(?:" H16 ":){5}" LS32 "|(?:" H16 ")?::(?:" H16 ":){4}" LS32 "|(?:(?:" H16        \
           ":)?" H16 ")?::(?:" H16 ":){3}" LS32 "|(?:(?:" H16 ":){0,2}" H16 ")?::(?:" H16 ":){2}" LS32 "|(?:(?:" H16   \
           ":){0,3}" H16 ")?::" H16 ":" LS32 "|(?:(?:" H16 ":){0,4}" H16 ")?::" LS32 "|(?:(?:" H16 ":){0,5}" H16       \
           ")?::" H16 "|(?:(?:" H16 ":){0,6}" H16 ")?::")

#define ATOM           "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
#define QUOTED         "\"(?:[ !#-\\[\\]-~]|\\\\[ -~])*\""
#define LABEL          "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define SERVERS(label) ANY_OF(label "(?:\\." label ")*|\\[" IPV4 "\\]|\\[IPv6:" IPV6 "\\]")
#define EMAIL          ANY_OF(ATOM "(?:\\." ATOM ")*|" QUOTED) "@" SERVERS(LABEL)

/* A label of a host name. Two hyphens in the third and fourth place announce an encoding whose contents a regular
 * expression cannot check, so such labels are not allowed. */
#define AN         "[A-Za-z0-9]"
#define AH         "[A-Za-z0-9-]"
#define HOST_LABEL ANY_OF(AN "(?:" AH "?" AN ")?|" AN AH AN AH "{0,59}" AN "|" AN AH "-" AN "(?:" AH "{0,58}" AN ")?")
/* Small letters of scripts written from left to right, in labels short enough to be encoded in 63 bytes. */
#define IDN_LETTER                                                                                                     \
    "[a-z0-9\\u00df-\\u00f6\\u00f8-\\u00ff\\u03ac-\\u03ce\\u0430-\\u045f\\u0561-\\u0586\\u0904-\\u0939\\u0e01-\\u0e30" \
    "\\u10d0-\\u10f0\\u3041-\\u3096\\u30a1-\\u30fa\\u4e00-\\u9fff\\uac00-\\ud7a3]"
#define IDN_LABEL ANY_OF(HOST_LABEL "|" IDN_LETTER "(?:" IDN_LETTER "{0,10}" IDN_LETTER ")?")
#define IDN_DOT   "[.\\u3002\\uff0e\\uff61]"
#define IDN_ATOM  "[A-Za-z0-9!#$%&'*+/=?^_`{|}~\\p{L}\\p{N}-]+"

#define ENCODED "%[0-9A-Fa-f]{2}"
/* The syntax of RFC 3986, with more letters for RFC 3987. */
#define PCHAR(more)  "(?:[A-Za-z0-9._~!$&'()*+,;=:@" more "-]|" ENCODED ")"
#define HOST(more)   "(?:\\[" IPV6 "\\]|(?:[A-Za-z0-9._~!$&'()*+,;=" more "-]|" ENCODED ")*)"
#define USER(more)   "(?:(?:[A-Za-z0-9._~!$&'()*+,;=:" more "-]|" ENCODED ")*@)?"
#define SERVER(more) "//" USER(more) HOST(more) "(?::[0-9]*)?(?:/" PCHAR(more) "*)*"
#define ROOTED(more) "/(?:" PCHAR(more) "+(?:/" PCHAR(more) "*)*)?"
#define TAIL(more)   "(?:\\?(?:" PCHAR(more) "|[/?])*)?(?:#(?:" PCHAR(more) "|[/?])*)?"
#define URI(more)                                                                                                      \
    "[A-Za-z][A-Za-z0-9+.-]*:(?:" SERVER(more) "|" ROOTED(more) "|" PCHAR(more) "+(?:/" PCHAR(more) "*)*)?" TAIL(more)
#define RELATIVE(more)                                                                                                 \
    "(?:" SERVER(more) "|" ROOTED(more) "|(?:[A-Za-z0-9._~!$&'()*+,;=@" more "-]|" ENCODED                             \
                                        ")+(?:/" PCHAR(more) "*)*)?" TAIL(more)
#define REFERENCE(more) "(?:" URI(more) "|" RELATIVE(more) ")"
#define LETTERS         "\\u00a0-\\ud7ff\\uf900-\\ufdcf\\ufdf0-\\uffef\\u{10000}-\\u{1fffd}\\u{20000}-\\u{2fffd}"

#define TEMPLATE_NAME  "(?:[A-Za-z0-9_]|" ENCODED ")(?:\\.?(?:[A-Za-z0-9_]|" ENCODED "))*"
#define TEMPLATE_VALUE TEMPLATE_NAME "(?::[1-9][0-9]{0,3}|\\*)?"
#define TEMPLATE                                                                                                       \
    "(?:[!#$&(-;=?-\\[\\]_a-z~" LETTERS "]|" ENCODED "|\\{[+#./;?&=,!@|]?" TEMPLATE_VALUE "(?:," TEMPLATE_VALUE        \
    ")*\\})*"

#define POINTER "(?:/(?:[^~/]|~[01])*)*"

static const struct {
    const char *name, *regex;
    uint32_t max; /* maximum number of characters; 0: any number */
} strings[] = {
    {"date", DATE, 0},
    {"time", TIME, 0},
    {"date-time", DATE "[Tt]" TIME, 0},
    {"duration", "P(?:[0-9]+W|" DURATION_DAYS "(?:" DURATION_TIME ")?|" DURATION_TIME ")", 0},
    {"uuid", "[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}", 0},
    {"email", EMAIL, 0},
    {"idn-email", ANY_OF(IDN_ATOM "(?:\\." IDN_ATOM ")*|" QUOTED) "@" SERVERS(ANY_OF(IDN_LABEL)), 0},
    {"hostname", HOST_LABEL "(?:\\." HOST_LABEL ")*", 253},
    {"idn-hostname", IDN_LABEL "(?:" IDN_DOT IDN_LABEL "){0,2}", 0},
    {"ipv4", IPV4, 0},
    {"ipv6", IPV6, 0},
    {"uri", URI(""), 0},
    {"uri-reference", REFERENCE(""), 0},
    {"iri", URI(LETTERS), 0},
    {"iri-reference", REFERENCE(LETTERS), 0},
    {"uri-template", TEMPLATE, 0},
    {"json-pointer", POINTER, 0},
    {"relative-json-pointer", "(?:0|[1-9][0-9]*)(?:#|" POINTER ")", 0},
};

/* Integers of fixed width, as named by OpenAPI. */
static const struct {
    const char *name;
    uint64_t below, above; /* magnitudes of the smallest and the largest value */
} integers[] = {
    {"int8", 1u << 7, (1u << 7) - 1},
    {"int16", 1u << 15, (1u << 15) - 1},
    {"int32", 1u << 31, (1u << 31) - 1},
    {"int64", (uint64_t)1 << 63, ((uint64_t)1 << 63) - 1},
    {"uint8", 0, UINT8_MAX},
    {"uint16", 0, UINT16_MAX},
    {"uint32", 0, UINT32_MAX},
    {"uint64", 0, UINT64_MAX},
};

/* The integers of the range; negated: smaller numbers, larger numbers, and numbers that are not integers. */
static const spry_shapes *integer_shapes(spry_schema *schema, size_t row, bool negated)
{
    spry_bound low = {.set = true, .exclusive = negated, .at = spry_decimal_from_u64(integers[row].below, true)};
    spry_bound high = {.set = true, .exclusive = negated, .at = spry_decimal_from_u64(integers[row].above, false)};
    spry_shape *shapes[3];
    for (size_t i = 0; i < 3; i++)
        if (!(shapes[i] = spry_shape_new(schema, SPRY_SHAPE_NUMBER)))
            return NULL;
    if (!negated) {
        shapes[0]->as.number = (spry_number_shape){.integer = true, .low = low, .high = high};
        const spry_shapes *within = spry_shapes_of(schema, shapes, 1);
        return spry_shapes_either(schema, spry_shapes_without(schema, SPRY_SHAPE_NUMBER), within);
    }
    shapes[0]->as.number.high = low;
    shapes[1]->as.number.low = high;
    shapes[2]->as.number.fractional = true;
    return spry_shapes_of(schema, shapes, 3);
}

/* ---- regular expressions ----------------------------------------------------------------------------------------- */

/* Adds "|a-[b-z]|b-[c-z]...", with `link` in place of the first hyphen. */
static void add_ascending(spry_buffer *out, char first, char last, const char *link)
{
    for (char c = first; c < last; c++)
        spry_buffer_format(out, "|%c%s[%c-%c]", c, link, c + 1, last);
}

/* Adds an optional repetition. */
static void add_repetition(spry_buffer *out)
{
    spry_buffer_text(out, "(?:(?:[*+?]|\\{(?:[0-9]{1,3},?");
    add_ascending(out, '0', '9', ",");
    spry_buffer_text(out, "|[0-9],[1-9][0-9]{1,2})\\})(?:\\?)?)?");
}

/* The text between parentheses: characters, classes, escapes, each perhaps repeated; "|"; assertions. */
static void add_flat(spry_buffer *out)
{
    static const char escapes[] =
        "\\\\(?:[dDwWsStnrfv0]|[\\^$\\\\.*+?()\\[\\]{}|/]|x[0-9A-Fa-f]{2}|u[0-9A-F]{4}|c[A-Z])";
    spry_buffer_format(out, "(?:[^\\\\()\\[\\]{}*+?|^$]|%s|\\[\\^?(?:[^\\\\\\[\\]^-]|%s", escapes, escapes);
    add_ascending(out, 'a', 'z', "-");
    add_ascending(out, 'A', 'Z', "-");
    add_ascending(out, '0', '9', "-");
    spry_buffer_text(out, ")*-?\\])");
    add_repetition(out);
    spry_buffer_text(out, "|[|^$]|\\\\[bB]");
}

static spry_ir_node spell(spry_ir *ir, const spry_buffer *regex)
{
    if (regex->failed)
        return spry_ir_fail(ir, SPRY_ERR_MEMORY, "not enough memory for a format");
    return spry_json_respell(ir, spry_ir_regex(ir, spry_buffer_view(regex), false));
}

/* Valid regular expressions. Groups nest, so this is a rule and not an automaton; back references and names of groups
 * are not allowed. */
static spry_ir_node regex_language(spry_ir *ir)
{
    static const char *const opening[] = {"\\((?:\\?:)?", "\\(\\?(?:[=!]|<[=!])"};
    const spry_view name = SPRY_VIEW("json schema format regex");
    spry_ir_node all = spry_ir_rule(ir, name), items[3];
    if (spry_ir_is_defined(ir, name))
        return all;
    spry_buffer text;
    spry_buffer_init(&text, 1 << 14);
    add_flat(&text);
    items[0] = spell(ir, &text);
    for (size_t i = 0; i < 2; i++) {
        spry_ir_node open = spry_json_respell(ir, spry_ir_regex(ir, spry_view_of(opening[i]), false));
        spry_buffer_clear(&text);
        spry_buffer_text(&text, "\\)");
        if (i == 0)
            add_repetition(&text);
        items[i + 1] = spry_ir_sequence(ir, (spry_ir_node[]){open, all, spell(ir, &text)}, 3);
    }
    spry_buffer_deinit(&text);
    spry_ir_define(ir, name, spry_ir_repeat(ir, spry_ir_choice(ir, items, 3), 0, SPRY_IR_UNBOUNDED));
    return all;
}

/* ---- the keyword ------------------------------------------------------------------------------------------------- */

const char *spry_json_format(const char *name, uint32_t *max)
{
    *max = SPRY_IR_UNBOUNDED;
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) {
        if (strcmp(name, strings[i].name) != 0)
            continue;
        if (strings[i].max)
            *max = strings[i].max;
        return strings[i].regex;
    }
    return NULL;
}

/* The spellings of a string format; SPRY_IR_NONE when it is not a format of strings. */
static spry_ir_node string_format(spry_schema *schema, const char *name, uint32_t *max)
{
    const char *regex = spry_json_format(name, max);
    if (regex)
        return spry_json_respell(schema->ir, spry_ir_regex(schema->ir, spry_view_of(regex), false));
    return strcmp(name, "regex") == 0 ? regex_language(schema->ir) : SPRY_IR_NONE;
}

const spry_shapes *spry_schema_format(spry_schema *schema, uint32_t place, const char *keyword, const json_t *value,
                                      bool negated)
{
    (void)place, (void)keyword;
    const char *name = spry_schema_text(value) ? spry_schema_text(value) : "";
    uint32_t max;
    spry_ir_node format = string_format(schema, name, &max);
    if (format != SPRY_IR_NONE) {
        const spry_shapes *spelled = schema_spelled(schema, format, negated);
        if (negated || !spelled)
            return spelled; /* the longer texts are dropped: they are too few to matter */
        spelled->items[0]->as.string.max = max;
        return spry_shapes_either(schema, spry_shapes_without(schema, SPRY_SHAPE_STRING), spelled);
    }
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        if (strcmp(name, integers[i].name) == 0)
            return integer_shapes(schema, i, negated);
    return negated || spry_schema_failed(schema) ? spry_shapes_none(schema) : &schema->everything;
}
