/* Stored chats as text, Markdown and JSON, and the commands that print them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <utf8proc.h>

#include "base/json.h"
#include "base/utf8.h"
#include "chat/chats.h"
#include "cli/terminal.h"
#include "cli/usage.h"
#include "platform/file.h"

enum { TRANSCRIPT_BYTES_MAX = 1 << 30 };

/* "2026-11-15 08:01" in local time. */
static const char *time_text(char out[SPRY_CHAT_TIME_MAX], int64_t ms)
{
    time_t seconds = (time_t)(ms / 1000);
    struct tm parts;
    if (!localtime_r(&seconds, &parts) || strftime(out, SPRY_CHAT_TIME_MAX, "%Y-%m-%d %H:%M", &parts) == 0)
        snprintf(out, SPRY_CHAT_TIME_MAX, "at an unknown time");
    return out;
}

/* ---- as it looked ------------------------------------------------------------------------------------------------ */

static void append_text(spry_buffer *out, spry_view text, bool terminal)
{
    if (terminal)
        spry_terminal_defuse(out, text, "\n\t");
    else
        spry_buffer_append(out, text.data, text.size);
}

/* The user's input, with the prompts shown before it. */
static void append_typed(spry_buffer *out, const char *text, bool terminal)
{
    const char *prompt = "> ";
    for (bool more = true; more; prompt = ". ") {
        spry_view line = {text, strcspn(text, "\n")};
        more = text[line.size] != 0;
        spry_buffer_format(out, "%s%s%s", terminal ? spry_style_begin(stdout, SPRY_STYLE_PROMPT) : "", prompt,
                           terminal ? spry_style_end(stdout) : "");
        append_text(out, line, terminal);
        spry_buffer_text(out, "\n");
        text += line.size + more;
    }
}

static void append_paragraph(spry_buffer *out, const char *text, bool terminal)
{
    append_text(out, spry_view_of(text), terminal);
    if (!spry_view_ends(spry_view_of(text), SPRY_VIEW("\n")))
        spry_buffer_text(out, "\n");
}

/* The turns from number `first` (0: all) as the chat shows them, for a terminal with colours and without control
 * characters, or unchanged. */
static void write_turns(spry_buffer *out, const spry_conversation *conversation, size_t first, bool terminal)
{
    for (size_t i = first + 1; i <= conversation->count; i++) {
        const spry_message *turn = &conversation->slots[i];
        bool typed = strcmp(turn->role, "user") == 0;
        if (typed && i > first + 1)
            spry_buffer_text(out, "\n");
        (typed ? append_typed : append_paragraph)(out, turn->content, terminal);
    }
}

void spry_chat_text_print(const spry_conversation *conversation, size_t first)
{
    spry_buffer text;
    spry_buffer_init(&text, TRANSCRIPT_BYTES_MAX);
    write_turns(&text, conversation, first, isatty(STDOUT_FILENO));
    spry_out_write(spry_buffer_view(&text).data, text.size);
    spry_buffer_deinit(&text);
}

/* A heading, the system message and all turns. */
static void chat_text_plain(spry_buffer *out, const spry_chat *chat, const spry_conversation *conversation,
                            bool terminal)
{
    char begun[SPRY_CHAT_TIME_MAX], changed[SPRY_CHAT_TIME_MAX];
    const char *bold = terminal ? spry_style_begin(stdout, SPRY_STYLE_BOLD) : "";
    const char *dim = terminal ? spry_style_begin(stdout, SPRY_STYLE_DIM) : "";
    const char *plain = terminal ? spry_style_end(stdout) : "";
    const char *system = spry_conversation_system(conversation);
    spry_buffer_format(out, "%sChat %" PRId64 ": ", bold, chat->id);
    spry_terminal_defuse(out, spry_view_of(chat->title), "");
    spry_buffer_format(out, "%s\n%sWith ", plain, dim);
    spry_terminal_defuse(out, spry_view_of(chat->model), "");
    spry_buffer_format(out, ", %zu turns, begun %s, last changed %s.%s\n\n", chat->turns,
                       time_text(begun, chat->created), time_text(changed, chat->updated), plain);
    if (system) {
        spry_buffer_format(out, "%sSystem:%s ", dim, plain);
        append_paragraph(out, system, terminal);
        spry_buffer_text(out, "\n");
    }
    write_turns(out, conversation, 0, terminal);
}

/* ---- Markdown ---------------------------------------------------------------------------------------------------- */

static void append_section(spry_buffer *out, const char *heading, const char *text)
{
    spry_buffer_format(out, "\n## %s\n\n", heading);
    append_paragraph(out, text, false);
}

