/* The table of element types. */
#include "base/dtype.h"

#include <strings.h>

#include "base/compiler.h"
#include "base/number.h"

typedef enum dtype_use { UNUSED, IN_GGUF, OWN, PART } dtype_use;

#define GGUF_LINE(NAME, name, id, block, bytes, packed) [id] = {#NAME, block, bytes, IN_GGUF},
#define OWN_LINE(NAME, name, id, block, bytes, packed)  [id] = {#NAME, block, bytes, OWN},
#define PART_LINE(NAME, name, id, block, bytes, packed) [id] = {#NAME, block, bytes, PART},

static const struct {
    const char *name;
    size_t block, bytes;
    dtype_use use;
} types[SPRY_DTYPE_COUNT] = {SPRY_DTYPES_GGUF(GGUF_LINE) SPRY_DTYPES_OWN(OWN_LINE) SPRY_DTYPES_PART(PART_LINE)};

bool spry_dtype_known(uint32_t id)
{
    return id < SPRY_DTYPE_COUNT && (types[id].use == IN_GGUF || types[id].use == OWN);
}

bool spry_dtype_in_gguf(uint32_t id)
{
    return id < SPRY_DTYPE_COUNT && (types[id].use == IN_GGUF || id == SPRY_I32);
}

const char *spry_dtype_name(spry_dtype type)
{
    return types[type].name;
}

size_t spry_dtype_block(spry_dtype type)
{
    return types[type].block;
}

size_t spry_dtype_bytes(spry_dtype type)
{
    return types[type].bytes;
}

bool spry_dtype_size(size_t *bytes, spry_dtype type, size_t count)
{
    return count % types[type].block == 0 && spry_checked_mul(bytes, count / types[type].block, types[type].bytes);
}

bool spry_dtype_find(spry_dtype *type, spry_view name)
{
    for (uint32_t i = 0; i < SPRY_DTYPE_COUNT; i++)
        if (types[i].use == IN_GGUF && strlen(types[i].name) == name.size &&
            !strncasecmp(types[i].name, name.data, name.size)) {
            *type = (spry_dtype)i;
            return true;
        }
    return false;
}

const char *spry_dtype_names(void)
{
#define LISTED(NAME, ...) ", " #NAME
    static const char names[] = SPRY_DTYPES_GGUF(LISTED);
    return names + strlen(", ");
}
