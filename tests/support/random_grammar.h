/* Small random grammars over the letters "abc:,", kept as plain nodes too. Include cmocka before. */
#ifndef SPRY_TESTS_RANDOM_GRAMMAR_H
#define SPRY_TESTS_RANDOM_GRAMMAR_H

#include <stdio.h>
#include <string.h>

#include "grammar/grammar.h"
#include "grammar/ir/ir_nodes.h"

enum { NODES_MAX = 400, RULES = 3, TEXT_MAX = 8, MEMBERS = 3 };

typedef enum node_kind {
    EMPTY,
    NEVER,
    LITERAL,
    CLASS,
    SEQUENCE,
    CHOICE,
    REPEAT,
    RULE,
    OBJECT,
    BOTH,
    WITHOUT
} node_kind;

typedef struct node {
    node_kind kind;
    int a, b;          /* children, or a rule */
    unsigned min, max; /* repeats and objects */
    char text[4];      /* of literals; of classes the first and last letter */
    int keys[MEMBERS], values[MEMBERS];
    bool required[MEMBERS], many[MEMBERS];
    bool regular;
    spry_ir_node made;
} node;

typedef struct world {
    node nodes[NODES_MAX];
    int n_nodes, rules[RULES];
    const char *text;
    size_t size;
    uint32_t memo[RULES][TEXT_MAX + 1];
    bool known[RULES][TEXT_MAX + 1];
} world;

static uint64_t seed;

static unsigned any(unsigned below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(seed >> 33) % below;
}

static const char *const rule_names[RULES] = {"root", "one", "two"};

static int add(world *w, node n)
{
    assert_true(w->n_nodes < NODES_MAX);
    w->nodes[w->n_nodes] = n;
    return w->n_nodes++;
}

static int random_node(world *w, spry_ir *ir, int depth, bool regular);

static int random_leaf(world *w, spry_ir *ir, bool regular)
{
    node n = {.regular = true};
    unsigned pick = any(regular ? 6 : 9);
    if (pick == 0) {
        n.kind = EMPTY;
        n.made = spry_ir_empty(ir);
    } else if (pick == 1 && any(6) == 0) {
        n.kind = NEVER;
        n.made = spry_ir_never(ir);
    } else if (pick < 4) {
        n.kind = LITERAL;
        size_t size = 1 + any(2);
        for (size_t i = 0; i < size; i++)
            n.text[i] = (char)('a' + any(3));
        n.made = spry_ir_literal(ir, spry_view_of(n.text));
    } else if (pick < 6) {
        n.kind = CLASS;
        n.text[0] = (char)('a' + any(2));
        n.text[1] = (char)(n.text[0] + (int)any(2));
        spry_code_range range = {(uint32_t)n.text[0], (uint32_t)n.text[1]};
        if (any(3) == 0) { /* a large class: repetitions of it are counted */
            n.text[1] = 0x7F;
            range.last = 0x3000;
        }
        n.made = spry_ir_class(ir, &range, 1, false);
    } else {
        n.kind = RULE;
        n.a = (int)any(RULES);
        n.regular = false;
        n.made = spry_ir_rule(ir, spry_view_of(rule_names[n.a]));
    }
    return add(w, n);
}

static int random_object(world *w, spry_ir *ir, int depth)
{
    static const char *const keys[MEMBERS] = {"a", "ab", "c"};
    node n = {.kind = OBJECT, .min = any(3), .max = any(2) ? SPRY_IR_UNBOUNDED : 1 + any(3)};
    spry_ir_member members[MEMBERS];
    if (n.max < n.min)
        n.max = n.min;
    bool swap = any(2);
    for (int i = 0; i < MEMBERS; i++) {
        const char *key = keys[i];
        n.many[i] = i == 2 && swap;
        n.required[i] = !n.many[i] && any(3) == 0;
        node k = {.kind = LITERAL};
        snprintf(k.text, sizeof k.text, "%s:", key);
        k.made = spry_ir_literal(ir, spry_view_of(k.text));
        n.keys[i] = add(w, k);
        n.values[i] = random_node(w, ir, depth - 1, false);
        members[i] = (spry_ir_member){k.made, w->nodes[n.values[i]].made, n.required[i], n.many[i]};
    }
    n.made = spry_ir_members(ir, members, MEMBERS, spry_ir_literal(ir, SPRY_VIEW(",")), n.min, n.max);
    return add(w, n);
}

