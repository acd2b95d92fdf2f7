/* An energy meter on a copy of an imitated /sys, with a clock, perf and NVML that a test moves by hand. Include after
 * cmocka.h. */
#ifndef SPRY_TESTS_ENERGY_SCENE_H
#define SPRY_TESTS_ENERGY_SCENE_H

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "platform/energy_impl.h"
#include "support/scratch.h"

typedef struct energy_scene {
    scratch files;
    spry_energy_system system;
    spry_energy *meter;
} energy_scene;

/* ---- the clock --------------------------------------------------------------------------------------------------- */

static uint64_t scene_now_ns;

static uint64_t scene_clock(void)
{
    return scene_now_ns;
}

static inline void scene_wait(double seconds)
{
    scene_now_ns += (uint64_t)(seconds * 1e9);
}

/* ---- perf: what a counter says is in a pipe, where a read takes it ---------------------------------------------- */

enum { SCENE_PERF_MOST = 8 };

typedef struct scene_perf {
    int failure; /* what opening fails with; 0: it does not */
    size_t opened;
    uint32_t type[SCENE_PERF_MOST];
    uint64_t config[SCENE_PERF_MOST];
    unsigned cpu[SCENE_PERF_MOST];
    int writer[SCENE_PERF_MOST];
} scene_perf;

static scene_perf perf_counters;

static inline void perf_say(size_t index, uint64_t value)
{
    assert_int_equal(write(perf_counters.writer[index], &value, sizeof value), sizeof value);
}

static int scene_perf_open(uint32_t type, uint64_t config, unsigned cpu)
{
    if (perf_counters.failure) {
        errno = perf_counters.failure;
        return -1;
    }
    int ends[2];
    size_t index = perf_counters.opened++;
    assert_in_range(index, 0, SCENE_PERF_MOST - 1);
    assert_int_equal(pipe(ends), 0);
    for (size_t i = 0; i < 2; i++)
        assert_true(!fcntl(ends[i], F_SETFL, O_NONBLOCK) && !fcntl(ends[i], F_SETFD, FD_CLOEXEC));
    perf_counters.type[index] = type;
    perf_counters.config[index] = config;
    perf_counters.cpu[index] = cpu;
    perf_counters.writer[index] = ends[1];
    perf_say(index, 0);
    return ends[0];
}

/* ---- NVML -------------------------------------------------------------------------------------------------------- */

enum { SCENE_GPUS_MOST = 3, SCENE_NVML_LOST = 15 };

typedef struct scene_gpu {
    int handle_result, energy_result, power_result;
    atomic_ullong millijoules;
    unsigned milliwatts;
} scene_gpu;

typedef struct scene_nvml {
    bool missing;
    int init_result, count_result;
    int running; /* inits less shutdowns */
    unsigned count;
    scene_gpu gpus[SCENE_GPUS_MOST];
} scene_nvml;

static scene_nvml gpus;

static int gpus_init(void)
{
    gpus.running += gpus.init_result == SPRY_NVML_OK;
    return gpus.init_result;
}

static int gpus_shutdown(void)
{
    gpus.running--;
    return SPRY_NVML_OK;
}

static const char *gpus_error_text(int result)
{
    return result == SPRY_NVML_NOT_SUPPORTED ? "Not Supported" : result == SCENE_NVML_LOST ? "GPU is lost" : NULL;
}

static int gpus_count(unsigned *count)
{
    *count = gpus.count;
    return gpus.count_result;
}

static int gpus_handle(unsigned index, void **device)
{
    assert_in_range(index, 0, gpus.count - 1);
    if (gpus.gpus[index].handle_result == SPRY_NVML_OK)
        *device = &gpus.gpus[index];
    return gpus.gpus[index].handle_result;
}

static int gpus_name(void *device, char *name, unsigned size)
{
    (void)device;
    snprintf(name, size, "Made-up\033[1m 1000");
    return SPRY_NVML_OK;
}

static int gpus_energy(void *device, unsigned long long *millijoules)
{
    const scene_gpu *gpu = device;
    *millijoules = gpu->millijoules;
    return gpu->energy_result;
}

static int gpus_power(void *device, unsigned *milliwatts)
{
    const scene_gpu *gpu = device;
    *milliwatts = gpu->milliwatts;
    return gpu->power_result;
}

static spry_status scene_nvml_load(spry_nvml *nvml, spry_error *why)
{
    if (gpus.missing)
        return spry_fail(why, SPRY_ERR_UNSUPPORTED, "there is no library");
    *nvml = (spry_nvml){NULL,        gpus_init, gpus_shutdown, gpus_error_text, gpus_count,
                        gpus_handle, gpus_name, gpus_energy,   gpus_power};
    return SPRY_OK;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static char copy_to[SCRATCH_PATH];
static size_t copy_skip; /* bytes of the source's own path */

static int copy_entry(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info, (void)where;
    char target[2 * SCRATCH_PATH], bytes[4096];
    snprintf(target, sizeof target, "%s%s", copy_to, path + copy_skip);
    if (kind == FTW_D)
        return mkdir(target, 0755) == 0 || errno == EEXIST ? 0 : -1;
    FILE *from = fopen(path, "rb"), *to = fopen(target, "wb");
    assert_true(from && to);
    size_t size = fread(bytes, 1, sizeof bytes, from);
    assert_int_equal(fwrite(bytes, 1, size, to), size);
    fclose(from);
    return fclose(to);
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info, (void)kind, (void)where;
    return remove(path);
}

/* Replaces a file as the kernel would: whole. */
static inline void scene_put(energy_scene *scene, const char *name, const char *text)
{
    char path[SCRATCH_PATH];
    snprintf(path, sizeof path, "%s", scratch_path(&scene->files, name));
    scratch_write(&scene->files, "new", text, strlen(text));
    assert_int_equal(rename(scene->files.path, path), 0);
}

/* "intel-rapl:0" and a file of it. */
static inline const char *zone_file(const char *zone, const char *file)
{
    static char name[256];
    snprintf(name, sizeof name, "sys/class/powercap/%s/%s", zone, file);
    return name;
}

static inline void zone_say(energy_scene *scene, const char *zone, uint64_t microjoules)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64 "\n", microjoules);
    scene_put(scene, zone_file(zone, "energy_uj"), text);
}

