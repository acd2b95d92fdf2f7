/* The schema document: places, their URIs, and references between them. */
#include "base/buffer.h"
#include "base/json.h"
#include "base/utf8.h"
#include "grammar/ir/grow.h"
#include "grammar/schema/schema.h"

/* ---- references -------------------------------------------------------------------------------------------------- */

/* Resolves references against base URIs (RFC 3986). Nothing is fetched: URIs are only names. */

/* Length of "scheme:", or 0. */
static size_t scheme_size(spry_view uri)
{
    for (size_t i = 0; i < uri.size; i++) {
        char c = uri.data[i];
        if (c == ':')
            return i ? i + 1 : 0;
        if (c == '/' || c == '?')
            return 0;
    }
    return 0;
}

/* Length of "scheme://authority". */
static size_t authority_end(spry_view uri)
{
    size_t at = scheme_size(uri);
    if (!spry_view_starts((spry_view){uri.data + at, uri.size - at}, SPRY_VIEW("//")))
        return at;
    for (at += 2; at < uri.size && uri.data[at] != '/' && uri.data[at] != '?';)
        at++;
    return at;
}

/* Appends a path and resolves "." and ".."; `start` is where the path begins in `out`. */
static void append_path(spry_buffer *out, size_t start, spry_view path)
{
    size_t at = 0;
    while (at < path.size) {
        size_t end = at;
        while (end < path.size && path.data[end] != '/')
            end++;
        spry_view step = {path.data + at, end - at};
        bool more = end < path.size;
        if (spry_view_is(step, "..")) {
            if (out->size > start) /* the slash after the removed step */
                out->size--;
            while (out->size > start && out->data[out->size - 1] != '/')
                out->size--;
        } else if (!spry_view_is(step, ".")) {
            spry_buffer_append(out, step.data, step.size);
            if (more)
                spry_buffer_text(out, "/");
        }
        at = end + 1;
    }
}

