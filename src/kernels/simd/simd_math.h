/* exp, tanh and GELU on vectors: the relative error of exp is at most 2^-23, of tanh 2^-22. Include a simd_*.h first.
 */
#ifndef SPRY_KERNELS_SIMD_MATH_H
#define SPRY_KERNELS_SIMD_MATH_H

/* x = n ln2 + r with integer n and |r| <= ln2 / 2. Returns exp(r) - 1, a polynomial. */
static inline vec exp_less_1(vec *n, vec x)
{
    *n = v_round(v_mul(x, v_set(1.44269504088896341f)));
    vec r = v_fma(*n, v_set(-0.693145751953125f), x);
    r = v_fma(*n, v_set(-1.428606765330187e-6f), r);
    vec p = v_set(1.9875691500e-4f);
    p = v_fma(p, r, v_set(1.3981999507e-3f));
    p = v_fma(p, r, v_set(8.3334519073e-3f));
    p = v_fma(p, r, v_set(4.1665795894e-2f));
    p = v_fma(p, r, v_set(1.6666665459e-1f));
    p = v_fma(p, r, v_set(5.0000001201e-1f));
    return v_fma(v_mul(p, r), r, r);
}

/* Preserves NaN, because x is the second operand of both. */
static inline vec v_clamp(vec low, vec high, vec x)
{
    return v_min(high, v_max(low, x));
}

/* Below -87.3 the result is 0 (no subnormals); above 88.7 it is the largest power. exp(0) is exactly 1; NaN stays
 * NaN. */
static inline vec v_exp(vec x)
{
    vec low = v_set(-87.33654f), high = v_set(88.72283f), n, p = exp_less_1(&n, v_clamp(low, high, x));
    return v_zero_below(v_scale2(v_add(p, v_set(1)), n), x, low);
}

/* m / (m + 2) with m = exp(2x) - 1, which is accurate near 0. Exactly 1 from 10 on. */
static inline vec v_tanh(vec x)
{
    vec n, p = exp_less_1(&n, v_clamp(v_set(-20), v_set(20), v_add(x, x))), power = v_scale2(v_set(1), n);
    vec m = v_fma(p, power, v_sub(power, v_set(1)));
    return v_div(m, v_add(m, v_set(2)));
}

/* x times the normal distribution function at x. With u = |x| that function is 1 - exp(-u P(u)) / 2 for positive x and
 * exp(-u P(u)) / 2 for negative x, so the result is (x - |x| (exp(-u P(u)) - 1)) / 2. P is fitted to -log(erfc(u / sqrt
 * 2)) / u; above 5.75 the exponential is negligible. The error is at most 2^-23 of |x|. */
static inline vec v_gelu(vec x)
{
    static const float parts[] = {-3.554775390e-07f, 6.626521099e-06f,  -5.196732309e-05f,
                                  1.970934245e-04f,  -1.038905521e-05f, -4.804287571e-03f,
                                  3.634500876e-02f,  3.183080554e-01f,  7.978847027e-01f};
    vec size = v_max(v_sub(v_set(0), x), x), u = v_min(v_set(5.75f), size), share = v_set(parts[0]), n;
    for (int i = 1; i < 9; i++)
        share = v_fma(share, u, v_set(parts[i]));
    vec p = exp_less_1(&n, v_sub(v_set(0), v_mul(u, share))), power = v_scale2(v_set(1), n);
    vec m = v_fma(p, power, v_sub(power, v_set(1)));
    return v_mul(v_set(0.5f), v_fma(v_sub(v_set(0), size), m, x));
}

#endif
