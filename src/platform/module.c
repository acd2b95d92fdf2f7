#include "platform/module.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifndef SPRY_MODULE_DIR
#define SPRY_MODULE_DIR "/usr/local/lib/spry"
#endif

static void *open_module(const char *folder, const char *name)
{
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s.so", folder, name);
    return dlopen(path, RTLD_NOW | RTLD_GLOBAL); /* MPI opens modules that need its symbols */
}

void *spry_module_symbol(const char *name, const char *symbol, spry_error *error)
{
    char program[PATH_MAX] = "";
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    char *slash = length > 0 ? strrchr(program, '/') : NULL;
    void *module = NULL;
    if (slash) {
        *slash = 0;
        module = open_module(program, name);
    }
    if (!module)
        module = open_module(SPRY_MODULE_DIR, name);
    void *found = module ? dlsym(module, symbol) : NULL;
    if (!found) {
        const char *reason = dlerror();
        spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s", reason ? reason : "it has no such symbol");
    }
    return found;
}
