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
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "platform/clock.h"
#include "platform/energy_impl.h"
#include "platform/os.h"
#include "platform/threads.h"

/* ---- counters ---------------------------------------------------------------------------------------------------- */

/* An increase is plausible up to WATTS_MOST. A decrease is accepted where a single wrap explains it, which requires a
 * sample before the counter could have wrapped twice. */

/* Counters change in steps: energy found by one sample may have been used this long before the previous sample. */
static const double step_seconds = 0.1;
/* Processors count every millisecond and GPUs at least every 100, but emulated counters may take a second. */
static const double still_seconds = 3;

static double seconds_between(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) * 1e-9 : 0;
}

/* ---- one counter ------------------------------------------------------------------------------------------------- */

void spry_energy_counter_start(spry_energy_counter *counter, uint64_t value, uint64_t now_ns)
{
    counter->value = value;
    counter->seen_ns = counter->moved_ns = now_ns;
}

static spry_status stand_still(spry_energy_counter *counter, uint64_t now_ns, spry_error *why)
{
    double seconds = seconds_between(counter->moved_ns, now_ns);
    if (seconds < still_seconds)
        return SPRY_OK;
    if (counter->optional && !counter->moved) {
        counter->left_out = true;
        return SPRY_OK;
    }
    return spry_fail(why, SPRY_ERR_FORMAT, "the energy counter of %s has not changed for %.0f s, as none does",
                     counter->name, seconds);
}

/* Counts from the last value to this one. */
static spry_status count_since(const spry_energy_counter *counter, uint64_t *counts, uint64_t value, double seconds,
                               spry_error *why)
{
    if (counter->range && value > counter->range)
        return spry_fail(why, SPRY_ERR_FORMAT,
                         "the energy counter of %s says %" PRIu64 ", and its largest value is %" PRIu64, counter->name,
                         value, counter->range);
    if (counter->range && seconds * SPRY_ENERGY_WATTS_MOST > (double)counter->range * counter->joules)
        return spry_fail(why, SPRY_ERR_FORMAT,
                         "the energy counter of %s could not be looked at for %.0f s and may have wrapped unseen",
                         counter->name, seconds);
    bool fell = value < counter->value;
    *counts = !fell ? value - counter->value : counter->range ? counter->range - counter->value + value : 0;
    bool believed = (double)*counts * counter->joules <= SPRY_ENERGY_WATTS_MOST * (seconds + step_seconds);
    if (fell && (!counter->range || !believed))
        return spry_fail(why, SPRY_ERR_FORMAT,
                         "the energy counter of %s went back from %" PRIu64 " to %" PRIu64
                         ", which is no wrap (it was reset, or the machine slept)",
                         counter->name, counter->value, value);
    if (!believed)
        return spry_fail(
            why, SPRY_ERR_FORMAT,
            "the energy counter of %s rose by %.0f J in %.3f s, which nothing draws (or the machine slept)",
            counter->name, (double)*counts * counter->joules, seconds);
    return SPRY_OK;
}

spry_status spry_energy_counter_take(spry_energy_counter *counter, double *joules, uint64_t value, uint64_t now_ns,
                                     spry_error *why)
{
    uint64_t counts = 0;
    *joules = 0;
    spry_status status = count_since(counter, &counts, value, seconds_between(counter->seen_ns, now_ns), why);
    if (status != SPRY_OK)
        return status;
    counter->value = value;
    counter->seen_ns = now_ns;
    if (!counts)
        return stand_still(counter, now_ns, why);
    counter->moved = true;
    counter->moved_ns = now_ns;
    *joules = (double)counts * counter->joules;
    return SPRY_OK;
}

/* ---- several of them --------------------------------------------------------------------------------------------- */

spry_energy_counter *spry_energy_source_add(spry_energy_source *source)
{
    return source->count < SPRY_ENERGY_COUNTERS ? &source->counters[source->count++] : NULL;
}

/* A sample is a read, which may take milliseconds, and a take, which adds the energy used since the last sample and
 * divides it among `shares`. When a counter fails, the source is closed with a message. */
