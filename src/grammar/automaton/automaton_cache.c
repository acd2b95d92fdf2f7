/* Deterministic automata by the nondeterministic ones they were made of, for all grammars of the process: schemas
 * consist of the same strings, numbers and formats again and again. A key is compared whole, so a cached automaton is
 * never a wrong one. Bounded; when it is full it is cleared. */
#include <pthread.h>

#include "base/map.h"
#include "grammar/automaton/automaton.h"
#include "grammar/ir/grow.h"

enum {
    SLOTS = 2048, /* a power of two */
    KEY_WORDS_MAX = 1 << 14,
    STATES_MAX = 1 << 12,
    BYTES_MAX = 24 << 20, /* of all keys and automata */
};

typedef struct slot {
    uint32_t *key;
    size_t n_words;
    spry_automaton automaton;
    uint64_t work; /* of making it */
} slot;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects the two below */
static slot slots[SLOTS];
static size_t used_bytes;

/* ---- calls ------------------------------------------------------------------------------------------------------- */

typedef struct callee {
    uint32_t number, edge; /* the first edge that calls it */
} callee;

static int by_number(const void *left, const void *right)
{
    const callee *a = left, *b = right;
    if (a->number != b->number)
        return a->number > b->number ? 1 : -1;
    return (a->edge > b->edge) - (a->edge < b->edge);
}

static int by_edge(const void *left, const void *right)
{
    const callee *a = left, *b = right;
    return (a->edge > b->edge) - (a->edge < b->edge);
}

/* An automaton does not depend on the numbers of the machines it calls: `edges` gets them in the order of their first
 * use, so that the same rule of another grammar is found. *callees: their own numbers. False when memory is short. */
