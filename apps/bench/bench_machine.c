/* The machine's name, and its two limits for the threads and kernels that are measured with. */
#include "bench/bench.h"
#include "doctor/machine_speed.h"
#include "platform/memory.h"

spry_status spry_bench_machine_name(spry_bench_machine *machine, const spry_engine_options *options, spry_error *error)
{
    const spry_ops *ops;
    spry_status status = spry_ops_get(&ops, options->cpu, error);
    if (status)
        return status;
    spry_processor_name(machine->cpu);
    machine->threads = options->threads ? options->threads : (uint32_t)spry_threads_usable();
    machine->kernels = ops->name;
    machine->memory_bytes = spry_memory_total();
    spry_machine_id(machine->id, machine->cpu, machine->threads, machine->kernels, machine->memory_bytes);
    return SPRY_OK;
}

spry_status spry_bench_machine_measure(spry_bench_machine *machine, const char *cpu, spry_dtype type, spry_error *error)
{
    const spry_ops *ops;
    spry_threads *threads = NULL;
    spry_status status = spry_ops_get(&ops, cpu, error);
    if (!status)
        status = spry_threads_create(&threads, machine->threads, error);
    if (!status)
        status = spry_machine_read_peak(&machine->read_gb_s, threads, error);
    if (!status)
        status = spry_machine_multiply_peak(&machine->multiply_g_s, ops, type, threads, error);
    spry_threads_destroy(threads);
    return status;
}
