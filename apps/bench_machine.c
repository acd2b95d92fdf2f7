/* The machine's two limits, for the threads and kernels that were measured with. */
#include "bench.h"
#include "doctor/machine_speed.h"

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
