/* Numbers: exact decimals, keywords, the conjunction of two shapes, and the spellings of numbers within bounds. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "grammar/ir/ir_nodes.h"
#include "grammar/schema/schema.h"

/* ---- exact decimals ---------------------------------------------------------------------------------------------- */

/* Parses [-]digits[.digits][e[+-]digits]; the input has no more digits than there is room for. */
static spry_decimal from_text(const char *text)
{
    spry_decimal out = {0};
    out.negative = *text == '-';
    text += out.negative;
    int point = 0, exponent = 0;
    bool after_point = false;
    for (; *text && *text != 'e'; text++) {
        if (*text < '0' || *text > '9') {
            after_point = true;
            continue;
        }
        if (out.n_digits == 0 && *text == '0') {
            point -= after_point;
            continue;
        }
        point += !after_point;
        if (out.n_digits < SPRY_DECIMAL_DIGITS)
            out.digits[out.n_digits++] = *text;
    }
    if (*text == 'e')
        exponent = (int)strtol(text + 1, NULL, 10);
    while (out.n_digits > 0 && out.digits[out.n_digits - 1] == '0')
        out.n_digits--;
    if (out.n_digits == 0)
        return (spry_decimal){0};
    out.exponent = (int16_t)(exponent + point - 1);
    return out;
}

spry_decimal spry_decimal_from_u64(uint64_t value, bool negative)
{
    char text[32];
    snprintf(text, sizeof text, "%s%" PRIu64, negative ? "-" : "", value);
    return from_text(text);
}

spry_decimal spry_decimal_of(const json_t *number)
{
    if (json_is_integer(number)) {
        json_int_t value = json_integer_value(number);
        return spry_decimal_from_u64(value < 0 ? 0 - (uint64_t)value : (uint64_t)value, value < 0);
    }
    double value = json_real_value(number);
    char text[40];
    if (value > -1e22 && value < 1e22 && (value <= -0x1p63 || value >= 0x1p63)) { /* an integer of more than 64 bits */
        snprintf(text, sizeof text, "%.0f", value);
        return from_text(text);
    }
    for (int digits = 15; digits <= 17; digits++) {
        double back;
        snprintf(text, sizeof text, "%.*e", digits - 1, value);
        for (char *c = text; *c; c++)
            if (*c == ',') /* decimal sign of the locale */
                *c = '.';
        if (spry_number_double(&back, spry_view_of(text)) && back == value)
            break;
    }
    return from_text(text);
}

static int compare_magnitude(const spry_decimal *a, const spry_decimal *b)
{
    if (a->n_digits == 0 || b->n_digits == 0)
        return (a->n_digits != 0) - (b->n_digits != 0);
    if (a->exponent != b->exponent)
        return a->exponent < b->exponent ? -1 : 1;
    size_t shared = a->n_digits < b->n_digits ? a->n_digits : b->n_digits;
    int order = memcmp(a->digits, b->digits, shared);
    return order ? order : (int)a->n_digits - (int)b->n_digits;
}

int spry_decimal_compare(const spry_decimal *a, const spry_decimal *b)
{
    if (a->negative != b->negative)
        return a->negative ? -1 : 1;
    return a->negative ? -compare_magnitude(a, b) : compare_magnitude(a, b);
}

bool spry_decimal_is_integer(const spry_decimal *a)
{
    return a->n_digits == 0 || a->exponent >= a->n_digits - 1;
}

static spry_decimal decimal_negate(spry_decimal a)
{
    a.negative = a.n_digits != 0 && !a.negative;
    return a;
}

/* ---- spellings within bounds ------------------------------------------------------------------------------------- */

/* The spellings of numbers within bounds.
 *
 * There are two forms. Plain: digits, optionally a point and digits; a bound is compared digit by digit. With an
 * exponent: one digit from 1 to 9, optionally a point and digits, e, and the exponent, as serialisers write it; a bound
 * is compared first by exponent, then by digits. Integers are plain, optionally with ".0", or large: the exponent is
 * at least the number of digits after the point.
 * The number of digits is limited, so that a model cannot continue them without end. */

enum {
    WHOLE_MAX = 64,     /* digits before the point */
    FRACTION_MAX = 32,  /* digits after it */
    EXPONENT_MAX = 307, /* representable as a double with any digits */
    LARGE = 16,         /* integers are written in this form from this exponent on; also the maximum number of digits
                         * after its point */
    USUAL_WHOLE = 19,   /* maximum digits before the point in output */
    USUAL_FRACTION = 15,
    USUAL_ZEROS = 7,   /* numbers with this many zeros after the point are written with an exponent */
    BOUND_MAX = 40,    /* exponents of bounds must be below this */
    BOUND_DIGITS = 44, /* maximum digits of a bound in plain form */
};

