/* What gemv.comp and gemm.comp share, so that a row has the same bits in both: the order of sums. K is divided into
 * SPRY_SPLIT_K splits of whole units; in a split the blocks are added in order, then the splits in order. The products
 * of a block are added in order, then sum += that.
 * Rows are stored one after the other: for quants and BF16 weights as bf16, for others as floats. */
const bool BF16_ACTS = BITS != 0 || FLOATS == 2;

uint split_begin(uint n_units, uint split)
{
    return n_units * split / SPRY_SPLIT_K;
}

/* Four activations from number `at` on. */
vec4 activations_at(uint64_t at)
{
    if (!BF16_ACTS)
        return uintBitsToFloat(Quads(args.a.act.values + at * 4).v[0]);
    uvec2 words = Pairs(args.a.act.values + at * 2).v[0];
    return vec4(float_of_bf16(words.x & 0xffff), float_of_bf16(words.x >> 16), float_of_bf16(words.y & 0xffff),
                float_of_bf16(words.y >> 16));
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
