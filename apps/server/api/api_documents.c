/* POST /v1/documents/text: the text of a PDF, read by Poppler's pdftotext. It parses files of unknown origin, so it is
 * a process of its own with limits on its time and memory; one runs at a time. */
#include <pthread.h>

#include "base/utf8.h"
#include "server/api/apis.h"
#include "server/audio/form_data.h"
#include "server/http/http_reply.h"
#include "server/http/http_server.h"
#include "voice/synthesiser.h"

enum { TEXT_BYTES = 4 << 20 };

/* Seconds of processor time, and KiB of address space. */
#define READER "ulimit -t 20; ulimit -v 1048576; exec pdftotext -q -nopgbrk -enc UTF-8 - -"

static pthread_mutex_t reading = PTHREAD_MUTEX_INITIALIZER;

typedef struct text_output {
    spry_exchange *exchange;
    spry_buffer text;
    bool full, unwanted;
} text_output;

static bool drop_output(void *user, const char *data, size_t size)
{
    (void)user, (void)data, (void)size;
    return true;
}

static bool has_reader(void)
{
    const char *const look[] = {"sh", "-c", "command -v pdftotext", NULL};
    spry_error ignored;
    return spry_child_run(NULL, look, (spry_view){0}, drop_output, NULL, &ignored) == SPRY_OK;
}

static bool on_output(void *user, const char *data, size_t size)
{
    text_output *out = user;
    spry_error ignored;
    out->full = !spry_buffer_append(&out->text, data, size);
    out->unwanted = spry_http_check_reader(out->exchange, &ignored) != SPRY_OK;
    return !out->full && !out->unwanted;
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
    spry_buffer_init(&valid, 3 * TEXT_BYTES);
    spry_utf8_append_valid(&valid, text);
    if (is_blank(text))
        spry_reply_error(x, MHD_HTTP_UNPROCESSABLE_CONTENT, "file", "the PDF has no text; its pages may be images");
    else
        spry_reply_json(x, MHD_HTTP_OK, json_pack("{s:s#}", "text", valid.data ? valid.data : "", (int)valid.size));
    spry_buffer_deinit(&valid);
}

static void read_document(spry_exchange *x, spry_view file)
{
    const char *const reader[] = {"sh", "-c", READER, NULL};
    text_output out = {.exchange = x};
    spry_error error;
    spry_buffer_init(&out.text, TEXT_BYTES);
    pthread_mutex_lock(&reading);
    spry_status status = spry_child_run(NULL, reader, file, on_output, &out, &error);
    pthread_mutex_unlock(&reading);
    if (out.full)
        spry_reply_error(x, MHD_HTTP_CONTENT_TOO_LARGE, "file", "the text of the PDF has more than %d bytes",
                         TEXT_BYTES);
    else if (status != SPRY_OK || out.unwanted)
        spry_reply_error(x, MHD_HTTP_UNPROCESSABLE_CONTENT, "file",
                         "the PDF cannot be read: it is damaged, needs a password or takes too long");
    else
        reply_text(x, spry_buffer_view(&out.text));
    spry_buffer_deinit(&out.text);
}

void spry_documents_text(spry_exchange *x)
{
    spry_form form;
    if (!spry_form_open(&form, x))
        return;
    const spry_buffer *file = spry_form_get(&form, "file");
    if (!file || file->size < 5 || memcmp(file->data, "%PDF-", 5) != 0)
        spry_reply_error(x, MHD_HTTP_BAD_REQUEST, "file", "file must be a PDF");
    else if (!has_reader())
        spry_reply_error(x, MHD_HTTP_NOT_IMPLEMENTED, NULL,
                         "this server cannot read PDFs: pdftotext is not installed (poppler-utils on Debian)");
    else
        read_document(x, spry_buffer_view(file));
    spry_form_close(&form);
}
