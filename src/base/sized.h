/* Structs that grow from version to version. Their first member is `size_t size`, which says how many bytes the
 * caller's version has. New members are added at the end, as whole words: padding at the end is never reused. */
#ifndef SPRY_BASE_SIZED_H
#define SPRY_BASE_SIZED_H

#include "base/error.h"

/* Copies a struct that a program filled over `own`, which holds the defaults and has `own_size` bytes. A smaller struct
 * leaves the defaults of the members it does not have; a larger one is accepted when all its further bytes are zero.
 * `what` names the struct in the sentence. */
spry_status spry_sized_read(void *own, size_t own_size, const void *theirs, const char *what, spry_error *error);

/* Whether all bytes are zero, as reserved ones must be. */
bool spry_sized_zero(const void *bytes, size_t count);

#endif
