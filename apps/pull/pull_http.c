/* Options of requests, waiting times, and what a status means. */
#include "pull/pull_http.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { REDIRECTS = 10, CONNECT_S = 30, SILENT_S = 60, WAIT_MS = 200, WAIT_MOST_MS = 10000, RETRY_AFTER_MOST_S = 60 };

static void init_curl(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

void spry_http_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, init_curl);
}

void spry_http_prepare(CURL *curl, struct curl_slist **headers, const char *url, const char *bearer)
{
    bool safe = strncasecmp(url, "https:", 6) == 0;
    char line[512];
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, safe ? "https" : "http,https");
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, (long)REDIRECTS);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "spry/" SPRY_VERSION);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)SILENT_S);
    if (bearer && snprintf(line, sizeof line, "Authorization: Bearer %s", bearer) < (int)sizeof line)
        *headers = curl_slist_append(*headers, line);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, *headers);
}

const char *spry_http_header(CURL *curl, const char *name)
{
    struct curl_header *found;
    return curl_easy_header(curl, name, 0, CURLH_HEADER, -1, &found) == CURLHE_OK ? found->value : NULL;
}

bool spry_http_passes(CURLcode code)
{
    return code == CURLE_PARTIAL_FILE || code == CURLE_RECV_ERROR || code == CURLE_SEND_ERROR ||
           code == CURLE_GOT_NOTHING || code == CURLE_OPERATION_TIMEDOUT || code == CURLE_COULDNT_CONNECT ||
           code == CURLE_HTTP2 || code == CURLE_HTTP2_STREAM || code == CURLE_SSL_CONNECT_ERROR;
}

bool spry_http_status_passes(long status)
{
    return status == 408 || status == 429 || status >= 500;
}

uint64_t spry_http_wait_ms(CURL *curl, int tries)
{
    const char *after = spry_http_header(curl, "Retry-After");
    unsigned long seconds = after ? strtoul(after, NULL, 10) : 0;
    if (seconds)
        return 1000 * (uint64_t)(seconds < RETRY_AFTER_MOST_S ? seconds : RETRY_AFTER_MOST_S);
    uint64_t wait = (uint64_t)WAIT_MS << (tries < 8 ? tries : 8);
    return wait < WAIT_MOST_MS ? wait : WAIT_MOST_MS;
}

spry_status spry_http_refused(const char *what, long status, bool has_token, spry_error *error)
{
    if (status == 401 || status == 403)
        return spry_fail(
            error, SPRY_ERR_FILE,
            "%.200s: the server responded with status %ld: the model is private, gated or does not exist; %s", what,
            status, has_token ? "the token in HF_TOKEN may not read it" : "HF_TOKEN can hold a token that may read it");
    if (status == 404)
        return spry_fail(error, SPRY_ERR_FILE,
                         "%.200s: the server responded with status 404: there is no such model or file", what);
    return spry_fail(error, SPRY_ERR_FILE, "%.200s: the server responded with status %ld%s", what, status,
                     status == 429 ? ": too many requests" : "");
}
