/* Stop strings in streamed text. Text is held back only as long as it could still become a stop string. */
#ifndef SPRY_ENGINE_STOP_MATCH_H
#define SPRY_ENGINE_STOP_MATCH_H

#include "base/buffer.h"

/* How much of `text` can be given out: *found says whether a stop string begins there; otherwise what stands behind is
 * the beginning of one. At the end of the text (`whole`) no more can come, and a mere beginning holds nothing back. */
size_t spry_stop_match(bool *found, spry_view text, const char *const *stop, size_t n_stop, bool whole);

#endif
