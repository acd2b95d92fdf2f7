/* multipleOf: an automaton whose state is the remainder of the digits so far.
 *
 * The divisor is q * 10^-f with integer q. Read with f digits after the point, the number's digits are an integer, and
 * the number is a multiple when q divides that. Missing digits are zeros; digits after the f-th must be zeros. */
#include "grammar/schema/schema.h"

#include "grammar/ir/ir_nodes.h"

enum { STATES_MAX = 30000 };

typedef struct divider {
    spry_nfa *nfa;
    uint32_t q, f;
    bool negated;
    uint32_t zero, whole, behind, zeros, other; /* first states: a leading zero, digits, digits after the point, ... */
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

/* One state for each remainder of the digits before the point, and of those after it. */
static void add_edges(const divider *d)
{
    spry_nfa_bytes(d->nfa, 0, 1, '-', '-');
    for (uint32_t start = 0; start < 2; start++) {
        digit_edge(d, start, d->zero, 0, 0);
        for (unsigned digit = 1; digit < 10; digit++)
            digit_edge(d, start, d->whole + digit % d->q, digit, digit);
    }
    accept(d, d->zero, true);
    spry_nfa_bytes(d->nfa, d->zero, d->behind, '.', '.');
    for (uint32_t r = 0; r < d->q; r++) {
        accept(d, d->whole + r, shifted(d, r, d->f) == 0);
        spry_nfa_bytes(d->nfa, d->whole + r, d->behind + r, '.', '.');
        for (unsigned digit = 0; digit < 10; digit++)
            digit_edge(d, d->whole + r, d->whole + (uint32_t)((r * (uint64_t)10 + digit) % d->q), digit, digit);
    }
    for (uint32_t at = 0; at < d->f; at++) {
        for (uint32_t r = 0; r < d->q; r++) {
            uint32_t state = d->behind + at * d->q + r, next = d->behind + (at + 1) * d->q;
            if (at > 0)
                accept(d, state, shifted(d, r, d->f - at) == 0);
            for (unsigned digit = 0; digit < 10; digit++)
                digit_edge(d, state, next + (uint32_t)((r * (uint64_t)10 + digit) % d->q), digit, digit);
        }
    }
    for (uint32_t r = 0; r < d->q; r++) {
        uint32_t last = d->behind + d->f * d->q + r;
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
    d.behind = d.whole + q;
    d.zeros = d.behind + (f + 1) * q;
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

/* The smallest t >= 0 such that every multiple of 10^t is one of q * 10^-f; -1 when there is none. */
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

spry_ir_node spry_number_multiples(spry_schema *schema, const spry_decimal *step, bool negated)
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
    both[1] = negated ? spry_number_small(schema->ir, step->exponent) : spry_number_large_whole(schema->ir, 16 + t);
    return spry_ir_choice(schema->ir, both, 2);
}
