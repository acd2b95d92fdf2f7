/* Tools that the web page may call: GET /v1/tools lists them, POST /v1/tools/call sends one its arguments. They are
 * those of MCP servers (mcp/mcp.h), and addresses of this machine. Only the addresses of --allow-tool are called,
 * exactly as they are given, without proxies and redirects, so that neither a model nor a page chooses where the server
 * connects to. */
#include <pthread.h>
#include <stdlib.h>
#include <strings.h>

#include "base/json.h"
#include "base/utf8.h"
#include "mcp/mcp.h"
#include "platform/child.h"
#include "platform/threads.h"
#include "pull/pull_http.h"
#include "server/api/apis.h"
#include "server/fields/fields.h"
#include "server/http/form_data.h"
#include "server/http/http_reply.h"
#include "server/http/http_server.h"
#include "server/request/completion.h"

enum { URL_BYTES = 2048, ANSWER_BYTES = 1 << 20, MCP_BYTES = 16 << 20 };

/* ---- which are allowed ------------------------------------------------------------------------------------------- */

/* The next address of a list; false at its end. */
static bool next_url(spry_view *url, const char **at)
{
    if (!*at)
        return false;
    *at += strspn(*at, ", ");
    *url = (spry_view){*at, strcspn(*at, ", ")};
    *at += url->size;
    return url->size > 0;
}

static bool part_is(CURLU *parsed, CURLUPart part, const char *const *wanted)
{
    char *text = NULL;
    bool found = false;
    if (curl_url_get(parsed, part, &text, 0) == CURLUE_OK)
        for (size_t i = 0; wanted[i] && !found; i++)
            found = strcmp(text, wanted[i]) == 0;
    curl_free(text);
    return found;
}

static bool has_part(CURLU *parsed, CURLUPart part)
{
    char *text = NULL;
    bool there = curl_url_get(parsed, part, &text, 0) == CURLUE_OK;
    curl_free(text);
    return there;
}

static bool is_local(const char *url)
{
    static const char *const schemes[] = {"http", NULL}, *const hosts[] = {"127.0.0.1", "[::1]", "localhost", NULL};
    CURLU *parsed = curl_url();
    bool fine = parsed && curl_url_set(parsed, CURLUPART_URL, url, 0) == CURLUE_OK &&
                part_is(parsed, CURLUPART_SCHEME, schemes) && part_is(parsed, CURLUPART_HOST, hosts) &&
                !has_part(parsed, CURLUPART_USER) && !has_part(parsed, CURLUPART_PASSWORD) &&
                !has_part(parsed, CURLUPART_FRAGMENT);
    curl_url_cleanup(parsed);
    return fine;
}

spry_status spry_tools_check(const char *allowed, spry_error *error)
{
    spry_view url;
    spry_http_init();
    for (const char *at = allowed; next_url(&url, &at);) {
        char text[URL_BYTES] = "";
        if (url.size < sizeof text)
            memcpy(text, url.data, url.size);
        if (!is_local(text))
            return spry_fail(error, SPRY_ERR_INPUT,
                             "--allow-tool: %.*s is not a tool of this machine; it must be an http:// address with "
                             "the host 127.0.0.1, [::1] or localhost",
                             SPRY_VIEW_ARG(url));
    }
    return SPRY_OK;
}

static bool is_allowed(const char *allowed, const char *asked)
{
    spry_view url;
    for (const char *at = allowed; next_url(&url, &at);)
        if (spry_view_is(url, asked))
            return true;
    return false;
}

void spry_tools_list(spry_exchange *x)
{
    json_t *urls = json_array();
    spry_view url;
    for (const char *at = x->server->settings->allow_tool; next_url(&url, &at);)
        json_array_append_new(urls, json_stringn(url.data, url.size));
    spry_reply_json(x, SPRY_HTTP_OK,
                    json_pack("{s:o, s:o*}", "urls", urls, "servers", spry_mcp_servers(x->server->mcp)));
}

/* ---- calling one ------------------------------------------------------------------------------------------------- */

static size_t on_answer(char *data, size_t one, size_t size, void *user)
{
    (void)one;
    return spry_buffer_append(user, data, size) ? size : 0;
}

/* Nonzero ends the call: its client has left, or the server stops. */
static int on_progress(void *user, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    spry_exchange *x = user;
    spry_error ignored;
    (void)a, (void)b, (void)c, (void)d;
    return atomic_load(&x->server->cutting) || spry_http_check_reader(x, &ignored) != SPRY_OK;
}

