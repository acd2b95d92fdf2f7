/* Structs of older and newer programs, versions, values that programs have compiled in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "spry_serve.h"
#include "spry_tools.h"
#include "spry_voice.h"
#include "support/engine_fixture.h"

/* A struct as three versions of a header know it. */
typedef struct shape_1 {
    size_t size;
    uint64_t first;
} shape_1;

typedef struct shape_2 {
    size_t size;
    uint64_t first, second;
} shape_2;

typedef struct shape_3 {
    size_t size;
    uint64_t first, second, third;
} shape_3;

static void test_read(void **state)
{
    (void)state;
    spry_error error = {0};
    shape_2 own = {sizeof own, 10, 20};
    shape_1 older = {sizeof older, 1};
    assert_int_equal(spry_sized_read(&own, sizeof own, &older, "shape", &error), SPRY_OK);
    assert_true(own.first == 1 && own.second == 20 && own.size == sizeof own);

    shape_2 same = {sizeof same, 3, 4};
    assert_int_equal(spry_sized_read(&own, sizeof own, &same, "shape", &error), SPRY_OK);
    assert_true(own.first == 3 && own.second == 4 && own.size == sizeof own);

    shape_3 newer = {sizeof newer, 5, 6, 0};
    assert_int_equal(spry_sized_read(&own, sizeof own, &newer, "shape", &error), SPRY_OK);
    assert_true(own.first == 5 && own.second == 6 && own.size == sizeof own);

    newer.first = 7;
    newer.third = (uint64_t)1 << 63; /* the last byte alone */
    assert_int_equal(spry_sized_read(&own, sizeof own, &newer, "shape", &error), SPRY_ERR_INPUT);
    assert_non_null(strstr(error.message, "shape has 32 bytes"));
    assert_true(own.first == 5 && own.second == 6);

    assert_int_equal(spry_sized_read(&own, sizeof own, NULL, "shape", &error), SPRY_OK);
    assert_true(own.first == 5 && own.second == 6);

    static const size_t garbage[] = {0, 1, sizeof(size_t) - 1, 1 << 20, SIZE_MAX};
    for (size_t i = 0; i < SPRY_COUNT(garbage); i++) {
        same.size = garbage[i];
        assert_int_equal(spry_sized_read(&own, sizeof own, &same, "shape", &error), SPRY_ERR_INPUT);
        assert_non_null(strstr(error.message, "shape_default"));
        assert_true(own.first == 5);
    }
}

/* ---- defaults ------------------------------------------------------------------------------------------------------
 */

#define DEFAULTS(type)                                                                                                 \
    static void default_##type(void *own, size_t size)                                                                 \
    {                                                                                                                  \
        type##_default_sized(own, size);                                                                               \
    }
DEFAULTS(spry_engine_options)
DEFAULTS(spry_request)
DEFAULTS(spry_jobs_options)
DEFAULTS(spry_job_options)
DEFAULTS(spry_evaluation)
DEFAULTS(spry_chat_parser_options)
DEFAULTS(spry_pool_options)
DEFAULTS(spry_convert_options)
DEFAULTS(spry_memory_use)
DEFAULTS(spry_speech_options)
DEFAULTS(spry_transcribe_options)
DEFAULTS(spry_vad_options)

static const struct {
    void (*write)(void *own, size_t size);
    size_t size;
} defaults[] = {{default_spry_engine_options, sizeof(spry_engine_options)},
                {default_spry_request, sizeof(spry_request)},
                {default_spry_jobs_options, sizeof(spry_jobs_options)},
                {default_spry_job_options, sizeof(spry_job_options)},
                {default_spry_evaluation, sizeof(spry_evaluation)},
                {default_spry_chat_parser_options, sizeof(spry_chat_parser_options)},
                {default_spry_pool_options, sizeof(spry_pool_options)},
                {default_spry_convert_options, sizeof(spry_convert_options)},
                {default_spry_memory_use, sizeof(spry_memory_use)},
                {default_spry_speech_options, sizeof(spry_speech_options)},
                {default_spry_transcribe_options, sizeof(spry_transcribe_options)},
                {default_spry_vad_options, sizeof(spry_vad_options)}};

