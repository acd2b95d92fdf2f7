/* Facts about nodes, such as "matches the empty text". They propagate from the leaves to the root along each node's
 * list of users, in time linear in the size of the grammar. Recursion is found by Tarjan's algorithm. Neither uses the
 * C stack. */
#include "grammar/ir/ir_nodes.h"

#include "grammar/ir/grow.h"

enum {
    INLINE_SIZE_MAX = 512,  /* a larger rule is called, not copied */
    EXPAND_SIZE_MAX = 4096, /* a larger repetition is counted at run time */
    WIDE_CLASS = 1000,      /* a class with this many code points is wide */
    WIDE_COPIES = 4,        /* a wide class is copied fewer times than this */
};

/* One analysis of a grammar. Nodes are listed in `order` so that, recursion aside, children come before their users. */
typedef struct analysis {
    const spry_ir *ir;
    spry_ir_facts *facts;
    uint32_t *order;
    size_t n_order;
    uint32_t *first_user, *users; /* users of each child node */
    uint32_t *waiting;            /* [n_nodes] number of children of a sequence that lack the current fact */
    uint32_t *queue;
    size_t n_queue;
} analysis;

/* The child of a node at `index`; SPRY_IR_NONE after the last. */
static spry_ir_node child_of(const spry_ir *ir, spry_ir_node node, size_t index)
{
    const spry_ir_entry *entry = &ir->nodes[node];
    switch (entry->kind) {
    case SPRY_IR_SEQUENCE:
    case SPRY_IR_CHOICE: return index < entry->b ? ir->children[entry->a + index] : SPRY_IR_NONE;
    case SPRY_IR_REPEAT: return index == 0 ? entry->a : SPRY_IR_NONE;
    case SPRY_IR_RULE: return index == 0 ? ir->rules[entry->a].node : SPRY_IR_NONE;
    case SPRY_IR_MEMBERS: {
        const spry_ir_object *object = &ir->objects[entry->a];
        if (index == 0)
            return object->comma;
        if (index > 2 * (size_t)object->count)
            return SPRY_IR_NONE;
        const spry_ir_member *member = &ir->members[object->first + (index - 1) / 2];
        return index % 2 ? member->key : member->value;
    }
    default: return SPRY_IR_NONE;
    }
}

spry_ir_node spry_ir_resolve(const spry_ir *ir, spry_ir_node node)
{
    for (size_t i = 0; i <= ir->n_rules && ir->nodes[node].kind == SPRY_IR_RULE; i++)
        node = ir->rules[ir->nodes[node].a].node;
    return node;
}

/* ---- order and recursion ----------------------------------------------------------------------------------------- */

typedef struct visit {
    uint32_t node, child;
} visit;

typedef struct walk {
    visit *path;
    size_t depth;
    uint32_t *open; /* nodes whose component is not complete */
    size_t n_open;
    uint32_t *index, *low; /* [n_nodes] index 0: not visited */
    bool *is_open;
    uint32_t next;
} walk;

static void enter(analysis *a, walk *at, uint32_t node)
{
    at->index[node] = at->low[node] = ++at->next;
    at->is_open[node] = true;
    at->open[at->n_open++] = node;
    at->path[at->depth++] = (visit){node, 0};
    a->facts->flags[node] |= SPRY_FACT_REACHED;
}

static void leave(analysis *a, walk *at, uint32_t node)
{
    if (at->depth) {
        uint32_t user = at->path[at->depth - 1].node;
        if (at->low[node] < at->low[user])
            at->low[user] = at->low[node];
    }
    if (at->low[node] != at->index[node])
        return;
    bool alone = at->open[at->n_open - 1] == node;
    uint32_t member;
    do {
        member = at->open[--at->n_open];
        at->is_open[member] = false;
        a->order[a->n_order++] = member;
        if (!alone)
            a->facts->flags[member] |= SPRY_FACT_RECURSIVE;
    } while (member != node);
}

