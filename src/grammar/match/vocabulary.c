/* Vocabularies: tries of tokens, one for each slice. */
#include "grammar/match/vocabulary.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/ir/grow.h"

/* ---- slices ------------------------------------------------------------------------------------------------------ */

/* The language of a slice is a small automaton below. A state of a grammar accepts a slice if the walk of both automata
 * in parallel never reaches a pair (state, slice state) for which the slice has a byte and the state has not. */

enum {
    AFTER_CHARACTER,
    AFTER_BLANK, /* after a blank, or at the beginning */
    ONE_MORE,    /* one more continuation byte must follow */
    TWO_MORE,
    THREE_MORE,
    AFTER_E0,
    AFTER_E2,
    AFTER_E2_80,
    AFTER_ED,
    AFTER_F0,
    AFTER_F4,
    IN_WORD,
    WORD,                /* this and the next 7 states: one for each character of a word */
    LOWER = WORD + 8,    /* like WORD, for lower case */
    STATES = LOWER + 8,  /* number of states; after the eighth character nothing is examined */
    PAIRS_MAX = 1 << 15, /* maximum pairs examined to decide about one slice */
};

enum { UNKNOWN, ACCEPTED, REFUSED, EXAMINED };

typedef struct slice_edge {
    unsigned char first, last, target;
} slice_edge;

/* Line ends other than control characters (U+2028, U+2029) do not belong to the language, as in most patterns. */
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

/* The first state of each slice's language. */
static const unsigned char starts[SPRY_SLICE_REST] = {[SPRY_SLICE_LOWER] = LOWER,
                                                      [SPRY_SLICE_WORD] = WORD,
                                                      [SPRY_SLICE_LONG_WORD] = IN_WORD,
                                                      [SPRY_SLICE_PROSE] = AFTER_BLANK,
                                                      [SPRY_SLICE_SPACED] = AFTER_CHARACTER};

/* The slice of a token. */
static unsigned slice_of(spry_view text)
{
    for (unsigned i = 0; i < SPRY_SLICE_REST; i++)
        if (is_in(text, starts[i]))
            return i;
    return SPRY_SLICE_REST;
}

/* ---- which states accept a slice --------------------------------------------------------------------------------- */

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
    unsigned char *known; /* the result for each pair of a state of the machine and a state of the slice */
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

/* True if the grammar's state has every byte that the slice's state has; adds the pairs reached by these bytes. */
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

/* ---- tries ------------------------------------------------------------------------------------------------------- */

/* Which control tokens count as text. */
typedef struct shown_tokens {
    bool (*shows)(const void *user, spry_view spelling); /* NULL: none */
    const void *user;
} shown_tokens;

/* The bytes of a token that can be text; empty if it cannot. */
static spry_view text_of(const spry_tokenizer *tokenizer, int32_t id, const shown_tokens *shown)
{
    spry_token_kind kind = spry_tokenizer_kind(tokenizer, id);
    spry_view bytes = spry_tokenizer_bytes(tokenizer, id), none = {"", 0};
    bool mark = false;
    if (kind == SPRY_TOKEN_CONTROL && shown->shows) {
        bytes = bytes.size ? bytes : spry_tokenizer_name(tokenizer, id);
        mark = shown->shows(shown->user, bytes);
    }
    bool text = mark || kind == SPRY_TOKEN_NORMAL || kind == SPRY_TOKEN_ADDED || kind == SPRY_TOKEN_BYTE;
    return text && !spry_tokenizer_is_end(tokenizer, id) && bytes.size <= SPRY_TOKEN_BYTES_MAX ? bytes : none;
}

/* Copies the bytes of every token that can be text. */
static bool copy_texts(spry_vocabulary *made, const spry_tokenizer *tokenizer, size_t known, const shown_tokens *shown)
{
    size_t total = 0, used = 0;
    for (size_t i = 0; i < known; i++)
        total += text_of(tokenizer, (int32_t)i, shown).size;
    made->bytes = malloc(total + 1);
    made->texts = calloc(made->n_ids + 1, sizeof *made->texts);
    made->order = malloc((known + 1) * sizeof *made->order);
    made->ends = calloc(made->n_words + 1, sizeof *made->ends);
    if (!made->bytes || !made->texts || !made->order || !made->ends)
        return false;
    for (size_t i = 0; i < known; i++) {
        spry_view text = text_of(tokenizer, (int32_t)i, shown);
        if (spry_tokenizer_is_end(tokenizer, (int32_t)i))
            spry_bit_set(made->ends, (uint32_t)i);
        if (!text.size)
            continue;
        memcpy(made->bytes + used, text.data, text.size);
        made->texts[i] = (spry_view){made->bytes + used, text.size};
        used += text.size;
        made->order[made->n_tokens++] = (int32_t)i;
        if (text.size > made->longest)
            made->longest = (uint32_t)text.size;
    }
    return true;
}

/* A token to be sorted. Most comparisons are decided by its first bytes, compared as a number. */
typedef struct sortable {
    unsigned slice;
    uint64_t head;
    spry_view text;
    int32_t id;
} sortable;

static int compare_tokens(const void *left, const void *right)
{
    const sortable *a = left, *b = right;
    if (a->slice != b->slice)
        return a->slice > b->slice ? 1 : -1;
    if (a->head != b->head)
        return a->head > b->head ? 1 : -1;
    size_t common = a->text.size < b->text.size ? a->text.size : b->text.size;
    int order = memcmp(a->text.data, b->text.data, common);
    if (order)
        return order;
    if (a->text.size != b->text.size)
        return a->text.size > b->text.size ? 1 : -1;
    return (a->id > b->id) - (a->id < b->id);
}

