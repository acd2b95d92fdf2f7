/* Determines the members that an object may have, by name and by classes of names, and writes the object. schema.h
 * explains goals and claims; a witness is a member that meets a demand (schema_object.c), and a way is a choice of
 * witnesses for all demands.
 *
 * The parts of an object shape come from different schemas, and each evaluates a name separately: with its properties
 * and patternProperties, or else its additionalProperties. So names listed in any schema are evaluated one by one, and
 * all others are divided into classes by the patterns. A member's goal is the union of all claims about its name. */
#include "grammar/schema/json_spelling.h"
#include "grammar/schema/schema.h"

/* ---- writing ----------------------------------------------------------------------------------------------------- */

typedef struct member_counts {
    size_t names, required, classes, witnesses;
    bool impossible; /* a required member is not possible */
} member_counts;

/* The witness for a declared name, or with `of_class` for a class, in one way; NULL: none. */
static const spry_layout_witness *witness_of(const spry_layout_way *way, uint32_t index, bool of_class)
{
    for (size_t i = 0; i < way->count; i++)
        if (way->witnesses[i].of_class == of_class && way->witnesses[i].index == index)
            return &way->witnesses[i];
    return NULL;
}

static spry_layout_name name_in(const spry_layout *layout, const spry_layout_way *way, size_t index)
{
    spry_layout_name name = layout->names[index];
    const spry_layout_witness *witness = witness_of(way, (uint32_t)index, false);
    if (witness) {
        name.goal = witness->goal;
        name.required = true;
    }
    return name;
}

static bool is_productive(const spry_schema *schema, uint32_t goal)
{
    return schema->goals[goal]->productive;
}

/* True if the object may have members of a class besides the witness. In output (not validation) the class has only the
 * witness, so that its name cannot occur again with another value. */
static bool is_open(const spry_schema *schema, const spry_layout *layout, const spry_layout_way *way, size_t index)
{
    return layout->classes[index].open && is_productive(schema, layout->classes[index].goal) &&
           !(spry_schema_writes(schema) && witness_of(way, (uint32_t)index, true));
}

static member_counts count_members(const spry_schema *schema, const spry_layout *layout, const spry_layout_way *way)
{
    member_counts counts = {0};
    for (size_t i = 0; i < layout->n_names; i++) {
        spry_layout_name name = name_in(layout, way, i);
        bool possible = !name.absent && is_productive(schema, name.goal);
        counts.names += possible;
        counts.required += name.required;
        counts.impossible |= name.required && !possible;
    }
    for (size_t i = 0; i < way->count; i++) {
        counts.witnesses += way->witnesses[i].of_class;
        counts.impossible |= !is_productive(schema, way->witnesses[i].goal);
    }
    counts.required += counts.witnesses;
    for (size_t i = 0; i < layout->n_classes; i++)
        counts.classes += is_open(schema, layout, way, i);
    return counts;
}

static bool way_is_productive(const spry_object_shape *object, member_counts counts)
{
    return !counts.impossible && counts.required <= object->max &&
           (counts.classes || counts.names + counts.witnesses >= object->min);
}

bool spry_object_is_productive(const spry_schema *schema, const spry_shape *shape)
{
    const spry_layout *layout = shape->layout;
    for (size_t i = 0; i < layout->n_ways; i++)
        if (way_is_productive(&shape->as.object, count_members(schema, layout, &layout->ways[i])))
            return true;
    return false;
}

static spry_ir_node write_key(spry_schema *schema, spry_ir_node name)
{
    spry_ir_node quote = spry_ir_literal(schema->ir, SPRY_VIEW("\""));
    return spry_ir_sequence(schema->ir, (spry_ir_node[]){quote, name, quote, schema->colon}, 4);
}

static spry_ir_node spell_name(spry_schema *schema, const char *name)
{
    return spry_schema_writes(schema) ? spry_json_spell_usual(schema->ir, spry_view_of(name))
                                      : spry_json_spell_text(schema->ir, spry_view_of(name));
}

