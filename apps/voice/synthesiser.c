/* Synthesisers: a command of the user, eSpeak NG, and through the module Flite. */
#include "voice/synthesiser.h"

#include <ctype.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buffer.h"
#include "platform/child.h"
#include "platform/threads.h"
#include "spry_voice.h"
#include "voice/sound.h"

/* ---- a command --------------------------------------------------------------------------------------------------- */

/* Speech from another process: a command of the user, or eSpeak NG, which knows many languages. eSpeak NG's licence
 * asks that it stays a program of its own. */

enum {
    SOUND_BYTES_MAX = 256 << 20,
    WAV_HEADER = 44,
    WAV_RATE = 24,
    VOICE_BYTES = 64,
    SPEAK_SECONDS = 60, /* limit for a clause */
    SPEAK_MEMORY = 1 << 30,
};

typedef struct process {
    const char *command; /* NULL: eSpeak NG */
    char voice[VOICE_BYTES];
} process;

static bool command_wanted(const spry_synthesiser_options *options)
{
    return options->command != NULL;
}

static bool espeak_wanted(const spry_synthesiser_options *options)
{
    (void)options;
    return true;
}

static spry_status open_process(void **state, const char *command, const char *voice, spry_error *error)
{
    process *p = calloc(1, sizeof *p);
    if (!p)
        return spry_fail_memory(error, "a synthesiser", sizeof *p);
    p->command = command;
    snprintf(p->voice, sizeof p->voice, "%s", voice);
    *state = p;
    return SPRY_OK;
}

static spry_status open_command(void **state, const spry_synthesiser_options *options, spry_error *error)
{
    if (!options->command)
        return spry_fail(error, SPRY_ERR_INPUT, "which command speaks? Give one with --tts-cmd");
    return open_process(state, options->command, "", error);
}

