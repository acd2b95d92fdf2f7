/* Pages used away from where they were computed, through a whole engine: in a model of one layer keys and values depend
 * on nothing but the token and its position, so fragments and slid windows must give what plain text gives, but for the
 * rounding of a rotation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "support/made_model.h"
#include "support/sequence_scene.h"

enum { COUNT = 200, WINDOW = 128 };

static scratch place;

static spry_session *open_session(uint32_t context)
{
    spry_engine_options options;
    spry_engine *engine;
    spry_error error = {0};
    spry_engine_options_default(&options);
    options.threads = 1;
    options.context = context;
    options.kv_type = "f32";
    options.kv_bytes = 4 << 20;
    if (spry_engine_open(&engine, place.folder, &options, &error))
        fail_msg("%s", error.message);
    return fixture_session(engine);
}

static void close_session(spry_session *s)
{
    spry_engine *engine = s->engine;
    spry_session_destroy(s);
    scene_close_engine(engine);
}

static double distance(const logits *a, const logits *b)
{
    double worst = 0, largest = 0;
    for (size_t i = 0; i < FIXTURE_VOCAB; i++) {
        worst = fmax(worst, fabs((double)a->of[i] - (double)b->of[i]));
        largest = fmax(largest, fabs((double)a->of[i]));
    }
    return worst / largest;
}

static void fragments_give_what_text_gives(void **state)
{
    (void)state;
    int32_t ids[COUNT];
    fixture_ids(ids, COUNT, 41);
    static const fragments cases[] = {
        {{{60, 150}}, 1, 0}, {{{60, 150}}, 1, 32}, {{{0, 50}, {50, 120}, {121, 199}}, 3, 0}, {{{33, 190}}, 1, 64}};
    spry_session *s = open_session(256);
    logits plain = scene_eval(s, ids, COUNT, NULL);
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        logits linked = scene_eval(s, ids, COUNT, &cases[i]);
        assert_true(distance(&plain, &linked) < 1e-5);
    }
    /* The order of the tokens after the last page matters, or this shows nothing. */
    int32_t moved[COUNT];
    memcpy(moved, ids, sizeof ids);
    memcpy(moved + 60, ids + 100, 40 * sizeof *ids);
    memcpy(moved + 100, ids + 60, 40 * sizeof *ids);
    logits other = scene_eval(s, moved, COUNT, NULL);
    assert_true(distance(&plain, &other) > 1e-3);
    close_session(s);
}

static void a_slid_window_is_a_text_of_its_own(void **state)
{
    (void)state;
    int32_t ids[3 * COUNT], window[WINDOW];
    fixture_ids(ids, 3 * COUNT, 42);
    spry_session *s = open_session(WINDOW), *fresh = open_session(WINDOW);
    for (size_t n = WINDOW + 1; n < 3 * COUNT; n += 29) {
        spry_session_set_slide(s, true, n % 2 ? 0 : 32);
        logits slid = scene_eval(s, ids, n, NULL);
        const spry_sequence *q = &s->sequence;
        size_t head = n % 2 ? 0 : 32, count = q->table.n_tokens;
        assert_int_equal(count + q->n_dropped, n);
        memcpy(window, ids, head * sizeof *ids);
        memcpy(window + head, ids + head + q->n_dropped, (count - head) * sizeof *ids);
        logits plain = scene_eval(fresh, window, count, NULL);
        assert_true(distance(&plain, &slid) < 1e-5);
    }
    close_session(s);
    close_session(fresh);
}

static int make_of(json_t *config)
{
    scratch_init(&place);
    made_model_write(&place, config);
    json_decref(config);
    return 0;
}

static int make_model(void **state)
{
    (void)state;
    return make_of(json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i}", "model_type", "llama", "hidden_size", 64,
                             "intermediate_size", 96, "num_hidden_layers", 1, "num_attention_heads", 4,
                             "num_key_value_heads", 2, "vocab_size", FIXTURE_VOCAB));
}

/* Latents are cached, of which rope turns a part. */
static int make_latent_model(void **state)
{
    (void)state;
    return make_of(json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:n}", "model_type",
                             "deepseek_v2", "hidden_size", 64, "intermediate_size", 96, "num_hidden_layers", 1,
                             "num_attention_heads", 4, "num_key_value_heads", 4, "kv_lora_rank", 32, "qk_rope_head_dim",
                             16, "qk_nope_head_dim", 24, "v_head_dim", 16, "n_routed_experts", 0, "vocab_size",
                             FIXTURE_VOCAB, "q_lora_rank"));
}

static int remove_model(void **state)
{
    (void)state;
    scratch_deinit(&place);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fragments_give_what_text_gives),
        cmocka_unit_test(a_slid_window_is_a_text_of_its_own),
    };
    int failed = cmocka_run_group_tests_name("keys and values", tests, make_model, remove_model);
    return failed + cmocka_run_group_tests_name("latents", tests, make_latent_model, remove_model);
}
