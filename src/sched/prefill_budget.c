#include "sched/prefill_budget.h"

size_t spry_prefill_budget(const spry_step_time *time, const spry_step_load *answers, const spry_prompts *prompts,
                           size_t most, double stall_ns)
{
    if (!answers->rows || !most)
        return most;
    if (!(stall_ns > 0)) /* measurements that contradict each other do not count against that */
        return 1;
    double limit = spry_step_time_ns(time, answers) + stall_ns;
    size_t reach = spry_step_cost_reach(&time->products), fits = 1, fails = most + 1;
    if (reach < answers->rows + most) /* further it would be a guess */
        fails = reach > answers->rows ? reach - answers->rows + 1 : 2;
    while (fits + 1 < fails) {
        size_t half = fits + (fails - fits) / 2, each = (half + prompts->n - 1) / prompts->n;
        const spry_step_load load = {answers->rows + half,
                                     answers->sight + spry_step_sight(each, 1) * (double)prompts->depth};
        if (spry_step_time_ns(time, &load) <= limit)
            fits = half;
        else
            fails = half;
    }
    return fits;
}
