/* Replies. Each function gives the exchange its one reply; a second one is ignored. */
#ifndef SPRY_SERVER_HTTP_REPLY_H
#define SPRY_SERVER_HTTP_REPLY_H

#include <jansson.h>

#include "server/http/exchange.h"

/* Takes the reference; NULL: replies that memory is short. */
void spry_reply_json(spry_exchange *exchange, unsigned status, json_t *json);

/* Copies `text`. `policy`: NULL, or the content security policy of a page. */
void spry_reply_text(spry_exchange *exchange, spry_view text, const char *type, const char *policy);

/* Bytes that are compressed with gzip and stay valid; browsers may keep them for a day. */
void spry_reply_compressed(spry_exchange *exchange, spry_view bytes, const char *type);

/* An error in the route's form; `param`: NULL, or the wrong field. */
void spry_reply_error(spry_exchange *exchange, unsigned status, const char *param, const char *format, ...)
    SPRY_PRINTF(4, 5);

/* The path exists, but not for this method. */
void spry_reply_wrong_method(spry_exchange *exchange, const char *allowed);

/* An error of the engine, the scheduler or the pool. */
void spry_reply_failure(spry_exchange *exchange, const spry_error *error);

/* An error of something that is written here: that a file cannot be written is a fault of the server. */
void spry_reply_write_failure(spry_exchange *exchange, const spry_error *error);

/* Adds a header field to the reply. */
void spry_reply_field(spry_exchange *exchange, const char *name, const char *value);

/* The words of an HTTP status: "Not Found". */
const char *spry_reply_reason(unsigned status);

/* The HTTP status of a spry_status. */
unsigned spry_reply_status(spry_status status);

/* The body of an error, for streams whose status has been sent; NULL when memory is short. */
json_t *spry_reply_error_body(spry_error_form form, unsigned status, const char *param, const char *sentence);

/* A reply whose length is not known; `source` is read until its end. */
void spry_reply_stream(spry_exchange *exchange, const char *type, spry_reply_source source);

#endif
