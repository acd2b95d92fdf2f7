/* Values that are not understood are missing. */
#include "platform/system_file.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/view.h"

/* NULL: it does not exist. */
static FILE *open_below(const char *root, const char *path)
{
    char whole[PATH_MAX];
    int length = snprintf(whole, sizeof whole, "%s%s", root, path);
    return length > 0 && length < PATH_MAX ? fopen(whole, "re") : NULL;
}

static void trim_end(char *text)
{
    size_t length = strlen(text);
    while (length && (text[length - 1] == '\n' || text[length - 1] == ' ' || text[length - 1] == '\t'))
        text[--length] = '\0';
}

bool spry_system_value(char out[SPRY_SYSTEM_VALUE], const char *root, const char *format, ...)
{
    char path[SPRY_SYSTEM_VALUE];
    va_list args;
    va_start(args, format);
    vsnprintf(path, sizeof path, format, args);
    va_end(args);
    FILE *file = open_below(root, path);
    if (!file)
        return false;
    bool there = fgets(out, SPRY_SYSTEM_VALUE, file) != NULL;
    fclose(file);
    if (there)
        trim_end(out);
    return there;
}

char *spry_system_line(const char *root, const char *path, const char *key)
{
    FILE *file = open_below(root, path);
    char *line = NULL, *found = NULL;
    size_t capacity = 0, length = strlen(key);
    while (file && !found && getline(&line, &capacity, file) >= 0) {
        if (strncmp(line, key, length) != 0 || !strchr(": \t", line[length]))
            continue;
        trim_end(line);
        found = strdup(line + length + strspn(line + length, ": \t"));
    }
    free(line);
    if (file)
        fclose(file);
    return found;
}

bool spry_system_number(uint64_t *out, const char *text)
{
    return spry_number_u64(out, (spry_view){text, strcspn(text, " \t")});
}

bool spry_system_range(uint32_t *first, uint32_t *last, const char **list)
{
    size_t length = strcspn(*list, ","), dash = strcspn(*list, ",-");
    uint64_t from, to;
    if (!spry_number_u64(&from, (spry_view){*list, dash}))
        return false;
    to = from;
    if (dash < length && !spry_number_u64(&to, (spry_view){*list + dash + 1, length - dash - 1}))
        return false;
    if (to < from || to >= SPRY_SYSTEM_PROCESSORS)
        return false;
    *first = (uint32_t)from;
    *last = (uint32_t)to;
    *list += length + ((*list)[length] == ',');
    return true;
}
