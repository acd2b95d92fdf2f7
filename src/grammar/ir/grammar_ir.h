/* The intermediate representation of grammars. GBNF, regular expressions, JSON schemas and choice lists become these
 * nodes, then one automaton (grammar.h). Nodes are immutable numbers; a node may be used in many places.
 *
 * After its first failure (memory, size limits, or an error reported by a caller) a builder stays failed: a series of
 * calls needs one check at its end, spry_ir_status. Failed calls return SPRY_IR_NONE, which every call accepts. */
#ifndef SPRY_GRAMMAR_IR_GRAMMAR_IR_H
#define SPRY_GRAMMAR_IR_GRAMMAR_IR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/view.h"
#include "spry.h"

typedef struct spry_ir spry_ir;
typedef uint32_t spry_ir_node;

#define SPRY_IR_NONE      UINT32_MAX /* no node: the builder has failed */
#define SPRY_IR_UNBOUNDED UINT32_MAX /* the maximum of a repetition without end */

typedef struct spry_code_range {
    uint32_t first, last; /* inclusive code points */
} spry_code_range;

spry_status spry_ir_create(spry_ir **out, spry_error *error);
void spry_ir_destroy(spry_ir *ir);

/* The first failure, or SPRY_OK. */
spry_status spry_ir_status(const spry_ir *ir, spry_error *error);
/* Makes the builder fail with a message, unless it has failed before; returns SPRY_IR_NONE. */
spry_ir_node spry_ir_fail(spry_ir *ir, spry_status status, const char *format, ...) SPRY_PRINTF(3, 4);

/* Counts work, in units of SPRY_AUTOMATON_WORK_MAX; the builder fails when there was too much. */
void spry_ir_spend(spry_ir *ir, uint64_t work);

/* Adds a sentence to the warnings of the grammar, unless they contain it or there are too many. */
void spry_ir_warn(spry_ir *ir, const char *sentence);

spry_ir_node spry_ir_empty(spry_ir *ir);                    /* matches only the empty text */
spry_ir_node spry_ir_never(spry_ir *ir);                    /* matches no text */
spry_ir_node spry_ir_literal(spry_ir *ir, spry_view bytes); /* these bytes */
/* One character (as UTF-8) in, or with `negated` not in, the ranges (any order, may overlap). Surrogates never
 * match. */
spry_ir_node spry_ir_class(spry_ir *ir, const spry_code_range *ranges, size_t count, bool negated);
spry_ir_node spry_ir_sequence(spry_ir *ir, const spry_ir_node *nodes, size_t count);
spry_ir_node spry_ir_choice(spry_ir *ir, const spry_ir_node *nodes, size_t count);
spry_ir_node spry_ir_repeat(spry_ir *ir, spry_ir_node node, uint32_t min, uint32_t max);

/* The texts that both `a` and `b` match; with `subtract`, the texts that `a` matches and `b` does not. Both nodes must
 * be regular (no recursive rule, no members); otherwise it fails with SPRY_ERR_UNSUPPORTED. */
spry_ir_node spry_ir_intersect(spry_ir *ir, spry_ir_node a, spry_ir_node b);
spry_ir_node spry_ir_subtract(spry_ir *ir, spry_ir_node a, spry_ir_node b);
/* The texts of a regular node that consist of `min` to `max` texts of `unit`, such as characters. No text of `unit` may
 * be the beginning of another one. Where the product of texts and counts is large, the matcher counts units; such a
 * node is not regular. Fails with SPRY_ERR_UNSUPPORTED where even that is too large. */
spry_ir_node spry_ir_limited(spry_ir *ir, spry_ir_node text, spry_ir_node unit, uint32_t min, uint32_t max);
/* True if a regular node matches no text; false for nodes that are not regular. */
bool spry_ir_is_never(spry_ir *ir, spry_ir_node node);

/* A reference to a rule by name, defined earlier or later; undefined rules fail when the grammar is compiled. */
spry_ir_node spry_ir_rule(spry_ir *ir, spry_view name);
void spry_ir_define(spry_ir *ir, spry_view name, spry_ir_node node);
bool spry_ir_is_defined(const spry_ir *ir, spry_view name);

/* The members of an object, in any order, each declared key at most once: the text between "{" and "}". A member is a
 * key followed by a value; members are separated by `comma`. The node matches when every required key is present and
 * the number of members is in [min, max]. Keys must be regular, and no two keys may match the same text. */
