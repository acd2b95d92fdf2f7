/* Settings are compared with the defaults as JSON values, so one function handles all kinds of options. */
#include "chat/chat_flags.h"

#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/options.h"
#include "cli/terminal.h"
#include "platform/file.h"

#define FIELD(name) offsetof(spry_chat_flags, name)

static const spry_option chat_options[] = {
    {.name = "system",
     .kind = SPRY_OPTION_STRING,
     .offset = FIELD(system),
     .help = "The system message",
     .group = "Prompt"},
    {.name = "history",
     .kind = SPRY_OPTION_FLAG,
     .offset = FIELD(history),
     .help = "Save the input history for the next chat",
     .group = "Chat"},
    {.name = "save",
     .kind = SPRY_OPTION_FLAG,
     .offset = FIELD(save),
     .help = "Store the chat after every answer; `spry chats` lists what is stored"},
    {.name = "chats",
     .kind = SPRY_OPTION_STRING,
     .offset = FIELD(chats),
     .metavar = "FILE",
     .help = "File of stored chats; default: spry/chats.db in the user's data folder",
     .group = "Chat"}, /* also a table by itself */
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

static json_t *string_value(const spry_option *option, const char *text)
{
    if (!text)
        return json_null();
    char *whole = is_path(option) ? realpath(text, NULL) : NULL;
    json_t *value = json_string(whole ? whole : text);
    free(whole);
    return value ? value : json_null(); /* a name that is not UTF-8 cannot be stored */
}

static json_t *list_value(const spry_option_list *list)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < list->count; i++)
        json_array_append_new(array, json_string(list->items[i]));
    return array;
}

/* The current value of an option for spry_options_set_json; NULL: no memory. */
static json_t *value_of(const spry_option_table *table, const spry_option *option)
{
    const void *field = (const char *)table->target + option->offset;
    char text[SPRY_NUMBER_TEXT];
    const char *string;
    double number = 0;
    switch (option->kind) {
    case SPRY_OPTION_STRING:
    case SPRY_OPTION_CHOICE: memcpy(&string, field, sizeof string); return string_value(option, string);
    case SPRY_OPTION_LIST: return list_value(field);
    default: break;
    }
    spry_options_print(text, sizeof text, table, option);
    switch (option->kind) {
    case SPRY_OPTION_FLAG: return json_boolean(strcmp(text, "true") == 0);
    case SPRY_OPTION_U32:
    case SPRY_OPTION_FLOAT:
        if (!spry_number_double(&number, spry_view_of(text)))
            return json_null(); /* unset */
        return option->kind == SPRY_OPTION_FLOAT ? json_real(number) : json_integer((json_int_t)number);
    default: return json_string(text);
    }
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
    char *text = whole ? json_dumps(object, JSON_REAL_PRECISION(9)) : NULL;
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
