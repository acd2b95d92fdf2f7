/* The speed is that of this pull, without bytes that an earlier one had downloaded. */
#include "pull/pull_bar.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/terminal.h"
#include "platform/clock.h"

enum { STEP_NS = 100000000, MARKS = 24, LINE_BYTES = 256 };

/* Pads with spaces instead of an escape sequence, so that it works on every terminal. */
static void draw(const char *line)
{
    int width = (int)spry_terminal_width(stderr) - 1;
    fprintf(stderr, "\r%-*.*s%s", width, width, line, line[0] ? "" : "\r");
    fflush(stderr);
}

void spry_pull_bar_begin(spry_pull_bar *bar, const char *name)
{
    *bar = (spry_pull_bar){.name = name, .began_ns = spry_clock_ns()};
}

void spry_pull_bar_update(spry_pull_bar *bar, uint64_t done, uint64_t total)
{
    uint64_t now = spry_clock_ns();
    if (!total || now - bar->drawn_ns < STEP_NS || !isatty(STDERR_FILENO))
        return;
    if (!bar->begun || done < bar->first)
        bar->first = done;
    bar->begun = bar->shown = true;
    bar->drawn_ns = now;
    double seconds = (double)(now - bar->began_ns + 1) / 1e9, speed = (double)(done - bar->first) / seconds;
    char marks[MARKS + 1], have[SPRY_AMOUNT_MAX], all[SPRY_AMOUNT_MAX], rate[SPRY_AMOUNT_MAX], line[LINE_BYTES];
    size_t full = done < total ? (size_t)((double)done / (double)total * MARKS) : MARKS;
    memset(marks, '.', MARKS);
    memset(marks, '#', full);
    marks[MARKS] = '\0';
    double left = speed > 0 ? (double)(total - done) / speed : 0;
    char rest[32] = "";
    if (speed > 0 && done < total && left < 360000)
        snprintf(rest, sizeof rest, left < 60 ? "  %.0f s left" : "  %.0f min left", left < 60 ? left : left / 60);
    snprintf(line, sizeof line, "%.24s [%s] %.0f %%  %s of %s  %s/s%s", bar->name, marks,
             (double)done * 100 / (double)total, spry_amount_bytes(have, done), spry_amount_bytes(all, total),
             spry_amount_bytes(rate, (size_t)speed), rest);
    draw(line);
}

void spry_pull_bar_end(spry_pull_bar *bar)
{
    if (bar->shown)
        draw("");
    bar->shown = false;
}
