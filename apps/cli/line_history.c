#include "cli/line_editor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/utf8.h"
#include "platform/file.h"

enum { ENTRIES_MAX = 1000, FILE_BYTES_MAX = 4 << 20, ENTRY_BYTES_MAX = 1 << 16 };

struct spry_line_history {
    const char *path; /* NULL: not stored */
    char *entries[ENTRIES_MAX];
    size_t count;
};

/* ---- entries ----------------------------------------------------------------------------------------------------- */

/* False: blank, a repetition, or memory is short. */
static bool keep(spry_line_history *h, spry_view text)
{
    size_t i = 0;
    while (i < text.size && strchr(" \t\n", text.data[i]))
        i++;
    if (i == text.size || (h->count && spry_view_is(text, h->entries[h->count - 1])))
        return false;
    char *copy = strndup(text.data, text.size);
    if (!copy)
        return false;
    if (h->count == ENTRIES_MAX) {
        free(h->entries[0]);
        memmove(h->entries, h->entries + 1, --h->count * sizeof *h->entries);
    }
    h->entries[h->count++] = copy;
    return true;
}

size_t spry_line_history_count(const spry_line_history *history)
{
    return history->count;
}

spry_view spry_line_history_at(const spry_line_history *history, size_t index)
{
    return spry_view_of(history->entries[index]);
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static void encode(spry_buffer *out, spry_view text)
{
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] == '\\' || text.data[i] == '\n')
            spry_buffer_text(out, text.data[i] == '\n' ? "\\n" : "\\\\");
        else
            spry_buffer_append(out, &text.data[i], 1);
    }
    spry_buffer_text(out, "\n");
}

static bool is_octal(char c)
{
    return c >= '0' && c <= '7';
}

/* Also spaces as earlier versions wrote them: a backslash and three octal digits. */
static void decode(spry_buffer *out, spry_view line)
{
    spry_buffer_clear(out);
    for (size_t i = 0; i < line.size; i++) {
        const char *at = line.data + i;
        size_t left = line.size - i;
        char byte = *at;
        if (byte == '\\' && left > 3 && is_octal(at[1]) && is_octal(at[2]) && is_octal(at[3])) {
            byte = (char)((at[1] - '0') * 64 + (at[2] - '0') * 8 + at[3] - '0');
            i += 3;
        } else if (byte == '\\' && left > 1) {
            byte = at[1] == 'n' ? '\n' : at[1];
            i++;
        }
        spry_buffer_append(out, &byte, 1);
    }
}

/* Replaces the file by the entries. */
static spry_status write_all(const spry_line_history *h, spry_error *error)
{
    spry_file_writer writer;
    spry_buffer text;
    spry_buffer_init(&text, 2 * FILE_BYTES_MAX);
    for (size_t i = 0; i < h->count; i++)
        encode(&text, spry_view_of(h->entries[i]));
    spry_status status = spry_file_writer_open(&writer, h->path, error);
    if (status == SPRY_OK) {
        fchmod(fileno(writer.file), S_IRUSR | S_IWUSR);
        status = spry_file_writer_write(&writer, spry_buffer_view(&text).data, text.size, error);
        if (status == SPRY_OK)
            status = spry_file_writer_commit(&writer, error);
        else
            spry_file_writer_abandon(&writer);
    }
    spry_buffer_deinit(&text);
    return status;
}

/* Writes the file anew when it has too many lines, or others than this version writes. */
static void load(spry_line_history *h)
{
    static const spry_view former = {"_HiStOrY_V2_", 12};
    struct stat facts;
    spry_buffer file, entry;
    spry_buffer_init(&file, FILE_BYTES_MAX);
    spry_buffer_init(&entry, FILE_BYTES_MAX);
    if (stat(h->path, &facts) != 0 || !S_ISREG(facts.st_mode))
        return;
    bool read = spry_file_read(&file, h->path, NULL) == SPRY_OK, renew = !read;
    spry_view rest = spry_buffer_view(&file);
    for (size_t n = 0; read && rest.size; n++) {
        const char *newline = memchr(rest.data, '\n', rest.size);
        spry_view line = {rest.data, newline ? (size_t)(newline - rest.data) : rest.size};
        rest.data += line.size + (newline != NULL);
        rest.size -= line.size + (newline != NULL);
        if (n == 0 && spry_view_starts(line, former)) {
            renew = true;
            continue;
        }
        decode(&entry, line);
        bool valid = spry_utf8_valid(spry_buffer_view(&entry)) && !memchr(line.data, 0, line.size);
        renew = renew || !valid || n >= ENTRIES_MAX;
        if (valid)
            keep(h, spry_buffer_view(&entry));
    }
    if (renew)
        write_all(h, NULL); /* a failure shows when a line is added */
    spry_buffer_deinit(&file);
    spry_buffer_deinit(&entry);
}

/* Creates the folders of the file; failures show when it is opened. */
static void make_parents(const char *path)
{
    char *copy = strdup(path);
    for (char *slash = copy ? strchr(copy + 1, '/') : NULL; slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(copy, 0700);
        *slash = '/';
    }
    free(copy);
}

static spry_status append(spry_line_history *h, spry_view text, spry_error *error)
{
    spry_buffer line;
    spry_buffer_init(&line, 4 * ENTRY_BYTES_MAX);
    encode(&line, text);
    int file = open(h->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR);
    ssize_t written = file >= 0 ? write(file, line.data, line.size) : -1;
    spry_status status = SPRY_OK;
    if (written < 0 || (size_t)written < line.size)
        status =
            spry_fail(error, SPRY_ERR_FILE, "cannot write %s: %s", h->path, strerror(written < 0 ? errno : ENOSPC));
    if (file >= 0)
        close(file);
    spry_buffer_deinit(&line);
    return status;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

spry_status spry_line_history_create(spry_line_history **out, const char *path, spry_error *error)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return spry_fail_memory(error, "the history", sizeof **out);
    (*out)->path = path;
    if (path) {
        make_parents(path);
        load(*out);
    }
    return SPRY_OK;
}

void spry_line_history_destroy(spry_line_history *history)
{
    for (size_t i = 0; history && i < history->count; i++)
        free(history->entries[i]);
    free(history);
}

spry_status spry_line_history_add(spry_line_history *h, spry_view text, spry_error *error)
{
    if (!keep(h, text) || !h->path || text.size > ENTRY_BYTES_MAX)
        return SPRY_OK;
    spry_status status = append(h, text, error);
    if (status != SPRY_OK)
        h->path = NULL;
    return status;
}
