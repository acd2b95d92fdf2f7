/* All that is known of a machine, as one document: what it is, what was measured, what holds it back, how fast which
 * model will be, and which to choose. What was measured is stored and used again; everything else is found out each
 * time. docs/DOCTOR.md shows the document. */
#ifndef SPRY_APPS_DOCTOR_MACHINE_PROFILE_H
#define SPRY_APPS_DOCTOR_MACHINE_PROFILE_H

#include "cli/terminal.h"
#include "doctor/findings.h"
#include "doctor/model_choice.h"

#define SPRY_PROFILE_FORMAT "spry-machine-1"

enum { SPRY_PROFILE_VERSION = 32, SPRY_PROFILE_DAYS = 30 };

/* A model that somebody asked about. */
typedef struct spry_asked_model {
    char name[128]; /* "": nobody asked */
    const char *architecture;
    spry_prediction predicted;
    bool fits;
} spry_asked_model;

typedef struct spry_machine_profile {
    char id[SPRY_MACHINE_ID];
    char when[SPRY_TIME_TEXT]; /* it was measured: "2026-11-15T12:00:00Z" */
    spry_hardware hardware;
    spry_gpus gpus;
    spry_energy_facts energy;
    spry_machine_speed speed; /* its threads and kernels are known before it is measured */
    spry_finding findings[SPRY_FINDINGS_MAX];
    size_t n_findings;
    spry_candidate candidates[SPRY_CANDIDATES_MAX];
    size_t n_candidates;
    spry_model_choice choices[SPRY_USE_COUNT];
    size_t n_choices;
    spry_asked_model asked;
} spry_machine_profile;

/* Appends the document and a line break; `models`: with candidates and choices, otherwise those lists are empty. */
spry_status spry_profile_json(spry_buffer *out, const spry_machine_profile *profile, bool models, spry_error *error);

/* ---- what is stored ---------------------------------------------------------------------------------------------- */

/* What a stored document says that a machine does not say of itself. */
typedef struct spry_stored_profile {
    char id[SPRY_MACHINE_ID], spry[SPRY_PROFILE_VERSION], when[SPRY_TIME_TEXT];
    int64_t seconds; /* of `when`, since 1970 */
    double load;     /* while it was measured */
    spry_machine_speed speed;
    spry_gpu gpus[SPRY_GPUS_MAX]; /* name, read_gb_s and why */
    size_t n_gpus;
} spry_stored_profile;

/* Of the text of a document. A key that is not what it has to be is refused by name, wherever it stands; so is one that
 * is missing and wanted here. */
spry_status spry_profile_parse(spry_stored_profile *stored, spry_view text, spry_error *error);

/* Why what is stored does not hold here and now, in a few words; NULL: it does. */
const char *spry_profile_stale(const spry_stored_profile *stored, const spry_machine_profile *profile, int64_t now);

/* Takes what was measured into the profile. */
void spry_profile_adopt(spry_machine_profile *profile, const spry_stored_profile *stored);

/* Where it is stored, the folder made if need be; fails where there is no place. */
spry_status spry_profile_path(spry_buffer *path, spry_error *error);

/* Reads what is stored there; *found is false where there is nothing. */
spry_status spry_profile_load(spry_stored_profile *stored, bool *found, const char *path, spry_error *error);

/* Writes all of the text or nothing. */
spry_status spry_profile_write(const char *path, spry_view text, spry_error *error);

/* Back from spry_time_text; false where it is no such time. */
bool spry_profile_time_read(int64_t *seconds, const char *text);

#endif
