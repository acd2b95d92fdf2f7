/* A client may name any address, so what is fetched is narrow: https, or http where the entry says so; the host and
 * port of an entry, also after a redirect; and for a host with a name no address of this machine or of a local network,
 * to which the owner of the name could point it. */
#include "server/request/prompt.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "pull/pull_http.h"
#include "server/http/http_server.h"

enum { FILE_BYTES = 32 << 20, SECONDS = 20, HOPS_MAX = 3, PART_BYTES = 300, FETCHED_MAX = 16 };

/* ---- which are allowed ------------------------------------------------------------------------------------------- */

typedef struct place {
    char scheme[16], host[PART_BYTES], port[16];
} place;

static bool read_part(char *out, size_t size, CURLU *parsed, CURLUPart part)
{
    char *text = NULL;
    bool fine = curl_url_get(parsed, part, &text, CURLU_DEFAULT_PORT) == CURLUE_OK && strlen(text) < size;
    snprintf(out, size, "%s", fine ? text : "");
    curl_free(text);
    return fine;
}

/* False for what is no address of http: or https:, or has a user's name. */
static bool read_place(place *out, const char *url)
{
    char none[PART_BYTES];
    CURLU *parsed = curl_url();
    bool fine = parsed && curl_url_set(parsed, CURLUPART_URL, url, 0) == CURLUE_OK &&
                read_part(out->scheme, sizeof out->scheme, parsed, CURLUPART_SCHEME) &&
                read_part(out->host, sizeof out->host, parsed, CURLUPART_HOST) &&
                read_part(out->port, sizeof out->port, parsed, CURLUPART_PORT) &&
                !read_part(none, sizeof none, parsed, CURLUPART_USER) &&
                !read_part(none, sizeof none, parsed, CURLUPART_PASSWORD) &&
                (strcmp(out->scheme, "http") == 0 || strcmp(out->scheme, "https") == 0);
    curl_url_cleanup(parsed);
    return fine;
}

/* The next entry of the list, HOST, HOST:PORT or http://HOST:PORT; false at its end. *fine: it is one. */
static bool next_entry(place *out, bool *fine, spry_view *word, const char **at)
{
    char url[2 * PART_BYTES];
    if (!*at)
        return false;
    *at += strspn(*at, ", ");
    *word = (spry_view){*at, strcspn(*at, ", ")};
    *at += word->size;
    bool plain = spry_view_starts(*word, SPRY_VIEW("http://")) || spry_view_starts(*word, SPRY_VIEW("https://"));
    snprintf(url, sizeof url, "%s%.*s", plain ? "" : "https://", SPRY_VIEW_ARG(*word));
    const char *host = strstr(url, "://") + 3;
    *fine = word->size < PART_BYTES && !strpbrk(host, "/?#*") && read_place(out, url);
    return word->size > 0;
}

spry_status spry_fetch_check(const char *allowed, spry_error *error)
{
    place entry;
    spry_view word;
    bool fine;
    spry_http_init();
    for (const char *at = allowed; next_entry(&entry, &fine, &word, &at);)
        if (!fine)
            return spry_fail(
                error, SPRY_ERR_INPUT,
                "--allow-fetch: %.*s is no host; give HOST or HOST:PORT for https, http://HOST:PORT for http",
                SPRY_VIEW_ARG(word));
    return SPRY_OK;
}

static bool is_allowed(const char *allowed, const place *asked)
{
    place entry;
    spry_view word;
    bool fine, found = false;
    for (const char *at = allowed; !found && next_entry(&entry, &fine, &word, &at);)
        found = fine && strcmp(entry.scheme, asked->scheme) == 0 && strcasecmp(entry.host, asked->host) == 0 &&
                strcmp(entry.port, asked->port) == 0;
    return found;
}

/* ---- addresses --------------------------------------------------------------------------------------------------- */

/* Whether an IPv4 address is of this machine, of a local network, or of no host. */
static bool is_inner4(uint32_t a)
{
    return a >> 24 == 0 || a >> 24 == 10 || a >> 24 == 127 || a >> 20 == 0xac1 || a >> 16 == 0xc0a8 ||
           a >> 16 == 0xa9fe || a >> 22 == 0x191 || a >> 28 >= 14;
}

static bool is_inner(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return is_inner4(ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr));
    if (address->sa_family != AF_INET6)
        return true;
    const struct in6_addr *six = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    const unsigned char *b = six->s6_addr;
    if (IN6_IS_ADDR_V4MAPPED(six) || IN6_IS_ADDR_V4COMPAT(six))
        return is_inner4((uint32_t)b[12] << 24 | (uint32_t)b[13] << 16 | (uint32_t)b[14] << 8 | b[15]);
    return (b[0] & 0xe0) != 0x20; /* only global unicast is not */
}

/* An entry with a number names its address itself. */
static bool is_number(const char *host)
{
    unsigned char bytes[sizeof(struct in6_addr)];
    return host[0] == '[' || inet_pton(AF_INET, host, bytes) == 1;
}

typedef struct fetching {
    spry_exchange *exchange;
    spry_buffer file;
    place place;
    bool inner; /* the host's address was refused */
} fetching;

static curl_socket_t on_socket(void *user, curlsocktype purpose, struct curl_sockaddr *address)
{
    fetching *f = user;
    (void)purpose;
    if (!is_number(f->place.host) && is_inner(&address->addr)) {
        f->inner = true;
        return CURL_SOCKET_BAD;
    }
    return socket(address->family, address->socktype, address->protocol);
}

/* ---- fetching ---------------------------------------------------------------------------------------------------- */

static size_t on_bytes(char *data, size_t one, size_t size, void *user)
{
    fetching *f = user;
    (void)one;
    return spry_buffer_append(&f->file, data, size) ? size : 0;
}

