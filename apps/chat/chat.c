/* The interactive chat, and everything it opens: model, session, drafter and the store of chats. */
#include "chat/chat.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "chat/chats.h"
#include "cli/interrupt.h"
#include "cli/line_editor.h"
#include "cli/terminal.h"
#include "platform/directory.h"
#include "platform/file.h"
#include "run/answer.h"
#include "run/drafter.h"

enum { PATH_BYTES = 4096, TITLE_BYTES = 4 * SPRY_CHAT_TITLE_MAX };

static void complain_once(spry_chat_saver *saver, const char *reason)
{
    if (!saver->complained)
        spry_complain("this chat is not stored: %s", reason);
    saver->complained = true;
}

static void stop_saving(spry_chat_saver *saver)
{
    spry_chat_store_close(saver->store);
    saver->store = NULL;
}

/* The user's default folder is created if missing; a folder named by the user is not. */
static spry_status open_store(spry_chat_saver *saver, const spry_chat_flags *flags, spry_error *error)
{
    spry_directory folder = {-1};
    spry_buffer path;
    spry_buffer_init(&path, PATH_BYTES);
    spry_status status = SPRY_OK;
    if (!flags->chats) {
        spry_path_user_data(&path, "");
        status = path.size ? spry_directory_open(&folder, path.data, error)
                           : spry_fail(error, SPRY_ERR_FILE, "HOME is not set; give a file with --chats FILE");
        spry_directory_close(&folder);
    }
    spry_chat_flags_path(&path, flags);
    if (status == SPRY_OK)
        status = spry_chat_store_open(&saver->store, spry_buffer_view(&path).data, true, error);
    spry_buffer_deinit(&path);
    return status;
}

/* Opens the store chosen by the flags, unless storing is off. Takes ownership of the strings of `chat`: a record to
 * continue, or with id 0 a new record without title. */
static void chat_saver_init(spry_chat_saver *saver, const spry_chat_flags *flags, spry_chat *chat)
{
    spry_error error;
    *saver = (spry_chat_saver){.file = flags->chats, .chat = *chat, .kept = chat->turns, .last_id = chat->id};
    *chat = (spry_chat){0};
    if (flags->save && open_store(saver, flags, &error) != SPRY_OK)
        complain_once(saver, error.message);
}

static void chat_saver_deinit(spry_chat_saver *saver)
{
    stop_saving(saver);
    spry_chat_deinit(&saver->chat);
}

static bool give_title(spry_chat_saver *saver, const spry_conversation *conversation)
{
    spry_buffer title;
    spry_buffer_init(&title, TITLE_BYTES);
    if (conversation->count)
        spry_chat_make_title(&title, spry_view_of(conversation->slots[1].content));
    bool given = spry_chat_set(&saver->chat.title, spry_buffer_view(&title));
    spry_buffer_deinit(&title);
    return given;
}

/* The chat was also continued elsewhere: this one becomes a new chat. */
static void fork_chat(spry_chat_saver *saver)
{
    spry_complain("chat %" PRId64 " was changed by another process; this chat continues as a new one", saver->chat.id);
    saver->chat.id = 0;
    saver->kept = 0;
}

void spry_chat_saver_save(spry_chat_saver *saver, const spry_conversation *conversation)
{
    spry_error error;
    spry_chat_saved saved = SPRY_CHAT_SAVED;
    if (!saver->store)
        return;
    if (!saver->chat.title && !give_title(saver, conversation)) {
        complain_once(saver, "not enough memory");
        return;
    }
    do {
        if (saved == SPRY_CHAT_CHANGED)
            fork_chat(saver);
        if (spry_chat_store_save(saver->store, &saved, &saver->chat, conversation, saver->kept, &error) != SPRY_OK) {
            complain_once(saver, error.message);
            return;
        }
    } while (saved == SPRY_CHAT_CHANGED);
    if (saved == SPRY_CHAT_GONE) {
        complain_once(saver, "it was deleted by another process");
        stop_saving(saver);
        saver->last_id = 0;
        return;
    }
    saver->kept = conversation->count;
    saver->last_id = saver->chat.id;
}

/* Call after another change of a chat; has no effect when it is not stored yet. */
static void chat_saver_update(spry_chat_saver *saver, const spry_conversation *conversation)
{
    if (saver->chat.id)
        spry_chat_saver_save(saver, conversation);
}

/* The conversation was replaced: the record stays, and the next answer begins a new one. */
static void chat_saver_restart(spry_chat_saver *saver)
{
    saver->chat.id = 0;
    free(saver->chat.title);
    saver->chat.title = NULL;
    saver->kept = 0;
}