static spry_ir_node write_members(spry_schema *schema, const spry_shape *shape, const spry_layout_way *way,
                                  member_counts counts)
{
    const spry_layout *layout = shape->layout;
    size_t count = 0;
    spry_ir_member *members =
        spry_schema_alloc(schema, counts.names + counts.witnesses + counts.classes, sizeof *members);
    if (!members)
        return SPRY_IR_NONE;
    for (size_t i = 0; i < layout->n_names; i++) {
        spry_layout_name name = name_in(layout, way, i);
        if (!name.absent && is_productive(schema, name.goal))
            members[count++] = (spry_ir_member){.key = write_key(schema, spell_name(schema, name.name)),
                                                .value = spry_goal_node(schema, name.goal),
                                                .required = name.required};
    }
    for (size_t i = 0; i < way->count; i++)
        if (way->witnesses[i].of_class)
            members[count++] = (spry_ir_member){.key = write_key(schema, layout->classes[way->witnesses[i].index].key),
                                                .value = spry_goal_node(schema, way->witnesses[i].goal),
                                                .required = true};
    for (size_t i = 0; i < layout->n_classes; i++)
        if (is_open(schema, layout, way, i))
            members[count++] = (spry_ir_member){.key = write_key(schema, layout->classes[i].key),
                                                .value = spry_goal_node(schema, layout->classes[i].goal),
                                                .many = true};
    uint32_t min = shape->as.object.min > 1 ? shape->as.object.min : 1;
    spry_ir_node (*join)(spry_ir *, const spry_ir_member *, size_t, spry_ir_node, uint32_t, uint32_t) =
        spry_schema_writes(schema) ? spry_ir_members_ordered : spry_ir_members;
    return join(schema->ir, members, count, schema->comma, min, shape->as.object.max);
}

/* The text between the braces for one way. */
static spry_ir_node write_way(spry_schema *schema, const spry_shape *shape, const spry_layout_way *way)
{
    spry_ir *ir = schema->ir;
    const spry_object_shape *object = &shape->as.object;
    member_counts counts = count_members(schema, shape->layout, way);
    if (!way_is_productive(object, counts))
        return spry_ir_never(ir);
    if (counts.classes && object->min > 1 && object->min > counts.required + 1)
        spry_schema_refuse(
            schema, SPRY_ERR_UNSUPPORTED, object->min_at, "minProperties",
            "%u cannot be enforced where members of any name may come, for a name could come twice; name "
            "the members and set additionalProperties to false",
            object->min);
    spry_ir_node inside = spry_ir_never(ir);
    bool filled = counts.names + counts.witnesses + counts.classes > 0 && object->max > 0;
    if (filled)
        inside = spry_ir_sequence(
            ir, (spry_ir_node[]){schema->gap, write_members(schema, shape, way, counts), schema->gap}, 3);
    if (!filled || (counts.required == 0 && object->min == 0))
        inside = spry_ir_choice(ir, (spry_ir_node[]){inside, schema->empty_gap}, 2);
    return inside;
}

spry_ir_node spry_object_write(spry_schema *schema, const spry_shape *shape)
{
    spry_ir *ir = schema->ir;
    const spry_layout *layout = shape->layout;
    spry_ir_node *ways = spry_schema_alloc(schema, layout->n_ways, sizeof *ways);
    for (size_t i = 0; ways && i < layout->n_ways; i++)
        ways[i] = write_way(schema, shape, &layout->ways[i]);
    if (!ways)
        return SPRY_IR_NONE;
    spry_ir_node whole[] = {spry_ir_literal(ir, SPRY_VIEW("{")), spry_ir_choice(ir, ways, layout->n_ways),
                            spry_ir_literal(ir, SPRY_VIEW("}"))};
    return spry_ir_sequence(ir, whole, 3);
}

/* ---- layout ------------------------------------------------------------------------------------------------------ */

/* ---- the claims of one part about a name ------------------------------------------------------------------------- */

static const json_t *part_json(const spry_schema *schema, const spry_object_part *part)
{
    return part->kind == SPRY_PART_NAME ? NULL : schema->places[part->place]->json;
}

/* The texts between the quotes that match a pattern of patternProperties in the schema of a place. */
static spry_ir_node pattern_of(spry_schema *schema, uint32_t place, const char *pattern)
{
    return spry_schema_pattern_node(schema, schema->places[place]->json, "patternProperties", spry_view_of(pattern));
}

static spry_claims add_schema_claim(spry_schema *schema, spry_claims claims, const spry_object_part *part,
                                    const json_t *said)
{
    return spry_claims_add(schema, claims, spry_schema_claim(schema, part->place, said, false));
}

/* The claims of a schema about a name that its properties do not list; `matched`: one of its patterns matches the
 * name. */
