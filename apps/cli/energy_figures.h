/* Energy in words and as JSON, formatted the same everywhere. */
#ifndef SPRY_APPS_ENERGY_FIGURES_H
#define SPRY_APPS_ENERGY_FIGURES_H

#include <jansson.h>

#include "base/buffer.h"
#include "platform/energy.h"

/* The energy used between two readings. */
spry_joules spry_joules_between(const spry_joules *before, const spry_joules *after);

/* Processor and GPU together, as far as they were measured. */
double spry_joules_whole(const spry_joules *used);

/* {"joules", "joules_per_100_tokens", "watts", "cpu_joules", "gpu_joules"} of `used` in `ms` milliseconds for `tokens`
 * tokens; null where nothing was measured. */
json_t *spry_energy_json(const spry_joules *used, double ms, size_t tokens);

/* {"cpu", "why_no_cpu", "gpu", "why_no_gpu"}: the source of each, or null and the reason. */
json_t *spry_energy_facts_json(const spry_energy_facts *facts);

/* "12.3 J, 4.1 J for 100 tokens, 45 W", or "not measured: " and the reason. */
void spry_energy_words(spry_buffer *out, spry_energy *meter, const spry_joules *used, double ms, size_t tokens);

/* Why nothing is measured: the processor's message. */
void spry_energy_why(char out[SPRY_ENERGY_TEXT], spry_energy *meter);

#endif
