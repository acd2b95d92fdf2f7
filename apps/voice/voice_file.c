/* One question from a sound file, one answer to a sound file; and transcripts of files. */
#include <stdlib.h>
#include <string.h>

#include "cli/terminal.h"
#include "platform/clock.h"
#include "voice/sound_file.h"
#include "voice/transcript_text.h"
#include "voice/voice.h"
#include "voice/voice_turn.h"

/* Reads a whole utterance, without the silence at its ends. */
static spry_status read_utterance(spry_utterance *utterance, const spry_voice_flags *flags, spry_error *error)
{
    spry_sound_file *file = NULL;
    spry_vad *vad = NULL;
    spry_vad_options options;
    float block[SPRY_VAD_STEP];
    size_t n = 0, begin = SPRY_UTTERANCE_MAX, got;
    spry_vad_options_default(&options);
    options.threshold = flags->threshold;
    spry_status status = spry_sound_file_open(&file, flags->in, error);
    if (status == SPRY_OK)
        status = spry_vad_create(&vad, &options, error);
    while (status == SPRY_OK && (got = spry_sound_file_read(file, block + n, SPRY_COUNT(block) - n)) > 0) {
        status = spry_utterance_add(utterance, block + n, got, error);
        n += got;
        if (utterance->count == SPRY_UTTERANCE_MAX)
            status = spry_fail(error, SPRY_ERR_INPUT,
                               "%s is longer than %d seconds: too long for a question; --transcribe has no limit",
                               flags->in, SPRY_UTTERANCE_MAX / SPRY_SOUND_RATE);
        if (n < SPRY_COUNT(block))
            continue;
        n = 0;
        if (spry_vad_push(vad, block) == SPRY_VAD_BEGIN && begin == SPRY_UTTERANCE_MAX)
            begin = (size_t)spry_vad_begin_at(vad);
    }
    if (status == SPRY_OK)
        status = spry_sound_file_status(file, error);
    if (status == SPRY_OK && begin == SPRY_UTTERANCE_MAX)
        status = spry_fail(error, SPRY_ERR_INPUT, "%s: no speech was found in %.1f seconds of sound", flags->in,
                           (double)utterance->count / SPRY_SOUND_RATE);
    if (status == SPRY_OK) {
        size_t end = (size_t)spry_vad_end_at(vad) + SPRY_SOUND_RATE / 5;
        end = end < utterance->count ? end : utterance->count;
        utterance->count = end - begin;
        memmove(utterance->samples, utterance->samples + begin, utterance->count * sizeof *utterance->samples);
    }
    spry_vad_destroy(vad);
    spry_sound_file_close(file);
    return status;
}

static bool write_sound(void *user, const int16_t *samples, size_t count)
{
    return spry_sound_writer_write(user, samples, count, NULL) == SPRY_OK;
}

static spry_status recognise(spry_recogniser *r, spry_buffer *words, const spry_utterance *utterance, spry_error *error)
{
    spry_status status = r->kind->begin(r->state, error);
    if (status == SPRY_OK)
        status = r->kind->hear(r->state, utterance->samples, utterance->count, error);
    if (status == SPRY_OK)
        status = r->kind->words(r->state, words, true, NULL, NULL, error);
    if (status == SPRY_OK && words->size == 0)
        status = spry_fail(error, SPRY_ERR_INPUT, "no words were recognised");
    return status;
}

static spry_status answer(const spry_chat_job *job, const spry_voice_parts *parts, spry_speaker *speaker,
                          spry_error *error)
{
    spry_utterance utterance = {0};
    spry_turn_figures figures = {0};
    spry_voice voice;
    spry_buffer words;
    spry_voice_init(&voice, job, parts->flags, parts->recogniser, speaker);
    spry_buffer_init(&words, 1 << 20);
    spry_status status = read_utterance(&utterance, parts->flags, error);
    uint64_t ended = spry_clock_ns();
    figures.speech_s = (double)utterance.count / SPRY_SOUND_RATE;
    if (status == SPRY_OK)
        status = recognise(parts->recogniser, &words, &utterance, error);
    figures.words_ms = figures.recognise_ms = (double)(spry_clock_ns() - ended) / 1e6;
    if (status == SPRY_OK)
        status = spry_voice_answer(&voice, &figures, spry_buffer_view(&words), ended, error);
    if (status == SPRY_OK)
        status = spry_voice_keep(&voice, spry_buffer_view(&voice.answer.text), error);
    if (status == SPRY_OK)
        spry_voice_report(&voice, stdout, &figures, spry_buffer_view(&words), spry_buffer_view(&voice.answer.text));
    free(utterance.samples);
    spry_buffer_deinit(&words);
    spry_voice_deinit(&voice);
    return status;
}

