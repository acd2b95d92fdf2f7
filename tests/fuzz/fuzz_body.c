/* Any bytes as the body of a request to a server with a small model: the first byte says of which interface. Every
 * request has a reply with a status, and one that is refused has a sentence. */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/compiler.h"
#include "platform/clock.h"
#include "server/http/exchange.h"
#include "server/server_setup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const paths[] = {"/v1/chat/completions",
                                    "/v1/completions",
                                    "/v1/responses",
                                    "/v1/messages",
                                    "/v1/messages/count_tokens",
                                    "/v1/embeddings",
                                    "/completion",
                                    "/infill",
                                    "/v1/rerank",
                                    "/tokenize",
                                    "/detokenize",
                                    "/apply-template",
                                    "/lora-adapters",
                                    "/api/chat",
                                    "/api/generate",
                                    "/api/embed",
                                    "/api/show",
                                    "/models/load",
                                    "/v1/responses/input_tokens",
                                    "/v1/responses/compact"};

static spry_server *server;
static spry_server_flags flags;

static void leave(void)
{
    spry_server_close(server);
}

static void open_server(void)
{
    static const char *name = TEST_DATA "/models/qwen3";
    const spry_option_list named = {&name, 1, 1};
    spry_error error;
    spry_server_flags_default(&flags);
    flags.settings.max_tokens = 3;
    flags.settings.only_named = true;
    flags.engine.quiet = true;
    flags.engine.options.context = 256;
    flags.engine.options.kv_bytes = 8 << 20;
    flags.engine.options.threads = 1;
    if (spry_server_open(&server, &flags, &named, &error) != SPRY_OK) {
        fprintf(stderr, "%s\n", error.message);
        abort();
    }
    atexit(leave);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char allowed[64];
    if (!server)
        open_server();
    if (size < 1)
        return 0;
    const char *path = paths[data[0] % SPRY_COUNT(paths)];
    spry_exchange x = {.server = server, .method = "POST", .path = path, .began_ns = spry_clock_ns(), .admin = true};
    x.number = atomic_fetch_add(&server->numbers, 1) + 1;
    x.route = spry_route_find(x.method, path, &x.tail, allowed);
    spry_buffer_init(&x.body, 1 << 20);
    spry_buffer_init(&x.ignored, 1 << 16);
    if (!x.route || !spry_buffer_append(&x.body, data + 1, size - 1))
        abort();
    x.route->handle(&x);
    bool streamed = !x.status; /* a stream needs a connection */
    if (!streamed && (x.status < 200 || x.status > 599 || !x.kept))
        abort();
    if (x.status >= 400 && !json_object_get(x.kept, "error"))
        abort();
    json_decref(x.kept);
    spry_buffer_deinit(&x.ignored);
    spry_buffer_deinit(&x.body);
    return 0;
}
