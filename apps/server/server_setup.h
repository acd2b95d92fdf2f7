/* Opening a server: command-line options, and the models it serves. */
#ifndef SPRY_SERVER_SERVER_SETUP_H
#define SPRY_SERVER_SERVER_SETUP_H

#include "cli/common_options.h"
#include "server/http/exchange.h"
#include "server/server.h"
#include "spry_tools.h"
#include "voice/voice.h"

/* ---- api/audio.c: speech ----------------------------------------------------------------------------------------- */

/* The server's ears and mouth: a recogniser and a synthesiser, opened when they are first needed and used by one
 * request at a time. */

typedef struct spry_speech_service spry_speech_service;

/* Borrows the flags. */
spry_status spry_speech_service_create(spry_speech_service **out, const spry_speech_flags *flags, spry_error *error);
void spry_speech_service_destroy(spry_speech_service *service);

/* A synthesiser with a voice (NULL: the first one); NULL and a reason in *error where there is none. It is the
 * caller's until spry_speech_service_leave. */
spry_status spry_speech_service_voice(spry_speech_service *service, spry_synthesiser **synthesiser, const char *voice,
                                      spry_error *error);

void spry_speech_service_leave(spry_speech_service *service, const spry_synthesiser *synthesiser);

/* ---- server_setup.c ---------------------------------------------------------------------------------------------- */

enum { SPRY_SERVER_MODELS_MAX = 64, SPRY_SERVER_FLAG_TABLES = 5 };

typedef struct spry_server_flags {
    spry_serve_settings settings;
    uint32_t parallel, queue, stall_ms, keep_alive_s, models_max;
    const char *policy, *draft, *draft_mode;
    size_t model_bytes;
    spry_engine_flags engine;
    spry_model_flags model;
    spry_speech_flags speech; /* has its own table */
} spry_server_flags;

void spry_server_flags_default(spry_server_flags *flags);

/* The tables of options about models, engine and trace. */
void spry_server_flags_tables(spry_option_table tables[SPRY_SERVER_FLAG_TABLES], spry_server_flags *flags);

/* Opens a server with its first model loaded; it does not listen yet. Borrows `flags`. `named`: the models of the
 * command line. */
spry_status spry_server_open(spry_server **out, spry_server_flags *flags, const spry_option_list *named,
                             spry_error *error);
/* The name of the first model; empty: there is none. */
const char *spry_server_first_model(const spry_server *server);

/* The file or the bytes of a model of the pool. The memory that `file` points to lives as long as `info` and the
 * server. */
void spry_server_model_file(spry_model_file *file, const spry_server *server, const spry_pool_info *info);

void spry_server_close(spry_server *server);

#endif
