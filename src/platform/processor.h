/* The processor's name, for reports. */
#ifndef SPRY_PLATFORM_PROCESSOR_H
#define SPRY_PLATFORM_PROCESSOR_H

enum { SPRY_PROCESSOR_NAME_MAX = 96 };

/* "AMD EPYC 9654"; the architecture ("aarch64") where the name is unknown. Printable ASCII, single spaces. */
void spry_processor_name(char out[SPRY_PROCESSOR_NAME_MAX]);

/* spry_processor_name with `root` prepended to /proc, for tests. */
void spry_processor_name_below(char out[SPRY_PROCESSOR_NAME_MAX], const char *root);

#endif
