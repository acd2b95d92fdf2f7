/* A page of another site can make a browser send requests to this server (seen in the Origin header), and its host name
 * can be made to resolve to this machine (DNS rebinding, seen in the Host header). Both are refused unless they are the
 * server's own or are allowed with --cors. */
#include <arpa/inet.h>
#include <strings.h>
#include <unistd.h>

#include "base/map.h"
#include "server/http/http_connection.h"
#include "server/http/http_reply.h"
#include "server/http/http_server.h"

enum { HEADERS_BYTES_MAX = 4096 };

/* "localhost:8080" is "localhost"; "[::1]:8080" is "::1". */
static spry_view host_name(const char *host)
{
    const char *end;
    if (host[0] == '[') {
        end = strchr(host, ']');
        return end ? (spry_view){host + 1, (size_t)(end - host - 1)} : spry_view_of(host);
    }
    end = strchr(host, ':');
    return end ? (spry_view){host, (size_t)(end - host)} : spry_view_of(host);
}

static bool same_name(spry_view a, const char *b)
{
    return a.size == strlen(b) && strncasecmp(a.data, b, a.size) == 0;
}

static bool is_this_machine(spry_view name)
{
    return same_name(name, "localhost") || same_name(name, "127.0.0.1") || same_name(name, "::1");
}

/* An address, or the name of this machine: names that no other site can have. */
static bool names_no_site(spry_view name)
{
    char text[256], own[256] = "";
    struct in6_addr address;
    if (name.size >= sizeof text)
        return false;
    memcpy(text, name.data, name.size);
    text[name.size] = '\0';
    if (inet_pton(AF_INET, text, &address) == 1 || inet_pton(AF_INET6, text, &address) == 1)
        return true;
    if (gethostname(own, sizeof own - 1) != 0 || !own[0])
        return false;
    const spry_view local = SPRY_VIEW(".local");
    return same_name(name, own) ||
           (spry_view_ends(name, local) && same_name((spry_view){name.data, name.size - local.size}, own));
}

static bool is_own_host(const spry_exchange *x, const char *host)
{
    spry_view name = host_name(host);
    return is_this_machine(name) || same_name(name, x->server->settings->host) ||
           (!x->server->loopback && names_no_site(name));
}

static bool is_own_origin(const char *origin, const char *host)
{
    const char *rest = strstr(origin, "://");
    return rest && host && strcasecmp(rest + 3, host) == 0;
}

/* --cors is a list: origins, "localhost" for pages of this machine on any port, "*" for all. */
static bool cors_allows(const char *list, const char *origin)
{
    const char *rest = strstr(origin, "://");
    bool local = rest && is_this_machine(host_name(rest + 3));
    for (const char *at = list; at && *at;) {
        at += strspn(at, ", ");
        spry_view item = {at, strcspn(at, ", ")};
        if (spry_view_is(item, "*") || (item.size && same_name(item, origin)) ||
            (local && same_name(item, "localhost")))
            return true;
        at += item.size;
    }
    return false;
}

void spry_http_cors_add(spry_exchange *x)
{
    const char *cors = x->server->settings->cors, *origin = spry_exchange_header(x, "Origin");
    if (!cors)
        return;
    if (origin ? cors_allows(cors, origin) : strcmp(cors, "*") == 0)
        spry_reply_field(x, "Access-Control-Allow-Origin", origin ? origin : "*");
    if (origin && cors_allows(cors, origin)) /* keys are sent by pages themselves; browsers add none */
        spry_reply_field(x, "Access-Control-Allow-Credentials", "true");
    spry_reply_field(x, "Vary", "Origin");
}

static bool origin_is_allowed(spry_exchange *x)
{
    const char *origin = spry_exchange_header(x, "Origin");
    return !origin || cors_allows(x->server->settings->cors, origin) ||
           is_own_origin(origin, spry_exchange_header(x, "Host"));
}

/* Appends the requested headers that clients of the public SDKs send. */
static void allow_headers(spry_buffer *out, const char *requested)
{
    static const char *const known[] = {
        "authorization",       "content-type",   "accept",
        "x-api-key",           "api-key",        "anthropic-version",
        "anthropic-beta",      "openai-beta",    "anthropic-dangerous-direct-browser-access",
        "openai-organization", "openai-project", "user-agent",
        "x-requested-with",    "http-referer",   "x-title"};
    for (const char *at = requested; *at;) {
        at += strspn(at, ", \t");
        spry_view name = {at, strcspn(at, ", \t")};
        bool fine = name.size > 12 && strncasecmp(name.data, "x-stainless-", 12) == 0;
        for (size_t i = 0; i < SPRY_COUNT(known); i++)
            fine = fine || same_name(name, known[i]);
        if (fine)
            spry_buffer_format(out, "%s%.*s", out->size ? ", " : "", SPRY_VIEW_ARG(name));
        at += name.size;
    }
}

