/* exp and tanh on vectors, good to about 2 units in the last place. Include a simd_*.h first. */
#ifndef SPRY_KERNELS_SIMD_MATH_H
#define SPRY_KERNELS_SIMD_MATH_H

/* exp by 2^n * exp(r), |r| <= ln2 / 2, a polynomial for exp(r). Below -87.3 the result is 0 (no subnormals); above 88.7
 * it stays at the largest power. exp(0) is exactly 1; a NaN stays one. */
static inline vec v_exp(vec x)
{
    vec low = v_set(-87.33654f), high = v_set(88.72283f);
    vec clamped = v_min(high, v_max(low, x)); /* NaN, the second operand of both, passes */
    vec n = v_round(v_mul(clamped, v_set(1.44269504088896341f)));
    vec r = v_fma(n, v_set(-0.693145751953125f), clamped);
    r = v_fma(n, v_set(-1.428606765330187e-6f), r);
    vec p = v_set(1.9875691500e-4f);
    p = v_fma(p, r, v_set(1.3981999507e-3f));
    p = v_fma(p, r, v_set(8.3334519073e-3f));
    p = v_fma(p, r, v_set(4.1665795894e-2f));
    p = v_fma(p, r, v_set(1.6666665459e-1f));
    p = v_fma(p, r, v_set(5.0000001201e-1f));
    p = v_fma(v_mul(p, r), r, r);
    return v_scale2(v_add(p, v_set(1)), n);
}

/* 1 - 2 / (exp(2x) + 1) */
static inline vec v_tanh(vec x)
{
    vec e = v_exp(v_add(x, x));
    return v_sub(v_set(1), v_div(v_set(2), v_add(e, v_set(1))));
}

#endif
