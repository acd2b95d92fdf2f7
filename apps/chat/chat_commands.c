/* Commands of the chat, and what the Tab key completes. */
#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "base/utf8.h"
#include "chat/chat_loop.h"
#include "chat/chats.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "cli/usage.h"
#include "platform/file.h"

static void report(const spry_error *error)
{
    spry_complain("%s", error->message);
}

/* ---- pages ------------------------------------------------------------------------------------------------------- */

enum { PAGE_BYTES = 1 << 16 };

/* A name and its meaning in two columns, or below each other where lines are short. */
static void add_row(spry_buffer *page, const char *name, const char *meaning)
{
    enum { INDENT = 20, BELOW = 4 };
    size_t width = spry_usage_style().width;
    bool beside = width >= 2 * INDENT;
    spry_buffer_format(page, beside ? "  %-18s" : "  %s\n    ", name);
    spry_text_wrap(page, spry_view_of(meaning), beside ? INDENT : BELOW, width);
}

static void print_page(spry_buffer *page)
{
    spry_buffer safe;
    spry_buffer_init(&safe, 4 * PAGE_BYTES);
    spry_terminal_defuse(&safe, spry_buffer_view(page), "\n");
    spry_out_write(spry_buffer_view(&safe).data, safe.size);
    spry_out_flush();
    spry_buffer_deinit(&safe);
    spry_buffer_deinit(page);
}

/* ---- the conversation -------------------------------------------------------------------------------------------- */

static void do_clear(spry_chat_loop *c, const char *argument)
{
    (void)argument;
    spry_conversation_clear(c->conversation);
    spry_chat_saver_restart(c->job.saver);
    spry_chat_pictures_drop(c);
    c->n_left_out = 0;
    spry_chat_note("The conversation is empty.");
}

static void do_system(spry_chat_loop *c, const char *argument)
{
    spry_error error;
    if (spry_conversation_set_system(c->conversation, spry_view_of(argument), &error) != SPRY_OK)
        report(&error);
    else
        spry_chat_note(argument[0] ? "The system message is set." : "The system message is removed.");
    spry_chat_saver_update(c->job.saver, c->conversation);
}

static void do_retry(spry_chat_loop *c, const char *argument)
{
    (void)argument;
    spry_chat_retry(c);
}

static void do_undo(spry_chat_loop *c, const char *argument)
{
    (void)argument;
    spry_conversation *conversation = c->conversation;
    if (!conversation->count) {
        spry_chat_note("The conversation is empty.");
        return;
    }
    bool answer = strcmp(conversation->slots[conversation->count].role, "assistant") == 0;
    for (size_t i = 0; i < (answer ? 2 : 1); i++)
        spry_conversation_drop_last(conversation);
    c->n_left_out = c->n_left_out < conversation->count ? c->n_left_out : 0;
    spry_chat_saver_cut(c->job.saver, conversation->count);
    spry_chat_saver_update(c->job.saver, conversation);
    spry_chat_note("The last message is removed%s; %zu turns are left.", answer ? " with its answer" : "",
                   conversation->count);
}

static void do_save(spry_chat_loop *c, const char *argument)
{
    spry_error error;
    if (!argument[0])
        spry_complain("/save needs the name of a file");
    else if (spry_conversation_save(c->conversation, c->job.source.name, argument, &error) != SPRY_OK)
        report(&error);
    else
        spry_chat_note("Saved.");
}

static void do_load(spry_chat_loop *c, const char *argument)
{
    spry_error error;
    if (!argument[0]) {
        spry_complain("/load needs the name of a file");
    } else if (spry_conversation_load(c->conversation, argument, &error) != SPRY_OK) {
        report(&error);
    } else {
        spry_chat_saver_restart(c->job.saver);
        c->n_left_out = 0;
        spry_chat_note("Loaded: %zu turns.", c->conversation->count);
    }
}

/* ---- stored chats ------------------------------------------------------------------------------------------------ */

static bool print_stored(void *user, const spry_chat *chat)
{
    (void)user;
    spry_out_quote("  %4" PRId64 "  %s\n", chat->id, chat->title);
    return true;
}

/* Lists the chats to choose from. */
static void list_stored(const spry_chat_loop *c)
{
    enum { LISTED = 10 };
    spry_error error;
    if (spry_chat_store_list(c->job.saver->store, LISTED, print_stored, NULL, &error) != SPRY_OK)
        report(&error);
    else
        spry_chat_note("/resume NUMBER continues one of these chats; `spry chats` lists all.");
}

