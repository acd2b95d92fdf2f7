#include "draft/step_time.h"

void spry_step_time_init(spry_step_time *time)
{
    spry_step_cost_init(&time->products);
    spry_step_cost_init(&time->attention);
}

void spry_step_time_measure(spry_step_time *time, const spry_step_load *load, uint64_t attention_ns, uint64_t ns)
{
    attention_ns = attention_ns < ns ? attention_ns : ns;
    spry_step_cost_measure(&time->products, load->rows, ns - attention_ns);
    if (attention_ns && load->sight >= SPRY_STEP_SIGHT) /* less is mostly waiting for threads */
        spry_step_cost_measure(&time->attention, 1, (uint64_t)((double)attention_ns * SPRY_STEP_SIGHT / load->sight));
}

double spry_step_time_ns(const spry_step_time *time, const spry_step_load *load)
{
    return spry_step_cost_ns(&time->products, load->rows) +
           spry_step_cost_ns(&time->attention, 1) * load->sight / SPRY_STEP_SIGHT;
}