/* Lists children before users and marks recursive components. False when a rule is undefined (*missing is its node). */
static bool find_order(analysis *a, walk *at, spry_ir_node root, uint32_t *missing)
{
    enter(a, at, root);
    while (at->depth) {
        visit *top = &at->path[at->depth - 1];
        uint32_t node = top->node, child = child_of(a->ir, node, top->child++);
        if (child == SPRY_IR_NONE) {
            if (a->ir->nodes[node].kind == SPRY_IR_RULE && top->child == 1) {
                *missing = node;
                return false;
            }
            at->depth--;
            leave(a, at, node);
            continue;
        }
        a->facts->uses[child]++;
        if (child == node)
            a->facts->flags[node] |= SPRY_FACT_RECURSIVE;
        if (!at->index[child])
            enter(a, at, child);
        else if (at->is_open[child] && at->index[child] < at->low[node])
            at->low[node] = at->index[child];
    }
    return true;
}

static spry_status order_nodes(analysis *a, spry_ir_node root, spry_error *error)
{
    size_t n = a->ir->n_nodes;
    walk at = {0};
    at.path = malloc(n * sizeof *at.path);
    at.open = malloc(n * sizeof *at.open);
    at.index = calloc(n, sizeof *at.index);
    at.low = calloc(n, sizeof *at.low);
    at.is_open = calloc(n, sizeof *at.is_open);
    spry_status status = SPRY_OK;
    uint32_t missing;
    if (!at.path || !at.open || !at.index || !at.low || !at.is_open)
        status = spry_fail_memory(error, "a grammar", n * 20);
    else if (!find_order(a, &at, root, &missing))
        status = spry_fail(error, SPRY_ERR_INPUT, "the rule '%.*s' is used but not defined",
                           SPRY_VIEW_ARG(a->ir->rules[a->ir->nodes[missing].a].name));
    free(at.path);
    free(at.open);
    free(at.index);
    free(at.low);
    free(at.is_open);
    return status;
}

static bool list_users(analysis *a)
{
    size_t n = a->ir->n_nodes, total = 0;
    a->first_user = calloc(n + 2, sizeof *a->first_user);
    if (!a->first_user)
        return false;
    for (size_t i = 0; i < n; i++) {
        a->first_user[i + 1] = (uint32_t)total;
        total += a->facts->uses[i];
    }
    a->first_user[n + 1] = (uint32_t)total;
    a->users = malloc((total + 1) * sizeof *a->users);
    if (!a->users)
        return false;
    for (size_t i = 0; i < a->n_order; i++) {
        uint32_t user = a->order[i], child;
        for (size_t j = 0; (child = child_of(a->ir, user, j)) != SPRY_IR_NONE; j++)
            a->users[a->first_user[child + 1]++] = user;
    }
    return true;
}

/* ---- what a node can match --------------------------------------------------------------------------------------- */

/* True if the members that have the fact are enough to complete the object. */
static bool object_has(const analysis *a, const spry_ir_object *object, unsigned fact)
{
    const unsigned char *flags = a->facts->flags;
    size_t possible = 0, required = 0;
    bool endless = false;
    for (uint32_t i = 0; i < object->count; i++) {
        const spry_ir_member *member = &a->ir->members[object->first + i];
        bool can = (flags[member->key] & fact) && (flags[member->value] & fact);
        if (member->required && !can)
            return false;
        required += member->required;
        possible += can;
        endless |= can && member->many;
    }
    if (!(flags[object->comma] & fact)) {
        endless = false;
        possible = possible > 1 ? 1 : possible;
    }
    size_t needed = required > object->min ? required : object->min;
    return needed <= object->max && (needed <= possible || (endless && required <= possible));
}

