/* RAPL, the energy counters of processors: through powercap or through perf. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/number.h"
#include "base/view.h"
#include "platform/energy_impl.h"

/* ---- files of the kernel ----------------------------------------------------------------------------------------- */

/* The kernel ends such a file with a newline; a text without one was truncated. */

/* False when the path is too long. */
static bool sysfs_path(char out[PATH_MAX], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(out, PATH_MAX, format, args);
    va_end(args);
    return length >= 0 && length < PATH_MAX;
}

int spry_sysfs_text(char out[SPRY_SYSFS_TEXT], const char *path)
{
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0)
        return errno;
    ssize_t size = read(descriptor, out, SPRY_SYSFS_TEXT);
    int failure = size < 0 ? errno : 0;
    close(descriptor);
    if (failure)
        return failure;
    if (size == 0 || memchr(out, '\n', (size_t)size) != out + size - 1 || memchr(out, 0, (size_t)size))
        return EINVAL;
    out[size - 1] = 0;
    return 0;
}

int spry_sysfs_u64(uint64_t *out, const char *path)
{
    char text[SPRY_SYSFS_TEXT];
    int failure = spry_sysfs_text(text, path);
    return failure ? failure : spry_number_u64(out, spry_view_of(text)) ? 0 : EINVAL;
}

/* ---- powercap ---------------------------------------------------------------------------------------------------- */

/* RAPL through /sys/class/powercap. A zone "intel-rapl:0" is a package (also on AMD), "intel-rapl:0:1" a part of it,
 * and energy_uj its counter in microjoules.
 *
 * Packages are counted, and of their parts only the memory, which a package's counter does not include. A psys zone
 * includes the packages and is skipped. Other interfaces to the same registers ("intel-rapl-mmio:0") repeat the zones:
 * only the first interface with packages is used. Dies of one package may all show the package's counter: then one of
 * them is used. */

enum { ZONES = 64, PARTS = 8 };

static const char *const interfaces[] = {"intel-rapl", "intel-rapl-tpmi", "intel-rapl-mmio"};
static const double microjoule = 1e-6;
/* The largest difference between two consecutive readings of one counter. */
static const uint64_t mirrored_uj = 1000000;

typedef struct powercap {
    char *paths[SPRY_ENERGY_COUNTERS]; /* paths of energy_uj files */
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
    return sysfs_path(out->folder, "%s/sys/class/powercap/%s", root, zone_name) &&
           sysfs_path(path, "%s/name", out->folder) && spry_sysfs_text(out->name, path) == 0;
}

