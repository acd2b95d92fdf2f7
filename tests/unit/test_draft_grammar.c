/* Guessing ahead in answers of a given shape: what the grammar forces is forced after an accepted guess, too, so that
 * no token changes, and no number is drawn that would not have been drawn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/fixed_costs.h"
#include "support/job_clients.h"

enum { SEEDS = 40 };

static const char schema[] = "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":12},"
                             "\"kind\":{\"enum\":[\"small\",\"large\"]}},\"required\":[\"name\",\"kind\"]}";

/* Returns how many guesses were accepted. */
static size_t compare(spry_engine *engine, client *both, uint32_t seed)
{
    spry_error error = {0};
    for (int drafts = 0; drafts < 2; drafts++) {
        client *c = &both[drafts];
        spry_session *session = fixture_session(engine);
        spry_request *r = &c->job.request;
        ask(c, 20 + seed, seed, 50);
        r->sampling.temperature = seed % 2 ? 1.0f : 0.0f;
        r->constraint = SPRY_JSON_SCHEMA;
        r->constraint_text = schema;
        r->json_style = SPRY_JSON_ANY; /* leaves the model the most choices */
        r->ignore_end = false;
        r->on_token = NULL;
        r->draft_most = 4;
        r->speculation = drafts ? SPRY_DRAFT_LOOKUP : SPRY_DRAFT_NONE;
        if (spry_session_generate(session, &c->job.result, r, &error))
            fail_msg("%s", error.message);
        spry_session_destroy(session);
    }
    assert_int_equal(both[0].job.result.finish, both[1].job.result.finish);
    assert_int_equal(both[0].job.result.generated_tokens, both[1].job.result.generated_tokens);
    assert_int_equal(both[0].size, both[1].size);
    assert_memory_equal(both[0].text, both[1].text, both[0].size);
    return both[1].job.result.drafts.accepted;
}

static void test_same_tokens(void **state)
{
    (void)state;
    static const char *const models[] = {"llama", "qwen3", "gemma3"};
    client *both = clients_new(2);
    size_t accepted = 0;
    for (size_t m = 0; m < SPRY_COUNT(models); m++) {
        spry_engine *engine = open_engine(models[m], 1, 0);
        for (uint32_t seed = 0; seed < SEEDS; seed++)
            accepted += compare(engine, both, seed);
        spry_engine_close(engine);
    }
    assert_true(accepted > 50);
    free(both);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_tokens)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
