/* Temperatures come from hwmon drivers of processors, or from thermal zones; frequencies and throttle counters from the
 * folders of the processors; batteries from power_supply; pressure from /proc/pressure. */
#include "platform/machine_state.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/view.h"
#include "platform/file.h"
#include "platform/gpu.h"
#include "platform/os.h"
#include "platform/system_file.h"

enum { SENSORS = 32, INPUTS = 16, PROCESSORS = 64 /* whose frequency is read */, FOLDER = 4096 };

#define FIELD(name) offsetof(spry_machine_state, name)

const spry_machine_field spry_machine_fields[SPRY_MACHINE_FIELDS] = {
    {"temperature_celsius", "Hottest sensor of the processor", FIELD(temperature_c), 0},
    {"frequency_mhz", "Frequency of the processors, on average", FIELD(frequency_mhz), 0},
    {"highest_mhz", "Highest frequency of the processors", FIELD(highest_mhz), 0},
    {"throttles_total", "How often the processor reduced its speed because of heat", FIELD(throttles), 1},
    {"quota_ms_total", "Time for which control groups stopped the process", FIELD(quota_ms), 1},
    {"battery_percent", "Charge of the battery", FIELD(battery_percent), 0},
    {"on_battery", "1 if the battery is discharging", FIELD(on_battery), 0},
    {"memory_pressure", "Percent of the last 10 s in which some task waited for memory", FIELD(memory_pressure), 0},
    {"memory_full", "Percent of the last 10 s in which all tasks waited for memory", FIELD(memory_full), 0},
    {"cpu_pressure", "Percent of the last 10 s in which some task waited for a processor", FIELD(cpu_pressure), 0},
    {"disk_pressure", "Percent of the last 10 s in which some task waited for a disk", FIELD(disk_pressure), 0},
    {"load", "Load average of the last minute", FIELD(load), 0},
    {"processors", "Processors that are online", FIELD(processors), 0},
    {"resident_bytes", "Memory of the process, weights in mapped files included", FIELD(resident_bytes), 0},
    {"thermal_level", "How far the system slows processors because of heat, from 0 (not) to 4", FIELD(thermal_level),
     0},
    {"gpu_busy_percent", "Percent of the time the busiest GPU ran kernels", FIELD(gpu_busy), 0},
};

double spry_machine_field_value(const spry_machine_state *state, const spry_machine_field *field)
{
    double value;
    memcpy(&value, (const char *)state + field->offset, sizeof value);
    return value;
}

/* A number of the system within plausible bounds, times `unit`; NAN: not one. */
static double within(const char *text, double unit, double least, double most)
{
    double value;
    if (!spry_number_double(&value, spry_view_of(text)))
        return NAN;
    value *= unit;
    return value >= least && value <= most ? value : NAN;
}

/* ---- temperature ------------------------------------------------------------------------------------------------- */

static double millidegrees(const char *text)
{
    return within(text, 1e-3, -50, 150);
}

static double hottest_hwmon(const char *root)
{
    static const char *const drivers[] = {"coretemp", "k10temp", "zenpower", "cpu_thermal", "scmi_sensors"};
    char text[SPRY_SYSTEM_VALUE];
    double hottest = NAN;
    for (unsigned i = 0; i < SENSORS; i++) {
        bool wanted = false;
        if (!spry_system_value(text, root, "/sys/class/hwmon/hwmon%u/name", i))
            continue;
        for (size_t k = 0; k < SPRY_COUNT(drivers); k++)
            wanted = wanted || strcmp(text, drivers[k]) == 0;
        for (unsigned k = 1; wanted && k <= INPUTS; k++)
            if (spry_system_value(text, root, "/sys/class/hwmon/hwmon%u/temp%u_input", i, k))
                hottest = fmax(hottest, millidegrees(text)); /* fmax ignores NAN */
    }
    return hottest;
}

/* Zones of the processor; temperatures of the board only where there is no other. */
static double hottest_zone(const char *root)
{
    char type[SPRY_SYSTEM_VALUE], text[SPRY_SYSTEM_VALUE];
    double processor = NAN, board = NAN;
    for (unsigned i = 0; i < SENSORS; i++) {
        if (!spry_system_value(type, root, "/sys/class/thermal/thermal_zone%u/type", i) ||
            !spry_system_value(text, root, "/sys/class/thermal/thermal_zone%u/temp", i))
            continue;
        if (strstr(type, "cpu") || strstr(type, "soc") || strcmp(type, "x86_pkg_temp") == 0)
            processor = fmax(processor, millidegrees(text));
        else if (strcmp(type, "acpitz") == 0)
            board = fmax(board, millidegrees(text));
    }
    return isnan(processor) ? board : processor;
}

/* ---- processors -------------------------------------------------------------------------------------------------- */

#define CPU "/sys/devices/system/cpu/"

static double kilohertz(const char *root, const char *name, uint32_t processor)
{
    char text[SPRY_SYSTEM_VALUE];
    return spry_system_value(text, root, CPU "cpu%u/cpufreq/%s", processor, name) ? within(text, 1e-3, 10, 1e5) : NAN;
}

static double throttle_count(const char *root, const char *name, uint32_t processor)
{
    char text[SPRY_SYSTEM_VALUE];
    return spry_system_value(text, root, CPU "cpu%u/thermal_throttle/%s_throttle_count", processor, name)
               ? within(text, 1, 0, 1e15)
               : NAN;
}

