/* A spoken conversation: its turns, and the threads that hear, answer and speak at the same time. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "cli/trace_read.h"
#include "platform/clock.h"
#include "platform/threads.h"
#include "platform/trace.h"
#include "spry_voice.h"
#include "voice/sound.h"
#include "voice/speaker.h"
#include "voice/voice.h"

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
    return spry_answer_chat_ids(&v->answer, &v->ids, v->job->engine, &v->flags->chat.answer, messages, count, error);
}

/* Computes the prompt of the conversation with these words, so that the answer to them begins sooner. */
static spry_status voice_prefill(spry_voice *v, spry_view words, spry_error *error)
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
                           .speculation = v->job->drafter.how,
                           .seed = v->seed,
                           .chat = true,
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

/* ---- telling people ---------------------------------------------------------------------------------------------- */

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
    char *text = json ? spry_json_text(json, JSON_REAL_PRECISION(9)) : NULL;
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

/* ---- a live conversation ----------------------------------------------------------------------------------------- */

/* A spoken conversation. Two threads: the one with the clock takes sound in and gives sound out, step by step, and
 * finds where speech begins and ends; the other recognises and answers.
 *
 * A turn begins before it is certain that the speaker has finished: after a pause of PAUSE_FIRST_MS the words are
 * recognised and answered, and the sound of the answer is held. If the pause reaches --pause, the sound
 * is released; if speech goes on, the turn is dropped and the utterance grows. So the pause that tells the end of
 * speech is not lost time. */

enum {
    PAUSE_FIRST_MS = 180,
    SAMPLES_MS = SPRY_SOUND_RATE / 1000,
    PARTIAL_SAMPLES = SPRY_SOUND_RATE * 7 / 10, /* new sound between two looks at the words so far */
    HISTORY = 2 * SPRY_SOUND_RATE,              /* samples kept before an utterance */
    WORDS_MAX = 1 << 20,
};

typedef struct live {
    spry_voice voice;
    const spry_voice_flags *flags;
    spry_recogniser *recogniser;
    spry_player *player;
    spry_sound_port *port;
    spry_vad *vad;
    float history[HISTORY]; /* ring of the last samples */
    uint64_t position;      /* samples taken */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under the lock. */
    spry_utterance utterance;
    uint64_t epoch; /* counts changes that make the current work useless */
    bool pausing;   /* the utterance may be over */
    bool over;      /* the utterance is over */
    bool answering; /* the worker has a turn */
    bool leave;
    uint64_t ended_ns;   /* when speech ended */
    uint64_t sounded_ns; /* when its answer began to be heard; 0: not yet */
    spry_buffer heard;   /* the part of an interrupted answer that was heard */
    spry_status status;
    spry_error error;

    /* used by the worker only */
    uint64_t working;           /* the epoch it works for */
    size_t n_heard;             /* samples that the recogniser has */
    spry_buffer words, carried; /* `carried`: said before an answer that was not heard */
    double recognise_ms;
} live;

/* ---- the worker -------------------------------------------------------------------------------------------------- */

static bool is_current(void *user)
{
    live *l = user;
    pthread_mutex_lock(&l->lock);
    bool current = l->epoch == l->working && !l->leave;
    pthread_mutex_unlock(&l->lock);
    return current && !spry_interrupt_seen();
}

/* Lets the recogniser hear the utterance up to `count`. */
static spry_status hear(live *l, size_t count, spry_error *error)
{
    const spry_recogniser_kind *kind = l->recogniser->kind;
    spry_status status = SPRY_OK;
    if (l->n_heard == 0)
        status = kind->begin(l->recogniser->state, error);
    while (status == SPRY_OK && l->n_heard < count) {
        float block[SPRY_VAD_STEP * 10];
        size_t n = count - l->n_heard < SPRY_COUNT(block) ? count - l->n_heard : SPRY_COUNT(block);
        pthread_mutex_lock(&l->lock); /* the utterance may be moved as it grows */
        memcpy(block, l->utterance.samples + l->n_heard, n * sizeof *block);
        pthread_mutex_unlock(&l->lock);
        status = kind->hear(l->recogniser->state, block, n, error);
        l->n_heard += n;
    }
    return status;
}

static spry_status recognise(live *l, size_t count, bool over, spry_error *error)
{
    const spry_recogniser_kind *kind = l->recogniser->kind;
    uint64_t began = spry_clock_ns();
    spry_status status = hear(l, count, error);
    if (status == SPRY_OK)
        status = kind->words(l->recogniser->state, &l->words, over, is_current, l, error);
    if (over)
        l->n_heard = 0;
    l->recognise_ms += (double)(spry_clock_ns() - began) / 1e6;
    return status == SPRY_ERR_CANCELLED ? SPRY_OK : status;
}

