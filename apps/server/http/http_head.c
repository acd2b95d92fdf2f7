#include "server/http/http_head.h"

#include <ctype.h>
#include <strings.h>

#include "base/number.h"

enum { FIELDS_MAX = 128 };

static const struct {
    unsigned status;
    const char *text;
} faults[SPRY_FAULT_COUNT] = {
    [SPRY_FAULT_LINE] = {400, "the request line must be a method, a target and a version"},
    [SPRY_FAULT_TARGET] = {400, "the target of the request must be a path or an http address"},
    [SPRY_FAULT_VERSION] = {505, "the version must be HTTP/1.1 or HTTP/1.0"},
    [SPRY_FAULT_FIELD] = {400, "a header field must be a name, a colon and a value on one line"},
    [SPRY_FAULT_ENDING] = {400, "lines of the head and of chunks must end with CR LF"},
    [SPRY_FAULT_HOST] = {400, "the head must have one Host"},
    [SPRY_FAULT_LENGTH] = {400, "the head may have one Content-Length, which is a number"},
    [SPRY_FAULT_ENCODING] = {501, "the only Transfer-Encoding is chunked, once, in HTTP/1.1"},
    [SPRY_FAULT_BOTH] = {400, "the head must not have both Content-Length and Transfer-Encoding"},
    [SPRY_FAULT_LONG_LINE] = {414, "the request line exceeds --max-head"},
    [SPRY_FAULT_LONG_HEAD] = {431, "the head exceeds --max-head or has more than 128 fields"},
    [SPRY_FAULT_CHUNK] = {400, "the framing of the chunked body is wrong"},
    [SPRY_FAULT_BODY] = {413, "the body exceeds --max-body"},
};

const char *spry_http_fault_text(unsigned *status, unsigned fault)
{
    if (fault == SPRY_FAULT_NONE || fault >= SPRY_FAULT_COUNT)
        return NULL;
    *status = faults[fault].status;
    return faults[fault].text;
}

/* ---- characters -------------------------------------------------------------------------------------------------- */

bool spry_http_is_token(spry_view text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (!text.data[i] || (!isalnum((unsigned char)text.data[i]) && !strchr("!#$%&'*+-.^_`|~", text.data[i])))
            return false;
    return size > 0;
}

static bool is_token(spry_view text)
{
    return spry_http_is_token(text, text.size);
}

/* Neither control characters nor, unless they are allowed, blanks. */
static bool is_plain(spry_view text, bool blanks)
{
    for (size_t i = 0; i < text.size; i++) {
        unsigned char c = (unsigned char)text.data[i];
        bool blank = c == ' ' || c == '\t';
        if (c == 0x7f || (blank ? !blanks : c < ' '))
            return false;
    }
    return true;
}

static bool is_host(spry_view text)
{
    for (size_t i = 0; i < text.size; i++)
        if (!text.data[i] || (!isalnum((unsigned char)text.data[i]) && !strchr("-._~:[]%", text.data[i])))
            return false;
    return true;
}

static bool same(spry_view text, const char *name)
{
    return text.size == strlen(name) && strncasecmp(text.data, name, text.size) == 0;
}

/* The text before the first `end`; *rest begins behind it. False: there is none. */
static bool split(spry_view *part, spry_view *rest, char end)
{
    const char *at = memchr(rest->data, end, rest->size);
    if (!at)
        return false;
    *part = (spry_view){rest->data, (size_t)(at - rest->data)};
    *rest = (spry_view){at + 1, rest->size - part->size - 1};
    return true;
}

static spry_view trimmed(spry_view text)
{
    while (text.size && (text.data[0] == ' ' || text.data[0] == '\t'))
        text = (spry_view){text.data + 1, text.size - 1};
    while (text.size && (text.data[text.size - 1] == ' ' || text.data[text.size - 1] == '\t'))
        text.size--;
    return text;
}

/* ---- the request line -------------------------------------------------------------------------------------------- */

typedef struct head_state {
    spry_http_head *out;
    spry_view host; /* of a target that is an address; data NULL: it is a path */
    bool is_1_1;
    unsigned hosts, lengths, encodings, fields;
} head_state;

