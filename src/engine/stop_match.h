/* Stop strings in streamed text. Text is held back only while it could become a stop string. */
#ifndef SPRY_ENGINE_STOP_MATCH_H
#define SPRY_ENGINE_STOP_MATCH_H

#include "base/buffer.h"

/* The length of `text` that can be emitted: *found: a stop string begins there; otherwise the rest may be the beginning
 * of one. At the end of the text (`whole`) a partial match holds nothing back. */
size_t spry_stop_match(bool *found, spry_view text, const char *const *stop, size_t n_stop, bool whole);

#endif
