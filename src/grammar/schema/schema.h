/* Internals of JSON schemas. docs/GRAMMARS.md defines their meaning here; this is the conversion to a grammar:
 *
 *  1. The document is parsed and indexed (schema_document.c): every subschema is a *place*; $id, anchors and references
 *     are resolved between places.
 *  2. A *claim* states that a value is valid against the schema of a place (or equal to the JSON value there), or that
 *     it is not. A claim is expanded (schema_expand.c) into *shapes*, alternatives of one type each: a number within
 *     bounds, a string with a pattern, an object with these parts. Negation is pushed down to the keywords, so that no
 *     whole schema is complemented; a keyword that cannot be negated exactly is refused.
 *  3. A *goal* is a set of claims about one value (json_schema.c). The shapes of an object or array refer to further
 *     goals. There are finitely many, so recursive schemas become goals that refer to each other.
 *  4. Goals that no finite text satisfies are found and dropped, the others are written as rules.
 *
 * A shape may exclude values for which there is no spelling, but it never includes a wrong one: a schema that cannot
 * be converted exactly is refused. All failures go to the builder (spry_ir_fail); NULL and SPRY_IR_NONE mean that it
 * failed. */
#ifndef SPRY_GRAMMAR_SCHEMA_SCHEMA_H
#define SPRY_GRAMMAR_SCHEMA_SCHEMA_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/map.h"
#include "grammar/ir/grammar_ir.h"

/* Exact decimal numbers for JSON schemas: bounds, constants, divisors. */

enum { SPRY_DECIMAL_DIGITS = 24 };

/* digits[0].digits[1]digits[2]... times 10^exponent; the first and last digits are not 0. Zero has no digits. */
typedef struct spry_decimal {
    bool negative;
    uint8_t n_digits;
    int16_t exponent;
    char digits[SPRY_DECIMAL_DIGITS]; /* '0' to '9', most significant first */
} spry_decimal;

/* A JSON number: integers exactly, reals as the shortest decimal that reads back as the same double. */
spry_decimal spry_decimal_of(const json_t *number);
spry_decimal spry_decimal_from_u64(uint64_t value, bool negative);

/* Negative, zero or positive when `a` is less than, equal to or greater than `b`. */
int spry_decimal_compare(const spry_decimal *a, const spry_decimal *b);
bool spry_decimal_is_integer(const spry_decimal *a);

enum {
    SPRY_SCHEMA_BYTES_MAX = 4 << 20,
    SPRY_SCHEMA_MEMORY_MAX = 256 << 20,
    SPRY_SCHEMA_DEPTH_MAX = 200,     /* maximum depth of schemas that apply to one value: allOf in $ref in anyOf ... */
    SPRY_SCHEMA_GOALS_MAX = 50000,   /* different sets of claims */
    SPRY_SCHEMA_SHAPES_MAX = 2048,   /* alternatives of one type for one value; */
    SPRY_SCHEMA_OBJECTS_MAX = 1024,  /* the same for arrays, and for objects */
    SPRY_SCHEMA_LAYOUTS_MAX = 8192,  /* objects and arrays, all together */
    SPRY_SCHEMA_CLASSES_MAX = 64,    /* classes of keys distinguished by patternProperties */
    SPRY_SCHEMA_NAME_MAX = 1000,     /* bytes of a property's name */
    SPRY_SCHEMA_BRANCHES_MAX = 256,  /* branches of oneOf */
    SPRY_SCHEMA_JOINED_MAX = 512,    /* patterns, parts or claims that apply to one value */
    SPRY_SCHEMA_ITEMS_MAX = 4096,    /* items and members with their own schemas */
    SPRY_SCHEMA_COUNTED_MAX = 4,     /* claims about some items of one array: contains, negated items */
    SPRY_SCHEMA_TALLIES_MAX = 2048,  /* combinations of counts that these need */
    SPRY_SCHEMA_DISTINCT_MAX = 4096, /* values that an item may have where items are unique */
    SPRY_SCHEMA_DEMANDS_MAX = 12,    /* demands (spry_object_demand) on one object */
    SPRY_SCHEMA_WAYS_MAX = 256,      /* combinations of members that meet all demands of one object */
};