/* False: memory is short. */
static bool chat_saver_title(spry_chat_saver *saver, const spry_conversation *conversation, const char *title)
{
    spry_buffer line;
    spry_buffer_init(&line, TITLE_BYTES);
    spry_chat_make_title(&line, spry_view_of(title));
    bool set = line.size && spry_chat_set(&saver->chat.title, spry_buffer_view(&line));
    spry_buffer_deinit(&line);
    if (set)
        chat_saver_update(saver, conversation);
    return set;
}

/* Deletes the record and stops storing. True when there was one and it was deleted. */
static bool chat_saver_forget(spry_chat_saver *saver)
{
    spry_error error;
    size_t deleted = 0;
    if (saver->store && saver->chat.id) {
        spry_status status = spry_chat_store_delete(saver->store, &deleted, &saver->chat.id, 1, &error);
        if (status != SPRY_OK) {
            spry_complain("%s", error.message);
            if (status != SPRY_ERR_INPUT)
                return false; /* not deleted: a later /forget may succeed */
        }
    }
    stop_saving(saver);
    saver->last_id = 0;
    return deleted != 0;
}

/* ---- the chat ---------------------------------------------------------------------------------------------------- */

/* The chat. One session is used throughout: every message passes the whole conversation, and the session computes only
 * the part it does not hold yet. Ctrl-C ends an answer; the partial answer stays in the conversation. */

enum { MESSAGE_BYTES_MAX = 16 << 20, CHAT_PATH_BYTES = 4096 };

typedef struct chat_loop {
    const spry_chat_job *job;
    spry_conversation *conversation;
    spry_line_editor *editor;
    spry_tokens ids; /* of the last prompt */
    spry_answer answer;
    spry_constraint constraint; /* of every answer */
    spry_buffer shape;          /* its text */
    uint64_t seed;              /* of the last answer */
    size_t n_answers;
    size_t n_before;    /* answers in earlier sessions, so that the sequence of seeds continues */
    spry_energy *meter; /* NULL: not measured */
    bool leave;
} chat_loop;

/* ---- answering --------------------------------------------------------------------------------------------------- */

/* A tab or newline in the answer belongs to the model; the terminal's cursor returns to a new line in any case. */
static void end_line(const spry_answer *answer)
{
    if (!spry_view_ends(spry_buffer_view(&answer->text), SPRY_VIEW("\n")))
        spry_out_write("\n", 1);
    spry_out_flush();
}

static spry_status answer_conversation(chat_loop *c, spry_error *error)
{
    size_t count;
    const spry_message *messages = spry_conversation_messages(c->conversation, &count);
    spry_answer_begin(&c->answer, c->job->engine, c->meter);
    spry_status status = spry_answer_chat_ids(&c->answer, &c->ids, c->job->engine, messages, count, error);
    if (status != SPRY_OK)
        return status;
    c->seed = c->job->flags->answer.sampling.seed + c->n_before + c->n_answers;
    spry_answer_job job = {.engine = c->job->engine,
                           .session = c->job->session,
                           .prompt = &c->ids,
                           .flags = &c->job->flags->answer,
                           .speculation = c->job->speculation,
                           .constraint = c->constraint,
                           .constraint_text = c->shape.data,
                           .seed = c->seed,
                           .rated = c->job->flags->stats,
                           .stream = true};
    status = spry_answer_generate(&c->answer, &job, error);
    spry_interrupt_clear();
    if (status != SPRY_OK)
        return status;
    end_line(&c->answer);
    if (c->answer.result.finish == SPRY_FINISH_CANCELLED && c->answer.text.size == 0)
        return spry_fail(error, SPRY_ERR_CANCELLED, "interrupted before the answer began; the message was removed");
    c->n_answers++;
    return spry_conversation_add(c->conversation, "assistant", spry_buffer_view(&c->answer.text), error);
}

/* A message that cannot be answered is removed, so that the conversation is as before. */
static void say(chat_loop *c, spry_view text)
{
    spry_error error;
    spry_status status = spry_conversation_add(c->conversation, "user", text, &error);
    if (status == SPRY_OK) {
        status = answer_conversation(c, &error);
        if (status != SPRY_OK)
            spry_conversation_drop_last(c->conversation);
    }
    if (status == SPRY_ERR_CONTEXT)
        spry_complain("%s; the message was removed, /clear starts a new conversation", error.message);
    else if (status != SPRY_OK)
        spry_complain("%s", error.message);
    else
        spry_answer_warn_context(&c->answer, c->job->engine, "/clear starts a new conversation");
    if (status == SPRY_OK && c->job->flags->stats)
        spry_answer_print_stats(&c->answer, c->job->engine, c->job->model, c->seed);
    if (status == SPRY_OK)
        spry_chat_saver_save(c->job->saver, c->conversation);
}

