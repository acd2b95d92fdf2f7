/* Values that are not understood are missing. */
#include "platform/system_file.h"

#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/view.h"

/* NULL: it does not exist. */
static FILE *open_below(const char *root, const char *path)
{
    char whole[PATH_MAX];
    int length = snprintf(whole, sizeof whole, "%s%s", root, path);
    return length > 0 && length < PATH_MAX ? fopen(whole, "re") : NULL;
}

static void trim_end(char *text)
{
    size_t length = strlen(text);
    while (length && (text[length - 1] == '\n' || text[length - 1] == ' ' || text[length - 1] == '\t'))
        text[--length] = '\0';
}

bool spry_system_value(char out[SPRY_SYSTEM_VALUE], const char *root, const char *format, ...)
{
    char path[SPRY_SYSTEM_VALUE];
    va_list args;
    va_start(args, format);
    vsnprintf(path, sizeof path, format, args);
    va_end(args);
    FILE *file = open_below(root, path);
    if (!file)
        return false;
    bool there = fgets(out, SPRY_SYSTEM_VALUE, file) != NULL;
    fclose(file);
    if (there)
        trim_end(out);
    return there;
}

char *spry_system_line(const char *root, const char *path, const char *key)
{
    FILE *file = open_below(root, path);
    char *line = NULL, *found = NULL;
    size_t capacity = 0, length = strlen(key);
    while (file && !found && getline(&line, &capacity, file) >= 0) {
        if (strncmp(line, key, length) != 0 || !strchr(": \t", line[length]))
            continue;
        trim_end(line);
        found = strdup(line + length + strspn(line + length, ": \t"));
    }
    free(line);
    if (file)
        fclose(file);
    return found;
}

bool spry_system_number(uint64_t *out, const char *text)
{
    return spry_number_u64(out, (spry_view){text, strcspn(text, " \t")});
}

bool spry_system_range(uint32_t *first, uint32_t *last, const char **list)
{
    size_t length = strcspn(*list, ","), dash = strcspn(*list, ",-");
    uint64_t from, to;
    if (!spry_number_u64(&from, (spry_view){*list, dash}))
        return false;
    to = from;
    if (dash < length && !spry_number_u64(&to, (spry_view){*list + dash + 1, length - dash - 1}))
        return false;
    if (to < from || to >= SPRY_SYSTEM_PROCESSORS)
        return false;
    *first = (uint32_t)from;
    *last = (uint32_t)to;
    *list += length + ((*list)[length] == ',');
    return true;
}

/* ---- limits of control groups ------------------------------------------------------------------------------------ */

/* /proc/self/cgroup has one line per hierarchy, "id:controllers:path"; that of version 2 has no controllers. The path
 * is relative to the hierarchy's root, of which a container may see only a part: missing folders are skipped on the way
 * up, and the mount point, where such a container finds its own group, is always read. */

enum { VALUE_MAX = 128 };

/* "folder/name" into `out`; false when it does not fit. */
static bool join(char out[PATH_MAX], const char *folder, const char *name)
{
    int length = snprintf(out, PATH_MAX, "%s%s", folder, name);
    return length >= 0 && length < PATH_MAX;
}

static bool read_value(char out[VALUE_MAX], const char *folder, const char *name)
{
    char path[PATH_MAX];
    FILE *file = join(path, folder, name) ? fopen(path, "re") : NULL;
    if (!file)
        return false;
    bool ok = fgets(out, VALUE_MAX, file) != NULL;
    fclose(file);
    return ok;
}

/* Parses a positive integer at *text and moves *text past it. "max" and -1, which mean no limit, are not numbers. */
static bool parse_number(uint64_t *out, const char **text)
{
    const char *digits = *text + strspn(*text, " ");
    if (*digits < '0' || *digits > '9')
        return false;
    char *end;
    unsigned long long value = strtoull(digits, &end, 10);
    if (!value || !(*end == 0 || *end == ' ' || *end == '\n'))
        return false;
    *text = end;
    *out = value;
    return true;
}

static void limit_cpus(spry_cgroup_limits *limits, uint64_t quota, uint64_t period)
{
    uint64_t cpus = quota / period + (quota % period != 0);
    if (cpus < limits->cpus)
        limits->cpus = (size_t)cpus;
}

static void limit_memory(spry_cgroup_limits *limits, const char *folder, const char *name)
{
    char value[VALUE_MAX];
    const char *text = value;
    uint64_t bytes;
    if (read_value(value, folder, name) && parse_number(&bytes, &text) && bytes < limits->memory)
        limits->memory = (size_t)bytes;
}