/* ---- claims and lists -------------------------------------------------------------------------------------------- */

typedef uint32_t spry_claim;

#define SPRY_CLAIM_NEGATED 1u
#define SPRY_CLAIM_VALUE   2u /* equal to the value at the place, instead of valid against the schema there */

static inline spry_claim spry_claim_of(uint32_t place, uint32_t flags)
{
    return place << 2 | flags;
}

typedef struct spry_claims {
    const spry_claim *items;
    size_t count;
} spry_claims;

typedef struct spry_nodes {
    const spry_ir_node *items;
    size_t count;
} spry_nodes;

/* ---- shapes: alternatives of one type ---------------------------------------------------------------------------- */

typedef enum spry_shape_kind {
    SPRY_SHAPE_NULL,
    SPRY_SHAPE_FALSE,
    SPRY_SHAPE_TRUE,
    SPRY_SHAPE_NUMBER,
    SPRY_SHAPE_STRING,
    SPRY_SHAPE_ARRAY,
    SPRY_SHAPE_OBJECT,
    SPRY_SHAPE_KINDS,
} spry_shape_kind;

typedef struct spry_bound {
    bool set, exclusive;
    spry_decimal at;
} spry_bound;

typedef struct spry_number_shape {
    bool integer, fractional;
    spry_bound low, high;
    const spry_decimal *values; /* the only allowed values; NULL: any value */
    size_t n_values;
    spry_nodes also; /* sets of spellings, all of which must match */
} spry_number_shape;

typedef struct spry_string_shape {
    uint32_t min, max;           /* characters; max may be SPRY_IR_UNBOUNDED */
    const json_t *const *values; /* the only allowed values; NULL: any value */
    size_t n_values;
    spry_nodes also; /* sets of spellings between the quotes, all of which must match */
} spry_string_shape;

/* A claim that a number of the items from index `from` on must satisfy: contains, or a negated items. */
typedef struct spry_array_demand {
    spry_claim claim;
    uint32_t from, min, max;
} spry_array_demand;

typedef struct spry_array_shape {
    const spry_claims *prefix;
    size_t n_prefix;
    spry_claims rest;
    uint32_t min, max;
    const spry_array_demand *demands;
    size_t n_demands;
    const json_t *unique_at; /* the schema with uniqueItems, or NULL */
    uint32_t evaluated;      /* unevaluatedItems: this number of first items is evaluated, */
    spry_claims evaluating;  /* items that satisfy one of these claims are evaluated, too */
} spry_array_shape;

/* The constraints of one schema on members by name. */
typedef struct spry_object_part {
    enum { SPRY_PART_SCHEMA, SPRY_PART_VALUE, SPRY_PART_NAME, SPRY_PART_UNEVALUATED } kind;
    uint32_t place;   /* SCHEMA: properties and related keywords of this schema; VALUE: equal to this object */
    const char *name; /* NAME: only this member, */
    spry_claim claim; /* with this claim */
    const struct spry_object_part *seen; /* UNEVALUATED: the parts whose names unevaluatedProperties does not concern */
    size_t n_seen;
    bool hidden; /* comes from a negated schema: evaluates nothing */
} spry_object_part;

typedef struct spry_object_name {
    const char *name;
    bool present; /* must be present; otherwise must be absent */
} spry_object_name;

/* A condition that some member of the object must meet. It comes from a negated patternProperties, additionalProperties
 * or propertyNames, which some member must violate. */
typedef struct spry_object_demand {
    enum { SPRY_DEMAND_MATCHING, SPRY_DEMAND_OTHER, SPRY_DEMAND_NAMED } kind;
    uint32_t place;      /* MATCHING: the member's name matches `pattern` of this schema; OTHER: this schema does not
                          * list its name */
    const char *pattern; /* for kind MATCHING */
    spry_claim claim;    /* about the member's value; NAMED: about its name, with any value */
} spry_object_demand;