/* ---- commands ---------------------------------------------------------------------------------------------------- */

static void note(const char *sentence)
{
    spry_out_format("%s%s%s\n", spry_style_begin(stdout, SPRY_STYLE_DIM), sentence, spry_style_end(stdout));
    spry_out_flush();
}

static void report(const spry_error *error)
{
    spry_complain("%s", error->message);
}

static void do_clear(chat_loop *c, const char *argument)
{
    (void)argument;
    spry_conversation_clear(c->conversation);
    chat_saver_restart(c->job->saver);
    note("The conversation is empty.");
}

static void do_system(chat_loop *c, const char *argument)
{
    spry_error error;
    if (spry_conversation_set_system(c->conversation, spry_view_of(argument), &error) != SPRY_OK)
        report(&error);
    else
        note(argument[0] ? "The system message is set." : "The system message is removed.");
    chat_saver_update(c->job->saver, c->conversation);
}

static void do_save(chat_loop *c, const char *argument)
{
    spry_error error;
    if (!argument[0])
        spry_complain("/save needs the name of a file");
    else if (spry_conversation_save(c->conversation, c->job->model, argument, &error) != SPRY_OK)
        report(&error);
    else
        note("Saved.");
}

static void do_load(chat_loop *c, const char *argument)
{
    spry_error error;
    if (!argument[0]) {
        spry_complain("/load needs the name of a file");
    } else if (spry_conversation_load(c->conversation, argument, &error) != SPRY_OK) {
        report(&error);
    } else {
        char sentence[64];
        chat_saver_restart(c->job->saver);
        snprintf(sentence, sizeof sentence, "Loaded: %zu turns.", c->conversation->count);
        note(sentence);
    }
}

static void do_title(chat_loop *c, const char *argument)
{
    if (!c->job->saver->store)
        note("This chat is not stored.");
    else if (chat_saver_title(c->job->saver, c->conversation, argument))
        note("The title is set.");
    else
        spry_complain("/title needs a title");
}

static void do_forget(chat_loop *c, const char *argument)
{
    (void)argument;
    if (chat_saver_forget(c->job->saver))
        note("The stored chat is deleted; the rest of this chat is not stored.");
    else if (!c->job->saver->store)
        note("This chat is not stored.");
}

static void do_stats(chat_loop *c, const char *argument)
{
    (void)argument;
    if (c->n_answers)
        spry_answer_print_stats(&c->answer, c->job->engine, c->job->model, c->seed);
    else
        note("There is no answer yet.");
}

static void do_quit(chat_loop *c, const char *argument)
{
    (void)argument;
    c->leave = true;
}

static void do_help(chat_loop *c, const char *argument);

static const struct chat_command {
    const char *name, *arguments, *help;
    void (*run)(chat_loop *c, const char *argument);
} chat_commands[] = {
    {"help", "", "Show this help", do_help},
    {"clear", "", "Clear the conversation, keep the system message", do_clear},
    {"system", " TEXT", "Set the system message; without TEXT remove it", do_system},
    {"save", " FILE", "Write the conversation to a JSON file", do_save},
    {"load", " FILE", "Continue a saved conversation", do_load},
    {"title", " TEXT", "Name the chat in the list of stored chats", do_title},
    {"forget", "", "Delete the stored chat and stop storing it", do_forget},
    {"stats", "", "Show time and memory use of the last answer", do_stats},
    {"quit", "", "Leave; Ctrl-D does too", do_quit},
};

static void do_help(chat_loop *c, const char *argument)
{
    (void)c;
    (void)argument;
    for (size_t i = 0; i < SPRY_COUNT(chat_commands); i++) {
        char left[32];
        snprintf(left, sizeof left, "/%s%s", chat_commands[i].name, chat_commands[i].arguments);
        spry_out_format("  %-14s %s\n", left, chat_commands[i].help);
    }
    spry_out_format("A line that ends in a backslash continues on the next. Ctrl-C ends an answer or clears the "
                    "line.\n"
                    "The arrow keys edit the line and recall earlier lines; Ctrl-R searches them.\n");
    spry_out_flush();
}

static void complain_unknown(spry_view name)
{
    spry_option names[SPRY_COUNT(chat_commands)];
    memset(names, 0, sizeof names);
    for (size_t i = 0; i < SPRY_COUNT(chat_commands); i++)
        names[i].name = chat_commands[i].name;
    const spry_option_table table = {names, SPRY_COUNT(names), NULL};
    const char *near = spry_options_nearest(&table, 1, name);
    if (near)
        spry_complain("there is no /%.*s; did you mean /%s?", SPRY_VIEW_ARG(name), near);
    else
        spry_complain("there is no /%.*s; /help lists the commands", SPRY_VIEW_ARG(name));
}

