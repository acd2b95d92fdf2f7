/* Options from JSON values sent to a server, validated as strictly as a command line. */
#ifndef SPRY_BASE_OPTIONS_JSON_H
#define SPRY_BASE_OPTIONS_JSON_H

#include <jansson.h>

#include "base/options.h"

/* Sets the option with JSON key or alias `key`. Numbers must be JSON numbers, except that sizes and 64-bit numbers may
 * be strings ("4G", "18446744073709551615"); 40.0 is 40; null leaves the option unchanged; a list accepts a string or
 * an array of strings, which replaces it. Strings are borrowed from `value`. Unknown keys fail. */
spry_status spry_options_set_json(const spry_option_table *table, const char *key, const json_t *value,
                                  spry_error *error);

#endif
