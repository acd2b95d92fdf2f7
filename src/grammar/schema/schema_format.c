/* The keyword "format": regular expressions for strings, bounds for numbers, and formats without constraints. Unknown
 * formats are refused, because ignoring one would accept invalid values. */
#include "grammar/schema/schema.h"

#include "grammar/schema/json_spelling.h"

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

#define ATOM  "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define EMAIL                                                                                                          \
    ANY_OF(ATOM "(?:\\." ATOM ")*|\"(?:[ !#-\\[\\]-~]|\\\\[ -~])*\"")                                                  \
    "@" ANY_OF(LABEL "(?:\\." LABEL ")*|\\[" IPV4 "\\]|\\[IPv6:" IPV6 "\\]")

#define ENCODED  "%[0-9A-Fa-f]{2}"
#define PCHAR    "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|" ENCODED ")"
#define HOST     "(?:\\[" IPV6 "\\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|" ENCODED ")*)"
#define SERVER   "//(?:(?:[A-Za-z0-9._~!$&'()*+,;=:-]|" ENCODED ")*@)?" HOST "(?::[0-9]*)?(?:/" PCHAR "*)*"
#define ABSOLUTE "/(?:" PCHAR "+(?:/" PCHAR "*)*)?"
#define TAIL     "(?:\\?(?:" PCHAR "|[/?])*)?(?:#(?:" PCHAR "|[/?])*)?"
#define URI      "[A-Za-z][A-Za-z0-9+.-]*:(?:" SERVER "|" ABSOLUTE "|" PCHAR "+(?:/" PCHAR "*)*)?" TAIL
#define RELATIVE "(?:" SERVER "|" ABSOLUTE "|(?:[A-Za-z0-9._~!$&'()*+,;=@-]|" ENCODED ")+(?:/" PCHAR "*)*)?" TAIL

#define POINTER "(?:/(?:[^~/]|~[01])*)*"

static const struct {
    const char *name, *regex;
} strings[] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE "[Tt]" TIME},
    {"duration", "P(?:[0-9]+W|" DURATION_DAYS "(?:" DURATION_TIME ")?|" DURATION_TIME ")"},
    {"uuid", "[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}"},
    {"email", EMAIL},
    {"ipv4", IPV4},
    {"ipv6", IPV6},
    {"uri", URI},
    {"uri-reference", "(?:" URI "|" RELATIVE ")"},
    {"json-pointer", POINTER},
    {"relative-json-pointer", "(?:0|[1-9][0-9]*)(?:#|" POINTER ")"},
    {"byte", "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"},
};

/* Integers of fixed width, as named by OpenAPI. */
static const struct {
    const char *name;
    uint64_t below, above; /* magnitudes of the minimum and maximum */
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

static const char *const hints[] = {"float", "double", "password"};

/* Integers in the range; negated: numbers below, above, or not integers. */
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

const spry_shapes *spry_schema_format(spry_schema *schema, uint32_t place, const char *keyword, const json_t *value,
                                      bool negated)
{
    const char *name = spry_schema_text(value) ? spry_schema_text(value) : "";
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) {
        if (strcmp(name, strings[i].name) != 0)
            continue;
        spry_ir_node regex = spry_ir_regex(schema->ir, spry_view_of(strings[i].regex), false);
        const spry_shapes *spelled = spry_schema_spelled(schema, spry_json_respell(schema->ir, regex), negated);
        if (negated)
            return spelled;
        return spry_shapes_either(schema, spry_shapes_without(schema, SPRY_SHAPE_STRING), spelled);
    }
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        if (strcmp(name, integers[i].name) == 0)
            return integer_shapes(schema, i, negated);
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++)
        if (strcmp(name, hints[i]) == 0)
            return negated ? spry_shapes_none(schema) : &schema->everything;
    spry_schema_refuse(schema, SPRY_ERR_UNSUPPORTED, schema->places[place]->json, keyword,
                       "\"%.60s\" cannot be enforced; leave it out, or say it with a pattern", name);
    return NULL;
}
