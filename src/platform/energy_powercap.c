/* RAPL through /sys/class/powercap. A zone "intel-rapl:0" is a package (also on AMD), "intel-rapl:0:1" a part of it,
 * and energy_uj its counter in microjoules.
 *
 * Packages are counted, and of their parts only the memory, which a package's counter does not include. A psys zone
 * includes the packages and is skipped. Other interfaces to the same registers ("intel-rapl-mmio:0") repeat the zones:
 * only the first interface with packages is used. Dies of one package may all show the package's counter: then one of
 * them is used. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "platform/energy_impl.h"

enum { ZONES = 64, PARTS = 8 };

static const char *const interfaces[] = {"intel-rapl", "intel-rapl-tpmi", "intel-rapl-mmio"};
static const double microjoule = 1e-6;
/* The largest difference between two consecutive readings of one counter. */
static const uint64_t mirrored_uj = 1000000;

typedef struct powercap {
    char *paths[SPRY_ENERGY_COUNTERS]; /* of energy_uj */
} powercap;

/* A zone's folder under the root, and its name. */
typedef struct zone {
    char folder[PATH_MAX];
    char name[SPRY_SYSFS_TEXT];
} zone;

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static spry_status fail_reading(spry_error *why, const char *path, int failure)
{
    if (failure == EACCES || failure == EPERM)
        return spry_fail(why, SPRY_ERR_FILE,
                         "%.120s: only root may read it; until the next start of the machine, "
                         "sudo chmod a+r /sys/class/powercap/*/energy_uj allows it for all users",
                         path);
    if (failure == EINVAL)
        return spry_fail(why, SPRY_ERR_FORMAT, "%.200s: there is no whole number in it", path);
    return spry_fail(why, SPRY_ERR_FILE, "%.200s: cannot be read: %s", path, strerror(failure));
}

static spry_status powercap_read(void *context, size_t index, uint64_t *value, uint64_t now_ns, spry_error *why)
{
    (void)now_ns;
    const powercap *self = context;
    int failure = spry_sysfs_u64(value, self->paths[index]);
    return failure ? fail_reading(why, self->paths[index], failure) : SPRY_OK;
}

static void powercap_close(void *context)
{
    powercap *self = context;
    for (size_t i = 0; self && i < SPRY_ENERGY_COUNTERS; i++)
        free(self->paths[i]);
    free(self);
}

static const spry_energy_kind powercap_kind = {"RAPL by powercap", powercap_read, powercap_close};

/* ---- finding them ------------------------------------------------------------------------------------------------ */

/* Whether the zone exists. */
static bool read_zone(zone *out, const char *root, const char *zone_name)
{
    char path[PATH_MAX];
    return spry_sysfs_path(out->folder, "%s/sys/class/powercap/%s", root, zone_name) &&
           spry_sysfs_path(path, "%s/name", out->folder) && spry_sysfs_text(out->name, path) == 0;
}

static spry_status read_range(uint64_t *range, const zone *from, spry_error *why)
{
    char path[PATH_MAX];
    if (!spry_sysfs_path(path, "%s/max_energy_range_uj", from->folder))
        return spry_fail(why, SPRY_ERR_INPUT, "%.200s: the path is too long", from->folder);
    int failure = spry_sysfs_u64(range, path);
    if (failure)
        return fail_reading(why, path, failure);
    if ((double)*range * microjoule < SPRY_ENERGY_RANGE_LEAST)
        return spry_fail(why, SPRY_ERR_FORMAT,
                         "%.200s: %" PRIu64 " is too little for wraps to be told from other steps back", path, *range);
    return SPRY_OK;
}

/* Whether a die shows the same counter as an earlier one. */
static bool is_mirror(const spry_energy_source *source, const char *name, uint64_t value)
{
    const char *die = strstr(name, "-die-");
    for (size_t i = 0; die && value && i < source->count; i++) {
        const spry_energy_counter *other = &source->counters[i];
        uint64_t apart = value > other->value ? value - other->value : other->value - value;
        if (strncmp(other->name, name, (size_t)(die - name) + strlen("-die-")) == 0 && apart < mirrored_uj)
            return true;
    }
    return false;
}

