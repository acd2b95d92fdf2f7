/* The parser of requests: well-formed ones are read, every other one is refused with its fault, and the division of the
 * bytes changes nothing; and the fields of forms. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "server/http/form_data.h"
#include "server/http/http_request.h"

enum { MAX_HEAD = 4096, MAX_BODY = 64 };

/* Writes a request as "GET /path [argument=value] 1.1 {Field: value} <body>". */
static void print(spry_buffer *out, const spry_http_head *head, const spry_buffer *body)
{
    spry_buffer_format(out, "%s %s", head->method, head->path);
    for (size_t i = 0; i < head->n_arguments; i++)
        spry_buffer_format(out, " [%s=%s]", head->arguments[i].name, head->arguments[i].value);
    spry_buffer_text(out, head->is_1_1 ? " 1.1" : " 1.0");
    for (size_t i = 0; i < head->n_fields; i++)
        spry_buffer_format(out, " {%s: %s}", head->fields[i].name, head->fields[i].value);
    if (body->size)
        spry_buffer_format(out, " <%s>", body->data);
    spry_buffer_text(out, "\n");
}

/* Parses bytes that arrive `step` at a time, and writes the requests, and "!FAULT" for one that is refused. */
static void feed(spry_buffer *out, spry_view bytes, size_t step)
{
    spry_http_parser parser;
    spry_buffer body;
    spry_http_parser_init(&parser, MAX_HEAD, MAX_BODY);
    spry_buffer_init(&body, MAX_BODY);
    for (size_t i = 0; i < bytes.size; i += step) {
        size_t n = bytes.size - i < step ? bytes.size - i : step, used = 0;
        char *exact = malloc(n); /* so that a sanitizer sees a byte too much */
        memcpy(exact, bytes.data + i, n);
        while (used < n && parser.state != SPRY_PARSE_REFUSED) {
            used += spry_http_parser_feed(&parser, &body, (spry_view){exact + used, n - used});
            if (parser.state == SPRY_PARSE_REFUSED)
                spry_buffer_format(out, "!%d\n", (int)parser.fault);
            if (parser.state != SPRY_PARSE_COMPLETE)
                continue;
            print(out, &parser.head, &body);
            spry_http_parser_reset(&parser);
            spry_buffer_clear(&body);
        }
        free(exact);
    }
    spry_http_parser_deinit(&parser);
    spry_buffer_deinit(&body);
}

static void expect(const char *text, size_t size, const char *wanted)
{
    static const size_t steps[] = {1, 2, 3, 5, 7, 64, 1 << 20};
    for (size_t i = 0; i < SPRY_COUNT(steps); i++) {
        spry_buffer out;
        spry_buffer_init(&out, 1 << 20);
        feed(&out, (spry_view){text, size}, steps[i]);
        assert_string_equal(spry_buffer_view(&out).data, wanted);
        spry_buffer_deinit(&out);
    }
}

static void expect_text(const char *text, const char *wanted)
{
    expect(text, strlen(text), wanted);
}

static void expect_fault(const char *text, size_t size, spry_http_fault fault)
{
    char wanted[16];
    snprintf(wanted, sizeof wanted, "!%d\n", (int)fault);
    expect(text, size, wanted);
}

#define FAULT(text, fault) expect_fault((text), sizeof(text) - 1, (fault))
#define HOST               "Host: a\r\n"

static void test_requests(void **state)
{
    (void)state;
    expect_text("GET / HTTP/1.1\r\n" HOST "\r\n", "GET / 1.1 {Host: a}\n");
    expect_text("GET / HTTP/1.0\r\n\r\n", "GET / 1.0\n");
    expect_text("POST /a?b=c HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\n" HOST "\r\n",
                "POST /a [b=c] 1.1 {Host: a} {Content-Length: 3} <abc>\nGET / 1.1 {Host: a}\n");
    expect_text("POST /a HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\n\n\r\n0\r\n\r\n"
                "HEAD / HTTP/1.1\r\n" HOST "X: \xc3\xa4\r\n\r\n",
                "POST /a 1.1 {Host: a} {Transfer-Encoding: chunked} <abc\n>\nHEAD / 1.1 {Host: a} {X: \xc3\xa4}\n");
    expect_text("OPTIONS * HTTP/1.1\r\n" HOST "\r\n", "OPTIONS * 1.1 {Host: a}\n");
    expect_text("POST /a HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\nGET / HTTP/1.1\r\n" HOST "\r\n",
                "POST /a 1.1 {Host: a} {Content-Length: 0}\nGET / 1.1 {Host: a}\n");
}

