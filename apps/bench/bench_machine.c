/* The machine's name, and its two speed limits for the measured threads and kernels, or for its GPU. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "bench/bench.h"
#include "platform/memory.h"
#include "platform/threads.h"

/* The GPU that `device` names; false: it names none, or there is none. */
static bool find_gpu(spry_bench_machine *machine, const char *device)
{
    uint64_t index = 0;
    if (strncmp(device, "cuda", 4) != 0 || (device[4] && device[4] != ':') ||
        (device[4] && !spry_number_u64(&index, spry_view_of(device + 5))))
        return false;
    spry_gpus *gpus = calloc(1, sizeof *gpus);
    if (!gpus)
        return false;
    spry_gpus_open(gpus, SPRY_CUDA_LIBRARY, "");
    bool found = index < gpus->count;
    if (found) {
        machine->gpu_index = (int)index;
        memcpy(machine->gpu, gpus->list[index].name, sizeof machine->gpu);
        snprintf(machine->kernels, sizeof machine->kernels, "cuda");
    }
    spry_gpus_close(gpus);
    free(gpus);
    return found;
}

spry_status spry_bench_machine_without_gpu(spry_bench_machine *machine, const spry_engine_options *options,
                                           spry_error *error)
{
    machine->gpu[0] = '\0';
    return spry_kernels_name(machine->kernels, options->cpu, error);
}

spry_status spry_bench_machine_name(spry_bench_machine *machine, const spry_engine_options *options, spry_error *error)
{
    spry_status status = spry_bench_machine_without_gpu(machine, options, error);
    if (status)
        return status;
    spry_processor_name(machine->cpu);
    machine->threads = options->threads ? options->threads : (uint32_t)spry_threads_usable();
    machine->memory_bytes = spry_memory_total();
    spry_machine_id(machine->id, machine->cpu, machine->threads, machine->kernels, machine->memory_bytes);
    if (options->device)
        find_gpu(machine, options->device);
    return SPRY_OK;
}

/* Speeds that are not known stay 0, and shares of them, too. */
static spry_status measure_gpu(spry_bench_machine *machine, spry_error *error)
{
    spry_gpus *gpus = calloc(1, sizeof *gpus);
    if (!gpus)
        return spry_fail_memory(error, "measuring a GPU", sizeof *gpus);
    spry_gpus_open(gpus, SPRY_CUDA_LIBRARY, "");
    spry_gpus_measure(gpus);
    for (size_t i = 0; i < gpus->count; i++)
        if (gpus->list[i].index == machine->gpu_index) {
            machine->read_gb_s = gpus->list[i].read_gb_s;
            machine->multiply_g_s = spry_gpu_peak(&gpus->list[i]) / 2 / 1e9;
        }
    spry_gpus_close(gpus);
    free(gpus);
    return SPRY_OK;
}

spry_status spry_bench_machine_measure(spry_bench_machine *machine, const char *cpu, spry_dtype type, spry_error *error)
{
    if (machine->gpu[0])
        return measure_gpu(machine, error);
    return spry_machine_peaks(&machine->read_gb_s, &machine->multiply_g_s, cpu, machine->threads, type, error);
}
