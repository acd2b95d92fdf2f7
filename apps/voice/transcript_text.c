#include "voice/transcript_text.h"

#include <stdlib.h>
#include <string.h>

enum { OUT_MAX = 64 << 20 };

const char *const spry_transcript_formats[SPRY_TRANSCRIPT_FORMATS + 1] = {
    [SPRY_TRANSCRIPT_JSON] = "json", [SPRY_TRANSCRIPT_TEXT] = "text",
    [SPRY_TRANSCRIPT_SRT] = "srt",   [SPRY_TRANSCRIPT_VERBOSE_JSON] = "verbose_json",
    [SPRY_TRANSCRIPT_VTT] = "vtt",
};

spry_transcript_format spry_transcript_format_find(const char *name)
{
    size_t i = 0;
    while (i < SPRY_TRANSCRIPT_FORMATS && strcmp(name, spry_transcript_formats[i]) != 0)
        i++;
    return (spry_transcript_format)i;
}

bool spry_transcript_needs_times(spry_transcript_format format)
{
    return format == SPRY_TRANSCRIPT_SRT || format == SPRY_TRANSCRIPT_VERBOSE_JSON || format == SPRY_TRANSCRIPT_VTT;
}

void spry_transcript_writer_init(spry_transcript_writer *w, spry_transcript_format format)
{
    *w = (spry_transcript_writer){.format = format, .segments = json_array()};
    spry_buffer_init(&w->out, OUT_MAX);
    if (format == SPRY_TRANSCRIPT_VTT)
        spry_buffer_text(&w->out, "WEBVTT\n\n");
}

void spry_transcript_writer_deinit(spry_transcript_writer *w)
{
    json_decref(w->segments);
    spry_buffer_deinit(&w->out);
}

/* "00:01:02.345"; subtitles of one kind have a comma. */
static void append_time(spry_buffer *out, double seconds, char point)
{
    unsigned long long ms = (unsigned long long)(seconds * 1000 + 0.5);
    spry_buffer_format(out, "%02llu:%02llu:%02llu%c%03llu", ms / 3600000, ms / 60000 % 60, ms / 1000 % 60, point,
                       ms % 1000);
}

static const char *without_space(const char *text)
{
    return text + strspn(text, " ");
}

static json_t *segment_json(const spry_speech_segment *s, size_t id)
{
    json_t *tokens = json_array();
    for (size_t i = 0; i < s->n_tokens; i++)
        json_array_append_new(tokens, json_integer(s->tokens[i]));
    return json_pack("{s:I, s:I, s:f, s:f, s:s, s:o, s:f, s:f, s:f, s:f}", "id", (json_int_t)id, "seek",
                     (json_int_t)(s->begin * 100), "start", s->begin, "end", s->end, "text", s->text, "tokens", tokens,
                     "temperature", s->temperature, "avg_logprob", s->mean_logprob, "compression_ratio",
                     s->compression_ratio, "no_speech_prob", s->no_speech);
}

bool spry_transcript_segment(void *user, const spry_speech_segment *s)
{
    spry_transcript_writer *w = user;
    bool vtt = w->format == SPRY_TRANSCRIPT_VTT;
    size_t id = w->n_segments++;
    if (w->format == SPRY_TRANSCRIPT_VERBOSE_JSON)
        return json_array_append_new(w->segments, segment_json(s, id)) == 0;
    if (w->format != SPRY_TRANSCRIPT_SRT && !vtt)
        return true;
    if (!vtt)
        spry_buffer_format(&w->out, "%zu\n", id + 1);
    append_time(&w->out, s->begin, vtt ? '.' : ',');
    spry_buffer_text(&w->out, " --> ");
    append_time(&w->out, s->end, vtt ? '.' : ',');
    return spry_buffer_format(&w->out, "\n%s\n\n", without_space(s->text));
}

bool spry_transcript_finish(spry_transcript_writer *w, const spry_transcript *t, const char *task)
{
    const char *text = without_space(t->text), *name = spry_speech_language_name(t->language);
    if (w->format == SPRY_TRANSCRIPT_TEXT)
        return spry_buffer_format(&w->out, "%s\n", text);
    if (w->format != SPRY_TRANSCRIPT_JSON && w->format != SPRY_TRANSCRIPT_VERBOSE_JSON)
        return !w->out.failed;
    json_t *json = json_pack("{s:s}", "text", text);
    if (w->format == SPRY_TRANSCRIPT_VERBOSE_JSON) {
        json_object_set_new(json, "task", json_string(task));
        json_object_set_new(json, "language", json_string(name ? name : t->language));
        json_object_set_new(json, "duration", json_real(t->seconds));
        json_object_set(json, "segments", w->segments);
    }
    char *dumped = json ? json_dumps(json, JSON_REAL_PRECISION(9)) : NULL;
    bool done = dumped && spry_buffer_format(&w->out, "%s\n", dumped);
    free(dumped);
    json_decref(json);
    return done;
}
