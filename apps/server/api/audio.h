/* The server's ears and mouth: a recogniser and a synthesiser, opened when they are first needed and used by one
 * request at a time. */
#ifndef SPRY_SERVER_API_AUDIO_H
#define SPRY_SERVER_API_AUDIO_H

#include "server/http/exchange.h"
#include "voice/voice.h"

typedef struct spry_speech_service spry_speech_service;

/* Borrows the flags. */
spry_status spry_speech_service_create(spry_speech_service **out, const spry_speech_flags *flags, spry_error *error);
void spry_speech_service_destroy(spry_speech_service *service);

/* A synthesiser with a voice (NULL: the first one); NULL and a reason in *error where there is none. It is the
 * caller's until spry_speech_service_leave. */
spry_status spry_speech_service_voice(spry_speech_service *service, spry_synthesiser **synthesiser, const char *voice,
                                      spry_error *error);

void spry_speech_service_leave(spry_speech_service *service, const spry_synthesiser *synthesiser);

#endif
