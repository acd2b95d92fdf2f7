/* The only reads of these environment variables. */
#include "platform/environment.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "platform/os.h"

bool spry_environment_knows_escapes(void)
{
    const char *terminal = getenv("TERM");
    return terminal && terminal[0] && strcmp(terminal, "dumb") != 0;
}

bool spry_environment_wants_colour(void)
{
    const char *no_colour = getenv("NO_COLOR");
    return !(no_colour && no_colour[0]) && spry_environment_knows_escapes();
}

const char *spry_environment_pager(void)
{
    const char *pager = getenv("PAGER");
    return !spry_environment_knows_escapes() ? NULL : pager ? pager : "";
}

long spry_environment_take_ranks(double *timeout_s)
{
    static const char size_variable[] = "OMPI_COMM_WORLD_SIZE"; /* Open MPI's number of processes */
    const char *size = getenv(size_variable), *timeout = getenv("SPRY_RANK_TIMEOUT");
    long ranks = size ? strtol(size, NULL, 10) : 1;
    *timeout_s = timeout ? strtod(timeout, NULL) : 0;
    if (!(*timeout_s > 0))
        *timeout_s = 60;
    if (ranks > 1)
        unsetenv(size_variable);
    return ranks;
}

static const char *value_of(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

spry_status spry_environment_take_socket(int *file, spry_error *error)
{
    enum { FIRST_PASSED = 3 };
    const char *process = value_of("LISTEN_PID"), *count = value_of("LISTEN_FDS");
    *file = -1;
    if (!process || !count || strtol(process, NULL, 10) != getpid())
        return SPRY_OK;
    if (strcmp(count, "1") != 0)
        return spry_fail(error, SPRY_ERR_INPUT, "the service manager passes %.20s sockets, but the server takes one",
                         count);
    *file = FIRST_PASSED;
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    return SPRY_OK;
}

const char *spry_environment_setting(const char *variable)
{
    return value_of(variable);
}

void spry_environment_each(const char *prefix, void (*visit)(void *user, const char *name), void *user)
{
    extern char **environ; /* POSIX defines it, but in no header */
    for (char **entry = environ; entry && *entry; entry++) {
        char name[128];
        size_t length = strcspn(*entry, "=");
        if (strncmp(*entry, prefix, strlen(prefix)) != 0 || length >= sizeof name)
            continue;
        memcpy(name, *entry, length);
        name[length] = '\0';
        visit(user, name);
    }
}

const char *spry_environment_hub(spry_hub_setting setting)
{
    static const char *const names[] = {[SPRY_HF_ENDPOINT] = "HF_ENDPOINT",
                                        [SPRY_HF_TOKEN] = "HF_TOKEN",
                                        [SPRY_OLLAMA_REGISTRY] = "SPRY_OLLAMA_REGISTRY"};
    return value_of(names[setting]);
}

bool spry_environment_hub_folder(spry_buffer *path, spry_hub_place place)
{
    static const struct {
        spry_hub_place place;
        const char *variable, *below;
    } places[] = {
        {SPRY_HF_FOLDER, "HF_HUB_CACHE", ""},
        {SPRY_HF_FOLDER, "HF_HOME", "/hub"},
        {SPRY_HF_FOLDER, "XDG_CACHE_HOME", "/huggingface/hub"},
        {SPRY_HF_FOLDER, "HOME", "/.cache/huggingface/hub"},
        {SPRY_OLLAMA_FOLDER, "OLLAMA_MODELS", ""},
        {SPRY_OLLAMA_FOLDER, "HOME", "/.ollama/models"},
        {SPRY_OWN_FOLDER, "XDG_CACHE_HOME", "/spry"},
        {SPRY_OWN_FOLDER, "HOME", "/.cache/spry"},
    };
    spry_buffer_clear(path);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if (places[i].place == place && value_of(places[i].variable))
            return spry_buffer_format(path, "%s%s", value_of(places[i].variable), places[i].below);
    return false;
}

/* ---- modules ----------------------------------------------------------------------------------------------------- */

#ifndef SPRY_MODULE_DIR
#define SPRY_MODULE_DIR "../lib/spry"
#endif

static const char anchor; /* an address inside this library */

bool spry_environment_library_folder(spry_buffer *out, const char *from_there)
{
    Dl_info here;
    char path[PATH_MAX];
    spry_buffer_clear(out);
    if (!dladdr((const void *)&anchor, &here) || !here.dli_fname || !realpath(here.dli_fname, path))
        return false;
    char *slash = strrchr(path, '/');
    return slash && spry_buffer_format(out, "%.*s/%s", (int)(slash - path), path, from_there);
}

void *spry_module_symbol(const char *name, const char *symbol, spry_error *error)
{
    static const char *const by_program[] = {".", SPRY_MODULE_DIR}, *const by_library[] = {".", "spry"};
    char folder[PATH_MAX] = "", path[2 * PATH_MAX];
    char *slash = spry_os_program(folder, sizeof folder) ? strrchr(folder, '/') : NULL;
    bool there = false;
    if (slash)
        *slash = 0;
    for (size_t i = 0; slash && !there && i < SPRY_COUNT(by_program); i++) {
        snprintf(path, sizeof path, "%s/%s/%s.so", folder, by_program[i], name);
        there = access(path, F_OK) == 0;
    }
    /* A program that is not spry's, such as Python, loaded the library from elsewhere. */
    spry_buffer library;
    spry_buffer_init(&library, sizeof folder);
    for (size_t i = 0; !there && i < SPRY_COUNT(by_library); i++)
        if (spry_environment_library_folder(&library, by_library[i])) {
            snprintf(path, sizeof path, "%s/%s.so", library.data, name);
            there = access(path, F_OK) == 0;
        }
    spry_buffer_deinit(&library);
    if (!there) {
        spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s.so is neither beside the program nor in the library's folder", name);
        return NULL;
    }
    void *module = dlopen(path, RTLD_NOW | RTLD_GLOBAL); /* MPI opens modules that need its symbols */
    void *found = module ? dlsym(module, symbol) : NULL;
    if (!found) {
        const char *reason = dlerror();
        spry_fail(error, SPRY_ERR_UNSUPPORTED, "%s", reason ? reason : "it has no such symbol");
    }
    return found;
}
