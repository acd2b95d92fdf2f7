/* spry voice: a spoken conversation, one spoken question, or a transcript. */
#include <string.h>

#include "chat/chat_start.h"
#include "cli/bundled.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "cli/usage.h"
#include "voice/voice.h"

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

static int run_parts(const spry_chat_job *job, void *user)
{
    const spry_voice_parts *parts = user;
    const spry_voice_flags *flags = parts->flags;
    spry_error error;
    bool live = !flags->in || flags->live || strcmp(flags->in, "-") == 0;
    spry_status status = live ? spry_voice_live(job, parts, &error) : spry_voice_file(job, parts, &error);
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
        status = flags->say          ? spry_voice_say(flags, &synthesiser, &error)
                 : flags->transcribe ? spry_voice_transcribe(flags, &recogniser, &error)
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
    spry_voice_flags_default(&flags);
    spry_option_table tables[4 + SPRY_CHAT_SETTINGS_TABLES] = {
        spry_voice_flags_table(&flags),
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