static void show_partial(const live *l)
{
    if (!l->flags->json && l->words.size)
        fprintf(stderr, "%s... %.*s%s\n", spry_style_begin(stderr, SPRY_STYLE_DIM), (int)l->words.size, l->words.data,
                spry_style_end(stderr));
}

/* Words so far: shown, and the prompt computed as if they were all. */
static spry_status look_ahead(live *l, size_t count, spry_error *error)
{
    if (!l->recogniser->kind->partial)
        return SPRY_OK;
    spry_status status = recognise(l, count, false, error);
    if (status != SPRY_OK || l->words.size == 0 || !is_current(l))
        return status;
    show_partial(l);
    spry_error ignored; /* an answer will meet the same, and report it */
    voice_prefill(&l->voice, spry_buffer_view(&l->words), &ignored);
    return SPRY_OK;
}

/* Waits until the answer was heard, or is not wanted any more. */
static void wait_heard(live *l)
{
    pthread_mutex_lock(&l->lock);
    while (l->epoch == l->working && !l->leave && (!l->over || spry_player_busy(l->player)))
        pthread_cond_wait(&l->changed, &l->lock);
    pthread_mutex_unlock(&l->lock);
}

/* After an answer: the part that was heard stays in the conversation. If nothing was heard, the words are prepended to
 * the next utterance. */
static spry_status settle(live *l, spry_turn_figures *figures, bool interrupted, spry_error *error)
{
    const spry_buffer *heard = interrupted ? &l->heard : &l->voice.answer.text;
    figures->interrupted = interrupted;
    spry_buffer_clear(&l->carried);
    if (heard->size == 0) {
        spry_conversation_drop_last(l->voice.job->conversation);
        spry_buffer_append(&l->carried, l->words.data, l->words.size);
        return SPRY_OK;
    }
    FILE *stream = l->flags->out && strcmp(l->flags->out, "-") == 0 ? stderr : stdout;
    spry_status status = spry_voice_keep(&l->voice, spry_buffer_view(heard), error);
    spry_voice_report(&l->voice, stream, figures, spry_buffer_view(&l->words), spry_buffer_view(heard));
    return status;
}

static void join_words(live *l)
{
    if (l->carried.size == 0)
        return;
    spry_buffer joined;
    spry_buffer_init(&joined, WORDS_MAX);
    spry_buffer_append(&joined, l->carried.data, l->carried.size);
    spry_buffer_text(&joined, " ");
    spry_buffer_append(&joined, l->words.data, l->words.size);
    spry_buffer_deinit(&l->words);
    l->words = joined;
}

/* The sound of a new answer is held until the utterance is over. */
static void begin_sound(live *l)
{
    if (l->voice.speaker)
        spry_speaker_begin(l->voice.speaker);
    pthread_mutex_lock(&l->lock);
    spry_player_begin(l->player, !l->over);
    l->sounded_ns = 0;
    spry_buffer_clear(&l->heard);
    pthread_mutex_unlock(&l->lock);
}

static spry_status turn(live *l, size_t count, uint64_t ended_ns, spry_error *error)
{
    spry_turn_figures figures = {.speech_s = (double)count / SPRY_SOUND_RATE};
    spry_status status = recognise(l, count, true, error);
    figures.recognise_ms = l->recognise_ms;
    begin_sound(l);
    if (status != SPRY_OK || !is_current(l) || l->words.size == 0)
        return status;
    figures.words_ms = (double)(spry_clock_ns() - ended_ns) / 1e6;
    join_words(l);
    status = spry_voice_answer(&l->voice, &figures, spry_buffer_view(&l->words), ended_ns, error);
    if (status != SPRY_OK)
        return status;
    wait_heard(l);
    pthread_mutex_lock(&l->lock);
    bool interrupted = l->epoch != l->working;
    uint64_t sounded_ns = l->sounded_ns;
    pthread_mutex_unlock(&l->lock);
    if (sounded_ns > ended_ns)
        figures.first_sound_ms = since(ended_ns, sounded_ns);
    if (interrupted && sounded_ns == 0) { /* the speaker had not finished */
        spry_conversation_drop_last(l->voice.job->conversation);
        return SPRY_OK;
    }
    return settle(l, &figures, interrupted, error);
}

