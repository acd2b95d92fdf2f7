/* The CPU and memory limits of Linux control groups, versions 1 and 2. Containers and service managers set limits this
 * way; neither the affinity mask nor /proc/meminfo shows them. */
#ifndef SPRY_PLATFORM_CGROUP_H
#define SPRY_PLATFORM_CGROUP_H

#include <stddef.h>
#include <stdint.h>

/* SIZE_MAX: no limit. */
typedef struct spry_cgroup_limits {
    size_t cpus;         /* quota over period, rounded up, at least 1 */
    size_t memory;       /* bytes */
    uint64_t stopped_us; /* how long a quota stopped the group, since it was made; UINT64_MAX: unknown */
} spry_cgroup_limits;

/* Reads the smallest limits from the process's group up to the root. `root` is prepended to the paths /proc/self/cgroup
 * and /sys/fs/cgroup: "" on a real system, a folder in tests. Missing and unreadable files set no limit. */
void spry_cgroup_read(spry_cgroup_limits *limits, const char *root);

#endif
