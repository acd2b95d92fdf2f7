/* Reads standard input and converts it to text or ids. */
#ifndef SPRY_APPS_INPUT_H
#define SPRY_APPS_INPUT_H

#include "base/buffer.h"
#include "base/error.h"

/* Appends all of standard input, byte for byte, up to the buffer's maximum. */
spry_status spry_input_read(spry_buffer *out, spry_error *error);

/* Appends `bytes` as valid UTF-8 without zeros: invalid sequences become U+FFFD, and one message on standard error
 * reports how many, calling the text `what` ("the prompt"). */
spry_status spry_input_clean(spry_buffer *out, spry_view bytes, const char *what, spry_error *error);

/* Appends the token ids of a text: integers separated by whitespace or commas, or one JSON array. */
spry_status spry_input_ids(spry_tokens *out, spry_view text, spry_error *error);

#endif
