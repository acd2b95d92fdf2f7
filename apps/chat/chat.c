/* The interactive chat, and everything it opens: model, session, drafter and the store of chats. */
#include "chat/chat.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "chat/chat_loop.h"
#include "chat/chats.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "platform/file.h"

enum { MESSAGE_BYTES_MAX = 16 << 20, PATH_BYTES = 4096, NOTE_BYTES = 1024 };

void spry_chat_note(const char *format, ...)
{
    char text[NOTE_BYTES];
    spry_buffer lines;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    spry_buffer_init(&lines, 4 * NOTE_BYTES);
    spry_text_wrap(&lines, spry_view_of(text), 0, spry_terminal_width(stdout));
    spry_out_format("%s", spry_style_begin(stdout, SPRY_STYLE_DIM));
    spry_out_quote("%s", spry_buffer_view(&lines).data);
    spry_out_format("%s", spry_style_end(stdout));
    spry_out_flush();
    spry_buffer_deinit(&lines);
}

/* ---- the prompt -------------------------------------------------------------------------------------------------- */

/* The ids of the conversation without its first `n_left_out` turns. */
static spry_status make_ids(spry_chat_loop *c, spry_error *error)
{
    size_t count;
    const spry_message *all = spry_conversation_messages(c->conversation, &count);
    size_t n_system = c->conversation->has_system ? 1 : 0, kept = count - c->n_left_out;
    spry_message *messages = malloc((kept + 1) * sizeof *messages);
    if (!messages)
        return spry_fail_memory(error, "the conversation", kept * sizeof *messages);
    memcpy(messages, all, n_system * sizeof *messages);
    memcpy(messages + n_system, all + n_system + c->n_left_out, (kept - n_system) * sizeof *messages);
    spry_status status =
        spry_answer_chat_ids(&c->answer, &c->ids, c->job.engine, &c->job.flags->answer, messages, kept, error);
    free(messages);
    return status;
}

/* Leaves out the oldest turns when the context is full: so many that there is room for some more messages, because
 * what follows them is computed again. */
static spry_status make_prompt(spry_chat_loop *c, spry_error *error)
{
    spry_engine_info info;
    spry_engine_describe(c->job.engine, &info);
    const spry_message *turns = c->conversation->slots + 1;
    size_t before = c->n_left_out, limit = info.context - info.context / 8;
    spry_status status = make_ids(c, error);
    while (status == SPRY_OK && c->ids.count > limit && c->n_left_out + 1 < c->conversation->count) {
        limit = info.context / 2;
        do
            c->n_left_out++;
        while (c->n_left_out + 1 < c->conversation->count && strcmp(turns[c->n_left_out].role, "user") != 0);
        status = make_ids(c, error);
    }
    if (status == SPRY_OK && c->n_left_out > before)
        spry_chat_note("The context is full: the model no longer sees the first %zu turns.", c->n_left_out);
    if (status == SPRY_OK && c->ids.count >= info.context)
        status = spry_fail(error, SPRY_ERR_CONTEXT,
                           "the message and what belongs to it are %zu tokens, but the context holds %zu", c->ids.count,
                           info.context);
    return status;
}

/* ---- answering --------------------------------------------------------------------------------------------------- */

/* A tab or newline in the answer belongs to the model; the terminal's cursor returns to a new line in any case. */
static void end_line(const spry_answer *answer)
{
    if (!spry_view_ends(spry_buffer_view(&answer->text), SPRY_VIEW("\n")))
        spry_out_write("\n", 1);
    spry_out_flush();
}

static spry_status generate(spry_chat_loop *c, spry_error *error)
{
    const spry_chat_flags *flags = c->job.flags;
    spry_status status = SPRY_OK;
    if (flags->stats && !c->meter)
        status = spry_energy_open(&c->meter, "", error);
    spry_answer_begin(&c->answer, c->job.engine, c->meter);
    if (status == SPRY_OK)
        status = make_prompt(c, error);
    if (status != SPRY_OK)
        return status;
    c->seed = flags->answer.sampling.seed + c->n_before + c->n_answers;
    spry_answer_job job = {.engine = c->job.engine,
                           .session = c->job.session,
                           .prompt = &c->ids,
                           .flags = &flags->answer,
                           .speculation = c->job.drafter.how,
                           .constraint = c->constraint,
                           .constraint_text = c->shape.data,
                           .seed = c->seed,
                           .rated = flags->stats,
                           .chat = true,
                           .slides = true,
                           .stream = true};
    status = spry_answer_generate(&c->answer, &job, error);
    spry_interrupt_clear();
    if (status == SPRY_OK)
        end_line(&c->answer);
    return status;
}