/* Which numbers, and how integers are spelled. */
typedef enum wholeness {
    ANY_NUMBER,
    WHOLE,  /* integers, also as "1.0" and with an exponent */
    DIGITS, /* integers as digits only */
} wholeness;

/* ---- building blocks --------------------------------------------------------------------------------------------- */

static spry_ir_node text(spry_ir *ir, const char *literal)
{
    return spry_ir_literal(ir, spry_view_of(literal));
}

static spry_ir_node digits_between(spry_ir *ir, char first, char last)
{
    if (first > last)
        return spry_ir_never(ir);
    return spry_ir_class(ir, &(spry_code_range){(uint32_t)first, (uint32_t)last}, 1, false);
}

static spry_ir_node some_digits(spry_ir *ir, uint32_t min, uint32_t max)
{
    return spry_ir_repeat(ir, digits_between(ir, '0', '9'), min, max);
}

static spry_ir_node two(spry_ir *ir, spry_ir_node a, spry_ir_node b)
{
    return spry_ir_sequence(ir, (spry_ir_node[]){a, b}, 2);
}

static spry_ir_node either(spry_ir *ir, spry_ir_node a, spry_ir_node b)
{
    return spry_ir_choice(ir, (spry_ir_node[]){a, b}, 2);
}

static spry_ir_node maybe(spry_ir *ir, spry_ir_node a)
{
    return spry_ir_repeat(ir, a, 0, 1);
}

/* Digits of which at least one is not 0. */
static spry_ir_node not_all_zeros(spry_ir *ir)
{
    spry_ir_node parts[] = {spry_ir_repeat(ir, text(ir, "0"), 0, FRACTION_MAX), digits_between(ir, '1', '9'),
                            some_digits(ir, 0, FRACTION_MAX)};
    return spry_ir_sequence(ir, parts, 3);
}

/* The fraction of a number whose integer digits already differ from the bound's. */
static spry_ir_node any_fraction(spry_ir *ir, wholeness integer)
{
    if (integer == DIGITS)
        return spry_ir_empty(ir);
    return maybe(ir, integer ? text(ir, ".0") : two(ir, text(ir, "."), some_digits(ir, 1, FRACTION_MAX)));
}

/* ---- a bound in plain form --------------------------------------------------------------------------------------- */

/* A decimal with its digits arranged around the point. */
typedef struct plain {
    char whole[BOUND_DIGITS + 1], fraction[BOUND_DIGITS + 1];
    size_t n_whole, n_fraction;
} plain;

static bool lay_out(plain *out, const spry_decimal *value)
{
    *out = (plain){.n_whole = 0};
    if (value->exponent >= BOUND_MAX || value->exponent < SPRY_DECIMAL_DIGITS - BOUND_DIGITS)
        return false;
    for (int at = value->exponent > 0 ? value->exponent : 0; at >= 0; at--) {
        int index = value->exponent - at;
        out->whole[out->n_whole++] = index >= 0 && index < value->n_digits ? value->digits[index] : '0';
    }
    for (int at = -1; value->exponent - at < value->n_digits; at--) {
        int index = value->exponent - at;
        out->fraction[out->n_fraction++] = index >= 0 ? value->digits[index] : '0';
    }
    return true;
}

/* The digits after the point of numbers whose digits so far equal the bound's, on one side of the bound. Built from the
 * last digit to the first. */
static spry_ir_node compare_fraction(spry_ir *ir, const plain *bound, bool exclusive, bool above)
{
    uint32_t least = bound->n_fraction == 0; /* a point needs at least one digit after it */
    spry_ir_node rest = above       ? exclusive ? not_all_zeros(ir) : some_digits(ir, least, FRACTION_MAX)
                              : exclusive ? spry_ir_never(ir)
                                    : spry_ir_repeat(ir, text(ir, "0"), least, FRACTION_MAX);
    for (size_t i = bound->n_fraction; i-- > 0;) {
        char digit = bound->fraction[i];
        spry_ir_node decided =
            above ? digits_between(ir, (char)(digit + 1), '9') : digits_between(ir, '0', (char)(digit - 1));
        spry_ir_node choices[] = {two(ir, decided, some_digits(ir, 0, FRACTION_MAX)),
                                  two(ir, digits_between(ir, digit, digit), rest), spry_ir_empty(ir)};
        rest = spry_ir_choice(ir, choices, !above && i > 0 ? 3 : 2); /* a shorter fraction is smaller */
    }
    return rest;
}

