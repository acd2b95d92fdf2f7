/* A head is collected until its empty line, checked, and then split into strings in place. */
#include "server/http/http_request.h"

#include <ctype.h>
#include <strings.h>

#include "base/number.h"

enum { BLANKS_MAX = 8, EXTENSION_MAX = 256 };

static const struct {
    unsigned status;
    const char *text;
} faults[SPRY_FAULT_COUNT] = {
    [SPRY_FAULT_LINE] = {400, "the request line must be a method, a target and a version"},
    [SPRY_FAULT_TARGET] = {400,
                           "the target of the request must be a path or an http address, with at most 32 arguments"},
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
    [SPRY_FAULT_MEMORY] = {503, "not enough memory for the request; try again"},
};

const char *spry_http_fault_text(unsigned *status, unsigned fault)
{
    if (fault == SPRY_FAULT_NONE || fault >= SPRY_FAULT_COUNT)
        return NULL;
    *status = faults[fault].status;
    return faults[fault].text;
}

/* ---- characters -------------------------------------------------------------------------------------------------- */

/* Whether a character may be in a method or in the name of a field. */
static bool is_token_char(char c)
{
    return c && (isalnum((unsigned char)c) || strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_token(spry_view text)
{
    for (size_t i = 0; i < text.size; i++)
        if (!is_token_char(text.data[i]))
            return false;
    return text.size > 0;
}

/* Whether a text is without control characters and, unless they are allowed, blanks. */
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

/* The text before the first `end`; *rest begins after it. False: there is none. */
static bool split(spry_view *part, spry_view *rest, char end)
{
    const char *at = memchr(rest->data, end, rest->size);
    if (!at)
        return false;
    *part = (spry_view){rest->data, (size_t)(at - rest->data)};
    *rest = (spry_view){at + 1, rest->size - part->size - 1};
    return true;
}

/* Whether a list with commas has an item. */
static bool has_item(spry_view list, const char *name)
{
    spry_view item;
    while (split(&item, &list, ','))
        if (same(spry_view_trim(item, " \t"), name))
            return true;
    return same(spry_view_trim(list, " \t"), name);
}

/* ---- strings of a head ------------------------------------------------------------------------------------------- */

typedef struct head_state {
    spry_http_head *head;
    spry_view host; /* host of a target that is a complete address; data NULL: the target is a path */
    bool closes, stays;
    unsigned hosts, lengths, encodings;
} head_state;

/* The part of the head as a string: the character after it, a separator, becomes its zero. */
static char *string_of(spry_http_head *head, spry_view part)
{
    char *string = head->text.data + (part.data - head->text.data);
    string[part.size] = 0;
    return string;
}

static int digit_of(char c)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    const char *found = c ? strchr(digits, c) : NULL;
    return found ? (int)(found - digits) % 16 : -1;
}

/* In place: "%41" becomes "A" and, in a query, "+" a blank. What is no code stays. */
static void decode(char *text, bool query)
{
    char *out = text;
    for (; *text; text++) {
        int high = *text == '%' ? digit_of(text[1]) : -1, low = high >= 0 ? digit_of(text[2]) : -1;
        *out++ = low >= 0 ? (char)(high * 16 + low) : query && *text == '+' ? ' ' : *text;
        text += low >= 0 ? 2 : 0;
    }
    *out = 0;
}

/* ---- the request line -------------------------------------------------------------------------------------------- */

static bool read_query(spry_http_head *head, char *query)
{
    for (char *next; query; query = next) {
        next = strchr(query, '&');
        if (next)
            *next++ = 0;
        if (!*query)
            continue;
        if (head->n_arguments == SPRY_HTTP_ARGUMENTS_MAX)
            return false;
        char *value = strchr(query, '=');
        if (value)
            *value++ = 0;
        else
            value = query + strlen(query);
        decode(query, true);
        decode(value, true);
        head->arguments[head->n_arguments++] = (spry_http_pair){query, value};
    }
    return true;
}

/* "http://host/path" is "/path" of that host. */
static bool read_target(head_state *s, spry_view method, spry_view target)
{
    static const spry_view schemes[] = {{"http://", 7}, {"https://", 8}};
    if (!target.size || !is_plain(target, false) || memmem(target.data, target.size, "%00", 3))
        return false;
    bool fine = target.data[0] == '/' || (spry_view_is(target, "*") && spry_view_is(method, "OPTIONS"));
    for (size_t i = 0; !fine && i < SPRY_COUNT(schemes); i++) {
        if (target.size <= schemes[i].size || strncasecmp(target.data, schemes[i].data, schemes[i].size) != 0)
            continue;
        target = (spry_view){target.data + schemes[i].size, target.size - schemes[i].size};
        size_t size = 0;
        while (size < target.size && target.data[size] != '/' && target.data[size] != '?')
            size++;
        s->host = (spry_view){target.data, size};
        target = (spry_view){target.data + size, target.size - size};
        fine = size > 0 && is_host(s->host);
    }
    if (!fine)
        return false;
    char *path = string_of(s->head, target), *query = strchr(path, '?');
    if (s->host.data) { /* the host moves one byte to the left, so that a zero fits between it and the path */
        char *host = path - s->host.size - 1;
        memmove(host, host + 1, s->host.size);
        host[s->host.size] = 0;
        s->host.data = host;
    }
    if (query)
        *query++ = 0;
    decode(path, false);
    s->head->path = *path ? path : "/";
    return read_query(s->head, query);
}

static spry_http_fault read_line(head_state *s, spry_view line)
{
    spry_view method, target, version = line;
    if (!split(&method, &version, ' ') || !split(&target, &version, ' ') || !is_token(method) ||
        !spry_view_starts(version, SPRY_VIEW("HTTP/")) || !is_plain(version, false))
        return SPRY_FAULT_LINE;
    s->head->is_1_1 = spry_view_is(version, "HTTP/1.1");
    if (!s->head->is_1_1 && !spry_view_is(version, "HTTP/1.0"))
        return SPRY_FAULT_VERSION;
    if (!read_target(s, method, target))
        return SPRY_FAULT_TARGET;
    s->head->method = string_of(s->head, method);
    return SPRY_FAULT_NONE;
}

/* ---- fields ------------------------------------------------------------------------------------------------------ */

static spry_http_fault read_field(head_state *s, spry_view line)
{
    spry_http_head *head = s->head;
    spry_view name, value = line;
    if (!split(&name, &value, ':') || !is_token(name) || !is_plain(value, true))
        return SPRY_FAULT_FIELD;
    value = spry_view_trim(value, " \t");
    if (head->n_fields == SPRY_HTTP_FIELDS_MAX)
        return SPRY_FAULT_LONG_HEAD;
    if (same(name, "Host") && (s->hosts++ || !is_host(value)))
        return SPRY_FAULT_HOST;
    if (same(name, "Content-Length") &&
        (s->lengths++ || !spry_number_u64(&head->length, value) || head->length > INT64_MAX))
        return SPRY_FAULT_LENGTH;
    if (same(name, "Transfer-Encoding")) {
        if (s->encodings++ || !head->is_1_1 || !same(value, "chunked"))
            return SPRY_FAULT_ENCODING;
        head->chunked = true;
    }
    if (same(name, "Connection")) {
        s->closes = s->closes || has_item(value, "close");
        s->stays = s->stays || has_item(value, "keep-alive");
    }
    head->expects = head->expects || (head->is_1_1 && same(name, "Expect") && same(value, "100-continue"));
    if (same(name, "Host") && s->host.data)
        value = s->host;
    head->fields[head->n_fields++] = (spry_http_pair){string_of(head, name), string_of(head, value)};
    return SPRY_FAULT_NONE;
}

/* Reads the text of a head, with the empty line at its end. */
static spry_http_fault read_head(spry_http_head *head)
{
    head_state s = {.head = head};
    spry_view text = spry_buffer_view(&head->text), line;
    spry_http_fault fault = SPRY_FAULT_NONE;
    for (bool first = true; fault == SPRY_FAULT_NONE && split(&line, &text, '\n'); first = false) {
        line.size--; /* CR */
        if (!line.size)
            break;
        fault = first ? read_line(&s, line) : read_field(&s, line);
    }
    if (fault != SPRY_FAULT_NONE)
        return fault;
    if (s.lengths && s.encodings)
        return SPRY_FAULT_BOTH;
    if (!s.hosts && head->is_1_1)
        return SPRY_FAULT_HOST;
    head->keeps = head->is_1_1 ? !s.closes : s.stays && !s.closes;
    return SPRY_FAULT_NONE;
}

const char *spry_http_head_field(const spry_http_head *head, const char *name)
{
    for (size_t i = 0; i < head->n_fields; i++)
        if (strcasecmp(head->fields[i].name, name) == 0)
            return head->fields[i].value;
    return NULL;
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

static void refuse(spry_http_parser *p, spry_http_fault fault)
{
    p->state = SPRY_PARSE_REFUSED;
    p->fault = fault;
}

static void next_lines(spry_http_parser *p, spry_parse_state state)
{
    p->state = state;
    p->lines.size = 0;
    p->line = 0;
}

static void end_head(spry_http_parser *p)
{
    p->head.text = p->lines;
    spry_buffer_init(&p->lines, p->max_head);
    spry_http_fault fault = read_head(&p->head);
    p->left = p->head.length;
    if (fault != SPRY_FAULT_NONE)
        refuse(p, fault);
    else
        next_lines(p, p->head.chunked ? SPRY_PARSE_CHUNK_SIZE : p->left ? SPRY_PARSE_BODY : SPRY_PARSE_COMPLETE);
}

static void begin_chunk(spry_http_parser *p, const spry_buffer *body, spry_view line)
{
    size_t n = 0;
    uint64_t size = 0;
    for (; n < line.size && n < 16 && digit_of(line.data[n]) >= 0; n++)
        size = size * 16 + (uint64_t)digit_of(line.data[n]);
    if (n == 0 || n == 16 || (n < line.size && line.data[n] != ';') || line.size >= EXTENSION_MAX)
        refuse(p, SPRY_FAULT_CHUNK);
    else if (size > p->max_body - body->size)
        refuse(p, SPRY_FAULT_BODY);
    else
        next_lines(p, size ? SPRY_PARSE_CHUNK : SPRY_PARSE_TRAILER);
    p->left = size;
}

/* `line` is complete and without its CR LF. Trailers are read and dropped. */
static void end_line(spry_http_parser *p, const spry_buffer *body, spry_view line)
{
    if (p->state == SPRY_PARSE_CHUNK_SIZE) {
        begin_chunk(p, body, line);
    } else if (p->state == SPRY_PARSE_CHUNK_END) {
        if (line.size)
            refuse(p, SPRY_FAULT_CHUNK);
        else
            next_lines(p, SPRY_PARSE_CHUNK_SIZE);
    } else if (p->state == SPRY_PARSE_TRAILER) {
        if (!line.size)
            next_lines(p, SPRY_PARSE_COMPLETE);
        p->line = p->lines.size;
    } else if (line.size) {
        p->line = p->lines.size;
    } else if (p->line) {
        end_head(p);
    } else if (++p->blanks > BLANKS_MAX) {
        refuse(p, SPRY_FAULT_LINE);
    } else {
        p->lines.size = 0;
    }
}

/* Takes bytes up to the end of a line; returns how many. */
static size_t take_line(spry_http_parser *p, const spry_buffer *body, spry_view bytes)
{
    const char *end = memchr(bytes.data, '\n', bytes.size);
    char first = bytes.data[0];
    size_t size = end ? (size_t)(end - bytes.data) + 1 : bytes.size;
    if (p->state == SPRY_PARSE_HEAD && !p->lines.size && first != '\r' && first != '\n' && !is_token_char(first)) {
        refuse(p, SPRY_FAULT_LINE); /* TLS, for example */
        return 0;
    }
    if (!spry_buffer_append(&p->lines, bytes.data, size)) {
        refuse(p, p->lines.size + size <= p->lines.max ? SPRY_FAULT_MEMORY
                  : p->state != SPRY_PARSE_HEAD        ? SPRY_FAULT_CHUNK
                  : p->line                            ? SPRY_FAULT_LONG_HEAD
                                                       : SPRY_FAULT_LONG_LINE);
        return 0;
    }
    if (!end)
        return size;
    spry_view line = {p->lines.data + p->line, p->lines.size - p->line - 1};
    if (!spry_view_ends(line, SPRY_VIEW("\r"))) {
        refuse(p, SPRY_FAULT_ENDING);
        return size;
    }
    line.size--;
    end_line(p, body, line);
    return size;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

void spry_http_parser_init(spry_http_parser *p, size_t max_head, size_t max_body)
{
    *p = (spry_http_parser){.max_head = max_head, .max_body = max_body};
    spry_buffer_init(&p->lines, max_head);
}

void spry_http_parser_deinit(spry_http_parser *p)
{
    spry_buffer_deinit(&p->lines);
    spry_buffer_deinit(&p->head.text);
}

void spry_http_parser_reset(spry_http_parser *p)
{
    spry_http_parser_deinit(p);
    spry_http_parser_init(p, p->max_head, p->max_body);
}

static size_t take_body(spry_http_parser *p, spry_buffer *body, spry_view bytes)
{
    size_t size = p->left < bytes.size ? (size_t)p->left : bytes.size;
    p->left -= size;
    if (!spry_buffer_append(body, bytes.data, size))
        refuse(p, SPRY_FAULT_MEMORY);
    else if (!p->left)
        next_lines(p, p->state == SPRY_PARSE_CHUNK ? SPRY_PARSE_CHUNK_END : SPRY_PARSE_COMPLETE);
    return size;
}

size_t spry_http_parser_feed(spry_http_parser *p, spry_buffer *body, spry_view bytes)
{
    size_t used = 0;
    bool in_head = p->state == SPRY_PARSE_HEAD;
    while (used < bytes.size && p->state < SPRY_PARSE_COMPLETE && in_head == (p->state == SPRY_PARSE_HEAD)) {
        spry_view rest = {bytes.data + used, bytes.size - used};
        bool data = p->state == SPRY_PARSE_BODY || p->state == SPRY_PARSE_CHUNK;
        used += data ? take_body(p, body, rest) : take_line(p, body, rest);
    }
    return used;
}
