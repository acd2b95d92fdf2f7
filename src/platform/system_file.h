/* Small text files in which Linux reports facts: /proc and /sys. Every path is read below a root: "" on a real system,
 * a folder in tests. */
#ifndef SPRY_PLATFORM_SYSTEM_FILE_H
#define SPRY_PLATFORM_SYSTEM_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

enum { SPRY_SYSTEM_VALUE = 256, SPRY_SYSTEM_PROCESSORS = 1 << 16 };

/* Reads the first line of a file, without spaces at its end; false: there is none. */
bool spry_system_value(char out[SPRY_SYSTEM_VALUE], const char *root, const char *format, ...) SPRY_PRINTF(3, 4);

/* The text after "key:" (or after "key" and spaces) in the first line that begins with it; the caller frees it. NULL:
 * no such line. */
char *spry_system_line(const char *root, const char *path, const char *key);

/* The number at the start of a text, up to a space or the end. */
bool spry_system_number(uint64_t *out, const char *text);

/* Removes the first range from a list of processors such as "0-3,8"; false at its end, and for text that is not a list,
 * which then stays non-empty. */
bool spry_system_range(uint32_t *first, uint32_t *last, const char **list);

/* The CPU and memory limits of Linux control groups, versions 1 and 2. Containers and service managers set limits this
 * way; neither the affinity mask nor /proc/meminfo shows them. */

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
