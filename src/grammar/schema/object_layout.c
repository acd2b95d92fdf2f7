/* Determines the members an object may have, by name and by classes of names, and writes the object.
 *
 * The parts of an object shape come from different schemas, and each evaluates a name separately: with its properties
 * and patternProperties, or else its additionalProperties. So names listed in any schema are evaluated one by one, and
 * all others are divided into classes by the patterns. A member's goal is the union of all claims about its name. */
#include "grammar/schema/schema.h"

#include "grammar/schema/json_spelling.h"

/* ---- what a part says about a name ------------------------------------------------------------------------------- */

static const json_t *part_json(const spry_schema *schema, const spry_object_part *part)
{
    return part->kind == SPRY_PART_NAME ? NULL : schema->places[part->place]->json;
}

static spry_ir_node pattern_of(spry_schema *schema, const spry_object_part *part, const char *pattern)
{
    return spry_schema_pattern_node(schema, part_json(schema, part), "patternProperties", spry_view_of(pattern));
}

static spry_claims add_schema_claim(spry_schema *schema, spry_claims claims, const spry_object_part *part,
                                    const json_t *said)
{
    return spry_claims_add(schema, claims, spry_schema_claim(schema, part->place, said, false));
}

/* The claims of a schema about a name that it does not list; `matched` by one of its patterns. */
static spry_claims about_other_name(spry_schema *schema, spry_claims claims, const spry_object_part *part, bool matched)
{
    const json_t *additional = spry_schema_additional(part_json(schema, part));
    return additional && !matched ? add_schema_claim(schema, claims, part, additional) : claims;
}

