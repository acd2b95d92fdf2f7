/* The web page, linked in by web_page.S: four texts without a terminating zero; and two
 * libraries, compressed with gzip, or empty. */
#ifndef SPRY_APPS_WEB_PAGE_H
#define SPRY_APPS_WEB_PAGE_H

extern const unsigned char spry_web_html_begin[], spry_web_html_end[];             /* served as / */
extern const unsigned char spry_web_css_begin[], spry_web_css_end[];               /* served as /page.css */
extern const unsigned char spry_web_js_begin[], spry_web_js_end[];                 /* served as /page.js */
extern const unsigned char spry_web_microphone_begin[], spry_web_microphone_end[]; /* served as /microphone.js */
extern const unsigned char spry_web_highlight_begin[], spry_web_highlight_end[];   /* served as /highlight.js */
extern const unsigned char spry_web_katex_begin[], spry_web_katex_end[];           /* served as /katex.js */

#endif
