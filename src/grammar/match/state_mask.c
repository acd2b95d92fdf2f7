#include "grammar/match/state_mask.h"

#include "grammar/ir/grow.h"

enum {
    SPARSE_MAX = 1024,       /* maximum number of tokens in a list instead of bits */
    TABLE_STATES_MAX = 1024, /* maximum states of a machine whose steps are stored in a table */
};

#define NOWHERE UINT32_MAX

void spry_walk_trie(spry_places *places, const spry_vocabulary *vocabulary, uint32_t *bits, uint32_t *path,
                    uint32_t set, uint32_t begin, uint32_t end, uint32_t base)
{
    const spry_trie_node *nodes = vocabulary->nodes;
    uint32_t n_visited = 0;
    path[0] = set;
    for (uint32_t i = begin; i < end && !places->failed; n_visited++) {
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
    spry_places_charge(places, n_visited / SPRY_NODES_A_WORK);
}

void spry_walk_tries(spry_places *places, const spry_vocabulary *vocabulary, uint32_t *bits, uint32_t *path,
                     uint32_t set)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        for (unsigned i = 0; spry_set_takes(&places->sets[set], (unsigned char)byte) && i < SPRY_SLICES; i++) {
            uint32_t root = vocabulary->tries[i].roots[byte];
            if (root != SPRY_NO_NODE)
                spry_walk_trie(places, vocabulary, bits, path, set, root, vocabulary->nodes[root].skip, 0);
        }
    }
}

/* ---- results of a walk over the trie ----------------------------------------------------------------------------- */

/* A trie node in the walk after which the machine was complete. It becomes no exit if all tokens at and below it are
 * accepted anyway. */
typedef struct open_exit {
    spry_exit exit;
    uint32_t taken_before;
} open_exit;

typedef struct token_run {
    uint32_t first, end; /* indices into `order` */
} token_run;

typedef struct finder {
    const spry_vocabulary *vocabulary;
    uint32_t *path; /* set or state at each depth of the current trie path */
    uint32_t n_taken, longest;
    token_run *runs; /* accepted tokens */
    open_exit *open;
    spry_exit *exits;
    size_t n_runs, n_open, n_exits, runs_room, open_room, exits_room;
    uint16_t *rounds;       /* number of rounds at each depth of the path */
    uint16_t *token_rounds; /* [n_tokens] in trie order, 0: not accepted */
    bool failed;
} finder;

static bool start(finder *find, const spry_vocabulary *vocabulary, bool rounds)
{
    *find = (finder){.vocabulary = vocabulary};
    find->path = malloc((vocabulary->longest + 1) * sizeof *find->path);
    find->failed = !find->path;
    if (rounds) {
        find->rounds = calloc(vocabulary->longest + 1, sizeof *find->rounds);
        find->token_rounds = calloc(vocabulary->n_tokens + 1, sizeof *find->token_rounds);
        find->failed |= !find->rounds || !find->token_rounds;
    }
    return !find->failed;
}

static void add_exit(finder *find, spry_exit exit)
{
    if (!spry_grow(&find->exits, &find->exits_room, find->n_exits + 1, sizeof *find->exits))
        find->failed = true;
    else
        find->exits[find->n_exits++] = exit;
}

static void open_at(finder *find, spry_exit exit)
{
    if (!spry_grow(&find->open, &find->open_room, find->n_open + 1, sizeof *find->open))
        find->failed = true;
    else
        find->open[find->n_open++] = (open_exit){exit, find->n_taken};
}

/* Closes the open exits whose subtrees end before node `at`. */
static void close_exits(finder *find, uint32_t at)
{
    const spry_trie_node *nodes = find->vocabulary->nodes;
    while (find->n_open && nodes[find->open[find->n_open - 1].exit.node].skip <= at) {
        open_exit closed = find->open[--find->n_open];
        uint32_t node = closed.exit.node;
        uint32_t tokens = nodes[nodes[node].skip].first_token - nodes[node].first_token;
        if (find->n_taken - closed.taken_before != tokens)
            add_exit(find, closed.exit);
    }
}