static bool sort_tokens(spry_vocabulary *made)
{
    sortable *tokens = malloc((made->n_tokens + 1) * sizeof *tokens);
    if (!tokens)
        return false;
    for (size_t i = 0; i < made->n_tokens; i++) {
        spry_view text = made->texts[made->order[i]];
        tokens[i] = (sortable){slice_of(text), 0, text, made->order[i]};
        made->tries[tokens[i].slice].n_tokens++;
        for (size_t j = 0; j < 8; j++)
            tokens[i].head = tokens[i].head << 8 | (j < text.size ? (unsigned char)text.data[j] : 0);
    }
    qsort(tokens, made->n_tokens, sizeof *tokens, compare_tokens);
    for (size_t i = 0; i < made->n_tokens; i++)
        made->order[i] = tokens[i].id;
    free(tokens);
    return true;
}

/* Adds the trie of a slice, whose tokens begin at `first` in `order`. */
static bool make_trie(spry_vocabulary *made, spry_trie *trie, uint32_t first, size_t *room, uint32_t *path)
{
    size_t depth = 0;
    spry_view last = {"", 0};
    trie->begin = made->n_nodes;
    for (uint32_t i = first; i < first + trie->n_tokens; i++) {
        spry_view text = made->texts[made->order[i]];
        trie->longest = text.size > trie->longest ? (uint32_t)text.size : trie->longest;
        size_t common = 0;
        while (common < text.size && common < last.size && text.data[common] == last.data[common])
            common++;
        while (depth > common)
            made->nodes[path[--depth]].skip = made->n_nodes;
        if (!spry_grow(&made->nodes, room, made->n_nodes + (text.size - common) + 1, sizeof *made->nodes))
            return false;
        for (; depth < text.size; depth++) {
            path[depth] = made->n_nodes;
            made->nodes[made->n_nodes++] =
                (spry_trie_node){0, i, (uint16_t)(depth + 1), (unsigned char)text.data[depth]};
        }
        last = text;
    }
    while (depth > 0)
        made->nodes[path[--depth]].skip = made->n_nodes;
    trie->end = made->n_nodes;
    memset(trie->roots, 0xFF, sizeof trie->roots);
    for (uint32_t i = trie->begin; i < trie->end; i = made->nodes[i].skip)
        trie->roots[made->nodes[i].byte] = i;
    return true;
}

static bool make_tries(spry_vocabulary *made)
{
    size_t room = 0;
    uint32_t *path = malloc((made->longest + 1) * sizeof *path); /* the nodes of the previous token */
    bool ok = path != NULL;
    for (uint32_t slice = 0, first = 0; slice < SPRY_SLICES && ok; slice++) {
        spry_trie *trie = &made->tries[slice];
        ok = make_trie(made, trie, first, &room, path);
        if (ok && slice != SPRY_SLICE_REST)
            ok = (trie->bits = calloc(made->n_words + 1, sizeof *trie->bits)) != NULL;
        for (uint32_t i = 0; i < first + trie->n_tokens && trie->bits; i++)
            spry_bit_set(trie->bits, (uint32_t)made->order[i]);
        first += trie->n_tokens;
    }
    ok = ok && spry_grow(&made->nodes, &room, made->n_nodes + 1, sizeof *made->nodes);
    if (ok)
        made->nodes[made->n_nodes] = (spry_trie_node){made->n_nodes, made->n_tokens, 0, 0};
    free(path);
    return ok;
}

spry_status spry_vocabulary_create(spry_vocabulary **out, const spry_tokenizer *tokenizer, size_t n_ids,
                                   spry_error *error)
{
    return spry_vocabulary_create_marks(out, tokenizer, n_ids, NULL, NULL, error);
}

spry_status spry_vocabulary_create_marks(spry_vocabulary **out, const spry_tokenizer *tokenizer, size_t n_ids,
                                         bool (*shows)(const void *user, spry_view spelling), const void *user,
                                         spry_error *error)
{
    const shown_tokens shown = {shows, user};
    static atomic_ullong serial = 1;
    size_t known = spry_tokenizer_size(tokenizer);
    spry_vocabulary *made = *out = calloc(1, sizeof *made);
    if (!made)
        return spry_fail_memory(error, "a vocabulary", sizeof *made);
    made->serial = atomic_fetch_add(&serial, 1);
    made->n_ids = n_ids;
    made->n_words = (n_ids + 31) / 32;
    made->share = spry_mask_share_create();
    made->marks = shows != NULL;
    if (made->share && copy_texts(made, tokenizer, known < n_ids ? known : n_ids, &shown) && sort_tokens(made) &&
        make_tries(made))
        return SPRY_OK;
    spry_vocabulary_destroy(made);
    *out = NULL;
    return spry_fail_memory(error, "a vocabulary", n_ids * sizeof *made->texts);
}

void spry_vocabulary_destroy(spry_vocabulary *vocabulary)
{
    if (!vocabulary)
        return;
    spry_mask_share_destroy(vocabulary->share);
    for (unsigned i = 0; i < SPRY_SLICES; i++)
        free(vocabulary->tries[i].bits);
    free(vocabulary->nodes);
    free(vocabulary->order);
    free(vocabulary->texts);
    free(vocabulary->bytes);
    free(vocabulary->ends);
    free(vocabulary);
}
