/* Parts of the server that need no connection: keys that are wiped, fragments that are rendered once, arguments of tool
 * calls that are collected in linear time, and a reply that outlives its caller's memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "engine/engine_state.h"
#include "platform/clock.h"
#include "server/http/access_keys.h"
#include "server/http/http_reply.h"
#include "server/request/prompt.h"
#include "support/engine_fixture.h"
#include "support/scratch.h"

/* ---- keys -------------------------------------------------------------------------------------------------------- */

#define SECRET "a-secret-key"

static bool inspecting;    /* look at every block that is given back */
static size_t n_inspected; /* blocks that held the secret when they were given back */
static size_t n_secrets;

void __real_free(void *block);
void *__real_realloc(void *block, size_t size);
void __wrap_free(void *block);
void *__wrap_realloc(void *block, size_t size);

static void inspect(void *block)
{
    if (!inspecting || !block)
        return;
    n_inspected++;
    n_secrets += memmem(block, malloc_usable_size(block), SECRET, strlen(SECRET)) != NULL;
}

void __wrap_free(void *block)
{
    inspect(block);
    __real_free(block);
}

void *__wrap_realloc(void *block, size_t size)
{
    inspect(block);
    return __real_realloc(block, size);
}

static void test_keys_are_wiped(void **state)
{
    enum { KEYS = 1000 };
    (void)state;
    scratch place;
    spry_access_keys keys;
    spry_buffer text;
    spry_buffer_init(&text, 1 << 20);
    for (int i = 0; i < KEYS; i++)
        spry_buffer_format(&text, SECRET "-%d\n", i);
    scratch_init(&place);
    const char *path = scratch_write(&place, "keys", text.data, text.size);
    spry_buffer_deinit(&text);
    n_inspected = n_secrets = 0;
    inspecting = true;
    assert_int_equal(spry_access_keys_init(&keys, path, &(spry_key_rates){0}, NULL), SPRY_OK);
    assert_int_equal(keys.count, KEYS);
    spry_access_key key;
    assert_int_equal(spry_access_keys_find(&keys, &key, SPRY_VIEW(SECRET "-7")), 7);
    const char *text_of_7 = key.text;
    /* Read again: a key keeps its number and its memory; one that has gone is refused. */
    const char changed[] = SECRET "-new admin name=n\n" SECRET "-7 requests=5\n";
    scratch_write(&place, "keys", changed, sizeof changed - 1);
    assert_int_equal(spry_access_keys_read(&keys, path, &(spry_key_rates){0}, NULL), SPRY_OK);
    assert_int_equal(spry_access_keys_find(&keys, &key, SPRY_VIEW(SECRET "-7")), 7);
    assert_ptr_equal(key.text, text_of_7);
    assert_int_equal(key.rates.requests, 5);
    assert_false(key.admin);
    assert_int_equal(spry_access_keys_find(&keys, &key, SPRY_VIEW(SECRET "-8")), -1);
    assert_int_equal(spry_access_keys_find(&keys, &key, SPRY_VIEW(SECRET "-new")), KEYS);
    assert_true(key.admin);
    /* A file with a fault changes nothing. */
    scratch_write(&place, "keys", SECRET "-8 nonsense\n", sizeof SECRET + 12);
    assert_int_equal(spry_access_keys_read(&keys, path, &(spry_key_rates){0}, NULL), SPRY_ERR_FORMAT);
    assert_int_equal(spry_access_keys_find(&keys, &key, SPRY_VIEW(SECRET "-new")), KEYS);
    spry_access_keys_deinit(&keys);
    inspecting = false;
    assert_true(n_inspected > 0);
    assert_int_equal(n_secrets, 0);
    scratch_deinit(&place);
}

/* ---- limits of keys ---------------------------------------------------------------------------------------------- */

static const char *begin_at(spry_key_limits *limits, size_t key, const spry_key_rates *rates, double seconds,
                            uint32_t *retry_s)
{
    const char *limit = spry_key_limits_begin(limits, key, rates, (uint64_t)(seconds * 1e9), retry_s);
    if (!limit)
        spry_key_limits_end(limits, key);
    return limit;
}

