/* The languages of slices are small automata below; a state accepts a slice if no pair of (state, slice state) that can
 * be reached together has a byte that the slice takes and the state does not. */
#include "grammar/match/slices.h"

#include <stdlib.h>
#include <string.h>

#include "grammar/ir/grow.h"

enum {
    AFTER_CHARACTER,
    AFTER_BLANK, /* or at the beginning */
    ONE_MORE,    /* continuation bytes */
    TWO_MORE,
    THREE_MORE,
    AFTER_E0,
    AFTER_E2,
    AFTER_E2_80,
    AFTER_ED,
    AFTER_F0,
    AFTER_F4,
    IN_WORD,
    WORD,                /* and the 7 states behind it, one for each character */
    LOWER = WORD + 8,    /* as WORD */
    STATES = LOWER + 8,  /* behind the eighth character nothing is examined */
    PAIRS_MAX = 1 << 15, /* examined for one question */
};

enum { UNKNOWN, ACCEPTED, REFUSED, EXAMINED };

typedef struct slice_edge {
    unsigned char first, last, target;
} slice_edge;

/* Line ends other than control characters (U+2028, U+2029) are left out, as in most patterns. */
static const slice_edge prose[][12] = {
    [AFTER_CHARACTER] = {{0x20, 0x20, AFTER_BLANK},
                         {0x21, 0x21, AFTER_CHARACTER},
                         {0x23, 0x5B, AFTER_CHARACTER},
                         {0x5D, 0x7E, AFTER_CHARACTER},
                         {0xC2, 0xDF, ONE_MORE},
                         {0xE0, 0xE0, AFTER_E0},
                         {0xE1, 0xE1, TWO_MORE},
                         {0xE2, 0xE2, AFTER_E2},
                         {0xE3, 0xEC, TWO_MORE},
                         {0xED, 0xED, AFTER_ED},
                         {0xEE, 0xEF, TWO_MORE},
                         {0xF0, 0xF0, AFTER_F0}},
    [AFTER_BLANK] = {{0x21, 0x21, AFTER_CHARACTER},
                     {0x23, 0x5B, AFTER_CHARACTER},
                     {0x5D, 0x7E, AFTER_CHARACTER},
                     {0xC2, 0xDF, ONE_MORE},
                     {0xE0, 0xE0, AFTER_E0},
                     {0xE1, 0xE1, TWO_MORE},
                     {0xE2, 0xE2, AFTER_E2},
                     {0xE3, 0xEC, TWO_MORE},
                     {0xED, 0xED, AFTER_ED},
                     {0xEE, 0xEF, TWO_MORE},
                     {0xF0, 0xF0, AFTER_F0}},
    [ONE_MORE] = {{0x80, 0xBF, AFTER_CHARACTER}},
    [TWO_MORE] = {{0x80, 0xBF, ONE_MORE}},
    [THREE_MORE] = {{0x80, 0xBF, TWO_MORE}},
    [AFTER_E0] = {{0xA0, 0xBF, ONE_MORE}},
    [AFTER_E2] = {{0x80, 0x80, AFTER_E2_80}, {0x81, 0xBF, ONE_MORE}},
    [AFTER_E2_80] = {{0x80, 0xA7, AFTER_CHARACTER}, {0xAA, 0xBF, AFTER_CHARACTER}},
    [AFTER_ED] = {{0x80, 0x9F, ONE_MORE}},
    [AFTER_F0] = {{0x90, 0xBF, TWO_MORE}},
    [AFTER_F4] = {{0x80, 0x8F, TWO_MORE}},
};

