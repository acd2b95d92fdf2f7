/* Walks the shape and the document side by side. */
#include "cli/json_shape.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/json.h"

enum { ITEMS_MAX = 1000, TEXT_BYTES_MAX = 2000, PATH_BYTES = 160, KEY_BYTES = 64 };
static const double largest = 1e15;

typedef struct checker {
    char path[PATH_BYTES]; /* path of the value being checked */
    size_t size;
    spry_error *error;
} checker;

static spry_status check(checker *c, const json_t *json, const json_t *shape);

static spry_status wrong(const checker *c, const char *what)
{
    return spry_fail(c->error, SPRY_ERR_FORMAT, "\"%s\" %s", c->path, what);
}

/* Extends the path by a key or an index; returns its previous size. */
static size_t enter(checker *c, const char *format, ...) SPRY_PRINTF(2, 3);

static size_t enter(checker *c, const char *format, ...)
{
    const size_t before = c->size;
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(c->path + before, sizeof c->path - before, format, args);
    va_end(args);
    c->size = before + (length > 0 ? (size_t)length : 0);
    if (c->size >= sizeof c->path)
        c->size = sizeof c->path - 1;
    return before;
}

static void leave(checker *c, size_t before)
{
    c->path[c->size = before] = '\0';
}

static spry_status check_number(const checker *c, const json_t *json)
{
    const double value = json_number_value(json);
    if (!json_is_number(json))
        return wrong(c, "is not a number");
    if (!isfinite(value) || fabs(value) > largest)
        return wrong(c, "is larger than anything that can be measured");
    return value < 0 ? wrong(c, "is below 0") : SPRY_OK;
}

static spry_status check_list(checker *c, const json_t *json, const json_t *shape)
{
    spry_status status = SPRY_OK;
    if (!json_is_array(json))
        return wrong(c, "is not a list");
    if (json_array_size(json) > ITEMS_MAX)
        return wrong(c, "has more than 1000 items");
    for (size_t i = 0; !status && i < json_array_size(json); i++) {
        const size_t before = enter(c, "[%zu]", i);
        status = check(c, json_array_get(json, i), shape);
        leave(c, before);
    }
    return status;
}

/* Checks one key. The shape's key may end in '!'. */
static spry_status check_key(checker *c, const json_t *json, const char *key, const json_t *shape)
{
    char name[KEY_BYTES];
    const size_t size = strlen(key);
    const bool required = key[size - 1] == '!';
    snprintf(name, sizeof name, "%.*s", (int)(size - required), key);
    const json_t *value = json_object_get(json, name);
    const size_t before = enter(c, "%s%s", c->size ? "." : "", name);
    spry_status status = SPRY_OK;
    if (value && !json_is_null(value))
        status = check(c, value, shape);
    else if (required)
        status = wrong(c, value ? "is null" : "is missing");
    leave(c, before);
    return status;
}

static spry_status check_object(checker *c, const json_t *json, json_t *shape)
{
    const json_t *any = json_object_get(shape, "*");
    const char *key;
    json_t *value;
    if (!json_is_object(json))
        return wrong(c, "is not an object");
    if (any && json_object_size(json) > ITEMS_MAX)
        return wrong(c, "has more than 1000 keys");
    json_object_foreach(any ? (json_t *)json : shape, key, value)
    {
        const size_t before = any ? enter(c, "%s%.60s", c->size ? "." : "", key) : c->size;
        const spry_status status = any ? check(c, value, any) : check_key(c, json, key, value);
        if (status)
            return status;
        leave(c, before);
    }
    return SPRY_OK;
}

static spry_status check(checker *c, const json_t *json, const json_t *shape)
{
    switch (json_typeof(shape)) {
    case JSON_OBJECT: return check_object(c, json, (json_t *)shape);
    case JSON_ARRAY: return check_list(c, json, json_array_get(shape, 0));
    case JSON_TRUE: return json_is_boolean(json) ? SPRY_OK : wrong(c, "is neither true nor false");
    case JSON_STRING:
        if (!json_is_string(json))
            return wrong(c, "is not a string");
        return json_string_length(json) <= TEXT_BYTES_MAX ? SPRY_OK : wrong(c, "is longer than 2000 bytes");
    default: return check_number(c, json);
    }
}

spry_status spry_json_check(const json_t *json, const char *shape, spry_error *error)
{
    checker c = {.size = 0, .error = error};
    json_t *example = spry_json_value(spry_view_of(shape));
    const spry_status status = example ? check(&c, json, example) : spry_fail_memory(error, "the shape of a file", 0);
    json_decref(example);
    return status;
}