/* `line` starts after the slash. The argument is the rest without surrounding spaces. */
static void command(chat_loop *c, char *line)
{
    spry_view name = {line, strcspn(line, " \t\n")};
    char *argument = line + name.size;
    argument += strspn(argument, " \t\n");
    for (size_t end = strlen(argument); end && strchr(" \t\n", argument[end - 1]); end--)
        argument[end - 1] = 0;
    for (size_t i = 0; i < SPRY_COUNT(chat_commands); i++) {
        if (spry_view_is(name, chat_commands[i].name)) {
            chat_commands[i].run(c, argument);
            return;
        }
    }
    complain_unknown(name);
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

static bool is_blank(const char *text)
{
    return text[strspn(text, " \t\r\n")] == 0;
}

static void converse(chat_loop *c)
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
        else if (line.data[0] == '/')
            command(c, line.data + 1);
        else
            say(c, spry_buffer_view(&line));
    }
    spry_buffer_deinit(&line);
}

static void greet(const chat_loop *c)
{
    const spry_chat_job *job = c->job;
    const spry_chat *record = &job->saver->chat;
    spry_engine_info info;
    spry_engine_describe(job->engine, &info);
    spry_out_format("%s%s%s, %zu tokens of context. /help lists commands, Ctrl-D leaves.\n",
                    spry_style_begin(stdout, SPRY_STYLE_BOLD), job->model, spry_style_end(stdout), info.context);
    if (record->id && c->conversation->count) {
        char sentence[128];
        snprintf(sentence, sizeof sentence, "Chat %" PRId64 ", %zu turns so far. The last:", record->id,
                 c->conversation->count);
        note(sentence);
        spry_chat_text_print(c->conversation, c->conversation->count < 2 ? 0 : c->conversation->count - 2);
    }
    spry_out_flush();
}

static void say_goodbye(const chat_loop *c)
{
    const spry_chat_saver *saver = c->job->saver;
    if (!saver->store || !saver->last_id)
        return;
    if (saver->chat.id && saver->kept < c->conversation->count)
        spry_complain("the last %zu turns of chat %" PRId64 " are not stored", c->conversation->count - saver->kept,
                      saver->chat.id);
    spry_out_format("%ssaved as chat %" PRId64 "; continue with: spry chats resume %" PRId64 "%s%s%s\n",
                    spry_style_begin(stdout, SPRY_STYLE_DIM), saver->last_id, saver->last_id,
                    saver->file ? " --chats " : "", saver->file ? saver->file : "", spry_style_end(stdout));
}

static size_t count_answers(const spry_conversation *conversation)
{
    size_t count = 0;
    for (size_t i = 1; i <= conversation->count; i++)
        count += strcmp(conversation->slots[i].role, "assistant") == 0;
    return count;
}

/* Runs until the user leaves; returns the program's exit code. */
static int chat_run(const spry_chat_job *job)
{
    chat_loop c = {.job = job, .conversation = job->conversation, .n_before = count_answers(job->conversation)};
    spry_error error;
    spry_buffer history;
    spry_buffer_init(&history, CHAT_PATH_BYTES);
    if (job->flags->history)
        spry_path_user_data(&history, "history");
    spry_answer_init(&c.answer);
    spry_buffer_init(&c.shape, MESSAGE_BYTES_MAX);
    spry_status status = spry_answer_shape(&c.constraint, &c.shape, &job->flags->answer, &error);
    if (status == SPRY_OK)
        status = spry_line_editor_create(&c.editor, history.size ? history.data : NULL, &error);
    if (status == SPRY_OK && job->flags->stats)
        status = spry_energy_open(&c.meter, "", &error);
    if (status == SPRY_OK) {
        greet(&c);
        converse(&c);
        say_goodbye(&c);
    }
    spry_energy_close(c.meter);
    spry_line_editor_destroy(c.editor);
    spry_answer_deinit(&c.answer);
    spry_tokens_deinit(&c.ids);
    spry_buffer_deinit(&c.shape);
    spry_buffer_deinit(&history);
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
        chat_saver_init(&saver, flags, &past->chat);
        spry_interrupt_install(session, false);
        *code =
            run(&(spry_chat_job){engine, session, source.name, flags, &saver, &past->conversation, drafter.how}, user);
        spry_interrupt_remove();
        chat_saver_deinit(&saver);
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
    return chat_run(job);
}

spry_status spry_chat_start(int *code, spry_chat_past *past, const char *model, spry_chat_flags *flags,
                            spry_error *error)
{
    return spry_chat_start_with(code, past, model, flags, run_chat, NULL, error);
}
