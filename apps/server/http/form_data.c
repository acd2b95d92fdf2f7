/* RFC 7578, with line ends of CR LF only. */
#include "server/http/form_data.h"

#include <stdio.h>
#include <strings.h>

#include "server/http/http_reply.h"
#include "server/http/http_server.h"

enum { BOUNDARY_MAX = 70 };

/* Copies the value of a parameter: 'form-data; name="file"' has the parameter "name". False: it is absent, or does not
 * fit. */
static bool read_parameter(char *out, size_t room, spry_view text, const char *name)
{
    size_t name_size = strlen(name), n = 0;
    const char *at = text.data, *end = text.data + text.size;
    for (bool quoted = false; at < end; at++) {
        quoted = quoted != (*at == '"');
        if (quoted || *at != ';')
            continue;
        while (at + 1 < end && (at[1] == ' ' || at[1] == '\t'))
            at++;
        if ((size_t)(end - at) > name_size + 1 && strncasecmp(at + 1, name, name_size) == 0 && at[name_size + 1] == '=')
            break;
    }
    if (at >= end)
        return false;
    at += name_size + 2;
    bool quoted = at < end && *at == '"';
    for (at += quoted; at < end && *at != (quoted ? '"' : ';') && n + 1 < room; at++)
        out[n++] = *at;
    out[n] = 0;
    return n && (at == end ? !quoted : *at == (quoted ? '"' : ';'));
}

/* The name of a part, from its header lines; false: it has none. */
static bool read_name(char name[SPRY_FORM_NAME], spry_view head)
{
    const spry_view field = SPRY_VIEW("Content-Disposition:");
    while (head.size) {
        const char *end = memmem(head.data, head.size, "\r\n", 2);
        spry_view line = {head.data, end ? (size_t)(end - head.data) : head.size};
        size_t step = line.size + (end ? 2 : 0);
        head = (spry_view){head.data + step, head.size - step};
        if (line.size > field.size && strncasecmp(line.data, field.data, field.size) == 0)
            return read_parameter(name, SPRY_FORM_NAME, line, "name");
    }
    return false;
}

bool spry_form_split(spry_form *form, const char *type, char *body, size_t size)
{
    char delimiter[4 + BOUNDARY_MAX + 1] = "\r\n--";
    form->count = 0;
    if (!read_parameter(delimiter + 4, BOUNDARY_MAX + 1, spry_view_of(type), "boundary"))
        return false;
    size_t length = strlen(delimiter), skip = length;
    char *at = memmem(body, size, delimiter, length), *end = body + size;
    if (size >= length - 2 && memcmp(body, delimiter + 2, length - 2) == 0) {
        at = body; /* the first delimiter may be without its line break */
        skip = length - 2;
    }
    for (; at; skip = length) {
        at += skip;
        if (end - at >= 2 && memcmp(at, "--", 2) == 0)
            return true;
        char *next = memmem(at, (size_t)(end - at), delimiter, length);
        char *value = next ? memmem(at, (size_t)(next - at), "\r\n\r\n", 4) : NULL;
        if (!value || memcmp(at, "\r\n", 2) != 0 || form->count == SPRY_FORM_FIELDS)
            return false;
        if (read_name(form->fields[form->count].name, (spry_view){at + 2, (size_t)(value - at)})) {
            *next = 0;
            form->fields[form->count++].value = (spry_view){value + 4, (size_t)(next - value - 4)};
        }
        at = next;
    }
    return false;
}

bool spry_form_open(spry_form *form, spry_exchange *x)
{
    const char *type = spry_exchange_header(x, "Content-Type");
    if (!type || strncasecmp(type, "multipart/form-data", 19) != 0) {
        spry_reply_error(x, SPRY_HTTP_UNSUPPORTED_MEDIA_TYPE, NULL, "the body must be multipart/form-data");
        return false;
    }
    if (x->body.size && spry_form_split(form, type, x->body.data, x->body.size))
        return true;
    spry_reply_error(x, SPRY_HTTP_BAD_REQUEST, NULL, "the body is not a whole form of at most %d fields",
                     SPRY_FORM_FIELDS);
    return false;
}

spry_view spry_form_get(const spry_form *form, const char *name)
{
    for (size_t i = 0; i < form->count; i++)
        if (strcmp(form->fields[i].name, name) == 0)
            return form->fields[i].value;
    return (spry_view){0};
}
