/* Writes an object: for each way to meet its demands, the members by name and by classes of names. */
#include "grammar/schema/schema.h"

#include "grammar/schema/json_spelling.h"

typedef struct member_counts {
    size_t names, required, classes, witnesses;
    bool impossible; /* a required member is not possible */
} member_counts;

/* The witness for a declared name in one way; NULL: none. */
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

/* Whether members of a class may come besides witnesses. An answer has only the witness, so that its name cannot come
 * again with another value. */
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

/* The text between the braces in one way. */
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
