/* The profile of a machine as text. */
#ifndef SPRY_APPS_DOCTOR_TEXT_H
#define SPRY_APPS_DOCTOR_TEXT_H

#include "doctor/machine_profile.h"

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

#endif