/* A program's struct of any size gets its bytes and no other. */
static void test_defaults(void **state)
{
    (void)state;
    enum { MOST = 1024, NEWER = 40 };
    for (size_t i = 0; i < SPRY_COUNT(defaults); i++) {
        _Alignas(max_align_t) unsigned char whole[MOST], own[MOST], untouched[MOST];
        size_t known = defaults[i].size;
        assert_true(known + NEWER <= MOST);
        memset(untouched, 0xa5, MOST);
        memset(whole, 0xa5, MOST);
        defaults[i].write(whole, known);
        for (size_t size = 0; size <= known + NEWER; size++) {
            size_t written = size < sizeof size ? 0 : size, same = written < known ? written : known;
            memcpy(own, untouched, MOST);
            defaults[i].write(own, size);
            assert_memory_equal(own + written, untouched, MOST - written);
            if (!written)
                continue;
            assert_memory_equal(own, &size, sizeof size);
            assert_memory_equal(own + sizeof size, whole + sizeof size, same - sizeof size);
            assert_true(spry_sized_zero(own + same, written - same));
        }
    }
}

/* ---- versions ------------------------------------------------------------------------------------------------------
 */

static void test_version(void **state)
{
    (void)state;
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", SPRY_VERSION_MAJOR, SPRY_VERSION_MINOR, SPRY_VERSION_PATCH);
    assert_string_equal(spry_version(), text);
    assert_int_equal(spry_version_number(), SPRY_VERSION_NUMBER);
}

/* What a program has compiled in: sizes of structs without `size` of their own, or that the library fills. A change
 * here breaks programs; use reserved bytes. */
static void test_fixed(void **state)
{
    (void)state;
#if UINTPTR_MAX == UINT64_MAX
    assert_int_equal(sizeof(spry_sampling), 128);
    assert_int_equal(sizeof(spry_draft_report), 504);
    assert_int_equal(sizeof(spry_result), 1264);
    assert_int_equal(sizeof(spry_engine_info), 232);
    assert_int_equal(sizeof(spry_kv_figures), 320);
    assert_int_equal(sizeof(spry_message), 16);
    assert_int_equal(sizeof(spry_span), 16);
    assert_int_equal(sizeof(spry_logit_bias), 8);
    assert_int_equal(sizeof(spry_logprob_entry), 16);
    assert_int_equal(sizeof(spry_error), 516);
#endif
    assert_true((int)SPRY_PART_COUNT <= (int)SPRY_PARTS_ROOM);
    assert_true(SPRY_ERR_BUSY == 8 && SPRY_PART_OTHERS == 13 && SPRY_PART_ENCODE == 15 && SPRY_FINISH_CANCELLED == 4 &&
                SPRY_JSON_OBJECT == 5 && SPRY_DRAFT_MODEL == 3);
    assert_string_equal(spry_part_name((spry_part)31), "unknown");
    assert_string_equal(spry_finish_name((spry_finish)99), "unknown");
    assert_string_equal(spry_status_name((spry_status)99), "unknown");
}

