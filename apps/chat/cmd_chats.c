/* `spry chats`: its subcommands, and `spry chats resume`. */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/number.h"
#include "chat/chats.h"
#include "cli/commands.h"
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
    SPRY_OPTION(resume_settings, "stats", FLAG, chat.stats,
                .help = "Print time and memory use of each answer to standard error", .group = "Output"),
};

static const spry_option model_options[] = {
    SPRY_OPTION(resume_settings, "model", STRING, model, .letter = 'm',
                .help = "Continue with another model, named as for `spry run`", .group = "Model"),
};

enum { N_TABLES = 4 + SPRY_CHAT_SETTINGS_TABLES };

static bool parse(int *code, resume_settings *settings, const char **id, int argc, char **argv)
{
    spry_option_table tables[N_TABLES] = {spry_chat_flags_table(&settings->chat),
                                          {output_options, SPRY_COUNT(output_options), settings},
                                          spry_chat_flags_mcp_table(&settings->chat)};
    spry_chat_settings_tables(&tables[3], &settings->chat);
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

static int chats_resume(int argc, char **argv)
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
        stored = spry_json_value(spry_view_of(past.chat.settings));
        if (merge_settings(&code, &settings, stored, argc, argv))
            status = spry_chat_start(&code, &past, model, &settings.chat, &error);
    }
    if (status != SPRY_OK)
        code = spry_complain_error(&error);
    spry_chat_past_deinit(&past);
    json_decref(stored);
    return spry_out_finish(code);
}

/* ---- spry chats -------------------------------------------------------------------------------------------------- */

enum { PATH_BYTES = 4096, DELETED_MAX = 256 };

static const spry_usage chats_usage = {
    .command = "chats",
    .arguments = "[list|show|resume|delete|export] [arguments]",
    .about =
        "Chats of `spry run` on a terminal are stored after every answer. These commands list them (also `spry chats` "
        "alone), "
        "show or continue one, delete some, and write one to a file. Each has its own help page: spry chats list "
        "--help.\n"
        "ID is the number shown by the list, or `latest`.\n"
        "Chats are stored in spry/chats.db in the user's data folder, or in the file given by --chats. Exit codes: 0 "
        "success, 1 failure, 2 wrong arguments.",
    .examples = "spry chats list\n"
                "spry chats show latest\n"
                "spry chats resume 12\n"
                "spry chats delete 3 4\n"
                "spry chats export 12 tale.md",
};

static const struct chats_command {
    const char *name;
    int (*run)(int argc, char **argv);
} chats_commands[] = {
    {"list", spry_chats_list},     {"show", spry_chats_show},     {"resume", chats_resume},
    {"delete", spry_chats_delete}, {"export", spry_chats_export},
};

static int unknown_command(const char *name)
{
    spry_option names[SPRY_COUNT(chats_commands)];
    memset(names, 0, sizeof names);
    for (size_t i = 0; i < SPRY_COUNT(chats_commands); i++)
        names[i].name = chats_commands[i].name;
    const spry_option_table table = {names, SPRY_COUNT(names), NULL};
    const char *near = spry_options_nearest(&table, 1, spry_view_of(name));
    if (near)
        return spry_usage_wrong(&chats_usage, "there is no `spry chats %.100s`; did you mean %s?", name, near);
    return spry_usage_wrong(&chats_usage, "there is no `spry chats %.100s`", name);
}

/* The help page of `chats`; a visitor of pages also gets the pages of its subcommands. */
static int show_pages(int argc, char **argv)
{
    const char *rest[1];
    spry_option_list positionals = {rest, 1, 0};
    int code = SPRY_EXIT_OK;
    if (spry_usage_parse(&code, &chats_usage, NULL, 0, &positionals, argc, argv))
        return spry_usage_wrong(&chats_usage, "chats needs a subcommand: list, show, resume, delete or export");
    for (size_t i = 0; spry_usage_visiting() && i < SPRY_COUNT(chats_commands); i++)
        code = chats_commands[i].run(argc, argv);
    return code;
}

int spry_cmd_chats(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < SPRY_COUNT(chats_commands); i++)
        if (strcmp(argv[1], chats_commands[i].name) == 0)
            return chats_commands[i].run(argc - 1, argv + 1);
    if (argc > 1 && argv[1][0] != '-')
        return unknown_command(argv[1]);
    return argc > 1 ? show_pages(argc, argv) : spry_chats_list(argc, argv);
}

/* ---- shared by the subcommands ----------------------------------------------------------------------------------- */

bool spry_chats_read_id(int64_t *id, const char *text)
{
    uint64_t number = 0;
    bool latest = strcmp(text, "latest") == 0;
    if (!latest && (!spry_number_u64(&number, spry_view_of(text)) || number == 0 || number > INT64_MAX))
        return false;
    *id = (int64_t)number;
    return true;
}