typedef struct spry_object_shape {
    const spry_object_part *parts;
    size_t n_parts;
    const spry_object_demand *demands;
    size_t n_demands;
    const spry_object_name *names; /* sorted, unique */
    size_t n_names;
    spry_claims key_claims; /* claims about every name (propertyNames) */
    uint32_t min, max;
    const json_t *min_at; /* the schema that has the minimum; may be NULL */
} spry_object_shape;

typedef struct spry_shape {
    spry_shape_kind kind;
    const json_t *at; /* the schema being expanded when it was created; may be NULL */
    uint64_t traits;  /* for objects: spry_object_traits; 0: not known */
    bool any;         /* there is no constraint at all */
    bool written;
    spry_ir_node node;          /* result of writing numbers and strings */
    struct spry_layout *layout; /* result of laying out objects */
    const uint32_t *item_goals; /* result of laying out arrays, [n_prefix + 1]: the last one for all further items; with
                                 * demands see schema_array.c */
    const spry_nodes *distinct; /* result of laying out arrays with unique items: the values of an item */
    union {
        spry_number_shape number;
        spry_string_shape string;
        spry_array_shape array;
        spry_object_shape object;
    } as;
} spry_shape;

typedef struct spry_shapes {
    spry_shape **items;
    size_t count;
} spry_shapes;

/* ---- places, goals, and the whole schema ------------------------------------------------------------------------- */

typedef struct spry_schema_place {
    const json_t *json;
    uint32_t base;                /* base URI */
    uint32_t equal;               /* the first place with an equal small schema, + 1; 0: not searched yet */
    bool busy[2];                 /* this place is being expanded; [negated] */
    const spry_shapes *shapes[2]; /* NULL: not computed */
} spry_schema_place;

typedef struct spry_goal {
    spry_claims claims;
    const spry_shapes *shapes; /* NULL: not computed */
    bool busy, wanted, productive;
} spry_goal;

/* The members of an object by their goals. */
typedef struct spry_layout_name {
    const char *name;
    spry_claims claims;
    uint32_t goal;
    uint32_t inside; /* bit set of the demands that a member of this name may meet */
    bool required, absent;
} spry_layout_name;

typedef struct spry_layout_class {
    spry_ir_node key; /* names: spellings between the quotes */
    spry_claims claims;
    uint32_t goal;
    uint32_t inside;
    bool open; /* the object may have members of this class that no demand needs */
} spry_layout_class;

/* A member that meets demands: one of a class of names, or the one with a declared name. */
typedef struct spry_layout_witness {
    bool of_class;
    uint32_t index; /* index of the class or name */
    spry_claims claims;
    uint32_t goal;
} spry_layout_witness;

/* One way to meet all demands. */
typedef struct spry_layout_way {
    const spry_layout_witness *witnesses;
    size_t count;
} spry_layout_way;

typedef struct spry_layout {
    spry_layout_name *names;
    size_t n_names;
    spry_layout_class *classes;
    size_t n_classes;
    spry_layout_way *ways; /* one, without witnesses, if there are no demands */
    size_t n_ways;
} spry_layout;

/* The versions of the specification, oldest first. */
typedef enum spry_draft {
    SPRY_DRAFT_04,
    SPRY_DRAFT_06,
    SPRY_DRAFT_07,
    SPRY_DRAFT_2019_09,
    SPRY_DRAFT_2020_12,
} spry_draft;