static void test_forms_are_made_one(void **state)
{
    (void)state;
    expect_text("GET http://b:80/x?y HTTP/1.1\r\nhost: a\r\n\r\nGET HTTPS://b?y HTTP/1.1\r\nHost:a\r\n\r\n"
                "GET http://b HTTP/1.1\r\nHost:a\r\n\r\n",
                "GET /x [y=] 1.1 {host: b:80}\nGET / [y=] 1.1 {Host: b}\nGET / 1.1 {Host: b}\n");
    expect_text("\r\n\r\nGET / HTTP/1.1\r\nHost:\t a \t\r\nX: \r\nY:\r\n\r\n", "GET / 1.1 {Host: a} {X: } {Y: }\n");
    expect_text("PUT / HTTP/1.1\r\n" HOST "Transfer-Encoding: Chunked\r\n\r\n"
                "00A;x=\"y\"\r\n0123456789\r\n0\r\nX-Trailer: 1\r\nHost: b\r\n\r\nGET / HTTP/1.0\r\n\r\n",
                "PUT / 1.1 {Host: a} {Transfer-Encoding: Chunked} <0123456789>\nGET / 1.0\n");
}

static void test_targets_are_decoded(void **state)
{
    (void)state;
    expect_text("GET /a%20b%2F+%4a%4%zz% HTTP/1.0\r\n\r\n", "GET /a b/+J%4%zz% 1.0\n");
    expect_text("GET /?a=b+c%26d&&e&=f&g=h=i%3D HTTP/1.0\r\n\r\n", "GET / [a=b c&d] [e=] [=f] [g=h=i=] 1.0\n");
    char text[256] = "GET /?";
    for (int i = 0; i < 32; i++)
        strncat(text, "a&", 3);
    size_t size = strlen(text);
    snprintf(text + size, sizeof text - size, " HTTP/1.0\r\n\r\n");
    spry_buffer out;
    spry_buffer_init(&out, 4096);
    feed(&out, spry_view_of(text), 1);
    assert_true(spry_view_starts(spry_buffer_view(&out), SPRY_VIEW("GET / [a=] [a=]")));
    spry_buffer_deinit(&out);
    snprintf(text + size, sizeof text - size, "a HTTP/1.0\r\n\r\n");
    expect_fault(text, strlen(text), SPRY_FAULT_TARGET);
}

/* What the fields of a head say of its connection. */
static spry_http_head read_head(const char *fields)
{
    spry_http_parser parser;
    char text[256];
    snprintf(text, sizeof text, "GET / %s\r\n\r\n", fields);
    spry_http_parser_init(&parser, MAX_HEAD, MAX_BODY);
    assert_int_equal(spry_http_parser_feed(&parser, NULL, spry_view_of(text)), strlen(text));
    assert_int_equal(parser.state, SPRY_PARSE_COMPLETE);
    spry_http_head head = parser.head;
    spry_http_parser_deinit(&parser);
    return head;
}

static void test_connection(void **state)
{
    (void)state;
    assert_true(read_head("HTTP/1.1\r\n" HOST "Connection: keep-alive, closer").keeps);
    assert_false(read_head("HTTP/1.1\r\n" HOST "Connection: keep-alive ,\tCLOSE").keeps);
    assert_false(read_head("HTTP/1.1\r\n" HOST "Connection: x\r\nconnection: close").keeps);
    assert_false(read_head("HTTP/1.0").keeps);
    assert_true(read_head("HTTP/1.0\r\nConnection: Keep-Alive").keeps);
    assert_false(read_head("HTTP/1.0\r\nConnection: keep-alive, close").keeps);
    assert_true(read_head("HTTP/1.1\r\n" HOST "Expect: 100-Continue").expects);
    assert_false(read_head("HTTP/1.1\r\n" HOST "Expect: 200").expects);
    assert_false(read_head("HTTP/1.0\r\nExpect: 100-continue").expects);
}

