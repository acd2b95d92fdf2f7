/* Settings are compared with the defaults as JSON values, so one function handles all kinds of options. */
#include "chat/chat.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/options.h"
#include "cli/terminal.h"
#include "platform/file.h"

#define OPTION(...) SPRY_OPTION(spry_chat_flags, __VA_ARGS__)

static const spry_option chat_options[] = {
    OPTION("system", STRING, system, .common = true, .help = "The system message", .group = "Prompt"),
    OPTION("history", FLAG, history, .help = "Save the input history for the next chat", .group = "Chat"),
    OPTION("save", FLAG, save, .common = true,
           .help = "Store the chat after every answer; `spry chats list` shows stored chats"),
    OPTION("chats", STRING, chats, .metavar = "FILE",
           .help = "File of stored chats; default: spry/chats.db in the user's data folder",
           .group = "Chat"), /* the first rows are also used as a table of their own */
};

static const spry_option mcp_options[] = {
    OPTION("mcp", STRING, mcp, .metavar = "FILE",
           .help = "In a chat: start the MCP servers of this file ({\"mcpServers\": ...}), in sandboxes, and offer "
                   "their tools to the model, which asks before each call; docs/MCP.md",
           .group = "Chat"),
};

/* Options of this run that are not settings of the chat. */
static const char *const not_kept[] = {"verbose"};

void spry_chat_flags_default(spry_chat_flags *flags)
{
    *flags = (spry_chat_flags){.history = true, .save = true};
    spry_answer_flags_default(&flags->answer);
    spry_engine_flags_default(&flags->engine);
}

spry_option_table spry_chat_flags_table(spry_chat_flags *flags)
{
    return (spry_option_table){chat_options, SPRY_COUNT(chat_options), flags};
}

spry_option_table spry_chat_flags_mcp_table(spry_chat_flags *flags)
{
    return (spry_option_table){mcp_options, SPRY_COUNT(mcp_options), flags};
}

spry_option_table spry_chat_flags_file_table(spry_chat_flags *flags)
{
    return (spry_option_table){&chat_options[SPRY_COUNT(chat_options) - 1], 1, flags};
}

void spry_chat_settings_tables(spry_option_table tables[SPRY_CHAT_SETTINGS_TABLES], spry_chat_flags *flags)
{
    spry_answer_flags_tables(tables, &flags->answer);
    tables[2] = spry_engine_flags_table(&flags->engine);
    tables[3] = spry_model_flags_table(&flags->model);
}

void spry_chat_flags_path(spry_buffer *out, const spry_chat_flags *flags)
{
    spry_buffer_clear(out);
    if (flags->chats)
        spry_buffer_text(out, flags->chats);
    else
        spry_path_user_data(out, "chats.db");
}

/* ---- to JSON ----------------------------------------------------------------------------------------------------- */

static bool is_path(const spry_option *option)
{
    return option->metavar && (strcmp(option->metavar, "DIR") == 0 || strcmp(option->metavar, "FILE") == 0);
}

/* The current value of an option for spry_options_set_json, with an absolute path; NULL: no memory. */
static json_t *value_of(const spry_option_table *table, const spry_option *option)
{
    json_t *value = spry_options_get_json(table, option);
    char *whole = is_path(option) && json_is_string(value) ? realpath(json_string_value(value), NULL) : NULL;
    if (whole) {
        json_decref(value);
        value = json_string(whole);
        free(whole);
    }
    return value || option->kind != SPRY_OPTION_STRING ? value : json_null(); /* text that is not UTF-8 is not stored */
}

static bool is_kept(const spry_option *option)
{
    for (size_t i = 0; i < SPRY_COUNT(not_kept); i++)
        if (strcmp(option->name, not_kept[i]) == 0)
            return false;
    return true;
}

static bool add_changed(json_t *object, const spry_option_table *now, const spry_option_table *before)
{
    bool added = true;
    for (size_t i = 0; added && i < now->count; i++) {
        const spry_option *option = &now->options[i];
        char key[64];
        spry_options_key(key, sizeof key, option->name);
        json_t *value = value_of(now, option), *usual = value_of(before, option);
        added = value && usual;
        if (added && is_kept(option) && !json_equal(value, usual))
            added = json_object_set(object, key, value) == 0;
        json_decref(value);
        json_decref(usual);
    }
    return added;
}

char *spry_chat_settings_save(const spry_chat_flags *flags)
{
    spry_chat_flags now = *flags, before;
    spry_chat_flags_default(&before);
    spry_option_table tables[SPRY_CHAT_SETTINGS_TABLES], usual[SPRY_CHAT_SETTINGS_TABLES];
    spry_chat_settings_tables(tables, &now);
    spry_chat_settings_tables(usual, &before);
    json_t *object = json_object();
    bool whole = object != NULL;
    for (size_t i = 0; whole && i < SPRY_CHAT_SETTINGS_TABLES; i++)
        whole = add_changed(object, &tables[i], &usual[i]);
    char *text = whole ? spry_json_text(object, JSON_REAL_PRECISION(9)) : NULL;
    json_decref(object);
    return text;
}

/* ---- from JSON --------------------------------------------------------------------------------------------------- */

void spry_chat_settings_load(spry_chat_flags *flags, const json_t *settings)
{
    spry_option_table tables[SPRY_CHAT_SETTINGS_TABLES];
    spry_chat_settings_tables(tables, flags);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)settings, key, value)
    {
        for (size_t i = 0; i < SPRY_CHAT_SETTINGS_TABLES; i++) {
            spry_error error;
            if (spry_options_find(&tables[i], key) && spry_options_set_json(&tables[i], key, value, &error) != SPRY_OK)
                spry_complain("a setting of the stored chat is ignored: %s", error.message);
        }
    }
}
