/* Properties of the grammar nodes that are reachable from a root. */
#ifndef SPRY_GRAMMAR_IR_FACTS_H
#define SPRY_GRAMMAR_IR_FACTS_H

#include "grammar/ir/ir_nodes.h"

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
    uint32_t *size;       /* [n_nodes] approximate number of states that a node adds where it is used */
    uint32_t *uses;       /* [n_nodes] */
} spry_ir_facts;

/* Fails for undefined rules. */
spry_status spry_ir_facts_init(spry_ir_facts *facts, const spry_ir *ir, spry_ir_node root, spry_error *error);
void spry_ir_facts_deinit(spry_ir_facts *facts);

/* Follows rules that consist of one reference. */
spry_ir_node spry_ir_resolve(const spry_ir *ir, spry_ir_node node);

#endif
