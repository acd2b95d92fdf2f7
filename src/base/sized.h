/* Structs that grow from version to version. Their first member is `size_t size`, which says how many bytes the
 * caller's version has. New members are added at the end, as whole words: padding at the end is never reused. */
#ifndef SPRY_BASE_SIZED_H
#define SPRY_BASE_SIZED_H

#include "base/error.h"

/* Writes the defaults `own` to a program's struct of `size` bytes, and never more: an older program has fewer than
 * own_size, a newer one more, which become zero. */
void spry_sized_default(void *theirs, size_t size, const void *own, size_t own_size);

/* Copies a struct that a program filled over `own`, which holds the defaults and has `own_size` bytes. A smaller struct
 * leaves the defaults of the members it does not have; a larger one is accepted when all its further bytes are zero.
 * `what` names the struct in the sentence. */
spry_status spry_sized_read(void *own, size_t own_size, const void *theirs, const char *what, spry_error *error);

/* Whether all bytes are zero, as reserved ones must be. */
bool spry_sized_zero(const void *bytes, size_t count);

#endif
