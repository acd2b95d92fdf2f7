/* Plain formulas. */
#include "eval/eval_stats.h"

#include <math.h>
#include <stdlib.h>

double spry_eval_log_total(const float *logits, size_t n)
{
    double max = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++) {
        if (isnan(logits[i]))
            return (double)NAN;
        max = (double)logits[i] > max ? (double)logits[i] : max;
    }
    for (size_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - max);
    return max + log(sum);
}

void spry_eval_nll_add(spry_eval_nll *nll, double log_probability)
{
    nll->count++;
    nll->sum -= log_probability;
    nll->squares += log_probability * log_probability;
}

double spry_eval_nll_mean(const spry_eval_nll *nll)
{
    return nll->count ? nll->sum / (double)nll->count : 0;
}

double spry_eval_nll_error(const spry_eval_nll *nll)
{
    if (nll->count < 2)
        return 0;
    double n = (double)nll->count, mean = spry_eval_nll_mean(nll), variance = nll->squares / n - mean * mean;
    return variance > 0 ? sqrt(variance / (n - 1)) : 0;
}

double spry_eval_perplexity(const spry_eval_nll *nll)
{
    return exp(spry_eval_nll_mean(nll));
}

static size_t top_of(const float *logits, size_t n)
{
    size_t top = 0;
    for (size_t i = 1; i < n; i++)
        if (logits[i] > logits[top])
            top = i;
    return top;
}

spry_eval_pair spry_eval_compare(const float *logits, const float *base_logits, size_t n, int32_t next)
{
    const double total = spry_eval_log_total(logits, n), base_total = spry_eval_log_total(base_logits, n);
    double divergence = 0;
    for (size_t i = 0; i < n; i++) {
        double base = (double)base_logits[i] - base_total, p = exp(base);
        if (p > 0)
            divergence += p * (base - ((double)logits[i] - total));
    }
    /* Rounding may give slightly less than 0 for equal predictions; a NaN is preserved. */
    return (spry_eval_pair){.divergence = divergence < 0 ? 0 : divergence,
                            .same_top = top_of(logits, n) == top_of(base_logits, n),
                            .log_probability = (double)logits[next] - total,
                            .base_log_probability = (double)base_logits[next] - base_total};
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The smallest value that a share of all values do not exceed. */
static double quantile(const double *sorted, size_t count, double share)
{
    size_t rank = (size_t)ceil(share * (double)count);
    return sorted[rank ? rank - 1 : 0];
}

spry_eval_summary spry_eval_summarize(double *values, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += values[i];
    qsort(values, count, sizeof *values, ascending);
    return (spry_eval_summary){.mean = sum / (double)count,
                               .median = quantile(values, count, 0.5),
                               .p99 = quantile(values, count, 0.99),
                               .max = values[count - 1]};
}
