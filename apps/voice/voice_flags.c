#include "voice/voice_flags.h"

#include "voice/transcript_text.h"

#define SPEECH(name) offsetof(spry_speech_flags, name)
#define FIELD(name)  offsetof(spry_voice_flags, name)

static const spry_option speech_options[] = {
    {.name = "stt",
     .kind = SPRY_OPTION_STRING,
     .offset = SPEECH(recogniser.name),
     .metavar = "NAME",
     .help = "Recogniser of speech: whisper, pocketsphinx or command; auto: the first that the other options give",
     .group = "Speech"},
    {.name = "whisper",
     .kind = SPRY_OPTION_STRING,
     .offset = SPEECH(recogniser.whisper),
     .metavar = "FILE",
     .help = "Whisper model: a ggml file of whisper.cpp, or a Hugging Face folder",
     .group = "Speech"},
    {.name = "whisper-type",
     .kind = SPRY_OPTION_STRING,
     .offset = SPEECH(recogniser.type),
     .metavar = "TYPE",
     .help = "Convert its matrices to this type when it is opened, for example q8_0",
     .group = "Speech"},
    {.name = "whole-window",
     .kind = SPRY_OPTION_FLAG,
     .offset = SPEECH(recogniser.whole_window),
     .help = "Encode 30 seconds however short the speech is, as Whisper was trained",
     .group = "Speech"},
    {.name = "sphinx-model",
     .kind = SPRY_OPTION_STRING,
     .offset = SPEECH(recogniser.sphinx),
     .metavar = "DIR",
     .help = "PocketSphinx' models of a language",
     .group = "Speech"},
    {.name = "stt-cmd",
     .kind = SPRY_OPTION_STRING,
     .offset = SPEECH(recogniser.command),
     .metavar = "COMMAND",
     .help = "Command that recognises: reads 16-bit PCM (16 kHz, one channel), writes text",
     .group = "Speech"},
    {.name = "stt-prompt",
     .kind = SPRY_OPTION_STRING,
     .offset = SPEECH(recogniser.prompt),
     .metavar = "TEXT",
     .help = "Names and spellings that Whisper may expect",
     .group = "Speech"},
    {.name = "language",
     .kind = SPRY_OPTION_STRING,
     .offset = SPEECH(recogniser.language),
     .metavar = "CODE",
     .help = "Language that is spoken, as a code (en) or a name (english); default: detected by Whisper",
     .group = "Speech"},
    {.name = "translate",
     .kind = SPRY_OPTION_FLAG,
     .offset = SPEECH(recogniser.translate),
     .help = "Write down speech of any language in English (Whisper)",
     .group = "Speech"},
    {.name = "tts",
     .kind = SPRY_OPTION_STRING,
     .offset = SPEECH(synthesiser.name),
     .metavar = "NAME",
     .help = "Synthesiser of speech: flite, espeak or command; auto: flite for English, else espeak",
     .group = "Speech"},
    {.name = "voice",
     .kind = SPRY_OPTION_STRING,
     .offset = SPEECH(synthesiser.voice),
     .metavar = "NAME",
     .help = "Voice of the synthesiser; flite: slt or rms; espeak: a voice or language",
     .group = "Speech"},
    {.name = "tts-cmd",
     .kind = SPRY_OPTION_STRING,
     .offset = SPEECH(synthesiser.command),
     .metavar = "COMMAND",
     .help = "Command that speaks: reads text, writes 16-bit PCM (16 kHz, one channel)",
     .group = "Speech"},
};

static const spry_option voice_options[] = {
    {.name = "in",
     .kind = SPRY_OPTION_STRING,
     .offset = FIELD(in),
     .metavar = "FILE",
     .help = "Sound file to listen to; -: raw PCM (16 bits, 16 kHz, one channel) on standard input; default: the "
             "microphone",
     .group = "Sound"},
    {.name = "out",
     .kind = SPRY_OPTION_STRING,
     .offset = FIELD(out),
     .metavar = "FILE",
     .help = "WAV file to speak to; -: raw PCM on standard output; default: the loudspeaker, or no sound with --in",
     .group = "Sound"},
    {.name = "live",
     .kind = SPRY_OPTION_FLAG,
     .offset = FIELD(live),
     .help = "Play the file of --in at its own speed, as if it were spoken now",
     .group = "Sound"},
    {.name = "pause",
     .kind = SPRY_OPTION_U32,
     .offset = FIELD(pause_ms),
     .min = 100,
     .max = 5000,
     .metavar = "MS",
     .help = "Silence that ends what you say, in milliseconds",
     .group = "Sound"},
    {.name = "threshold",
     .kind = SPRY_OPTION_FLOAT,
     .offset = FIELD(threshold),
     .min = 1,
     .max = 40,
     .metavar = "DB",
     .help = "How far speech is above the noise, in decibels",
     .group = "Sound"},
    {.name = "barge-in",
     .kind = SPRY_OPTION_FLAG,
     .offset = FIELD(barge_in),
     .help = "Speaking over an answer stops it",
     .group = "Sound"},
    {.name = "say",
     .kind = SPRY_OPTION_STRING,
     .offset = FIELD(say),
     .metavar = "TEXT",
     .help = "Only speak this text to --out",
     .group = "Sound"},
    {.name = "transcribe",
     .kind = SPRY_OPTION_FLAG,
     .offset = FIELD(transcribe),
     .help = "Only write down what is said in --in",
     .group = "Transcript"},
    {.name = "format",
     .kind = SPRY_OPTION_CHOICE,
     .offset = FIELD(format),
     .choices = spry_transcript_formats,
     .help = "Form of the transcript",
     .group = "Transcript"},
    {.name = "json",
     .kind = SPRY_OPTION_FLAG,
     .offset = FIELD(json),
     .help = "Print one JSON object per turn: what was said, the answer, and the times",
     .group = "Output"},
    {.name = "stats",
     .kind = SPRY_OPTION_FLAG,
     .offset = FIELD(chat.stats),
     .help = "Print the times of every turn to standard error",
     .group = "Output"},
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

void spry_voice_flags_default(spry_voice_flags *flags)
{
    *flags = (spry_voice_flags){.format = "text", .pause_ms = 500, .threshold = 7, .barge_in = true};
    spry_speech_flags_default(&flags->speech);
    spry_chat_flags_default(&flags->chat);
}

spry_option_table spry_voice_flags_table(spry_voice_flags *flags)
{
    return (spry_option_table){voice_options, SPRY_COUNT(voice_options), flags};
}