static void test_allowances_refill(void **state)
{
    (void)state;
    const spry_key_rates rates = {.requests = 60, .tokens = 600}, none = {0}, one = {.concurrent = 1};
    spry_key_limits limits;
    uint32_t retry;
    assert_true(spry_key_limits_init(&limits, 3));
    for (int i = 0; i < 60; i++)
        assert_null(begin_at(&limits, 1, &rates, 100, &retry));
    assert_string_equal(begin_at(&limits, 1, &rates, 100.5, &retry), "requests a minute");
    assert_int_equal(retry, 1);
    assert_null(begin_at(&limits, 0, &rates, 100.5, &retry)); /* another key */
    assert_null(begin_at(&limits, 1, &rates, 101.01, &retry));
    assert_non_null(begin_at(&limits, 1, &rates, 101.02, &retry));
    assert_non_null(begin_at(&limits, 1, &rates, 50, &retry)); /* a clock that goes back refills nothing */
    spry_key_limits_charge(&limits, 0, 1200);
    assert_string_equal(begin_at(&limits, 0, &rates, 101, &retry), "tokens a minute");
    assert_int_equal(retry, 60);
    assert_non_null(begin_at(&limits, 0, &rates, 159, &retry));
    assert_null(begin_at(&limits, 0, &rates, 161.1, &retry));
    for (int i = 0; i < 1000; i++)
        assert_null(begin_at(&limits, 2, &none, 1, &retry));
    assert_null(spry_key_limits_begin(&limits, 2, &one, 1000, &retry));
    assert_string_equal(begin_at(&limits, 2, &one, 1000, &retry), "requests at a time");
    spry_key_limits_end(&limits, 2);
    assert_null(begin_at(&limits, 2, &one, 1000, &retry));
    spry_key_limits_deinit(&limits);
}

/* ---- replies ----------------------------------------------------------------------------------------------------- */

static void test_allowed_methods_are_copied(void **state)
{
    (void)state;
    static const spry_serve_settings settings;
    spry_server server = {.settings = &settings};
    spry_exchange x = {.server = &server, .method = "PUT", .path = "/health"};
    char allowed[64] = "GET, HEAD";
    spry_reply_wrong_method(&x, allowed);
    memset(allowed, 'x', sizeof allowed - 1);
    assert_int_equal(x.status, SPRY_HTTP_METHOD_NOT_ALLOWED);
    assert_string_equal(x.allowed, "GET, HEAD");
    json_decref(x.kept);
}

/* ---- fragments --------------------------------------------------------------------------------------------------- */

static size_t n_renders;

spry_status __real_spry_chat_template_render(const spry_chat_template *chat, spry_chat_text *out,
                                             const spry_chat_input *input, spry_error *error);
spry_status __wrap_spry_chat_template_render(const spry_chat_template *chat, spry_chat_text *out,
                                             const spry_chat_input *input, spry_error *error);

spry_status __wrap_spry_chat_template_render(const spry_chat_template *chat, spry_chat_text *out,
                                             const spry_chat_input *input, spry_error *error)
{
    n_renders++;
    return __real_spry_chat_template_render(chat, out, input, error);
}

static void test_fragments_are_rendered_once(void **state)
{
    (void)state;
    spry_error error = {0};
    spry_engine *engine = fixture_open("llama", NULL);
    const spry_pooled model = {.name = "llama", .engine = engine};
    spry_server server = {0};
    spry_exchange exchange = {.server = &server};
    spry_completion *c = calloc(1, sizeof *c);
    c->model = &model;
    c->exchange = &exchange;
    json_t *messages = json_loads("[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"A fox came.\", "
                                  "\"cache\": \"span\"}, {\"type\": \"text\", \"text\": \"Who came?\"}]}]",
                                  0, NULL);
    n_renders = 0;
    assert_int_equal(spry_prompt_chat(c, messages, NULL, NULL, NULL, true, &error), SPRY_OK);
    assert_int_equal(n_renders, 1);
    assert_int_equal(c->prompts.n_spans, 1);
    assert_true(c->prompts.spans[0].begin < c->prompts.spans[0].end &&
                c->prompts.spans[0].end < c->prompts.ids[0].count);
    json_t *text;
    assert_int_equal(spry_prompt_render(&text, engine, messages, NULL, NULL, true, &error), SPRY_OK);
    assert_int_equal(n_renders, 2);
    assert_non_null(strstr(json_string_value(text), "A fox came."));
    json_decref(text);
    json_decref(messages);
    spry_tokens_deinit(&c->prompts.ids[0]);
    free(c->prompts.spans);
    free(c);
    spry_engine_close(engine);
}

/* ---- the registry ------------------------------------------------------------------------------------------------ */

static spry_registry registry;
static bool sampling;

void __real_spry_engine_kv_figures(spry_engine *engine, spry_kv_figures *figures);
void __wrap_spry_engine_kv_figures(spry_engine *engine, spry_kv_figures *figures);

