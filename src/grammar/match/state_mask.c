#include "grammar/match/state_mask.h"

#include "grammar/ir/grow.h"

enum { SPARSE_MAX = 1024 }; /* maximum number of tokens in a list instead of bits */

#define NOWHERE UINT32_MAX

void spry_walk_trie(spry_places *places, const spry_vocabulary *vocabulary, uint32_t *bits, uint32_t *path,
                    uint32_t set, uint32_t begin, uint32_t end, uint32_t base)
{
    const spry_trie_node *nodes = vocabulary->nodes;
    path[0] = set;
    for (uint32_t i = begin; i < end;) {
        uint32_t depth = nodes[i].depth - base, next = spry_places_step(places, path[depth - 1], nodes[i].byte);
        if (next == SPRY_NO_SET) {
            i = nodes[i].skip;
            continue;
        }
        path[depth] = next;
        for (uint32_t t = nodes[i].first_token; t < nodes[i + 1].first_token; t++)
            spry_bit_set(bits, (uint32_t)vocabulary->order[t]);
        i++;
    }
}

/* ---- a walk over the whole trie ---------------------------------------------------------------------------------- */

/* An exit whose subtree is being walked; removed if all tokens below it are accepted anyway. */
typedef struct open_exit {
    spry_exit exit;
    uint32_t taken_before;
} open_exit;

typedef struct finder {
    const spry_vocabulary *vocabulary;
    uint32_t *bits;
    uint32_t *path; /* sets or states */
    uint32_t n_taken;
    open_exit *open;
    spry_exit *exits;
    size_t n_open, n_exits, open_room, exits_room;
    uint16_t *rounds;       /* on the path */
    uint16_t *token_rounds; /* [n_tokens] in trie order, 0: not accepted */
    bool failed;
} finder;

static bool start(finder *find, const spry_vocabulary *vocabulary, bool rounds)
{
    *find = (finder){.vocabulary = vocabulary};
    find->bits = calloc(vocabulary->n_words + 1, sizeof *find->bits);
    find->path = malloc((vocabulary->longest + 1) * sizeof *find->path);
    find->failed = !find->bits || !find->path;
    if (rounds) {
        find->rounds = calloc(vocabulary->longest + 1, sizeof *find->rounds);
        find->token_rounds = calloc(vocabulary->n_tokens + 1, sizeof *find->token_rounds);
        find->failed |= !find->rounds || !find->token_rounds;
    }
    return !find->failed;
}

static void open_at(finder *find, spry_exit exit)
{
    if (!spry_grow(&find->open, &find->open_room, find->n_open + 1, sizeof *find->open))
        find->failed = true;
    else
        find->open[find->n_open++] = (open_exit){exit, find->n_taken};
}

/* Closes the exits whose subtrees end before node `at`. */
static void close_exits(finder *find, uint32_t at)
{
    const spry_trie_node *nodes = find->vocabulary->nodes;
    while (find->n_open && nodes[find->open[find->n_open - 1].exit.node].skip <= at) {
        open_exit closed = find->open[--find->n_open];
        uint32_t node = closed.exit.node;
        uint32_t below = nodes[nodes[node].skip].first_token - nodes[node + 1].first_token;
        if (find->n_taken - closed.taken_before == below)
            continue;
        if (!spry_grow(&find->exits, &find->exits_room, find->n_exits + 1, sizeof *find->exits))
            find->failed = true;
        else
            find->exits[find->n_exits++] = closed.exit;
    }
}

static spry_state_mask *finish(finder *find, bool failed)
{
    spry_state_mask *mask = calloc(1, sizeof *mask);
    failed |= find->failed;
    if (mask) {
        atomic_init(&mask->references, 1);
        mask->bits = find->bits;
        mask->exits = find->exits;
        mask->n_exits = (uint32_t)find->n_exits;
        mask->bytes =
            sizeof *mask + find->vocabulary->n_words * sizeof *mask->bits + find->n_exits * sizeof *mask->exits;
    } else {
        free(find->bits);
        free(find->exits);
    }
    free(find->path);
    free(find->open);
    free(find->rounds);
    if (!failed)
        return mask;
    spry_state_mask_unref(mask);
    return NULL;
}

void spry_state_mask_unref(spry_state_mask *mask)
{
    if (!mask || atomic_fetch_sub(&mask->references, 1) != 1)
        return;
    free(mask->bits);
    free(mask->ids);
    free(mask->exits);
    free(mask->first);
    free(mask);
}

/* ---- without rounds ---------------------------------------------------------------------------------------------- */

/* Sets the bits of a run of tokens in trie order. */
static void take_run(finder *find, uint32_t first, uint32_t end)
{
    const int32_t *order = find->vocabulary->order;
    for (uint32_t t = first; t < end; t++)
        spry_bit_set(find->bits, (uint32_t)order[t]);
    find->n_taken += end - first;
}

/* Walks the nodes [begin, end), all below children of the root. While nothing is skipped, the tokens passed form one
 * run. */
