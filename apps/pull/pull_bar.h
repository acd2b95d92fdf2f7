/* Progress of a pull: one line on standard error, redrawn in place; only on a terminal. */
#ifndef SPRY_APPS_PULL_BAR_H
#define SPRY_APPS_PULL_BAR_H

#include <stdbool.h>
#include <stdint.h>

typedef struct spry_pull_bar {
    const char *name;
    uint64_t began_ns, drawn_ns;
    uint64_t first; /* bytes present at the first update */
    bool begun, shown;
} spry_pull_bar;

void spry_pull_bar_begin(spry_pull_bar *bar, const char *name);
void spry_pull_bar_update(spry_pull_bar *bar, uint64_t done, uint64_t total);
void spry_pull_bar_end(spry_pull_bar *bar); /* clears the line */

#endif