/* eSpeak NG takes a path for a voice, too. */
static bool is_name(const char *voice)
{
    return isalnum((unsigned char)voice[0]) &&
           voice[strspn(voice, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+-")] == '\0';
}

static spry_status open_espeak(void **state, const spry_synthesiser_options *options, spry_error *error)
{
    const char *voice = options->voice ? options->voice : options->language ? options->language : "en";
    if (!is_name(voice) || strlen(voice) >= VOICE_BYTES)
        return spry_fail(error, SPRY_ERR_INPUT, "'%.40s' is no voice of eSpeak NG", voice);
    return open_process(state, NULL, voice, error);
}

static void close_process(void *state)
{
    free(state);
}

typedef struct passing {
    spry_sound_sink sink;
    void *user;
    char odd; /* the first byte of a sample whose second has not come */
    bool has_odd;
} passing;

static bool pass_on(void *user, const char *data, size_t size)
{
    passing *p = user;
    int16_t samples[2049];
    while (size) {
        size_t n = 0, most = sizeof samples / sizeof *samples - 1;
        unsigned char *bytes = (unsigned char *)samples;
        if (p->has_odd)
            bytes[n++] = (unsigned char)p->odd;
        size_t taken = size < 2 * most ? size : 2 * most;
        memcpy(bytes + n, data, taken);
        n += taken;
        data += taken;
        size -= taken;
        p->has_odd = n % 2;
        if (p->has_odd)
            p->odd = (char)bytes[n - 1];
        if (n >= 2 && !p->sink(p->user, samples, n / 2))
            return false;
    }
    return true;
}

static spry_status speak_command(void *state, const char *text, spry_sound_sink sink, void *user, spry_error *error)
{
    passing p = {.sink = sink, .user = user};
    const spry_child child = {
        .command = ((process *)state)->command, .input = spry_view_of(text), .on_output = pass_on, .user = &p};
    return spry_child_run(&child, error);
}

static bool collect(void *user, const char *data, size_t size)
{
    return spry_buffer_append(user, data, size);
}

/* A WAV file on its standard output, whose header's lengths are not set. */
static spry_status speak_espeak(void *state, const char *text, spry_sound_sink sink, void *user, spry_error *error)
{
    const process *p = state;
    const char *const arguments[] = {"espeak-ng", "--stdin", "--stdout", "-v", p->voice, NULL};
    spry_buffer wav;
    int16_t *samples = NULL, *converted = NULL;
    size_t n_converted = 0;
    spry_buffer_init(&wav, SOUND_BYTES_MAX);
    const spry_sandbox sandbox = {.readable = spry_sandbox_programs, .memory = SPEAK_MEMORY, .cpu_s = SPEAK_SECONDS};
    const spry_child child = {.arguments = arguments,
                              .sandbox = &sandbox,
                              .seconds = SPEAK_SECONDS,
                              .input = spry_view_of(text),
                              .on_output = collect,
                              .user = &wav};
    spry_status status = spry_child_run(&child, error);
    if (status != SPRY_OK && status != SPRY_ERR_CANCELLED && wav.size == 0)
        spry_fail(error, status, "espeak-ng is not there, or has no voice '%s'", p->voice);
    if (status == SPRY_OK && (wav.failed || wav.size < WAV_HEADER || memcmp(wav.data, "RIFF", 4) != 0))
        status = spry_fail(error, SPRY_ERR_DEVICE, "espeak-ng has no voice '%s', or wrote no sound", p->voice);
    if (status == SPRY_OK) {
        const unsigned char *rate = (const unsigned char *)wav.data + WAV_RATE;
        size_t count = (wav.size - WAV_HEADER) / 2;
        samples = calloc(count + 1, sizeof *samples);
        if (samples)
            memcpy(samples, wav.data + WAV_HEADER, count * sizeof *samples);
        status = samples ? spry_sound_convert(&converted, &n_converted, samples, count,
                                              (unsigned)(rate[0] | rate[1] << 8 | rate[2] << 16), error)
                         : spry_fail_memory(error, "speech", count);
    }
    if (status == SPRY_OK && n_converted)
        sink(user, converted, n_converted);
    free(samples);
    free(converted);
    spry_buffer_deinit(&wav);
    return status;
}

const spry_synthesiser_kind spry_synthesiser_command = {
    .name = "command", .wanted = command_wanted, .open = open_command, .close = close_process, .speak = speak_command};
const spry_synthesiser_kind spry_synthesiser_espeak = {
    .name = "espeak", .wanted = espeak_wanted, .open = open_espeak, .close = close_process, .speak = speak_espeak};

/* ---- Flite ------------------------------------------------------------------------------------------------------- */

/* Flite cannot be interrupted within a clause, and keeps voices in globals: each clause is spoken by a child process
 * without rights, which can be ended. */

typedef struct clause {
    void *state;
    const char *text;
} clause;

typedef struct to_parent {
    spry_isolated_write write;
    void *self;
} to_parent;

static bool write_samples(void *user, const int16_t *samples, size_t count)
{
    const to_parent *t = user;
    return t->write(t->self, samples, count * sizeof *samples);
}

static void speak_in_child(void *context, spry_isolated_write write, void *self)
{
    const clause *c = context;
    spry_error error;
    to_parent t = {write, self};
    if (spry_voice_libraries_get()->flite->speak(c->state, c->text, write_samples, &t, &error) != SPRY_OK)
        abort();
}

static spry_status speak_isolated(void *state, const char *text, spry_sound_sink sink, void *user, spry_error *error)
{
    clause c = {state, text};
    passing p = {.sink = sink, .user = user};
    spry_isolated *child;
    char bytes[1 << 12];
    size_t n;
    bool wanted = true;
    spry_status status = spry_isolated_start(&child, speak_in_child, &c, SPEAK_SECONDS, error);
    if (status != SPRY_OK)
        return status;
    while (wanted && (n = spry_isolated_read(child, bytes, sizeof bytes)) > 0)
        wanted = pass_on(&p, bytes, n);
    status = spry_isolated_end(child, error);
    if (!wanted || status == SPRY_ERR_CANCELLED)
        return wanted ? status : SPRY_OK;
    return status ? spry_fail(error, SPRY_ERR_DEVICE, "flite cannot speak this text") : SPRY_OK;
}

/* Flite takes a whole processor: one clause is spoken at a time, and a text of many clauses lets others pass. */
static spry_status speak_in_turn(void *state, const char *text, spry_sound_sink sink, void *user, spry_error *error)
{
    static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
    static atomic_uint waiting;
    const struct timespec pause = {.tv_nsec = 2 * SPRY_LOCK_NAP_NS};
    atomic_fetch_add(&waiting, 1);
    bool taken = spry_lock_patiently(&turn);
    atomic_fetch_sub(&waiting, 1);
    if (!taken)
        return spry_fail(error, SPRY_ERR_CANCELLED, "the text was not spoken: cancelled");
    spry_status status = speak_isolated(state, text, sink, user, error);
    pthread_mutex_unlock(&turn);
    if (atomic_load(&waiting))
        nanosleep(&pause, NULL); /* a waiting thread looks meanwhile */
    return status;
}

/* ---- the choice of a synthesiser --------------------------------------------------------------------------------- */

enum { TEXT_MAX = 1 << 20, KINDS = 3 };

static const spry_synthesiser_kind *kind_at(size_t i)
{
    return i == 0 ? &spry_synthesiser_command : i == 1 ? spry_voice_libraries_get()->flite : &spry_synthesiser_espeak;
}

/* Names separated by ", ". */
static const char *kind_names(void)
{
    return spry_voice_libraries_get()->flite ? "command, flite, espeak" : "command, espeak";
}

spry_status spry_synthesiser_open(spry_synthesiser *synthesiser, const spry_synthesiser_options *options,
                                  spry_error *error)
{
    bool any = strcmp(options->name, "auto") == 0;
    *synthesiser = (spry_synthesiser){0};
    for (size_t i = 0; i < KINDS && !synthesiser->kind; i++) {
        const spry_synthesiser_kind *kind = kind_at(i);
        if (kind && (any ? kind->wanted(options) : strcmp(options->name, kind->name) == 0))
            synthesiser->kind = kind;
    }
    if (!synthesiser->kind)
        return spry_fail(error, SPRY_ERR_INPUT, "there is no synthesiser '%.40s'; known are %s", options->name,
                         kind_names());
    spry_status status = synthesiser->kind->open(&synthesiser->state, options, error);
    if (status != SPRY_OK)
        *synthesiser = (spry_synthesiser){0};
    return status;
}

void spry_synthesiser_close(spry_synthesiser *synthesiser)
{
    if (synthesiser->kind)
        synthesiser->kind->close(synthesiser->state);
    *synthesiser = (spry_synthesiser){0};
}

/* Characters that have no sound or would be read out as symbols: Markdown's marks and control characters. */
static void clean(spry_buffer *out, spry_view text, bool *audible)
{
    for (size_t i = 0; i < text.size; i++) {
        unsigned char c = (unsigned char)text.data[i];
        *audible = *audible || c >= 0x80 || isalnum(c);
        char kept = c < ' ' || strchr("*_#`|<>~", c) ? ' ' : (char)c;
        spry_buffer_append(out, &kept, 1);
    }
}

spry_status spry_synthesiser_speak(spry_synthesiser *synthesiser, spry_view text, spry_sound_sink sink, void *user,
                                   spry_error *error)
{
    spry_buffer cleaned;
    bool audible = false;
    spry_status status = SPRY_OK;
    spry_buffer_init(&cleaned, TEXT_MAX);
    clean(&cleaned, text, &audible);
    if (cleaned.failed)
        status = spry_fail(error, SPRY_ERR_INPUT, "a text of %zu bytes is too long to be spoken at once", text.size);
    if (status == SPRY_OK && audible && synthesiser->kind == spry_voice_libraries_get()->flite) {
        status = speak_in_turn(synthesiser->state, cleaned.data, sink, user, error);
    } else if (status == SPRY_OK && audible) {
        status = synthesiser->kind->speak(synthesiser->state, cleaned.data, sink, user, error);
    }
    spry_buffer_deinit(&cleaned);
    return status;
}