static void do_resume(spry_chat_loop *c, const char *argument)
{
    spry_error error;
    spry_chat_saver *saver = c->job.saver;
    spry_chat_past past;
    int64_t id = 0;
    if (!saver->store) {
        spry_chat_note("Chats are not stored here.");
        return;
    }
    if (!argument[0]) {
        list_stored(c);
        return;
    }
    if (!spry_chats_read_id(&id, argument)) {
        spry_complain("'%.100s' is not the number of a chat, nor latest", argument);
        return;
    }
    spry_status status = spry_chat_past_init(&past, &error);
    if (status == SPRY_OK && id == 0)
        status = spry_chat_store_latest(saver->store, &id, &error);
    if (status == SPRY_OK)
        status = spry_chat_store_load(saver->store, &past.chat, &past.conversation, id, &error);
    if (status == SPRY_OK) {
        const spry_conversation conversation = *c->conversation;
        const spry_chat chat = saver->chat;
        *c->conversation = past.conversation;
        saver->chat = past.chat;
        past.conversation = conversation;
        past.chat = chat;
        saver->kept = c->conversation->count;
        saver->last_id = id;
        c->n_left_out = 0;
        spry_chat_note("Chat %" PRId64 ", %zu turns so far. The last:", id, saver->kept);
        spry_chat_text_print(c->conversation, saver->kept < 2 ? 0 : saver->kept - 2);
        if (strcmp(saver->chat.model, c->job.source.name) != 0)
            spry_chat_note("It was with %s; /model changes the model.", saver->chat.model);
    } else {
        report(&error);
    }
    spry_chat_past_deinit(&past);
}

static void do_title(spry_chat_loop *c, const char *argument)
{
    if (!c->job.saver->store)
        spry_chat_note("This chat is not stored.");
    else if (spry_chat_saver_title(c->job.saver, c->conversation, argument))
        spry_chat_note("The title is set.");
    else
        spry_complain("/title needs a title");
}

static void do_forget(spry_chat_loop *c, const char *argument)
{
    (void)argument;
    if (spry_chat_saver_forget(c->job.saver))
        spry_chat_note("The stored chat is deleted; the rest of this chat is not stored.");
    else if (!c->job.saver->store)
        spry_chat_note("This chat is not stored.");
}

/* ---- settings ---------------------------------------------------------------------------------------------------- */

static const spry_option chat_settings[] = {
    SPRY_OPTION(spry_chat_flags, "stats", FLAG, stats, .help = "Print time and memory use of each answer"),
};

enum { SETTINGS_TABLES = 3 };

static void settings_tables(spry_option_table tables[SETTINGS_TABLES], spry_chat_flags *flags)
{
    spry_answer_flags_tables(tables, &flags->answer);
    tables[2] = (spry_option_table){chat_settings, SPRY_COUNT(chat_settings), flags};
}

/* The drafter is opened with the model, and the context of a chat always slides. */
static bool can_be_set(const spry_option *option)
{
    return strcmp(option->name, "draft") != 0 && strcmp(option->name, "slide") != 0;
}

static void list_settings(spry_chat_loop *c)
{
    spry_option_table tables[SETTINGS_TABLES];
    char value[64], text[SPRY_OPTION_VALUES_MAX];
    spry_buffer page;
    spry_buffer_init(&page, PAGE_BYTES);
    settings_tables(tables, c->job.flags);
    for (size_t t = 0; t < SETTINGS_TABLES; t++) {
        for (size_t i = 0; i < tables[t].count; i++) {
            const spry_option *option = &tables[t].options[i];
            spry_view about = spry_options_clause(option);
            spry_options_print(value, sizeof value, &tables[t], option);
            snprintf(text, sizeof text, "%s: %.*s", value[0] ? value : "not set", SPRY_VIEW_ARG(about));
            if (can_be_set(option))
                add_row(&page, option->name, text);
        }
    }
    print_page(&page);
    spry_chat_note("/set NAME VALUE changes a setting, /set NAME default takes it back. Engine options, such as "
                   "--context, are given when spry is started.");
}