/* True if a node has the fact, whatever its children are. */
static bool has_alone(const analysis *a, uint32_t node, unsigned fact)
{
    const spry_ir *ir = a->ir;
    const spry_ir_entry *entry = &ir->nodes[node];
    bool productive = fact == SPRY_FACT_PRODUCTIVE;
    switch (entry->kind) {
    case SPRY_IR_EMPTY: return true;
    case SPRY_IR_LITERAL:
    case SPRY_IR_CLASS: return productive;
    case SPRY_IR_REPEAT: return entry->b == 0;
    case SPRY_IR_AUTOMATON: return productive || ir->automata[entry->a].tags[0];
    case SPRY_IR_LIMITED: return productive || (entry->b == 0 && ir->automata[entry->a].tags[0] == 2);
    case SPRY_IR_MEMBERS:
        if (productive)
            return object_has(a, &ir->objects[entry->a], fact);
        for (uint32_t i = 0; i < ir->objects[entry->a].count; i++)
            if (ir->members[ir->objects[entry->a].first + i].required)
                return false;
        return ir->objects[entry->a].min == 0;
    default: return false;
    }
}

/* True if a user has the fact, now that one more of its children has it. */
static bool gains(analysis *a, uint32_t user, unsigned fact)
{
    const spry_ir_entry *entry = &a->ir->nodes[user];
    switch (entry->kind) {
    case SPRY_IR_SEQUENCE: return --a->waiting[user] == 0;
    case SPRY_IR_MEMBERS: return fact == SPRY_FACT_PRODUCTIVE && has_alone(a, user, fact);
    default: return true;
    }
}

static void add_fact(analysis *a, uint32_t node, unsigned fact)
{
    if (a->facts->flags[node] & fact)
        return;
    a->facts->flags[node] |= (unsigned char)fact;
    a->queue[a->n_queue++] = node;
}

static void spread(analysis *a, unsigned fact)
{
    a->n_queue = 0;
    for (size_t i = 0; i < a->n_order; i++) {
        uint32_t node = a->order[i];
        if (a->ir->nodes[node].kind == SPRY_IR_SEQUENCE)
            a->waiting[node] = a->ir->nodes[node].b;
        if (has_alone(a, node, fact))
            add_fact(a, node, fact);
    }
    for (size_t i = 0; i < a->n_queue; i++) {
        uint32_t node = a->queue[i];
        for (uint32_t j = a->first_user[node]; j < a->first_user[node + 1]; j++)
            if (gains(a, a->users[j], fact))
                add_fact(a, a->users[j], fact);
    }
}

/* ---- sizes, and which nodes are called --------------------------------------------------------------------------- */

static uint32_t add_sizes(uint32_t a, uint32_t b)
{
    return a > UINT32_MAX - b ? UINT32_MAX : a + b;
}

static uint32_t times(uint32_t size, uint32_t count)
{
    uint64_t product = (uint64_t)size * count;
    return product > UINT32_MAX ? UINT32_MAX : (uint32_t)product;
}

static uint32_t class_size(const analysis *a, const spry_ir_entry *entry, bool *wide)
{
    uint32_t size = 1, points = 0;
    for (uint32_t i = 0; i < entry->b; i++) {
        const spry_code_range *range = &a->ir->ranges[entry->a + i];
        points += range->last - range->first + 1;
        size += range->last > 0x7F ? 3 : 0;
    }
    *wide = points >= WIDE_CLASS;
    return size;
}

/* True if a repetition is counted while matching and not unrolled. Each state of an unrolled repetition has its own
 * mask, which is expensive to compute where many characters are allowed. */
static bool counts_at_run_time(const spry_ir_entry *entry, uint32_t body, bool wide)
{
    uint32_t copies = entry->c == SPRY_IR_UNBOUNDED ? entry->b : entry->c;
    return copies > 1 && (times(body, copies) > EXPAND_SIZE_MAX || (wide && copies >= WIDE_COPIES));
}

