/* spry chats list: a table that fits the terminal, newest first. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <utf8proc.h>

#include "base/utf8.h"
#include "chat/chat_text.h"
#include "chat/chats.h"
#include "cli/terminal.h"
#include "cli/usage.h"

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
    {.name = "limit",
     .kind = SPRY_OPTION_U32,
     .offset = offsetof(list_flags, limit),
     .help = "Show at most N chats; 0 shows all",
     .group = "Output"},
    {.name = "json", .kind = SPRY_OPTION_FLAG, .offset = offsetof(list_flags, json), .help = "Print a JSON array"},
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
    return json_array_append_new(array, spry_chat_text_facts(chat)) == 0;
}

static spry_status list_json(spry_chat_store *store, const list_flags *flags, spry_error *error)
{
    json_t *array = json_array();
    spry_status status = SPRY_OK;
    if (store && array)
        status = spry_chat_store_list(store, flags->limit, add_json, array, error);
    char *text = array && status == SPRY_OK ? json_dumps(array, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
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