/* Gives the setting its value, or with "default" that of a new chat. */
static spry_status set(spry_chat_loop *c, const char *name, const char *text, spry_error *error)
{
    spry_option_table tables[SETTINGS_TABLES], usual[SETTINGS_TABLES];
    spry_chat_flags defaults;
    spry_chat_flags_default(&defaults);
    settings_tables(tables, c->job.flags);
    settings_tables(usual, &defaults);
    for (size_t t = 0; t < SETTINGS_TABLES; t++) {
        const spry_option *option = spry_options_find(&tables[t], name);
        if (!option || !can_be_set(option))
            continue;
        const char *kept = spry_arena_copy(&c->texts, spry_view_of(text));
        if (!kept)
            return spry_fail_memory(error, "a setting", strlen(text));
        if (strcmp(text, "default") != 0)
            return spry_options_set(&tables[t], name, kept, error);
        if (option->kind == SPRY_OPTION_LIST)
            ((spry_option_list *)(void *)((char *)tables[t].target + option->offset))->count = 0;
        else
            memcpy((char *)tables[t].target + option->offset, (char *)usual[t].target + option->offset,
                   spry_option_bytes(option));
        return SPRY_OK;
    }
    const char *near = spry_options_nearest(tables, SETTINGS_TABLES, spry_view_of(name));
    return near ? spry_fail(error, SPRY_ERR_INPUT, "there is no setting '%.60s'; did you mean %s?", name, near)
                : spry_fail(error, SPRY_ERR_INPUT, "there is no setting '%.60s'; /set lists them", name);
}

/* Applies what depends on settings. */
static spry_status apply_settings(spry_chat_loop *c, spry_error *error)
{
    char *settings = spry_chat_settings_save(c->job.flags);
    if (settings && spry_chat_set(&c->job.saver->chat.settings, spry_view_of(settings)))
        spry_chat_saver_update(c->job.saver, c->conversation);
    free(settings);
    spry_buffer_clear(&c->shape);
    spry_status status = spry_answer_shape(&c->constraint, &c->shape, &c->job.flags->answer, error);
    return status == SPRY_OK ? spry_answer_flags_settle(&c->job.flags->answer, error) : status;
}

static void do_set(spry_chat_loop *c, const char *argument)
{
    spry_error error;
    char name[64], text[SPRY_OPTION_VALUES_MAX];
    size_t length = strcspn(argument, " \t");
    if (strncmp(argument, "parameter ", length + 1) == 0) { /* Ollama's form: /set parameter NAME VALUE */
        argument += length + strspn(argument + length, " \t");
        length = strcspn(argument, " \t");
    }
    const char *value = argument + length + strspn(argument + length, " \t");
    snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1), argument);
    spry_option_table tables[SETTINGS_TABLES];
    settings_tables(tables, c->job.flags);
    if (!length) {
        list_settings(c);
    } else if (!value[0]) {
        const spry_option *option = NULL;
        for (size_t t = 0; t < SETTINGS_TABLES && !option; t++)
            if ((option = spry_options_find(&tables[t], name)))
                spry_options_values(text, sizeof text, option);
        if (option)
            spry_complain("/set %s needs a value: %s", name, text);
        else if (set(c, name, "", &error) != SPRY_OK)
            report(&error);
    } else {
        const spry_answer_flags before = c->job.flags->answer;
        if (set(c, name, value, &error) == SPRY_OK && apply_settings(c, &error) == SPRY_OK) {
            spry_chat_note("%s is %s.", name, value);
            return;
        }
        report(&error);
        c->job.flags->answer = before; /* the list of stop strings refers to storage inside flags->answer */
        apply_settings(c, &error);
    }
}

/* ---- the model --------------------------------------------------------------------------------------------------- */

/* Memory may not hold two models, so the old one is closed first; when the new one fails it is opened again. */
static void do_model(spry_chat_loop *c, const char *argument)
{
    spry_error error, again;
    spry_chat_job *job = &c->job;
    spry_model_source found = {0};
    if (!argument[0]) {
        spry_chat_note("%s. /model NAME continues with another; `spry models` lists them.", job->source.name);
        return;
    }
    spry_line_editor_release(c->editor, true); /* a question may be asked */
    spry_status status = spry_model_source_find(&found, argument, job->flags->model.models_folder, &error);
    spry_line_editor_release(c->editor, false);
    if (status != SPRY_OK) {
        report(&error);
        return;
    }
    char *before = strdup(job->source.data ? job->source.name : job->source.path);
    spry_chat_close_model(job);
    status = spry_chat_open_model(job, &job->saver->chat, found.data ? found.name : found.path, &error);
    if (status != SPRY_OK)
        report(&error);
    if (status != SPRY_OK && (!before || spry_chat_open_model(job, &job->saver->chat, before, &again) != SPRY_OK)) {
        spry_complain("the model before cannot be opened again: %s", before ? again.message : "not enough memory");
        c->leave = true;
    } else {
        spry_engine_info info;
        spry_engine_describe(job->engine, &info);
        c->n_left_out = 0;
        spry_chat_saver_update(job->saver, c->conversation);
        spry_chat_note("%s, %zu tokens of context.", job->source.name, info.context);
    }
    spry_model_source_deinit(&found);
    free(before);
}

