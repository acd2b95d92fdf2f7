/* Libraries of the web page and of reports. They belong to the system or to a package of their own: the module
 * spry_page, which is opened when the first one is needed, contains those that were installed when it was built. */
#ifndef SPRY_APPS_WEB_PAGE_LIBRARIES_H
#define SPRY_APPS_WEB_PAGE_LIBRARIES_H

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