/* What may follow integer digits that equal the bound's. */
static spry_ir_node equal_whole(spry_ir *ir, const plain *bound, bool exclusive, bool above, wholeness integer)
{
    bool fraction = bound->n_fraction > 0;
    bool itself = above ? !fraction && !exclusive : fraction || !exclusive; /* the integer digits alone are on the
                                                                             * required side */
    if (integer)
        return itself ? any_fraction(ir, integer) : spry_ir_never(ir);
    return either(ir, itself ? spry_ir_empty(ir) : spry_ir_never(ir),
                  two(ir, text(ir, "."), compare_fraction(ir, bound, exclusive, above)));
}

/* Numbers in plain form on one side of a non-negative bound. */
static spry_ir_node plain_side(spry_ir *ir, const plain *bound, bool exclusive, bool above, wholeness integer)
{
    uint32_t n = (uint32_t)bound->n_whole;
    spry_ir_node fraction = any_fraction(ir, integer), first = digits_between(ir, '1', '9');
    spry_ir_node rest = equal_whole(ir, bound, exclusive, above, integer);
    for (uint32_t i = n; i-- > 0;) {
        char digit = bound->whole[i], least = i == 0 && n > 1 ? '1' : '0';
        spry_ir_node decided =
            above ? digits_between(ir, (char)(digit + 1), '9') : digits_between(ir, least, (char)(digit - 1));
        spry_ir_node parts[] = {decided, some_digits(ir, n - 1 - i, n - 1 - i), fraction};
        rest = either(ir, spry_ir_sequence(ir, parts, 3), two(ir, digits_between(ir, digit, digit), rest));
    }
    spry_ir_node longer[] = {first, some_digits(ir, n, WHOLE_MAX - 1), fraction};
    if (above)
        return either(ir, rest, spry_ir_sequence(ir, longer, 3));
    if (n == 1)
        return rest;
    spry_ir_node shorter = either(ir, text(ir, "0"), two(ir, first, some_digits(ir, 0, n - 2)));
    return either(ir, rest, two(ir, shorter, fraction));
}

/* ---- a bound with an exponent ------------------------------------------------------------------------------------ */

/* Numbers from first to last, written with exactly `width` digits. */
static spry_ir_node fixed_width(spry_ir *ir, unsigned first, unsigned last, unsigned width)
{
    unsigned unit = width == 3 ? 100 : width == 2 ? 10 : 1;
    if (width == 0)
        return spry_ir_empty(ir);
    spry_ir_node all = spry_ir_never(ir);
    for (unsigned digit = 0; digit < 10; digit++) {
        unsigned low = digit * unit, high = low + unit - 1;
        if (high < first || low > last)
            continue;
        low = low > first ? low : first;
        high = high < last ? high : last;
        spry_ir_node tail = fixed_width(ir, low - digit * unit, high - digit * unit, width - 1);
        all = either(ir, all, two(ir, digits_between(ir, (char)('0' + digit), (char)('0' + digit)), tail));
    }
    return all;
}

/* Exponents from first to last, both not negative, with leading zeros up to three digits. */
static spry_ir_node unsigned_exponent(spry_ir *ir, int first, int last)
{
    static const int most[] = {0, 9, 99, 999};
    spry_ir_node all = spry_ir_never(ir);
    for (unsigned width = 1; width <= 3; width++)
        if (first <= last && first <= most[width])
            all = either(ir, all,
                         fixed_width(ir, (unsigned)first, (unsigned)(last < most[width] ? last : most[width]), width));
    return all;
}

static spry_ir_node exponent_mark(spry_ir *ir)
{
    return spry_ir_class(ir, (spry_code_range[]){{'e', 'e'}, {'E', 'E'}}, 2, false);
}

/* "e" and an exponent in the range. */
static spry_ir_node exponent_between(spry_ir *ir, int first, int last)
{
    first = first > -EXPONENT_MAX ? first : -EXPONENT_MAX;
    last = last < EXPONENT_MAX ? last : EXPONENT_MAX;
    spry_ir_node positive = unsigned_exponent(ir, first > 0 ? first : 0, last);
    spry_ir_node negative = unsigned_exponent(ir, last < 0 ? -last : 1, -first);
    return two(ir, exponent_mark(ir),
               either(ir, two(ir, maybe(ir, text(ir, "+")), positive), two(ir, text(ir, "-"), negative)));
}

static spry_ir_node any_mantissa(spry_ir *ir)
{
    return two(ir, digits_between(ir, '1', '9'), any_fraction(ir, ANY_NUMBER));
}

/* The largest doubles, from 1e308 to below 1.7e308. */
static spry_ir_node largest(spry_ir *ir)
{
    spry_ir_node fraction[] = {text(ir, "."), digits_between(ir, '0', '6'), some_digits(ir, 0, LARGE)};
    spry_ir_node mantissa = two(ir, text(ir, "1"), maybe(ir, spry_ir_sequence(ir, fraction, 3)));
    return two(ir, mantissa, two(ir, exponent_mark(ir), two(ir, maybe(ir, text(ir, "+")), text(ir, "308"))));
}

