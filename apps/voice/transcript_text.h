/* Transcripts as text, JSON and subtitles, as OpenAI's interface names these formats. */
#ifndef SPRY_APPS_TRANSCRIPT_TEXT_H
#define SPRY_APPS_TRANSCRIPT_TEXT_H

#include <jansson.h>

#include "base/buffer.h"
#include "spry_voice.h"

typedef enum spry_transcript_format {
    SPRY_TRANSCRIPT_JSON,
    SPRY_TRANSCRIPT_TEXT,
    SPRY_TRANSCRIPT_SRT,
    SPRY_TRANSCRIPT_VERBOSE_JSON,
    SPRY_TRANSCRIPT_VTT,
    SPRY_TRANSCRIPT_FORMATS
} spry_transcript_format;

extern const char *const spry_transcript_formats[SPRY_TRANSCRIPT_FORMATS + 1]; /* names; the last is NULL */

/* SPRY_TRANSCRIPT_FORMATS: not known. */
spry_transcript_format spry_transcript_format_find(const char *name);

/* Collects segments; pass it to spry_transcript_segment as `user`. */
typedef struct spry_transcript_writer {
    spry_transcript_format format;
    json_t *segments; /* of verbose_json */
    spry_buffer out;  /* of the other formats, as segments come */
    size_t n_segments;
} spry_transcript_writer;

void spry_transcript_writer_init(spry_transcript_writer *writer, spry_transcript_format format);
void spry_transcript_writer_deinit(spry_transcript_writer *writer);

/* Whether the format needs the times of segments. */
bool spry_transcript_needs_times(spry_transcript_format format);

/* An on_segment callback. */
bool spry_transcript_segment(void *user, const spry_speech_segment *segment);

/* Completes `out`. False: memory is short. */
bool spry_transcript_finish(spry_transcript_writer *writer, const spry_transcript *transcript, const char *task);

#endif
