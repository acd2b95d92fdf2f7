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

/* A synthesiser with a voice (NULL: the first one); NULL and a reason in *error where there is none. They are kept. */
spry_status spry_speech_service_voice(spry_speech_service *service, spry_synthesiser **synthesiser, const char *voice,
                                      spry_error *error);

/* ---- form data --------------------------------------------------------------------------------------------------- */

/* The fields of a multipart/form-data body, parsed by libmicrohttpd. */

enum { SPRY_FORM_FIELDS = 32, SPRY_FORM_NAME = 64 };

typedef struct spry_form_field {
    char name[SPRY_FORM_NAME];
    spry_buffer value;
} spry_form_field;

typedef struct spry_form {
    spry_form_field fields[SPRY_FORM_FIELDS];
    size_t count;
    bool failed; /* memory was short, or there are too many fields */
} spry_form;

/* False: the body is no form, and a reply was given. */
bool spry_form_open(spry_form *form, spry_exchange *exchange);
void spry_form_close(spry_form *form);

/* NULL: there is none. Values end with a zero that is not counted. */
const spry_buffer *spry_form_get(const spry_form *form, const char *name);

#endif