static spry_ir_node any_scientific(spry_ir *ir)
{
    spry_ir_node all = two(ir, any_mantissa(ir), exponent_between(ir, -EXPONENT_MAX, EXPONENT_MAX));
    return either(ir, all, largest(ir));
}

/* The digits before an exponent, for numbers on one side of a bound with the same exponent. */
static spry_ir_node mantissa_side(spry_ir *ir, const spry_decimal *bound, bool exclusive, bool above)
{
    char first = bound->digits[0];
    plain laid_out = {.n_fraction = bound->n_digits - 1u};
    memcpy(laid_out.fraction, bound->digits + 1, laid_out.n_fraction);
    spry_ir_node decided =
        above ? digits_between(ir, (char)(first + 1), '9') : digits_between(ir, '1', (char)(first - 1));
    return either(ir, two(ir, decided, any_fraction(ir, ANY_NUMBER)),
                  two(ir, digits_between(ir, first, first), equal_whole(ir, &laid_out, exclusive, above, ANY_NUMBER)));
}

/* Numbers with an exponent on one side of a non-negative bound. */
static spry_ir_node scientific_side(spry_ir *ir, const spry_decimal *bound, bool exclusive, bool above)
{
    if (bound->n_digits == 0)
        return above ? any_scientific(ir) : spry_ir_never(ir);
    int exponent = bound->exponent;
    spry_ir_node decided =
        above ? exponent_between(ir, exponent + 1, EXPONENT_MAX) : exponent_between(ir, -EXPONENT_MAX, exponent - 1);
    spry_ir_node all[] = {two(ir, any_mantissa(ir), decided),
                          two(ir, mantissa_side(ir, bound, exclusive, above), exponent_between(ir, exponent, exponent)),
                          largest(ir)};
    return spry_ir_choice(ir, all, above ? 3 : 2);
}

/* ---- magnitudes and signs ---------------------------------------------------------------------------------------- */

/* Integers of at least 10^least, with an exponent. */
static spry_ir_node large_whole(spry_ir *ir, int least)
{
    spry_ir_node fraction = maybe(ir, two(ir, text(ir, "."), some_digits(ir, 1, LARGE)));
    spry_ir_node parts[] = {digits_between(ir, '1', '9'), fraction, exponent_between(ir, least, EXPONENT_MAX)};
    return either(ir, spry_ir_sequence(ir, parts, 3), largest(ir));
}

static spry_ir_node any_plain(spry_ir *ir, wholeness integer)
{
    spry_ir_node whole = two(ir, digits_between(ir, '1', '9'), some_digits(ir, 0, WHOLE_MAX - 1));
    return two(ir, either(ir, text(ir, "0"), whole), any_fraction(ir, integer));
}

/* The intersection of `a` and `b`; SPRY_IR_NONE means everything. */
static spry_ir_node meet(spry_schema *schema, spry_ir_node a, spry_ir_node b)
{
    return a == SPRY_IR_NONE ? b : spry_ir_intersect(schema->ir, a, b);
}

static spry_ir_node plain_magnitude(spry_schema *schema, const spry_bound *low, const spry_bound *high,
                                    wholeness integer)
{
    spry_ir_node all = SPRY_IR_NONE;
    const spry_bound *bounds[] = {low, high};
    for (int i = 0; i < 2; i++) {
        plain laid_out;
        if (bounds[i] && !lay_out(&laid_out, &bounds[i]->at))
            return spry_ir_fail(schema->ir, SPRY_ERR_UNSUPPORTED,
                                "a number that is excluded is too large, or too near to 0, to be enforced");
        if (bounds[i])
            all = meet(schema, all, plain_side(schema->ir, &laid_out, bounds[i]->exclusive, i == 0, integer));
    }
    return all == SPRY_IR_NONE ? any_plain(schema->ir, integer) : all;
}

static spry_ir_node scientific_magnitude(spry_schema *schema, const spry_bound *low, const spry_bound *high,
                                         wholeness integer)
{
    spry_ir *ir = schema->ir;
    if (integer == DIGITS || (integer && high && high->at.exponent < LARGE))
        return spry_ir_never(ir);
    spry_ir_node all = SPRY_IR_NONE;
    if (integer) {
        all = large_whole(ir, low && low->at.exponent >= LARGE ? low->at.exponent + 1 : LARGE);
        low = NULL;
    }
    if (low)
        all = meet(schema, all, scientific_side(ir, &low->at, low->exclusive, true));
    if (high)
        all = meet(schema, all, scientific_side(ir, &high->at, high->exclusive, false));
    return all == SPRY_IR_NONE ? any_scientific(ir) : all;
}