static spry_status answer_conversation(spry_chat_loop *c, spry_error *error)
{
    size_t round = 0;
    spry_status status;
    json_array_clear(c->answer.more);
    do
        status = generate(c, error);
    while (status == SPRY_OK && spry_chat_tools_call(c, round++));
    if (status != SPRY_OK)
        return status;
    if (c->answer.result.finish == SPRY_FINISH_CANCELLED && c->answer.text.size == 0)
        return spry_fail(error, SPRY_ERR_CANCELLED, "interrupted before the answer began; the message was removed");
    c->n_answers++;
    return spry_conversation_add(c->conversation, "assistant", spry_buffer_view(&c->answer.text), error);
}

/* Answers the last turn. What fails is reported. */
static bool answer(spry_chat_loop *c)
{
    spry_error error;
    spry_status status = answer_conversation(c, &error);
    if (status == SPRY_ERR_CONTEXT)
        spry_complain("%s; Up brings it back to be shortened, --context gives a larger context", error.message);
    else if (status != SPRY_OK)
        spry_complain("%s", error.message);
    if (status != SPRY_OK)
        return false;
    if (c->job.flags->stats)
        spry_answer_print_stats(&c->answer, c->job.engine, c->job.source.name, c->seed);
    spry_chat_saver_save(c->job.saver, c->conversation);
    return true;
}

/* A message that cannot be answered is removed, so that the conversation is as before. */
void spry_chat_say(spry_chat_loop *c, spry_view text)
{
    spry_error error;
    spry_buffer message;
    size_t left_out = c->n_left_out;
    spry_buffer_init(&message, 2 * (size_t)MESSAGE_BYTES_MAX);
    if (!spry_chat_pictures_message(c, &message, text)) {
        spry_buffer_deinit(&message);
        return;
    }
    if (spry_conversation_add(c->conversation, "user", spry_buffer_view(&message), &error) != SPRY_OK) {
        spry_complain("%s", error.message);
    } else if (answer(c)) {
        spry_chat_pictures_drop(c);
    } else {
        spry_conversation_drop_last(c->conversation);
        c->n_left_out = left_out;
    }
    spry_buffer_deinit(&message);
}

