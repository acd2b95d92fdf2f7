/* Strict UTF-8: overlong forms, surrogates and values above U+10FFFF are refused. */
#ifndef SPRY_BASE_UTF8_H
#define SPRY_BASE_UTF8_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/view.h"

/* Decodes one character at `data`. Returns its length and stores it, or returns 0 when the bytes are not valid
 * UTF-8. */
size_t spry_utf8_decode(uint32_t *character, const char *data, size_t size);

/* Writes a valid character to `out` (room for 4 bytes); returns its length. */
size_t spry_utf8_encode(char *out, uint32_t character);

/* Number of bytes at the end (0 to 3) that are the start of a character which more bytes could complete. */
size_t spry_utf8_incomplete_tail(const char *data, size_t size);

bool spry_utf8_valid(spry_view text);

/* Appends `text` with each maximal ill-formed part replaced by U+FFFD. Returns how many were replaced. */
size_t spry_utf8_append_valid(spry_buffer *out, spry_view text);

#endif