/* Numbers between two bounds; a missing bound is 0 or infinity. */
static spry_ir_node magnitude(spry_schema *schema, const spry_bound *low, const spry_bound *high, wholeness integer)
{
    if (!low->set || (low->at.n_digits == 0 && !low->exclusive))
        low = NULL;
    if (!high->set)
        high = NULL;
    return either(schema->ir, plain_magnitude(schema, low, high, integer),
                  scientific_magnitude(schema, low, high, integer));
}

/* A bound with the opposite sign. */
static spry_bound mirrored(const spry_bound *bound)
{
    return (spry_bound){bound->set, bound->exclusive, decimal_negate(bound->at)};
}

static spry_ir_node write_range(spry_schema *schema, const spry_number_shape *number)
{
    spry_ir *ir = schema->ir;
    spry_bound low = number->low, high = number->high, none = {0};
    spry_bound mirrored_low = mirrored(&low), mirrored_high = mirrored(&high);
    bool below_zero = high.set && high.at.negative, above_zero = low.set && !low.at.negative && low.at.n_digits > 0;
    spry_ir_node positive = spry_ir_never(ir), negative = spry_ir_never(ir);
    bool digits = schema->draft == SPRY_DRAFT_04 || spry_schema_writes(schema);
    wholeness integer = !number->integer ? ANY_NUMBER : digits ? DIGITS : WHOLE;
    bool low_counts = low.set && !low.at.negative,
         high_counts = high.set && (high.at.negative || high.at.n_digits == 0);
    if (!below_zero)
        positive = magnitude(schema, low_counts ? &low : &none, high.set ? &high : &none, integer);
    if (!above_zero)
        negative = magnitude(schema, high_counts ? &mirrored_high : &none, low.set ? &mirrored_low : &none, integer);
    return either(ir, positive, two(ir, text(ir, "-"), negative));
}

/* ---- lists of values --------------------------------------------------------------------------------------------- */

static spry_ir_node write_value(spry_schema *schema, const spry_decimal *value)
{
    spry_ir *ir = schema->ir;
    spry_decimal size = *value;
    size.negative = false;
    spry_ir_node all = spry_ir_never(ir);
    plain laid_out;
    bool usual = spry_schema_writes(schema),
         short_enough = value->exponent > -USUAL_ZEROS && value->exponent < USUAL_WHOLE;
    if (lay_out(&laid_out, &size) && (!usual || short_enough || !value->n_digits)) {
        spry_ir_node whole = spry_ir_literal(ir, (spry_view){laid_out.whole, laid_out.n_whole});
        spry_ir_node fraction = spry_ir_literal(ir, (spry_view){laid_out.fraction, laid_out.n_fraction});
        all = two(ir, whole,
                  laid_out.n_fraction ? two(ir, text(ir, "."), fraction)
                  : usual             ? spry_ir_empty(ir)
                                      : maybe(ir, text(ir, ".0")));
    }
    if (value->n_digits && (usual ? !short_enough : value->exponent >= LARGE || value->exponent < 0)) {
        spry_ir_node first = spry_ir_literal(ir, (spry_view){value->digits, 1}), rest = spry_ir_empty(ir);
        if (value->n_digits > 1)
            rest = two(ir, text(ir, "."), spry_ir_literal(ir, (spry_view){value->digits + 1, value->n_digits - 1u}));
        spry_ir_node exponent = exponent_between(ir, value->exponent, value->exponent);
        all = either(ir, all, two(ir, two(ir, first, rest), exponent));
    }
    if (value->negative)
        return two(ir, text(ir, "-"), all);
    return value->n_digits || usual ? all : two(ir, maybe(ir, text(ir, "-")), all);
}

/* Numbers that are not integers. */
static spry_ir_node write_fractional(spry_ir *ir)
{
    spry_ir_node plainly[] = {some_digits(ir, 1, WHOLE_MAX), text(ir, "."), not_all_zeros(ir)};
    spry_ir_node signed_plainly = two(ir, maybe(ir, text(ir, "-")), spry_ir_sequence(ir, plainly, 3));
    return either(ir, signed_plainly, spry_number_small(ir, 0));
}

/* Numbers as they are written in output: without exponent, and of limited length. */
static spry_ir_node usual_number(spry_ir *ir, bool integer)
{
    spry_ir_node whole = two(ir, digits_between(ir, '1', '9'), some_digits(ir, 0, USUAL_WHOLE - 1));
    spry_ir_node fraction = two(ir, text(ir, "."), some_digits(ir, 1, USUAL_FRACTION)),
                 minus = maybe(ir, text(ir, "-"));
    if (integer)
        return either(ir, text(ir, "0"), two(ir, minus, whole));
    return two(ir, minus, two(ir, either(ir, text(ir, "0"), whole), maybe(ir, fraction)));
}