/* The reply to a preflight of an origin that is not allowed does not allow it. */
static bool preflight(spry_exchange *x)
{
    if (!x->server->settings->cors || strcmp(x->method, "OPTIONS") != 0)
        return false;
    spry_http_cors_add(x);
    spry_reply_field(x, "Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
    const char *requested = spry_exchange_header(x, "Access-Control-Request-Headers");
    spry_buffer headers;
    spry_buffer_init(&headers, HEADERS_BYTES_MAX);
    if (spry_server_likes_llama(x->server))
        spry_buffer_text(&headers, "*");
    else
        allow_headers(&headers, requested ? requested : "Authorization, Content-Type");
    if (headers.size && !headers.failed)
        spry_reply_field(x, "Access-Control-Allow-Headers", headers.data);
    spry_buffer_deinit(&headers);
    spry_reply_field(x, "Access-Control-Max-Age", "600");
    x->status = SPRY_HTTP_OK;
    return true;
}

static bool has_key(spry_exchange *x)
{
    spry_access_keys *keys = &x->server->keys;
    const char *given = spry_exchange_header(x, "Authorization");
    x->rates = x->server->settings->rates;
    x->admin = !keys->count;
    if (!keys->count)
        return true;
    const char *plain = spry_exchange_header(x, "X-Api-Key");
    spry_view key = spry_view_of(given ? given : plain ? plain : "");
    const spry_view scheme = SPRY_VIEW("Bearer ");
    if (key.size > scheme.size && strncasecmp(key.data, scheme.data, scheme.size) == 0)
        key = (spry_view){key.data + scheme.size, key.size - scheme.size};
    spry_access_key found;
    int index = spry_access_keys_find(keys, &found, key);
    if (index >= 0) {
        x->key = (spry_view){found.text, found.size};
        x->key_index = (size_t)index;
        x->rates = found.rates;
        x->admin = found.admin;
    }
    return index >= 0;
}

bool spry_http_admin(spry_exchange *x)
{
    if (!x->admin)
        spry_reply_error(x, SPRY_HTTP_FORBIDDEN, NULL,
                         "this key cannot change models: its line in the key file must have the word admin");
    return x->admin;
}

/* Requests that can compute count; those that only look do not. */
static bool within_limits(spry_exchange *x)
{
    if (!x->route || x->route->access == SPRY_ROUTE_OPEN || strcmp(x->method, "POST") != 0)
        return true;
    const char *limit = spry_key_limits_begin(&x->server->limits, x->key_index, &x->rates, x->began_ns, &x->retry_s);
    x->counted = !limit;
    if (limit)
        spry_reply_error(x, SPRY_HTTP_TOO_MANY_REQUESTS, NULL, "too many %s%s; try again in %u s", limit,
                         x->server->keys.count ? " with this key" : "", x->retry_s);
    return !limit;
}

bool spry_http_guard(spry_exchange *x)
{
    const char *host = spry_exchange_header(x, "Host");
    if (!x->server->keys.count && host && !is_own_host(x, host)) {
        spry_reply_error(x, SPRY_HTTP_FORBIDDEN, NULL, "Host header not allowed");
        return false;
    }
    if (preflight(x))
        return false;
    if (!origin_is_allowed(x)) {
        spry_reply_error(x, SPRY_HTTP_FORBIDDEN, NULL, "Origin header not allowed; --cors ORIGIN allows an origin");
        return false;
    }
    bool metrics = x->server->settings->public_metrics && strcmp(x->path, "/metrics") == 0;
    if (!metrics && !(x->route && x->route->access == SPRY_ROUTE_OPEN) && !has_key(x)) {
        spry_reply_error(x, SPRY_HTTP_UNAUTHORIZED, NULL,
                         "access key missing or wrong: send \"Authorization: Bearer KEY\" or \"X-Api-Key: KEY\"");
        return false;
    }
    if (x->route && x->route->access == SPRY_ROUTE_ADMIN && !spry_http_admin(x))
        return false;
    /* A client is one key on one address. */
    x->client =
        spry_address_hash(&x->connection->address, spry_hash_bytes(x->key.data ? x->key.data : "", x->key.size, 0));
    return within_limits(x);
}
