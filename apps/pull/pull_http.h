/* Requests with libcurl: settings, retries and errors. */
#ifndef SPRY_APPS_PULL_HTTP_H
#define SPRY_APPS_PULL_HTTP_H

#include <curl/curl.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* Must be called before any use of libcurl, from any thread. */
void spry_http_init(void);

/* URL, redirects (never from https to http), timeouts, and a token that only the URL's own host gets. `headers` is
 * extended; the caller frees it after the request. */
void spry_http_prepare(CURL *curl, struct curl_slist **headers, const char *url, const char *bearer);

/* A header of the last answer, or NULL. */
const char *spry_http_header(CURL *curl, const char *name);

/* Whether another try may succeed: a broken connection, too many requests, an error of the server. */
bool spry_http_passes(CURLcode code);
bool spry_http_status_passes(long status);

/* Milliseconds before the next try: the value of Retry-After, up to a minute, else more with every try. */
uint64_t spry_http_wait_ms(CURL *curl, int tries);

/* The error for an HTTP status that is not a success; it names the remedy for 401, 403 and 404. */
spry_status spry_http_refused(const char *what, long status, bool has_token, spry_error *error);

#endif
