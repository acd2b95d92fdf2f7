/* Chooses the settings of a machine from what was measured, and writes them to its section of the profile
 * (cli/settings_profile.h). Every choice has a sentence with its figures. */
#ifndef SPRY_APPS_DOCTOR_MACHINE_SETTINGS_H
#define SPRY_APPS_DOCTOR_MACHINE_SETTINGS_H

#include "doctor/machine_profile.h"

enum {
    SPRY_SETTINGS_CHUNKS = 4,
    SPRY_SETTINGS_CHUNK = 128, /* the chunk of commands without a profile */
    SPRY_SETTINGS_MAX = 12,
};

/* What is measured for the choice alone. */
typedef struct spry_settings_evidence {
    spry_machine_speed
        on_cores; /* speed with one thread a core; threads 0: not measured, since no core has two threads */
    uint32_t chunks[SPRY_SETTINGS_CHUNKS];  /* prompt tokens computed in one step, ascending */
    double chunk_tps[SPRY_SETTINGS_CHUNKS]; /* prompt tokens a second of the bundled model */
} spry_settings_evidence;

typedef struct spry_chosen_setting {
    const char *command; /* NULL: of every command */
    const char *key;
    char value[24];  /* "": as without a profile */
    uint32_t number; /* if not 0, and `value` is empty: the value */
    char why[240];
} spry_chosen_setting;

typedef struct spry_chosen_settings {
    spry_chosen_setting list[SPRY_SETTINGS_MAX];
    size_t count;
} spry_chosen_settings;

/* Measures with these threads. */
spry_status spry_settings_measure(spry_settings_evidence *evidence, const spry_machine_profile *profile,
                                  const spry_speed_progress *progress, spry_error *error);

void spry_settings_choose(spry_chosen_settings *out, const spry_machine_profile *profile,
                          const spry_settings_evidence *evidence);

/* Replaces settings and reasons of this machine's section in the loaded profile and writes the file; targets that are
 * there, and sections of other machines, stay. */
spry_status spry_settings_write(const spry_chosen_settings *settings, const spry_machine_profile *profile,
                                spry_error *error);

#endif