typedef struct spry_schema {
    spry_ir *ir;
    size_t serial; /* distinguishes the rules of several schemas that one builder holds */
    json_t *root;
    spry_arena arena;
    spry_draft draft;
    spry_json_style style;
    bool lenient;     /* a keyword that cannot be enforced is left out, with a warning */
    bool unevaluated; /* the document has unevaluatedItems or unevaluatedProperties */
    json_t *made;     /* schemas that this code created and the document does not contain */
    unsigned depth, probing;
    const json_t *at;          /* the schema that is being expanded, or NULL */
    const spry_shapes *beside; /* when not negated: the shapes that the preceding keywords leave */
    spry_schema_place **places;
    size_t n_places, places_room;
    spry_goal **goals;
    size_t n_goals, goals_room, n_layouts, n_tallied;
    uint32_t *wanted; /* goals that become rules */
    size_t n_wanted, wanted_room;
    const char **bases; /* base URIs, without fragment */
    size_t n_bases, bases_room;
    spry_map place_index;    /* the pointer to a place's JSON -> place */
    spry_map equal_index;    /* the text of a small schema -> the first place with it */
    spry_map uris;           /* "uri" and "uri#anchor" -> place, for each named schema */
    spry_map goal_index;     /* claims -> goal */
    spry_map pattern_index;  /* pattern -> node */
    spry_ir_node any_string; /* all spellings of strings; SPRY_IR_NONE: not made yet */
    spry_map limited_index;  /* (node, min, max) -> its texts of that length */
    spry_shapes everything;
    spry_ir_node gap, comma, colon; /* whitespace; a comma, and a colon, with whitespace */
    spry_ir_node empty_gap;         /* whitespace between brackets that contain nothing else */
} spry_schema;

/* ---- json_schema.c ----------------------------------------------------------------------------------------------- */

/* Zeroed memory that lives as long as the schema; NULL when the builder failed. `count` may be 0. */
void *spry_schema_alloc(spry_schema *schema, size_t count, size_t size);
bool spry_schema_failed(const spry_schema *schema);

/* Makes the builder fail; the message begins with the path of `where` in the schema and `keyword` when not NULL. */
void spry_schema_refuse(spry_schema *schema, spry_status status, const json_t *where, const char *keyword,
                        const char *format, ...) SPRY_PRINTF(5, 6);

/* When the builder has failed without a path, adds the path to the message. */
void spry_schema_blame(spry_schema *schema, const json_t *where, const char *keyword);

/* In a lenient schema, turns a failure because of a keyword that cannot be enforced into a warning; false otherwise. */
bool spry_schema_excuse(spry_schema *schema);

/* True if the grammar is for writing: it allows only some of the texts that are valid. */
static inline bool spry_schema_writes(const spry_schema *schema)
{
    return schema->style != SPRY_JSON_ANY;
}

/* Until draft-07 the keywords beside a $ref are ignored. */
static inline bool spry_schema_lone_reference(const spry_schema *schema, const json_t *json)
{
    return schema->draft <= SPRY_DRAFT_07 && json_object_get(json, "$ref");
}

/* The text of a JSON string without NUL; NULL for other values. */
static inline const char *spry_schema_text(const json_t *json)
{
    const char *text = json_string_value(json);
    return text && strlen(text) == json_string_length(json) ? text : NULL;
}

/* ---- json_spelling.c --------------------------------------------------------------------------------------------- */

/* Spellings of `min` to `max` characters. */
spry_ir_node spry_schema_limited(spry_schema *schema, spry_ir_node text, uint32_t min, uint32_t max);
/* True if a name is in a set of spellings between quotes. */
bool spry_schema_accepts(spry_schema *schema, spry_ir_node language, spry_view text);

/* ---- schema_document.c ------------------------------------------------------------------------------------------- */

/* Parses the text and indexes it. */
void spry_schema_read(spry_schema *schema, spry_view text);
/* The place of a schema or value; creates a new place relative to `base` when it was not indexed. */
uint32_t spry_schema_place_at(spry_schema *schema, const json_t *json, uint32_t base);
/* The place that a reference in the schema of `place` refers to, by the keyword $ref, $dynamicRef or $recursiveRef;
 * UINT32_MAX when the builder failed. */
uint32_t spry_schema_resolve(spry_schema *schema, uint32_t place, const char *keyword, const json_t *reference);

/* ---- schema_expand.c --------------------------------------------------------------------------------------------- */

/* The values that satisfy a claim. NULL also when, while probing, the result is not known yet. */
const spry_shapes *spry_schema_expand(spry_schema *schema, spry_claim claim);

/* True if a schema applies no other schemas to the same value; then unevaluated... equals additional... */
bool spry_schema_is_plain(const json_t *json);
/* Applies a keyword minX or maxX with this count to a range; with `negated` its opposite. False also when no count is
 * possible. */
