/* What recognisers of the program and of the module share. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "voice/recogniser.h"

spry_status spry_utterance_add(spry_utterance *u, const float *samples, size_t count, spry_error *error)
{
    size_t room = SPRY_UTTERANCE_MAX - u->count;
    count = count < room ? count : room;
    if (u->count + count > u->capacity) {
        size_t capacity = u->capacity ? 2 * u->capacity : 16 * SPRY_SOUND_RATE;
        capacity = capacity < u->count + count ? u->count + count : capacity;
        float *grown = realloc(u->samples, capacity * sizeof *grown);
        if (!grown)
            return spry_fail_memory(error, "an utterance", capacity * sizeof *grown);
        u->samples = grown;
        u->capacity = capacity;
    }
    if (count)
        memcpy(u->samples + u->count, samples, count * sizeof *samples);
    u->count += count;
    return SPRY_OK;
}

void spry_sound_to_pcm(int16_t *out, const float *samples, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = (int16_t)lrintf(fmaxf(-1, fminf(1, samples[i])) * 32767);
}

void spry_text_trim(spry_buffer *text)
{
    size_t begin = 0;
    while (text->size && strchr(" \t\r\n", text->data[text->size - 1]))
        text->data[--text->size] = 0;
    while (begin < text->size && strchr(" \t\r\n", text->data[begin]))
        begin++;
    spry_buffer_consume(text, begin);
}
