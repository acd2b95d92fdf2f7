#include "server/audio/speech_service.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "voice/sound.h"

enum { VOICES_MAX = 16, NAME_BYTES = 40 };

typedef struct voice {
    char name[NAME_BYTES]; /* empty: the first one */
    spry_synthesiser synthesiser;
} voice;

struct spry_speech_service {
    const spry_speech_flags *flags;
    pthread_mutex_t listening; /* held while the recogniser is taken */
    spry_recogniser recogniser;
    pthread_mutex_t lock; /* of the voices */
    voice voices[VOICES_MAX];
    size_t n_voices;
};

spry_status spry_speech_service_create(spry_speech_service **out, const spry_speech_flags *flags, spry_error *error)
{
    spry_speech_service *s = *out = calloc(1, sizeof *s);
    if (!s)
        return spry_fail_memory(error, "speech", sizeof *s);
    s->flags = flags;
    pthread_mutex_init(&s->listening, NULL);
    pthread_mutex_init(&s->lock, NULL);
    return SPRY_OK;
}

void spry_speech_service_destroy(spry_speech_service *s)
{
    if (!s)
        return;
    spry_recogniser_close(&s->recogniser);
    for (size_t i = 0; i < s->n_voices; i++)
        spry_synthesiser_close(&s->voices[i].synthesiser);
    pthread_mutex_destroy(&s->listening);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

void spry_speech_service_names(spry_speech_service *s, const char **recogniser, const char **synthesiser)
{
    spry_synthesiser *first;
    const spry_recogniser_kind *kind =
        spry_voice_libraries_get()->files ? spry_recogniser_find(&s->flags->recogniser) : NULL;
    *recogniser = kind ? kind->name : NULL;
    *synthesiser = spry_speech_service_voice(s, &first, NULL, NULL) == SPRY_OK ? first->kind->name : NULL;
}

spry_status spry_speech_service_take(spry_speech_service *s, spry_recogniser **recogniser, spry_error *error)
{
    pthread_mutex_lock(&s->listening);
    spry_status status = SPRY_OK;
    if (!s->recogniser.kind)
        status = spry_recogniser_open(&s->recogniser, &s->flags->recogniser, error);
    if (status != SPRY_OK)
        pthread_mutex_unlock(&s->listening);
    *recogniser = status == SPRY_OK ? &s->recogniser : NULL;
    return status;
}

void spry_speech_service_return(spry_speech_service *s)
{
    pthread_mutex_unlock(&s->listening);
}

spry_status spry_speech_service_voice(spry_speech_service *s, spry_synthesiser **synthesiser, const char *name,
                                      spry_error *error)
{
    spry_status status = SPRY_OK;
    size_t i = 0;
    const char *key = name ? name : "";
    *synthesiser = NULL;
    if (strlen(key) >= NAME_BYTES)
        return spry_fail(error, SPRY_ERR_INPUT, "there is no voice '%.40s'", key);
    pthread_mutex_lock(&s->lock);
    while (i < s->n_voices && strcmp(s->voices[i].name, key) != 0)
        i++;
    if (i == VOICES_MAX) {
        status = spry_fail(error, SPRY_ERR_BUSY, "more than %d voices are in use", VOICES_MAX);
    } else if (i == s->n_voices) {
        spry_synthesiser_options options = s->flags->synthesiser;
        options.voice = name ? name : options.voice;
        status = spry_synthesiser_open(&s->voices[i].synthesiser, &options, error);
        if (status == SPRY_OK) {
            memcpy(s->voices[i].name, key, strlen(key) + 1);
            s->n_voices++;
        }
    }
    if (status == SPRY_OK)
        *synthesiser = &s->voices[i].synthesiser;
    pthread_mutex_unlock(&s->lock);
    return status;
}
