/* Any bytes as a connection's requests: every request ends or is refused, and any division of the bytes into reads has
 * the same result. The first byte says how the bytes are divided. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/http/http_request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_HEAD = 4096, MAX_BODY = 1 << 16 };

/* A digest of all requests: their states, faults, heads and bodies. */
static uint64_t read_all(const uint8_t *data, size_t size, size_t step)
{
    spry_http_parser parser;
    spry_buffer body;
    uint64_t digest = 1;
    spry_http_parser_init(&parser, MAX_HEAD, MAX_BODY);
    spry_buffer_init(&body, MAX_BODY);
    for (size_t at = 0; at < size && parser.state != SPRY_PARSE_REFUSED;) {
        spry_view part = {(const char *)data + at, size - at < step ? size - at : step};
        size_t taken = spry_http_parser_feed(&parser, &body, part);
        if (taken > part.size)
            abort();
        at += taken;
        if (parser.state < SPRY_PARSE_COMPLETE)
            continue;
        digest = digest * 31 + parser.state;
        digest = digest * 31 + parser.fault;
        if (parser.state == SPRY_PARSE_COMPLETE) {
            digest = digest * 31 + strlen(parser.head.path) + parser.head.n_fields + body.size;
            for (size_t i = 0; i < body.size; i++)
                digest = digest * 31 + (unsigned char)body.data[i];
            spry_buffer_clear(&body);
            spry_http_parser_reset(&parser);
        }
    }
    spry_http_parser_deinit(&parser);
    spry_buffer_deinit(&body);
    return digest;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    if (read_all(data + 1, size - 1, SIZE_MAX) != read_all(data + 1, size - 1, 1 + data[0] % 64u))
        abort();
    return 0;
}
