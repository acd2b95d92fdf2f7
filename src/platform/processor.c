/* Reads /proc/cpuinfo. */
#include "platform/processor.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

/* Copies printable characters, joins runs of spaces and trims the ends. */
static void tidy(char out[SPRY_PROCESSOR_NAME_MAX], const char *text)
{
    size_t used = 0;
    for (; *text && used + 1 < SPRY_PROCESSOR_NAME_MAX; text++) {
        bool space = *text <= ' ' || *text > '~';
        if (!space || (used && out[used - 1] != ' '))
            out[used++] = space ? ' ' : *text;
    }
    while (used && out[used - 1] == ' ')
        used--;
    out[used] = '\0';
}

void spry_processor_name_below(char out[SPRY_PROCESSOR_NAME_MAX], const char *root)
{
    char line[512], path[PATH_MAX];
    out[0] = '\0';
    int length = snprintf(path, sizeof path, "%s/proc/cpuinfo", root);
    FILE *file = length > 0 && length < PATH_MAX ? fopen(path, "re") : NULL;
    while (file && !out[0] && fgets(line, sizeof line, file)) {
        const char *value = strchr(line, ':');
        if (value && strncmp(line, "model name", strlen("model name")) == 0)
            tidy(out, value + 1);
    }
    if (file)
        fclose(file);
    struct utsname machine;
    if (!out[0])
        tidy(out, uname(&machine) == 0 ? machine.machine : "unknown");
}

void spry_processor_name(char out[SPRY_PROCESSOR_NAME_MAX])
{
    spry_processor_name_below(out, "");
}