void __wrap_spry_engine_kv_figures(spry_engine *engine, spry_kv_figures *figures)
{
    if (sampling) {
        assert_int_equal(pthread_mutex_trylock(&registry.lock), 0);
        pthread_mutex_unlock(&registry.lock);
    }
    __real_spry_engine_kv_figures(engine, figures);
}

/* Sampling waits for the engine, and the engine's callbacks for the registry: one must not hold its lock. */
static void test_sampling_holds_no_lock(void **state)
{
    (void)state;
    spry_engine *engine = fixture_open("llama", NULL);
    spry_registry_init(&registry);
    sampling = true;
    spry_registry_sample(&registry, "llama", engine, 1, false);
    sampling = false;
    assert_int_equal(registry.n_models, 1);
    assert_true(registry.models[0].kv.pages > 0);
    spry_registry_deinit(&registry);
    spry_engine_close(engine);
}

/* ---- arguments of tool calls ------------------------------------------------------------------------------------- */

static size_t json_bytes; /* that jansson asked for */

static void *count_malloc(size_t size)
{
    json_bytes += size;
    return malloc(size);
}

static void test_arguments_in_linear_time(void **state)
{
    enum { PIECES = 4096, PIECE = 64, TOTAL = PIECES * PIECE };
    (void)state;
    spry_choice choice = {0};
    char piece[PIECE];
    memset(piece, 'x', sizeof piece);
    spry_buffer_init(&choice.arguments, 2 * TOTAL);
    json_set_alloc_funcs(count_malloc, free);
    json_bytes = 0;
    spry_choice_add(&choice, &(spry_chat_event){
                                 .kind = SPRY_CHAT_CALL_BEGIN, .id = "abcdefghi", .name = "weather", .name_size = 7});
    for (int i = 0; i < PIECES; i++)
        spry_choice_add(&choice,
                        &(spry_chat_event){.kind = SPRY_CHAT_ARGUMENTS, .text = piece, .text_size = sizeof piece});
    spry_choice_add(&choice, &(spry_chat_event){.kind = SPRY_CHAT_CALL_END});
    assert_true(json_bytes < 4 * TOTAL);
    const json_t *call = json_array_get(choice.calls, 0);
    assert_string_equal(json_string_value(json_object_get(call, "name")), "weather");
    assert_int_equal(json_string_length(json_object_get(call, "arguments")), TOTAL);
    json_decref(choice.calls);
    spry_buffer_deinit(&choice.arguments);
}

/* ---- channels ---------------------------------------------------------------------------------------------------- */

static void test_channel(void **state)
{
    (void)state;
    int ends[2];
    spry_channel channel;
    spry_buffer taken;
    spry_record record;
    spry_buffer_init(&taken, 4096);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    assert_int_equal(spry_channel_init(&channel, 4096, NULL), SPRY_OK);
    assert_int_equal(spry_channel_wait(&channel, ends[0], spry_clock_ns() + 1000000), SPRY_WAIT_TIMEOUT);
    assert_true(spry_channel_post(&channel, 1, 2, "abc", 3));
    assert_false(spry_channel_post(&channel, 1, 2, (char[4096]){0}, 4096));
    assert_int_equal(spry_channel_wait(&channel, ends[0], 0), SPRY_WAIT_RAISED);
    assert_int_equal(spry_channel_take(&channel, &taken), 0);
    assert_int_equal(taken.size, sizeof record + 3);
    memcpy(&record, taken.data, sizeof record);
    assert_true(record.kind == 1 && record.choice == 2 && record.size == 3);
    taken.size = 0;
    assert_int_equal(spry_channel_wait(&channel, -1, spry_clock_ns() + 1000000), SPRY_WAIT_TIMEOUT);
    spry_channel_post_done(&channel);
    assert_int_equal(spry_channel_wait(&channel, -1, 0), SPRY_WAIT_RAISED);
    assert_int_equal(spry_channel_take(&channel, &taken), 1);
    assert_false(spry_socket_hung_up(ends[0], 0));
    assert_int_equal(shutdown(ends[1], SHUT_WR), 0);
    assert_int_equal(spry_channel_wait(&channel, ends[0], 0), SPRY_WAIT_HUNG_UP);
    assert_true(spry_socket_hung_up(ends[0], 0));
    close(ends[0]);
    close(ends[1]);
    spry_channel_deinit(&channel);
    spry_buffer_deinit(&taken);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys_are_wiped),
        cmocka_unit_test(test_allowances_refill),
        cmocka_unit_test(test_allowed_methods_are_copied),
        cmocka_unit_test(test_fragments_are_rendered_once),
        cmocka_unit_test(test_arguments_in_linear_time),
        cmocka_unit_test(test_channel),
        cmocka_unit_test(test_sampling_holds_no_lock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