/* The edges of a slice state, by first byte. */
static size_t edges_of(slice_edge *out, unsigned state)
{
    size_t count = 0;
    if (state < IN_WORD) {
        while (count < 12 && prose[state][count].last) {
            out[count] = prose[state][count];
            count++;
        }
        if (state <= AFTER_BLANK) {
            out[count++] = (slice_edge){0xF1, 0xF3, THREE_MORE};
            out[count++] = (slice_edge){0xF4, 0xF4, AFTER_F4};
        }
        return count;
    }
    unsigned char next = (unsigned char)(state == IN_WORD                            ? IN_WORD
                                         : state == LOWER - 1 || state == STATES - 1 ? STATES
                                                                                     : state + 1);
    if (state < LOWER) {
        out[count++] = (slice_edge){'0', '9', next};
        out[count++] = (slice_edge){'A', 'Z', next};
    }
    out[count++] = (slice_edge){'a', 'z', next};
    return count;
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

static bool is_in(spry_view text, unsigned from)
{
    unsigned state = from;
    for (size_t i = 0; i < text.size; i++) {
        slice_edge edges[16];
        size_t count = edges_of(edges, state), j = 0;
        unsigned char byte = (unsigned char)text.data[i];
        while (j < count && (byte < edges[j].first || byte > edges[j].last))
            j++;
        if (j == count)
            return false;
        state = edges[j].target;
        if (state == STATES)
            return i + 1 == text.size;
    }
    return state <= AFTER_BLANK || state >= IN_WORD;
}

/* The state in which the language of a slice begins. */
static const unsigned char starts[SPRY_SLICE_REST] = {[SPRY_SLICE_LOWER] = LOWER,
                                                      [SPRY_SLICE_WORD] = WORD,
                                                      [SPRY_SLICE_LONG_WORD] = IN_WORD,
                                                      [SPRY_SLICE_PROSE] = AFTER_BLANK,
                                                      [SPRY_SLICE_SPACED] = AFTER_CHARACTER};

unsigned spry_slice_of(spry_view text)
{
    for (unsigned i = 0; i < SPRY_SLICE_REST; i++)
        if (is_in(text, starts[i]))
            return i;
    return SPRY_SLICE_REST;
}

/* ---- states ------------------------------------------------------------------------------------------------------ */

bool spry_slice_facts_init(spry_slice_facts *facts, const spry_grammar *grammar)
{
    *facts = (spry_slice_facts){.of_machine = calloc(grammar->n_machines, sizeof *facts->of_machine),
                                .n_machines = grammar->n_machines};
    return facts->of_machine != NULL;
}

void spry_slice_facts_deinit(spry_slice_facts *facts)
{
    for (uint32_t i = 0; facts->of_machine && i < facts->n_machines; i++)
        free(facts->of_machine[i]);
    free(facts->of_machine);
    free(facts->waiting);
    *facts = (spry_slice_facts){0};
}

typedef struct examination {
    spry_slice_facts *facts;
    const spry_grammar *grammar;
    const spry_machine *machine;
    unsigned char *known; /* of the machine */
    size_t n_waiting;
} examination;

static bool push(examination *e, uint32_t state, unsigned slice_state)
{
    uint32_t pair = (state - e->machine->index) * STATES + slice_state;
    if (slice_state == STATES || e->known[pair] == ACCEPTED || e->known[pair] == EXAMINED)
        return true;
    if (e->known[pair] == REFUSED || e->n_waiting >= PAIRS_MAX ||
        !spry_grow(&e->facts->waiting, &e->facts->waiting_room, e->n_waiting + 1, sizeof *e->facts->waiting))
        return false;
    e->known[pair] = EXAMINED;
    e->facts->waiting[e->n_waiting++] = pair;
    return true;
}

/* Whether the state takes every byte that the slice takes; adds the pairs behind them. */
static bool examine(examination *e, uint32_t pair)
{
    const spry_grammar *grammar = e->grammar;
    const spry_state *state = &grammar->states[e->machine->index + pair / STATES];
    slice_edge edges[16];
    size_t count = edges_of(edges, pair % STATES);
    uint32_t at = state->first_edge, end = state[1].first_edge;
    for (size_t i = 0; i < count; i++) {
        for (unsigned byte = edges[i].first; byte <= edges[i].last;) {
            while (at < end && grammar->edges[at].last < byte)
                at++;
            if (at == end || grammar->edges[at].first > byte || !push(e, grammar->edges[at].target, edges[i].target))
                return false;
            byte = grammar->edges[at].last + 1u;
        }
    }
    return true;
}

static bool accepts(examination *e, uint32_t state, unsigned slice_state)
{
    uint32_t first = (state - e->machine->index) * STATES + slice_state;
    e->n_waiting = 0;
    bool all = push(e, state, slice_state);
    for (size_t i = 0; i < e->n_waiting && all; i++) {
        uint32_t pair = e->facts->waiting[i];
        all = examine(e, pair);
        if (!all)
            e->known[pair] = REFUSED;
    }
    for (size_t i = 0; i < e->n_waiting; i++)
        if (e->known[e->facts->waiting[i]] == EXAMINED)
            e->known[e->facts->waiting[i]] = all ? ACCEPTED : UNKNOWN;
    if (!all)
        e->known[first] = REFUSED;
    return all;
}

unsigned spry_slices_accepted(spry_slice_facts *facts, const spry_grammar *grammar, uint32_t state)
{
    uint32_t owner = grammar->states[state].owner;
    const spry_machine *machine = &grammar->machines[owner];
    if (!grammar->states[state].deterministic)
        return 0;
    if (!facts->of_machine[owner]) {
        facts->of_machine[owner] = calloc(machine->n_states, STATES);
        facts->bytes += (size_t)machine->n_states * STATES;
    }
    examination e = {facts, grammar, machine, facts->of_machine[owner], 0};
    if (!e.known)
        return 0;
    unsigned count = SPRY_SLICE_REST;
    while (count && !accepts(&e, state, starts[count - 1]))
        count--;
    return count;
}
