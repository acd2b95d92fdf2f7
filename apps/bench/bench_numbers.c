/* Medians and percentiles of measurements. */
#include <math.h>
#include <stdlib.h>

#include "bench/bench.h"

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

spry_bench_stat spry_bench_stat_of(double *values, size_t count)
{
    qsort(values, count, sizeof *values, by_size);
    return (spry_bench_stat){(values[(count - 1) / 2] + values[count / 2]) / 2, values[0], values[count - 1]};
}

double spry_bench_spread(const spry_bench_stat *stat)
{
    return spry_bench_ratio(stat->most - stat->least, stat->median);
}

double spry_bench_ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

double spry_bench_percentile(const double *sorted, size_t count, double percent)
{
    size_t rank = (size_t)ceil((double)count * percent / 100);
    return sorted[rank ? rank - 1 : 0];
}

spry_bench_steps spry_bench_steps_of(double *ms, size_t count)
{
    qsort(ms, count, sizeof *ms, by_size);
    return (spry_bench_steps){spry_bench_percentile(ms, count, 50), spry_bench_percentile(ms, count, 95),
                              spry_bench_percentile(ms, count, 99)};
}

const spry_bench_point *spry_bench_energy_point(const spry_bench_report *report)
{
    const spry_bench_point *found = NULL;
    for (size_t i = 0; i < report->n_points; i++) {
        const spry_bench_point *p = &report->points[i];
        if (!p->energy.tokens)
            continue;
        if (p->decode && p->batch == 1)
            return p;
        found = found ? found : p;
    }
    return found;
}

void spry_bench_report_deinit(spry_bench_report *report)
{
    for (size_t i = 0; i < report->n_points; i++) {
        free(report->points[i].ops);
        report->points[i].ops = NULL;
    }
    report->n_points = 0;
}
