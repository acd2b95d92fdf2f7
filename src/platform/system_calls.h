/* Numbers of Linux's system calls that headers of an older C library lack. They are the same on all processors. */
#ifndef SPRY_PLATFORM_SYSTEM_CALLS_H
#define SPRY_PLATFORM_SYSTEM_CALLS_H

#include <sys/syscall.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule       445
#define SYS_landlock_restrict_self  446
#endif

#endif
