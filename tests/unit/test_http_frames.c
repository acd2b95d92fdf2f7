/* What the gate passes on to libmicrohttpd: well-formed requests unchanged, every other one as exactly one request that
 * names its fault; and the same for every division of the bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "server/http/http_frames.h"

enum { MAX_HEAD = 4096, MAX_BODY = 64 };

/* What comes out when the bytes arrive `step` at a time. */
static void feed(spry_buffer *out, spry_view bytes, size_t step)
{
    spry_http_frames frames;
    spry_http_frames_init(&frames, MAX_HEAD, MAX_BODY);
    for (size_t i = 0; i < bytes.size; i += step) {
        size_t n = bytes.size - i < step ? bytes.size - i : step;
        char *exact = malloc(n); /* so that a sanitizer sees a byte too much */
        memcpy(exact, bytes.data + i, n);
        spry_http_frames_feed(&frames, out, (spry_view){exact, n});
        free(exact);
    }
    spry_http_frames_deinit(&frames);
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

static void expect_same(const char *text)
{
    expect(text, strlen(text), text);
}

static void expect_fault(const char *text, size_t size, spry_http_fault fault)
{
    char wanted[128];
    snprintf(wanted, sizeof wanted, "GET *%d HTTP/1.1\r\nHost: -\r\nConnection: close\r\n\r\n", (int)fault);
    expect(text, size, wanted);
}

#define FAULT(text, fault) expect_fault((text), sizeof(text) - 1, (fault))
#define HOST               "Host: a\r\n"

static void test_requests_pass(void **state)
{
    (void)state;
    expect_same("GET / HTTP/1.1\r\n" HOST "\r\n");
    expect_same("GET / HTTP/1.0\r\n\r\n");
    expect_same("POST /a?b=c HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\n" HOST "\r\n");
    expect_same("POST /a HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\n\n\r\n0\r\n\r\n"
                "HEAD / HTTP/1.1\r\n" HOST "X: \xc3\xa4\r\n\r\n");
    expect_same("OPTIONS * HTTP/1.1\r\n" HOST "\r\n");
    expect_same("POST /a HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\nGET / HTTP/1.1\r\n" HOST "\r\n");
}

static void test_forms_are_made_one(void **state)
{
    (void)state;
    static const char absolute[] =
        "GET http://b:80/x?y HTTP/1.1\r\nhost: a\r\n\r\nGET HTTPS://b?y HTTP/1.1\r\nHost:a\r\n\r\n";
    expect(absolute, sizeof absolute - 1, "GET /x?y HTTP/1.1\r\nhost: b:80\r\n\r\nGET /?y HTTP/1.1\r\nHost: b\r\n\r\n");
    static const char blanks[] = "\r\n\r\nGET / HTTP/1.1\r\nHost:\t a \t\r\n\r\n";
    expect(blanks, sizeof blanks - 1, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    static const char chunks[] =
        "PUT / HTTP/1.1\r\n" HOST "Transfer-Encoding: Chunked\r\n\r\n"
        "00A;x=\"y\"\r\n0123456789\r\n0\r\nX-Trailer: 1\r\nHost: b\r\n\r\nGET / HTTP/1.0\r\n\r\n";
    expect(chunks, sizeof chunks - 1,
           "PUT / HTTP/1.1\r\n" HOST
           "Transfer-Encoding: Chunked\r\n\r\na\r\n0123456789\r\n0\r\n\r\nGET / HTTP/1.0\r\n\r\n");
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

static void expect_cut(const char *body, const char *passed, spry_http_fault fault)
{
    char text[512], wanted[512];
    int n = snprintf(text, sizeof text, CHUNKED "%sGET / HTTP/1.1\r\n" HOST "\r\n", body);
    snprintf(wanted, sizeof wanted, CHUNKED "%s0\r\n" SPRY_REFUSED_FIELD ": %d\r\n\r\n", passed, (int)fault);
    expect(text, (size_t)n, wanted);
}

static void test_chunks_refused(void **state)
{
    (void)state;
    expect_cut("3\nabc\r\n", "", SPRY_FAULT_ENDING);
    expect_cut("x\r\n", "", SPRY_FAULT_CHUNK);
    expect_cut("\r\n", "", SPRY_FAULT_CHUNK);
    expect_cut("-1\r\n", "", SPRY_FAULT_CHUNK);
    expect_cut(" 3\r\nabc\r\n", "", SPRY_FAULT_CHUNK);
    expect_cut("3 \r\nabc\r\n", "", SPRY_FAULT_CHUNK);
    expect_cut("0x3\r\nabc\r\n", "", SPRY_FAULT_CHUNK);
    expect_cut("fffffffffffffffff\r\n", "", SPRY_FAULT_CHUNK);
    expect_cut("3\r\nabcd\r\n", "3\r\nabc\r\n", SPRY_FAULT_CHUNK);
    expect_cut("3\r\nabc\n", "3\r\nabc\r\n", SPRY_FAULT_ENDING);
    expect_cut("41\r\n", "", SPRY_FAULT_BODY);
    expect_cut("fffffffffffffff\r\n", "", SPRY_FAULT_BODY);
    expect_cut("1\r\na\r\n40\r\n", "1\r\na\r\n", SPRY_FAULT_BODY);
    expect_cut("0\r\nX: 1\n", "", SPRY_FAULT_ENDING);
}

/* Heads at their limit and one byte beyond it. */
static void test_limits(void **state)
{
    (void)state;
    char *text = malloc(2 * MAX_HEAD);
    for (int over = 0; over < 2; over++) {
        size_t fill = MAX_HEAD - strlen("GET / HTTP/1.1\r\n" HOST "X: \r\n\r\n") + (size_t)over;
        int n = snprintf(text, 2 * MAX_HEAD, "GET / HTTP/1.1\r\n" HOST "X: %0*d\r\n\r\n", (int)fill, 7);
        if (over)
            expect_fault(text, (size_t)n, SPRY_FAULT_LONG_HEAD);
        else
            expect_same(text);
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
        char number[16];
        snprintf(number, sizeof number, "%u", fault);
        assert_int_equal(spry_http_frames_fault(number), fault);
        assert_non_null(spry_http_fault_text(&status, fault));
        assert_in_range(status, 400, 505);
    }
    assert_null(spry_http_fault_text(&status, 0));
    assert_null(spry_http_fault_text(&status, SPRY_FAULT_COUNT));
    assert_int_equal(spry_http_frames_fault(NULL), 0);
    assert_int_equal(spry_http_frames_fault("99"), 0);
    assert_int_equal(spry_http_frames_fault("x"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests_pass),     cmocka_unit_test(test_forms_are_made_one),
        cmocka_unit_test(test_heads_refused),     cmocka_unit_test(test_lengths_refused),
        cmocka_unit_test(test_chunks_refused),    cmocka_unit_test(test_limits),
        cmocka_unit_test(test_faults_have_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