static void prepare(CURL *curl, struct curl_slist **headers, spry_exchange *x, const char *url, const char *arguments)
{
    *headers = curl_slist_append(*headers, "Content-Type: application/json");
    *headers = curl_slist_append(*headers, "Accept: application/json, text/*");
    *headers = curl_slist_append(*headers, "Expect:");
    spry_http_prepare(curl, headers, url, NULL);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http");
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, 0L);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)x->server->settings->tool_s);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, arguments);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, x);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_answer);
}

/* text/... and JSON, with any parameters. */
static bool is_text(const char *type)
{
    size_t size = type ? strcspn(type, "; ") : 0;
    return size &&
           (strncasecmp(type, "text/", 5) == 0 || (size == 16 && strncasecmp(type, "application/json", 16) == 0) ||
            (size > 5 && strncasecmp(type + size - 5, "+json", 5) == 0));
}

static void reply_result(spry_exchange *x, spry_view text)
{
    spry_buffer valid;
    spry_buffer_init(&valid, 3 * ANSWER_BYTES);
    spry_utf8_append_valid(&valid, text);
    spry_reply_json(x, SPRY_HTTP_OK, json_pack("{s:o}", "result", spry_buffer_json(&valid)));
    spry_buffer_deinit(&valid);
}

static void call_mcp(spry_exchange *x, const char *name, const json_t *arguments)
{
    spry_buffer text;
    bool failed = false;
    spry_error error;
    spry_buffer_init(&text, MCP_BYTES);
    spry_status status = spry_mcp_call(&text, &failed, x->server->mcp, name, arguments, &error);
    if (status == SPRY_OK)
        spry_reply_json(x, SPRY_HTTP_OK,
                        json_pack("{s:o, s:b}", "result", spry_buffer_json(&text), "failed", (int)failed));
    else if (status == SPRY_ERR_CANCELLED)
        spry_reply_error(x, x->late ? SPRY_HTTP_GATEWAY_TIMEOUT : SPRY_HTTP_SERVICE_UNAVAILABLE, NULL,
                         "the call was cancelled");
    else
        spry_reply_error(x, SPRY_HTTP_BAD_GATEWAY, "name", "%s", error.message);
    spry_buffer_deinit(&text);
}

static void reply_outcome(spry_exchange *x, CURL *curl, CURLcode code, const spry_buffer *answer)
{
    const char *type = NULL;
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(curl, CURLINFO_CONTENT_TYPE, &type);
    if (answer->failed)
        spry_reply_error(x, SPRY_HTTP_BAD_GATEWAY, "url", "the answer of the tool has more than %d bytes",
                         ANSWER_BYTES);
    else if (code == CURLE_OPERATION_TIMEDOUT || x->late)
        spry_reply_error(x, SPRY_HTTP_GATEWAY_TIMEOUT, "url", "the tool has not answered within %u seconds",
                         x->server->settings->tool_s);
    else if (code == CURLE_ABORTED_BY_CALLBACK)
        spry_reply_error(x, SPRY_HTTP_SERVICE_UNAVAILABLE, NULL, "the call was cancelled");
    else if (code != CURLE_OK)
        spry_reply_error(x, SPRY_HTTP_BAD_GATEWAY, "url", "the tool cannot be used: %s", curl_easy_strerror(code));
    else if (status < 200 || status > 299)
        spry_reply_error(x, SPRY_HTTP_BAD_GATEWAY, "url", "the tool answered with status %ld%s", status,
                         status / 100 == 3 ? "; redirects are not followed" : "");
    else if (answer->size && !is_text(type))
        spry_reply_error(x, SPRY_HTTP_BAD_GATEWAY, "url", "the tool answered with %.100s; only text and JSON are taken",
                         type ? type : "no Content-Type");
    else
        reply_result(x, spry_buffer_view(answer));
}

static void call(spry_exchange *x, const char *url, const json_t *arguments)
{
    char *text = spry_json_text(arguments, JSON_COMPACT);
    struct curl_slist *headers = NULL;
    spry_buffer answer;
    spry_http_init();
    CURL *curl = text ? curl_easy_init() : NULL;
    spry_buffer_init(&answer, ANSWER_BYTES);
    if (curl) {
        prepare(curl, &headers, x, url, text);
        curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer);
        CURLcode code = curl_easy_perform(curl);
        reply_outcome(x, curl, code, &answer);
    } else {
        spry_reply_json(x, SPRY_HTTP_OK, NULL);
    }
    spry_buffer_deinit(&answer);
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    free(text);
}

