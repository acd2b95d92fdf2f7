/* spry chats resume: the arguments are parsed twice, first to find the chat, then on top of that chat's settings. */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "chat/chats.h"
#include "cli/terminal.h"
#include "cli/usage.h"
#include "platform/file.h"

static const spry_usage usage = {
    .command = "chats resume",
    .arguments = "[ID] [options]",
    .about = "Continues a stored chat, the most recently changed one unless ID is given, with its model and settings. "
             "Options given here replace those settings, now and for the next time.\n"
             "Messages are added to the same chat. If another process has changed it meanwhile, it continues as a new "
             "chat.",
    .examples = "spry chats resume\n"
                "spry chats resume 12 --temperature 0.2\n"
                "spry chats resume 12 --model ./other.gguf",
};

typedef struct resume_settings {
    const char *model;
    spry_chat_flags chat;
} resume_settings;

static const spry_option output_options[] = {
    {.name = "stats",
     .kind = SPRY_OPTION_FLAG,
     .offset = offsetof(resume_settings, chat.stats),
     .help = "Print time and memory use of each answer to standard error",
     .group = "Output"},
};

static const spry_option model_options[] = {
    {.name = "model",
     .letter = 'm',
     .kind = SPRY_OPTION_STRING,
     .offset = offsetof(resume_settings, model),
     .help = "Continue with another model, named as for `spry run`",
     .group = "Model"},
};

enum { N_TABLES = 3 + SPRY_CHAT_SETTINGS_TABLES };

static bool parse(int *code, resume_settings *settings, const char **id, int argc, char **argv)
{
    spry_option_table tables[N_TABLES] = {spry_chat_flags_table(&settings->chat),
                                          {output_options, SPRY_COUNT(output_options), settings}};
    spry_chat_settings_tables(&tables[2], &settings->chat);
    tables[N_TABLES - 1] = (spry_option_table){model_options, SPRY_COUNT(model_options), settings};
    spry_option_list positionals = {id, 1, 0};
    return spry_usage_parse(code, &usage, tables, N_TABLES, &positionals, argc, argv);
}

/* The defaults, then the chat's settings, then the arguments. */
static bool merge_settings(int *code, resume_settings *settings, const json_t *stored, int argc, char **argv)
{
    spry_error error;
    const char *id;
    bool stops_given = settings->chat.answer.stop.count != 0;
    spry_chat_flags_default(&settings->chat);
    spry_chat_settings_load(&settings->chat, stored);
    if (stops_given)
        settings->chat.answer.stop.count = 0;
    if (!parse(code, settings, &id, argc, argv))
        return false;
    if (spry_answer_flags_settle(&settings->chat.answer, &error) == SPRY_OK)
        return true;
    *code = spry_usage_wrong(&usage, "%s", error.message);
    return false;
}

/* The model to open: --model, or that of the chat. */
static spry_status find_model(const char **model, const resume_settings *settings, const spry_chat *chat,
                              spry_error *error)
{
    bool bundled = strcmp(chat->model_path, SPRY_CHAT_BUNDLED) == 0;
    *model = settings->model ? settings->model : bundled ? chat->model : chat->model_path;
    if (settings->model || bundled || spry_path_exists(chat->model_path))
        return SPRY_OK;
    return spry_fail(error, SPRY_ERR_FILE,
                     "chat %" PRId64 " used the model %.300s, which no longer exists; choose another with --model",
                     chat->id, chat->model_path);
}

int spry_chats_resume(int argc, char **argv)
{
    resume_settings settings = {0};
    const char *name = NULL, *model;
    int64_t id = 0;
    int code = SPRY_EXIT_OK;
    spry_chat_flags_default(&settings.chat);
    if (!parse(&code, &settings, &name, argc, argv))
        return code;
    if (name && !spry_chats_read_id(&id, name))
        return spry_usage_wrong(&usage, "'%.100s' is not the number of a chat, nor latest", name);
    if (!isatty(STDIN_FILENO))
        return spry_usage_wrong(&usage, "resume needs a terminal to chat on");
    spry_error error;
    spry_chat_past past;
    json_t *stored = NULL;
    spry_status status = spry_chat_past_init(&past, &error);
    if (status == SPRY_OK)
        status = spry_chats_load(&past, &settings.chat, id, &error);
    if (status == SPRY_OK)
        status = find_model(&model, &settings, &past.chat, &error);
    if (status == SPRY_OK) {
        stored = json_loads(past.chat.settings, 0, NULL);
        if (merge_settings(&code, &settings, stored, argc, argv))
            status = spry_chat_start(&code, &past, model, &settings.chat, &error);
    }
    if (status != SPRY_OK)
        code = spry_complain_error(&error);
    spry_chat_past_deinit(&past);
    json_decref(stored);
    return spry_out_finish(code);
}
