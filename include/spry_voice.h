/* spry_voice: speech to text with Whisper models, and finding where speech begins and ends. Beside spry.h; its structs
 * follow the same rules. Sound is one channel of floats from -1 to 1 at 16,000 samples a second.
 *
 * Threads: any thread, with different objects at the same time; one thread at a time for one object. */
#ifndef SPRY_VOICE_H
#define SPRY_VOICE_H

#include "spry.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SPRY_SOUND_RATE = 16000 };

/* ---- recognising speech ---------------------------------------------------------------------------------------- */

typedef struct spry_speech spry_speech;

typedef struct spry_speech_options {
    size_t size;      /* set by spry_speech_options_default */
    const char *type; /* matrices are converted to this type when the model is opened: "q8_0"; NULL: as they are */
    const char *cpu;  /* as in spry_engine_options */
    uint32_t threads; /* 0: every processor this process may use */
    uint32_t reserved32;
    const char *device; /* as in spry_engine_options; the CPU is used if the device does not exist or cannot compute
                         * Whisper models */
    void (*log)(void *user, int level, const char *sentence); /* NULL: no log. Called by spry_speech_open */
    void *log_user;
} spry_speech_options;

SPRY_API void spry_speech_options_default_sized(spry_speech_options *options, size_t size);
#define spry_speech_options_default(options) spry_speech_options_default_sized(options, sizeof(spry_speech_options))

/* Opens a Whisper model: a Hugging Face folder, or a ggml file of whisper.cpp. `options` may be NULL. */
SPRY_API spry_status spry_speech_open(spry_speech **out, const char *path, const spry_speech_options *options,
                                      spry_error *error);
SPRY_API void spry_speech_close(spry_speech *speech);

/* True if the model knows a language by code ("de") or English name ("german"). */
SPRY_API bool spry_speech_knows(const spry_speech *speech, const char *language);

/* The English name of a language code; NULL: not known. Any thread. */
SPRY_API const char *spry_speech_language_name(const char *code);

/* A segment of the transcript. */
typedef struct spry_speech_segment {
    double begin, end; /* seconds */
    const char *text;  /* zero-terminated UTF-8 */
    const int32_t *tokens;
    size_t n_tokens;
    double temperature;       /* temperature of the draws */
    double mean_logprob;      /* mean log probability of the tokens in its window */
    double compression_ratio; /* compression ratio of its window's text: high if words repeat */
    double no_speech;         /* probability that its window contains no speech */
} spry_speech_segment;

typedef struct spry_transcribe_options {
    size_t size;          /* set by spry_transcribe_options_default */
    const char *language; /* code or English name; NULL: detected in the first window */
    const char *prompt;   /* text that came before, with names and spellings to expect; NULL: none */
    float temperature;    /* of the first attempt */
    float no_speech;      /* a window counts as silent above this probability if its words are improbable, too */
    float least_logprob;  /* a window is decoded again, at a higher temperature, if the mean is below this or the ratio
                           * above the next */
    float most_compression;
    bool translate;    /* to English */
    bool timestamps;   /* of segments; without them sound within one window is one segment */
    bool whole_window; /* encode 30 seconds however short the sound is, as in the model's training */
    bool reserved[5];
    /* Called for every segment, in order; false stops. May be NULL. */
    bool (*on_segment)(void *user, const spry_speech_segment *segment);
    /* Called before every step; false ends with SPRY_ERR_CANCELLED. May be NULL. */
    bool (*proceed)(void *user);
    void *user;
} spry_transcribe_options;

SPRY_API void spry_transcribe_options_default_sized(spry_transcribe_options *options, size_t size);
#define spry_transcribe_options_default(options)                                                                       \
    spry_transcribe_options_default_sized(options, sizeof(spry_transcribe_options))

typedef struct spry_transcript {
    size_t size;      /* as in spry_engine_info */
    char *text;       /* free it with spry_free */
    char language[8]; /* code */
    double seconds;   /* of sound */
    double encode_ms, decode_ms;
    uint32_t windows, silent_windows, retries; /* windows decoded; without speech; decoded again */
    uint32_t tokens;
    uint64_t reserved[8];
} spry_transcript;

/* Where sound comes from: writes at most `count` samples and returns their number; 0: the end. */
typedef size_t (*spry_sound_reader)(void *user, float *samples, size_t count);

/* Transcribes speech of any length in windows of 30 seconds, in bounded memory. */
SPRY_API spry_status spry_speech_transcribe(spry_speech *speech, spry_transcript *transcript, spry_sound_reader read,
                                            void *read_user, const spry_transcribe_options *options, spry_error *error);

/* ---- finding speech -------------------------------------------------------------------------------------------- */

typedef struct spry_vad spry_vad;

typedef struct spry_vad_options {
    size_t size;       /* set by spry_vad_options_default */
    uint32_t begin_ms; /* speech of this length begins an utterance */
    uint32_t end_ms;   /* a pause of this length ends it */
    float threshold;   /* decibels over all bands by which speech exceeds the noise */
    uint32_t reserved32;
} spry_vad_options;

typedef enum spry_vad_event {
    SPRY_VAD_NONE = 0,
    SPRY_VAD_BEGIN = 1, /* an utterance began at spry_vad_begin_at */
    SPRY_VAD_END = 2    /* it ended at spry_vad_end_at */
} spry_vad_event;

enum { SPRY_VAD_STEP = 160 }; /* samples of a step: 10 ms */

SPRY_API void spry_vad_options_default_sized(spry_vad_options *options, size_t size);
#define spry_vad_options_default(options) spry_vad_options_default_sized(options, sizeof(spry_vad_options))
SPRY_API spry_status spry_vad_create(spry_vad **out, const spry_vad_options *options, spry_error *error);
SPRY_API void spry_vad_destroy(spry_vad *vad);

/* Takes the next SPRY_VAD_STEP samples. */
SPRY_API spry_vad_event spry_vad_push(spry_vad *vad, const float samples[SPRY_VAD_STEP]);

/* Positions in samples since creation: where the last utterance began, and where its speech ended. */
SPRY_API uint64_t spry_vad_begin_at(const spry_vad *vad);
SPRY_API uint64_t spry_vad_end_at(const spry_vad *vad);
SPRY_API bool spry_vad_speaking(const spry_vad *vad); /* inside an utterance */
SPRY_API float spry_vad_level(const spry_vad *vad);   /* decibels of the last step above the noise */

#ifdef __cplusplus
}
#endif
#endif
