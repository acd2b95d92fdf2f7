/* Partial results of attention and how they are added: max = max(a, b), sum = sum_a * e^(max_a - max) + sum_b *
 * e^(max_b - max), values likewise. A page is one partial result, and pages are added in order, in decode and in
 * prefill. In memory: [row, head, page, {max, sum, -, -, head_dim values}]. */
struct running {
    float max, sum;
};

/* Adds a part; the factors of the old values and of the part's. An empty part changes nothing. */
vec2 add_part(inout running s, float part_max, float part_sum)
{
    if (part_max == -INFINITY)
        return vec2(1, 0);
    float larger = max(s.max, part_max);
    vec2 factors = vec2(s.max == -INFINITY ? 0 : exp(s.max - larger), exp(part_max - larger));
    precise float sum = s.sum * factors.x + part_sum * factors.y;
    s = running(larger, sum);
    return factors;
}

float add_value(float old, float part, vec2 factors)
{
    precise float sum = old * factors.x + part * factors.y;
    return sum;
}

/* The factor of the values at the end: 1 / sum, with the attention sink if the head has one. */
float final_scale(uint64_t sinks, uint head, running s)
{
    if (sinks == 0)
        return 1 / s.sum;
    float sink = float_at(sinks, head), larger = max(s.max, sink), old = exp(s.max - larger);
    precise float sum = s.sum * old + exp(sink - larger);
    return old / sum;
}