static void do_image(spry_chat_loop *c, const char *argument)
{
    if (argument[0]) {
        spry_chat_picture_add(c, argument);
    } else if (c->pictures.size) {
        spry_chat_pictures_drop(c);
        spry_chat_note("The next message is without pictures.");
    } else {
        spry_complain("/image needs the name of a file");
    }
}

static void do_stats(spry_chat_loop *c, const char *argument)
{
    (void)argument;
    if (c->n_answers)
        spry_answer_print_stats(&c->answer, c->job.engine, c->job.source.name, c->seed);
    else
        spry_chat_note("There is no answer yet.");
}

static void do_quit(spry_chat_loop *c, const char *argument)
{
    (void)argument;
    c->leave = true;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static void do_help(spry_chat_loop *c, const char *argument);

typedef enum argument_kind { NO_ARGUMENT, TEXT, FILE_NAME, MODEL_NAME, SETTING } argument_kind;

static const struct chat_command {
    const char *name, *arguments, *help; /* help NULL: another name of the one before */
    void (*run)(spry_chat_loop *c, const char *argument);
    argument_kind argument;
} chat_commands[] = {
    {"help", "", "Show this help", do_help, NO_ARGUMENT},
    {"?", "", NULL, do_help, NO_ARGUMENT},
    {"set", " NAME VALUE", "Change a setting, such as temperature, think or seed; alone: list them", do_set, SETTING},
    {"model", " NAME", "Continue with another model; alone: show which", do_model, MODEL_NAME},
    {"system", " TEXT", "Set the system message; without TEXT remove it", do_system, TEXT},
    {"retry", "", "Answer the last message again", do_retry, NO_ARGUMENT},
    {"undo", "", "Remove the last message and its answer", do_undo, NO_ARGUMENT},
    {"clear", "", "Clear the conversation, keep the system message", do_clear, NO_ARGUMENT},
    {"resume", " NUMBER", "Continue a stored chat; alone: list them", do_resume, TEXT},
    {"title", " TEXT", "Name the chat in the list of stored chats", do_title, TEXT},
    {"forget", "", "Delete the stored chat and stop storing it", do_forget, NO_ARGUMENT},
    {"save", " FILE", "Write the conversation to a JSON file", do_save, FILE_NAME},
    {"load", " FILE", "Continue a saved conversation", do_load, FILE_NAME},
    {"image", " FILE", "Add a picture to the next message; alone: leave it out again", do_image, FILE_NAME},
    {"stats", "", "Show time and memory use of the last answer", do_stats, NO_ARGUMENT},
    {"bye", "", "Leave; Ctrl-D does too", do_quit, NO_ARGUMENT},
    {"quit", "", NULL, do_quit, NO_ARGUMENT},
    {"exit", "", NULL, do_quit, NO_ARGUMENT},
};

static void do_help(spry_chat_loop *c, const char *argument)
{
    (void)c;
    (void)argument;
    spry_buffer page;
    spry_buffer_init(&page, PAGE_BYTES);
    for (size_t i = 0; i < SPRY_COUNT(chat_commands); i++) {
        const struct chat_command *command = &chat_commands[i];
        char left[32];
        if (!command->help)
            continue;
        snprintf(left, sizeof left, "/%s%s", command->name, command->arguments);
        add_row(&page, left, command->help);
    }
    spry_text_wrap(
        &page,
        spry_view_of("Text between \"\"\" and \"\"\" has several lines, as has pasted text; a backslash at the "
                     "end, or Alt-Enter, begins another line. Tab completes, Ctrl-R searches earlier messages, "
                     "Ctrl-C ends an answer or clears the line."),
        0, spry_usage_style().width);
    print_page(&page);
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

static const struct chat_command *find_command(spry_view name)
{
    for (size_t i = 0; i < SPRY_COUNT(chat_commands); i++)
        if (spry_view_is(name, chat_commands[i].name))
            return &chat_commands[i];
    return NULL;
}

/* The argument is the rest of the line without surrounding spaces. */
void spry_chat_command(spry_chat_loop *c, char *line)
{
    spry_view name = {line, strcspn(line, " \t\n")};
    char *argument = line + name.size;
    argument += strspn(argument, " \t\n");
    for (size_t end = strlen(argument); end && strchr(" \t\n", argument[end - 1]); end--)
        argument[end - 1] = 0;
    const struct chat_command *command = find_command(name);
    if (command)
        command->run(c, argument);
    else
        complain_unknown(name);
}

/* ---- completion -------------------------------------------------------------------------------------------------- */

typedef struct offers {
    spry_buffer *out;
    spry_view begun;
} offers;

static void offer(void *user, const char *word, const char *about)
{
    (void)about;
    const offers *o = user;
    if (spry_view_starts(spry_view_of(word), o->begun) && !strchr(word, '\n') && spry_utf8_valid(spry_view_of(word)))
        spry_buffer_format(o->out, "%s\n", word);
}

/* The files whose path begins so; hidden ones only where their dot is given. */
static void offer_files(offers *o)
{
    spry_buffer folder, path;
    struct dirent **entries = NULL;
    size_t end = o->begun.size;
    while (end && o->begun.data[end - 1] != '/')
        end--;
    spry_buffer_init(&folder, 1 << 16);
    spry_buffer_init(&path, 1 << 16);
    spry_buffer_append(&folder, o->begun.data, end);
    int count = scandir(end ? folder.data : ".", &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        bool hidden = entries[i]->d_name[0] == '.' && o->begun.data[end] != '.';
        spry_buffer_clear(&path);
        spry_buffer_format(&path, "%s%s", spry_buffer_view(&folder).data, entries[i]->d_name);
        if (!hidden && path.data && spry_path_is_folder(path.data))
            spry_buffer_text(&path, "/");
        if (!hidden && path.data && strcmp(entries[i]->d_name, ".") != 0 && strcmp(entries[i]->d_name, "..") != 0)
            offer(o, path.data, NULL);
        free(entries[i]);
    }
    free(entries);
    spry_buffer_deinit(&folder);
    spry_buffer_deinit(&path);
}

/* Names of settings, or the values of the one named before. */
static void offer_settings(spry_chat_loop *c, offers *o, spry_view before)
{
    spry_option_table tables[SETTINGS_TABLES];
    settings_tables(tables, c->job.flags);
    for (size_t t = 0; t < SETTINGS_TABLES; t++) {
        for (size_t i = 0; i < tables[t].count; i++) {
            const spry_option *option = &tables[t].options[i];
            if (!before.size && can_be_set(option))
                offer(o, option->name, NULL);
            for (size_t k = 0; spry_view_is(before, option->name) && option->choices && option->choices[k]; k++)
                offer(o, option->choices[k], NULL);
            for (size_t k = 0; spry_view_is(before, option->name) && option->kind == SPRY_OPTION_FLAG && k < 2; k++)
                offer(o, k ? "false" : "true", NULL);
        }
    }
}

size_t spry_chat_complete(void *user, spry_buffer *out, spry_view text)
{
    size_t begin = text.size, name_size = 0;
    while (begin && !strchr(" \t\n", text.data[begin - 1]))
        begin--;
    while (name_size < text.size && !strchr(" \t\n", text.data[name_size]))
        name_size++;
    char word[4096];
    snprintf(word, sizeof word, "%.*s", (int)(text.size - begin < sizeof word ? text.size - begin : 0),
             text.data + begin);
    offers o = {out, spry_view_of(word)};
    const struct chat_command *command =
        text.size && text.data[0] == '/' ? find_command((spry_view){text.data + 1, name_size - 1}) : NULL;
    if (begin == 0 && o.begun.size && word[0] == '/' && !strchr(word + 1, '/')) {
        for (size_t i = 0; i < SPRY_COUNT(chat_commands); i++) {
            char name[32];
            snprintf(name, sizeof name, "/%s", chat_commands[i].name);
            if (chat_commands[i].help)
                offer(&o, name, NULL);
        }
    } else if (command && command->argument == MODEL_NAME) {
        spry_complete_models(offer, &o);
    } else if (command && command->argument == SETTING) {
        size_t end = begin;
        while (end > name_size && strchr(" \t\n", text.data[end - 1]))
            end--;
        size_t start = end;
        while (start > name_size && !strchr(" \t\n", text.data[start - 1]))
            start--;
        offer_settings(user, &o, start > name_size ? (spry_view){text.data + start, end - start} : (spry_view){"", 0});
    } else if ((!command && o.begun.size) || (command && command->argument == FILE_NAME)) {
        offer_files(&o);
    }
    return begin;
}
