/* PocketSphinx: recognises while it hears, with models that a package has. */
#include "voice/recogniser.h"

#ifdef SPRY_HAVE_POCKETSPHINX

#include <stdlib.h>
#include <string.h>

#include <pocketsphinx/pocketsphinx.h>
#include <sphinxbase/err.h>

#include "platform/file.h"

enum { BLOCK = 2048, PATH_BYTES = 1 << 12 };

typedef struct sphinx {
    cmd_ln_t *config;
    ps_decoder_t *decoder;
    bool listening;
} sphinx;

static bool wanted(const spry_recogniser_options *options)
{
    return spry_path_is_folder(options->sphinx);
}

static void close_sphinx(void *state)
{
    sphinx *s = state;
    if (s->decoder)
        ps_free(s->decoder);
    if (s->config)
        cmd_ln_free_r(s->config);
    free(s);
}

static spry_status configure(sphinx *s, const char *folder, spry_error *error)
{
    spry_buffer model, words, pronunciation;
    spry_buffer *const paths[] = {&model, &words, &pronunciation};
    static const char *const names[] = {"en-us", "en-us.lm.bin", "cmudict-en-us.dict"};
    spry_status status = SPRY_OK;
    for (size_t i = 0; i < SPRY_COUNT(paths); i++) {
        spry_buffer_init(paths[i], PATH_BYTES);
        if (status == SPRY_OK)
            status = spry_path_join(paths[i], folder, names[i], error);
        if (status == SPRY_OK && !spry_path_exists(paths[i]->data))
            status = spry_fail(error, SPRY_ERR_FILE,
                               "%s: PocketSphinx has no language data there (Debian: the package "
                               "pocketsphinx-en-us)",
                               paths[i]->data);
    }
    if (status == SPRY_OK) {
        err_set_logfp(NULL);
        s->config = cmd_ln_init(NULL, ps_args(), TRUE, "-hmm", model.data, "-lm", words.data, "-dict",
                                pronunciation.data, NULL);
        s->decoder = s->config ? ps_init(s->config) : NULL;
        if (!s->decoder)
            status = spry_fail(error, SPRY_ERR_FORMAT, "%s: PocketSphinx cannot open these models", folder);
    }
    for (size_t i = 0; i < SPRY_COUNT(paths); i++)
        spry_buffer_deinit(paths[i]);
    return status;
}

static spry_status open_sphinx(void **state, const spry_recogniser_options *options, spry_error *error)
{
    if (options->language && strcmp(options->language, "en") != 0)
        return spry_fail(error, SPRY_ERR_INPUT, "PocketSphinx' models are English; other languages need --whisper");
    sphinx *s = calloc(1, sizeof *s);
    if (!s)
        return spry_fail_memory(error, "a recogniser", sizeof *s);
    spry_status status = configure(s, options->sphinx, error);
    if (status != SPRY_OK) {
        close_sphinx(s);
        return status;
    }
    *state = s;
    return SPRY_OK;
}

static spry_status begin(void *state, spry_error *error)
{
    sphinx *s = state;
    if (s->listening)
        ps_end_utt(s->decoder);
    s->listening = ps_start_utt(s->decoder) == 0;
    return s->listening ? SPRY_OK : spry_fail(error, SPRY_ERR_DEVICE, "PocketSphinx cannot begin an utterance");
}

static spry_status hear(void *state, const float *samples, size_t count, spry_error *error)
{
    sphinx *s = state;
    int16_t pcm[BLOCK];
    for (size_t at = 0; at < count;) {
        size_t n = count - at < BLOCK ? count - at : BLOCK;
        spry_sound_to_pcm(pcm, samples + at, n);
        if (ps_process_raw(s->decoder, pcm, n, FALSE, FALSE) < 0)
            return spry_fail(error, SPRY_ERR_DEVICE, "PocketSphinx cannot hear this sound");
        at += n;
    }
    return SPRY_OK;
}

static spry_status words(void *state, spry_buffer *text, bool over, bool (*proceed)(void *user), void *user,
                         spry_error *error)
{
    (void)proceed, (void)user, (void)error;
    sphinx *s = state;
    if (over && s->listening) {
        ps_end_utt(s->decoder);
        s->listening = false;
    }
    const char *found = ps_get_hyp(s->decoder, NULL);
    spry_buffer_clear(text);
    spry_buffer_text(text, found ? found : "");
    spry_text_trim(text);
    return SPRY_OK;
}

const spry_recogniser_kind spry_recogniser_sphinx = {.name = "pocketsphinx",
                                                     .wanted = wanted,
                                                     .open = open_sphinx,
                                                     .close = close_sphinx,
                                                     .begin = begin,
                                                     .hear = hear,
                                                     .words = words,
                                                     .partial = true};

#endif
