#include "doctor/running_servers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "platform/file.h"
#include "platform/system_file.h"

enum { PATH_BYTES = 4096 };

typedef struct search {
    const char *root;
    spry_running_server *found;
    size_t count;
} search;

/* /proc/N/cmdline has the arguments with a zero after each. */
static bool is_server(const char *root, uint64_t process)
{
    char line[SPRY_SYSTEM_VALUE + 2] = "";
    if (!spry_system_value(line, root, "/proc/%llu/cmdline", (unsigned long long)process))
        return false;
    const char *slash = strrchr(line, '/'), *program = slash ? slash + 1 : line;
    return strcmp(program, "spry") == 0 && strcmp(line + strlen(line) + 1, "serve") == 0;
}

static void visit(void *context, const char *name)
{
    search *s = context;
    uint64_t process, kib;
    char path[64];
    if (s->count == SPRY_RUNNING_SERVERS_MAX || !spry_number_u64(&process, spry_view_of(name)) ||
        !is_server(s->root, process))
        return;
    spry_running_server *server = &s->found[s->count++];
    *server = (spry_running_server){.process = process};
    snprintf(path, sizeof path, "/proc/%llu/status", (unsigned long long)process);
    char *resident = spry_system_line(s->root, path, "VmRSS");
    if (resident && spry_system_number(&kib, resident) && kib < SIZE_MAX / 1024)
        server->resident_bytes = (size_t)kib * 1024;
    free(resident);
}

size_t spry_running_servers_find(spry_running_server servers[SPRY_RUNNING_SERVERS_MAX], const char *root)
{
    search s = {root, servers, 0};
    char folder[PATH_BYTES];
    spry_error none;
    int length = snprintf(folder, sizeof folder, "%s/proc", root);
    if (length > 0 && length < PATH_BYTES)
        (void)spry_folder_each(folder, visit, &s, &none);
    return s.count;
}
