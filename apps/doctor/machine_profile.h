/* The profile of a machine as one document: properties, measured speeds, bottlenecks, expected speeds of models, and
 * recommendations. Measurements are stored and reused; everything else is determined on each run. docs/DOCTOR.md
 * describes the document. */
#ifndef SPRY_APPS_DOCTOR_MACHINE_PROFILE_H
#define SPRY_APPS_DOCTOR_MACHINE_PROFILE_H

#include <jansson.h>

#include "base/dtype.h"
#include "cli/terminal.h"
#include "doctor/findings.h"
#include "doctor/model_choice.h"

#define SPRY_PROFILE_FORMAT "spry-machine-1"

enum { SPRY_PROFILE_VERSION = 32, SPRY_PROFILE_DAYS = 30 };

/* The model given on the command line. */
typedef struct spry_asked_model {
    char name[128]; /* "": none */
    const char *architecture;
    spry_prediction predicted;
    bool fits;
} spry_asked_model;

typedef struct spry_machine_profile {
    char id[SPRY_MACHINE_ID];
    char when[SPRY_TIME_TEXT]; /* time of the measurement: "2026-11-15T12:00:00Z" */
    spry_hardware hardware;
    spry_gpus gpus;
    spry_energy_facts energy;
    spry_machine_speed speed; /* its threads and kernels are known before the measurement */
    spry_chips chips;         /* the families of its chips, and how it compares with them */
    spry_finding findings[SPRY_FINDINGS_MAX];
    size_t n_findings;
    spry_candidate candidates[SPRY_CANDIDATES_MAX];
    size_t n_candidates;
    spry_model_choice choices[SPRY_USE_COUNT];
    size_t n_choices;
    spry_asked_model asked;
    spry_machine_state before, now; /* when the command began, and at its end */
    spry_running_server servers[SPRY_RUNNING_SERVERS_MAX];
    size_t n_servers;
} spry_machine_profile;

/* Appends the document and a newline; `models`: with candidates and choices, otherwise those lists are empty. */
spry_status spry_profile_json(spry_buffer *out, const spry_machine_profile *profile, bool models, spry_error *error);

/* ---- what is stored ---------------------------------------------------------------------------------------------- */

/* The parts of a stored document that cannot be read from the machine. */
typedef struct spry_stored_profile {
    char id[SPRY_MACHINE_ID], spry[SPRY_PROFILE_VERSION], when[SPRY_TIME_TEXT];
    int64_t seconds; /* `when` as seconds since 1970 */
    double load;     /* during the measurement */
    spry_machine_speed speed;
    spry_gpu gpus[SPRY_GPUS_MAX]; /* name, read_gb_s and why */
    size_t n_gpus;
} spry_stored_profile;

/* Checks the types and ranges of all keys of a document that this version knows. */
spry_status spry_profile_check(const json_t *document, spry_error *error);

/* Parses a document. An invalid key is refused by name, and so is a missing required one. */
spry_status spry_profile_parse(spry_stored_profile *stored, spry_view text, spry_error *error);

/* Why the stored profile is not valid here and now, in a few words; NULL: it is valid. */
const char *spry_profile_stale(const spry_stored_profile *stored, const spry_machine_profile *profile, int64_t now);

/* Copies the measurements into the profile. */
void spry_profile_adopt(spry_machine_profile *profile, const spry_stored_profile *stored);

/* The file of the stored profile; creates its folder if needed; fails when there is none. */
spry_status spry_profile_path(spry_buffer *path, spry_error *error);

/* Reads the stored profile; *found is false when there is none. */
spry_status spry_profile_load(spry_stored_profile *stored, bool *found, const char *path, spry_error *error);

/* Parses the format of spry_time_text; false for other text. */
bool spry_profile_time_read(int64_t *seconds, const char *text);

/* ---- speeds ----------------------------------------------------------------------------------------------------- */

/* The object "speeds" of a machine's profile (NULL when memory is short), and its parser: missing keys and values that
 * are not numbers above 0 are refused by name. Missing types are unknown. */
json_t *spry_machine_speed_to_json(const spry_machine_speed *speed);
spry_status spry_machine_speed_from_json(spry_machine_speed *speed, const json_t *json, spry_error *error);

/* ---- doctor_text.c: the profile as text -------------------------------------------------------------------------- */

enum { SPRY_DOCTOR_WIDTH = 100 };

typedef struct spry_doctor_page {
    spry_buffer *out;   /* check out->failed once at the end */
    size_t width;       /* columns, at most SPRY_DOCTOR_WIDTH */
    bool coloured;      /* for a terminal with colours */
    bool models;        /* also show expected speeds of models, and recommendations */
    const char *stored; /* the file of the stored profile; NULL: none */
} spry_doctor_page;

/* Prints the whole page; for a given model only its expected speed and memory, and the bottlenecks. */
void spry_doctor_print(const spry_doctor_page *page, const spry_machine_profile *profile);

/* Prints the settings of the profile with their reasons. */
void spry_doctor_explain(const spry_doctor_page *page);

/* ---- machine_settings.c: settings chosen for the machine --------------------------------------------------------- */

/* Chooses the settings of a machine from what was measured, and writes them to its section of the profile
 * (cli/settings_profile.h). Every choice has a sentence with its figures. */

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