/* A regular text of some letters, or of pairs of letters, which are counted. */
static int random_limited(world *w, spry_ir *ir, int depth)
{
    node letter = {.kind = CLASS, .text = {'a', 0x7F}}, c = {.kind = LITERAL, .text = "c"}, unit, n = {.kind = BOTH};
    letter.made = spry_ir_class(ir, &(spry_code_range){'a', 0x3000}, 1, false);
    unit = letter;
    if (any(2)) { /* a, b, or c and a letter */
        node first = {.kind = CLASS, .text = "ab"}, pair = {.kind = SEQUENCE};
        first.made = spry_ir_class(ir, &(spry_code_range){'a', 'b'}, 1, false);
        c.made = spry_ir_literal(ir, SPRY_VIEW("c"));
        pair.a = add(w, c);
        pair.b = add(w, letter);
        pair.made = spry_ir_sequence(ir, (spry_ir_node[]){c.made, letter.made}, 2);
        unit = (node){.kind = CHOICE, .a = add(w, first), .b = add(w, pair)};
        unit.made = spry_ir_choice(ir, (spry_ir_node[]){first.made, pair.made}, 2);
    }
    node count = {.kind = REPEAT, .min = any(4), .a = add(w, unit)};
    count.max = any(4) ? count.min + any(4) : SPRY_IR_UNBOUNDED;
    n.a = random_node(w, ir, depth, true);
    n.b = add(w, count);
    n.made = count.min == 0 && count.max == SPRY_IR_UNBOUNDED
                 ? spry_ir_intersect(ir, w->nodes[n.a].made, spry_ir_repeat(ir, unit.made, 0, SPRY_IR_UNBOUNDED))
                 : spry_ir_counted(ir, w->nodes[n.a].made, unit.made, count.min, count.max);
    return add(w, n);
}

static int random_node(world *w, spry_ir *ir, int depth, bool regular)
{
    if (!regular && any(8) == 0)
        return random_limited(w, ir, depth);
    if (depth <= 0 || any(5) == 0)
        return random_leaf(w, ir, regular);
    node n = {0};
    unsigned pick = any(12);
    if (pick == 0 && !regular && depth > 1)
        return random_object(w, ir, depth - 1);
    bool inner = regular || pick == 1 || pick == 2;
    n.a = random_node(w, ir, depth - 1, inner);
    spry_ir_node a = w->nodes[n.a].made;
    if (pick >= 9) {
        n.kind = REPEAT;
        n.min = any(3);
        n.max = any(3) ? n.min + any(6) : SPRY_IR_UNBOUNDED;
        n.made = spry_ir_repeat(ir, a, n.min, n.max);
        if (n.max == 0)
            n.kind = EMPTY;
        return add(w, n);
    }
    n.b = random_node(w, ir, depth - 1, inner);
    spry_ir_node pair[] = {a, w->nodes[n.b].made};
    if (pick == 1) {
        n.kind = BOTH;
        n.made = spry_ir_intersect(ir, pair[0], pair[1]);
    } else if (pick == 2) {
        n.kind = WITHOUT;
        n.made = spry_ir_subtract(ir, pair[0], pair[1]);
    } else if (pick < 6) {
        n.kind = CHOICE;
        n.made = spry_ir_choice(ir, pair, 2);
    } else {
        n.kind = SEQUENCE;
        n.made = spry_ir_sequence(ir, pair, 2);
    }
    return add(w, n);
}

/* Fails, with the grammar's own sentence, where rules are left recursive or nothing matches. */
static spry_status random_grammar(world *w, spry_grammar **grammar, spry_error *error)
{
    spry_ir *ir;
    w->n_nodes = 0;
    assert_int_equal(spry_ir_create(&ir, error), SPRY_OK);
    for (int i = 0; i < RULES; i++) {
        w->rules[i] = random_node(w, ir, 3 + (int)any(2), false);
        spry_ir_define(ir, spry_view_of(rule_names[i]), w->nodes[w->rules[i]].made);
    }
    assert_int_equal(spry_ir_status(ir, error), SPRY_OK);
    spry_status status = spry_grammar_from_ir(grammar, ir, spry_ir_rule(ir, SPRY_VIEW("root")), error);
    spry_ir_destroy(ir);
    return status;
}

/* The seed after the one that a grammar was made with, however many numbers were drawn since. */
static void next_seed(uint64_t last)
{
    seed = last + 1;
    any(2);
}

#endif
