/* Between the QKV product and attention: q = rope(norm(q)), k = rope(norm(k)); keys and values go into their pages.
 * Grid: (rows / 16, heads of q, then of k, then of v); 32 threads have a row at a time. Shared memory: the heads of the
 * workgroup's 8 rows. */
#version 450
#include "common.glsl"
#include "pages.glsl"
layout(local_size_x = 256) in;
ARGUMENTS(spry_rope_kv_args);

const uint LANES = 32, AT_ONCE = 8, HEAD_MAX = 640;
shared float heads[AT_ONCE][HEAD_MAX];
shared float lanes[AT_ONCE][LANES];

/* The largest of 32 values of a group of threads, and their sum in order. */
float group_max(uint group, uint lane, float value)
{
    barrier();
    lanes[group][lane] = value;
    barrier();
    float most = lanes[group][0];
    for (uint i = 1; i < LANES; i++)
        most = max(most, lanes[group][i]);
    return most;
}

float group_sum(uint group, uint lane, float value)
{
    barrier();
    lanes[group][lane] = value;
    barrier();
    precise float sum = lanes[group][0];
    for (uint i = 1; i < LANES; i++)
        sum += lanes[group][i];
    return sum;
}

void normalise(uint group, uint lane, uint64_t weight, uint n)
{
    precise float squares = 0;
    for (uint d = lane; d < n; d += LANES)
        squares += heads[group][d] * heads[group][d];
    precise float scale = 1 / sqrt(group_sum(group, lane, squares) / float(n) + args.a.eps);
    for (uint d = lane; d < n; d += LANES)
        heads[group][d] = heads[group][d] * scale * float_at(weight, d);
}

void rotate(uint group, uint lane, uint row)
{
    uint n = args.a.n_pairs;
    uint64_t cosine = row_at(args.a.cosine, row, n), sine = row_at(args.a.sine, row, n);
    for (uint i = lane; i < n; i += LANES) {
        uint first = args.a.interleaved != 0 ? 2 * i : i, second = args.a.interleaved != 0 ? first + 1 : i + n;
        float x = heads[group][first], y = heads[group][second];
        precise float a = x * float_at(cosine, i) - y * float_at(sine, i),
                      b = x * float_at(sine, i) + y * float_at(cosine, i);
        heads[group][first] = a;
        heads[group][second] = b;
    }
}

/* Stores 32 values as q8_0, as ref/encode_ref.c quantises; returns the lane's quant. */
int quantise(uint group, uint lane, float value, out uint scale)
{
    value = isnan(value) ? 0 : clamp(value, -8388608.0, 8388608.0);
    float most = group_max(group, lane, abs(value));
    scale = half_bits(min(most / 127, 65504.0));
    if (most > 127.5 * float_of_half(scale) && scale < 0x7bff)
        scale++;
    float step = float_of_half(scale), inverse = step != 0 ? 1 / step : 0;
    return int(roundEven(clamp(value * inverse, -127.0, 127.0)));
}

void store_q8(uint group, uint lane, uint64_t to, bool is_k, uint slot, uint n, bool valid)
{
    for (uint d = lane; d < n; d += LANES) {
        uint scale, block = d / 32;
        int quant = quantise(group, lane, heads[group][d], scale);
        if (!valid)
            continue;
        SignedBytes(to).v[is_k ? d * PAGE_TOKENS + slot : block * Q8_BLOCK + 2 + lane] = int8_t(quant);
        if (lane == 0 && is_k)
            Shorts(to + n * PAGE_TOKENS).v[block * PAGE_TOKENS + slot] = uint16_t(scale);
        else if (lane == 0)
            Shorts(to + block * Q8_BLOCK).v[0] = uint16_t(scale);
    }
}

void store_floats(uint group, uint lane, uint64_t to, bool is_k, uint slot, uint n)
{
    for (uint d = lane; d < n; d += LANES) {
        uint at = is_k ? d * PAGE_TOKENS + slot : d;
        if (PAGES == 4)
            Floats(to).v[at] = heads[group][d];
        else
            Shorts(to).v[at] = uint16_t(half_bits(heads[group][d]));
    }
}

void main()
{
    uint group = gl_LocalInvocationID.x / LANES, lane = gl_LocalInvocationID.x % LANES, head = gl_WorkGroupID.y;
    uint n_heads = args.a.n_heads, n_kv = args.a.kv.n_kv_heads, n = args.a.kv.head_dim;
    bool is_q = head < n_heads, is_k = !is_q && head < n_heads + n_kv;
    uint kv_head = is_q ? 0 : (head - n_heads) % n_kv;
    uint64_t norm = is_q ? args.a.q_norm : is_k ? args.a.k_norm : 0;
    uint64_t source = is_q ? args.a.q : is_k ? args.a.k : args.a.v;
    uint own = is_q ? head : kv_head, each = is_q ? n_heads : n_kv;
    for (uint first = gl_WorkGroupID.x * SPRY_ROPE_KV_ROWS;
         first < min((gl_WorkGroupID.x + 1) * SPRY_ROPE_KV_ROWS, args.a.n_rows); first += AT_ONCE) {
        bool valid = first + group < args.a.n_rows;
        uint row = valid ? first + group : args.a.n_rows - 1;
        uint64_t from = row_at(source, row * each + own, n);
        barrier();
        for (uint d = lane; d < n; d += LANES)
            heads[group][d] = float_at(from, d);
        barrier();
        if (norm != 0)
            normalise(group, lane, norm, n);
        barrier();
        if (is_q || is_k)
            rotate(group, lane, row);
        barrier();
        if (is_q) {
            for (uint d = lane; valid && d < n; d += LANES)
                Floats(from).v[d] = heads[group][d];
            continue;
        }
        spry_step_row r = Rows(args.a.rows).v[row];
        uint64_t to = head_address(args.a.kv, is_k ? args.a.kv.key_offset : args.a.kv.value_offset, r.page, kv_head);
        to += is_k ? 0 : uint64_t(r.slot) * args.a.kv.token_bytes;
        if (PAGES == 1)
            store_q8(group, lane, to, is_k, r.slot, n, valid);
        else if (valid)
            store_floats(group, lane, to, is_k, r.slot, n);
    }
}
