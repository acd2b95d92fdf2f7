/* CPU features beyond the architecture's baseline that only the operating system can report. (For x86 see
 * base/compiler.h.) */
#ifndef SPRY_PLATFORM_CPU_H
#define SPRY_PLATFORM_CPU_H

#include <stdbool.h>

/* Whether this is a 64-bit ARM with the dot-product instructions. */
bool spry_cpu_has_dotprod(void);

#endif
