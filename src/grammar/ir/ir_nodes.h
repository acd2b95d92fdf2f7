/* Internals of the builder of grammar_ir.h: nodes are stored in arrays, and equal nodes once.
 *
 * A node's children have smaller numbers than the node; only references to rules point forward. So properties that do
 * not depend on rules are known when the node is created. */
#ifndef SPRY_GRAMMAR_IR_IR_NODES_H
#define SPRY_GRAMMAR_IR_IR_NODES_H

#include "base/buffer.h"
#include "base/map.h"
#include "grammar/automaton/automaton.h"
#include "grammar/ir/grammar_ir.h"

typedef enum spry_ir_kind {
    SPRY_IR_EMPTY,
    SPRY_IR_NEVER,
    SPRY_IR_LITERAL,   /* bytes [a, a + b) */
    SPRY_IR_CLASS,     /* ranges [a, a + b), normalised */
    SPRY_IR_SEQUENCE,  /* children [a, a + b) */
    SPRY_IR_CHOICE,    /* children [a, a + b) */
    SPRY_IR_REPEAT,    /* node a, b to c times */
    SPRY_IR_RULE,      /* rule a */
    SPRY_IR_MEMBERS,   /* object a */
    SPRY_IR_AUTOMATON, /* automaton a */
    SPRY_IR_LIMITED,   /* automaton a (tag 1 after a unit, 2 where the text is complete, too), b to c units */
} spry_ir_kind;

typedef struct spry_ir_entry {
    uint32_t kind, a, b, c;
} spry_ir_entry;

typedef struct spry_ir_rule_entry {
    spry_view name;
    spry_ir_node node; /* SPRY_IR_NONE: not defined yet */
} spry_ir_rule_entry;

typedef struct spry_ir_object {
    uint32_t first, count; /* indices into `members` */
    spry_ir_node comma;
    uint32_t min, max;
    bool ordered;
} spry_ir_object;

struct spry_ir {
    spry_error error; /* status SPRY_OK: not failed */
    spry_arena arena;
    spry_ir_entry *nodes;
    char *bytes;
    spry_code_range *ranges;
    spry_ir_node *children;
    spry_ir_object *objects;
    spry_ir_member *members;
    spry_automaton *automata;
    spry_ir_rule_entry *rules;
    size_t n_nodes, n_bytes, n_ranges, n_children, n_objects, n_members, n_automata, n_rules;
    size_t nodes_room, bytes_room, ranges_room, children_room, objects_room, members_room, automata_room, rules_room;
    spry_map rule_names;
    spry_buffer warnings;  /* one per line */
    spry_map made;         /* results of operations on one or two nodes (spry_ir_making in ir_automaton.h) */
    uint64_t work, *spent; /* spent: points to `work`, in units of SPRY_AUTOMATON_WORK_MAX */
    uint32_t *interned;    /* [interned_size], a power of two: a hash table of node + 1, 0: free */
    size_t interned_size;
};

/* Adds a node or finds an equal one. Its payload, if any, is the last item added to its array; it is removed again when
 * an equal node exists. */
spry_ir_node spry_ir_add(spry_ir *ir, spry_ir_entry entry);

#define SPRY_IR_TOO_MUCH_WORK "the grammar takes too much work to compile; make it simpler"

/* Takes ownership of an automaton without calls. */
spry_ir_node spry_ir_take_automaton(spry_ir *ir, spry_automaton *automaton);

/* As spry_ir_limited, but the matcher always counts the units. */
spry_ir_node spry_ir_counted(spry_ir *ir, spry_ir_node text, spry_ir_node unit, uint32_t min, uint32_t max);

/* Marks: bytes that do not occur in texts, used while a pattern is built. The last two are "^" and "$". */
enum { SPRY_IR_MARKS = 0xF5, SPRY_IR_BEGIN = 0xFE, SPRY_IR_END = 0xFF };

/* The texts of a regular node without marks, where all begin marks come first and all end marks last; other texts are
 * dropped. */
spry_ir_node spry_ir_anchored(spry_ir *ir, spry_ir_node node);
/* The texts of a regular node, with any marks anywhere inside them. */
spry_ir_node spry_ir_marked(spry_ir *ir, spry_ir_node node);

/* Properties of the grammar nodes that are reachable from a root. */

enum {
    SPRY_FACT_REACHED = 1,
    SPRY_FACT_PRODUCTIVE = 2, /* matches some text */
    SPRY_FACT_NULLABLE = 4,   /* matches the empty text */
    SPRY_FACT_RECURSIVE = 8,  /* reaches itself */
    SPRY_FACT_WIDE = 16,      /* contains a large character class */
    SPRY_FACT_CALLED = 32,    /* becomes a separate automaton, called where it is used */
    SPRY_FACT_LOOPS = 64,     /* repeats a large character class without end */
};

typedef struct spry_ir_facts {
    unsigned char *flags; /* [n_nodes] */
    uint32_t *size;       /* [n_nodes] approximate number of states that a use of the node adds */
    uint32_t *uses;       /* [n_nodes] number of uses */
} spry_ir_facts;

/* Fails for undefined rules. */
spry_status spry_ir_facts_init(spry_ir_facts *facts, const spry_ir *ir, spry_ir_node root, spry_error *error);
void spry_ir_facts_deinit(spry_ir_facts *facts);

/* Follows rules that consist of a reference to another rule only. */
spry_ir_node spry_ir_resolve(const spry_ir *ir, spry_ir_node node);

#endif