bool spry_schema_range(spry_schema *schema, uint32_t *min, uint32_t *max, uint32_t place, const char *keyword,
                       const json_t *value, bool negated);
/* The claim for the schema `json` inside of `place`. */
spry_claim spry_schema_claim(spry_schema *schema, uint32_t place, const json_t *json, bool negated);

/* Implements a keyword: the shapes of its kind that it allows, or with `negated` those it does not allow. `value` is
 * the keyword's value (of a group: the first one present). */
typedef const spry_shapes *spry_keyword_shapes(spry_schema *schema, uint32_t place, const char *keyword,
                                               const json_t *value, bool negated);

spry_keyword_shapes spry_schema_all_of, spry_schema_any_of, spry_schema_one_of, spry_schema_not, spry_schema_if,
    spry_schema_dependent, spry_schema_reference;                                                  /* schema_expand.c */
spry_keyword_shapes spry_schema_unevaluated_items, spry_schema_unevaluated_properties;             /* schema_expand.c */
spry_keyword_shapes spry_schema_const, spry_schema_enum;                                           /* schema_value.c */
spry_keyword_shapes spry_schema_number_bound, spry_schema_multiple_of;                             /* schema_number.c */
spry_keyword_shapes spry_schema_length, spry_schema_pattern, spry_schema_lark, spry_schema_format; /* schema_string.c */
spry_keyword_shapes spry_schema_items, spry_schema_item_count, spry_schema_contains,
    spry_schema_unique; /* schema_array.c */
spry_keyword_shapes spry_schema_members, spry_schema_required, spry_schema_member_count,
    spry_schema_property_names; /* schema_object.c */

/* Values equal, or not equal, to the one at a place (schema_value.c). */
const spry_shapes *spry_schema_equal(spry_schema *schema, uint32_t place, bool negated);

/* ---- schema_shape.c ---------------------------------------------------------------------------------------------- */

spry_shape *spry_shape_new(spry_schema *schema, spry_shape_kind kind);
/* A list of the shapes; NULL shapes are left out. */
const spry_shapes *spry_shapes_of(spry_schema *schema, spry_shape *const *shapes, size_t count);
const spry_shapes *spry_shapes_none(spry_schema *schema);
/* Every value that is not of one kind. */
const spry_shapes *spry_shapes_without(spry_schema *schema, spry_shape_kind kind);
const spry_shapes *spry_shapes_both(spry_schema *schema, const spry_shapes *a, const spry_shapes *b);
const spry_shapes *spry_shapes_either(spry_schema *schema, const spry_shapes *a, const spry_shapes *b);
/* `all`, with its shapes of one kind restricted to `allowed`. */
const spry_shapes *spry_shapes_restrict(spry_schema *schema, const spry_shapes *all, spry_shape_kind kind,
                                        const spry_shapes *allowed);
/* True when no value can be in both. */
bool spry_shapes_disjoint(spry_schema *schema, const spry_shapes *a, const spry_shapes *b);
/* The shapes that some value can have; contradictions deeper than two levels of objects and arrays are not found. */
const spry_shapes *spry_shapes_alive(spry_schema *schema, const spry_shapes *shapes);
/* True when no value can have the shape; examines `depth` levels of objects and arrays. */
bool spry_shape_is_dead(spry_schema *schema, spry_shape *shape, unsigned depth);

spry_claims spry_claims_join(spry_schema *schema, spry_claims a, spry_claims b); /* sorted, unique */
spry_claims spry_claims_add(spry_schema *schema, spry_claims claims, spry_claim claim);
spry_nodes spry_nodes_join(spry_schema *schema, spry_nodes a, spry_nodes b);
spry_nodes spry_nodes_one(spry_schema *schema, spry_ir_node node);

/* The schema for members that are not listed, or NULL (schema_object.c). */
const json_t *spry_schema_additional(const json_t *json);
/* The claims about members of this name, from all parts of an object (object_layout.c). */
spry_claims spry_object_claims(spry_schema *schema, const spry_object_shape *object, const char *name);
/* Finds the ways to meet the demands of an object: combinations of members. Its names and classes must be known
 * (schema_object.c). */