/* "http://host/path" is "/path" of that host. */
static bool read_target(head_state *s, spry_view method, spry_view *target)
{
    static const spry_view schemes[] = {{"http://", 7}, {"https://", 8}};
    if (!target->size || !is_plain(*target, false) || memmem(target->data, target->size, "%00", 3))
        return false;
    if (target->data[0] == '/' || (spry_view_is(*target, "*") && spry_view_is(method, "OPTIONS")))
        return true;
    for (size_t i = 0; i < SPRY_COUNT(schemes); i++) {
        if (target->size <= schemes[i].size || strncasecmp(target->data, schemes[i].data, schemes[i].size) != 0)
            continue;
        *target = (spry_view){target->data + schemes[i].size, target->size - schemes[i].size};
        size_t size = 0;
        while (size < target->size && target->data[size] != '/' && target->data[size] != '?')
            size++;
        s->host = (spry_view){target->data, size};
        *target = (spry_view){target->data + size, target->size - size};
        return size > 0 && is_host(s->host);
    }
    return false;
}

static spry_http_fault read_line(head_state *s, spry_buffer *out, spry_view line)
{
    spry_view method, target, version = line;
    if (!split(&method, &version, ' ') || !split(&target, &version, ' ') || !is_token(method) ||
        !spry_view_starts(version, SPRY_VIEW("HTTP/")) || !is_plain(version, false))
        return SPRY_FAULT_LINE;
    s->is_1_1 = spry_view_is(version, "HTTP/1.1");
    if (!s->is_1_1 && !spry_view_is(version, "HTTP/1.0"))
        return SPRY_FAULT_VERSION;
    if (!read_target(s, method, &target))
        return SPRY_FAULT_TARGET;
    spry_buffer_append(out, method.data, method.size);
    spry_buffer_text(out, target.size && target.data[0] != '?' ? " " : " /");
    spry_buffer_append(out, target.data, target.size);
    spry_buffer_text(out, s->is_1_1 ? " HTTP/1.1\r\n" : " HTTP/1.0\r\n");
    return SPRY_FAULT_NONE;
}

/* ---- fields ------------------------------------------------------------------------------------------------------ */

static spry_http_fault read_field(head_state *s, spry_buffer *out, spry_view line)
{
    spry_view name, value = line;
    if (!split(&name, &value, ':') || !is_token(name) || !is_plain(value, true))
        return SPRY_FAULT_FIELD;
    value = trimmed(value);
    if (++s->fields > FIELDS_MAX)
        return SPRY_FAULT_LONG_HEAD;
    if (same(name, "Host") && (s->hosts++ || !is_host(value)))
        return SPRY_FAULT_HOST;
    if (same(name, "Content-Length") &&
        (s->lengths++ || !spry_number_u64(&s->out->length, value) || s->out->length > INT64_MAX))
        return SPRY_FAULT_LENGTH;
    if (same(name, "Transfer-Encoding")) {
        if (s->encodings++ || !s->is_1_1 || !same(value, "chunked"))
            return SPRY_FAULT_ENCODING;
        s->out->chunked = true;
    }
    if (same(name, "Host") && s->host.data)
        value = s->host;
    spry_buffer_append(out, name.data, name.size);
    spry_buffer_text(out, ": ");
    spry_buffer_append(out, value.data, value.size);
    spry_buffer_text(out, "\r\n");
    return SPRY_FAULT_NONE;
}

spry_http_fault spry_http_head_check(spry_http_head *head, spry_buffer *out, spry_view text)
{
    head_state s = {.out = head};
    spry_view line;
    spry_http_fault fault = SPRY_FAULT_NONE;
    *head = (spry_http_head){0};
    for (bool first = true; fault == SPRY_FAULT_NONE && split(&line, &text, '\n'); first = false) {
        if (!spry_view_ends(line, SPRY_VIEW("\r")))
            return SPRY_FAULT_ENDING;
        line.size--;
        if (!line.size)
            break;
        fault = first ? read_line(&s, out, line) : read_field(&s, out, line);
    }
    if (fault != SPRY_FAULT_NONE)
        return fault;
    if (s.lengths && s.encodings)
        return SPRY_FAULT_BOTH;
    if (!s.hosts && s.is_1_1)
        return SPRY_FAULT_HOST;
    spry_buffer_text(out, "\r\n");
    return SPRY_FAULT_NONE;
}
