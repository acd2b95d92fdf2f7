/* A drafter beside its target on one GPU: both are placed there, drafts are made and verified there, and the tokens are
 * those without drafts and, at temperature 0, the CPU's. The GPU is imitated, and what steps cost is fixed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "spry.h"
#include "support/cuda_imitation.h"
#include "support/fixed_costs.h"

enum { TOKENS = 12 };

typedef struct kept {
    int32_t ids[TOKENS];
    size_t count;
} kept;

static bool keep(void *user, spry_logprob_entry token, const spry_logprob_entry *top, size_t n_top)
{
    kept *k = user;
    (void)top;
    (void)n_top;
    assert_true(k->count < TOKENS);
    k->ids[k->count++] = token.id;
    return true;
}

/* `quantize`: a drafter of other weights than its target, which is refused at times. */
static spry_engine *open_engine(const char *device, const char *quantize)
{
    spry_engine_options options;
    spry_engine *engine;
    spry_error error;
    spry_engine_options_default(&options);
    options.context = 96;
    options.threads = 1;
    options.cpu = "ref";
    options.device = device;
    options.quantize = quantize;
    if (spry_engine_open(&engine, TEST_DATA "/models/qwen3/model-f32.gguf", &options, &error))
        fail_msg("%s", error.message);
    spry_engine_info info;
    spry_engine_describe(engine, &info);
    assert_string_equal(info.device, device); /* nothing else took its place */
    return engine;
}

static spry_draft_report answer(kept *out, spry_engine *engine, spry_speculation who, float temperature)
{
    static const int32_t ids[] = {5, 9, 200, 31, 5, 9};
    spry_session *session;
    spry_request request;
    spry_result result;
    spry_error error;
    spry_request_default(&request);
    request.prompt = ids;
    request.n_prompt = sizeof ids / sizeof *ids;
    request.max_tokens = TOKENS;
    request.ignore_end = true;
    request.sampling.temperature = temperature;
    request.sampling.seed = 3;
    request.speculation = who;
    request.draft_most = 3;
    request.on_token = keep;
    request.user = out;
    out->count = 0;
    if (spry_session_create(&session, engine, &error) || spry_session_generate(session, &result, &request, &error))
        fail_msg("%s", error.message);
    spry_session_destroy(session);
    assert_int_equal(out->count, TOKENS);
    return result.drafts;
}

static void a_drafter_beside_its_target(void **state)
{
    (void)state;
    spry_error error;
    spry_engine *cpu = open_engine("cpu", NULL), *target = open_engine("cuda", NULL);
    int alone = imitation.contexts;
    size_t held = imitation.allocations;
    spry_engine *drafter = open_engine("cuda", "q8_0");
    assert_true(imitation.contexts > alone && imitation.allocations > held); /* it is on the GPU, too */
    assert_int_equal(spry_engine_set_drafter(target, drafter, &error), SPRY_OK);
    kept here, plain, drafted;
    answer(&here, cpu, SPRY_DRAFT_NONE, 0);
    for (int warm = 0; warm < 2; warm++) {
        float temperature = warm ? 0.8f : 0;
        answer(&plain, target, SPRY_DRAFT_NONE, temperature);
        size_t launches = imitation.launches;
        spry_draft_report report = answer(&drafted, target, SPRY_DRAFT_MODEL, temperature);
        assert_true(report.drafted > 0 && report.accepted > 0);
        assert_true(imitation.launches > launches);
        assert_memory_equal(drafted.ids, plain.ids, sizeof plain.ids);
        if (!warm)
            assert_memory_equal(drafted.ids, here.ids, sizeof here.ids);
    }
    spry_engine_close(target);
    spry_engine_close(drafter);
    spry_engine_close(cpu);
    assert_true(cuda_imitation_is_clean());
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_drafter_beside_its_target)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