static bool renumber_calls(const spry_nfa *nfa, spry_nfa_edge **edges, callee **callees)
{
    size_t n = 0, kept = 0;
    *edges = malloc((nfa->n_edges + 1) * sizeof **edges);
    *callees = malloc((nfa->n_edges + 1) * sizeof **callees);
    uint32_t *place = malloc((nfa->n_edges + 1) * sizeof *place); /* by the first edge */
    bool ok = *edges && *callees && place;
    for (uint32_t i = 0; i < nfa->n_edges && ok; i++) {
        (*edges)[i] = nfa->edges[i];
        if (nfa->edges[i].kind == SPRY_NFA_CALL)
            (*callees)[n++] = (callee){nfa->edges[i].callee, i};
    }
    if (n && ok) {
        qsort(*callees, n, sizeof **callees, by_number);
        for (size_t i = 0; i < n; i++) {
            bool first = !kept || (*callees)[kept - 1].number != (*callees)[i].number;
            if (first)
                (*callees)[kept++] = (*callees)[i];
            (*edges)[(*callees)[i].edge].callee = (*callees)[kept - 1].edge;
        }
        qsort(*callees, kept, sizeof **callees, by_edge);
        for (uint32_t i = 0; i < kept; i++)
            place[(*callees)[i].edge] = i;
        for (uint32_t i = 0; i < nfa->n_edges; i++)
            if ((*edges)[i].kind == SPRY_NFA_CALL)
                (*edges)[i].callee = place[(*edges)[i].callee];
    }
    free(place);
    return ok;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* The states and edges as words; NULL: too large, or memory is short. */
static uint32_t *make_key(const spry_nfa *nfa, size_t max_states, size_t *n_words)
{
    *n_words = 1 + 2 * nfa->n_states + 4 * nfa->n_edges;
    uint32_t *key = *n_words > KEY_WORDS_MAX ? NULL : malloc(*n_words * sizeof *key), *at = key;
    if (!key)
        return NULL;
    *at++ = (uint32_t)max_states;
    for (size_t i = 0; i < nfa->n_states; i++) {
        *at++ = nfa->states[i].edge;
        *at++ = nfa->states[i].tag;
    }
    for (size_t i = 0; i < nfa->n_edges; i++) {
        const spry_nfa_edge *edge = &nfa->edges[i];
        *at++ = edge->target;
        *at++ = edge->next;
        *at++ = edge->kind == SPRY_NFA_CALL ? edge->callee : 0;
        *at++ = edge->kind == SPRY_NFA_BYTES ? (uint32_t)edge->kind << 16 | (uint32_t)edge->first << 8 | edge->last
                                             : (uint32_t)edge->kind << 16;
    }
    return key;
}

static void *copy_of(const void *from, size_t count, size_t size)
{
    void *to = malloc(count ? count * size : 1);
    if (to && count)
        memcpy(to, from, count * size);
    return to;
}

static bool copy_automaton(spry_automaton *to, const spry_automaton *from)
{
    uint32_t n = from->n_states;
    *to = (spry_automaton){.n_states = n, .deterministic = from->deterministic};
    if (!n)
        return true;
    to->first_edge = copy_of(from->first_edge, n + (size_t)1, sizeof *to->first_edge);
    to->first_call = copy_of(from->first_call, n + (size_t)1, sizeof *to->first_call);
    to->tags = copy_of(from->tags, n, sizeof *to->tags);
    to->edges = copy_of(from->edges, from->first_edge[n], sizeof *to->edges);
    to->calls = copy_of(from->calls, from->first_call[n], sizeof *to->calls);
    if (to->first_edge && to->first_call && to->tags && to->edges && to->calls)
        return true;
    spry_automaton_deinit(to);
    return false;
}

static size_t slot_bytes(const slot *s)
{
    const spry_automaton *a = &s->automaton;
    size_t edges = a->n_states ? a->first_edge[a->n_states] : 0;
    return s->n_words * sizeof *s->key + a->n_states * 12 + edges * sizeof *a->edges;
}

static void clear(slot *s)
{
    used_bytes -= s->key ? slot_bytes(s) : 0;
    free(s->key);
    spry_automaton_deinit(&s->automaton);
    *s = (slot){0};
}

static bool find(spry_automaton *out, uint64_t *work, size_t at, const uint32_t *key, size_t n_words)
{
    pthread_mutex_lock(&lock);
    const slot *there = &slots[at];
    bool found = there->key && there->n_words == n_words && memcmp(there->key, key, n_words * sizeof *key) == 0 &&
                 copy_automaton(out, &there->automaton);
    *work = found ? there->work : 0;
    pthread_mutex_unlock(&lock);
    return found;
}

/* Takes the key. */
static void keep(size_t at, uint32_t *key, size_t n_words, const spry_automaton *made, uint64_t work)
{
    slot fresh = {.key = key, .n_words = n_words, .work = work};
    if (made->n_states > STATES_MAX || !copy_automaton(&fresh.automaton, made)) {
        free(key);
        return;
    }
    pthread_mutex_lock(&lock);
    clear(&slots[at]);
    if (used_bytes + slot_bytes(&fresh) > BYTES_MAX)
        for (size_t i = 0; i < SLOTS; i++)
            clear(&slots[i]);
    slots[at] = fresh;
    used_bytes += slot_bytes(&fresh);
    pthread_mutex_unlock(&lock);
}

static spry_automaton_result make_small(spry_automaton *out, const spry_nfa *nfa, size_t max_states)
{
    spry_automaton_result result = spry_automaton_determinize(out, nfa, max_states);
    return result ? result : spry_automaton_minimize(out);
}

static spry_automaton_result find_or_make(spry_automaton *out, const spry_nfa *nfa, size_t max_states)
{
    size_t n_words = 0, at = 0;
    uint32_t *key = make_key(nfa, max_states, &n_words);
    uint64_t work = 0, uncounted = 0, *spent = nfa->spent ? nfa->spent : &uncounted, before = *spent;
    spry_automaton_result result = SPRY_AUTOMATON_OK;
    if (key)
        at = (size_t)spry_hash_bytes(key, n_words * sizeof *key, 7) & (SLOTS - 1);
    if (key && find(out, &work, at, key, n_words)) {
        *spent += work; /* as if it were made: what is refused does not depend on what is cached */
        free(key);
    } else {
        result = make_small(out, nfa, max_states);
        if (!result && key)
            keep(at, key, n_words, out, *spent - before);
        else
            free(key);
    }
    if (result || *spent <= SPRY_AUTOMATON_WORK_MAX)
        return result;
    spry_automaton_deinit(out);
    return SPRY_AUTOMATON_TOO_LARGE;
}

static bool has_calls(const spry_nfa *nfa)
{
    for (size_t i = 0; i < nfa->n_edges; i++)
        if (nfa->edges[i].kind == SPRY_NFA_CALL)
            return true;
    return false;
}

spry_automaton_result spry_automaton_make(spry_automaton *out, const spry_nfa *nfa, size_t max_states)
{
    *out = (spry_automaton){0};
    if (nfa->result)
        return nfa->result;
    if (!has_calls(nfa))
        return find_or_make(out, nfa, max_states);
    spry_nfa renumbered = *nfa;
    callee *callees = NULL;
    spry_automaton_result result = SPRY_AUTOMATON_NO_MEMORY;
    if (renumber_calls(nfa, &renumbered.edges, &callees))
        result = find_or_make(out, &renumbered, max_states);
    for (uint32_t i = 0; !result && out->n_states && i < out->first_call[out->n_states]; i++)
        out->calls[i].callee = callees[out->calls[i].callee].number;
    free(renumbered.edges);
    free(callees);
    return result;
}
