#include "platform/module.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"

#ifndef SPRY_MODULE_DIR
#define SPRY_MODULE_DIR "../lib/spry"
#endif

void *spry_module_symbol(const char *name, const char *symbol, spry_error *error)
{
    static const char *const folders[] = {".", SPRY_MODULE_DIR};
    char program[PATH_MAX] = "", path[2 * PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    char *slash = length > 0 ? strrchr(program, '/') : NULL;
    void *module = NULL;
    if (slash)
        *slash = 0;
    for (size_t i = 0; slash && !module && i < SPRY_COUNT(folders); i++) {
        snprintf(path, sizeof path, "%s/%s/%s.so", program, folders[i], name);
        module = dlopen(path, RTLD_NOW | RTLD_GLOBAL); /* MPI opens modules that need its symbols */
    }
    void *found = module ? dlsym(module, symbol) : NULL;
    if (!found) {
        const char *reason = dlerror();
        spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s", reason ? reason : "it has no such symbol");
    }
    return found;
}