static inline uint64_t zone_value(energy_scene *scene, const char *zone)
{
    uint64_t value;
    assert_int_equal(spry_sysfs_u64(&value, scratch_path(&scene->files, zone_file(zone, "energy_uj"))), 0);
    return value;
}

static inline void zone_use(energy_scene *scene, const char *zone, double joules)
{
    zone_say(scene, zone, zone_value(scene, zone) + (uint64_t)(joules * 1e6 + 0.5));
}

static inline void zone_make(energy_scene *scene, const char *zone, const char *name, uint64_t microjoules)
{
    char text[64];
    assert_int_equal(mkdir(scratch_path(&scene->files, zone_file(zone, "")), 0755), 0);
    snprintf(text, sizeof text, "%s\n", name);
    scene_put(scene, zone_file(zone, "name"), text);
    scene_put(scene, zone_file(zone, "max_energy_range_uj"), "262143328850\n");
    zone_say(scene, zone, microjoules);
}

static inline void zone_remove(energy_scene *scene, const char *zone)
{
    assert_int_equal(nftw(scratch_path(&scene->files, zone_file(zone, "")), remove_entry, 8, FTW_DEPTH | FTW_PHYS), 0);
}

/* ---- the scene --------------------------------------------------------------------------------------------------- */

/* A copy of TEST_DATA/`tree`. No perf, no GPU. */
static inline void scene_init(energy_scene *scene, const char *tree)
{
    char from[SCRATCH_PATH];
    memset(scene, 0, sizeof *scene);
    signal(SIGPIPE, SIG_IGN);
    scratch_init(&scene->files);
    assert_int_equal(chmod(scene->files.folder, 0755), 0);
    copy_skip = (size_t)snprintf(from, sizeof from, "%s/%s", TEST_DATA, tree);
    snprintf(copy_to, sizeof copy_to, "%s", scene->files.folder);
    assert_int_equal(nftw(from, copy_entry, 8, FTW_PHYS), 0);
    scene_now_ns = 1000000000;
    perf_counters = (scene_perf){.failure = ENODEV};
    gpus = (scene_nvml){.missing = true};
    scene->system = (spry_energy_system){scene->files.folder, scene_clock, scene_perf_open, scene_nvml_load};
}

static inline void scene_open(energy_scene *scene)
{
    spry_error error;
    assert_int_equal(spry_energy_open_on(&scene->meter, &scene->system, false, &error), SPRY_OK);
}

static inline void scene_deinit(energy_scene *scene)
{
    spry_energy_close(scene->meter);
    assert_int_equal(gpus.running, 0);
    for (size_t i = 0; i < perf_counters.opened; i++) {
        assert_int_equal(write(perf_counters.writer[i], "x", 1), -1); /* the other end is closed */
        close(perf_counters.writer[i]);
    }
    assert_int_equal(nftw(scene->files.folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS), 0);
}

/* What is measured of the processor; fails the test when it is not. */
static inline double scene_cpu(energy_scene *scene)
{
    spry_joules joules;
    spry_energy_read(scene->meter, &joules);
    assert_true(joules.has_cpu);
    return joules.cpu;
}

static inline double scene_gpu_joules(energy_scene *scene)
{
    spry_joules joules;
    spry_energy_read(scene->meter, &joules);
    assert_true(joules.has_gpu);
    return joules.gpu;
}

/* Nothing is measured, and the sentence has `words` in it. */
static inline void scene_no_cpu(energy_scene *scene, const char *words)
{
    spry_joules joules;
    spry_energy_facts facts;
    spry_energy_read(scene->meter, &joules);
    spry_energy_describe(scene->meter, &facts);
    assert_false(joules.has_cpu || facts.has_cpu);
    assert_true(joules.cpu == 0);
    if (!strstr(facts.cpu, words))
        fail_msg("\"%s\" does not say \"%s\"", facts.cpu, words);
}

static inline void scene_no_gpu(energy_scene *scene, const char *words)
{
    spry_joules joules;
    spry_energy_facts facts;
    spry_energy_read(scene->meter, &joules);
    spry_energy_describe(scene->meter, &facts);
    assert_false(joules.has_gpu || facts.has_gpu);
    assert_true(joules.gpu == 0);
    if (!strstr(facts.gpu, words))
        fail_msg("\"%s\" does not say \"%s\"", facts.gpu, words);
}

/* What is read of the processor. */
static inline void assert_cpu_text(energy_scene *scene, const char *text)
{
    spry_energy_facts facts;
    spry_energy_describe(scene->meter, &facts);
    assert_true(facts.has_cpu);
    assert_string_equal(facts.cpu, text);
}

/* Sums of doubles. */
static inline void assert_joules(double joules, double wanted)
{
    if (!(fabs(joules - wanted) < 1e-6))
        fail_msg("%.9f joules instead of %.9f", joules, wanted);
}

#endif