spry_status spry_chats_open(spry_chat_store **store, const spry_chat_flags *flags, spry_error *error)
{
    spry_buffer path;
    spry_buffer_init(&path, PATH_BYTES);
    spry_chat_flags_path(&path, flags);
    spry_status status;
    if (!flags->chats && (!path.size || !spry_path_exists(path.data)))
        status = spry_fail(error, SPRY_ERR_INPUT, "no chats are stored yet: `spry run` on a terminal begins one");
    else
        status = spry_chat_store_open(store, spry_buffer_view(&path).data, false, error);
    spry_buffer_deinit(&path);
    return status;
}

/* Replaces id 0 by the latest chat, or fails with SPRY_ERR_INPUT when there is none. */
static spry_status resolve(int64_t *id, spry_chat_store *store, spry_error *error)
{
    if (*id)
        return SPRY_OK;
    spry_status status = spry_chat_store_latest(store, id, error);
    if (status == SPRY_OK && !*id)
        status = spry_fail(error, SPRY_ERR_INPUT, "no chats are stored: `spry run` on a terminal begins one");
    return status;
}

spry_status spry_chats_load(spry_chat_past *past, const spry_chat_flags *flags, int64_t id, spry_error *error)
{
    spry_chat_store *store = NULL;
    spry_status status = spry_chats_open(&store, flags, error);
    if (status == SPRY_OK)
        status = resolve(&id, store, error);
    if (status == SPRY_OK)
        status = spry_chat_store_load(store, &past->chat, &past->conversation, id, error);
    spry_chat_store_close(store);
    return status;
}

/* ---- delete ------------------------------------------------------------------------------------------------------ */

static const spry_usage delete_usage = {
    .command = "chats delete",
    .arguments = "ID... [options]",
    .about =
        "Deletes the given chats permanently; deletes none when one of them does not exist. Asks first on a terminal.",
    .examples = "spry chats delete 12\n"
                "spry chats delete 3 4 5 --yes",
};

typedef struct delete_flags {
    bool yes;
} delete_flags;

static const spry_option delete_options[] = {
    SPRY_OPTION(delete_flags, "yes", FLAG, yes, .letter = 'y', .help = "Do not ask", .group = "Deleting"),
};

static bool confirmed(size_t count)
{
    char answer[16] = "";
    spry_out_format("Delete %zu %s permanently? [y/N] ", count, count == 1 ? "chat" : "chats");
    spry_out_flush();
    return fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

static int delete_chats(const spry_chat_flags *flags, int64_t *ids, size_t n_ids)
{
    spry_error error;
    spry_chat_store *store = NULL;
    size_t deleted = 0;
    spry_status status = spry_chats_open(&store, flags, &error);
    for (size_t i = 0; status == SPRY_OK && i < n_ids; i++)
        status = resolve(&ids[i], store, &error);
    if (status == SPRY_OK)
        status = spry_chat_store_delete(store, &deleted, ids, n_ids, &error);
    spry_chat_store_close(store);
    if (status != SPRY_OK)
        return spry_complain_error(&error);
    spry_out_format("Deleted %zu %s.\n", deleted, deleted == 1 ? "chat" : "chats");
    return spry_out_finish(SPRY_EXIT_OK);
}

int spry_chats_delete(int argc, char **argv)
{
    spry_chat_flags flags;
    delete_flags own = {0};
    const char *names[DELETED_MAX];
    int64_t ids[DELETED_MAX];
    spry_option_list positionals = {names, DELETED_MAX, 0};
    spry_chat_flags_default(&flags);
    const spry_option_table tables[] = {{delete_options, SPRY_COUNT(delete_options), &own},
                                        spry_chat_flags_file_table(&flags)};
    int code;
    if (!spry_usage_parse(&code, &delete_usage, tables, SPRY_COUNT(tables), &positionals, argc, argv))
        return code;
    if (positionals.count == 0)
        return spry_usage_wrong(&delete_usage, "delete needs the number of a chat; `spry chats list` shows them");
    for (size_t i = 0; i < positionals.count; i++)
        if (!spry_chats_read_id(&ids[i], names[i]))
            return spry_usage_wrong(&delete_usage, "'%.100s' is not the number of a chat, nor latest", names[i]);
    if (!own.yes && isatty(STDIN_FILENO) && !confirmed(positionals.count)) {
        spry_out_format("Nothing was deleted.\n");
        return spry_out_finish(SPRY_EXIT_OK);
    }
    return delete_chats(&flags, ids, positionals.count);
}
