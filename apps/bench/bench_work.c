/* How much an engine that is open has to do. */
#include "bench/bench.h"
#include "insight/model_work.h"

static spry_work_setting setting_of(const spry_engine *e)
{
    return (spry_work_setting){.model = e->model, .ops = e->ops, .kv_type = e->pool.shape.type, .chunk = e->chunk};
}

spry_bench_work spry_bench_prefill_work(const spry_engine *e, size_t tokens)
{
    const spry_work_setting setting = setting_of(e);
    spry_step_work work = spry_work_of_prefill(&setting, tokens);
    return (spry_bench_work){spry_work_bytes(&work), spry_work_products(&work)};
}

spry_bench_work spry_bench_decode_work(const spry_engine *e, size_t depth, size_t batch)
{
    const spry_work_setting setting = setting_of(e);
    spry_step_work work = spry_work_of_decode(&setting, depth, batch);
    return (spry_bench_work){spry_work_bytes(&work), spry_work_products(&work)};
}

spry_dtype spry_bench_main_type(const spry_model *model)
{
    return spry_work_main_type(model);
}