void spry_chat_retry(spry_chat_loop *c)
{
    spry_error error;
    const spry_message *last = &c->conversation->slots[c->conversation->count];
    char *before = c->conversation->count && strcmp(last->role, "assistant") == 0 ? strdup(last->content) : NULL;
    if (!before) {
        spry_chat_note("There is no answer yet.");
        return;
    }
    spry_conversation_drop_last(c->conversation);
    spry_chat_saver_cut(c->job.saver, c->conversation->count);
    if (!answer(c) && spry_conversation_add(c->conversation, "assistant", spry_view_of(before), &error) != SPRY_OK)
        spry_complain("%s", error.message);
    free(before);
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

static bool is_blank(const char *text)
{
    return text[strspn(text, " \t\r\n")] == 0;
}

/* A path is a message; the name of a command has no second slash. */
static bool is_command(const char *line)
{
    return line[0] == '/' && !memchr(line + 1, '/', strcspn(line + 1, " \t\n"));
}

static void converse(spry_chat_loop *c)
{
    spry_buffer line;
    spry_buffer_init(&line, MESSAGE_BYTES_MAX);
    while (!c->leave && spry_out_flush()) {
        spry_line kind = spry_line_editor_read(c->editor, &line);
        if (kind == SPRY_LINE_END || kind == SPRY_LINE_INTERRUPTED)
            spry_out_write("\n", 1);
        if (kind == SPRY_LINE_END)
            break;
        if (kind == SPRY_LINE_INTERRUPTED || !line.data || is_blank(line.data))
            continue;
        if (line.failed)
            spry_complain("the message is longer than %d bytes or memory is short", MESSAGE_BYTES_MAX);
        else if (is_command(line.data))
            spry_chat_command(c, line.data + 1);
        else
            spry_chat_say(c, spry_buffer_view(&line));
    }
    spry_buffer_deinit(&line);
}

static void greet(const spry_chat_loop *c)
{
    const spry_chat *record = &c->job.saver->chat;
    char rest[128];
    spry_engine_info info;
    spry_buffer lines;
    spry_engine_describe(c->job.engine, &info);
    snprintf(rest, sizeof rest, ", %zu tokens of context. /help lists commands, Ctrl-D leaves.", info.context);
    spry_buffer_init(&lines, NOTE_BYTES);
    spry_buffer_text(&lines, c->job.source.name);
    spry_buffer_text(&lines, rest);
    spry_buffer page;
    spry_buffer_init(&page, 4 * NOTE_BYTES);
    spry_text_wrap(&page, spry_buffer_view(&lines), 0, spry_terminal_width(stdout));
    spry_out_quote("%s", spry_buffer_view(&page).data);
    spry_buffer_deinit(&lines);
    spry_buffer_deinit(&page);
    if (record->id && c->conversation->count) {
        spry_chat_note("Chat %" PRId64 ", %zu turns so far. The last:", record->id, c->conversation->count);
        spry_chat_text_print(c->conversation, c->conversation->count < 2 ? 0 : c->conversation->count - 2);
    }
    spry_out_flush();
}

static void say_goodbye(const spry_chat_loop *c)
{
    const spry_chat_saver *saver = c->job.saver;
    if (!saver->store || !saver->last_id)
        return;
    if (saver->chat.id && saver->kept < c->conversation->count)
        spry_complain("the last %zu turns of chat %" PRId64 " are not stored", c->conversation->count - saver->kept,
                      saver->chat.id);
    spry_chat_note("saved as chat %" PRId64 "; continue with: spry chats resume %" PRId64 "%s%s", saver->last_id,
                   saver->last_id, saver->file ? " --chats " : "", saver->file ? saver->file : "");
}

static size_t count_answers(const spry_conversation *conversation)
{
    size_t count = 0;
    for (size_t i = 1; i <= conversation->count; i++)
        count += strcmp(conversation->slots[i].role, "assistant") == 0;
    return count;
}

/* Runs until the user leaves; returns the program's exit code. */
static int run_chat(spry_chat_job *job, void *user)
{
    (void)user;
    spry_chat_loop c = {.job = *job, .conversation = job->conversation, .n_before = count_answers(job->conversation)};
    spry_error error;
    spry_buffer history;
    spry_buffer_init(&history, PATH_BYTES);
    if (job->flags->history)
        spry_path_user_data(&history, "history");
    spry_answer_init(&c.answer);
    spry_buffer_init(&c.shape, MESSAGE_BYTES_MAX);
    spry_buffer_init(&c.pictures, MESSAGE_BYTES_MAX);
    spry_arena_init(&c.texts);
    const spry_line_editor_options options = {
        .history_path = history.size ? history.data : NULL, .complete = spry_chat_complete, .user = &c};
    spry_status status = spry_answer_shape(&c.constraint, &c.shape, &job->flags->answer, &error);
    if (status == SPRY_OK)
        status = spry_chat_tools_open(&c, &error);
    if (status == SPRY_OK)
        status = spry_line_editor_create(&c.editor, &options, &error);
    if (status == SPRY_OK) {
        greet(&c);
        converse(&c);
        say_goodbye(&c);
    }
    *job = c.job;
    spry_energy_close(c.meter);
    spry_line_editor_destroy(c.editor);
    spry_chat_tools_close(&c);
    spry_answer_deinit(&c.answer);
    spry_tokens_deinit(&c.ids);
    spry_buffer_deinit(&c.shape);
    spry_buffer_deinit(&c.pictures);
    spry_buffer_deinit(&history);
    spry_arena_deinit(&c.texts);
    return status == SPRY_OK ? SPRY_EXIT_OK : spry_complain_error(&error);
}

/* ---- from flags to a chat ---------------------------------------------------------------------------------------- */

/* The record gets the current model and settings, so that the chat continues with them next time. */

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

spry_status spry_chat_open_model(spry_chat_job *job, spry_chat *record, const char *model, spry_error *error)
{
    spry_chat_flags *flags = job->flags;
    flags->engine.options.draft_head = spry_draft_head_of(flags->answer.draft);
    spry_status status = spry_open_model(&job->engine, &job->source, model, &flags->model, &flags->engine, error);
    if (status == SPRY_OK)
        status = spry_drafter_open(&job->drafter, job->engine, &job->source, flags->answer.draft, &flags->model,
                                   &flags->engine, error);
    if (status == SPRY_OK)
        status = spry_session_create(&job->session, job->engine, error);
    if (status == SPRY_OK)
        status = describe(record, &job->source, flags, error);
    if (status == SPRY_OK)
        spry_interrupt_install(job->session, false);
    else
        spry_chat_close_model(job);
    return status;
}

void spry_chat_close_model(spry_chat_job *job)
{
    spry_interrupt_install(NULL, false);
    spry_session_destroy(job->session);
    spry_engine_close(job->engine);
    spry_drafter_close(&job->drafter);
    spry_model_source_deinit(&job->source);
    job->session = NULL;
    job->engine = NULL;
    job->drafter = (spry_drafter_model){0};
}

spry_status spry_chat_start_with(int *code, spry_chat_past *past, const char *model, spry_chat_flags *flags,
                                 int (*run)(spry_chat_job *job, void *user), void *user, spry_error *error)
{
    spry_chat_saver saver;
    spry_chat_job job = {.flags = flags, .saver = &saver, .conversation = &past->conversation};
    spry_status status = SPRY_OK;
    if (flags->system)
        status = set_system(&past->conversation, flags->system, error);
    if (status == SPRY_OK)
        status = spry_chat_open_model(&job, &past->chat, model, error);
    if (status != SPRY_OK)
        return status;
    spry_chat_saver_init(&saver, flags, &past->chat);
    *code = run(&job, user);
    spry_chat_close_model(&job);
    spry_interrupt_remove();
    spry_chat_saver_deinit(&saver);
    return SPRY_OK;
}

spry_status spry_chat_start(int *code, spry_chat_past *past, const char *model, spry_chat_flags *flags,
                            spry_error *error)
{
    return spry_chat_start_with(code, past, model, flags, run_chat, NULL, error);
}