static spry_status add_counter(spry_energy_source *source, const zone *from, const char *name, bool optional,
                               uint64_t now_ns)
{
    powercap *self = source->context;
    spry_error *why = &source->why;
    char path[PATH_MAX];
    uint64_t value, range;
    spry_status status = read_range(&range, from, why);
    if (status != SPRY_OK)
        return status;
    if (!spry_sysfs_path(path, "%s/energy_uj", from->folder))
        return spry_fail(why, SPRY_ERR_INPUT, "%.200s: the path is too long", from->folder);
    int failure = spry_sysfs_u64(&value, path);
    if (failure)
        return fail_reading(why, path, failure);
    if (value > range)
        return spry_fail(why, SPRY_ERR_FORMAT, "%.200s: %" PRIu64 " is more than its largest value, %" PRIu64, path,
                         value, range);
    if (is_mirror(source, name, value))
        return SPRY_OK;
    char *copy = strdup(path);
    if (!copy)
        return spry_fail_memory(why, "the name of an energy counter", strlen(path) + 1);
    spry_energy_counter *counter = spry_energy_source_add(source);
    if (!counter) {
        free(copy);
        return spry_fail(why, SPRY_ERR_FORMAT, "there are more than %d energy counters", SPRY_ENERGY_COUNTERS);
    }
    self->paths[source->count - 1] = copy;
    *counter = (spry_energy_counter){.joules = microjoule, .range = range, .optional = optional};
    snprintf(counter->name, sizeof counter->name, "%.*s", SPRY_ENERGY_NAME - 1, name);
    spry_energy_counter_start(counter, value, now_ns);
    return SPRY_OK;
}

/* Adds the memory zone of a package, if it exists and is readable. */
static void add_memory(spry_energy_source *source, const char *root, const char *package_zone, const char *package,
                       uint64_t now_ns)
{
    char zone_name[64], name[SPRY_ENERGY_NAME];
    zone part;
    for (int i = 0; i < PARTS; i++) {
        snprintf(zone_name, sizeof zone_name, "%s:%d", package_zone, i);
        if (!read_zone(&part, root, zone_name) || strcmp(part.name, "dram") != 0)
            continue;
        snprintf(name, sizeof name, "%.80s dram", package);
        add_counter(source, &part, name, true, now_ns);
    }
}

/* Adds the packages of one interface; if it has none, the source stays empty. */
static spry_status add_packages(spry_energy_source *source, const char *interface, const spry_energy_system *system)
{
    char zone_name[48];
    zone package;
    for (int i = 0; i < ZONES; i++) {
        snprintf(zone_name, sizeof zone_name, "%s:%d", interface, i);
        if (!read_zone(&package, system->root, zone_name) || strncmp(package.name, "package-", 8) != 0)
            continue;
        uint64_t now_ns = system->clock();
        spry_status status = add_counter(source, &package, package.name, false, now_ns);
        if (status != SPRY_OK)
            return status;
        add_memory(source, system->root, zone_name, package.name, now_ns);
    }
    return SPRY_OK;
}

spry_status spry_energy_open_powercap(spry_energy_source *source, const spry_energy_system *system)
{
    spry_status status = SPRY_OK;
    source->context = calloc(1, sizeof(powercap));
    if (!source->context)
        return spry_fail_memory(&source->why, "the energy counters", sizeof(powercap));
    source->kind = &powercap_kind;
    source->sample_ns = SPRY_ENERGY_SAMPLE_NS;
    for (size_t i = 0; i < SPRY_COUNT(interfaces) && status == SPRY_OK && !source->count; i++)
        status = add_packages(source, interfaces[i], system);
    if (status == SPRY_OK && !source->count)
        status = spry_fail(&source->why, SPRY_ERR_UNSUPPORTED, "there is no package in /sys/class/powercap");
    if (status != SPRY_OK)
        spry_energy_source_close(source);
    return status;
}