static void source_read(const spry_energy_source *source, spry_energy_readings *out, uint64_t now_ns)
{
    out->now_ns = now_ns;
    out->why.status = SPRY_OK;
    for (size_t i = 0; source->kind && i < source->count && out->why.status == SPRY_OK; i++)
        if (!source->counters[i].left_out)
            source->kind->read(source->context, i, &out->values[i], now_ns, &out->why);
}

static void source_take(spry_energy_source *source, const spry_energy_readings *readings, size_t shares)
{
    if (!source->kind)
        return;
    double all = 0, joules;
    spry_error why = readings->why;
    for (size_t i = 0; i < source->count && why.status == SPRY_OK; i++) {
        if (source->counters[i].left_out)
            continue;
        spry_energy_counter_take(&source->counters[i], &joules, readings->values[i], readings->now_ns, &why);
        all += joules;
    }
    if (why.status != SPRY_OK) {
        source->why = why;
        spry_energy_source_close(source);
        return;
    }
    source->used += all;
    if (shares)
        source->shared += all / (double)shares;
}

/* Whether every counter has changed. */
static bool source_moved(const spry_energy_source *source)
{
    bool moved = true;
    for (size_t i = 0; i < source->count; i++)
        moved &= source->counters[i].moved || source->counters[i].optional;
    return moved;
}

void spry_energy_source_close(spry_energy_source *source)
{
    if (source->kind)
        source->kind->close(source->context);
    source->kind = NULL;
    source->context = NULL;
}

static void source_describe(const spry_energy_source *source, char out[SPRY_ENERGY_TEXT])
{
    if (!source->kind) {
        snprintf(out, SPRY_ENERGY_TEXT, "%.*s", SPRY_ENERGY_TEXT - 1, source->why.message);
        return;
    }
    spry_error text; /* replaces unprintable bytes */
    char list[SPRY_ENERGY_TEXT] = "";
    size_t size = 0;
    for (size_t i = 0; i < source->count; i++) {
        const spry_energy_counter *counter = &source->counters[i];
        if (counter->left_out)
            continue;
        int added = snprintf(list + size, sizeof list - size, "%s%s", size ? ", " : "", counter->name);
        size += (size_t)added;
        if (size < sizeof list - 32)
            continue;
        snprintf(list, sizeof list, "%zu counters", source->count);
        break;
    }
    spry_fail(&text, SPRY_OK, "%s: %s", source->kind->name, list);
    snprintf(out, SPRY_ENERGY_TEXT, "%.*s", SPRY_ENERGY_TEXT - 1, text.message);
}

/* ---- the meter --------------------------------------------------------------------------------------------------- */

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

/* Opens powercap, perf, or the counter of another system; without any, the message says why for the first two. */
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
    if (!*system->root && spry_os_open_energy(source, system) == SPRY_OK)
        return;
    source->why = second;
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
    source_read(&energy->cpu, &readings, energy->system.clock());
    source_take(&energy->cpu, &readings, energy->shares);
}

/* Returns with the lock held; call without it. */
static void lock_and_sample_gpu(spry_energy *energy)
{
    spry_energy_readings readings;
    pthread_mutex_lock(&energy->gpu_lock);
    source_read(&energy->gpu, &readings, energy->system.clock());
    pthread_mutex_lock(&energy->lock);
    source_take(&energy->gpu, &readings, energy->shares);
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
    return (!energy->cpu.kind || source_moved(&energy->cpu)) && (!energy->gpu.kind || source_moved(&energy->gpu));
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
    out->has_cpu = energy->cpu.kind && source_moved(&energy->cpu);
    out->has_gpu = energy->gpu.kind && source_moved(&energy->gpu);
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
    source_describe(&energy->cpu, facts->cpu);
    source_describe(&energy->gpu, facts->gpu);
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
    out->has_cpu = share->has_cpu && energy->cpu.kind && source_moved(&energy->cpu) && cpu > 0;
    out->has_gpu = share->has_gpu && energy->gpu.kind && source_moved(&energy->gpu) && gpu > 0;
    out->cpu = out->has_cpu ? cpu : 0;
    out->gpu = out->has_gpu ? gpu : 0;
    pthread_mutex_unlock(&energy->lock);
}
