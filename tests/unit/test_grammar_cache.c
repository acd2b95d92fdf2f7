/* The cache of compiled grammars under several threads. The linker sends the cache's calls of
 * spry_grammar_create_styled to __wrap_spry_grammar_create_styled (see tests/CMakeLists.txt), which holds back the
 * compile of SLOW until the gate opens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "grammar/grammar.h"

#define SLOW  "slow*"
#define WRONG "(slow"

enum { THREADS = 4, SECONDS_MAX = 600 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool gate_open, gate_timed_out;
static int n_held, n_compiled; /* compiles of SLOW and WRONG: at the gate now; in all */

spry_status __real_spry_grammar_create_styled(spry_grammar **out, spry_grammar_kind kind, spry_json_style style,
                                              spry_view source, spry_error *error);
spry_status __wrap_spry_grammar_create_styled(spry_grammar **out, spry_grammar_kind kind, spry_json_style style,
                                              spry_view source, spry_error *error);

spry_status __wrap_spry_grammar_create_styled(spry_grammar **out, spry_grammar_kind kind, spry_json_style style,
                                              spry_view source, spry_error *error)
{
    if (spry_view_equal(source, SPRY_VIEW(SLOW)) || spry_view_equal(source, SPRY_VIEW(WRONG))) {
        struct timespec limit;
        clock_gettime(CLOCK_REALTIME, &limit);
        limit.tv_sec += SECONDS_MAX; /* a cache that blocks fails the test instead of hanging it */
        pthread_mutex_lock(&lock);
        n_held++;
        n_compiled++;
        pthread_cond_broadcast(&changed);
        while (!gate_open && !gate_timed_out)
            gate_timed_out = pthread_cond_timedwait(&changed, &lock, &limit) != 0;
        n_held--;
        pthread_mutex_unlock(&lock);
    }
    return __real_spry_grammar_create_styled(out, kind, style, source, error);
}

typedef struct client {
    pthread_t thread;
    spry_grammar_cache *cache;
    const char *source;
    spry_grammar *grammar;
    spry_status status;
} client;

static void *request(void *context)
{
    client *c = context;
    spry_error error;
    c->status = spry_grammar_cache_get(c->cache, &c->grammar, SPRY_GRAMMAR_REGEX, SPRY_JSON_ANY,
                                       spry_view_of(c->source), &error);
    return NULL;
}

/* Starts THREADS requests for `source` and returns when one of them is at the gate. */
static void start(client *clients, spry_grammar_cache *cache, const char *source)
{
    gate_open = gate_timed_out = false;
    n_compiled = 0;
    for (int i = 0; i < THREADS; i++) {
        clients[i] = (client){.cache = cache, .source = source};
        assert_int_equal(pthread_create(&clients[i].thread, NULL, request, &clients[i]), 0);
    }
    pthread_mutex_lock(&lock);
    while (!n_held)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static void finish(client *clients)
{
    pthread_mutex_lock(&lock);
    gate_open = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < THREADS; i++)
        pthread_join(clients[i].thread, NULL);
}

/* Requests more other sources than the cache has entries, while SLOW is being compiled. */
static void request_others(spry_grammar_cache *cache)
{
    for (int i = 0; i < SPRY_GRAMMAR_CACHE_ENTRIES + 4; i++) {
        char source[32];
        spry_error error;
        spry_grammar *other;
        snprintf(source, sizeof source, "x{%d}", i);
        assert_int_equal(
            spry_grammar_cache_get(cache, &other, SPRY_GRAMMAR_REGEX, SPRY_JSON_ANY, spry_view_of(source), &error),
            SPRY_OK);
        spry_grammar_unref(other);
    }
}

static void test_slow_compile(void **state)
{
    (void)state;
    spry_grammar_cache *cache;
    spry_error error;
    client clients[THREADS];
    assert_int_equal(spry_grammar_cache_create(&cache, &error), SPRY_OK);
    start(clients, cache, SLOW);
    request_others(cache);
    assert_false(gate_timed_out); /* the others did not wait for SLOW */
    finish(clients);
    assert_int_equal(n_compiled, 1);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(clients[i].status, SPRY_OK);
        assert_ptr_equal(clients[i].grammar, clients[0].grammar);
    }
    for (int i = 0; i < THREADS; i++)
        spry_grammar_unref(clients[i].grammar);
    spry_grammar_cache_destroy(cache);
}

static void test_failed_compile(void **state)
{
    (void)state;
    spry_grammar_cache *cache;
    spry_error error;
    client clients[THREADS];
    assert_int_equal(spry_grammar_cache_create(&cache, &error), SPRY_OK);
    start(clients, cache, WRONG);
    finish(clients);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(clients[i].status, SPRY_ERR_INPUT);
    assert_int_equal(n_compiled, THREADS);
    spry_grammar_cache_destroy(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_slow_compile), cmocka_unit_test(test_failed_compile)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