static void chat_text_markdown(spry_buffer *out, const spry_chat *chat, const spry_conversation *conversation)
{
    char begun[SPRY_CHAT_TIME_MAX], changed[SPRY_CHAT_TIME_MAX];
    const char *system = spry_conversation_system(conversation);
    spry_buffer_text(out, "# ");
    spry_terminal_defuse(out, spry_view_of(chat->title), "");
    spry_buffer_format(out, "\n\nWith %s, begun %s, last changed %s.\n", chat->model, time_text(begun, chat->created),
                       time_text(changed, chat->updated));
    if (system)
        append_section(out, "System", system);
    for (size_t i = 1; i <= conversation->count; i++) {
        const spry_message *turn = &conversation->slots[i];
        append_section(out, strcmp(turn->role, "user") == 0 ? "User" : "Assistant", turn->content);
    }
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static json_t *time_json(int64_t ms)
{
    char text[SPRY_TIME_TEXT];
    spry_time_text(text, ms / 1000);
    return text[0] ? json_string(text) : json_null();
}

/* Settings that are not JSON are omitted. */
static json_t *settings_json(const char *text)
{
    json_t *settings = spry_json_value(spry_view_of(text));
    return settings ? settings : json_object();
}

static json_t *path_json(const char *path)
{
    spry_buffer valid;
    spry_buffer_init(&valid, 4 * strlen(path) + 1);
    spry_utf8_append_valid(&valid, spry_view_of(path));
    json_t *json = json_string(spry_buffer_view(&valid).data);
    spry_buffer_deinit(&valid);
    return json;
}

/* The fields of a chat's record; with the system message and the turns it is the format of /load. NULL: no memory. */
static json_t *chat_text_facts(const spry_chat *chat)
{
    return json_pack("{s:I, s:s, s:s, s:o, s:o, s:o, s:o, s:I}", "id", (json_int_t)chat->id, "title", chat->title,
                     "model", chat->model, "model_path", path_json(chat->model_path), "settings",
                     settings_json(chat->settings), "created", time_json(chat->created), "updated",
                     time_json(chat->updated), "turns", (json_int_t)chat->turns);
}

static json_t *chat_text_json(const spry_chat *chat, const spry_conversation *conversation)
{
    json_t *json = chat_text_facts(chat), *talk = spry_conversation_to_json(conversation, chat->model);
    if (!json || !talk || json_object_update(json, talk) != 0) {
        json_decref(json);
        json = NULL;
    }
    json_decref(talk);
    return json;
}

/* ---- spry chats list and delete ---------------------------------------------------------------------------------- */

enum { CELL_BYTES_MAX = 4096, MODEL_COLUMNS_MAX = 24, CUT_COLUMNS_MIN = 5, GAP = 2 };

static const spry_usage usage = {
    .command = "chats list",
    .arguments = "[options]",
    .about =
        "Lists stored chats, most recently changed first: number, time of the last change, turns (messages of both "
        "sides), model, title.",
    .examples = "spry chats list\n"
                "spry chats list --limit 0\n"
                "spry chats list --json",
};

typedef struct list_flags {
    bool json;
    uint32_t limit;
} list_flags;

static const spry_option options[] = {
    SPRY_OPTION(list_flags, "limit", U32, limit, .help = "Show at most N chats; 0 shows all", .group = "Output"),
    SPRY_OPTION(list_flags, "json", FLAG, json, .help = "Print a JSON array"),
};

/* ---- cells ------------------------------------------------------------------------------------------------------- */

enum { ID, AGE, TURNS, MODEL, TITLE, N_COLUMNS };

static const struct {
    const char *heading;
    bool right; /* right-aligned numbers */
} columns[N_COLUMNS] = {{"id", true}, {"age", true}, {"turns", true}, {"model", false}, {"title", false}};

typedef struct table {
    char *(*rows)[N_COLUMNS];
    size_t count, capacity, limit;
    size_t widths[N_COLUMNS];
    int64_t now_ms;
    bool more, failed; /* there are older chats; memory was short */
} table;

/* The width of a text in terminal columns. */
static size_t columns_of(const char *text)
{
    size_t total = 0;
    for (size_t n; *text; text += n) {
        uint32_t character = 0;
        n = spry_utf8_decode(&character, text, strlen(text));
        n = n ? n : 1;
        total += (size_t)utf8proc_charwidth((utf8proc_int32_t)character);
    }
    return total;
}

static void age_of(char *out, size_t size, int64_t ms)
{
    static const struct {
        int64_t seconds;
        const char *unit;
    } steps[] = {{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}};
    int64_t seconds = ms > 0 ? ms / 1000 : 0;
    for (size_t i = 0; i < SPRY_COUNT(steps); i++) {
        if (seconds >= steps[i].seconds || i + 1 == SPRY_COUNT(steps)) {
            snprintf(out, size, "%" PRId64 " %s", seconds / steps[i].seconds, steps[i].unit);
            return;
        }
    }
}

/* An owned copy that is safe to print on one line. */
static char *cell_of(const char *text)
{
    spry_buffer safe;
    spry_buffer_init(&safe, 4 * strlen(text) + 1);
    spry_buffer_text(&safe, "");
    spry_terminal_defuse(&safe, spry_view_of(text), "");
    return safe.data; /* the row owns the buffer's memory */
}

static bool grow(table *t)
{
    if (t->count < t->capacity)
        return true;
    size_t capacity = t->capacity ? 2 * t->capacity : 64;
    void *rows = realloc(t->rows, capacity * sizeof *t->rows);
    if (!rows)
        return false;
    t->rows = rows;
    t->capacity = capacity;
    return true;
}

static bool add_row(void *user, const spry_chat *chat)
{
    table *t = user;
    if (t->limit && t->count == t->limit)
        return !(t->more = true);
    if (!grow(t))
        return !(t->failed = true);
    char id[24], age[32], turns[24];
    snprintf(id, sizeof id, "%" PRId64, chat->id);
    age_of(age, sizeof age, chat->updated < t->now_ms ? t->now_ms - chat->updated : 0);
    snprintf(turns, sizeof turns, "%zu", chat->turns);
    const char *const texts[N_COLUMNS] = {id, age, turns, chat->model, chat->title};
    char **row = t->rows[t->count++];
    for (size_t i = 0; i < N_COLUMNS; i++) {
        row[i] = cell_of(texts[i]);
        size_t width = row[i] ? columns_of(row[i]) : 0;
        t->failed |= !row[i];
        t->widths[i] = width > t->widths[i] ? width : t->widths[i];
    }
    return !t->failed;
}

static void free_table(table *t)
{
    for (size_t i = 0; i < t->count; i++)
        for (size_t k = 0; k < N_COLUMNS; k++)
            free(t->rows[i][k]);
    free(t->rows);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static void cut_width(size_t *width, size_t limit)
{
    limit = limit < CUT_COLUMNS_MIN ? CUT_COLUMNS_MIN : limit;
    *width = *width < limit ? *width : limit;
}

/* On a terminal the model and then the title are truncated; elsewhere nothing is. */
static void fit(table *t)
{
    size_t used = 0;
    for (size_t i = 0; i < N_COLUMNS; i++) {
        size_t heading = strlen(columns[i].heading);
        t->widths[i] = t->widths[i] < heading ? heading : t->widths[i];
    }
    if (!isatty(STDOUT_FILENO))
        return;
    size_t screen = spry_terminal_width(stdout);
    cut_width(&t->widths[MODEL], screen / 4 < MODEL_COLUMNS_MAX ? screen / 4 : MODEL_COLUMNS_MAX);
    for (size_t i = 0; i < TITLE; i++)
        used += t->widths[i] + GAP;
    cut_width(&t->widths[TITLE], screen > used ? screen - used : 0);
}

/* Appends a cell, truncated with an ellipsis or padded to its width; the last column is not padded. */
static void put_cell(spry_buffer *out, const char *text, size_t column, size_t width)
{
    size_t wide = columns_of(text), taken = 0;
    for (size_t i = wide; columns[column].right && i < width; i++)
        spry_buffer_text(out, " ");
    size_t limit = wide > width ? width - 1 : width;
    for (size_t n; *text; text += n) {
        uint32_t character = 0;
        n = spry_utf8_decode(&character, text, strlen(text));
        n = n ? n : 1;
        size_t next = (size_t)utf8proc_charwidth((utf8proc_int32_t)character);
        if (taken + next > limit)
            break;
        spry_buffer_append(out, text, n);
        taken += next;
    }
    if (wide > width) {
        spry_buffer_text(out, "\xE2\x80\xA6");
        taken++;
    }
    for (size_t i = taken; !columns[column].right && column + 1 < N_COLUMNS && i < width; i++)
        spry_buffer_text(out, " ");
    spry_buffer_text(out, column + 1 < N_COLUMNS ? "  " : "\n");
}

static void print_table(table *t)
{
    spry_buffer line;
    spry_buffer_init(&line, (size_t)CELL_BYTES_MAX * N_COLUMNS);
    fit(t);
    spry_out_format("%s", spry_style_begin(stdout, SPRY_STYLE_DIM));
    for (size_t k = 0; k < N_COLUMNS; k++)
        put_cell(&line, columns[k].heading, k, t->widths[k]);
    spry_out_format("%.*s%s\n", (int)(line.size - 1), line.data, spry_style_end(stdout));
    for (size_t i = 0; i < t->count; i++) {
        spry_buffer_clear(&line);
        for (size_t k = 0; k < N_COLUMNS; k++)
            put_cell(&line, t->rows[i][k], k, t->widths[k]);
        spry_out_write(spry_buffer_view(&line).data, line.size);
    }
    spry_buffer_deinit(&line);
    if (t->more && isatty(STDOUT_FILENO))
        spry_out_format("%sThere are older ones; --limit 0 shows all.%s\n", spry_style_begin(stdout, SPRY_STYLE_DIM),
                        spry_style_end(stdout));
}

static spry_status list_table(spry_chat_store *store, const list_flags *flags, spry_error *error)
{
    table t = {.limit = flags->limit, .now_ms = (int64_t)time(NULL) * 1000};
    spry_status status = spry_chat_store_list(store, flags->limit ? (size_t)flags->limit + 1 : 0, add_row, &t, error);
    if (status == SPRY_OK && t.failed)
        status = spry_fail_memory(error, "the list of chats", t.count);
    if (status == SPRY_OK && t.count)
        print_table(&t);
    else if (status == SPRY_OK)
        spry_complain("no chats are stored");
    free_table(&t);
    return status;
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static bool add_json(void *user, const spry_chat *chat)
{
    json_t *array = user;
    return json_array_append_new(array, chat_text_facts(chat)) == 0;
}

static spry_status list_json(spry_chat_store *store, const list_flags *flags, spry_error *error)
{
    json_t *array = json_array();
    spry_status status = SPRY_OK;
    if (store && array)
        status = spry_chat_store_list(store, flags->limit, add_json, array, error);
    char *text = array && status == SPRY_OK ? spry_json_text(array, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(array);
    if (status == SPRY_OK && !text)
        status = spry_fail(error, SPRY_ERR_MEMORY, "not enough memory for the list of chats");
    if (text) {
        spry_out_answer(spry_view_of(text));
        spry_out_write("\n", 1);
    }
    free(text);
    return status;
}

int spry_chats_list(int argc, char **argv)
{
    spry_chat_flags flags;
    list_flags own = {.limit = 20};
    spry_chat_flags_default(&flags);
    const spry_option_table tables[] = {{options, SPRY_COUNT(options), &own}, spry_chat_flags_file_table(&flags)};
    int code;
    if (!spry_usage_parse(&code, &usage, tables, SPRY_COUNT(tables), NULL, argc, argv))
        return code;
    spry_error error;
    spry_chat_store *store = NULL;
    spry_status status = spry_chats_open(&store, &flags, &error);
    bool none_yet = status == SPRY_ERR_INPUT && !flags.chats;
    if (status == SPRY_OK || (none_yet && own.json))
        status = (own.json ? list_json : list_table)(store, &own, &error);
    spry_chat_store_close(store);
    if (status != SPRY_OK) {
        code = spry_complain_error(&error);
        return none_yet ? SPRY_EXIT_OK : code;
    }
    return spry_out_finish(SPRY_EXIT_OK);
}

/* ---- spry chats show and export ---------------------------------------------------------------------------------- */

enum { SHOW_TRANSCRIPT_BYTES_MAX = 1 << 30 };

/* ---- formats ----------------------------------------------------------------------------------------------------- */

static void write_json(spry_buffer *out, const spry_chat_past *past)
{
    json_t *json = chat_text_json(&past->chat, &past->conversation);
    char *text = json ? spry_json_text(json, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(json);
    if (text)
        spry_buffer_format(out, "%s\n", text);
    else
        out->failed = true;
    free(text);
}

static void write_markdown(spry_buffer *out, const spry_chat_past *past)
{
    chat_text_markdown(out, &past->chat, &past->conversation);
}

static void write_plain(spry_buffer *out, const spry_chat_past *past)
{
    chat_text_plain(out, &past->chat, &past->conversation, false);
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

/* Loads, formats, and writes to `path` or, when it is NULL, to standard output. Without a format it is the
 * transcript. */
static int write_chat(const spry_chat_flags *flags, int64_t id, const struct format *format, const char *path)
{
    spry_error error;
    spry_chat_past past;
    spry_buffer text;
    spry_buffer_init(&text, SHOW_TRANSCRIPT_BYTES_MAX);
    bool styled = !format && isatty(STDOUT_FILENO);
    spry_status status = spry_chat_past_init(&past, &error);
    if (status == SPRY_OK)
        status = spry_chats_load(&past, flags, id, &error);
    if (status == SPRY_OK && format)
        format->write(&text, &past);
    else if (status == SPRY_OK)
        chat_text_plain(&text, &past.chat, &past.conversation, styled);
    if (status == SPRY_OK && text.failed)
        status = spry_fail_memory(&error, "the transcript", text.size);
    if (status == SPRY_OK && path)
        status = spry_file_write(path, spry_buffer_view(&text), &error);
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
    SPRY_OPTION(show_flags, "json", FLAG, json, .help = "Print the complete record as JSON", .group = "Output"),
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
    SPRY_OPTION(export_flags, "format", CHOICE, format, .choices = format_names, .help = "Output format",
                .group = "Output"),
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