static spry_claims about_other_name(spry_schema *schema, spry_claims claims, const spry_object_part *part, bool matched)
{
    const json_t *additional = spry_schema_additional(part_json(schema, part));
    return additional && !matched ? add_schema_claim(schema, claims, part, additional) : claims;
}

/* True if a part evaluates all names that its patterns and properties do not mention. */
static bool evaluates_others(spry_schema *schema, const spry_object_part *part)
{
    return part->kind == SPRY_PART_UNEVALUATED || spry_schema_additional(part_json(schema, part));
}

static bool evaluates_name(spry_schema *schema, const spry_object_part *part, const char *name)
{
    const json_t *json = part_json(schema, part);
    bool seen = evaluates_others(schema, part) || json_object_get(json_object_get(json, "properties"), name);
    const char *pattern;
    json_t *said;
    json_object_foreach(json_object_get(json, "patternProperties"), pattern, said) seen =
        seen || spry_schema_accepts(schema, pattern_of(schema, part->place, pattern), spry_view_of(name));
    return seen;
}

/* True if a part evaluates a class of names. Each pattern matches all names of the class or none of them. */
static bool evaluates_class(spry_schema *schema, const spry_object_part *part, spry_ir_node key)
{
    bool seen = evaluates_others(schema, part);
    const char *pattern;
    json_t *said;
    json_object_foreach(json_object_get(part_json(schema, part), "patternProperties"), pattern, said)
    {
        spry_ir_node language = pattern_of(schema, part->place, pattern);
        seen = seen || !spry_ir_is_never(schema->ir, spry_ir_intersect(schema->ir, key, language));
    }
    return seen;
}

static spry_claims about_unevaluated(spry_schema *schema, spry_claims claims, const spry_object_part *part, bool seen)
{
    const json_t *said = json_object_get(part_json(schema, part), "unevaluatedProperties");
    return seen ? claims : add_schema_claim(schema, claims, part, said);
}

static spry_claims about_name(spry_schema *schema, spry_claims claims, const spry_object_part *part, const char *name)
{
    const json_t *json = part_json(schema, part);
    if (part->kind == SPRY_PART_NAME)
        return strcmp(part->name, name) == 0 ? spry_claims_add(schema, claims, part->claim) : claims;
    if (part->kind == SPRY_PART_UNEVALUATED) {
        bool seen = false;
        for (size_t i = 0; i < part->n_seen && !seen; i++)
            seen = evaluates_name(schema, &part->seen[i], name);
        return about_unevaluated(schema, claims, part, seen);
    }
    if (part->kind == SPRY_PART_VALUE) {
        const json_t *member = json_object_get(json, name);
        spry_claim claim = spry_schema_claim(schema, part->place, member ? member : json_false(), false);
        return spry_claims_add(schema, claims, member ? claim | SPRY_CLAIM_VALUE : claim);
    }
    const json_t *member = json_object_get(json_object_get(json, "properties"), name);
    bool matched = member;
    if (member)
        claims = add_schema_claim(schema, claims, part, member);
    const char *pattern;
    json_t *said;
    json_object_foreach(json_object_get(json, "patternProperties"), pattern, said)
    {
        if (!spry_schema_accepts(schema, pattern_of(schema, part->place, pattern), spry_view_of(name)))
            continue;
        matched = true;
        claims = add_schema_claim(schema, claims, part, said);
    }
    return about_other_name(schema, claims, part, matched);
}