static void measure(analysis *a, uint32_t node)
{
    const spry_ir_entry *entry = &a->ir->nodes[node];
    spry_ir_facts *facts = a->facts;
    uint32_t size = 1, child, copies;
    bool wide = false, loops = false;
    switch (entry->kind) {
    case SPRY_IR_LITERAL: size = entry->b; break;
    case SPRY_IR_CLASS: size = class_size(a, entry, &wide); break;
    case SPRY_IR_AUTOMATON: size = a->ir->automata[entry->a].n_states; break;
    case SPRY_IR_LIMITED:
    case SPRY_IR_MEMBERS: facts->flags[node] |= SPRY_FACT_CALLED; break;
    default:
        for (size_t i = 0; (child = child_of(a->ir, node, i)) != SPRY_IR_NONE; i++) {
            size = add_sizes(size, facts->size[child]);
            wide |= (facts->flags[child] & SPRY_FACT_WIDE) != 0;
            loops |= (facts->flags[child] & SPRY_FACT_LOOPS) != 0;
        }
    }
    bool repeats = entry->kind == SPRY_IR_REPEAT && facts->flags[entry->a] & SPRY_FACT_PRODUCTIVE;
    if (repeats && counts_at_run_time(entry, size, wide)) {
        facts->flags[node] |= SPRY_FACT_CALLED;
    } else if (repeats) {
        copies = entry->c == SPRY_IR_UNBOUNDED ? entry->b : entry->c;
        size = times(size, copies ? copies : 1);
    }
    loops |= repeats && wide && entry->c == SPRY_IR_UNBOUNDED;
    bool rule = entry->kind == SPRY_IR_RULE, recursive = (facts->flags[node] & SPRY_FACT_RECURSIVE) != 0;
    /* Loops over many characters become shared machines, so that their masks are computed once. */
    bool shared_loop = loops && facts->uses[node] > 1 && (rule || entry->kind == SPRY_IR_SEQUENCE);
    if (shared_loop || (rule && (recursive || size > INLINE_SIZE_MAX)))
        facts->flags[node] |= SPRY_FACT_CALLED;
    facts->flags[node] |= (wide ? SPRY_FACT_WIDE : 0) | (loops ? SPRY_FACT_LOOPS : 0);
    facts->size[node] = facts->flags[node] & SPRY_FACT_CALLED ? 1 : size;
}

/* ---- all facts --------------------------------------------------------------------------------------------------- */

void spry_ir_facts_deinit(spry_ir_facts *facts)
{
    free(facts->flags);
    free(facts->size);
    free(facts->uses);
    *facts = (spry_ir_facts){0};
}

spry_status spry_ir_facts_init(spry_ir_facts *facts, const spry_ir *ir, spry_ir_node root, spry_error *error)
{
    size_t n = ir->n_nodes;
    analysis a = {.ir = ir, .facts = facts};
    *facts = (spry_ir_facts){calloc(n, 1), calloc(n, sizeof *facts->size), calloc(n, sizeof *facts->uses)};
    a.order = malloc(n * sizeof *a.order);
    a.waiting = malloc(n * sizeof *a.waiting);
    a.queue = malloc(n * sizeof *a.queue);
    spry_status status = SPRY_OK;
    if (!facts->flags || !facts->size || !facts->uses || !a.order || !a.waiting || !a.queue)
        status = spry_fail_memory(error, "a grammar", n * 24);
    if (!status)
        status = order_nodes(&a, root, error);
    if (!status && !list_users(&a))
        status = spry_fail_memory(error, "a grammar", n * 8);
    if (!status) {
        spread(&a, SPRY_FACT_PRODUCTIVE);
        spread(&a, SPRY_FACT_NULLABLE);
        for (size_t i = 0; i < a.n_order; i++)
            measure(&a, a.order[i]);
    }
    free(a.order);
    free(a.waiting);
    free(a.queue);
    free(a.first_user);
    free(a.users);
    if (status)
        spry_ir_facts_deinit(facts);
    return status;
}
