/* The settings of sampling as options: one table for flags, JSON keys, ranges, help and documentation. */
#ifndef SPRY_BASE_SAMPLING_OPTIONS_H
#define SPRY_BASE_SAMPLING_OPTIONS_H

#include <jansson.h>

#include "base/error.h"
#include "base/options.h"

/* Checks ranges; the sentence names the setting and its range. */
spry_status spry_sampling_check(const spry_sampling *settings, size_t n_vocab, spry_error *error);

/* The table bound to `settings`. */
spry_option_table spry_sampling_options(spry_sampling *settings);

/* Sets the settings that `object` names, by the table's JSON keys and aliases; the others keep their values.
 * "logit_bias" is an object from token ids to numbers, or null or "-Infinity" to ban; it goes to `bias`, which
 * settings->bias then points to (NULL: not accepted). Unknown keys fail, or are skipped with `ignore_unknown`. Token
 * ids are not checked here but by spry_sampling_check. */
spry_status spry_sampling_from_json(spry_sampling *settings, spry_logit_bias *bias, size_t bias_capacity,
                                    const json_t *object, bool ignore_unknown, spry_error *error);

/* Whether penalties count the tokens of the prompt, too. */
bool spry_sampling_counts_prompt(const spry_sampling *settings);

#endif
