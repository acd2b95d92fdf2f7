/* Environment variables about the terminal, the launcher of ranks, and hubs of models, whose own programs read the same
 * ones; and the variables of options (base/options.h). Nothing else is read from the environment. */
#ifndef SPRY_PLATFORM_ENVIRONMENT_H
#define SPRY_PLATFORM_ENVIRONMENT_H

#include <stdbool.h>

#include "base/buffer.h"
#include "base/error.h"

/* Whether the terminal understands escape sequences: false when TERM is missing or "dumb". */
bool spry_environment_knows_escapes(void);

/* False when NO_COLOR is set to anything (no-color.org), or TERM is missing or "dumb". */
bool spry_environment_wants_colour(void);

/* The command that shows long texts page by page, PAGER; "": not set. NULL where TERM is missing or "dumb". */
const char *spry_environment_pager(void);

/* The processes that mpirun has started together, 1 when it has not, and the seconds that they wait for each other
 * (SPRY_RANK_TIMEOUT, else 60). Processes that this one starts compute alone. */
long spry_environment_take_ranks(double *timeout_s);

/* The socket that a service manager has opened for this process (LISTEN_PID, LISTEN_FDS), which processes that this one
 * starts do not take again; -1: none. Fails where there are several. */
spry_status spry_environment_take_socket(int *file, spry_error *error);

/* The value of the variable of an option; NULL: not set, or empty. */
const char *spry_environment_setting(const char *variable);

/* Calls `visit` with the name of every variable that begins with `prefix`. */
void spry_environment_each(const char *prefix, void (*visit)(void *user, const char *name), void *user);

/* Addresses of hubs and the token for them; NULL: not set, or empty. */
typedef enum spry_hub_setting { SPRY_HF_ENDPOINT, SPRY_HF_TOKEN, SPRY_OLLAMA_REGISTRY } spry_hub_setting;
const char *spry_environment_hub(spry_hub_setting setting);

/* Replaces `path` with the folder where a hub's own program keeps models; false: none can be told. */
typedef enum spry_hub_place { SPRY_HF_FOLDER, SPRY_OLLAMA_FOLDER, SPRY_OWN_FOLDER } spry_hub_place;
bool spry_environment_hub_folder(spry_buffer *path, spry_hub_place place);

/* Parts of the library that need a library of their own, in files that are opened only when asked for. */

/* Replaces `out` with a folder, given from that of this library, or of the program that contains it. False: neither is
 * known. */
bool spry_environment_library_folder(spry_buffer *out, const char *from_there);

/* A symbol of the module `name`, which stays open. It is beside the program or this library, or in the folder for modules
 * of the tree that one of them was installed to. NULL: there is none, and the error says why. */
void *spry_module_symbol(const char *name, const char *symbol, spry_error *error);

#endif