static void test_engine_options(void **state)
{
    (void)state;
    spry_engine *engine;
    spry_error error = {0};
    spry_engine_info info;
    struct {
        spry_engine_options known;
        uint64_t unknown[2];
    } options = {0};
    const char *path = TEST_DATA "/models/llama";

    /* An older program knows `context` and no more; the bytes after it are its own. */
    spry_engine_options_default(&options.known);
    assert_int_equal(options.known.size, sizeof options.known);
    memset((char *)&options.known + offsetof(spry_engine_options, sessions), 0xff,
           sizeof options.known - offsetof(spry_engine_options, sessions));
    options.known.size = offsetof(spry_engine_options, sessions);
    options.known.context = 96;
    assert_int_equal(spry_engine_open(&engine, path, &options.known, &error), SPRY_OK);
    memset(&info, 0xff, sizeof info);
    spry_engine_describe(engine, &info);
    assert_int_equal(info.context, 96);
    assert_int_equal(info.size, offsetof(spry_engine_info, reserved));
    assert_true(spry_sized_zero(info.reserved, sizeof info.reserved));
    spry_engine_close(engine);

    spry_engine_options_default_sized(&options.known, sizeof options);
    assert_int_equal(options.known.size, sizeof options);
    options.known.threads = 1;
    assert_int_equal(spry_engine_open(&engine, path, &options.known, &error), SPRY_OK);
    spry_engine_close(engine);
    options.unknown[1] = 1;
    assert_int_equal(spry_engine_open(&engine, path, &options.known, &error), SPRY_ERR_INPUT);
    assert_null(engine);
    assert_non_null(strstr(error.message, "spry_engine_options"));

    memset(&options, 0, sizeof options); /* not initialised by its function */
    assert_int_equal(spry_engine_open(&engine, path, &options.known, &error), SPRY_ERR_INPUT);
    assert_non_null(strstr(error.message, "spry_engine_options_default"));
    assert_int_equal(spry_engine_open(&engine, path, NULL, &error), SPRY_OK);
    spry_engine_close(engine);
}

static void test_request(void **state)
{
    (void)state;
    spry_engine *engine = fixture_open("llama", NULL);
    spry_session *session = fixture_session(engine);
    spry_error error = {0};
    spry_result result;
    struct {
        spry_request known;
        uint64_t unknown;
    } request = {0};
    int32_t prompt[] = {5, 6, 7};
    spry_request_default(&request.known);
    request.known.prompt = prompt;
    request.known.n_prompt = 3;
    request.known.max_tokens = 2;
    request.known.ignore_end = true;
    request.known.size = sizeof request;
    memset(&result, 0xff, sizeof result);
    assert_int_equal(spry_session_generate(session, &result, &request.known, &error), SPRY_OK);
    assert_int_equal(result.generated_tokens, 2);
    assert_int_equal(result.size, offsetof(spry_result, reserved));
    assert_int_equal(result.n_parts, SPRY_PART_COUNT);
    assert_true(spry_sized_zero(result.reserved, sizeof result.reserved));
    assert_true(spry_sized_zero(result.drafts.reserved, sizeof result.drafts.reserved));

    request.unknown = 1;
    assert_int_equal(spry_session_generate(session, &result, &request.known, &error), SPRY_ERR_INPUT);
    assert_non_null(strstr(error.message, "spry_request"));
    assert_int_equal(result.generated_tokens, 0);

    request.known.size = offsetof(spry_request, special); /* an older program's: what follows is not read */
    request.known.pictures = (const struct spry_placed *)1;
    request.known.n_pictures = 1;
    assert_int_equal(spry_session_generate(session, &result, &request.known, &error), SPRY_OK);
    request.known.size = sizeof request.known;
    request.known.pictures = NULL;
    request.known.n_pictures = 0;
    request.known.sampling.reserved[6] = 1;
    assert_int_equal(spry_session_generate(session, &result, &request.known, &error), SPRY_ERR_INPUT);
    assert_non_null(strstr(error.message, "spry_sampling.reserved"));
    request.known.size = 0;
    assert_int_equal(spry_session_generate(session, &result, &request.known, &error), SPRY_ERR_INPUT);
    assert_non_null(strstr(error.message, "spry_request_default"));
    spry_session_destroy(session);
    spry_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_read),           cmocka_unit_test(test_defaults),
                                       cmocka_unit_test(test_version),        cmocka_unit_test(test_fixed),
                                       cmocka_unit_test(test_engine_options), cmocka_unit_test(test_request)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
