/* Keys and values in pages (kernels/kv_layout.h), and RoPE. */
layout(constant_id = 0) const uint PAGES = 2; /* bytes of a float; 1: q8_0 */

const uint PAGE_TOKENS = 32, Q8_BLOCK = 34;

/* The address of a head's keys, or values, in a page. */
uint64_t head_address(spry_kv_pages kv, uint64_t offset, uint page, uint head)
{
    return kv.pages + page * kv.page_bytes + offset + uint64_t(head) * kv.head_bytes;
}

float load_key(uint64_t keys, uint d, uint token, uint head_dim)
{
    uint at = d * PAGE_TOKENS + token;
    if (PAGES == 4)
        return Floats(keys).v[at];
    if (PAGES == 2)
        return float_of_half(uint(Shorts(keys).v[at]));
    uint scale = uint(Shorts(keys + head_dim * PAGE_TOKENS).v[d / 32 * PAGE_TOKENS + token]);
    return float_of_half(scale) * float(SignedBytes(keys).v[at]);
}

/* `token`: the address of the token's values. */
float load_value(uint64_t token, uint d)
{
    if (PAGES == 4)
        return Floats(token).v[d];
    if (PAGES == 2)
        return float_of_half(uint(Shorts(token).v[d]));
    uint64_t block = token + d / 32 * Q8_BLOCK;
    return float_of_half(uint(Shorts(block).v[0])) * float(SignedBytes(block + 2).v[d % 32]);
}
