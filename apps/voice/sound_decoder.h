/* Sound files other than WAV. Libsndfile reads them in a child process without rights (platform/child.h), because
 * files come from strangers and its readers are large. */
#ifndef SPRY_VOICE_SOUND_DECODER_H
#define SPRY_VOICE_SOUND_DECODER_H

#include "base/error.h"

typedef struct spry_sound_decoding spry_sound_decoding;

/* Begins to decode a file in memory, which must stay until the end; `name` replaces its path in messages. */
spry_status spry_sound_decoding_open(spry_sound_decoding **out, unsigned *rate, const void *data, size_t size,
                                     const char *name, spry_error *error);
void spry_sound_decoding_close(spry_sound_decoding *decoding);

/* A spry_sound_reader. */
size_t spry_sound_decoding_read(void *decoding, float *samples, size_t count);

/* Why reading ended early; NULL: it did not. */
const char *spry_sound_decoding_failure(const spry_sound_decoding *decoding);

#endif
