/* The profile of a machine as a page for people. */
#ifndef SPRY_APPS_DOCTOR_TEXT_H
#define SPRY_APPS_DOCTOR_TEXT_H

#include "doctor/machine_profile.h"

enum { SPRY_DOCTOR_WIDTH = 100 };

typedef struct spry_doctor_page {
    spry_buffer *out;   /* look at out->failed once at the end */
    size_t width;       /* columns, at most SPRY_DOCTOR_WIDTH */
    bool coloured;      /* for standard output, which may be a terminal */
    bool models;        /* with the models' expected speeds and the choices */
    const char *stored; /* where what was measured is kept; NULL: nowhere */
} spry_doctor_page;

/* All of it; where a model was asked about, only that one's expected speed and memory, and what holds it back. */
void spry_doctor_print(const spry_doctor_page *page, const spry_machine_profile *profile);

#endif
