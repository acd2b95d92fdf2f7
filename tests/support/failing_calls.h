/* Fails one call of a program: see failing_calls.c. This is the file that SPRY_FAILING_CALLS names, mapped by the
 * program and by the test that runs it (tests/server/server_torture.py); programs that are linked with failing_calls.c
 * use it directly. */
#ifndef SPRY_TESTS_FAILING_CALLS_H
#define SPRY_TESTS_FAILING_CALLS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum failing_kind {
    FAILING_NONE = 0,
    FAILING_MEMORY = 1,
    FAILING_MAP = 2,
    FAILING_THREAD = 3,
    FAILING_OPEN = 4,
    FAILING_WRITE = 5,
    FAILING_SYNC = 6,
    FAILING_RENAME = 7,
    FAILING_SOCKET = 8,
    FAILING_KINDS = 9
} failing_kind;

typedef struct failing_calls {
    atomic_llong kind;  /* of the call that fails */
    atomic_llong left;  /* calls until it; 0: none fails */
    atomic_llong stays; /* not 0: all later calls fail, too */
    atomic_llong failed;
    atomic_llong live; /* allocations that are not freed */
    atomic_llong calls[FAILING_KINDS];
} failing_calls;

/* The file, or memory of the program's own. */
failing_calls *failing_calls_here(void);

#endif
