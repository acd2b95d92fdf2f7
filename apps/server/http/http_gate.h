/* Between clients and libmicrohttpd: one thread accepts connections, decrypts them with HTTPS, and passes bytes on,
 * those of the client as http_frames.h says. libmicrohttpd has the other end of a socket pair, and the client's
 * address.
 *
 * A reply that ends its connection is delivered also to a client that is still sending: what it sends is read and
 * dropped for a moment, because a socket that is closed with unread bytes can lose the reply. */
#ifndef SPRY_SERVER_HTTP_GATE_H
#define SPRY_SERVER_HTTP_GATE_H

#include <microhttpd.h>

#include "base/error.h"
#include "server/http/http_tls.h"
#include "server/server.h"

typedef struct spry_http_gate spry_http_gate;

/* Starts the thread. `listening` and `tls` (NULL: plain HTTP) are borrowed. */
spry_status spry_http_gate_start(spry_http_gate **gate, const spry_serve_settings *settings, struct MHD_Daemon *daemon,
                                 int listening, const spry_http_tls *tls, spry_error *error);

/* Accepts no more connections; returns when the listening socket is no longer in use. */
void spry_http_gate_quiesce(spry_http_gate *gate);

/* Delivers what libmicrohttpd has written, which takes at most a second, and frees the gate. */
void spry_http_gate_stop(spry_http_gate *gate);

#endif