spry_status spry_voice_file(const spry_chat_job *job, const spry_voice_parts *parts, spry_error *error)
{
    spry_sound_writer *writer = NULL;
    spry_speaker *speaker = NULL;
    spry_error closing;
    spry_status status = SPRY_OK;
    if (parts->flags->out) {
        status = spry_sound_writer_open(&writer, parts->flags->out, error);
        if (status == SPRY_OK)
            status = spry_speaker_create(&speaker, parts->synthesiser,
                                         &(spry_speaker_sink){.sound = write_sound, .user = writer}, error);
    }
    if (status == SPRY_OK)
        status = answer(job, parts, speaker, error);
    spry_speaker_destroy(speaker);
    spry_status closed = spry_sound_writer_close(writer, &closing);
    if (status == SPRY_OK && closed != SPRY_OK) {
        status = closed;
        *error = closing;
    }
    return status;
}

spry_status spry_voice_say(const spry_voice_flags *flags, spry_synthesiser *synthesiser, spry_error *error)
{
    spry_sound_writer *writer = NULL;
    spry_error closing;
    spry_status status = spry_sound_writer_open(&writer, flags->out, error);
    if (status == SPRY_OK)
        status = spry_synthesiser_speak(synthesiser, spry_view_of(flags->say), write_sound, writer, error);
    spry_status closed = spry_sound_writer_close(writer, &closing);
    if (status == SPRY_OK && closed != SPRY_OK) {
        status = closed;
        *error = closing;
    }
    return status;
}

spry_status spry_voice_transcribe(const spry_voice_flags *flags, spry_recogniser *recogniser, spry_error *error)
{
    spry_sound_file *file = NULL;
    spry_transcribe_options options;
    spry_transcript transcript = {0};
    spry_transcript_writer writer;
    spry_transcribe_options_default(&options);
    spry_transcript_writer_init(&writer, spry_transcript_format_find(flags->format));
    options.timestamps = spry_transcript_needs_times(writer.format);
    options.translate = flags->speech.recogniser.translate;
    options.on_segment = spry_transcript_segment;
    options.user = &writer;
    spry_status status = spry_sound_file_open(&file, flags->in, error);
    uint64_t began = spry_clock_ns();
    if (status == SPRY_OK)
        status = spry_recogniser_transcribe(recogniser, &transcript, spry_sound_file_read, file, &options, error);
    double ms = (double)(spry_clock_ns() - began) / 1e6;
    if (status == SPRY_OK)
        status = spry_sound_file_status(file, error);
    if (status == SPRY_OK && transcript.seconds == 0)
        status = spry_fail(error, SPRY_ERR_INPUT, "%s: there is no sound in this file", flags->in);
    if (status == SPRY_OK &&
        !spry_transcript_finish(&writer, &transcript, options.translate ? "translate" : "transcribe"))
        status = spry_fail_memory(error, "a transcript", writer.out.size);
    if (status == SPRY_OK)
        spry_out_write(writer.out.data, writer.out.size);
    if (status == SPRY_OK && flags->chat.stats)
        fprintf(stderr,
                "%.1f s of sound in %.0f ms (%.3f of its length): encoding %.0f ms, decoding %u tokens %.0f ms; "
                "%u windows, %u silent, %u decoded again; language %s\n",
                transcript.seconds, ms, ms / 1000 / transcript.seconds, transcript.encode_ms, transcript.tokens,
                transcript.decode_ms, transcript.windows, transcript.silent_windows, transcript.retries,
                transcript.language);
    spry_free(transcript.text);
    spry_transcript_writer_deinit(&writer);
    spry_sound_file_close(file);
    return status;
}