static spry_claims about_name(spry_schema *schema, spry_claims claims, const spry_object_part *part, const char *name)
{
    const json_t *json = part_json(schema, part);
    if (part->kind == SPRY_PART_NAME)
        return strcmp(part->name, name) == 0 ? spry_claims_add(schema, claims, part->claim) : claims;
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
        if (!spry_schema_accepts(schema, pattern_of(schema, part, pattern), name))
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

/* Collects every name listed in any part. */
static void collect_names(spry_schema *schema, name_list *list, const spry_object_shape *object)
{
    size_t room = object->n_names;
    for (size_t i = 0; i < object->n_parts; i++) {
        const json_t *json = part_json(schema, &object->parts[i]);
        room += 1 + json_object_size(json) + json_object_size(json_object_get(json, "properties"));
    }
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
}

static void find_name_goals(spry_schema *schema, spry_layout *layout, const spry_object_shape *object,
                            spry_ir_node allowed)
{
    for (size_t n = 0; n < layout->n_names && !spry_schema_failed(schema); n++) {
        spry_layout_name *name = &layout->names[n];
        name->goal = spry_schema_goal(schema, spry_object_claims(schema, object, name->name));
        if (object->key_claims.count && !spry_schema_accepts(schema, allowed, name->name))
            name->absent = true;
    }
}

/* ---- classes of other names -------------------------------------------------------------------------------------- */

/* Names that match some patterns and not others, and the claims about them. */
typedef struct name_class {
    spry_ir_node key;
    spry_claims claims;
    bool matched; /* by a pattern of the current part */
    bool given;   /* some schema says that such names may come */
} name_class;

/* Splits each class into names that match and names that do not. */
static void split_classes(spry_schema *schema, name_class *classes, size_t *count, const spry_object_part *part,
                          const char *pattern, const json_t *said)
{
    spry_ir *ir = schema->ir;
    spry_ir_node language = pattern_of(schema, part, pattern);
    for (size_t i = 0, before = *count; i < before && !spry_schema_failed(schema); i++) {
        name_class inside = classes[i];
        inside.key = spry_schema_meet(schema, classes[i].key, language);
        if (spry_schema_is_never(schema, inside.key))
            continue;
        inside.matched = inside.given = true;
        inside.claims = add_schema_claim(schema, classes[i].claims, part, said);
        classes[i].key = spry_ir_subtract(ir, classes[i].key, language);
        if (spry_schema_is_never(schema, classes[i].key))
            classes[i] = inside;
        else if (*count < SPRY_SCHEMA_CLASSES_MAX)
            classes[(*count)++] = inside;
        else
            spry_schema_refuse(schema, SPRY_ERR_UNSUPPORTED, part_json(schema, part), "patternProperties",
                               "patterns overlap in more than %d ways", SPRY_SCHEMA_CLASSES_MAX);
    }
}

/* True when no part allows other names: the common closed object, which needs no classes. */
static bool is_closed(spry_schema *schema, const spry_object_shape *object)
{
    for (size_t i = 0; i < object->n_parts; i++) {
        const json_t *json = part_json(schema, &object->parts[i]);
        if (object->parts[i].kind == SPRY_PART_VALUE ||
            (json_is_false(spry_schema_additional(json)) &&
             json_object_size(json_object_get(json, "patternProperties")) == 0))
            return true;
    }
    return false;
}

/* Whether the declared names are too few: then an answer may have others, too. */
static bool needs_others(const spry_layout *layout, const spry_object_shape *object)
{
    size_t possible = 0;
    for (size_t i = 0; i < layout->n_names; i++)
        possible += !layout->names[i].absent;
    return possible == 0 || possible < object->min;
}

/* Whether some schema says that undeclared names may come. */
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

static void find_classes(spry_schema *schema, spry_layout *layout, const spry_object_shape *object,
                         spry_ir_node allowed)
{
    name_class classes[SPRY_SCHEMA_CLASSES_MAX];
    size_t count = 1;
    classes[0] = (name_class){.key = spry_names_except(schema, layout->names, layout->n_names)};
    if (object->key_claims.count)
        classes[0].key = spry_schema_meet(schema, classes[0].key, allowed);
    for (size_t p = 0; p < object->n_parts; p++) {
        const spry_object_part *part = &object->parts[p];
        if (part->kind != SPRY_PART_SCHEMA)
            continue;
        for (size_t i = 0; i < count; i++)
            classes[i].matched = false;
        const char *pattern;
        json_t *said;
        json_object_foreach(json_object_get(part_json(schema, part), "patternProperties"), pattern, said)
            split_classes(schema, classes, &count, part, pattern, said);
        for (size_t i = 0; i < count; i++) {
            classes[i].claims = about_other_name(schema, classes[i].claims, part, classes[i].matched);
            classes[i].given |= spry_schema_additional(part_json(schema, part)) != NULL;
        }
    }
    bool infinite = count == 1 && !object->key_claims.count; /* all names except some */
    layout->classes = spry_schema_alloc(schema, count, sizeof *layout->classes);
    bool all = !spry_schema_writes(schema) || needs_others(layout, object);
    for (size_t i = 0; layout->classes && i < count && !spry_schema_failed(schema); i++)
        if (!all && !classes[i].given)
            continue;
        else if (infinite || !spry_schema_is_never(schema, classes[i].key))
            layout->classes[layout->n_classes++] =
                (spry_layout_class){classes[i].key, spry_schema_goal(schema, classes[i].claims)};
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
    if (!spry_schema_failed(schema) && !is_closed(schema, object) && object->max > 0 &&
        (!spry_schema_writes(schema) || needs_others(layout, object) || gives_others(schema, object)))
        find_classes(schema, layout, object, allowed);
    shape->layout = layout;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

typedef struct member_counts {
    size_t names, required, classes;
    bool impossible; /* a required member is not possible */
} member_counts;

static bool can_be(const spry_schema *schema, const spry_layout_name *name)
{
    return !name->absent && schema->goals[name->goal]->productive;
}

static member_counts count_members(const spry_schema *schema, const spry_layout *layout)
{
    member_counts counts = {0};
    for (size_t i = 0; i < layout->n_names; i++) {
        bool possible = can_be(schema, &layout->names[i]);
        counts.names += possible;
        counts.required += layout->names[i].required;
        counts.impossible |= layout->names[i].required && !possible;
    }
    for (size_t i = 0; i < layout->n_classes; i++)
        counts.classes += schema->goals[layout->classes[i].goal]->productive;
    return counts;
}

bool spry_object_is_productive(const spry_schema *schema, const spry_shape *shape)
{
    member_counts counts = count_members(schema, shape->layout);
    return !counts.impossible && counts.required <= shape->as.object.max &&
           (counts.classes || counts.names >= shape->as.object.min);
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

static spry_ir_node write_members(spry_schema *schema, const spry_shape *shape, member_counts counts)
{
    const spry_layout *layout = shape->layout;
    size_t count = 0;
    spry_ir_member *members = spry_schema_alloc(schema, counts.names + counts.classes, sizeof *members);
    if (!members)
        return SPRY_IR_NONE;
    for (size_t i = 0; i < layout->n_names; i++) {
        const spry_layout_name *name = &layout->names[i];
        if (can_be(schema, name))
            members[count++] = (spry_ir_member){.key = write_key(schema, spell_name(schema, name->name)),
                                                .value = spry_goal_node(schema, name->goal),
                                                .required = name->required};
    }
    for (size_t i = 0; i < layout->n_classes; i++)
        if (schema->goals[layout->classes[i].goal]->productive)
            members[count++] = (spry_ir_member){.key = write_key(schema, layout->classes[i].key),
                                                .value = spry_goal_node(schema, layout->classes[i].goal),
                                                .many = true};
    uint32_t min = shape->as.object.min > 1 ? shape->as.object.min : 1;
    spry_ir_node (*join)(spry_ir *, const spry_ir_member *, size_t, spry_ir_node, uint32_t, uint32_t) =
        spry_schema_writes(schema) ? spry_ir_members_ordered : spry_ir_members;
    return join(schema->ir, members, count, schema->comma, min, shape->as.object.max);
}

spry_ir_node spry_object_write(spry_schema *schema, const spry_shape *shape)
{
    spry_ir *ir = schema->ir;
    const spry_object_shape *object = &shape->as.object;
    member_counts counts = count_members(schema, shape->layout);
    if (counts.classes && object->min > 1 && object->min > counts.required + 1)
        spry_schema_refuse(
            schema, SPRY_ERR_UNSUPPORTED, object->min_at, "minProperties",
            "%u cannot be enforced where members of any name may come, for a name could come twice; name "
            "the members and set additionalProperties to false",
            object->min);
    spry_ir_node inside = spry_ir_never(ir);
    bool filled = counts.names + counts.classes > 0 && object->max > 0;
    if (filled)
        inside =
            spry_ir_sequence(ir, (spry_ir_node[]){schema->gap, write_members(schema, shape, counts), schema->gap}, 3);
    if (!filled || (counts.required == 0 && object->min == 0))
        inside = spry_ir_choice(ir, (spry_ir_node[]){inside, schema->empty_gap}, 2);
    spry_ir_node whole[] = {spry_ir_literal(ir, SPRY_VIEW("{")), inside, spry_ir_literal(ir, SPRY_VIEW("}"))};
    return spry_ir_sequence(ir, whole, 3);
}
