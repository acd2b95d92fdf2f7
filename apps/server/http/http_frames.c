#include "server/http/http_frames.h"

#include "base/number.h"

enum { BLANKS_MAX = 8, EXTENSION_MAX = 256 };

void spry_http_frames_init(spry_http_frames *f, size_t max_head, size_t max_body)
{
    *f = (spry_http_frames){.max_head = max_head, .max_body = max_body};
    spry_buffer_init(&f->lines, max_head);
}

void spry_http_frames_deinit(spry_http_frames *f)
{
    spry_buffer_deinit(&f->lines);
}

bool spry_http_frames_between(const spry_http_frames *f)
{
    return f->state == SPRY_FRAME_HEAD && !f->lines.size;
}

unsigned spry_http_frames_fault(const char *text)
{
    uint64_t fault;
    return text && spry_number_u64(&fault, spry_view_of(text)) && fault < SPRY_FAULT_COUNT ? (unsigned)fault : 0;
}

static void refuse(spry_http_frames *f, spry_buffer *out, spry_http_fault fault)
{
    if (f->state == SPRY_FRAME_HEAD)
        spry_buffer_format(out, "GET *%d HTTP/1.1\r\nHost: -\r\nConnection: close\r\n\r\n", (int)fault);
    else
        spry_buffer_format(out, "%s0\r\n" SPRY_REFUSED_FIELD ": %d\r\n\r\n",
                           f->state == SPRY_FRAME_CHUNK_END ? "\r\n" : "", (int)fault);
    f->state = SPRY_FRAME_REFUSED;
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

static void next_lines(spry_http_frames *f, spry_frame_state state)
{
    f->state = state;
    f->lines.size = 0;
    f->line = 0;
    f->blanks = 0;
}

static void end_head(spry_http_frames *f, spry_buffer *out)
{
    spry_http_head head;
    size_t before = out->size;
    spry_http_fault fault = spry_http_head_check(&head, out, spry_buffer_view(&f->lines));
    if (fault != SPRY_FAULT_NONE) {
        out->size = before;
        refuse(f, out, fault);
        return;
    }
    f->left = head.length;
    f->total = 0;
    next_lines(f, head.chunked ? SPRY_FRAME_CHUNK_SIZE : head.length ? SPRY_FRAME_BODY : SPRY_FRAME_HEAD);
}

static bool read_size(uint64_t *size, spry_view line)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    size_t n = 0;
    const char *digit;
    *size = 0;
    for (; n < line.size && line.data[n] && (digit = strchr(digits, line.data[n])); n++)
        *size = *size * 16 + (uint64_t)((digit - digits) % 16);
    return n > 0 && n < 16 && (n == line.size || line.data[n] == ';') && line.size < EXTENSION_MAX;
}

static void begin_chunk(spry_http_frames *f, spry_buffer *out, spry_view line)
{
    uint64_t size;
    if (!read_size(&size, line)) {
        refuse(f, out, SPRY_FAULT_CHUNK);
    } else if (size > f->max_body - f->total) {
        refuse(f, out, SPRY_FAULT_BODY);
    } else if (size) {
        f->left = size;
        f->total += size;
        spry_buffer_format(out, "%llx\r\n", (unsigned long long)size);
        next_lines(f, SPRY_FRAME_CHUNK);
    } else {
        next_lines(f, SPRY_FRAME_TRAILER);
    }
}

/* `line` is complete and without its CR LF. Trailers are read and dropped. */
static void end_line(spry_http_frames *f, spry_buffer *out, spry_view line)
{
    switch (f->state) {
    case SPRY_FRAME_CHUNK_SIZE: begin_chunk(f, out, line); return;
    case SPRY_FRAME_CHUNK_END:
        if (line.size) {
            refuse(f, out, SPRY_FAULT_CHUNK);
        } else {
            spry_buffer_text(out, "\r\n");
            next_lines(f, SPRY_FRAME_CHUNK_SIZE);
        }
        return;
    case SPRY_FRAME_TRAILER:
        if (!line.size) {
            spry_buffer_text(out, "0\r\n\r\n");
            next_lines(f, SPRY_FRAME_HEAD);
        }
        return;
    default: break;
    }
    if (line.size)
        return;
    if (f->line) {
        end_head(f, out);
    } else if (++f->blanks > BLANKS_MAX) {
        refuse(f, out, SPRY_FAULT_LINE);
    } else {
        f->lines.size = 0;
    }
}

/* Takes bytes up to the end of a line. */
static void take_line(spry_http_frames *f, spry_buffer *out, spry_view *bytes)
{
    const char *end = memchr(bytes->data, '\n', bytes->size);
    char first = bytes->data[0];
    if (f->state == SPRY_FRAME_HEAD && !f->lines.size && first != '\r' && first != '\n' &&
        !spry_http_is_token(*bytes, 1)) {
        refuse(f, out, SPRY_FAULT_LINE); /* TLS, for example */
        return;
    }
    size_t size = end ? (size_t)(end - bytes->data) + 1 : bytes->size;
    if (!spry_buffer_append(&f->lines, bytes->data, size)) {
        bool in_line = f->state == SPRY_FRAME_HEAD && !f->line;
        refuse(f, out,
               f->state > SPRY_FRAME_HEAD ? SPRY_FAULT_CHUNK
               : in_line                  ? SPRY_FAULT_LONG_LINE
                                          : SPRY_FAULT_LONG_HEAD);
        return;
    }
    *bytes = (spry_view){bytes->data + size, bytes->size - size};
    if (!end)
        return;
    spry_view line = {f->lines.data + f->line, f->lines.size - f->line - 1};
    if (!spry_view_ends(line, SPRY_VIEW("\r"))) {
        refuse(f, out, SPRY_FAULT_ENDING);
        return;
    }
    line.size--;
    size_t next = f->lines.size;
    spry_frame_state state = f->state;
    end_line(f, out, line);
    if (f->state == state && f->lines.size == next)
        f->line = next;
}

/* ---- bodies ------------------------------------------------------------------------------------------------------ */

static void take_body(spry_http_frames *f, spry_buffer *out, spry_view *bytes)
{
    size_t size = f->left < bytes->size ? (size_t)f->left : bytes->size;
    spry_buffer_append(out, bytes->data, size);
    *bytes = (spry_view){bytes->data + size, bytes->size - size};
    f->left -= size;
    if (!f->left)
        next_lines(f, f->state == SPRY_FRAME_CHUNK ? SPRY_FRAME_CHUNK_END : SPRY_FRAME_HEAD);
}

void spry_http_frames_feed(spry_http_frames *f, spry_buffer *out, spry_view bytes)
{
    while (bytes.size && f->state != SPRY_FRAME_REFUSED)
        if (f->state == SPRY_FRAME_BODY || f->state == SPRY_FRAME_CHUNK)
            take_body(f, out, &bytes);
        else
            take_line(f, out, &bytes);
}
