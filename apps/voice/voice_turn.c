#include "voice/voice_turn.h"

#include <stdlib.h>
#include <string.h>

#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "platform/clock.h"
#include "platform/trace.h"
#include "report/report_trace.h"
#include "spry_voice.h"

void spry_voice_init(spry_voice *voice, const spry_chat_job *job, const spry_voice_flags *flags,
                     spry_recogniser *recogniser, spry_speaker *speaker)
{
    *voice = (spry_voice){.job = job,
                          .flags = flags,
                          .recogniser = recogniser,
                          .speaker = speaker,
                          .seed = flags->chat.answer.sampling.seed};
    spry_answer_init(&voice->answer);
}

void spry_voice_deinit(spry_voice *voice)
{
    spry_answer_deinit(&voice->answer);
    spry_tokens_deinit(&voice->ids);
}

static double since(uint64_t then, uint64_t now)
{
    return now > then ? (double)(now - then) / 1e6 : 0;
}

typedef struct pass {
    spry_voice *voice;
    uint64_t first_ns;
} pass;

static bool on_piece(void *user, spry_view text)
{
    pass *p = user;
    if (!p->first_ns)
        p->first_ns = spry_clock_ns();
    if (p->voice->speaker)
        spry_speaker_write(p->voice->speaker, text);
    return !p->voice->proceed || p->voice->proceed(p->voice->user);
}

static spry_status prompt_ids(spry_voice *v, spry_error *error)
{
    size_t count;
    const spry_message *messages = spry_conversation_messages(v->job->conversation, &count);
    return spry_answer_chat_ids(&v->answer, &v->ids, v->job->engine, messages, count, error);
}

spry_status spry_voice_prefill(spry_voice *v, spry_view words, spry_error *error)
{
    const float *logits;
    spry_status status = spry_conversation_add(v->job->conversation, "user", words, error);
    if (status != SPRY_OK)
        return status;
    spry_answer_begin(&v->answer, v->job->engine, NULL);
    status = prompt_ids(v, error);
    spry_conversation_drop_last(v->job->conversation);
    if (status == SPRY_OK)
        status = spry_session_eval(v->job->session, &logits, v->ids.ids, v->ids.count, error);
    return status;
}

spry_status spry_voice_answer(spry_voice *v, spry_turn_figures *figures, spry_view words, uint64_t ended_ns,
                              spry_error *error)
{
    pass p = {.voice = v};
    spry_answer_job job = {.engine = v->job->engine,
                           .session = v->job->session,
                           .prompt = &v->ids,
                           .flags = &v->flags->chat.answer,
                           .speculation = v->job->speculation,
                           .seed = v->seed,
                           .on_piece = on_piece,
                           .user = &p};
    spry_buffer_clear(&v->answer.text);
    spry_status status = spry_conversation_add(v->job->conversation, "user", words, error);
    if (status != SPRY_OK)
        return status;
    if (v->speaker)
        spry_speaker_begin(v->speaker);
    spry_answer_begin(&v->answer, v->job->engine, NULL);
    status = prompt_ids(v, error);
    if (status == SPRY_OK)
        status = spry_answer_generate(&v->answer, &job, error);
    figures->ended_ns = ended_ns;
    figures->first_token_ms = p.first_ns ? since(ended_ns, p.first_ns) : 0;
    figures->answer_ms = since(ended_ns, spry_clock_ns());
    if (v->speaker && status == SPRY_OK)
        status = spry_speaker_finish(v->speaker, error);
    if (v->speaker) {
        spry_speaker_figures spoken = spry_speaker_report(v->speaker);
        figures->first_sound_ms = spoken.first_ns ? since(ended_ns, spoken.first_ns) : 0;
        figures->synthesise_ms = (double)spoken.busy_ns / 1e6;
        figures->sound_s = (double)spoken.samples / SPRY_SOUND_RATE;
    }
    if (status != SPRY_OK)
        spry_conversation_drop_last(v->job->conversation);
    return status;
}

spry_status spry_voice_keep(spry_voice *v, spry_view heard, spry_error *error)
{
    spry_status status = spry_conversation_add(v->job->conversation, "assistant", heard, error);
    v->seed++; /* only here: a turn that was dropped does not change the next */
    if (status == SPRY_OK)
        spry_chat_saver_save(v->job->saver, v->job->conversation);
    return status;
}

