/* Reads standard input, repairs text, and parses lists of ids. */
#include "cli/input.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "base/number.h"
#include "base/utf8.h"
#include "cli/terminal.h"

enum { CHUNK_BYTES = 1 << 16 };

spry_status spry_input_read(spry_buffer *out, spry_error *error)
{
    for (;;) {
        char chunk[CHUNK_BYTES];
        ssize_t got = read(STDIN_FILENO, chunk, sizeof chunk);
        if (got == 0)
            return SPRY_OK;
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return spry_fail(error, SPRY_ERR_FILE, "cannot read standard input: %s", strerror(errno));
        if ((size_t)got > out->max - out->size)
            return spry_fail(error, SPRY_ERR_INPUT, "standard input has more than %zu bytes", out->max);
        if (!spry_buffer_append(out, chunk, (size_t)got))
            return spry_fail_memory(error, "standard input", out->size + (size_t)got);
    }
}

spry_status spry_input_clean(spry_buffer *out, spry_view bytes, const char *what, spry_error *error)
{
    size_t replaced = 0;
    for (size_t i = 0; i < bytes.size;) {
        const char *zero = memchr(bytes.data + i, 0, bytes.size - i);
        size_t size = zero ? (size_t)(zero - bytes.data) - i : bytes.size - i;
        replaced += spry_utf8_append_valid(out, (spry_view){bytes.data + i, size});
        i += size;
        if (zero) {
            spry_buffer_text(out, "\xEF\xBF\xBD");
            replaced++;
            i++;
        }
    }
    if (out->failed)
        return spry_fail_memory(error, what, bytes.size);
    if (replaced)
        spry_complain("%s is not valid UTF-8: %zu %s replaced by U+FFFD", what, replaced,
                      replaced == 1 ? "sequence was" : "sequences were");
    return SPRY_OK;
}

/* ---- ids --------------------------------------------------------------------------------------------------------- */

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static size_t skip_space(spry_view text, size_t at)
{
    while (at < text.size && is_space(text.data[at]))
        at++;
    return at;
}

static spry_view trim(spry_view text)
{
    size_t begin = skip_space(text, 0);
    while (text.size > begin && is_space(text.data[text.size - 1]))
        text.size--;
    return (spry_view){text.data + begin, text.size - begin};
}

static spry_status push_id(spry_tokens *out, spry_view word, spry_error *error)
{
    uint64_t value;
    if (!spry_number_u64(&value, word))
        return spry_fail(error, SPRY_ERR_INPUT, "'%.*s' in the list of ids is not an integer",
                         (int)(word.size < 60 ? word.size : 60), word.data);
    if (value > INT32_MAX)
        return spry_fail(error, SPRY_ERR_INPUT, "id %.*s is larger than any vocabulary", SPRY_VIEW_ARG(word));
    if (!spry_tokens_push(out, (int32_t)value))
        return spry_fail(error, SPRY_ERR_MEMORY, "not enough memory for %zu ids", out->count + 1);
    return SPRY_OK;
}

spry_status spry_input_ids(spry_tokens *out, spry_view text, spry_error *error)
{
    text = trim(text);
    if (text.size && text.data[0] == '[') {
        if (text.data[text.size - 1] != ']')
            return spry_fail(error, SPRY_ERR_INPUT, "the list of ids begins with '[' but does not end with ']'");
        text = trim((spry_view){text.data + 1, text.size - 2});
    }
    for (size_t at = 0; at < text.size;) {
        size_t begin = at;
        while (at < text.size && text.data[at] != ',' && !is_space(text.data[at]))
            at++;
        spry_status status = push_id(out, (spry_view){text.data + begin, at - begin}, error);
        if (status != SPRY_OK)
            return status;
        at = skip_space(text, at);
        if (at < text.size && text.data[at] == ',') {
            at = skip_space(text, at + 1);
            if (at == text.size)
                return spry_fail(error, SPRY_ERR_INPUT, "the list of ids ends with a comma");
        }
    }
    return SPRY_OK;
}