void spry_tools_call(spry_exchange *x)
{
    spry_fields fields;
    json_t *root, *none = json_object();
    if (spry_fields_open(&fields, &root, x, &spry_fields_tool_call)) {
        const char *url = spry_fields_string(&fields, "url", NULL);
        const char *name = spry_fields_string(&fields, "name", NULL);
        const json_t *arguments = spry_fields_object(&fields, "arguments");
        if (!url == !name)
            spry_fields_refuse(&fields, "url",
                               "either url must be the address of a tool, or name the name of one of "
                               "an MCP server; GET /v1/tools lists both");
        bool fine = spry_fields_fine(&fields, x);
        if (fine && name && !spry_mcp_has(x->server->mcp, name))
            spry_reply_error(x, SPRY_HTTP_NOT_FOUND, "name",
                             "no MCP server has a tool \"%.100s\"; GET /v1/tools lists them", name);
        else if (fine && name)
            call_mcp(x, name, arguments ? arguments : none);
        else if (fine && is_allowed(x->server->settings->allow_tool, url))
            call(x, url, arguments ? arguments : none);
        else if (fine)
            spry_reply_error(x, SPRY_HTTP_FORBIDDEN, "url", "this tool is not allowed; --allow-tool URL allows it");
        json_decref(root);
    }
    json_decref(none);
}

/* ---- POST /v1/documents/text and /v1/documents/pages --------------------------------------------------------------
 */

/* Poppler's pdftotext reads the text of a PDF, its pdftoppm draws the pages. They parse files of unknown origin, so
 * they run in a sandbox; one runs at a time. */

enum { READ_SECONDS = 20, WAITING_MAX = 8 };

static pthread_mutex_t reading = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint documents; /* number of documents that are being read or wait to be read */

/* A program that reads PDFs, and what becomes of its output. */
typedef struct pdf_reader {
    const char *const *arguments; /* the first is the program */
    const char *what;             /* what it reads, for messages */
    size_t output_bytes;
    void (*reply)(spry_exchange *x, spry_view output);
} pdf_reader;

typedef struct reader_output {
    spry_buffer bytes;
    bool full;
} reader_output;

static bool drop_output(void *user, const char *data, size_t size)
{
    (void)user, (void)data, (void)size;
    return true;
}

static bool has_program(const char *name)
{
    char command[64];
    snprintf(command, sizeof command, "command -v %s", name);
    const char *const look[] = {"sh", "-c", command, NULL};
    const spry_child child = {.arguments = look, .on_output = drop_output};
    spry_error ignored;
    return spry_child_run(&child, &ignored) == SPRY_OK;
}

static bool on_output(void *user, const char *data, size_t size)
{
    reader_output *out = user;
    out->full = !spry_buffer_append(&out->bytes, data, size);
    return !out->full;
}

static bool is_blank(spry_view text)
{
    for (size_t i = 0; i < text.size; i++)
        if (!strchr(" \t\r\n\f", text.data[i]))
            return false;
    return true;
}

static void reply_text(spry_exchange *x, spry_view text)
{
    spry_buffer valid;
    spry_buffer_init(&valid, 3 * text.size + 1);
    spry_utf8_append_valid(&valid, text);
    if (is_blank(text))
        spry_reply_error(x, SPRY_HTTP_UNPROCESSABLE_CONTENT, "file", "the PDF has no text; its pages may be images");
    else
        spry_reply_json(x, SPRY_HTTP_OK, json_pack("{s:s#}", "text", valid.data ? valid.data : "", (int)valid.size));
    spry_buffer_deinit(&valid);
}

/* The bytes of the PNG file that `data` begins with, up to the end of its last chunk; 0: it is none. */
static size_t png_size(spry_view data)
{
    const unsigned char *bytes = (const unsigned char *)data.data;
    size_t at = 8;
    if (!spry_view_starts(data, SPRY_VIEW("\x89PNG\r\n\x1a\n")))
        return 0;
    while (at + 12 <= data.size) {
        size_t chunk =
            (size_t)bytes[at] << 24 | (size_t)bytes[at + 1] << 16 | (size_t)bytes[at + 2] << 8 | bytes[at + 3];
        bool last = memcmp(bytes + at + 4, "IEND", 4) == 0;
        if (chunk > data.size - at - 12)
            return 0;
        at += chunk + 12;
        if (last)
            return at;
    }
    return 0;
}

