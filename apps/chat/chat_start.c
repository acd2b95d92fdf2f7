/* The record gets the current model and settings, so that the chat continues with them next time. */
#include "chat/chat_start.h"

#include <stdlib.h>

#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "run/drafter.h"

enum { SYSTEM_BYTES_MAX = 64 << 20 };

spry_status spry_chat_past_init(spry_chat_past *past, spry_error *error)
{
    *past = (spry_chat_past){0};
    return spry_conversation_init(&past->conversation, error);
}

void spry_chat_past_deinit(spry_chat_past *past)
{
    spry_chat_deinit(&past->chat);
    spry_conversation_deinit(&past->conversation);
}

static spry_status set_system(spry_conversation *conversation, const char *text, spry_error *error)
{
    spry_buffer system;
    spry_buffer_init(&system, SYSTEM_BYTES_MAX);
    spry_status status = spry_input_clean(&system, spry_view_of(text), "the system message", error);
    if (status == SPRY_OK)
        status = spry_conversation_set_system(conversation, spry_buffer_view(&system), error);
    spry_buffer_deinit(&system);
    return status;
}

static spry_status describe(spry_chat *chat, const spry_model_source *source, const spry_chat_flags *flags,
                            spry_error *error)
{
    char *whole = source->data ? NULL : realpath(source->path, NULL);
    char *settings = spry_chat_settings_save(flags);
    const char *path = source->data ? SPRY_CHAT_BUNDLED : whole ? whole : source->path;
    bool set = settings && spry_chat_set(&chat->settings, spry_view_of(settings)) &&
               spry_chat_set(&chat->model, spry_view_of(source->name)) &&
               spry_chat_set(&chat->model_path, spry_view_of(path));
    free(whole);
    free(settings);
    return set ? SPRY_OK : spry_fail(error, SPRY_ERR_MEMORY, "not enough memory for the chat's record");
}

spry_status spry_chat_start_with(int *code, spry_chat_past *past, const char *model, spry_chat_flags *flags,
                                 int (*run)(const spry_chat_job *job, void *user), void *user, spry_error *error)
{
    spry_engine *engine = NULL;
    spry_session *session = NULL;
    spry_model_source source = {0};
    spry_drafter_model drafter = {0};
    spry_status status = SPRY_OK;
    if (flags->system)
        status = set_system(&past->conversation, flags->system, error);
    if (status == SPRY_OK)
        status = spry_open_model(&engine, &source, model, &flags->model, &flags->engine, error);
    if (status == SPRY_OK)
        status =
            spry_drafter_open(&drafter, engine, &source, flags->answer.draft, &flags->model, &flags->engine, error);
    if (status == SPRY_OK)
        status = spry_session_create(&session, engine, error);
    if (status == SPRY_OK)
        status = describe(&past->chat, &source, flags, error);
    if (status == SPRY_OK) {
        spry_chat_saver saver;
        spry_chat_saver_init(&saver, flags, &past->chat);
        spry_interrupt_install(session, false);
        *code =
            run(&(spry_chat_job){engine, session, source.name, flags, &saver, &past->conversation, drafter.how}, user);
        spry_interrupt_remove();
        spry_chat_saver_deinit(&saver);
    }
    spry_session_destroy(session);
    spry_engine_close(engine);
    spry_drafter_close(&drafter);
    spry_model_source_deinit(&source);
    return status;
}

static int run_chat(const spry_chat_job *job, void *user)
{
    (void)user;
    return spry_chat_run(job);
}

spry_status spry_chat_start(int *code, spry_chat_past *past, const char *model, spry_chat_flags *flags,
                            spry_error *error)
{
    return spry_chat_start_with(code, past, model, flags, run_chat, NULL, error);
}