/* The texts of `node` that are in the usual form, or `node` itself if there are none. */
static spry_ir_node prefer_usual(spry_schema *schema, spry_ir_node node, bool integer)
{
    spry_ir_node usual = spry_ir_intersect(schema->ir, node, usual_number(schema->ir, integer));
    return spry_ir_is_never(schema->ir, usual) ? node : usual;
}

spry_ir_node spry_number_write(spry_schema *schema, const spry_number_shape *number)
{
    spry_ir *ir = schema->ir;
    spry_ir_node node;
    bool writes = spry_schema_writes(schema) && !number->values;
    if (writes && !number->low.set && !number->high.set && !number->fractional && !number->also.count)
        return usual_number(ir, number->integer);
    if (number->values) {
        spry_ir_node *choices = spry_schema_alloc(schema, number->n_values, sizeof *choices);
        for (size_t i = 0; choices && i < number->n_values; i++)
            choices[i] = write_value(schema, &number->values[i]);
        node = choices ? spry_ir_choice(ir, choices, number->n_values) : SPRY_IR_NONE;
    } else {
        node = write_range(schema, number);
        if (number->fractional)
            node = spry_ir_intersect(schema->ir, node, write_fractional(ir));
    }
    for (size_t i = 0; i < number->also.count; i++)
        node = spry_ir_intersect(schema->ir, node, number->also.items[i]);
    return writes ? prefer_usual(schema, node, number->integer) : node;
}

/* Integers of at least 10^least and at least 10^16, written with an exponent. */
static spry_ir_node number_large_whole(spry_ir *ir, int least)
{
    return two(ir, maybe(ir, text(ir, "-")), large_whole(ir, least > LARGE ? least : LARGE));
}

spry_ir_node spry_number_small(spry_ir *ir, int below)
{
    spry_ir_node parts[] = {maybe(ir, text(ir, "-")), any_mantissa(ir), exponent_between(ir, -EXPONENT_MAX, below - 1)};
    return spry_ir_sequence(ir, parts, 3);
}

/* True if the digits of a bound fit into its plain form. */
static bool number_can_bound(const spry_decimal *value)
{
    plain laid_out;
    return lay_out(&laid_out, value);
}

/* ---- multipleOf -------------------------------------------------------------------------------------------------- */

/* multipleOf: an automaton whose state is the remainder of the digits so far.
 *
 * The divisor is q * 10^-f with integer q. Read with f digits after the point, the number's digits are an integer, and
 * the number is a multiple when q divides that. Missing digits are zeros; digits after the f-th must be zeros. */

enum { STATES_MAX = 30000 };

typedef struct divider {
    spry_nfa *nfa;
    uint32_t q, f;
    bool negated;
    uint32_t zero, whole, decimals, zeros,
        other; /* the first state of each group: a leading zero, digits, digits after the point, ... */
} divider;

/* remainder * 10^digits mod q */
static uint32_t shifted(const divider *d, uint32_t remainder, uint32_t digits)
{
    uint64_t r = remainder;
    for (uint32_t i = 0; i < digits && r != 0; i++)
        r = r * 10 % d->q;
    return (uint32_t)r;
}

static void accept(const divider *d, uint32_t state, bool multiple)
{
    if (multiple != d->negated)
        d->nfa->states[state].tag = 1;
}

static void digit_edge(const divider *d, uint32_t from, uint32_t to, unsigned first, unsigned last)
{
    spry_nfa_bytes(d->nfa, from, to, (unsigned char)('0' + first), (unsigned char)('0' + last));
}

/* Adds the edges. There is one state for each remainder of the digits before the point, and one for each remainder of
 * the digits after it. */