static void test_heads_refused(void **state)
{
    (void)state;
    FAULT("GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n" HOST "\r\n", SPRY_FAULT_HOST);
    FAULT("GET / HTTP/1.1\r\n" HOST HOST "\r\n", SPRY_FAULT_HOST);
    FAULT("GET / HTTP/1.0\r\n" HOST HOST "\r\n", SPRY_FAULT_HOST);
    FAULT("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", SPRY_FAULT_HOST);
    FAULT("GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", SPRY_FAULT_HOST);
    FAULT("GET /\r\n\r\n", SPRY_FAULT_LINE);
    FAULT("GET  / HTTP/1.1\r\n" HOST "\r\n", SPRY_FAULT_LINE);
    FAULT("GET / HTTP/1.1 \r\n" HOST "\r\n", SPRY_FAULT_LINE);
    FAULT("GE(T / HTTP/1.1\r\n" HOST "\r\n", SPRY_FAULT_LINE);
    FAULT("\x16\x03\x01\x02\x00\x01", SPRY_FAULT_LINE);
    FAULT("\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n", SPRY_FAULT_LINE);
    FAULT("GET / HTTP/2.0\r\n" HOST "\r\n", SPRY_FAULT_VERSION);
    FAULT("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", SPRY_FAULT_VERSION);
    FAULT("GET / HTTP/1.11\r\n" HOST "\r\n", SPRY_FAULT_VERSION);
    FAULT("GET * HTTP/1.1\r\n" HOST "\r\n", SPRY_FAULT_TARGET);
    FAULT("GET *5 HTTP/1.1\r\n" HOST "\r\n", SPRY_FAULT_TARGET);
    FAULT("CONNECT a:80 HTTP/1.1\r\n" HOST "\r\n", SPRY_FAULT_TARGET);
    FAULT("GET http:///x HTTP/1.1\r\n" HOST "\r\n", SPRY_FAULT_TARGET);
    FAULT("GET http://u@b/x HTTP/1.1\r\n" HOST "\r\n", SPRY_FAULT_TARGET);
    FAULT("GET /a%00b HTTP/1.1\r\n" HOST "\r\n", SPRY_FAULT_TARGET);
    FAULT("GET /a\tb HTTP/1.1\r\n" HOST "\r\n", SPRY_FAULT_TARGET);
    FAULT("GET / HTTP/1.1\r\n" HOST "X: a\r\n b\r\n\r\n", SPRY_FAULT_FIELD);
    FAULT("GET / HTTP/1.1\r\n" HOST "X : a\r\n\r\n", SPRY_FAULT_FIELD);
    FAULT("GET / HTTP/1.1\r\n" HOST "X\r\n\r\n", SPRY_FAULT_FIELD);
    FAULT("GET / HTTP/1.1\r\n" HOST ": a\r\n\r\n", SPRY_FAULT_FIELD);
    FAULT("GET / HTTP/1.1\r\n" HOST "X: a\rb\r\n\r\n", SPRY_FAULT_FIELD);
    FAULT("GET / HTTP/1.1\r\n" HOST "X: a\0b\r\n\r\n", SPRY_FAULT_FIELD);
    FAULT("GET / HTTP/1.1\nHost: a\n\n", SPRY_FAULT_ENDING);
    FAULT("GET / HTTP/1.1\r\nHost: a\n\r\n", SPRY_FAULT_ENDING);
}

static void test_lengths_refused(void **state)
{
    (void)state;
    static const char *const lengths[] = {
        "-2", "+2", "2 ", "0x2", "", "2, 2", "2.0", "9223372036854775808", "1e3", "99999999999999999999"};
    for (size_t i = 0; i < SPRY_COUNT(lengths); i++) {
        char text[128];
        int n = snprintf(text, sizeof text, "POST / HTTP/1.1\r\n" HOST "Content-Length: %s\r\n\r\nab", lengths[i]);
        if (i != 2) /* blanks around a value are no part of it */
            expect_fault(text, (size_t)n, SPRY_FAULT_LENGTH);
    }
    FAULT("POST / HTTP/1.1\r\n" HOST "Content-Length: 2\r\nContent-Length: 2\r\n\r\nab", SPRY_FAULT_LENGTH);
    FAULT("POST / HTTP/1.1\r\n" HOST "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
          SPRY_FAULT_BOTH);
    FAULT("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n",
          SPRY_FAULT_BOTH);
    FAULT("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip, chunked\r\n\r\n", SPRY_FAULT_ENCODING);
    FAULT("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: xchunked\r\n\r\n", SPRY_FAULT_ENCODING);
    FAULT("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
          SPRY_FAULT_ENCODING);
    FAULT("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", SPRY_FAULT_ENCODING);
}

#define CHUNKED "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"

static void expect_cut(const char *body, spry_http_fault fault)
{
    char text[512];
    int n = snprintf(text, sizeof text, CHUNKED "%sGET / HTTP/1.1\r\n" HOST "\r\n", body);
    expect_fault(text, (size_t)n, fault);
}

