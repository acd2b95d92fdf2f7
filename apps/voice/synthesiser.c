#include "voice/synthesiser.h"

#include <ctype.h>
#include <pthread.h>
#include <string.h>

#include "base/buffer.h"
#include "voice/voice_libraries.h"

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

/* What has no sound, or would be read out as a symbol: Markdown's marks and control characters. */
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
    static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER; /* Flite's voices are global */
    spry_buffer cleaned;
    bool audible = false;
    spry_status status = SPRY_OK;
    spry_buffer_init(&cleaned, TEXT_MAX);
    clean(&cleaned, text, &audible);
    if (cleaned.failed)
        status = spry_fail(error, SPRY_ERR_INPUT, "a text of %zu bytes is too long to be spoken at once", text.size);
    if (status == SPRY_OK && audible) {
        pthread_mutex_lock(&turn);
        status = synthesiser->kind->speak(synthesiser->state, cleaned.data, sink, user, error);
        pthread_mutex_unlock(&turn);
    }
    spry_buffer_deinit(&cleaned);
    return status;
}
