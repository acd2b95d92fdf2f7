/* The page and its parts. The policy allows the page to load from and send to this server only. The libraries are
 * stored compressed and sent so: every browser accepts it. */
#include "server/api/apis.h"
#include "server/http/http_reply.h"
#include "web/web_page.h"

static const char policy[] = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
                             "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

static void reply_part(spry_exchange *x, const unsigned char *begin, const unsigned char *end, const char *type)
{
    spry_view text = {(const char *)begin, (size_t)((uintptr_t)end - (uintptr_t)begin)};
    spry_reply_text(x, text, type, policy);
}

void spry_page_index(spry_exchange *x)
{
    reply_part(x, spry_web_html_begin, spry_web_html_end, "text/html; charset=utf-8");
}

void spry_page_css(spry_exchange *x)
{
    reply_part(x, spry_web_css_begin, spry_web_css_end, "text/css; charset=utf-8");
}

void spry_page_js(spry_exchange *x)
{
    reply_part(x, spry_web_js_begin, spry_web_js_end, "text/javascript; charset=utf-8");
}

void spry_page_microphone(spry_exchange *x)
{
    reply_part(x, spry_web_microphone_begin, spry_web_microphone_end, "text/javascript; charset=utf-8");
}

static void reply_library(spry_exchange *x, const unsigned char *begin, const unsigned char *end)
{
    spry_view text = {(const char *)begin, (size_t)((uintptr_t)end - (uintptr_t)begin)};
    if (text.size)
        spry_reply_compressed(x, text, "text/javascript; charset=utf-8");
    else
        spry_reply_error(x, MHD_HTTP_NOT_FOUND, NULL, "this program was built without the library");
}

void spry_page_highlight(spry_exchange *x)
{
    reply_library(x, spry_web_highlight_begin, spry_web_highlight_end);
}

void spry_page_katex(spry_exchange *x)
{
    reply_library(x, spry_web_katex_begin, spry_web_katex_end);
}
