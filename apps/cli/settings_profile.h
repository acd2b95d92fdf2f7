/* The profile of machines: settings that every command takes before variables and flags, in one JSON file with a
 * section for each machine's id. `spry doctor --write-profile` makes the section of this machine (docs/DOCTOR.md).
 *
 *   {"format": "spry-profile-1",
 *    "machines": {"d603059cad64b0e6": {
 *      "settings": {"threads": 2, "kv_type": "auto", "serve": {"policy": "interactive"}},
 *      "why": {"threads": "..."}, "targets": {...}}}}
 *
 * A setting has the JSON key of an option and is used by every command that has the option; an object under the name of
 * a command is used by that command alone. Unknown keys are refused. */
#ifndef SPRY_APPS_SETTINGS_PROFILE_H
#define SPRY_APPS_SETTINGS_PROFILE_H

#include <jansson.h>

#include "base/options.h"
#include "platform/hardware.h"

#define SPRY_SETTINGS_FORMAT "spry-profile-1"

typedef struct spry_settings_profile {
    json_t *document;      /* NULL: there is no file, or none is wanted */
    const json_t *section; /* the section of this machine; NULL: the file has none */
    char *path; /* path of the file, which need not exist; NULL: no profile is wanted, or no folder is known */
    char id[SPRY_MACHINE_ID];
} spry_settings_profile;

/* Reads a profile for the process. `given` is the value of --profile: a file, which must have a section for this
 * machine unless it is `to_write`; "none"; or NULL for the user's own, which need not be there. */
spry_status spry_settings_profile_load(const char *given, bool to_write, spry_error *error);

/* The profile that was loaded. */
const spry_settings_profile *spry_settings_profile_get(void);

/* Whether any option of the tables can be set by a profile. */
bool spry_settings_profile_concerns(const spry_option_table *tables, size_t n_tables);

/* Sets the options of a command ("serve", "chats resume") from the section of this machine. `exact`: the command
 * measures a model's results, so settings for all commands that cost accuracy (quantize, kv_type) are not used. */
spry_status spry_settings_profile_apply(const spry_option_table *tables, size_t n_tables, const char *command,
                                        bool exact, spry_error *error);

/* Appends "threads 2, chunk 256": the options of a command that have the value of this machine's section. Nothing: no
 * section, or variables and flags override all of it. */
void spry_settings_profile_in_force(spry_buffer *out, const spry_option_table *tables, size_t n_tables,
                                    const char *command);

#endif