/* Nonzero ends it: the client has left, or the server stops. */
static int on_progress(void *user, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    fetching *f = user;
    spry_error ignored;
    (void)a, (void)b, (void)c, (void)d;
    return atomic_load(&f->exchange->server->cutting) || spry_http_check_reader(f->exchange, &ignored) != SPRY_OK;
}

static void prepare(CURL *curl, struct curl_slist **headers, fetching *f, const char *url)
{
    *headers = curl_slist_append(*headers, "Accept: image/*");
    spry_http_prepare(curl, headers, url, NULL);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, f->place.scheme);
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)SECONDS);
    curl_easy_setopt(curl, CURLOPT_OPENSOCKETFUNCTION, on_socket);
    curl_easy_setopt(curl, CURLOPT_OPENSOCKETDATA, f);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, f);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, f);
}

/* What came of a request; *next: where it was redirected to, for freeing. */
static spry_status outcome(char **next, CURL *curl, CURLcode code, const fetching *f, spry_error *error)
{
    long status = 0;
    char *redirect = NULL;
    const char *host = f->place.host;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(curl, CURLINFO_REDIRECT_URL, &redirect);
    if (f->inner)
        return spry_fail(
            error, SPRY_ERR_INPUT,
            "%.200s has an address of this machine or of a local network, which --allow-fetch must name by "
            "its number",
            host);
    if (f->file.failed)
        return spry_fail(error, SPRY_ERR_INPUT, "the file from %.200s has more than %d bytes", host, FILE_BYTES);
    if (code == CURLE_ABORTED_BY_CALLBACK)
        return spry_fail(error, SPRY_ERR_CANCELLED, "a picture was not fetched: cancelled");
    if (code != CURLE_OK)
        return spry_fail(error, SPRY_ERR_INPUT, "%.200s: %s", host, curl_easy_strerror(code));
    if (redirect && status >= 300 && status < 400) {
        *next = strdup(redirect);
        return *next ? SPRY_OK : spry_fail_memory(error, "an address", strlen(redirect));
    }
    if (status != 200)
        return spry_fail(error, SPRY_ERR_INPUT, "%.200s answered with status %ld", host, status);
    return SPRY_OK;
}

/* One request. */
static spry_status request(char **next, fetching *f, const char *url, spry_error *error)
{
    const char *allowed = f->exchange->server->settings->allow_fetch;
    struct curl_slist *headers = NULL;
    *next = NULL;
    if (!read_place(&f->place, url))
        return spry_fail(error, SPRY_ERR_INPUT, "%.200s is no address of http or https", url);
    if (!is_allowed(allowed, &f->place))
        return spry_fail(error, SPRY_ERR_INPUT,
                         "nothing is fetched from %s://%.200s:%s: --allow-fetch does not name it", f->place.scheme,
                         f->place.host, f->place.port);
    CURL *curl = curl_easy_init();
    if (!curl)
        return spry_fail_memory(error, "a request", 0);
    spry_buffer_clear(&f->file);
    prepare(curl, &headers, f, url);
    CURLcode code = curl_easy_perform(curl);
    spry_status status = outcome(next, curl, code, f, error);
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    return status;
}

/* The data: URL of the file at an address. */
static spry_status fetch(json_t **out, spry_exchange *x, const char *url, spry_error *error)
{
    fetching f = {.exchange = x};
    spry_buffer text;
    char *next = NULL, *here = NULL;
    spry_buffer_init(&f.file, FILE_BYTES);
    spry_buffer_init(&text, 2 * (size_t)FILE_BYTES);
    spry_status status = request(&next, &f, url, error);
    for (size_t hops = 0; status == SPRY_OK && next; hops++) {
        free(here);
        here = next;
        status = hops < HOPS_MAX ? request(&next, &f, here, error)
                                 : spry_fail(error, SPRY_ERR_INPUT, "more than %d redirects", HOPS_MAX);
    }
    free(here);
    spry_buffer_text(&text, "data:;base64,");
    spry_buffer_base64(&text, spry_buffer_view(&f.file));
    if (status == SPRY_OK && !(*out = text.failed ? NULL : json_stringn(text.data, text.size)))
        status = spry_fail_memory(error, "a picture", text.size);
    spry_buffer_deinit(&f.file);
    spry_buffer_deinit(&text);
    return status;
}

spry_status spry_fetch_pictures(spry_exchange *x, const json_t *messages, spry_error *error)
{
    size_t i, k, fetched = 0, number = 0;
    json_t *message, *part, *data;
    spry_status status = SPRY_OK;
    if (!x->server->settings->allow_fetch)
        return SPRY_OK;
    json_array_foreach(messages, i, message)
    {
        const json_t *content = json_object_get(message, "content");
        for (k = 0; status == SPRY_OK && k < json_array_size(content); k++) {
            part = json_object_get(json_array_get(content, k), "image_url");
            json_t *object = json_is_object(part) ? part : json_array_get(content, k);
            const char *key = json_is_object(part) ? "url" : "image_url";
            const char *url = json_string_value(json_object_get(object, key));
            char name[32];
            number += part != NULL;
            snprintf(name, sizeof name, "picture %zu", number);
            if (!url || (strncasecmp(url, "http:", 5) != 0 && strncasecmp(url, "https:", 6) != 0))
                continue;
            if (fetched++ == FETCHED_MAX)
                return spry_fail(error, SPRY_ERR_INPUT, "a request can have %d pictures by address", FETCHED_MAX);
            status = fetch(&data, x, url, error);
            if (status == SPRY_OK && json_object_set_new(object, key, data))
                status = spry_fail_memory(error, "a picture", 0);
            else if (status != SPRY_OK)
                status = spry_fail_prefix(error, status, name);
        }
    }
    return status;
}