spry_claims spry_object_claims(spry_schema *schema, const spry_object_shape *object, const char *name)
{
    spry_claims claims = {NULL, 0};
    for (size_t i = 0; i < object->n_parts; i++)
        claims = about_name(schema, claims, &object->parts[i], name);
    return claims;
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

typedef struct name_list {
    spry_layout_name *items;
    size_t count, room;
    spry_map index;
} name_list;

static void add_name(spry_schema *schema, name_list *list, const char *name, const spry_object_name *demand)
{
    bool added;
    spry_view view = spry_view_of(name);
    if (view.size > SPRY_SCHEMA_NAME_MAX) {
        spry_schema_refuse(schema, SPRY_ERR_UNSUPPORTED, NULL, NULL, "the name \"%.40s...\" has more than %d bytes",
                           name, SPRY_SCHEMA_NAME_MAX);
        return;
    }
    uint32_t at = (uint32_t)list->count;
    if (!spry_map_add(&list->index, view, at, &added)) {
        spry_ir_fail(schema->ir, SPRY_ERR_MEMORY, "not enough memory for the JSON schema");
        return;
    }
    if (added)
        list->items[list->count++].name = name;
    else
        spry_map_find(&list->index, view, &at);
    if (demand) {
        list->items[at].required = demand->present;
        list->items[at].absent = !demand->present;
    }
}

static void add_keys(spry_schema *schema, name_list *list, const json_t *object)
{
    const char *name;
    json_t *member;
    json_object_foreach((json_t *)object, name, member) add_name(schema, list, name, NULL);
}

/* True if some schema explicitly allows undeclared names. */
static bool gives_others(const spry_schema *schema, const spry_object_shape *object)
{
    for (size_t i = 0; i < object->n_parts; i++) {
        const json_t *json = part_json(schema, &object->parts[i]);
        if (object->parts[i].kind == SPRY_PART_SCHEMA &&
            (spry_schema_additional(json) || json_object_size(json_object_get(json, "patternProperties"))))
            return true;
    }
    return false;
}

/* The names to which a demand does not apply. */
static const json_t *demand_names(const spry_schema *schema, const spry_object_demand *demand)
{
    return demand->kind == SPRY_DEMAND_OTHER ? json_object_get(schema->places[demand->place]->json, "properties")
                                             : NULL;
}

/* Collects every name that is listed in any part. In output, a name that only a demand lists is included where
 * undeclared names are allowed. */
static void collect_names(spry_schema *schema, name_list *list, const spry_object_shape *object)
{
    size_t room = object->n_names;
    for (size_t i = 0; i < object->n_parts; i++) {
        const json_t *json = part_json(schema, &object->parts[i]);
        room += 1 + json_object_size(json) + json_object_size(json_object_get(json, "properties"));
    }
    for (size_t i = 0; i < object->n_demands; i++)
        room += json_object_size(demand_names(schema, &object->demands[i]));
    list->items = spry_schema_alloc(schema, room, sizeof *list->items);
    if (!list->items)
        return;
    for (size_t i = 0; i < object->n_parts; i++) {
        const spry_object_part *part = &object->parts[i];
        const json_t *json = part_json(schema, part);
        if (part->kind == SPRY_PART_NAME)
            add_name(schema, list, part->name, NULL);
        else
            add_keys(schema, list, part->kind == SPRY_PART_VALUE ? json : json_object_get(json, "properties"));
    }
    for (size_t i = 0; i < object->n_names; i++)
        add_name(schema, list, object->names[i].name, &object->names[i]);
    size_t declared = list->count;
    for (size_t i = 0; i < object->n_demands; i++)
        add_keys(schema, list, demand_names(schema, &object->demands[i]));
    for (size_t i = declared; i < list->count && spry_schema_writes(schema) && !gives_others(schema, object); i++)
        list->items[i].absent = true;
}

/* The names to which a demand applies; for OTHER they still include the names of the schema's `properties`. */
static spry_ir_node demand_language(spry_schema *schema, const spry_object_demand *demand)
{
    if (demand->kind == SPRY_DEMAND_MATCHING)
        return pattern_of(schema, demand->place, demand->pattern);
    if (demand->kind == SPRY_DEMAND_NAMED)
        return spry_schema_key_language(schema, spry_claims_add(schema, (spry_claims){NULL, 0}, demand->claim));
    spry_ir_node language = spry_strings_except(schema, NULL, 0);
    const char *pattern;
    json_t *said;
    json_object_foreach(json_object_get(schema->places[demand->place]->json, "patternProperties"), pattern, said)
        language = spry_ir_subtract(schema->ir, language, pattern_of(schema, demand->place, pattern));
    return language;
}

/* True if a demand applies to a name. */
static bool concerns(spry_schema *schema, const spry_object_demand *demand, const char *name)
{
    if (demand->kind != SPRY_DEMAND_OTHER)
        return spry_schema_accepts(schema, demand_language(schema, demand), spry_view_of(name));
    bool listed = json_object_get(demand_names(schema, demand), name);
    const char *pattern;
    json_t *said;
    json_object_foreach(json_object_get(schema->places[demand->place]->json, "patternProperties"), pattern, said)
        listed = listed || spry_schema_accepts(schema, pattern_of(schema, demand->place, pattern), spry_view_of(name));
    return !listed;
}

static void find_name_goals(spry_schema *schema, spry_layout *layout, const spry_object_shape *object,
                            spry_ir_node allowed)
{
    for (size_t n = 0; n < layout->n_names && !spry_schema_failed(schema); n++) {
        spry_layout_name *name = &layout->names[n];
        name->claims = spry_object_claims(schema, object, name->name);
        name->goal = spry_schema_goal(schema, name->claims);
        for (uint32_t d = 0; d < object->n_demands; d++)
            name->inside |= (uint32_t)concerns(schema, &object->demands[d], name->name) << d;
        if (object->key_claims.count && !spry_schema_accepts(schema, allowed, spry_view_of(name->name)))
            name->absent = true;
    }
}

/* ---- classes of other names -------------------------------------------------------------------------------------- */

/* Names that match the same patterns, and the claims about members with such names. */
typedef struct name_class {
    spry_ir_node key;
    spry_claims claims;
    uint32_t inside;
    bool matched; /* a pattern of the current part matches it */
    bool given;   /* a schema allows these names */
    bool hit;     /* the last split separated it */
} name_class;

typedef struct name_classes {
    name_class items[SPRY_SCHEMA_CLASSES_MAX];
    size_t count;
} name_classes;

/* Splits each class into names that match and names that do not. */
static void split_classes(spry_schema *schema, name_classes *classes, spry_ir_node language, const json_t *where)
{
    for (size_t i = 0, before = classes->count; i < before && !spry_schema_failed(schema); i++) {
        name_class *class = &classes->items[i];
        name_class inside = *class;
        class->hit = false;
        inside.hit = true;
        inside.key = spry_ir_intersect(schema->ir, class->key, language);
        if (spry_ir_is_never(schema->ir, inside.key))
            continue;
        class->key = spry_ir_subtract(schema->ir, class->key, language);
        if (spry_ir_is_never(schema->ir, class->key))
            *class = inside;
        else if (classes->count < SPRY_SCHEMA_CLASSES_MAX)
            classes->items[classes->count++] = inside;
        else
            spry_schema_refuse(schema, SPRY_ERR_UNSUPPORTED, where, "patternProperties",
                               "patterns overlap in more than %d ways", SPRY_SCHEMA_CLASSES_MAX);
    }
}

/* Adds the claims of a part's schema about undeclared names. */
static void add_part_claims(spry_schema *schema, name_classes *classes, const spry_object_part *part)
{
    const json_t *json = part_json(schema, part);
    const char *pattern;
    json_t *said;
    for (size_t i = 0; i < classes->count; i++)
        classes->items[i].matched = false;
    json_object_foreach(json_object_get(json, "patternProperties"), pattern, said)
    {
        split_classes(schema, classes, pattern_of(schema, part->place, pattern), json);
        for (size_t i = 0; i < classes->count; i++) {
            name_class *class = &classes->items[i];
            if (!class->hit)
                continue;
            class->matched = class->given = true;
            class->claims = add_schema_claim(schema, class->claims, part, said);
        }
    }
    for (size_t i = 0; i < classes->count; i++) {
        name_class *class = &classes->items[i];
        class->claims = about_other_name(schema, class->claims, part, class->matched);
        class->given |= spry_schema_additional(json) != NULL;
    }
}

/* Adds unevaluatedProperties, after the classes have been split by all patterns. */
static void add_unevaluated_claims(spry_schema *schema, name_classes *classes, const spry_object_part *part)
{
    for (size_t i = 0; i < classes->count; i++) {
        name_class *class = &classes->items[i];
        bool seen = false;
        for (size_t k = 0; k < part->n_seen && !seen; k++)
            seen = evaluates_class(schema, &part->seen[k], class->key);
        class->claims = about_unevaluated(schema, class->claims, part, seen);
        class->given |= !seen;
    }
}

/* The names of a part that allows no other names: the common closed object, which needs no classes. NULL: no part is
 * like that. */
static const json_t *closed_names(spry_schema *schema, const spry_object_shape *object)
{
    for (size_t i = 0; i < object->n_parts; i++) {
        const json_t *json = part_json(schema, &object->parts[i]);
        if (object->parts[i].kind == SPRY_PART_VALUE)
            return json;
        if (json_is_false(spry_schema_additional(json)) &&
            json_object_size(json_object_get(json, "patternProperties")) == 0) {
            const json_t *names = json_object_get(json, "properties");
            return names ? names : json_false(); /* the object has no members at all */
        }
    }
    return NULL;
}

bool spry_object_misses_demand(spry_schema *schema, const spry_object_shape *object, unsigned depth)
{
    const json_t *names = closed_names(schema, object);
    for (size_t i = 0; names && i < object->n_demands; i++) {
        const spry_object_demand *demand = &object->demands[i];
        bool met = false;
        const char *name;
        json_t *member;
        json_object_foreach((json_t *)names, name, member)
        {
            if (met || !concerns(schema, demand, name))
                continue;
            spry_claims claims = spry_object_claims(schema, object, name);
            if (demand->kind != SPRY_DEMAND_NAMED)
                claims = spry_claims_add(schema, claims, demand->claim);
            met = !spry_claims_are_dead(schema, claims, depth);
        }
        if (!met)
            return true;
    }
    return false;
}

/* True if the declared names are too few for the minimum; then output may have other names, too. */
static bool needs_others(const spry_layout *layout, const spry_object_shape *object)
{
    size_t possible = 0;
    for (size_t i = 0; i < layout->n_names; i++)
        possible += !layout->names[i].absent;
    return possible == 0 || possible < object->min;
}

static void find_classes(spry_schema *schema, spry_layout *layout, const spry_object_shape *object,
                         spry_ir_node allowed)
{
    name_classes classes = {.count = 1};
    classes.items[0].key = spry_names_except(schema, layout->names, layout->n_names);
    if (object->key_claims.count)
        classes.items[0].key = spry_ir_intersect(schema->ir, classes.items[0].key, allowed);
    for (size_t p = 0; p < object->n_parts; p++)
        if (object->parts[p].kind == SPRY_PART_SCHEMA)
            add_part_claims(schema, &classes, &object->parts[p]);
    for (size_t p = 0; p < object->n_parts && !spry_schema_failed(schema); p++)
        if (object->parts[p].kind == SPRY_PART_UNEVALUATED)
            add_unevaluated_claims(schema, &classes, &object->parts[p]);
    for (uint32_t d = 0; d < object->n_demands && !spry_schema_failed(schema); d++) {
        const spry_object_demand *demand = &object->demands[d];
        split_classes(schema, &classes, demand_language(schema, demand), schema->places[demand->place]->json);
        for (size_t i = 0; i < classes.count; i++)
            classes.items[i].inside |= (uint32_t)classes.items[i].hit << d;
    }
    bool infinite = classes.count == 1 && !object->key_claims.count; /* all names except some */
    layout->classes = spry_schema_alloc(schema, classes.count, sizeof *layout->classes);
    bool all = !spry_schema_writes(schema) || needs_others(layout, object);
    for (size_t i = 0; layout->classes && i < classes.count && !spry_schema_failed(schema); i++) {
        const name_class *class = &classes.items[i];
        if ((!all && !class->given && !class->inside) || (!infinite && spry_ir_is_never(schema->ir, class->key)))
            continue;
        layout->classes[layout->n_classes++] = (spry_layout_class){.key = class->key,
                                                                   .claims = class->claims,
                                                                   .goal = spry_schema_goal(schema, class->claims),
                                                                   .inside = class->inside,
                                                                   .open = all || class->given};
    }
}

void spry_object_lay_out(spry_schema *schema, spry_shape *shape)
{
    const spry_object_shape *object = &shape->as.object;
    spry_layout *layout = spry_schema_alloc(schema, 1, sizeof *layout);
    if (!layout)
        return;
    name_list names = {0};
    spry_map_init(&names.index);
    collect_names(schema, &names, object);
    spry_map_deinit(&names.index);
    layout->names = names.items;
    layout->n_names = names.count;
    spry_ir_node allowed =
        object->key_claims.count ? spry_schema_key_language(schema, object->key_claims) : SPRY_IR_NONE;
    if (!spry_schema_failed(schema))
        find_name_goals(schema, layout, object, allowed);
    if (!spry_schema_failed(schema) && !closed_names(schema, object) && object->max > 0 &&
        (!spry_schema_writes(schema) || needs_others(layout, object) || gives_others(schema, object) ||
         object->n_demands))
        find_classes(schema, layout, object, allowed);
    if (!spry_schema_failed(schema))
        spry_object_find_ways(schema, layout, object);
    shape->layout = layout;
}
