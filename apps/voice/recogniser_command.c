/* A command of the user, which reads an utterance as 16-bit PCM and writes its text. */
#include <stdlib.h>

#include "base/utf8.h"
#include "voice/child_process.h"
#include "voice/recogniser.h"

typedef struct command {
    const char *line;
    spry_utterance utterance;
} command;

static bool wanted(const spry_recogniser_options *options)
{
    return options->command != NULL;
}

static spry_status open_command(void **state, const spry_recogniser_options *options, spry_error *error)
{
    if (!options->command)
        return spry_fail(error, SPRY_ERR_INPUT, "which command recognises speech? Give one with --stt-cmd");
    command *c = calloc(1, sizeof *c);
    if (!c)
        return spry_fail_memory(error, "a recogniser", sizeof *c);
    c->line = options->command;
    *state = c;
    return SPRY_OK;
}

static void close_command(void *state)
{
    free(((command *)state)->utterance.samples);
    free(state);
}

static spry_status begin(void *state, spry_error *error)
{
    (void)error;
    ((command *)state)->utterance.count = 0;
    return SPRY_OK;
}

static spry_status hear(void *state, const float *samples, size_t count, spry_error *error)
{
    return spry_utterance_add(&((command *)state)->utterance, samples, count, error);
}

static bool append(void *user, const char *data, size_t size)
{
    return spry_buffer_append(user, data, size);
}

static spry_status words(void *state, spry_buffer *text, bool over, bool (*proceed)(void *user), void *user,
                         spry_error *error)
{
    (void)proceed, (void)user;
    command *c = state;
    spry_buffer_clear(text);
    if (!over)
        return SPRY_OK;
    spry_buffer written;
    int16_t *pcm = calloc(c->utterance.count + 1, sizeof *pcm);
    if (!pcm)
        return spry_fail_memory(error, "an utterance", c->utterance.count * sizeof *pcm);
    spry_sound_to_pcm(pcm, c->utterance.samples, c->utterance.count);
    spry_buffer_init(&written, 1 << 20);
    spry_status status = spry_child_run(c->line, NULL, (spry_view){(const char *)pcm, c->utterance.count * sizeof *pcm},
                                        append, &written, error);
    spry_utf8_append_valid(text, spry_buffer_view(&written));
    spry_text_trim(text);
    spry_buffer_deinit(&written);
    free(pcm);
    return status;
}

const spry_recogniser_kind spry_recogniser_command = {.name = "command",
                                                      .wanted = wanted,
                                                      .open = open_command,
                                                      .close = close_command,
                                                      .begin = begin,
                                                      .hear = hear,
                                                      .words = words};