void spry_object_find_ways(spry_schema *schema, spry_layout *layout, const spry_object_shape *object);
/* True when a closed object has no member that can meet one of its demands (object_layout.c). */
bool spry_object_misses_demand(spry_schema *schema, const spry_object_shape *object, unsigned depth);
/* Objects that have all of these names: keys of an object, or strings of an array (the caller has checked them). */
const spry_shapes *spry_object_requiring(spry_schema *schema, const json_t *names);
/* Objects without the member `name`. The next: objects with it, and with a claim about it if that is not NULL
 * (schema_object.c). */
const spry_shapes *spry_object_without(spry_schema *schema, const char *name);
const spry_shapes *spry_object_with(spry_schema *schema, const char *name, const spry_claim *claim);

/* True if `b` has all constraints of `a`, so that every value of `b` is one of `a`; for output `b` must also have the
 * same names to write (schema_object.c). */
bool spry_object_covers(const spry_schema *schema, const spry_object_shape *a, const spry_object_shape *b);
/* A bit for each kind of constraint; never 0. `a` covers `b` only if `b` has all bits of `a`. */
uint64_t spry_object_traits(const spry_object_shape *object);
/* The conjunction of two shapes; NULL when they contradict each other. One function per kind with constraints. */
spry_shape *spry_number_both(spry_schema *schema, const spry_shape *a, const spry_shape *b);
spry_shape *spry_string_both(spry_schema *schema, const spry_shape *a, const spry_shape *b);
spry_shape *spry_array_both(spry_schema *schema, const spry_shape *a, const spry_shape *b);
spry_shape *spry_object_both(spry_schema *schema, const spry_shape *a, const spry_shape *b);

/* ---- writing ----------------------------------------------------------------------------------------------------- */

spry_ir_node spry_number_write(spry_schema *schema, const spry_number_shape *number); /* schema_number.c */
spry_ir_node spry_string_write(spry_schema *schema, const spry_string_shape *string); /* schema_string.c */
/* Non-zero numbers with a magnitude below 10^below, written with an exponent. */
spry_ir_node spry_number_small(spry_ir *ir, int below);
/* The texts between the quotes that match a pattern (schema_string.c). `where` and `keyword` are for error messages. */
spry_ir_node spry_schema_pattern_node(spry_schema *schema, const json_t *where, const char *keyword, spry_view pattern);
/* The spellings between the quotes of all strings except these: JSON strings, or names (json_spelling.c). */
spry_ir_node spry_strings_except(spry_schema *schema, const json_t *const *values, size_t count);
spry_ir_node spry_names_except(spry_schema *schema, const spry_layout_name *names, size_t count);
/* The spellings between the quotes of names that satisfy `claims` (schema_string.c). */
spry_ir_node spry_schema_key_language(spry_schema *schema, spry_claims claims);

/* Determines the goals of items and members (schema_array.c, object_layout.c). */
void spry_array_lay_out(spry_schema *schema, spry_shape *shape);
void spry_object_lay_out(spry_schema *schema, spry_shape *shape);
/* True if the goals that are known to be productive are enough for one value of the shape. */
bool spry_array_is_productive(const spry_schema *schema, const spry_shape *shape);
bool spry_object_is_productive(const spry_schema *schema, const spry_shape *shape);
spry_ir_node spry_array_write(spry_schema *schema, const spry_shape *shape);
spry_ir_node spry_object_write(spry_schema *schema, const spry_shape *shape);

/* ---- json_schema.c ----------------------------------------------------------------------------------------------- */

/* The goal of these claims; UINT32_MAX when the builder failed. */
uint32_t spry_schema_goal(spry_schema *schema, spry_claims claims);
/* The shapes of a goal; NULL as in spry_schema_expand. */
const spry_shapes *spry_goal_shapes(spry_schema *schema, uint32_t goal);
/* A reference to the goal's rule. */
spry_ir_node spry_goal_node(spry_schema *schema, uint32_t goal);
/* True when no value can satisfy the claims. */
bool spry_claims_are_dead(spry_schema *schema, spry_claims claims, unsigned depth);

#endif
