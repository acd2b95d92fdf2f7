/* `spry voice`: its flags, files that are transcribed or spoken, and the command. */
#include <stdlib.h>
#include <string.h>

#include "chat/chat.h"
#include "cli/commands.h"
#include "cli/model_source.h"
#include "cli/terminal.h"
#include "cli/usage.h"
#include "platform/clock.h"
#include "voice/recogniser.h"
#include "voice/sound.h"
#include "voice/voice.h"

#define SPEECH_OPTION(...) SPRY_OPTION(spry_speech_flags, __VA_ARGS__)
#define OPTION(...)        SPRY_OPTION(spry_voice_flags, __VA_ARGS__)

static const spry_option speech_options[] = {
    SPEECH_OPTION(
        "stt", STRING, recogniser.name, .metavar = "NAME",
        .help = "Recogniser of speech: whisper, pocketsphinx or command; auto: the first that the other options give",
        .group = "Speech"),
    SPEECH_OPTION("whisper", STRING, recogniser.whisper, .metavar = "FILE",
                  .help = "Whisper model: a ggml file of whisper.cpp, or a Hugging Face folder", .group = "Speech"),
    SPEECH_OPTION("whisper-type", STRING, recogniser.type, .metavar = "TYPE",
                  .help = "Convert its matrices to this type when it is opened, for example q8_0", .group = "Speech"),
    SPEECH_OPTION("whole-window", FLAG, recogniser.whole_window,
                  .help = "Encode 30 seconds however short the speech is, as Whisper was trained", .group = "Speech"),
    SPEECH_OPTION("sphinx-model", STRING, recogniser.sphinx, .metavar = "DIR",
                  .help = "PocketSphinx' models of a language", .group = "Speech"),
    SPEECH_OPTION("stt-cmd", STRING, recogniser.command, .metavar = "COMMAND",
                  .help = "Command that recognises: reads 16-bit PCM (16 kHz, one channel), writes text",
                  .group = "Speech"),
    SPEECH_OPTION("stt-prompt", STRING, recogniser.prompt, .metavar = "TEXT",
                  .help = "Names and spellings that Whisper may expect", .group = "Speech"),
    SPEECH_OPTION("language", STRING, recogniser.language, .metavar = "CODE",
                  .help = "Language that is spoken, as a code (en) or a name (english); default: detected by Whisper",
                  .group = "Speech"),
    SPEECH_OPTION("translate", FLAG, recogniser.translate,
                  .help = "Write down speech of any language in English (Whisper)", .group = "Speech"),
    SPEECH_OPTION("tts", STRING, synthesiser.name, .metavar = "NAME",
                  .help = "Synthesiser of speech: flite, espeak or command; auto: flite for English, else espeak",
                  .group = "Speech"),
    SPEECH_OPTION("voice", STRING, synthesiser.voice, .metavar = "NAME",
                  .help = "Voice of the synthesiser; flite: slt or rms; espeak: a voice or language",
                  .group = "Speech"),
    SPEECH_OPTION("tts-cmd", STRING, synthesiser.command, .metavar = "COMMAND",
                  .help = "Command that speaks: reads text, writes 16-bit PCM (16 kHz, one channel)",
                  .group = "Speech"),
};