static void test_chunks_refused(void **state)
{
    (void)state;
    expect_cut("3\nabc\r\n", SPRY_FAULT_ENDING);
    expect_cut("x\r\n", SPRY_FAULT_CHUNK);
    expect_cut("\r\n", SPRY_FAULT_CHUNK);
    expect_cut("-1\r\n", SPRY_FAULT_CHUNK);
    expect_cut(" 3\r\nabc\r\n", SPRY_FAULT_CHUNK);
    expect_cut("3 \r\nabc\r\n", SPRY_FAULT_CHUNK);
    expect_cut("0x3\r\nabc\r\n", SPRY_FAULT_CHUNK);
    expect_cut("fffffffffffffffff\r\n", SPRY_FAULT_CHUNK);
    expect_cut("3\r\nabcd\r\n", SPRY_FAULT_CHUNK);
    expect_cut("3\r\nabc\n", SPRY_FAULT_ENDING);
    expect_cut("41\r\n", SPRY_FAULT_BODY);
    expect_cut("fffffffffffffff\r\n", SPRY_FAULT_BODY);
    expect_cut("1\r\na\r\n40\r\n", SPRY_FAULT_BODY);
    expect_cut("0\r\nX: 1\n", SPRY_FAULT_ENDING);
}

/* Heads at their limit and one byte beyond it. */
static void test_limits(void **state)
{
    (void)state;
    char *text = malloc(2 * MAX_HEAD);
    for (int over = 0; over < 2; over++) {
        size_t fill = MAX_HEAD - strlen("GET / HTTP/1.1\r\n" HOST "X: \r\n\r\n") + (size_t)over;
        int n = snprintf(text, 2 * MAX_HEAD, "GET / HTTP/1.1\r\n" HOST "X: %0*d\r\n\r\n", (int)fill, 7);
        spry_buffer out;
        spry_buffer_init(&out, 2 * MAX_HEAD);
        feed(&out, (spry_view){text, (size_t)n}, 100);
        assert_true(over || spry_view_starts(spry_buffer_view(&out), SPRY_VIEW("GET / 1.1 {Host: a} {X: 0000")));
        spry_buffer_deinit(&out);
        if (over)
            expect_fault(text, (size_t)n, SPRY_FAULT_LONG_HEAD);
    }
    int n = snprintf(text, 2 * MAX_HEAD, "GET /%0*d HTTP/1.1\r\n", MAX_HEAD, 7);
    expect_fault(text, (size_t)n, SPRY_FAULT_LONG_LINE);
    size_t size = (size_t)snprintf(text, 2 * MAX_HEAD, "GET / HTTP/1.1\r\n" HOST);
    for (int i = 0; i < 128; i++)
        size += (size_t)snprintf(text + size, 2 * MAX_HEAD - size, "a:\r\n");
    size += (size_t)snprintf(text + size, 2 * MAX_HEAD - size, "\r\n");
    expect_fault(text, size, SPRY_FAULT_LONG_HEAD);
    free(text);
}

static void test_faults_have_texts(void **state)
{
    (void)state;
    unsigned status;
    for (unsigned fault = 1; fault < SPRY_FAULT_COUNT; fault++) {
        assert_non_null(spry_http_fault_text(&status, fault));
        assert_in_range(status, 400, 505);
    }
    assert_null(spry_http_fault_text(&status, 0));
    assert_null(spry_http_fault_text(&status, SPRY_FAULT_COUNT));
}

/* ---- any bytes --------------------------------------------------------------------------------------------------- */

static uint32_t random_state = 1;

static uint32_t random_below(uint32_t n)
{
    random_state = random_state * 1664525 + 1013904223;
    return (random_state >> 8) % n;
}