/* Adds a known value. */
static void add(double *sum, double *count, double value)
{
    if (isnan(value))
        return;
    *sum += value;
    *count += 1;
}

static void read_processors(spry_machine_state *s, const char *root)
{
    char online[SPRY_SYSTEM_VALUE] = "";
    const char *list = online;
    uint32_t first, last, read = 0;
    double now = 0, n_now = 0, highest = 0, n_highest = 0, throttles = 0, n_throttles = 0, processors = 0;
    spry_system_value(online, root, CPU "online");
    while (spry_system_range(&first, &last, &list)) {
        processors += last - first + 1;
        for (uint32_t i = first; i <= last && read < PROCESSORS; i++, read++) {
            add(&now, &n_now, kilohertz(root, "scaling_cur_freq", i));
            add(&highest, &n_highest, kilohertz(root, "cpuinfo_max_freq", i));
            add(&throttles, &n_throttles, throttle_count(root, "core", i));
            if (!read) /* every processor of a package shows the same */
                add(&throttles, &n_throttles, throttle_count(root, "package", i));
        }
    }
    s->processors = processors > 0 && !*list ? processors : NAN;
    s->frequency_mhz = n_now > 0 ? now / n_now : NAN;
    s->highest_mhz = n_highest > 0 ? highest / n_highest : NAN;
    s->throttles = n_throttles > 0 ? throttles : NAN;
    char *mhz = isnan(s->frequency_mhz) ? spry_system_line(root, "/proc/cpuinfo", "cpu MHz") : NULL;
    if (mhz)
        s->frequency_mhz = within(mhz, 1, 10, 1e5);
    free(mhz);
}

/* ---- batteries --------------------------------------------------------------------------------------------------- */

typedef struct batteries {
    const char *root;
    double charge, n_charges, discharging, n;
} batteries;

#define SUPPLY "/sys/class/power_supply/%.100s/"

/* Batteries of keyboards and mice have the scope "Device". */
static void visit_supply(void *context, const char *name)
{
    batteries *b = context;
    char text[SPRY_SYSTEM_VALUE];
    if (!spry_system_value(text, b->root, SUPPLY "type", name) || strcmp(text, "Battery") != 0 ||
        (spry_system_value(text, b->root, SUPPLY "scope", name) && strcmp(text, "Device") == 0))
        return;
    if (spry_system_value(text, b->root, SUPPLY "capacity", name))
        add(&b->charge, &b->n_charges, within(text, 1, 0, 100));
    if (spry_system_value(text, b->root, SUPPLY "status", name) && strcmp(text, "Unknown") != 0)
        add(&b->discharging, &b->n, strcmp(text, "Discharging") == 0);
}

static void read_batteries(spry_machine_state *s, const char *root)
{
    char folder[FOLDER];
    batteries b = {.root = root};
    spry_error none;
    int length = snprintf(folder, sizeof folder, "%s/sys/class/power_supply", root);
    if (length > 0 && length < FOLDER)
        (void)spry_folder_each(folder, visit_supply, &b, &none);
    s->battery_percent = b.n_charges > 0 ? b.charge / b.n_charges : NAN;
    s->on_battery = b.n > 0 ? b.discharging > 0 : NAN;
}

/* ---- pressure, load, memory -------------------------------------------------------------------------------------- */

/* "some avg10=0.12 avg60=0.04 avg300=0.00 total=1234" */
static double pressure(const char *root, const char *path, const char *who)
{
    char *line = spry_system_line(root, path, who);
    double percent = NAN;
    if (line && strncmp(line, "avg10=", 6) == 0) {
        line[strcspn(line, " ")] = '\0';
        percent = within(line + 6, 1, 0, 100);
    }
    free(line);
    return percent;
}

void spry_machine_state_read(spry_machine_state *s, const char *root)
{
    char text[SPRY_SYSTEM_VALUE];
    spry_cgroup_limits limits;
    uint64_t kib;
    s->temperature_c = hottest_hwmon(root);
    if (isnan(s->temperature_c))
        s->temperature_c = hottest_zone(root);
    read_processors(s, root);
    spry_cgroup_read(&limits, root);
    s->quota_ms = limits.stopped_us == UINT64_MAX ? NAN : (double)limits.stopped_us / 1e3;
    read_batteries(s, root);
    s->memory_pressure = pressure(root, "/proc/pressure/memory", "some");
    s->memory_full = pressure(root, "/proc/pressure/memory", "full");
    s->cpu_pressure = pressure(root, "/proc/pressure/cpu", "some");
    s->disk_pressure = pressure(root, "/proc/pressure/io", "some");
    s->gpu_busy = *root ? NAN : spry_gpu_busy_percent();
    s->load = NAN;
    if (spry_system_value(text, root, "/proc/loadavg")) {
        text[strcspn(text, " ")] = '\0';
        s->load = within(text, 1, 0, 1e6);
    }
    char *resident = spry_system_line(root, "/proc/self/status", "VmRSS");
    s->resident_bytes =
        resident && spry_system_number(&kib, resident) && kib < UINT64_C(1) << 40 ? (double)kib * 1024 : NAN;
    free(resident);
    s->thermal_level = NAN;
    if (!*root)
        spry_os_machine_state(s);
}