static const spry_option voice_options[] = {
    OPTION("in", STRING, in, .common = true, .metavar = "FILE",
           .help = "Sound file to listen to; -: raw PCM (16 bits, 16 kHz, one channel) on standard input; default: the "
                   "microphone",
           .group = "Sound"),
    OPTION("out", STRING, out, .common = true, .metavar = "FILE",
           .help =
               "WAV file to speak to; -: raw PCM on standard output; default: the loudspeaker, or no sound with --in",
           .group = "Sound"),
    OPTION("live", FLAG, live, .help = "Play the file of --in at its own speed, as if it were spoken now",
           .group = "Sound"),
    OPTION("pause", U32, pause_ms, .min = 100, .max = 5000, .metavar = "MS",
           .help = "Length of the silence that ends an utterance, in milliseconds", .group = "Sound"),
    OPTION("threshold", FLOAT, threshold, .min = 1, .max = 40, .metavar = "DB",
           .help = "How far speech is above the noise, in decibels", .group = "Sound"),
    OPTION("barge-in", FLAG, barge_in, .help = "Speaking over an answer stops it", .group = "Sound"),
    OPTION("say", STRING, say, .common = true, .metavar = "TEXT", .help = "Only speak this text to --out",
           .group = "Sound"),
    OPTION("transcribe", FLAG, transcribe, .common = true, .help = "Only transcribe the speech in --in",
           .group = "Transcript"),
    OPTION("format", CHOICE, format, .choices = spry_transcript_formats, .help = "Form of the transcript",
           .group = "Transcript"),
    OPTION("json", FLAG, json, .help = "Print one JSON object per turn: what was said, the answer, and the times",
           .group = "Output"),
    OPTION("stats", FLAG, chat.stats, .help = "Print the times of every turn to standard error", .group = "Output"),
};

void spry_speech_flags_default(spry_speech_flags *flags)
{
    *flags = (spry_speech_flags){.recogniser = {.name = "auto", .sphinx = "/usr/share/pocketsphinx/model/en-us"},
                                 .synthesiser = {.name = "auto"}};
}

spry_option_table spry_speech_flags_table(spry_speech_flags *flags)
{
    return (spry_option_table){speech_options, SPRY_COUNT(speech_options), flags};
}

static void voice_flags_default(spry_voice_flags *flags)
{
    *flags = (spry_voice_flags){.format = "text", .pause_ms = 500, .threshold = 7, .barge_in = true};
    spry_speech_flags_default(&flags->speech);
    spry_chat_flags_default(&flags->chat);
}

static spry_option_table voice_flags_table(spry_voice_flags *flags)
{
    return (spry_option_table){voice_options, SPRY_COUNT(voice_options), flags};
}

/* ---- a recorded conversation ------------------------------------------------------------------------------------- */

/* One question from a sound file, one answer to a sound file; and transcripts of files. */

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

/* One question from the file of --in, its answer to the file of --out. */
static spry_status voice_file(const spry_chat_job *job, const spry_voice_parts *parts, spry_error *error)
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

/* Only speaks the text of --say. */
static spry_status voice_say(const spry_voice_flags *flags, spry_synthesiser *synthesiser, spry_error *error)
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

/* Only transcribes the sound of --in. */
static spry_status voice_transcribe(const spry_voice_flags *flags, spry_recogniser *recogniser, spry_error *error)
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

/* ---- spry voice -------------------------------------------------------------------------------------------------- */

static const spry_usage usage = {
    .command = "voice",
    .arguments = "[MODEL] [options]",
    .about =
        "Talks with you: it listens to the microphone, recognises what you say, and speaks the answer while it is "
        "generated. Speaking over an answer stops it; what was not heard is not part of the conversation. With --in "
        "and "
        "--out it answers a sound file with a sound file; with --transcribe it only writes down what is said.\n"
        "MODEL is as in `spry run`; the default is " SPRY_BUNDLED_MODEL ". Speech is recognised by a Whisper model "
        "(--whisper), by a command (--stt-cmd), or else by PocketSphinx. Conversations are stored like typed ones.",
    .examples = "spry voice --whisper ggml-tiny.bin\n"
                "spry voice --in question.wav --out answer.wav --stats\n"
                "spry voice --transcribe --whisper ggml-tiny.bin --in talk.flac --format srt\n"
                "spry voice --whisper ggml-tiny.bin --language de --tts espeak\n"
                "spry voice --say 'Good morning.' --out morning.wav\n"
                "arecord -t raw -f S16_LE -r 16000 | spry voice --in - --out - | aplay -t raw -f S16_LE -r 16000",
};