static spry_status read_range(uint64_t *range, const zone *from, spry_error *why)
{
    char path[PATH_MAX];
    if (!sysfs_path(path, "%s/max_energy_range_uj", from->folder))
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
    if (!sysfs_path(path, "%s/energy_uj", from->folder))
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

/* ---- perf -------------------------------------------------------------------------------------------------------- */

/* RAPL through perf: the events "energy-pkg" and "energy-ram" of the PMU "power", each counted on one processor of
 * every package, those in its cpumask. The kernel handles wraps and returns 64-bit values.
 *
 * System-wide counting requires a perf_event_paranoid of 0 or less, or CAP_PERFMON. */

enum { PROCESSORS_MOST = 1 << 20 };

static const char unit_folder[] = "/sys/bus/event_source/devices/power";

typedef struct perf {
    int descriptors[SPRY_ENERGY_COUNTERS];
    size_t count;
} perf;

typedef struct event {
    uint64_t config;
    double joules; /* per count */
} event;

/* One per package. */
typedef struct processors {
    unsigned cpu[SPRY_ENERGY_COUNTERS], package[SPRY_ENERGY_COUNTERS];
    size_t count;
} processors;

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static spry_status perf_read(void *context, size_t index, uint64_t *value, uint64_t now_ns, spry_error *why)
{
    (void)now_ns;
    const perf *self = context;
    ssize_t size;
    do
        size = read(self->descriptors[index], value, sizeof *value);
    while (size < 0 && errno == EINTR);
    if (size == (ssize_t)sizeof *value)
        return SPRY_OK;
    return spry_fail(why, SPRY_ERR_FILE, "perf's energy counter can no longer be read: %s",
                     size < 0 ? strerror(errno) : "it ended");
}

static void perf_close(void *context)
{
    perf *self = context;
    for (size_t i = 0; self && i < self->count; i++)
        close(self->descriptors[i]);
    free(self);
}

static const spry_energy_kind perf_kind = {"RAPL by perf", perf_read, perf_close};

/* ---- what /sys says of them -------------------------------------------------------------------------------------- */

/* Reads a file of the PMU. Fails as unsupported when there is none. */
static spry_status read_unit(char out[SPRY_SYSFS_TEXT], const char *root, const char *name, const char *ending,
                             spry_error *why)
{
    char path[PATH_MAX];
    if (!sysfs_path(path, "%s%s/%s%s", root, unit_folder, name, ending))
        return spry_fail(why, SPRY_ERR_INPUT, "%.200s: the path is too long", root);
    int failure = spry_sysfs_text(out, path);
    if (failure == ENOENT)
        return spry_fail(why, SPRY_ERR_UNSUPPORTED, "%.200s: there is no such file", path);
    if (failure)
        return spry_fail(why, SPRY_ERR_FILE, "%.200s: cannot be read: %s", path, strerror(failure));
    return SPRY_OK;
}

static spry_status fail_unit(spry_error *why, const char *name, const char *text)
{
    return spry_fail(why, SPRY_ERR_FORMAT, "%s/%s: %.60s is not what can be used there", unit_folder, name, text);
}

/* Parses "event=0x02", the only form of these events. */
static bool parse_config(uint64_t *config, const char *text)
{
    static const char before[] = "event=0x";
    if (strncmp(text, before, sizeof before - 1) != 0)
        return false;
    const char *digits = text + sizeof before - 1;
    size_t count = strspn(digits, "0123456789abcdef");
    if (!count || count > 2 || digits[count])
        return false;
    *config = strtoull(digits, NULL, 16);
    return true;
}

static spry_status read_event(event *out, const char *root, const char *name, spry_error *why)
{
    char text[SPRY_SYSFS_TEXT];
    spry_status status = read_unit(text, root, name, "", why);
    if (status != SPRY_OK)
        return status;
    if (!parse_config(&out->config, text))
        return fail_unit(why, name, text);
    if ((status = read_unit(text, root, name, ".unit", why)) != SPRY_OK)
        return status;
    if (strcmp(text, "Joules") != 0)
        return fail_unit(why, name, text);
    if ((status = read_unit(text, root, name, ".scale", why)) != SPRY_OK)
        return status;
    if (!spry_number_double(&out->joules, spry_view_of(text)) || out->joules <= 0 || out->joules > 1)
        return fail_unit(why, name, text);
    return SPRY_OK;
}

/* The package of a processor; its index in the mask where the system does not report it. */
static unsigned package_of(unsigned cpu, const char *root, size_t place)
{
    char path[PATH_MAX];
    uint64_t id;
    bool known = sysfs_path(path, "%s/sys/devices/system/cpu/cpu%u/topology/physical_package_id", root, cpu) &&
                 spry_sysfs_u64(&id, path) == 0 && id <= UINT_MAX;
    return known ? (unsigned)id : (unsigned)place;
}

/* Refuses several dies of one package: it is unknown whether each has its own counter or all show the package's. */
static spry_status add_processor(processors *out, unsigned cpu, const char *root, spry_error *why)
{
    if (out->count == SPRY_ENERGY_COUNTERS)
        return spry_fail(why, SPRY_ERR_FORMAT, "there are more than %d energy counters", SPRY_ENERGY_COUNTERS);
    unsigned package = package_of(cpu, root, out->count);
    for (size_t i = 0; i < out->count; i++)
        if (out->package[i] == package)
            return spry_fail(why, SPRY_ERR_FORMAT,
                             "perf has several energy counters for package %u, which may be one and the same", package);
    out->cpu[out->count] = cpu;
    out->package[out->count++] = package;
    return SPRY_OK;
}

static bool take_number(unsigned *out, const char **text)
{
    size_t length = strspn(*text, "0123456789");
    uint64_t value;
    if (!spry_number_u64(&value, (spry_view){*text, length}) || value >= PROCESSORS_MOST)
        return false;
    *out = (unsigned)value;
    *text += length;
    return true;
}

/* "0,24" or "0-1". */
static spry_status read_processors(processors *out, const char *root, spry_error *why)
{
    char mask[SPRY_SYSFS_TEXT];
    spry_status status = read_unit(mask, root, "cpumask", "", why);
    const char *text = mask;
    out->count = 0;
    while (status == SPRY_OK) {
        unsigned first, last;
        if (!take_number(&first, &text))
            return fail_unit(why, "cpumask", mask);
        last = first;
        if (*text == '-' && (text++, !take_number(&last, &text) || last < first))
            return fail_unit(why, "cpumask", mask);
        for (unsigned cpu = first; cpu <= last && status == SPRY_OK; cpu++)
            status = add_processor(out, cpu, root, why);
        if (!*text)
            break;
        if (*text++ != ',')
            return fail_unit(why, "cpumask", mask);
    }
    return status;
}

/* ---- opening them ------------------------------------------------------------------------------------------------ */

static spry_status fail_opening(spry_error *why, const char *root, int failure)
{
    if (failure != EACCES && failure != EPERM)
        return spry_fail(why, SPRY_ERR_FILE, "perf cannot count energy: %s", strerror(failure));
    char path[PATH_MAX], paranoid[SPRY_SYSFS_TEXT];
    if (!sysfs_path(path, "%s/proc/sys/kernel/perf_event_paranoid", root) || spry_sysfs_text(paranoid, path) != 0)
        snprintf(paranoid, sizeof paranoid, "unknown");
    return spry_fail(why, SPRY_ERR_FILE,
                     "perf may not count energy: perf_event_paranoid is %.20s; "
                     "sudo sysctl kernel.perf_event_paranoid=0 allows it for all users",
                     paranoid);
}

static spry_status add_event(spry_energy_source *source, const spry_energy_system *system, uint32_t type,
                             const event *what, const processors *on, const char *ending)
{
    perf *self = source->context;
    for (size_t i = 0; i < on->count; i++) {
        int descriptor = system->perf_open(type, what->config, on->cpu[i]);
        if (descriptor < 0)
            return fail_opening(&source->why, system->root, errno);
        spry_energy_counter *counter = spry_energy_source_add(source);
        if (!counter) {
            close(descriptor);
            return spry_fail(&source->why, SPRY_ERR_FORMAT, "there are more than %d energy counters",
                             SPRY_ENERGY_COUNTERS);
        }
        self->descriptors[self->count++] = descriptor;
        *counter = (spry_energy_counter){.joules = what->joules, .optional = *ending != 0};
        snprintf(counter->name, sizeof counter->name, "package-%u%s", on->package[i], ending);
        uint64_t value, now_ns = system->clock();
        spry_status status = perf_read(self, source->count - 1, &value, now_ns, &source->why);
        if (status != SPRY_OK)
            return status;
        spry_energy_counter_start(counter, value, now_ns);
    }
    return SPRY_OK;
}

static spry_status add_events(spry_energy_source *source, const spry_energy_system *system)
{
    char text[SPRY_SYSFS_TEXT];
    uint64_t type;
    processors on;
    event package, memory;
    spry_error *why = &source->why, ignored;
    spry_status status = read_unit(text, system->root, "type", "", why);
    if (status == SPRY_OK && (!spry_number_u64(&type, spry_view_of(text)) || type > UINT32_MAX))
        status = fail_unit(why, "type", text);
    if (status == SPRY_OK)
        status = read_event(&package, system->root, "events/energy-pkg", why);
    if (status == SPRY_OK)
        status = read_processors(&on, system->root, why);
    if (status == SPRY_OK)
        status = add_event(source, system, (uint32_t)type, &package, &on, "");
    if (status == SPRY_OK && read_event(&memory, system->root, "events/energy-ram", &ignored) == SPRY_OK)
        status = add_event(source, system, (uint32_t)type, &memory, &on, " dram");
    return status;
}

spry_status spry_energy_open_perf(spry_energy_source *source, const spry_energy_system *system)
{
    source->context = calloc(1, sizeof(perf));
    if (!source->context)
        return spry_fail_memory(&source->why, "the energy counters", sizeof(perf));
    source->kind = &perf_kind;
    source->sample_ns = SPRY_ENERGY_SAMPLE_NS;
    spry_status status = add_events(source, system);
    if (status != SPRY_OK)
        spry_energy_source_close(source);
    return status;
}
