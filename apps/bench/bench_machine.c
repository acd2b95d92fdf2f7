/* The machine's name, and its two speed limits for the measured threads and kernels. */
#include "bench/bench.h"
#include "platform/memory.h"
#include "platform/threads.h"

spry_status spry_bench_machine_name(spry_bench_machine *machine, const spry_engine_options *options, spry_error *error)
{
    spry_status status = spry_kernels_name(machine->kernels, options->cpu, error);
    if (status)
        return status;
    spry_processor_name(machine->cpu);
    machine->threads = options->threads ? options->threads : (uint32_t)spry_threads_usable();
    machine->memory_bytes = spry_memory_total();
    spry_machine_id(machine->id, machine->cpu, machine->threads, machine->kernels, machine->memory_bytes);
    return SPRY_OK;
}

spry_status spry_bench_machine_measure(spry_bench_machine *machine, const char *cpu, spry_dtype type, spry_error *error)
{
    return spry_machine_peaks(&machine->read_gb_s, &machine->multiply_g_s, cpu, machine->threads, type, error);
}