static void add_edges(const divider *d)
{
    spry_nfa_bytes(d->nfa, 0, 1, '-', '-');
    for (uint32_t start = 0; start < 2; start++) {
        digit_edge(d, start, d->zero, 0, 0);
        for (unsigned digit = 1; digit < 10; digit++)
            digit_edge(d, start, d->whole + digit % d->q, digit, digit);
    }
    accept(d, d->zero, true);
    spry_nfa_bytes(d->nfa, d->zero, d->decimals, '.', '.');
    for (uint32_t r = 0; r < d->q; r++) {
        accept(d, d->whole + r, shifted(d, r, d->f) == 0);
        spry_nfa_bytes(d->nfa, d->whole + r, d->decimals + r, '.', '.');
        for (unsigned digit = 0; digit < 10; digit++)
            digit_edge(d, d->whole + r, d->whole + (uint32_t)((r * (uint64_t)10 + digit) % d->q), digit, digit);
    }
    for (uint32_t at = 0; at < d->f; at++) {
        for (uint32_t r = 0; r < d->q; r++) {
            uint32_t state = d->decimals + at * d->q + r, next = d->decimals + (at + 1) * d->q;
            if (at > 0)
                accept(d, state, shifted(d, r, d->f - at) == 0);
            for (unsigned digit = 0; digit < 10; digit++)
                digit_edge(d, state, next + (uint32_t)((r * (uint64_t)10 + digit) % d->q), digit, digit);
        }
    }
    for (uint32_t r = 0; r < d->q; r++) {
        uint32_t last = d->decimals + d->f * d->q + r;
        if (d->f > 0)
            accept(d, last, r == 0);
        accept(d, d->zeros + r, r == 0);
        digit_edge(d, last, d->zeros + r, 0, 0);
        digit_edge(d, d->zeros + r, d->zeros + r, 0, 0);
        digit_edge(d, last, d->other, 1, 9);
        digit_edge(d, d->zeros + r, d->other, 1, 9);
    }
    accept(d, d->other, false);
    digit_edge(d, d->other, d->other, 0, 9);
}

static spry_ir_node make(spry_schema *schema, uint32_t q, uint32_t f, bool negated)
{
    spry_nfa nfa;
    spry_automaton automaton = {0};
    divider d = {.nfa = &nfa, .q = q, .f = f, .negated = negated, .zero = 2, .whole = 3};
    d.decimals = d.whole + q;
    d.zeros = d.decimals + (f + 1) * q;
    d.other = d.zeros + q;
    spry_nfa_init(&nfa, (size_t)1 << 20);
    for (uint32_t i = 0; i <= d.other; i++)
        spry_nfa_state_add(&nfa);
    if (nfa.result == SPRY_AUTOMATON_OK)
        add_edges(&d);
    spry_automaton_result result = spry_automaton_make(&automaton, &nfa, SPRY_DFA_STATES_MAX);
    spry_nfa_deinit(&nfa);
    if (result == SPRY_AUTOMATON_OK)
        return spry_ir_take_automaton(schema->ir, &automaton);
    spry_automaton_deinit(&automaton);
    if (result == SPRY_AUTOMATON_NO_MEMORY)
        spry_ir_fail(schema->ir, SPRY_ERR_MEMORY, "not enough memory for the JSON schema");
    return SPRY_IR_NONE;
}

/* The smallest t >= 0 such that every multiple of 10^t is a multiple of q * 10^-f; -1 when there is none. */
static int power_of_ten(uint32_t q, int f)
{
    int twos = 0, fives = 0;
    for (; q % 2 == 0; q /= 2)
        twos++;
    for (; q % 5 == 0; q /= 5)
        fives++;
    int t = (twos > fives ? twos : fives) - f;
    return q != 1 ? -1 : t > 0 ? t : 0;
}

static spry_ir_node number_multiples(spry_schema *schema, const spry_decimal *step, bool negated)
{
    int f = step->n_digits - 1 - step->exponent;
    uint64_t q = 0;
    int digits = f < 0 ? step->n_digits - f : step->n_digits;
    if (f < 0)
        f = 0;
    if (digits > 5 || f > STATES_MAX)
        return SPRY_IR_NONE;
    for (int i = 0; i < digits; i++)
        q = q * 10 + (uint64_t)(i < step->n_digits ? step->digits[i] - '0' : 0);
    if (q * ((uint64_t)f + 3) > STATES_MAX)
        return SPRY_IR_NONE;
    spry_ir_node both[] = {make(schema, (uint32_t)q, (uint32_t)f, negated), SPRY_IR_NONE};
    int t = power_of_ten((uint32_t)q, f);
    if (both[0] == SPRY_IR_NONE || (!negated && t < 0))
        return both[0];
    both[1] = negated ? spry_number_small(schema->ir, step->exponent) : number_large_whole(schema->ir, 16 + t);
    return spry_ir_choice(schema->ir, both, 2);
}

/* ---- keywords ---------------------------------------------------------------------------------------------------- */

/* A number shape with one constraint. */
static const spry_shapes *one_number(spry_schema *schema, spry_number_shape number)
{
    spry_shape *shape = spry_shape_new(schema, SPRY_SHAPE_NUMBER);
    if (!shape)
        return NULL;
    shape->as.number = number;
    return spry_shapes_of(schema, &shape, 1);
}

static bool is_number(spry_schema *schema, uint32_t place, const char *keyword, const json_t *value)
{
    if (json_is_number(value))
        return true;
    spry_schema_refuse(schema, SPRY_ERR_INPUT, schema->places[place]->json, keyword, "must be a number");
    return false;
}

