/* Small answers of hubs as JSON. */
#include <jansson.h>
#include <stdio.h>
#include <time.h>

#include "pull/hub.h"
#include "pull/pull_http.h"

enum { ANSWER_BYTES = 64 << 20, TRIES = 5 };

static size_t on_data(char *data, size_t one, size_t size, void *user)
{
    (void)one;
    return spry_buffer_append(user, data, size) ? size : 0;
}

/* One request; *status 0: there was no answer. */
static CURLcode ask(spry_buffer *out, long *status, uint64_t *wait_ms, const char *url, const char *bearer,
                    const char *accept, int tries)
{
    struct curl_slist *headers = accept ? curl_slist_append(NULL, accept) : NULL;
    CURL *curl = curl_easy_init();
    *status = 0;
    if (!curl)
        return CURLE_OUT_OF_MEMORY;
    spry_http_prepare(curl, &headers, url, bearer);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, out);
    CURLcode code = curl_easy_perform(curl);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, status);
    *wait_ms = spry_http_wait_ms(curl, tries);
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    return code;
}

static spry_status parse(void **json, spry_buffer *text, const char *url, spry_error *error)
{
    json_error_t wrong;
    *json = json_loadb(spry_buffer_view(text).data, text->size, 0, &wrong);
    if (*json)
        return SPRY_OK;
    return spry_fail(error, SPRY_ERR_FORMAT, "%.200s: the answer is not JSON: %.100s", url, wrong.text);
}

spry_status spry_hub_get(void **json, const char *url, const char *bearer, const char *accept, spry_error *error)
{
    char line[128];
    spry_buffer text;
    uint64_t wait_ms = 0;
    long status = 0;
    CURLcode code = CURLE_OK;
    spry_http_init();
    spry_buffer_init(&text, ANSWER_BYTES);
    if (accept)
        snprintf(line, sizeof line, "Accept: %s", accept);
    for (int tries = 0; tries < TRIES; tries++) {
        spry_buffer_clear(&text);
        code = ask(&text, &status, &wait_ms, url, bearer, accept ? line : NULL, tries);
        bool again = code == CURLE_OK ? spry_http_status_passes(status) : spry_http_passes(code);
        if (!again || tries + 1 == TRIES)
            break;
        const struct timespec nap = {.tv_sec = (time_t)(wait_ms / 1000), .tv_nsec = (long)(wait_ms % 1000) * 1000000};
        nanosleep(&nap, NULL);
    }
    spry_status result;
    if (code != CURLE_OK)
        result = spry_fail(error, SPRY_ERR_FILE, "%.200s: %s", url, curl_easy_strerror(code));
    else if (status != 200)
        result = spry_http_refused(url, status, bearer, error);
    else
        result = parse(json, &text, url, error);
    spry_buffer_deinit(&text);
    return result;
}