static int run_parts(spry_chat_job *job, void *user)
{
    const spry_voice_parts *parts = user;
    const spry_voice_flags *flags = parts->flags;
    spry_error error;
    bool live = !flags->in || flags->live || strcmp(flags->in, "-") == 0;
    spry_status status = live ? spry_voice_live(job, parts, &error) : voice_file(job, parts, &error);
    return status == SPRY_OK ? SPRY_EXIT_OK : spry_complain_error(&error);
}

static spry_status converse(int *code, spry_voice_flags *flags, const char *model, spry_voice_parts *parts,
                            spry_error *error)
{
    spry_chat_past past;
    spry_status status = spry_chat_past_init(&past, error);
    if (status == SPRY_OK)
        status = spry_chat_start_with(code, &past, model, &flags->chat, run_parts, parts, error);
    spry_chat_past_deinit(&past);
    return status;
}

static int run(spry_voice_flags *flags, const char *model)
{
    spry_recogniser recogniser = {0};
    spry_synthesiser synthesiser = {0};
    spry_voice_parts parts = {flags, &recogniser, &synthesiser};
    spry_error error;
    int code = SPRY_EXIT_OK;
    spry_status status = SPRY_OK;
    bool speaks = !flags->transcribe && (flags->out || !flags->in);
    if (!flags->say)
        status = spry_recogniser_open(&recogniser, &flags->speech.recogniser, &error);
    if (status == SPRY_OK && speaks)
        status = spry_synthesiser_open(&synthesiser, &flags->speech.synthesiser, &error);
    if (status == SPRY_OK)
        status = flags->say          ? voice_say(flags, &synthesiser, &error)
                 : flags->transcribe ? voice_transcribe(flags, &recogniser, &error)
                                     : converse(&code, flags, model, &parts, &error);
    spry_synthesiser_close(&synthesiser);
    spry_recogniser_close(&recogniser);
    if (status != SPRY_OK)
        code = spry_complain_error(&error);
    return spry_out_finish(code);
}

int spry_cmd_voice(int argc, char **argv)
{
    spry_voice_flags flags;
    voice_flags_default(&flags);
    spry_option_table tables[4 + SPRY_CHAT_SETTINGS_TABLES] = {
        voice_flags_table(&flags),
        spry_speech_flags_table(&flags.speech),
        spry_chat_flags_table(&flags.chat),
        spry_trace_flags_table(&flags.chat.engine.trace),
    };
    spry_chat_settings_tables(&tables[4], &flags.chat);
    const char *model = NULL;
    spry_option_list positionals = {&model, 1, 0};
    spry_error error;
    int code;
    if (!spry_usage_parse(&code, &usage, tables, SPRY_COUNT(tables), &positionals, argc, argv))
        return code;
    if (spry_trace_flags_check(&flags.chat.engine.trace, &error) != SPRY_OK ||
        spry_answer_flags_settle(&flags.chat.answer, &error) != SPRY_OK)
        return spry_usage_wrong(&usage, "%s", error.message);
    if (flags.transcribe && (!flags.in || strcmp(flags.in, "-") == 0))
        return spry_usage_wrong(&usage, "--transcribe needs a sound file: name it with --in");
    if (flags.say && (!flags.out || strcmp(flags.out, "-") == 0))
        return spry_usage_wrong(&usage, "--say needs a file to speak to: name it with --out");
    if (flags.out && strcmp(flags.out, "-") == 0 && flags.in && strcmp(flags.in, "-") != 0 && !flags.live)
        return spry_usage_wrong(&usage, "--out - needs --in - or --live");
    if (!flags.speech.synthesiser.language)
        flags.speech.synthesiser.language = flags.speech.recogniser.translate ? NULL : flags.speech.recogniser.language;
    spry_engine_flags_log(&flags.chat.engine);
    flags.speech.recogniser.engine = &flags.chat.engine.options;
    return run(&flags, model);
}