const spry_shapes *spry_schema_number_bound(spry_schema *schema, uint32_t place, const char *keyword,
                                            const json_t *value, bool negated)
{
    bool low = strcmp(keyword, "minimum") == 0 || strcmp(keyword, "exclusiveMinimum") == 0;
    bool exclusive = strncmp(keyword, "exclusive", 9) == 0;
    if (exclusive && json_is_boolean(value)) /* in draft-04 it is a part of the keyword minimum or maximum */
        return negated ? spry_shapes_none(schema) : &schema->everything;
    if (!is_number(schema, place, keyword, value))
        return NULL;
    exclusive |=
        json_is_true(json_object_get(schema->places[place]->json, low ? "exclusiveMinimum" : "exclusiveMaximum"));
    spry_decimal at = spry_decimal_of(value);
    if (!number_can_bound(&at)) {
        spry_schema_refuse(schema, SPRY_ERR_UNSUPPORTED, schema->places[place]->json, keyword,
                           "is too large, or too near to 0, to be enforced");
        return NULL;
    }
    spry_bound bound = {.set = true, .exclusive = exclusive != negated, .at = at};
    spry_number_shape number = {0};
    *(low != negated ? &number.low : &number.high) = bound;
    return one_number(schema, number);
}

const spry_shapes *spry_schema_multiple_of(spry_schema *schema, uint32_t place, const char *keyword,
                                           const json_t *value, bool negated)
{
    if (!is_number(schema, place, keyword, value))
        return NULL;
    spry_decimal step = spry_decimal_of(value);
    if (step.negative || step.n_digits == 0) {
        spry_schema_refuse(schema, SPRY_ERR_INPUT, schema->places[place]->json, keyword, "must be greater than 0");
        return NULL;
    }
    spry_ir_node multiples = number_multiples(schema, &step, negated);
    if (multiples == SPRY_IR_NONE && !spry_schema_failed(schema))
        spry_schema_refuse(schema, SPRY_ERR_UNSUPPORTED, schema->places[place]->json, keyword,
                           "has too many digits to be enforced");
    return one_number(schema, (spry_number_shape){.also = spry_nodes_one(schema, multiples)});
}

/* The tighter of two bounds; `sign` is 1 for lower bounds and -1 for upper ones. */
static spry_bound tighter(const spry_bound *a, const spry_bound *b, int sign)
{
    if (!a->set || !b->set)
        return a->set ? *a : *b;
    int order = sign * spry_decimal_compare(&a->at, &b->at);
    return order > 0 || (order == 0 && a->exclusive) ? *a : *b;
}

static bool within(const spry_number_shape *number, const spry_decimal *value)
{
    int low = number->low.set ? spry_decimal_compare(value, &number->low.at) : 1;
    int high = number->high.set ? spry_decimal_compare(value, &number->high.at) : -1;
    bool integer = spry_decimal_is_integer(value);
    return (low > 0 || (low == 0 && !number->low.exclusive)) && (high < 0 || (high == 0 && !number->high.exclusive)) &&
           !(number->integer && !integer) && !(number->fractional && integer);
}

static bool has_value(const spry_number_shape *number, const spry_decimal *value)
{
    for (size_t i = 0; i < number->n_values; i++)
        if (spry_decimal_compare(&number->values[i], value) == 0)
            return true;
    return !number->values;
}

spry_shape *spry_number_both(spry_schema *schema, const spry_shape *first, const spry_shape *second)
{
    const spry_number_shape *a = &first->as.number, *b = &second->as.number;
    spry_number_shape out = {.integer = a->integer || b->integer,
                             .fractional = a->fractional || b->fractional,
                             .low = tighter(&a->low, &b->low, 1),
                             .high = tighter(&a->high, &b->high, -1)};
    if (out.integer && out.fractional)
        return NULL;
    if (out.low.set && out.high.set) {
        int order = spry_decimal_compare(&out.low.at, &out.high.at);
        if (order > 0 || (order == 0 && (out.low.exclusive || out.high.exclusive)))
            return NULL;
    }
    if (!a->values) {
        const spry_number_shape *swap = a;
        a = b;
        b = swap;
    }
    if (a->values) {
        spry_decimal *kept = spry_schema_alloc(schema, a->n_values, sizeof *kept);
        if (!kept)
            return NULL;
        for (size_t i = 0; i < a->n_values; i++)
            if (within(&out, &a->values[i]) && has_value(b, &a->values[i]))
                kept[out.n_values++] = a->values[i];
        out.values = kept;
        if (out.n_values == 0)
            return NULL;
    }
    out.also = spry_nodes_join(schema, a->also, b->also);
    spry_shape *shape = spry_shape_new(schema, SPRY_SHAPE_NUMBER);
    if (shape)
        shape->as.number = out;
    return shape;
}