static void take_run(finder *find, uint32_t first, uint32_t end)
{
    if (first == end)
        return;
    find->n_taken += end - first;
    if (find->n_runs && find->runs[find->n_runs - 1].end == first)
        find->runs[find->n_runs - 1].end = end;
    else if (!spry_grow(&find->runs, &find->runs_room, find->n_runs + 1, sizeof *find->runs))
        find->failed = true;
    else
        find->runs[find->n_runs++] = (token_run){first, end};
}

/* Sorts the exits by byte. */
static spry_exit *sort_exits(const finder *find)
{
    uint32_t ends[257] = {0};
    spry_exit *sorted = malloc((find->n_exits + 1) * sizeof *sorted);
    if (!sorted)
        return NULL;
    for (size_t i = 0; i < find->n_exits; i++)
        ends[find->exits[i].byte + 1]++;
    for (unsigned i = 0; i < 256; i++)
        ends[i + 1] += ends[i];
    for (size_t i = 0; i < find->n_exits; i++)
        sorted[ends[find->exits[i].byte]++] = find->exits[i];
    for (size_t i = 0; i < find->n_exits; i++)
        sorted[i].next = ends[sorted[i].byte];
    return sorted;
}

/* Stores the accepted tokens, as bits if there are many or rounds need them. */
static bool store_tokens(spry_state_mask *mask, const finder *find)
{
    const spry_vocabulary *vocabulary = find->vocabulary;
    bool many = find->n_taken > SPARSE_MAX || find->token_rounds;
    if (many)
        mask->bits = calloc(vocabulary->n_words + 1, sizeof *mask->bits);
    else
        mask->ids = malloc((find->n_taken + 1) * sizeof *mask->ids);
    if (!mask->bits && !mask->ids)
        return false;
    for (size_t i = 0; i < find->n_runs; i++) {
        for (uint32_t t = find->runs[i].first; t < find->runs[i].end; t++) {
            if (many)
                spry_bit_set(mask->bits, (uint32_t)vocabulary->order[t]);
            else
                mask->ids[mask->n_ids++] = vocabulary->order[t];
        }
    }
    mask->bytes += many ? vocabulary->n_words * sizeof *mask->bits : mask->n_ids * sizeof *mask->ids;
    return true;
}

