/* What Linux control groups, versions 1 and 2, leave to this process. Containers and service managers limit processors
 * and memory this way, and neither the affinity mask nor /proc/meminfo shows it. */
#ifndef SPRY_PLATFORM_CGROUP_H
#define SPRY_PLATFORM_CGROUP_H

#include <stddef.h>

/* SIZE_MAX where nothing is limited. */
typedef struct spry_cgroup_limits {
    size_t cpus;   /* quota over period, rounded up, at least 1 */
    size_t memory; /* bytes */
} spry_cgroup_limits;

/* The smallest limits found on the way from the process's own group up to the root. `root` goes before the paths
 * /proc/self/cgroup and /sys/fs/cgroup: "" on a real system, a folder that imitates one in tests. What is absent or
 * cannot be read limits nothing. */
void spry_cgroup_read(spry_cgroup_limits *limits, const char *root);

#endif