/* Requests with bytes changed, removed and repeated: whole and byte by byte they are read in the same way. */
static void test_changed_requests(void **state)
{
    enum { ROUNDS = 20000, BYTES = 1024 };
    static const char *const requests[] = {
        "GET http://b:80/x?y=%41&z HTTP/1.1\r\nhost: a\r\nConnection: close\r\n\r\n",
        "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
        "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;a\r\nabc\r\n0\r\nX: y\r\n\r\n"};
    static const char bytes[] = "\r\n :;,?&=%/0159afAFzHost\t\0\x7f\xff*\"";
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        char text[BYTES];
        size_t size = 0;
        for (uint32_t i = 0, n = 1 + random_below(3); i < n; i++) {
            const char *request = requests[random_below(SPRY_COUNT(requests))];
            memcpy(text + size, request, strlen(request));
            size += strlen(request);
        }
        for (uint32_t i = 0, n = random_below(4); i < n; i++) {
            size_t at = random_below((uint32_t)size), run = 1 + random_below(4);
            run = at + run > size ? size - at : run;
            if (random_below(3) == 0)
                memmove(text + at, text + at + run, (size -= run) - at);
            else if (random_below(2) == 0)
                text[at] = bytes[random_below(sizeof bytes)];
            else if (size + run < BYTES)
                memmove(text + at + run, text + at, (size += run) - at - run);
        }
        spry_buffer whole, single;
        spry_buffer_init(&whole, 1 << 20);
        spry_buffer_init(&single, 1 << 20);
        feed(&whole, (spry_view){text, size}, BYTES);
        feed(&single, (spry_view){text, size}, 1);
        assert_string_equal(spry_buffer_view(&whole).data, spry_buffer_view(&single).data);
        spry_buffer_deinit(&whole);
        spry_buffer_deinit(&single);
    }
}

/* ---- forms ------------------------------------------------------------------------------------------------------- */

#define PART(name, value) "--b c\r\nContent-Disposition: form-data; " name "\r\n\r\n" value "\r\n"
#define TYPE              "multipart/form-data; charset=x; Boundary=\"b c\""

/* The fields of a form as "name=value|"; NULL: it is refused. The body is in memory of its exact size. */
static const char *split_form(char out[256], const char *type, const char *body, size_t size)
{
    spry_form form;
    char *exact = malloc(size + 1);
    memcpy(exact, body, size);
    char *shrunk = realloc(exact, size ? size : 1);
    bool fine = spry_form_split(&form, type, shrunk, size);
    out[0] = 0;
    for (size_t i = 0, n = 0; fine && i < form.count; i++) {
        assert_int_equal(form.fields[i].value.data[form.fields[i].value.size], 0);
        n += (size_t)snprintf(out + n, 256 - n, "%s=%s|", form.fields[i].name, form.fields[i].value.data);
    }
    free(shrunk);
    return fine ? out : NULL;
}

static void test_form_fields(void **state)
{
    (void)state;
    char out[256];
    static const char form[] = "preamble\r\n" PART("name=\"a\"", "1\r\n--b") PART("filename=\"name=x; y\"; NAME=b", "")
        PART("filename=\"nameless\"",
             "x") "--b c\r\nX: y\r\ncontent-disposition: form-data; name=\"c\"\r\n\r\n3\r\n--b c--";
    assert_string_equal(split_form(out, TYPE, form, sizeof form - 1), "a=1\r\n--b|b=|c=3|");
    assert_string_equal(split_form(out, TYPE, "--b c--", 7), "");
    assert_null(split_form(out, "multipart/form-data", form, sizeof form - 1));
    assert_null(split_form(out, "multipart/form-data; boundary=", form, sizeof form - 1));
    assert_null(split_form(out, "multipart/form-data; boundary=other", form, sizeof form - 1));
    for (size_t size = 0; size < sizeof form - 1; size++)
        assert_null(split_form(out, TYPE, form, size));
    char many[8192];
    size_t size = 0;
    for (int i = 0; i <= SPRY_FORM_FIELDS; i++)
        size += (size_t)snprintf(many + size, sizeof many - size, PART("name=\"a\"", "1"));
    snprintf(many + size, sizeof many - size, "--b c--");
    assert_null(split_form(out, TYPE, many, size + 7));
}

/* Forms with bytes changed: no byte outside of them is read, which a sanitizer sees. */
static void test_changed_forms(void **state)
{
    (void)state;
    static const char form[] = PART("name=\"a\"", "1") PART("name=\"b\"; filename=\"c\"", "2") "--b c--\r\n";
    char text[sizeof form], out[256];
    for (int round = 0; round < 20000; round++) {
        memcpy(text, form, sizeof form);
        for (uint32_t i = 0; i < 3; i++)
            text[random_below(sizeof form - 1)] = "\r\n-;=\"b c"[random_below(9)];
        split_form(out, TYPE, text, 1 + random_below(sizeof form - 1));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_forms_are_made_one),
        cmocka_unit_test(test_targets_are_decoded),
        cmocka_unit_test(test_connection),
        cmocka_unit_test(test_heads_refused),
        cmocka_unit_test(test_lengths_refused),
        cmocka_unit_test(test_chunks_refused),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_faults_have_texts),
        cmocka_unit_test(test_changed_requests),
        cmocka_unit_test(test_form_fields),
        cmocka_unit_test(test_changed_forms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
