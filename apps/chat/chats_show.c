/* spry chats show and spry chats export: one chat as text. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chat/chat_text.h"
#include "chat/chats.h"
#include "cli/terminal.h"
#include "cli/usage.h"
#include "platform/file.h"

enum { TRANSCRIPT_BYTES_MAX = 1 << 30 };

/* ---- formats ----------------------------------------------------------------------------------------------------- */

static void write_json(spry_buffer *out, const spry_chat_past *past)
{
    json_t *json = spry_chat_text_json(&past->chat, &past->conversation);
    char *text = json ? json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(json);
    if (text)
        spry_buffer_format(out, "%s\n", text);
    else
        out->failed = true;
    free(text);
}

static void write_markdown(spry_buffer *out, const spry_chat_past *past)
{
    spry_chat_text_markdown(out, &past->chat, &past->conversation);
}

static void write_plain(spry_buffer *out, const spry_chat_past *past)
{
    spry_chat_text_plain(out, &past->chat, &past->conversation, false);
}

static const struct format {
    const char *name, *ending;
    void (*write)(spry_buffer *out, const spry_chat_past *past);
} formats[] = {
    {"json", ".json", write_json},
    {"markdown", ".md", write_markdown},
    {"text", ".txt", write_plain},
};

static const char *const format_names[] = {"json", "markdown", "text", NULL};

/* By name; else by the file's extension; else JSON. */
static const struct format *find_format(const char *name, const char *path)
{
    for (size_t i = 0; i < SPRY_COUNT(formats); i++)
        if (name ? strcmp(name, formats[i].name) == 0
                 : path && spry_view_ends(spry_view_of(path), spry_view_of(formats[i].ending)))
            return &formats[i];
    return &formats[0];
}

/* ---- where to ---------------------------------------------------------------------------------------------------- */

static spry_status write_file(const char *path, spry_view text, spry_error *error)
{
    spry_file_writer writer;
    spry_status status = spry_file_writer_open(&writer, path, error);
    if (status != SPRY_OK)
        return status;
    status = spry_file_writer_write(&writer, text.data, text.size, error);
    if (status == SPRY_OK)
        return spry_file_writer_commit(&writer, error);
    spry_file_writer_abandon(&writer);
    return status;
}

/* Loads, formats, and writes to `path` or, when it is NULL, to standard output. Without a format it is the
 * transcript. */
static int write_chat(const spry_chat_flags *flags, int64_t id, const struct format *format, const char *path)
{
    spry_error error;
    spry_chat_past past;
    spry_buffer text;
    spry_buffer_init(&text, TRANSCRIPT_BYTES_MAX);
    bool styled = !format && isatty(STDOUT_FILENO);
    spry_status status = spry_chat_past_init(&past, &error);
    if (status == SPRY_OK)
        status = spry_chats_load(&past, flags, id, &error);
    if (status == SPRY_OK && format)
        format->write(&text, &past);
    else if (status == SPRY_OK)
        spry_chat_text_plain(&text, &past.chat, &past.conversation, styled);
    if (status == SPRY_OK && text.failed)
        status = spry_fail_memory(&error, "the transcript", text.size);
    if (status == SPRY_OK && path)
        status = write_file(path, spry_buffer_view(&text), &error);
    else if (status == SPRY_OK && styled)
        spry_out_write(spry_buffer_view(&text).data, text.size);
    else if (status == SPRY_OK)
        spry_out_answer(spry_buffer_view(&text));
    spry_chat_past_deinit(&past);
    spry_buffer_deinit(&text);
    return status == SPRY_OK ? spry_out_finish(SPRY_EXIT_OK) : spry_complain_error(&error);
}

/* ---- show -------------------------------------------------------------------------------------------------------- */

static const spry_usage show_usage = {
    .command = "chats show",
    .arguments = "ID [options]",
    .about = "Shows a stored chat as a transcript; user messages begin with `> `. ID is its number, or `latest`.",
    .examples = "spry chats show 12\n"
                "spry chats show latest | less\n"
                "spry chats show 12 --json",
};

typedef struct show_flags {
    bool json;
} show_flags;

static const spry_option show_options[] = {
    {.name = "json",
     .kind = SPRY_OPTION_FLAG,
     .offset = offsetof(show_flags, json),
     .help = "Print the complete record as JSON",
     .group = "Output"},
};

int spry_chats_show(int argc, char **argv)
{
    spry_chat_flags flags;
    show_flags own = {0};
    const char *name = NULL;
    int64_t id = 0;
    spry_option_list positionals = {&name, 1, 0};
    spry_chat_flags_default(&flags);
    const spry_option_table tables[] = {{show_options, SPRY_COUNT(show_options), &own},
                                        spry_chat_flags_file_table(&flags)};
    int code;
    if (!spry_usage_parse(&code, &show_usage, tables, SPRY_COUNT(tables), &positionals, argc, argv))
        return code;
    if (!name)
        return spry_usage_wrong(&show_usage, "show needs the number of a chat; `spry chats list` shows them");
    if (!spry_chats_read_id(&id, name))
        return spry_usage_wrong(&show_usage, "'%.100s' is not the number of a chat, nor latest", name);
    return write_chat(&flags, id, own.json ? find_format("json", NULL) : NULL, NULL);
}

/* ---- export ------------------------------------------------------------------------------------------------------ */

static const spry_usage export_usage = {
    .command = "chats export",
    .arguments = "ID [FILE] [options]",
    .about =
        "Writes a stored chat to FILE, or to standard output. JSON can be read again by /load in a chat; Markdown "
        "and text are for people. Without --format the file's name decides: .md is Markdown, .txt is text, all else "
        "is JSON. The file appears under its name only when it is complete.",
    .examples = "spry chats export 12 tale.json\n"
                "spry chats export latest tale.md\n"
                "spry chats export 12 --format text",
};

typedef struct export_flags {
    const char *format;
} export_flags;

static const spry_option export_options[] = {
    {.name = "format",
     .kind = SPRY_OPTION_CHOICE,
     .offset = offsetof(export_flags, format),
     .choices = format_names,
     .help = "Output format",
     .group = "Output"},
};

int spry_chats_export(int argc, char **argv)
{
    spry_chat_flags flags;
    export_flags own = {0};
    const char *names[2] = {NULL, NULL};
    int64_t id = 0;
    spry_option_list positionals = {names, 2, 0};
    spry_chat_flags_default(&flags);
    const spry_option_table tables[] = {{export_options, SPRY_COUNT(export_options), &own},
                                        spry_chat_flags_file_table(&flags)};
    int code;
    if (!spry_usage_parse(&code, &export_usage, tables, SPRY_COUNT(tables), &positionals, argc, argv))
        return code;
    if (!names[0])
        return spry_usage_wrong(&export_usage, "export needs the number of a chat; `spry chats list` shows them");
    if (!spry_chats_read_id(&id, names[0]))
        return spry_usage_wrong(&export_usage, "'%.100s' is not the number of a chat, nor latest", names[0]);
    return write_chat(&flags, id, find_format(own.format, names[1]), names[1]);
}
