#include "sched/prefill_budget.h"

size_t spry_prefill_budget(const spry_step_cost *cost, size_t decode_rows, size_t most, double stall_ns)
{
    if (!decode_rows || !most)
        return most;
    if (!(stall_ns > 0)) /* measurements that contradict each other do not count against that */
        return 1;
    double limit = spry_step_cost_ns(cost, decode_rows) + stall_ns;
    size_t reach = spry_step_cost_reach(cost), fits = 1, fails = most + 1;
    if (reach < decode_rows + most) /* further it would be a guess */
        fails = reach > decode_rows ? reach - decode_rows + 1 : 2;
    while (fits + 1 < fails) {
        size_t half = fits + (fails - fits) / 2;
        if (spry_step_cost_ns(cost, decode_rows + half) <= limit)
            fits = half;
        else
            fails = half;
    }
    return fits;
}
