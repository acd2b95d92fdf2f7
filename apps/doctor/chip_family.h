/* Compares a machine with what was measured on its family of chips. The families are data: apps/doctor/chips.json,
 * which is linked in. */
#ifndef SPRY_APPS_DOCTOR_CHIP_FAMILY_H
#define SPRY_APPS_DOCTOR_CHIP_FAMILY_H

#include "base/error.h"
#include "base/view.h"
#include "platform/gpu.h"
#include "platform/hardware.h"
#include "spry_tools.h"

enum { SPRY_CHIP_TEXT = 192 };

typedef struct spry_chip {
    char family[SPRY_CHIP_TEXT];       /* "": no figures of such a chip are known */
    char source[SPRY_CHIP_TEXT];       /* how and where the family's figures were measured */
    uint32_t threads;                  /* threads of the measurement; 0 for a GPU */
    double read_gb_s, multiply_g_s;    /* measured; 0: not */
    double read_share, multiply_share; /* this machine's speed by that of its family; 0: not known */
} spry_chip;

typedef struct spry_chips {
    spry_chip processor, gpu;
} spry_chips;

/* Finds the families of the processor and of the first GPU in the text of chips.json, and compares. Products grow with
 * the number of threads; reading does up to the number of threads that was measured. */
spry_status spry_chips_compare(spry_chips *chips, spry_view families, const spry_hardware *hardware,
                               const spry_machine_speed *speed, const spry_gpus *gpus, spry_error *error);

extern const unsigned char spry_bundled_chips_begin[], spry_bundled_chips_end[]; /* apps/doctor/chips.json */

#endif