/* Work there is: a turn, or a look at the words so far. Called with the lock held. */
static spry_status work(live *l, size_t *looked, spry_error *error)
{
    size_t count = l->utterance.count;
    bool pausing = l->pausing;
    uint64_t ended_ns = l->ended_ns;
    if (l->working != l->epoch) {
        l->working = l->epoch;
        l->n_heard = *looked = 0; /* recognised again from its beginning */
    }
    l->answering = pausing;
    pthread_mutex_unlock(&l->lock);
    spry_status status = pausing ? turn(l, count, ended_ns, error) : look_ahead(l, count, error);
    pthread_mutex_lock(&l->lock);
    *looked = count;
    if (pausing && l->epoch == l->working) { /* the turn is complete */
        l->pausing = l->over = false;
        l->utterance.count = *looked = 0;
        l->recognise_ms = 0;
        l->epoch++;
    }
    l->answering = false;
    pthread_cond_broadcast(&l->changed);
    return status;
}

static void *run_worker(void *context)
{
    live *l = context;
    size_t looked = 0;
    pthread_mutex_lock(&l->lock);
    while (!l->leave && l->status == SPRY_OK) {
        size_t count = l->utterance.count;
        if (l->pausing || count > looked + PARTIAL_SAMPLES || (count && count < looked))
            l->status = work(l, &looked, &l->error);
        else
            pthread_cond_wait(&l->changed, &l->lock);
    }
    l->leave = l->leave || l->status != SPRY_OK;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* ---- the clock --------------------------------------------------------------------------------------------------- */

/* Discards the worker's current turn. Called with the lock held. */
static void drop_work(live *l)
{
    if (l->answering && l->epoch == l->working)
        spry_player_heard(l->player, &l->heard);
    l->epoch++;
    l->pausing = l->over = false;
    spry_player_stop(l->player);
    if (l->voice.speaker)
        spry_speaker_stop(l->voice.speaker);
    spry_session_cancel(l->voice.job->session);
    pthread_cond_broadcast(&l->changed);
}

static spry_status begin_utterance(live *l, spry_error *error)
{
    uint64_t from = spry_vad_begin_at(l->vad), least = l->position > HISTORY ? l->position - HISTORY : 0;
    spry_status status = SPRY_OK;
    l->utterance.count = 0;
    l->recognise_ms = 0;
    for (uint64_t i = from > least ? from : least; i < l->position && status == SPRY_OK; i++)
        status = spry_utterance_add(&l->utterance, &l->history[i % HISTORY], 1, error);
    return status;
}

/* Follows the speaker by one step. Called with the lock held. */
static spry_status follow(live *l, const float *samples, spry_vad_event event, spry_error *error)
{
    spry_status status = SPRY_OK;
    bool open = spry_player_busy(l->player) || l->answering;
    if (event == SPRY_VAD_BEGIN) {
        if (open && !l->flags->barge_in)
            return SPRY_OK;
        if (open || l->pausing)
            drop_work(l);
        l->epoch++;
        return begin_utterance(l, error);
    }
    if (l->utterance.count == 0 || l->over || (!spry_vad_speaking(l->vad) && event != SPRY_VAD_END))
        return SPRY_OK;
    status = spry_utterance_add(&l->utterance, samples, SPRY_VAD_STEP, error);
    uint64_t quiet_ms = (l->position - spry_vad_end_at(l->vad)) / SAMPLES_MS;
    if (l->pausing && quiet_ms < PAUSE_FIRST_MS) {
        drop_work(l); /* speech goes on */
    } else if (!l->pausing && quiet_ms >= PAUSE_FIRST_MS) {
        l->pausing = true;
        l->ended_ns = spry_clock_ns() - quiet_ms * 1000000;
    }
    if (event == SPRY_VAD_END) {
        l->over = true;
        spry_player_release(l->player);
    }
    pthread_cond_broadcast(&l->changed);
    return status;
}

/* One step: sound in, sound out. */
static spry_status step(live *l, bool *more, spry_error *error)
{
    float in[SPRY_VAD_STEP];
    int16_t out[SPRY_VAD_STEP];
    spry_status status = spry_sound_port_read(l->port, in, more, error);
    if (status != SPRY_OK || !*more)
        return status;
    for (size_t i = 0; i < SPRY_VAD_STEP; i++)
        l->history[(l->position + i) % HISTORY] = in[i];
    l->position += SPRY_VAD_STEP;
    spry_vad_event event = spry_vad_push(l->vad, in);
    pthread_mutex_lock(&l->lock);
    status = follow(l, in, event, error);
    if (spry_player_pull(l->player, out, SPRY_VAD_STEP) && !l->sounded_ns)
        l->sounded_ns = spry_clock_ns();
    pthread_cond_broadcast(&l->changed);
    *more = !l->leave && !spry_interrupt_seen();
    pthread_mutex_unlock(&l->lock);
    return status == SPRY_OK ? spry_sound_port_write(l->port, out, error) : status;
}

/* At the end of the sound: the last utterance is still answered, and the answer is played to its end. */
static spry_status finish(live *l, spry_error *error)
{
    int16_t out[SPRY_VAD_STEP];
    spry_status status = SPRY_OK;
    pthread_mutex_lock(&l->lock);
    if (l->utterance.count && !l->over) {
        if (!l->pausing)
            l->ended_ns = spry_clock_ns();
        l->pausing = l->over = true;
        spry_player_release(l->player);
        pthread_cond_broadcast(&l->changed);
    }
    while (status == SPRY_OK && !l->leave && !spry_interrupt_seen() &&
           (l->utterance.count || l->answering || spry_player_busy(l->player))) {
        size_t n = spry_player_pull(l->player, out, SPRY_VAD_STEP);
        l->position += n ? SPRY_VAD_STEP : 0;
        if (n && !l->sounded_ns)
            l->sounded_ns = spry_clock_ns();
        pthread_cond_broadcast(&l->changed);
        if (n == 0)
            spry_background_wait(&l->changed, &l->lock, 10000000);
        pthread_mutex_unlock(&l->lock);
        if (n)
            status = spry_sound_port_write(l->port, out, error);
        pthread_mutex_lock(&l->lock);
    }
    pthread_mutex_unlock(&l->lock);
    return status;
}

/* ---- both -------------------------------------------------------------------------------------------------------- */

static spry_status converse(live *l, spry_error *error)
{
    pthread_t worker;
    spry_error own;
    bool more = true;
    spry_status status = spry_background_start(&worker, run_worker, l, "the listener", error);
    if (status != SPRY_OK)
        return status;
    while (status == SPRY_OK && more)
        status = step(l, &more, &own);
    if (status == SPRY_OK)
        status = finish(l, &own);
    pthread_mutex_lock(&l->lock);
    l->leave = true;
    drop_work(l);
    pthread_mutex_unlock(&l->lock);
    pthread_join(worker, NULL);
    if (status != SPRY_OK)
        *error = own;
    else if (l->status != SPRY_OK)
        *error = l->error;
    return status != SPRY_OK ? status : l->status;
}

static spry_status open_parts(live *l, spry_speaker **speaker, const spry_voice_parts *parts, spry_error *error)
{
    spry_vad_options options;
    spry_vad_options_default(&options);
    options.end_ms = l->flags->pause_ms;
    options.threshold = l->flags->threshold;
    spry_status status = spry_vad_create(&l->vad, &options, error);
    if (status == SPRY_OK)
        status = spry_player_create(&l->player, error);
    if (status == SPRY_OK && parts->synthesiser->kind) {
        const spry_speaker_sink sink = {spry_player_push, spry_player_clause, l->player};
        status = spry_speaker_create(speaker, parts->synthesiser, &sink, error);
    }
    if (status == SPRY_OK)
        status = spry_sound_port_open(&l->port, l->flags->in, l->flags->out, error);
    return status;
}

spry_status spry_voice_live(const spry_chat_job *job, const spry_voice_parts *parts, spry_error *error)
{
    spry_speaker *speaker = NULL;
    spry_error closing;
    live *l = calloc(1, sizeof *l);
    if (!l)
        return spry_fail_memory(error, "a conversation", sizeof *l);
    l->flags = parts->flags;
    l->recogniser = parts->recogniser;
    pthread_mutex_init(&l->lock, NULL);
    spry_background_condition(&l->changed);
    spry_buffer *const texts[] = {&l->words, &l->carried, &l->heard};
    for (size_t i = 0; i < SPRY_COUNT(texts); i++)
        spry_buffer_init(texts[i], WORDS_MAX);
    spry_status status = open_parts(l, &speaker, parts, error);
    spry_voice_init(&l->voice, job, parts->flags, parts->recogniser, speaker);
    l->voice.proceed = is_current;
    l->voice.user = l;
    if (status == SPRY_OK)
        status = converse(l, error);
    if (l->player)
        spry_player_stop(l->player);
    spry_speaker_destroy(speaker);
    spry_voice_deinit(&l->voice);
    spry_status closed = spry_sound_port_close(l->port, &closing);
    if (status == SPRY_OK && closed != SPRY_OK) {
        status = closed;
        *error = closing;
    }
    spry_player_destroy(l->player);
    spry_vad_destroy(l->vad);
    for (size_t i = 0; i < SPRY_COUNT(texts); i++)
        spry_buffer_deinit(texts[i]);
    free(l->utterance.samples);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    free(l);
    return status;
}