static void walk(finder *find, spry_places *places, uint32_t begin, uint32_t end)
{
    const spry_trie_node *nodes = find->vocabulary->nodes;
    uint32_t run = nodes[begin].first_token, close_at = end; /* the end of the innermost open exit's subtree */
    for (uint32_t i = begin; i < end && !find->failed;) {
        uint32_t depth = nodes[i].depth, next = spry_places_step(places, find->path[depth - 1], nodes[i].byte);
        bool opens = next != SPRY_NO_SET && places->sets[next].may_end && nodes[i].skip != i + 1;
        if (i >= close_at || opens || next == SPRY_NO_SET) {
            take_run(find, run, nodes[i].first_token);
            run = nodes[i].first_token;
            close_exits(find, i);
            close_at = find->n_open ? nodes[find->open[find->n_open - 1].exit.node].skip : end;
        }
        if (next == SPRY_NO_SET) {
            i = nodes[i].skip;
            run = nodes[i].first_token;
            continue;
        }
        find->path[depth] = next;
        if (opens) {
            take_run(find, run, nodes[i + 1].first_token);
            run = nodes[i + 1].first_token;
            open_at(find, (spry_exit){.node = i});
            close_at = nodes[i].skip;
        }
        i++;
    }
    take_run(find, run, nodes[end].first_token);
    close_exits(find, end);
}

/* Copies the tokens and exits of another state where both have the same target for the first byte. */
static void walk_from_base(finder *find, spry_places *places, uint32_t set, const spry_state_mask *base,
                           uint32_t base_set)
{
    const spry_vocabulary *vocabulary = find->vocabulary;
    const spry_trie_node *nodes = vocabulary->nodes;
    uint32_t next_exit = 0;
    memcpy(find->bits, base->bits, vocabulary->n_words * sizeof *find->bits);
    for (uint32_t i = 0; i < vocabulary->n_nodes && !find->failed && !places->failed; i = nodes[i].skip) {
        uint32_t end = nodes[i].skip;
        bool alike = spry_places_step(places, set, nodes[i].byte) == spry_places_step(places, base_set, nodes[i].byte);
        for (; next_exit < base->n_exits && base->exits[next_exit].node < end; next_exit++) {
            if (alike && !spry_grow(&find->exits, &find->exits_room, find->n_exits + 1, sizeof *find->exits))
                find->failed = true;
            else if (alike)
                find->exits[find->n_exits++] = base->exits[next_exit];
        }
        if (alike)
            continue;
        for (uint32_t t = nodes[i].first_token; t < nodes[end].first_token; t++)
            find->bits[vocabulary->order[t] / 32] &= ~((uint32_t)1 << vocabulary->order[t] % 32);
        walk(find, places, i, end);
    }
}

/* Converts few bits to a list. */
static bool make_sparse(spry_state_mask *mask, size_t n_words, uint32_t count)
{
    mask->ids = malloc((count + 1) * sizeof *mask->ids);
    if (!mask->ids)
        return false;
    for (uint32_t i = 0; i < n_words && mask->n_ids < count; i++)
        for (uint32_t bit = 0; bit < 32 && mask->bits[i] >> bit; bit++)
            if (mask->bits[i] >> bit & 1)
                mask->ids[mask->n_ids++] = (int32_t)(i * 32 + bit);
    free(mask->bits);
    mask->bits = NULL;
    mask->bytes -= n_words * sizeof *mask->bits;
    mask->bytes += count * sizeof *mask->ids;
    return true;
}

static uint32_t start_set(spry_places *places, uint32_t state)
{
    spry_return below = {SPRY_END_STATE, 0, SPRY_NO_STACK};
    spry_position position = {state, spry_places_stack(places, &below, 1)};
    return spry_places_set(places, &position, 1, false);
}

spry_state_mask *spry_state_mask_find(spry_places *places, const spry_vocabulary *vocabulary, uint32_t state,
                                      const spry_state_mask *base, uint32_t base_state)
{
    finder find;
    bool ok = start(&find, vocabulary, false);
    uint32_t set = start_set(places, state), base_set = base ? start_set(places, base_state) : SPRY_NO_SET;
    if (ok && !places->failed) {
        find.path[0] = set;
        if (base)
            walk_from_base(&find, places, set, base, base_set);
        else
            walk(&find, places, 0, vocabulary->n_nodes);
    }
    spry_state_mask *mask = finish(&find, places->failed != SPRY_OK);
    if (mask && !base && find.n_taken <= SPARSE_MAX && !make_sparse(mask, vocabulary->n_words, find.n_taken)) {
        spry_state_mask_unref(mask);
        return NULL;
    }
    return mask;
}

/* ---- with rounds ------------------------------------------------------------------------------------------------- */

/* The target of each byte from each state of a machine; states are relative to its first. */
static uint32_t *make_table(const spry_grammar *grammar, const spry_machine *machine)
{
    uint32_t *table = malloc((size_t)machine->n_states * 256 * sizeof *table);
    if (!table)
        return NULL;
    for (size_t i = 0; i < (size_t)machine->n_states * 256; i++)
        table[i] = NOWHERE;
    for (uint32_t i = 0; i < machine->n_states; i++) {
        const spry_state *state = &grammar->states[machine->index + i];
        for (uint32_t j = state->first_edge; j < state[1].first_edge; j++)
            for (unsigned byte = grammar->edges[j].first; byte <= grammar->edges[j].last; byte++)
                table[(size_t)i * 256 + byte] = grammar->edges[j].target - machine->index;
    }
    return table;
}