typedef struct spry_ir_member {
    spry_ir_node key;   /* from the opening quote to the colon, with the surrounding whitespace */
    spry_ir_node value; /* the value and the whitespace after it */
    bool required;
    bool many; /* may occur any number of times: additional and pattern properties */
} spry_ir_member;

enum { SPRY_IR_MEMBERS_MAX = 4096 };

spry_ir_node spry_ir_members(spry_ir *ir, const spry_ir_member *members, size_t count, spry_ir_node comma, uint32_t min,
                             uint32_t max);

/* The members in the order of the list; members with `many` come last. */
spry_ir_node spry_ir_members_ordered(spry_ir *ir, const spry_ir_member *members, size_t count, spry_ir_node comma,
                                     uint32_t min, uint32_t max);

/* ---- front ends -------------------------------------------------------------------------------------------------- */

/* A regular expression for the whole text (anchored at both ends) or, with `search`, for any part of it. The dialect is
 * in docs/GRAMMARS.md; constructs that cannot be enforced (back references) fail with their position. */
spry_ir_node spry_ir_regex(spry_ir *ir, spry_view pattern, bool search);

/* GBNF as documented by llama.cpp; defines its rules and returns a reference to "root". */
spry_ir_node spry_ir_gbnf(spry_ir *ir, spry_view text);

/* A grammar in Lark's notation; returns a reference to "start". `in_json`: the inside of JSON strings whose texts it
 * matches. What cannot be enforced fails with SPRY_ERR_UNSUPPORTED. */
spry_ir_node spry_ir_lark(spry_ir *ir, spry_view text, bool in_json);

/* A JSON schema: the texts that are valid against it and written in a style. Keywords that cannot be enforced fail with
 * their path in the schema. */
spry_ir_node spry_ir_json_schema(spry_ir *ir, spry_view schema, spry_json_style style);

/* Any JSON object. */
spry_ir_node spry_ir_json_object(spry_ir *ir, spry_json_style style);

/* Answers with tool calls, in the syntax of a model's style (tool_grammar.c). `source` is a JSON object with "style",
 * "tools" (functions), "required" and "parallel". For models that think: "thought_open", "thought_close", and
 * "in_thought" if the prompt has begun a thought. */
spry_ir_node spry_ir_tool_calls(spry_ir *ir, spry_view source);

/* Sets of code points and their UTF-8 spellings. */

enum { SPRY_CODE_LAST = 0x10FFFF };

/* Sorts and merges the ranges in place and removes values above U+10FFFF. Returns the number of ranges left. */
size_t spry_code_ranges_normalize(spry_code_range *ranges, size_t count);

/* Writes the complement of a normalised set, at most count + 1 ranges, to `out`. Returns their number. */
size_t spry_code_ranges_invert(spry_code_range *out, const spry_code_range *ranges, size_t count);

/* A run of code points whose spellings are all combinations of one byte from each range. */
typedef struct spry_utf8_product {
    unsigned size;
    unsigned char first[4], last[4];
} spry_utf8_product;

enum { SPRY_UTF8_PRODUCTS_MAX = 24 }; /* maximum for one range */

/* The byte ranges that spell a range of code points without surrogates, ascending. Returns their number. */
size_t spry_utf8_products(spry_utf8_product out[SPRY_UTF8_PRODUCTS_MAX], spry_code_range range);

/* Nested alternatives of sequences, built by the parsers of GBNF and regular expressions. Nesting uses no C stack. */

typedef struct spry_ir_group {
    size_t first_item, first_alternative;
} spry_ir_group;

typedef struct spry_ir_groups {
    spry_ir *ir;
    spry_ir_node *items;        /* items of the open sequences, the innermost last */
    spry_ir_node *alternatives; /* the complete alternatives of the open groups */
    spry_ir_group *open;
    size_t n_items, n_alternatives, n_open, items_room, alternatives_room, open_room;
} spry_ir_groups;

/* All functions report failures to the builder. */
void spry_ir_groups_init(spry_ir_groups *groups, spry_ir *ir);
void spry_ir_groups_deinit(spry_ir_groups *groups);
void spry_ir_groups_open(spry_ir_groups *groups);
void spry_ir_groups_item(spry_ir_groups *groups, spry_ir_node node);
void spry_ir_groups_alternative(spry_ir_groups *groups); /* "|" */
spry_ir_node spry_ir_groups_close(spry_ir_groups *groups);

/* The last item of the innermost sequence, for a repetition; NULL when there is none. */
spry_ir_node *spry_ir_groups_last(spry_ir_groups *groups);

#endif
