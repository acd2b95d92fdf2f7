/* What the processor has beyond its architecture's baseline, where only the system can tell. (Of x86 the compiler can:
 * base/compiler.h.) */
#ifndef SPRY_PLATFORM_CPU_H
#define SPRY_PLATFORM_CPU_H

#include <stdbool.h>

/* Whether this is a 64-bit ARM with the dot-product instructions. */
bool spry_cpu_has_dotprod(void);

#endif
