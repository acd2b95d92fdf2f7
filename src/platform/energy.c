/* A sample reads every counter and distributes the energy used since the last sample: to the total, and in equal parts
 * to the open shares, as one running sum of which each share remembers the start. Beginning, ending or reading a share
 * samples the processor first, so a share never includes energy used outside of it.
 *
 * Sampling a GPU takes four milliseconds of CPU time on an H200, whose counter changes ten times a second. With a
 * sampling thread, therefore, only that thread (four times a second) and reads of the total sample the GPU; shares do
 * not. `lock` is not held meanwhile: `gpu_lock`, which is taken first, orders the readings.
 *
 * The thread opens the GPU's library, waits until the counters change, and sets `ready`, which all callers wait for.
 * Then it samples as often as the sources require, so that no wrap is missed. */
#include "platform/energy.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "platform/background.h"
#include "platform/clock.h"
#include "platform/energy_impl.h"

/* How long the first reader waits for counters to change: processors count every millisecond, GPUs every 100. */
enum { SETTLE_POLL_NS = 1000000, SETTLE_CPU_NS = 20000000, SETTLE_GPU_NS = 250000000, SECOND_NS = 1000000000 };

struct spry_energy {
    spry_energy_system system;
    char *root;
    spry_energy_source cpu, gpu;
    size_t shares; /* open shares */

    bool threaded, ready, closing;
    pthread_t thread; /* valid when `threaded` */
    pthread_mutex_t lock, gpu_lock;
    pthread_cond_t changed; /* ready or closing */
};

/* ---- the system -------------------------------------------------------------------------------------------------- */

static int no_perf(uint32_t type, uint64_t config, unsigned cpu)
{
    (void)type, (void)config, (void)cpu;
    errno = ENODEV;
    return -1;
}

static spry_status no_nvml(spry_nvml *nvml, spry_error *why)
{
    (void)nvml;
    return spry_fail(why, SPRY_ERR_UNSUPPORTED, "an imitated system has no GPU");
}

/* Opens powercap or perf; with neither, the message says why for both. */
static void open_cpu(spry_energy_source *source, const spry_energy_system *system)
{
    spry_status powercap = spry_energy_open_powercap(source, system);
    if (powercap == SPRY_OK)
        return;
    spry_error first = source->why;
    *source = (spry_energy_source){0};
    spry_status perf = spry_energy_open_perf(source, system);
    if (perf == SPRY_OK)
        return;
    spry_error second = source->why;
    if (powercap == SPRY_ERR_UNSUPPORTED && perf == SPRY_ERR_UNSUPPORTED)
        spry_fail(&source->why, SPRY_ERR_UNSUPPORTED,
                  "this machine shows no package's energy counter, neither in /sys/class/powercap nor to perf "
                  "(virtual machines and containers seldom do)");
    else if (perf == SPRY_ERR_UNSUPPORTED)
        source->why = first;
    else if (powercap != SPRY_ERR_UNSUPPORTED)
        spry_fail(&source->why, powercap, "%.230s; %.160s", first.message, second.message);
}

/* ---- looking ----------------------------------------------------------------------------------------------------- */

static void sample_cpu(spry_energy *energy)
{
    spry_energy_readings readings;
    spry_energy_source_read(&energy->cpu, &readings, energy->system.clock());
    spry_energy_source_take(&energy->cpu, &readings, energy->shares);
}

/* Returns with the lock held; call without it. */
static void lock_and_sample_gpu(spry_energy *energy)
{
    spry_energy_readings readings;
    pthread_mutex_lock(&energy->gpu_lock);
    spry_energy_source_read(&energy->gpu, &readings, energy->system.clock());
    pthread_mutex_lock(&energy->lock);
    spry_energy_source_take(&energy->gpu, &readings, energy->shares);
    pthread_mutex_unlock(&energy->gpu_lock);
}

/* Samples the processor, and the GPU when `whole` or without a thread. Returns with the lock held. */
static void lock_and_sample(spry_energy *energy, bool whole)
{
    pthread_mutex_lock(&energy->lock);
    while (!energy->ready)
        pthread_cond_wait(&energy->changed, &energy->lock);
    if (whole || !energy->threaded) {
        pthread_mutex_unlock(&energy->lock);
        lock_and_sample_gpu(energy);
    }
    sample_cpu(energy);
}

/* Sleeps without the lock unless the meter is closing, then samples everything. */
static void pause_and_sample(spry_energy *energy, uint64_t ns)
{
    spry_background_wait(&energy->changed, &energy->lock, ns);
    if (energy->closing)
        return;
    pthread_mutex_unlock(&energy->lock);
    lock_and_sample_gpu(energy);
    sample_cpu(energy);
}

static bool settled(const spry_energy *energy)
{
    return (!energy->cpu.kind || spry_energy_source_moved(&energy->cpu)) &&
           (!energy->gpu.kind || spry_energy_source_moved(&energy->gpu));
}