static spry_state_mask *finish(finder *find, bool failed)
{
    spry_state_mask *mask = calloc(1, sizeof *mask);
    failed |= find->failed;
    if (mask)
        atomic_init(&mask->references, 1);
    if (mask && !failed) {
        mask->exits = sort_exits(find);
        mask->n_exits = (uint32_t)find->n_exits;
        mask->bytes = sizeof *mask + find->n_exits * sizeof *mask->exits;
        failed = !mask->exits || !store_tokens(mask, find);
    }
    free(find->path);
    free(find->runs);
    free(find->open);
    free(find->exits);
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

/* Walks a child of the root and everything below it. While nothing is skipped, the tokens passed form one run. */
static void walk(finder *find, spry_places *places, uint32_t root)
{
    const spry_trie_node *nodes = find->vocabulary->nodes;
    uint32_t end = nodes[root].skip;
    uint32_t run = nodes[root].first_token, close_at = end; /* close_at: the end of the subtree of the innermost open
                                                             * exit */
    uint32_t n_visited = 0;
    for (uint32_t i = root; i < end && !find->failed && !places->failed; n_visited++) {
        uint32_t depth = nodes[i].depth, next = spry_places_step(places, find->path[depth - 1], nodes[i].byte);
        bool may_exit = depth > 1 && places->sets[find->path[depth - 1]].may_end;
        if (i >= close_at || may_exit || next == SPRY_NO_SET) {
            take_run(find, run, nodes[i].first_token);
            run = nodes[i].first_token;
            close_exits(find, i);
            close_at = find->n_open ? nodes[find->open[find->n_open - 1].exit.node].skip : end;
        }
        spry_exit exit = {.node = i, .byte = nodes[i].byte};
        if (next == SPRY_NO_SET) {
            if (may_exit)
                add_exit(find, exit);
            i = nodes[i].skip;
            run = nodes[i].first_token;
            continue;
        }
        if (may_exit) {
            open_at(find, exit);
            close_at = nodes[i].skip;
        }
        find->path[depth] = next;
        find->longest = depth > find->longest ? depth : find->longest;
        i++;
    }
    spry_places_charge(places, n_visited / SPRY_NODES_A_WORK);
    take_run(find, run, nodes[end].first_token);
    close_exits(find, end);
}

static uint32_t start_set(spry_places *places, uint32_t state)
{
    const spry_grammar *grammar = places->grammar;
    spry_return below = {SPRY_END_STATE, 0, SPRY_NO_STACK};
    spry_position position = {state, spry_places_stack(places, &below, 1)};
    if (grammar->states[state].kind == SPRY_STATE_LIMITED) {
        const spry_machine *machine = &grammar->machines[grammar->states[state].owner];
        spry_return back = {grammar->limits[machine->limit].return_state, SPRY_UNCOUNTED, position.stack};
        position.stack = spry_places_stack(places, &back, 1);
    }
    return spry_places_set(places, &position, 1, false);
}

spry_state_mask *spry_state_mask_find(spry_places *places, spry_slice_facts *facts, const spry_vocabulary *vocabulary,
                                      uint32_t state)
{
    finder find;
    unsigned slices = 0;
    if (start(&find, vocabulary, false)) {
        uint32_t set = find.path[0] = start_set(places, state);
        slices = places->failed ? 0 : spry_slices_accepted(facts, places->grammar, state);
        for (unsigned i = slices; i < SPRY_SLICES; i++) {
            const spry_trie *trie = &vocabulary->tries[i];
            for (unsigned byte = 0; byte < 256 && !places->failed; byte++)
                if (trie->roots[byte] != SPRY_NO_NODE && spry_set_takes(&places->sets[set], (unsigned char)byte))
                    walk(&find, places, trie->roots[byte]);
        }
    }
    spry_state_mask *mask = finish(&find, places->failed != SPRY_OK);
    if (!mask)
        return NULL;
    mask->slices = slices;
    mask->longest = find.longest;
    for (unsigned i = 0; i < slices; i++)
        mask->longest = vocabulary->tries[i].longest > mask->longest ? vocabulary->tries[i].longest : mask->longest;
    return mask;
}

void spry_state_mask_add(const spry_state_mask *mask, uint32_t *bits, const spry_vocabulary *vocabulary)
{
    for (size_t i = 0; mask->slices && i < vocabulary->n_words; i++)
        bits[i] |= vocabulary->tries[mask->slices - 1].bits[i];
    for (uint32_t i = 0; !mask->bits && i < mask->n_ids; i++)
        spry_bit_set(bits, (uint32_t)mask->ids[i]);
    for (size_t i = 0; mask->bits && i < vocabulary->n_words; i++)
        bits[i] |= mask->bits[i];
}

/* ---- with rounds ------------------------------------------------------------------------------------------------- */

/* A walk over the states of a machine, which are numbered from its first state here. */
typedef struct round_walk {
    const spry_grammar *grammar;
    const spry_machine *machine;
    const uint32_t *units; /* for a limited text: units needed from each state to the end; NULL: this is the body of a
                            * counter */
    uint32_t *table;       /* [n_states][256] the target of each byte; NULL: the machine is too large for a table */
} round_walk;

static const spry_state *state_at(const round_walk *walk, uint32_t state)
{
    return &walk->grammar->states[walk->machine->index + state];
}

static uint32_t find_target(const round_walk *walk, uint32_t state, unsigned char byte)
{
    if (walk->table)
        return walk->table[(size_t)state * 256 + byte];
    const spry_state *at = state_at(walk, state);
    for (uint32_t i = at->first_edge; i < at[1].first_edge && walk->grammar->edges[i].first <= byte; i++)
        if (byte <= walk->grammar->edges[i].last)
            return walk->grammar->edges[i].target - walk->machine->index;
    return NOWHERE;
}

static bool make_table(round_walk *walk)
{
    const spry_grammar *grammar = walk->grammar;
    uint32_t n = walk->machine->n_states;
    if (n > TABLE_STATES_MAX)
        return true;
    uint32_t *table = malloc((size_t)n * 256 * sizeof *table);
    for (size_t i = 0; table && i < (size_t)n * 256; i++)
        table[i] = NOWHERE;
    for (uint32_t i = 0; table && i < n; i++) {
        const spry_state *state = state_at(walk, i);
        for (uint32_t j = state->first_edge; j < state[1].first_edge; j++)
            for (unsigned byte = grammar->edges[j].first; byte <= grammar->edges[j].last; byte++)
                table[(size_t)i * 256 + byte] = grammar->edges[j].target - walk->machine->index;
    }
    walk->table = table;
    return table != NULL;
}

static void walk_rounds(finder *find, const round_walk *walk, uint32_t state)
{
    const spry_vocabulary *vocabulary = find->vocabulary;
    const spry_trie_node *nodes = vocabulary->nodes;
    find->path[0] = state;
    for (uint32_t i = 0; i < vocabulary->n_nodes && !find->failed;) {
        close_exits(find, i);
        uint32_t depth = nodes[i].depth, from = find->path[depth - 1], next = find_target(walk, from, nodes[i].byte);
        uint16_t rounds = find->rounds[depth - 1];
        bool may_exit = depth > 1 && (walk->units ? state_at(walk, from)->tag == SPRY_TAG_COMPLETE
                                                  : rounds > find->rounds[depth - 2]);
        spry_exit exit = {.node = i, .byte = nodes[i].byte, .rounds = rounds};
        if (next == NOWHERE) {
            if (may_exit)
                add_exit(find, exit);
            i = nodes[i].skip;
            continue;
        }
        if (may_exit)
            open_at(find, exit);
        /* An accepting state of a simple counter's body ends its round. */
        bool complete = state_at(walk, next)->tag != 0;
        uint32_t needed = walk->units ? rounds + complete + walk->units[next] : rounds + 1u;
        for (uint32_t t = nodes[i].first_token; t < nodes[i + 1].first_token; t++)
            find->token_rounds[t] = (uint16_t)needed;
        take_run(find, nodes[i].first_token, nodes[i + 1].first_token);
        find->path[depth] = complete && !walk->units ? 0 : next;
        find->rounds[depth] = (uint16_t)(rounds + complete);
        i++;
    }
    close_exits(find, vocabulary->n_nodes);
}

/* The bytes with which a round may begin; in a limited text, the bytes that may follow any unit. */
static void find_starts(uint64_t starts[4], const round_walk *walk)
{
    for (uint32_t i = 0; i < walk->machine->n_states; i++) {
        const spry_state *state = state_at(walk, i);
        for (uint32_t j = state->first_edge; (i == 0 || (walk->units && state->tag)) && j < state[1].first_edge; j++)
            for (unsigned byte = walk->grammar->edges[j].first; byte <= walk->grammar->edges[j].last; byte++)
                starts[byte / 64] |= (uint64_t)1 << byte % 64;
    }
}

/* Sorts the tokens by their number of rounds. */
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
    round_walk walk = {.grammar = grammar, .machine = &grammar->machines[grammar->states[state].owner]};
    if (walk.machine->kind == SPRY_MACHINE_LIMITED)
        walk.units = grammar->limits[walk.machine->limit].ways.units;
    finder find;
    bool ok = start(&find, vocabulary, true) && make_table(&walk);
    if (ok)
        walk_rounds(&find, &walk, state - walk.machine->index);
    spry_state_mask *mask = finish(&find, !ok);
    if (mask && !sort_by_rounds(mask, &find)) {
        spry_state_mask_unref(mask);
        mask = NULL;
    }
    if (mask)
        find_starts(mask->starts, &walk);
    free(find.token_rounds);
    free(walk.table);
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
