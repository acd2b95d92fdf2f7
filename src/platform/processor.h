/* What the processor is called, for reports. */
#ifndef SPRY_PLATFORM_PROCESSOR_H
#define SPRY_PLATFORM_PROCESSOR_H

enum { SPRY_PROCESSOR_NAME_MAX = 96 };

/* "AMD EPYC 9654"; the machine's kind ("aarch64") where the system does not know. Printable ASCII, single spaces. */
void spry_processor_name(char out[SPRY_PROCESSOR_NAME_MAX]);

/* The same, with `root` before /proc: a folder that imitates a system in tests. */
void spry_processor_name_below(char out[SPRY_PROCESSOR_NAME_MAX], const char *root);

#endif
