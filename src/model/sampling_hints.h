/* The sampling settings a checkpoint recommends: generation_config.json of a folder, `general.sampling.*` of a GGUF
 * file. They are advice: a value that is absent, no number or out of range counts as no advice. */
#ifndef SPRY_MODEL_SAMPLING_HINTS_H
#define SPRY_MODEL_SAMPLING_HINTS_H

#include <jansson.h>

#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "spry.h"

/* NaN: no advice. */
typedef struct spry_sampling_hints {
    float temperature, top_k, top_p, min_p, repeat_penalty;
} spry_sampling_hints;

/* `json` may be NULL; one that says "do_sample": false recommends nothing. */
void spry_sampling_hints_from_json(spry_sampling_hints *hints, const json_t *json);
void spry_sampling_hints_from_gguf(spry_sampling_hints *hints, const spry_gguf *gguf);
void spry_sampling_hints_to_gguf(const spry_sampling_hints *hints, spry_gguf_writer *writer);

/* Writes the recommended values over those of `settings` and leaves the others. */
void spry_sampling_hints_apply(const spry_sampling_hints *hints, spry_sampling *settings);

#endif