/* The program writes the pages one after the other. */
static void reply_pages(spry_exchange *x, spry_view data)
{
    json_t *pages = json_array();
    spry_buffer url;
    size_t size;
    while ((size = png_size(data))) {
        spry_buffer_init(&url, 2 * size + 64);
        spry_buffer_text(&url, "data:image/png;base64,");
        spry_buffer_base64(&url, (spry_view){data.data, size});
        json_array_append_new(pages, json_stringn(spry_buffer_view(&url).data, url.size));
        spry_buffer_deinit(&url);
        data = (spry_view){data.data + size, data.size - size};
    }
    if (json_array_size(pages)) {
        spry_reply_json(x, SPRY_HTTP_OK, json_pack("{s:o}", "pages", pages));
    } else {
        json_decref(pages);
        spry_reply_error(x, SPRY_HTTP_UNPROCESSABLE_CONTENT, "file", "the PDF has no pages that can be drawn");
    }
}

static const char *const text_arguments[] = {"pdftotext", "-q", "-nopgbrk", "-enc", "UTF-8", "-", "-", NULL};
static const pdf_reader text_reader = {text_arguments, "text", 4 << 20, reply_text};

/* Pages of at most 1,024 pixels a side: about as many as a model gets of a picture. At most 20. */
static const char *const pages_arguments[] = {"pdftoppm", "-q", "-png", "-scale-to", "1024", "-l", "20", "-", NULL};
static const pdf_reader pages_reader = {pages_arguments, "pages", 48 << 20, reply_pages};

static spry_status run_reader(const pdf_reader *reader, reader_output *out, spry_view file, spry_error *error)
{
    const spry_sandbox sandbox = {.readable = spry_sandbox_programs, .memory = 1 << 30, .cpu_s = READ_SECONDS};
    const spry_child child = {.arguments = reader->arguments,
                              .sandbox = &sandbox,
                              .seconds = READ_SECONDS,
                              .input = file,
                              .on_output = on_output,
                              .user = out};
    if (!spry_lock_patiently(&reading))
        return spry_fail(error, SPRY_ERR_CANCELLED, "the PDF was not read: cancelled");
    spry_status status = spry_child_run(&child, error);
    pthread_mutex_unlock(&reading);
    return status;
}

static void read_document(spry_exchange *x, const pdf_reader *reader, spry_view file)
{
    reader_output out = {0};
    spry_error error;
    if (atomic_fetch_add(&documents, 1) >= WAITING_MAX) {
        atomic_fetch_sub(&documents, 1);
        spry_reply_error(x, SPRY_HTTP_SERVICE_UNAVAILABLE, NULL, "%d PDFs are being read; try again", WAITING_MAX);
        return;
    }
    spry_buffer_init(&out.bytes, reader->output_bytes);
    spry_status status = run_reader(reader, &out, file, &error);
    atomic_fetch_sub(&documents, 1);
    if (out.full)
        spry_reply_error(x, SPRY_HTTP_CONTENT_TOO_LARGE, "file", "the %s of the PDF has more than %zu bytes",
                         reader->what, reader->output_bytes);
    else if (status != SPRY_OK)
        spry_reply_error(x, SPRY_HTTP_UNPROCESSABLE_CONTENT, "file",
                         "the PDF cannot be read: it is damaged, needs a password or takes too long");
    else
        reader->reply(x, spry_buffer_view(&out.bytes));
    spry_buffer_deinit(&out.bytes);
}

static void read_form(spry_exchange *x, const pdf_reader *reader)
{
    spry_form form;
    if (!spry_form_open(&form, x))
        return;
    spry_view file = spry_form_get(&form, "file");
    if (!spry_view_starts(file, SPRY_VIEW("%PDF-")))
        spry_reply_error(x, SPRY_HTTP_BAD_REQUEST, "file", "file must be a PDF");
    else if (!has_program(reader->arguments[0]))
        spry_reply_error(x, SPRY_HTTP_NOT_IMPLEMENTED, NULL,
                         "this server cannot read PDFs: %s is not installed (poppler-utils on Debian)",
                         reader->arguments[0]);
    else
        read_document(x, reader, file);
}

void spry_documents_text(spry_exchange *x)
{
    read_form(x, &text_reader);
}

void spry_documents_pages(spry_exchange *x)
{
    read_form(x, &pages_reader);
}
