/* One request and its reply. A handler looks at the request and gives exactly one reply through http_reply.h. */
#ifndef SPRY_SERVER_EXCHANGE_H
#define SPRY_SERVER_EXCHANGE_H

#include <jansson.h>
#include <microhttpd.h>

#include "base/buffer.h"
#include "server/server.h"

typedef struct spry_exchange spry_exchange;

/* How errors are written. */
typedef enum spry_error_form { SPRY_ERRORS_OPENAI, SPRY_ERRORS_OLLAMA } spry_error_form;

typedef struct spry_route {
    const char *method, *path; /* a path that ends with '*' stands for all that begin so */
    void (*handle)(spry_exchange *exchange);
    spry_error_form errors;
    bool open; /* needs no key */
} spry_route;

struct spry_exchange {
    spry_server *server;
    struct MHD_Connection *connection; /* NULL: nobody is connected, and the reply is kept */
    json_t *kept;
    const char *method, *path;
    const char *tail; /* what stood in the place of the route's '*' */
    const spry_route *route;
    spry_buffer body;
    size_t dropped;    /* bytes of a body that is too large */
    uint64_t number;   /* of the request, since the start */
    uint64_t began_ns; /* when its head was read */
    uint64_t load_ns;  /* that it waited for its model to be loaded */
    bool late;         /* it took longer than allowed */
    uint64_t client;   /* who takes turns */
    spry_view key;     /* whose it is; empty when nobody needs one */
    char allowed[64];  /* methods of the path, for a reply that lists them */
    unsigned status;   /* of the reply; 0: none yet */
    enum MHD_Result queued;
    unsigned holders; /* the connection, and a stream that is being written */
};

#endif