/* Reads how long quotas stopped the process: the longest time of several groups. */
static void read_stopped(spry_cgroup_limits *limits, const char *folder, const char *key, uint64_t per_us)
{
    char *text = spry_system_line(folder, "/cpu.stat", key);
    uint64_t time;
    if (text && spry_system_number(&time, text) &&
        (limits->stopped_us == UINT64_MAX || time / per_us > limits->stopped_us))
        limits->stopped_us = time / per_us;
    free(text);
}

static void read_v2(spry_cgroup_limits *limits, const char *folder)
{
    char value[VALUE_MAX];
    const char *text = value;
    uint64_t quota, period;
    if (read_value(value, folder, "/cpu.max") && parse_number(&quota, &text) && parse_number(&period, &text))
        limit_cpus(limits, quota, period);
    limit_memory(limits, folder, "/memory.max");
    read_stopped(limits, folder, "throttled_usec", 1);
}

static void read_v1_cpu(spry_cgroup_limits *limits, const char *folder)
{
    char quota_value[VALUE_MAX], period_value[VALUE_MAX];
    const char *quota_text = quota_value, *period_text = period_value;
    uint64_t quota, period;
    if (read_value(quota_value, folder, "/cpu.cfs_quota_us") && parse_number(&quota, &quota_text) &&
        read_value(period_value, folder, "/cpu.cfs_period_us") && parse_number(&period, &period_text))
        limit_cpus(limits, quota, period);
    read_stopped(limits, folder, "throttled_time", 1000);
}

static void read_v1_memory(spry_cgroup_limits *limits, const char *folder)
{
    limit_memory(limits, folder, "/memory.limit_in_bytes");
}

typedef void (*read_group_fn)(spry_cgroup_limits *limits, const char *folder);

/* Reads the group and each group above it, up to the mount point. */
static void walk_up(spry_cgroup_limits *limits, const char *mount, const char *group, read_group_fn read_group)
{
    char folder[PATH_MAX];
    if (!join(folder, mount, group))
        return;
    size_t mount_length = strlen(mount);
    for (;;) {
        read_group(limits, folder);
        char *slash = strrchr(folder + mount_length, '/');
        if (!slash)
            return;
        *slash = 0;
    }
}

/* Walks the hierarchy mounted at root/sys/fs/cgroup/`name`. */
static void read_hierarchy(spry_cgroup_limits *limits, const char *root, const char *name, const char *group,
                           read_group_fn read_group)
{
    char base[PATH_MAX], mount[PATH_MAX];
    if (join(base, root, "/sys/fs/cgroup") && join(mount, base, name))
        walk_up(limits, mount, group, read_group);
}

static bool list_has(const char *list, const char *word)
{
    for (;;) {
        size_t length = strcspn(list, ",");
        if (spry_view_is((spry_view){list, length}, word))
            return true;
        if (!list[length])
            return false;
        list += length + 1;
    }
}

/* Parses one line of /proc/self/cgroup and modifies it. */
static void read_line(spry_cgroup_limits *limits, const char *root, char *line)
{
    line[strcspn(line, "\n")] = 0;
    char *before_list = strchr(line, ':');
    char *before_group = before_list ? strchr(before_list + 1, ':') : NULL;
    if (!before_group)
        return;
    *before_group = 0;
    const char *controllers = before_list + 1, *group = before_group + 1;
    if (strstr(group, "..")) /* outside this namespace */
        group = "/";
    if (!*controllers) {
        read_hierarchy(limits, root, "", group, read_v2);
        read_hierarchy(limits, root, "/unified", group, read_v2);
        return;
    }
    *before_list = '/'; /* "/cpu,cpuacct", the usual name of the mount; a link "/cpu" may be there as well or instead */
    if (list_has(controllers, "cpu")) {
        read_hierarchy(limits, root, before_list, group, read_v1_cpu);
        read_hierarchy(limits, root, "/cpu", group, read_v1_cpu);
    }
    if (list_has(controllers, "memory")) {
        read_hierarchy(limits, root, before_list, group, read_v1_memory);
        read_hierarchy(limits, root, "/memory", group, read_v1_memory);
    }
}

void spry_cgroup_read(spry_cgroup_limits *limits, const char *root)
{
    *limits = (spry_cgroup_limits){SIZE_MAX, SIZE_MAX, UINT64_MAX};
    char path[PATH_MAX];
    FILE *file = join(path, root, "/proc/self/cgroup") ? fopen(path, "re") : NULL;
    if (!file)
        return;
    char *line = NULL;
    size_t capacity = 0;
    while (getline(&line, &capacity, file) >= 0)
        read_line(limits, root, line);
    free(line);
    fclose(file);
}