static void *sample_forever(void *argument)
{
    spry_energy *energy = argument;
    spry_energy_open_nvml(&energy->gpu, &energy->system);
    uint64_t settle_ns = energy->gpu.kind ? SETTLE_GPU_NS : SETTLE_CPU_NS, from = spry_clock_ns();
    pthread_mutex_lock(&energy->lock);
    while (!energy->closing && !settled(energy) && spry_clock_ns() - from < settle_ns)
        pause_and_sample(energy, SETTLE_POLL_NS);
    energy->ready = true;
    pthread_cond_broadcast(&energy->changed);
    while (!energy->closing && (energy->cpu.kind || energy->gpu.kind)) {
        uint64_t cpu_ns = energy->cpu.kind ? energy->cpu.sample_ns : UINT64_MAX;
        uint64_t gpu_ns = energy->gpu.kind ? energy->gpu.sample_ns : UINT64_MAX;
        pause_and_sample(energy, cpu_ns < gpu_ns ? cpu_ns : gpu_ns);
    }
    pthread_mutex_unlock(&energy->lock);
    return NULL;
}

/* ---- opening and closing ----------------------------------------------------------------------------------------- */

static void init_lock(spry_energy *energy)
{
    pthread_mutex_init(&energy->lock, NULL);
    pthread_mutex_init(&energy->gpu_lock, NULL);
    spry_background_condition(&energy->changed);
}

static spry_status start_thread(spry_energy *energy, spry_error *error)
{
    spry_status status = spry_background_start(&energy->thread, sample_forever, energy, "the energy meter", error);
    energy->threaded = !status; /* not for the thread, which may be running */
    return status;
}

spry_status spry_energy_open_on(spry_energy **out, const spry_energy_system *system, bool thread, spry_error *error)
{
    *out = NULL;
    spry_status status = SPRY_OK;
    spry_energy *energy = calloc(1, sizeof *energy);
    char *root = strdup(system->root);
    if (!energy || !root) {
        free(energy);
        free(root);
        return spry_fail_memory(error, "the energy meter", sizeof *energy + strlen(system->root) + 1);
    }
    energy->system = *system;
    energy->system.root = energy->root = root;
    init_lock(energy);
    open_cpu(&energy->cpu, &energy->system);
    if (thread) {
        status = start_thread(energy, error);
    } else {
        spry_energy_open_nvml(&energy->gpu, &energy->system);
        energy->ready = true;
    }
    if (status != SPRY_OK)
        spry_energy_close(energy);
    else
        *out = energy;
    return status;
}

spry_status spry_energy_open(spry_energy **out, const char *root, spry_error *error)
{
    bool real = !root[0];
    const spry_energy_system system = {
        .root = root,
        .clock = spry_clock_ns,
        .perf_open = real ? spry_energy_perf_open : no_perf,
        .nvml_load = real ? spry_nvml_load : no_nvml,
    };
    return spry_energy_open_on(out, &system, true, error);
}

void spry_energy_close(spry_energy *energy)
{
    if (!energy)
        return;
    if (energy->threaded) {
        pthread_mutex_lock(&energy->lock);
        energy->closing = true;
        pthread_cond_broadcast(&energy->changed);
        pthread_mutex_unlock(&energy->lock);
        pthread_join(energy->thread, NULL);
    }
    spry_energy_source_close(&energy->cpu);
    spry_energy_source_close(&energy->gpu);
    pthread_cond_destroy(&energy->changed);
    pthread_mutex_destroy(&energy->gpu_lock);
    pthread_mutex_destroy(&energy->lock);
    free(energy->root);
    free(energy);
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

void spry_energy_read(spry_energy *energy, spry_joules *out)
{
    *out = (spry_joules){0};
    if (!energy)
        return;
    lock_and_sample(energy, true);
    out->has_cpu = energy->cpu.kind && spry_energy_source_moved(&energy->cpu);
    out->has_gpu = energy->gpu.kind && spry_energy_source_moved(&energy->gpu);
    out->cpu = out->has_cpu ? energy->cpu.used : 0;
    out->gpu = out->has_gpu ? energy->gpu.used : 0;
    pthread_mutex_unlock(&energy->lock);
}

void spry_energy_describe(spry_energy *energy, spry_energy_facts *facts)
{
    *facts = (spry_energy_facts){.cpu = "there is no energy meter", .gpu = "there is no energy meter"};
    if (!energy)
        return;
    lock_and_sample(energy, false);
    facts->has_cpu = energy->cpu.kind;
    facts->has_gpu = energy->gpu.kind;
    spry_energy_source_describe(&energy->cpu, facts->cpu);
    spry_energy_source_describe(&energy->gpu, facts->gpu);
    pthread_mutex_unlock(&energy->lock);
}

void spry_energy_begin(spry_energy *energy, spry_energy_share *share)
{
    *share = (spry_energy_share){0};
    if (!energy)
        return;
    lock_and_sample(energy, false);
    *share = (spry_energy_share){energy->cpu.shared, energy->gpu.shared, energy->cpu.kind, energy->gpu.kind};
    energy->shares++;
    pthread_mutex_unlock(&energy->lock);
}

void spry_energy_end(spry_energy *energy, const spry_energy_share *share, spry_joules *out)
{
    *out = (spry_joules){0};
    if (!energy)
        return;
    lock_and_sample(energy, false);
    energy->shares--;
    double cpu = energy->cpu.shared - share->cpu, gpu = energy->gpu.shared - share->gpu;
    out->has_cpu = share->has_cpu && energy->cpu.kind && spry_energy_source_moved(&energy->cpu) && cpu > 0;
    out->has_gpu = share->has_gpu && energy->gpu.kind && spry_energy_source_moved(&energy->gpu) && gpu > 0;
    out->cpu = out->has_cpu ? cpu : 0;
    out->gpu = out->has_gpu ? gpu : 0;
    pthread_mutex_unlock(&energy->lock);
}