/* Resolves a reference against a base URI (RFC 3986, 5.2), both without fragment. NULL when memory is short. */
static const char *schema_uri(spry_schema *schema, const char *base_text, spry_view reference)
{
    spry_view base = spry_view_of(base_text);
    if (scheme_size(reference) || base.size == 0)
        return spry_arena_copy(&schema->arena, reference);
    if (reference.size == 0)
        return base_text;
    spry_buffer out;
    spry_buffer_init(&out, SPRY_SCHEMA_BYTES_MAX);
    size_t authority = authority_end(base), keep = base.size;
    if (spry_view_starts(reference, SPRY_VIEW("//"))) {
        spry_buffer_append(&out, base.data, scheme_size(base));
        spry_buffer_append(&out, reference.data, reference.size);
    } else if (reference.data[0] == '?') {
        spry_buffer_append(&out, base.data, strcspn(base.data, "?"));
        spry_buffer_append(&out, reference.data, reference.size);
    } else {
        if (reference.data[0] == '/')
            keep = authority;
        while (keep > authority && base.data[keep - 1] != '/')
            keep--;
        spry_buffer_append(&out, base.data, keep);
        append_path(&out, authority < keep ? authority + 1 : keep, reference);
    }
    const char *copy = out.failed ? NULL : spry_arena_copy(&schema->arena, spry_buffer_view(&out));
    spry_buffer_deinit(&out);
    return copy;
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

enum { BYTE_WORK = 20 }; /* the cost of reading a byte of text, in units of work */

/* Keywords that contain schemas. Values of other keywords (enum, const, default) are never schemas. */
typedef enum holds { HOLDS_SCHEMA, HOLDS_LIST, HOLDS_MAP } holds;

static const struct {
    const char *keyword;
    holds holds;
} holders[] = {
    {"$defs", HOLDS_MAP},
    {"definitions", HOLDS_MAP},
    {"properties", HOLDS_MAP},
    {"patternProperties", HOLDS_MAP},
    {"dependentSchemas", HOLDS_MAP},
    {"dependencies", HOLDS_MAP},
    {"allOf", HOLDS_LIST},
    {"anyOf", HOLDS_LIST},
    {"oneOf", HOLDS_LIST},
    {"prefixItems", HOLDS_LIST},
    {"items", HOLDS_SCHEMA},
    {"items", HOLDS_LIST},
    {"additionalItems", HOLDS_SCHEMA},
    {"additionalProperties", HOLDS_SCHEMA},
    {"propertyNames", HOLDS_SCHEMA},
    {"not", HOLDS_SCHEMA},
    {"if", HOLDS_SCHEMA},
    {"then", HOLDS_SCHEMA},
    {"else", HOLDS_SCHEMA},
    {"contains", HOLDS_SCHEMA},
    {"contentSchema", HOLDS_SCHEMA},
    {"unevaluatedItems", HOLDS_SCHEMA},
    {"unevaluatedProperties", HOLDS_SCHEMA},
};

static void fail_memory(spry_schema *schema)
{
    spry_ir_fail(schema->ir, SPRY_ERR_MEMORY, "not enough memory for the JSON schema");
}

/* ---- indexing of places ------------------------------------------------------------------------------------------ */

uint32_t spry_schema_place_at(spry_schema *schema, const json_t *json, uint32_t base)
{
    uint32_t known;
    if (spry_map_find(&schema->place_index, (spry_view){(const char *)&json, sizeof json}, &known))
        return known;
    spry_schema_place *place = spry_schema_alloc(schema, 1, sizeof *place);
    bool added;
    if (!place)
        return UINT32_MAX >> 2;
    place->json = json;
    place->base = base;
    if (!spry_grow(&schema->places, &schema->places_room, schema->n_places + 1, sizeof *schema->places) ||
        !spry_map_add(&schema->place_index, (spry_view){(const char *)&place->json, sizeof json},
                      (uint32_t)schema->n_places, &added)) {
        fail_memory(schema);
        return UINT32_MAX >> 2;
    }
    schema->places[schema->n_places] = place;
    return (uint32_t)schema->n_places++;
}

static void name_place(spry_schema *schema, const char *uri, const char *anchor, uint32_t place)
{
    spry_buffer whole;
    spry_buffer_init(&whole, SPRY_SCHEMA_BYTES_MAX);
    spry_buffer_text(&whole, uri);
    if (anchor)
        spry_buffer_format(&whole, "#%s", anchor);
    char *key = whole.failed ? NULL : spry_arena_copy(&schema->arena, spry_buffer_view(&whole));
    bool added;
    if (!key || !spry_map_add(&schema->uris, (spry_view){key, whole.size}, place, &added))
        fail_memory(schema);
    spry_buffer_deinit(&whole);
}

static uint32_t add_base(spry_schema *schema, const char *uri)
{
    if (!uri || !spry_grow(&schema->bases, &schema->bases_room, schema->n_bases + 1, sizeof *schema->bases)) {
        fail_memory(schema);
        return 0;
    }
    schema->bases[schema->n_bases] = uri;
    return (uint32_t)schema->n_bases++;
}

/* Registers the URIs and anchors of `json`; returns the base URI for its contents. */
static uint32_t index_names(spry_schema *schema, const json_t *json, uint32_t base)
{
    const char *id = spry_schema_text(json_object_get(json, schema->draft == SPRY_DRAFT_04 ? "id" : "$id"));
    if (spry_schema_lone_reference(schema, json))
        id = NULL;
    if (id && id[0] != '#') {
        spry_view uri = {id, strcspn(id, "#")};
        base = add_base(schema, schema_uri(schema, schema->bases[base], uri));
    }
    uint32_t place = spry_schema_place_at(schema, json, base);
    if (spry_schema_failed(schema))
        return base;
    if (id && id[0] == '#') /* an anchor, until draft-07 */
        name_place(schema, schema->bases[base], id + 1, place);
    else if (id)
        name_place(schema, schema->bases[base], NULL, place);
    static const char *const anchors[] = {"$anchor", "$dynamicAnchor"};
    for (size_t i = 0; i < 2; i++) {
        const char *anchor = spry_schema_text(json_object_get(json, anchors[i]));
        if (anchor)
            name_place(schema, schema->bases[base], anchor, place);
    }
    return base;
}

/* The parser limits the depth. */
static void index_schema(spry_schema *schema, const json_t *json, uint32_t base)
{
    if (!json_is_object(json) || spry_schema_failed(schema))
        return;
    base = index_names(schema, json, base);
    for (size_t i = 0; i < sizeof holders / sizeof *holders; i++) {
        const json_t *held = json_object_get(json, holders[i].keyword);
        const char *name;
        json_t *member;
        if (holders[i].holds == HOLDS_SCHEMA)
            index_schema(schema, held, base);
        if (holders[i].holds == HOLDS_MAP)
            json_object_foreach((json_t *)held, name, member) index_schema(schema, member, base);
        if (holders[i].holds == HOLDS_LIST)
            for (size_t k = 0; k < json_array_size(held); k++)
                index_schema(schema, json_array_get(held, k), base);
    }
}

/* ---- references -------------------------------------------------------------------------------------------------- */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Decodes %XX in a fragment, in place. */
static void decode_percent(char *text)
{
    char *out = text;
    for (; *text; text++) {
        int high = *text == '%' ? hex_digit(text[1]) : -1, low = high >= 0 ? hex_digit(text[2]) : -1;
        if (low >= 0) {
            *out++ = (char)(high * 16 + low);
            text += 2;
        } else {
            *out++ = *text;
        }
    }
    *out = 0;
}

/* One step of a JSON pointer, with "~1" and "~0" decoded in place. */
static const json_t *pointer_step(const json_t *from, char *step)
{
    char *out = step;
    for (const char *in = step; *in; in++) {
        bool escaped = *in == '~' && (in[1] == '0' || in[1] == '1');
        *out++ = (char)(!escaped ? *in : in[1] == '0' ? '~' : '/');
        in += escaped;
    }
    *out = 0;
    if (!json_is_array(from))
        return json_object_get(from, step);
    size_t index = 0;
    for (const char *digit = step; *digit; digit++) {
        if (*digit < '0' || *digit > '9' || index > SPRY_SCHEMA_BYTES_MAX)
            return NULL;
        index = index * 10 + (size_t)(*digit - '0');
    }
    return *step ? json_array_get(from, index) : NULL;
}

static const json_t *follow_pointer(const json_t *from, char *pointer)
{
    while (from && *pointer == '/') {
        char *step = pointer + 1;
        pointer = step + strcspn(step, "/");
        bool last = *pointer == 0;
        *pointer = 0;
        from = pointer_step(from, step);
        if (last)
            break;
        *pointer = '/';
    }
    return from;
}

/* The target of a reference, in the resource that `place` belongs to. */
static uint32_t find_target(spry_schema *schema, uint32_t place, const char *reference)
{
    size_t split = strcspn(reference, "#");
    const char *base = schema->bases[schema->places[place]->base];
    const char *uri = split ? schema_uri(schema, base, (spry_view){reference, split}) : base;
    const char *written = reference[split] ? reference + split + 1 : "";
    char *fragment = spry_arena_copy(&schema->arena, spry_view_of(written));
    uint32_t resource, target;
    if (!uri || !fragment) {
        fail_memory(schema);
        return UINT32_MAX;
    }
    decode_percent(fragment);
    if (*fragment && *fragment != '/') {
        spry_buffer name;
        spry_buffer_init(&name, SPRY_SCHEMA_BYTES_MAX);
        spry_buffer_format(&name, "%s#%s", uri, fragment);
        bool found = spry_map_find(&schema->uris, spry_buffer_view(&name), &target);
        spry_buffer_deinit(&name);
        return found ? target : UINT32_MAX;
    }
    if (!spry_map_find(&schema->uris, spry_view_of(uri), &resource))
        return UINT32_MAX;
    const json_t *json = follow_pointer(schema->places[resource]->json, fragment);
    if (!json)
        return UINT32_MAX;
    if (!spry_map_find(&schema->place_index, (spry_view){(const char *)&json, sizeof json}, &target)) {
        index_schema(schema, json, schema->places[resource]->base);
        target = spry_schema_place_at(schema, json, schema->places[resource]->base);
    }
    return target;
}

/* True if a schema can be the target of a dynamic reference with this fragment. */
static bool is_dynamic(const json_t *json, const char *keyword, const char *fragment)
{
    if (strcmp(keyword, "$recursiveRef") == 0)
        return json_is_true(json_object_get(json, "$recursiveAnchor"));
    const char *anchor = spry_schema_text(json_object_get(json, "$dynamicAnchor"));
    return anchor && strcmp(anchor, fragment) == 0;
}

/* Resolves a dynamic reference. It refers to the outermost resource, on the path of schemas from the root, that has the
 * anchor: that is the root's anchor, or the only one. In other cases the target depends on the path, and the reference
 * is refused. */
static uint32_t outermost(spry_schema *schema, uint32_t place, const char *keyword, const char *text, uint32_t target)
{
    const char *fragment = text + strcspn(text, "#");
    fragment += *fragment == '#';
    if (!is_dynamic(schema->places[target]->json, keyword, fragment))
        return target;
    size_t others = 0;
    for (uint32_t i = 0; i < schema->n_places; i++) {
        if (i == target || !is_dynamic(schema->places[i]->json, keyword, fragment))
            continue;
        if (schema->places[i]->base == schema->places[0]->base)
            return i;
        others++;
    }
    if (!others || schema->places[target]->base == schema->places[0]->base)
        return target;
    spry_schema_refuse(schema, SPRY_ERR_UNSUPPORTED, schema->places[place]->json, keyword,
                       "\"%.100s\" can refer to several schemas, none of them in the root's resource", text);
    return UINT32_MAX;
}

uint32_t spry_schema_resolve(spry_schema *schema, uint32_t place, const char *keyword, const json_t *reference)
{
    const json_t *where = schema->places[place]->json;
    const char *text = spry_schema_text(reference);
    if (!text) {
        spry_schema_refuse(schema, SPRY_ERR_INPUT, where, keyword, "must be a string");
        return UINT32_MAX;
    }
    uint32_t target = find_target(schema, place, text);
    if (target == UINT32_MAX)
        spry_schema_refuse(schema, SPRY_ERR_UNSUPPORTED, where, keyword,
                           "\"%.100s\" is not in this schema; nothing outside of it is read", text);
    else if (strcmp(keyword, "$ref") != 0)
        target = outermost(schema, place, keyword, text, target);
    return target;
}

/* ---- reading the document ---------------------------------------------------------------------------------------- */

static const struct {
    const char *uri;
    spry_draft draft;
} dialects[] = {
    {"https://json-schema.org/draft/2020-12/schema", SPRY_DRAFT_2020_12},
    {"https://json-schema.org/draft/2019-09/schema", SPRY_DRAFT_2019_09},
    {"http://json-schema.org/draft-07/schema", SPRY_DRAFT_07},
    {"http://json-schema.org/draft-06/schema", SPRY_DRAFT_06},
    {"http://json-schema.org/draft-04/schema", SPRY_DRAFT_04},
    {"http://json-schema.org/draft-04/hyper-schema", SPRY_DRAFT_04},
    {"http://json-schema.org/schema", SPRY_DRAFT_2020_12},
};

/* Compares URIs of dialects; the scheme and an empty fragment do not distinguish them. */
static bool same_dialect(const char *a, const char *b)
{
    a += strcspn(a, ":");
    b += strcspn(b, ":");
    size_t size = strcspn(a, "#");
    return size == strlen(b) && strncmp(a, b, size) == 0 && (a[size] == 0 || a[size + 1] == 0);
}

static void read_dialect(spry_schema *schema)
{
    const json_t *said = json_object_get(schema->root, "$schema");
    schema->draft = SPRY_DRAFT_2020_12;
    if (!said)
        return;
    for (size_t i = 0; spry_schema_text(said) && i < sizeof dialects / sizeof *dialects; i++) {
        if (same_dialect(json_string_value(said), dialects[i].uri)) {
            schema->draft = dialects[i].draft;
            return;
        }
    }
    spry_schema_refuse(
        schema, SPRY_ERR_UNSUPPORTED, schema->root, "$schema",
        "names a dialect that is not known; drafts 2020-12, 2019-09, draft-07, draft-06 and draft-04 are");
    spry_schema_excuse(schema);
}

void spry_schema_read(spry_schema *schema, spry_view text)
{
    if (text.size > SPRY_SCHEMA_BYTES_MAX) {
        spry_ir_fail(schema->ir, SPRY_ERR_INPUT, "the JSON schema has %zu bytes, more than %d", text.size,
                     SPRY_SCHEMA_BYTES_MAX);
        return;
    }
    spry_ir_spend(schema->ir, BYTE_WORK * text.size);
    if (spry_schema_failed(schema))
        return;
    spry_error why;
    spry_status status = spry_json_read(&schema->root, text, 0, 0, &why);
    if (status) {
        spry_ir_fail(schema->ir, status == SPRY_ERR_FORMAT ? SPRY_ERR_INPUT : status, "the JSON schema: %s",
                     why.message);
        return;
    }
    schema->unevaluated = memmem(text.data, text.size, "\"unevaluated", 12);
    schema->lenient |= json_is_true(json_object_get(schema->root, "x-spry-lenient"));
    read_dialect(schema);
    add_base(schema, "");
    if (spry_schema_failed(schema))
        return;
    index_schema(schema, schema->root, 0);
    uint32_t root = spry_schema_place_at(schema, schema->root, 0); /* the first place */
    if (!spry_schema_failed(schema))
        name_place(schema, "", NULL, root);
}
