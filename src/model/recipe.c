/* The recipes and the rules they share. */
#include "model/recipe.h"

#include <strings.h>

#include "base/compiler.h"
#include "base/number.h"

/* X(name, matrices, finer, embedding, file type) */
#define RECIPES(X)                                                                                                     \
    X("q4_0", Q4_0, Q4_0, Q8_0, 2)                                                                                     \
    X("q4_1", Q4_1, Q4_1, Q8_0, 3)                                                                                     \
    X("q4_k_m", Q4_K, Q6_K, Q6_K, 15)                                                                                  \
    X("q5_0", Q5_0, Q5_0, Q8_0, 8)                                                                                     \
    X("q5_1", Q5_1, Q5_1, Q8_0, 9)                                                                                     \
    X("q5_k_m", Q5_K, Q6_K, Q6_K, 17)                                                                                  \
    X("q6_k", Q6_K, Q6_K, Q6_K, 18)                                                                                    \
    X("q8_0", Q8_0, Q8_0, Q8_0, 7)                                                                                     \
    X("f16", F16, F16, F16, 1)                                                                                         \
    X("bf16", BF16, BF16, BF16, 32)                                                                                    \
    X("f32", F32, F32, F32, 0)

#define RECIPE(name, matrices, finer, embedding, id) {name, SPRY_##matrices, SPRY_##finer, SPRY_##embedding, id},
#define NAME(name, matrices, finer, embedding, id)   name,
#define LISTED(name, matrices, finer, embedding, id) ", " name

static const spry_recipe recipes[] = {RECIPES(RECIPE)};
const char *const spry_recipe_names[] = {RECIPES(NAME) NULL};

spry_status spry_recipe_find(const spry_recipe **out, const char *name, spry_error *error)
{
    static const char known[] = RECIPES(LISTED);
    for (size_t i = 0; i < SPRY_COUNT(recipes); i++)
        if (!strcasecmp(recipes[i].name, name)) {
            *out = &recipes[i];
            return SPRY_OK;
        }
    return spry_fail(error, SPRY_ERR_INPUT, "type '%.40s' cannot be written; known are %s", name, known + 2);
}

/* Splits "blk.7.attn_v.weight" into 7 and "attn_v"; false for tensors that belong to no layer. */
static bool split_name(uint64_t *layer, spry_view *what, spry_view name)
{
    const spry_view prefix = SPRY_VIEW("blk."), suffix = SPRY_VIEW(".weight");
    if (!spry_view_starts(name, prefix) || !spry_view_ends(name, suffix) || name.size < prefix.size + suffix.size)
        return false;
    *what = (spry_view){name.data + prefix.size, name.size - prefix.size - suffix.size};
    size_t dot = 0;
    while (dot < what->size && what->data[dot] != '.')
        dot++;
    if (dot == what->size || !spry_number_u64(layer, (spry_view){what->data, dot}))
        return false;
    *what = (spry_view){what->data + dot + 1, what->size - dot - 1};
    return true;
}

/* Matrices whose errors reach furthest: what attention hands on, and what goes back into the residual stream. */
static bool weighs_more(spry_view what)
{
    static const char *const names[] = {"attn_v", "attn_qkv", "ffn_down", "ffn_down_exps", "ffn_down_shexp"};
    for (size_t i = 0; i < SPRY_COUNT(names); i++)
        if (spry_view_is(what, names[i]))
            return true;
    return false;
}

/* The first and the last eighth of the layers, and every third between. */
static bool layer_counts(uint64_t layer, uint32_t n_layers)
{
    uint64_t eighth = n_layers / 8;
    return layer < eighth || layer >= (uint64_t)n_layers * 7 / 8 || (layer - eighth) % 3 == 2;
}

/* The type with blocks of 32 that stands in for one with blocks of 256. */
static spry_dtype small_instead(spry_dtype type)
{
    switch (type) {
    case SPRY_Q4_K: return SPRY_Q5_0;
    case SPRY_Q5_K: return SPRY_Q5_1;
    case SPRY_Q6_K: return SPRY_Q8_0;
    default: return type;
    }
}

spry_dtype spry_recipe_type(const spry_recipe *recipe, spry_view name, uint32_t n_layers, uint32_t n_dims, size_t n_in)
{
    uint64_t layer;
    spry_view what;
    spry_dtype type = recipe->matrices;
    if (n_dims < 2 || spry_view_is(name, "position_embd.weight") || spry_view_is(name, "token_types.weight"))
        return SPRY_F32;
    if (spry_view_is(name, "token_embd.weight") || spry_view_is(name, "output.weight")) {
        type = recipe->embedding;
    } else if (split_name(&layer, &what, name)) {
        if (spry_view_is(what, "ffn_gate_inp") || spry_view_is(what, "ffn_gate_inp_shexp"))
            return SPRY_F32; /* routers are small, and decide */
        if (spry_view_is(what, "shortconv.conv"))
            return SPRY_F32;
        if (weighs_more(what) && layer_counts(layer, n_layers))
            type = recipe->finer;
    }
    if (n_in % spry_dtype_block(type))
        type = small_instead(type);
    return n_in % spry_dtype_block(type) ? SPRY_F16 : type;
}
