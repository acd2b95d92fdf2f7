/* The table behind dtype.h. */
#include "base/dtype.h"

#include <strings.h>

#include "base/checked.h"
#include "base/compiler.h"

static const struct {
    const char *name;
    size_t block, bytes;
} types[SPRY_DTYPE_COUNT] = {
    [SPRY_F32] = {"F32", 1, 4},
    [SPRY_F16] = {"F16", 1, 2},
    [SPRY_BF16] = {"BF16", 1, 2},
    [SPRY_Q4_0] = {"Q4_0", 32, 18},
    [SPRY_Q4_1] = {"Q4_1", 32, 20},
    [SPRY_Q5_0] = {"Q5_0", 32, 22},
    [SPRY_Q5_1] = {"Q5_1", 32, 24},
    [SPRY_Q8_0] = {"Q8_0", 32, 34},
    [SPRY_Q2_K] = {"Q2_K", 256, 84},
    [SPRY_Q3_K] = {"Q3_K", 256, 110},
    [SPRY_Q4_K] = {"Q4_K", 256, 144},
    [SPRY_Q5_K] = {"Q5_K", 256, 176},
    [SPRY_Q6_K] = {"Q6_K", 256, 210},
    [SPRY_IQ4_NL] = {"IQ4_NL", 32, 18},
    [SPRY_IQ4_XS] = {"IQ4_XS", 256, 136},
    [SPRY_TQ1_0] = {"TQ1_0", 256, 54},
    [SPRY_TQ2_0] = {"TQ2_0", 256, 66},
    [SPRY_MXFP4] = {"MXFP4", 32, 17},
    [SPRY_IQ2_XXS] = {"IQ2_XXS", 256, 66},
    [SPRY_IQ2_XS] = {"IQ2_XS", 256, 74},
    [SPRY_IQ2_S] = {"IQ2_S", 256, 82},
    [SPRY_IQ3_XXS] = {"IQ3_XXS", 256, 98},
    [SPRY_IQ3_S] = {"IQ3_S", 256, 110},
    [SPRY_I32] = {"I32", 1, 4},
    [SPRY_U8] = {"U8", 1, 1},
    [SPRY_F8_E4M3] = {"F8_E4M3", 1, 1},
    [SPRY_F8] = {"F8", 32, 36},
};

bool spry_dtype_known(uint32_t id)
{
    return id < SPRY_DTYPE_COUNT && types[id].name && id != SPRY_I32 && id != SPRY_U8 && id != SPRY_F8_E4M3;
}

bool spry_dtype_in_gguf(uint32_t id)
{
    return id < SPRY_U8 && spry_dtype_known(id);
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
        if (spry_dtype_in_gguf(i) && strlen(types[i].name) == name.size &&
            !strncasecmp(types[i].name, name.data, name.size)) {
            *type = (spry_dtype)i;
            return true;
        }
    return false;
}

const char *spry_dtype_names(void)
{
    return "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ2_XXS, IQ2_XS, IQ2_S, "
           "IQ3_XXS, IQ3_S, IQ4_NL, IQ4_XS, TQ1_0, TQ2_0, MXFP4";
}
