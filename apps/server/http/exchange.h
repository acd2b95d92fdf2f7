/* One HTTP request and its reply. The handler of a route gives exactly one reply, through http_reply.h. */
#ifndef SPRY_SERVER_EXCHANGE_H
#define SPRY_SERVER_EXCHANGE_H

#include <jansson.h>
#include <sys/types.h>

#include "base/buffer.h"
#include "server/http/http_request.h"
#include "server/server.h"

/* HTTP statuses. */
enum {
    SPRY_HTTP_OK = 200,
    SPRY_HTTP_BAD_REQUEST = 400,
    SPRY_HTTP_UNAUTHORIZED = 401,
    SPRY_HTTP_FORBIDDEN = 403,
    SPRY_HTTP_NOT_FOUND = 404,
    SPRY_HTTP_METHOD_NOT_ALLOWED = 405,
    SPRY_HTTP_CONFLICT = 409,
    SPRY_HTTP_CONTENT_TOO_LARGE = 413,
    SPRY_HTTP_UNSUPPORTED_MEDIA_TYPE = 415,
    SPRY_HTTP_UNPROCESSABLE_CONTENT = 422,
    SPRY_HTTP_TOO_MANY_REQUESTS = 429,
    SPRY_HTTP_INTERNAL_SERVER_ERROR = 500,
    SPRY_HTTP_NOT_IMPLEMENTED = 501,
    SPRY_HTTP_BAD_GATEWAY = 502,
    SPRY_HTTP_SERVICE_UNAVAILABLE = 503,
    SPRY_HTTP_GATEWAY_TIMEOUT = 504,
};

typedef struct spry_exchange spry_exchange;

/* The JSON form of errors. */
typedef enum spry_error_form { SPRY_ERRORS_OPENAI, SPRY_ERRORS_OLLAMA, SPRY_ERRORS_ANTHROPIC } spry_error_form;

/* What a client needs: a key of the server, if it has keys; nothing; or a key that may change models. */
typedef enum spry_route_access { SPRY_ROUTE_KEYED, SPRY_ROUTE_OPEN, SPRY_ROUTE_ADMIN } spry_route_access;

typedef struct spry_route {
    const char *method, *path; /* a path that ends with '*' matches every path with that prefix */
    void (*handle)(spry_exchange *exchange);
    spry_error_form errors;
    spry_route_access access;
} spry_route;

/* The route of a request; NULL when there is none: then `allowed` has the methods of the path in the form of the Allow
 * header, or is empty. *tail points into the path. */
const spry_route *spry_route_find(const char *method, const char *path, const char **tail, char allowed[64]);

/* A source of bytes. `more` waits until there are some and returns how many it wrote to `out`, 0 at the end, -1 to
 * close the connection. `end` is called exactly once, in any case. */
typedef struct spry_reply_source {
    ssize_t (*more)(void *self, char *out, size_t size);
    void (*end)(void *self);
    void *self;
} spry_reply_source;

struct spry_exchange {
    spry_server *server;
    struct spry_connection *connection; /* NULL: no connection; the reply is stored in `kept` */
    json_t *kept;
    const char *method, *path;
    const char *tail; /* the part of the path that matched '*' */
    const spry_route *route;
    spry_buffer body;
    spry_buffer ignored; /* names of parts of the body that nothing uses, with commas between them */
    size_t memory;       /* bytes of --request-memory that it has taken */
    bool large;          /* it took much of it: memory is given back to the system afterwards */
    bool exceeds;        /* it wanted more than one request may take */
    uint64_t number;     /* requests are numbered from 1 */
    uint64_t began_ns;   /* when the head of the request had been read */
    uint64_t load_ns;    /* time it waited for its model to be loaded */
    size_t overflow_tokens, overflow_context; /* tokens and limit of a prompt that is too long; 0: none is */
    bool late;                                /* it exceeded --answer-timeout */
    uint64_t client;                          /* jobs of one client share its turn in the scheduler */
    spry_view key;                            /* its access key; empty when the server has no keys */
    size_t key_index;                         /* its number; 0 without keys */
    spry_key_rates rates;                     /* limits of its key, or of all requests */
    bool admin;                               /* it may change models */
    bool counted;                             /* among the requests of its key */
    uint32_t retry_s;                         /* seconds after which to retry, for a reply with status 429 */
    spry_audit_facts audit;
    char process_start[24]; /* a header of the reply, in seconds; empty: none */
    char allowed[64];       /* methods of the path, for a reply that lists them */

    unsigned status;          /* HTTP status of the reply; 0: none yet */
    spry_buffer fields;       /* header fields of the reply, as they are sent */
    spry_view content;        /* the reply's body */
    char *owned;              /* memory of `content` that is freed with the exchange; NULL: it is borrowed */
    spry_reply_source source; /* instead of `content`; `more` NULL: none */
};

#endif