/* Whether a child of the node has a byte that no round begins with. */
static bool turns(const spry_trie_node *nodes, uint32_t node, const uint32_t *table)
{
    for (uint32_t child = node + 1; child < nodes[node].skip; child = nodes[child].skip)
        if (table[nodes[child].byte] == NOWHERE)
            return true;
    return false;
}

static void walk_rounds(finder *find, const spry_grammar *grammar, const spry_machine *machine, const uint32_t *table,
                        uint32_t state)
{
    const spry_vocabulary *vocabulary = find->vocabulary;
    const spry_trie_node *nodes = vocabulary->nodes;
    find->path[0] = state;
    for (uint32_t i = 0; i < vocabulary->n_nodes && !find->failed;) {
        if (find->n_open)
            close_exits(find, i);
        uint32_t depth = nodes[i].depth, next = table[(size_t)find->path[depth - 1] * 256 + nodes[i].byte];
        if (next == NOWHERE) {
            i = nodes[i].skip;
            continue;
        }
        /* An accepting state of a simple counter's body ends its round. */
        bool complete = grammar->states[machine->index + next].tag != 0;
        uint16_t rounds = find->rounds[depth - 1];
        for (uint32_t t = nodes[i].first_token; t < nodes[i + 1].first_token; t++, find->n_taken++) {
            spry_bit_set(find->bits, (uint32_t)vocabulary->order[t]);
            find->token_rounds[t] = (uint16_t)(rounds + 1);
        }
        find->path[depth] = complete ? 0 : next;
        find->rounds[depth] = (uint16_t)(rounds + complete);
        if (complete && nodes[i].skip != i + 1)
            open_at(find, (spry_exit){i, (uint16_t)(rounds + 1), turns(nodes, i, table)});
        i++;
    }
    close_exits(find, vocabulary->n_nodes);
}

/* Sorts the tokens by rounds. */
static bool sort_by_rounds(spry_state_mask *mask, const finder *find)
{
    const spry_vocabulary *vocabulary = find->vocabulary;
    for (uint32_t t = 0; t < vocabulary->n_tokens; t++)
        if (find->token_rounds[t] > mask->most)
            mask->most = find->token_rounds[t];
    mask->first = calloc(mask->most + 3, sizeof *mask->first);
    mask->ids = malloc((find->n_taken + 1) * sizeof *mask->ids);
    if (!mask->first || !mask->ids)
        return false;
    for (uint32_t t = 0; t < vocabulary->n_tokens; t++)
        if (find->token_rounds[t])
            mask->first[find->token_rounds[t] + 2]++;
    for (uint32_t i = 1; i < mask->most + 3; i++)
        mask->first[i] += mask->first[i - 1];
    for (uint32_t t = 0; t < vocabulary->n_tokens; t++)
        if (find->token_rounds[t])
            mask->ids[mask->first[find->token_rounds[t] + 1]++] = vocabulary->order[t];
    mask->n_ids = find->n_taken;
    mask->bytes += find->n_taken * sizeof *mask->ids;
    return true;
}

spry_state_mask *spry_state_mask_rounds(const spry_grammar *grammar, const spry_vocabulary *vocabulary, uint32_t state)
{
    const spry_machine *machine = &grammar->machines[grammar->states[state].owner];
    uint32_t *table = make_table(grammar, machine);
    finder find;
    bool ok = start(&find, vocabulary, true) && table;
    if (ok)
        walk_rounds(&find, grammar, machine, table, state - machine->index);
    spry_state_mask *mask = finish(&find, !ok);
    if (mask && !sort_by_rounds(mask, &find)) {
        spry_state_mask_unref(mask);
        mask = NULL;
    }
    for (unsigned byte = 0; mask && byte < 256; byte++)
        if (table[byte] != NOWHERE)
            mask->starts[byte / 64] |= (uint64_t)1 << byte % 64;
    free(find.token_rounds);
    free(table);
    return mask;
}

void spry_state_mask_add_rounds(const spry_state_mask *mask, uint32_t *bits, uint32_t *scratch, size_t n_words,
                                uint32_t rounds)
{
    uint32_t fit = rounds < mask->most ? mask->first[rounds + 1] : mask->n_ids;
    if (fit < mask->n_ids / 2) {
        for (uint32_t i = 0; i < fit; i++)
            spry_bit_set(bits, (uint32_t)mask->ids[i]);
        return;
    }
    memcpy(scratch, mask->bits, n_words * sizeof *scratch);
    for (uint32_t i = fit; i < mask->n_ids; i++)
        scratch[mask->ids[i] / 32] &= ~((uint32_t)1 << mask->ids[i] % 32);
    for (size_t i = 0; i < n_words; i++)
        bits[i] |= scratch[i];
}
