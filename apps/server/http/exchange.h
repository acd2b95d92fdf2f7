/* One HTTP request and its reply. The handler of a route gives exactly one reply, through http_reply.h. */
#ifndef SPRY_SERVER_EXCHANGE_H
#define SPRY_SERVER_EXCHANGE_H

#include <jansson.h>
#include <microhttpd.h>

#include "base/buffer.h"
#include "server/server.h"

typedef struct spry_exchange spry_exchange;

/* The JSON form of errors. */
typedef enum spry_error_form { SPRY_ERRORS_OPENAI, SPRY_ERRORS_OLLAMA, SPRY_ERRORS_ANTHROPIC } spry_error_form;

typedef struct spry_route {
    const char *method, *path; /* a path that ends with '*' matches every path with that prefix */
    void (*handle)(spry_exchange *exchange);
    spry_error_form errors;
    bool open; /* needs no key */
} spry_route;

struct spry_exchange {
    spry_server *server;
    struct MHD_Connection *connection; /* NULL: no connection; the reply is stored in `kept` */
    json_t *kept;
    const char *method, *path;
    const char *tail; /* the part of the path that matched '*' */
    const spry_route *route;
    bool needs_host; /* HTTP/1.1 */
    bool last;       /* its connection ends with its reply */
    spry_buffer body;
    size_t dropped;                           /* bytes of the body beyond the limit */
    uint64_t number;                          /* requests are numbered from 1 */
    uint64_t began_ns;                        /* when its head had been read */
    uint64_t load_ns;                         /* time it waited for its model to be loaded */
    size_t overflow_tokens, overflow_context; /* of a prompt that is too long; 0: none was */
    bool late;                                /* it exceeded --answer-timeout */
    uint64_t client;                          /* jobs of one client share its turn in the scheduler */
    spry_view key;                            /* its access key; empty when the server has no keys */
    size_t key_index;                         /* its number; 0 without keys */
    bool counted;                             /* among the requests of its key */
    uint32_t retry_s;                         /* of a reply with status 429 */
    spry_audit_facts audit;
    char process_start[24]; /* a header of the reply, in seconds; empty: none */
    char allowed[64];       /* methods of the path, for a reply that lists them */
    unsigned status;        /* HTTP status of the reply; 0: none yet */
    enum MHD_Result queued;
    unsigned references; /* the connection, and the stream of its reply */
};

#endif