/* ---- telling people ------------------------------------------------------------------------------------------------
 */

static double per(double ms, double seconds)
{
    return seconds > 0 ? ms / 1000 / seconds : 0;
}

static void print_stats(const spry_voice *v, const spry_turn_figures *f)
{
    const spry_result *r = &v->answer.result;
    fflush(stdout);
    fprintf(stderr, "%sspeech   %.1f s, recognised by %s in %.0f ms (%.3f of its length)\n",
            spry_style_begin(stderr, SPRY_STYLE_DIM), f->speech_s, v->recogniser->kind->name, f->recognise_ms,
            per(f->recognise_ms, f->speech_s));
    fprintf(stderr,
            "after    the end of speech: words %.0f ms, first token %.0f ms, first sound %.0f ms, answer %.0f ms\n",
            f->words_ms, f->first_token_ms, f->first_sound_ms, f->answer_ms);
    fprintf(stderr, "prompt   %zu tokens, %zu of them cached; answer %zu tokens\n", r->prompt_tokens, r->reused_tokens,
            r->generated_tokens);
    fprintf(stderr, "sound    %.1f s in %.0f ms (%.3f of its length)%s%s\n", f->sound_s, f->synthesise_ms,
            per(f->synthesise_ms, f->sound_s), f->interrupted ? "; interrupted by speech" : "", spry_style_end(stderr));
}

static void print_json(const spry_voice *v, FILE *stream, const spry_turn_figures *f, spry_view words, spry_view heard)
{
    const spry_result *r = &v->answer.result;
    json_t *json =
        json_pack("{s:s, s:s%, s:s%, s:b, s:{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}, s:{s:I, s:I, s:I}}",
                  "recogniser", v->recogniser->kind->name, "words", words.data, words.size, "answer", heard.data,
                  heard.size, "interrupted", f->interrupted, "timings", "speech_s", f->speech_s, "recognise_ms",
                  f->recognise_ms, "recognise_rtf", per(f->recognise_ms, f->speech_s), "words_ms", f->words_ms,
                  "first_token_ms", f->first_token_ms, "first_sound_ms", f->first_sound_ms, "answer_ms", f->answer_ms,
                  "synthesise_ms", f->synthesise_ms, "sound_s", f->sound_s, "synthesise_rtf",
                  per(f->synthesise_ms, f->sound_s), "usage", "prompt_tokens", (json_int_t)r->prompt_tokens,
                  "cached_tokens", (json_int_t)r->reused_tokens, "completion_tokens", (json_int_t)r->generated_tokens);
    char *text = json ? json_dumps(json, JSON_REAL_PRECISION(9)) : NULL;
    if (text && stream == stdout)
        spry_out_format("%s\n", text);
    else if (text)
        fprintf(stream, "%s\n", text);
    spry_out_flush();
    free(text);
    json_decref(json);
}

/* Spans that all begin at the end of speech, one inside the other. */
static void add_to_trace(spry_trace *trace, const spry_turn_figures *f)
{
    const struct {
        const char *name;
        double ms;
    } ends[SPRY_TURN_ENDS] = {{spry_turn_end_names[0], f->words_ms},
                              {spry_turn_end_names[1], f->first_token_ms},
                              {spry_turn_end_names[2], f->first_sound_ms},
                              {spry_turn_end_names[3], f->answer_ms}};
    uint32_t lane = spry_trace_lane(trace, "spoken turns");
    for (size_t i = 0; i < SPRY_COUNT(ends); i++)
        if (ends[i].ms > 0)
            spry_trace_add(trace, &(spry_trace_span){.name = ends[i].name,
                                                     .category = "turn",
                                                     .lane = lane,
                                                     .begin_ns = f->ended_ns,
                                                     .end_ns = f->ended_ns + (uint64_t)(ends[i].ms * 1e6)});
}

void spry_voice_report(const spry_voice *v, FILE *stream, const spry_turn_figures *f, spry_view words, spry_view heard)
{
    if (v->flags->json)
        print_json(v, stream, f, words, heard);
    else
        fprintf(stream, "%s> %.*s%s\n%.*s\n", spry_style_begin(stream, SPRY_STYLE_DIM), (int)words.size, words.data,
                spry_style_end(stream), (int)heard.size, heard.data);
    if (v->flags->chat.stats)
        print_stats(v, f);
    add_to_trace(spry_engine_trace(v->job->engine), f);
}
