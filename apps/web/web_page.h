/* The files of the web page, which cli/bundled.S links into the program: this one list serves the assembler, the routes
 * and the table of bytes. */
#ifndef SPRY_APPS_WEB_PAGE_H
#define SPRY_APPS_WEB_PAGE_H

#define SPRY_WEB_HTML "text/html; charset=utf-8"
#define SPRY_WEB_CSS  "text/css; charset=utf-8"
#define SPRY_WEB_JS   "text/javascript; charset=utf-8"
#define SPRY_WEB_JSON "application/json; charset=utf-8"

/* FILE(symbol, path on the server, file in apps/web, content type). */
#define SPRY_WEB_FILES(FILE)                                                                                           \
    FILE(html, "/", "page.html", SPRY_WEB_HTML)                                                                        \
    FILE(css, "/page.css", "page.css", SPRY_WEB_CSS)                                                                   \
    FILE(answers, "/answers.js", "answers.js", SPRY_WEB_JS)                                                            \
    FILE(chat, "/chat.js", "chat.js", SPRY_WEB_JS)                                                                     \
    FILE(compare, "/compare.js", "compare.js", SPRY_WEB_JS)                                                            \
    FILE(conversations, "/conversations.js", "conversations.js", SPRY_WEB_JS)                                          \
    FILE(documents, "/documents.js", "documents.js", SPRY_WEB_JS)                                                      \
    FILE(pictures, "/pictures.js", "pictures.js", SPRY_WEB_JS)                                                         \
    FILE(dom, "/dom.js", "dom.js", SPRY_WEB_JS)                                                                        \
    FILE(figures, "/figures.js", "figures.js", SPRY_WEB_JS)                                                            \
    FILE(language, "/language.js", "language.js", SPRY_WEB_JS)                                                         \
    FILE(markdown, "/markdown.js", "markdown.js", SPRY_WEB_JS)                                                         \
    FILE(mcp, "/mcp.js", "mcp.js", SPRY_WEB_JS)                                                                        \
    FILE(message, "/message.js", "message.js", SPRY_WEB_JS)                                                            \
    FILE(microphone, "/microphone.js", "microphone.js", SPRY_WEB_JS)                                                   \
    FILE(models, "/models.js", "models.js", SPRY_WEB_JS)                                                               \
    FILE(page, "/page.js", "page.js", SPRY_WEB_JS)                                                                     \
    FILE(server, "/server.js", "server.js", SPRY_WEB_JS)                                                               \
    FILE(settings, "/settings.js", "settings.js", SPRY_WEB_JS)                                                         \
    FILE(store, "/store.js", "store.js", SPRY_WEB_JS)                                                                  \
    FILE(tools, "/tools.js", "tools.js", SPRY_WEB_JS)                                                                  \
    FILE(voice, "/voice.js", "voice.js", SPRY_WEB_JS)                                                                  \
    FILE(watch, "/watch.js", "watch.js", SPRY_WEB_JS)                                                                  \
    FILE(de, "/translations/de.json", "translations/de.json", SPRY_WEB_JSON)                                           \
    FILE(es, "/translations/es.json", "translations/es.json", SPRY_WEB_JSON)                                           \
    FILE(fr, "/translations/fr.json", "translations/fr.json", SPRY_WEB_JSON)                                           \
    FILE(ja, "/translations/ja.json", "translations/ja.json", SPRY_WEB_JSON)                                           \
    FILE(zh, "/translations/zh.json", "translations/zh.json", SPRY_WEB_JSON)

#ifndef __ASSEMBLER__
/* Texts without a terminating zero. */
#define SPRY_WEB_DECLARE(symbol, ...) extern const unsigned char spry_web_##symbol##_begin[], spry_web_##symbol##_end[];
SPRY_WEB_FILES(SPRY_WEB_DECLARE)
#endif

/* ---- page_libraries.c: libraries in JavaScript ------------------------------------------------------------------- */

/* Libraries of the web page and of reports. They belong to the system or to a package of their own: the module
 * spry_page, which is opened when the first one is needed, contains those that were installed when it was built. */

/* LIBRARY(symbol, path on the server): scripts of the page, compressed with gzip. */
#define SPRY_WEB_LIBRARIES(LIBRARY)                                                                                    \
    LIBRARY(highlight, "/highlight.js")                                                                                \
    LIBRARY(katex, "/katex.js")

#ifndef __ASSEMBLER__

typedef struct spry_page_script {
    const unsigned char *begin, *end; /* equal: there is no such library */
} spry_page_script;

/* The symbol spry_page_module of the module. */
typedef struct spry_page_libraries {
    spry_page_script highlight, katex;
    const char *chart; /* text of Chart.js for reports; "" without it */
} spry_page_libraries;

const spry_page_libraries *spry_page_libraries_get(void); /* never NULL */

#endif

#endif
