/* What gemv.comp and gemm.comp share, so that a row has the same bits in both: the order of sums. K is divided into
 * SPRY_SPLIT_K splits of whole units; in a split the blocks are added in order, then the splits in order.
 *   quants: sum += act_scale * (scale * (integer product) + min * sum of the act's bytes); 16 inputs with a scale of
 *           their own are added as two products
 *   floats: the products of a block in order, then sum += that
 * Rows are stored one after the other: bytes and {scale, sum of the bytes} of blocks of 32; for BF16 weights bf16, for
 * others floats. */
#extension GL_EXT_spirv_intrinsics : require
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6018, 6019], id = 4450)
int packed_dot(uint a, uint b, spirv_literal int packed_format);

int dot4(uint a, uint b)
{
    return packed_dot(a, b, 0);
}

uint split_begin(uint n_units, uint split)
{
    return n_units * split / SPRY_SPLIT_K;
}

/* Integer products of the lower and the upper half of a block. */
ivec2 block_products(const uint w[8], uvec4 lower, uvec4 upper)
{
    ivec2 sums = ivec2(0);
    [[unroll]] for (uint j = 0; j < 4; j++) {
        sums.x += dot4(w[j], lower[j]);
        sums.y += dot4(w[4 + j], upper[j]);
    }
    return sums;
}

/* What a block adds to a sum. act: scale and sum of the bytes. */
float block_value(ivec2 products, vec3 scales, vec2 act)
{
    precise float value;
    if (GROUP == 16) {
        precise float lower = scales.x * float(products.x), upper = scales.y * float(products.y);
        value = lower + upper;
    } else {
        int product = products.x + products.y;
        if (ZERO != 0)
            product -= int(ZERO) * int(act.y);
        value = scales.x * float(product);
        if (MIN == 1)
            value += scales.z * act.y;
    }
    precise float result = act.x * value;
    return result;
}

/* The part of a launch that a tile belongs to. */
uint part_of(uint tile)
{
    uint part = 0;
    for (uint i = 1; i < args.a.n_parts; i++)
        part = tile >= args.a.parts[i].first_tile ? i : part;
    return part;
}

/* The expert of a row: 0 without experts, negative: none. */
int expert_of(uint row)
{
    return args.a.experts != 0 ? Ints(args.a.experts).v[row / args.a.expert_rows] : 0;
}

/* Stores a sum: the norm's scale, the bias, the old value. */
void store_sum(uint part, int expert, uint row, uint o, float sum)
{
    spry_gemm_part p = args.a.parts[part];
    uint64_t at = p.out_ + (uint64_t(row) * p.stride + o) * 4;
    precise float value = sum;
    if (args.a.act.norms != 0)
        value *= float_at(args.a.act.norms, row);
    if (p.bias != 0)
        value += float_at(p.bias, uint(expert) * p.weight.n_out + o);
    if (args.a.add != 0)
        value += Floats(at).v[0];
    Floats(at).v[0] = value;
}
