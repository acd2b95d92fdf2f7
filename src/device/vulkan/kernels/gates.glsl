/* Activation functions: kernels/ref/vector_ref.c. The numbers are values of spry_gate. */
const uint GATE_SILU = 0, GATE_GELU_TANH = 1, GATE_CLAMPED = 2, GATE_GELU = 3;

float silu(float x, float slope)
{
    return x / (1 + exp(-x * slope));
}

/* The error function; the error is below 2e-7. */
float error_function(float x)
{
    float t = 1 / (1 + 0.3275911 * abs(x));
    float inner = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
    return sign(x) * (1 - inner * exp(-x * x));
}

float gated(float gate, float up, uint kind)
{
    if (kind == GATE_SILU)
        return silu(gate, 1) * up;
    if (kind == GATE_CLAMPED)
        return (clamp(up, -7.0, 7.0) + 1) * silu(min(gate, 7.0), 1.702);
    if (kind == GATE_GELU)
        return 0.5 * gate * (1 + error_function(gate * 0.70710678118654752)) * up;
    float inner = 0.79788456080286536 * (gate + 0.044715 * (gate * gate * gate));
    return 0.5 * gate * (1 + tanh(clamp(inner, -15.0, 15.0))) * up;
}
