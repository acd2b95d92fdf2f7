/* LoRA adapters: a model with them computes what the merged model computes, from both kinds of files and on both kinds
 * of models; chunks, threads and company in a step change no bit, also where rows have different adapters; pages belong
 * to their adapters; and everything that can be wrong with a file is refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/device_impl.h"
#include "engine/engine_state.h"
#include "golden/golden_file.h"
#include "golden/logit_bound.h"
#include "golden/model_runner.h"
#include "model/gguf_export.h"
#include "spry_serve.h"
#include "support/device_rows.h"
#include "support/model_adapters.h"
#include "support/model_folder.h"
#include "support/place.h"

/* ---- results ----------------------------------------------------------------------------------------------------- */

static const char *export_merged(const char *path, const char *lora, const char *file)
{
    spry_model *model;
    spry_error error = {0};
    spry_export options = {.merges = true};
    assert_int_equal(spry_recipe_find(&options.recipe, "f32", NULL), SPRY_OK);
    assert_int_equal(spry_threads_create(&options.threads, 2, NULL), SPRY_OK);
    if (spry_model_open(&model, path, &error) || spry_model_add_adapters(model, lora, &error) ||
        spry_model_export(model, scratch_path(&place, file), &options, &error))
        fail_msg("%s", error.message);
    spry_model_close(model);
    spry_threads_destroy(options.threads);
    return scratch_path(&place, file);
}

/* Largest difference between two lists of logits, in units of what is allowed. */
static double compare(model_runner *merged, const float *expected, const float *got, const int32_t *ids, size_t n)
{
    size_t n_vocab = merged->model->config.n_vocab;
    float *weights = malloc(merged->model->config.n_embd * sizeof *weights), *hidden = runner_hidden(merged, ids, n);
    double worst = 0;
    assert_non_null(weights);
    for (size_t row = 0; row < n; row++) {
        double allowed = 2 * logit_bound(merged, hidden, row, weights);
        for (size_t o = 0; o < n_vocab; o++) {
            double off = fabs((double)expected[row * n_vocab + o] - (double)got[row * n_vocab + o]) / allowed;
            worst = off > worst ? off : worst;
        }
    }
    free(weights);
    free(hidden);
    return worst;
}

/* A model at `path` with adapters against the merged one, on every kernel set; and it differs from the plain one. */
static void expect_merged(const char *path, const char *lora, const char *merged_path, const golden_case *c)
{
    model_runner merged, adapted, plain;
    static const char *const sets[] = {"ref", "auto"};
    for (size_t i = 0; i < SPRY_COUNT(sets); i++) {
        runner_open_adapted(&merged, merged_path, NULL, sets[i], 1);
        runner_open_adapted(&adapted, path, lora, sets[i], 2);
        runner_open_adapted(&plain, path, NULL, sets[i], 2);
        float *expected = runner_logits(&merged, c->ids, c->n_ids, c->n_ids);
        float *got = runner_logits(&adapted, c->ids, c->n_ids, 16), *base = runner_logits(&plain, c->ids, c->n_ids, 16);
        double worst = compare(&merged, expected, got, c->ids, c->n_ids);
        if (!(worst <= 1))
            fail_msg("%s with %s: %.1f times what is allowed", path, lora, worst);
        assert_true(compare(&merged, expected, base, c->ids, c->n_ids) > 1000);
        free(expected);
        free(got);
        free(base);
        runner_close(&merged);
        runner_close(&adapted);
        runner_close(&plain);
    }
}

/* Both kinds of models with both kinds of files, two adapters at once, one of them scaled. */
static void test_llama_like_merged(void **state)
{
    (void)state;
    made_adapter m;
    golden_file golden = {0};
    char folder[SCRATCH_PATH], file[SCRATCH_PATH], lora[MADE_LIST];
    const spry_config c = made_config(model_path(folder, "llama", ""));
    golden_open(&golden, folder);
    model_path(file, "llama", "model-f32.gguf");
    made_llama(&m, &c, 1);
    made_folder(&place, "one", &m, NULL);
    made_gguf(&place, "one.gguf", &m, "llama", 8);
    made_deinit(&m);
    made_llama(&m, &c, 2);
    made_folder(&place, "two", &m, NULL);
    made_gguf(&place, "two.gguf", &m, "llama", 8);
    made_deinit(&m);
    snprintf(lora, sizeof lora, "%s/one,%s/two=-0.5", place.folder, place.folder);
    char merged[SCRATCH_PATH];
    snprintf(merged, sizeof merged, "%s", export_merged(folder, lora, "merged.gguf"));
    const char *const models[] = {folder, file};
    for (size_t i = 0; i < 4; i++) {
        const char *suffix = i / 2 ? ".gguf" : "";
        snprintf(lora, sizeof lora, "%s/one%s,%s/two%s=-0.5", place.folder, suffix, place.folder, suffix);
        expect_merged(models[i % 2], lora, merged, &golden.cases[0]);
    }
    snprintf(merged, sizeof merged, "%s", export_merged(file, lora, "again.gguf")); /* from GGUF, by GGUF */
    expect_merged(folder, lora, merged, &golden.cases[0]);
    made_remove_folder(&place, "one");
    made_remove_folder(&place, "two");
    scratch_clear(&place);
    golden_close(&golden);
}

static void compare_one(const char *model, void (*make)(made_adapter *, const spry_config *, uint64_t))
{
    made_adapter m;
    golden_file golden = {0};
    char folder[SCRATCH_PATH], lora[SCRATCH_PATH], merged[SCRATCH_PATH];
    const spry_config c = made_config(model_path(folder, model, ""));
    golden_open(&golden, folder);
    make(&m, &c, 3);
    snprintf(lora, sizeof lora, "%s", made_folder(&place, "one", &m, NULL));
    made_deinit(&m);
    snprintf(merged, sizeof merged, "%s", export_merged(folder, lora, "merged.gguf"));
    expect_merged(folder, lora, merged, &golden.cases[0]);
    made_remove_folder(&place, "one");
    scratch_clear(&place);
    golden_close(&golden);
}

static void test_fused_and_experts(void **state)
{
    (void)state;
    compare_one("phi3", made_phi3);
    compare_one("qwen2-moe", made_moe);
}

/* alpha over the square root of the rank; alpha of some modules by their names. */
static void test_scales(void **state)
{
    (void)state;
    made_adapter m = {.seed = 5};
    char folder[SCRATCH_PATH];
    const spry_config c = made_config(model_path(folder, "llama", ""));
    made_add_layer(&m, 0, "self_attn.q_proj", "attn_q", (size_t)c.n_heads * c.head_dim, c.n_embd, c.head_dim);
    made_add_layer(&m, 1, "mlp.up_proj", "ffn_up", c.n_ff, c.n_embd, 0);
    static const struct {
        const char *settings;
        float q, up;
    } cases[] = {{"{}", 2, 2},
                 {"{\"use_rslora\": true}", 4, 4},
                 {"{\"lora_alpha\": 6}", 1.5f, 1.5f},
                 {"{\"alpha_pattern\": {\"q_proj\": 1}}", 0.25f, 2},
                 {"{\"alpha_pattern\": {\"1.mlp.up_proj\": 16, \"0.mlp.up_proj\": 1}}", 2, 4}};
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        spry_model *model;
        spry_error error = {0};
        const char *path = made_folder(&place, "one", &m, json_loads(cases[i].settings, 0, NULL));
        assert_int_equal(spry_model_open(&model, folder, &error), SPRY_OK);
        if (spry_model_add_adapters(model, path, &error))
            fail_msg("%s", error.message);
        assert_float_equal(model->weights.layers[0].q.adapters[0].scale, cases[i].q, 1e-6);
        assert_float_equal(model->weights.layers[1].up.adapters[0].scale, cases[i].up, 1e-6);
        assert_null(model->weights.layers[0].up.adapters);
        spry_model_close(model);
    }
    made_gguf(&place, "one.gguf", &m, "llama", 0); /* alpha 0: as it is */
    spry_model *model;
    assert_int_equal(spry_model_open(&model, folder, NULL), SPRY_OK);
    assert_int_equal(spry_model_add_adapters(model, scratch_path(&place, "one.gguf"), NULL), SPRY_OK);
    assert_float_equal(model->weights.layers[0].q.adapters[0].scale, 1, 0);
    spry_model_close(model);
    made_deinit(&m);
    made_remove_folder(&place, "one");
    scratch_clear(&place);
}

/* ---- invariance -------------------------------------------------------------------------------------------------- */

static void check_bits(const char *folder, const char *lora, const char *cpu)
{
    golden_file golden = {0};
    model_runner r;
    float *alone[ADAPTED_KINDS];
    golden_open(&golden, folder);
    const golden_case *c = &golden.cases[golden.n_cases - 1];
    assert_true(c->n_ids >= ADAPTED_ROWS);
    runner_open_adapted(&r, folder, NULL, cpu, 2);
    float *plain = runner_logits(&r, c->ids, ADAPTED_ROWS, ADAPTED_ROWS);
    runner_close(&r);
    for (size_t threads = 1; threads <= 3; threads += 2) {
        runner_open_adapted(&r, folder, lora, cpu, threads);
        for (size_t i = 0; i < ADAPTED_KINDS; i++) {
            r.adapters = adapted_kinds[i];
            float *whole = runner_logits(&r, c->ids, ADAPTED_ROWS, ADAPTED_ROWS),
                  *parts = runner_logits(&r, c->ids, ADAPTED_ROWS, 7);
            adapted_same(whole, parts, ADAPTED_ROWS * golden.n_vocab, "the chunk size");
            if (threads > 1)
                adapted_same(whole, alone[i], ADAPTED_ROWS * golden.n_vocab, "the number of threads");
            if (threads > 1)
                free(alone[i]);
            alone[i] = whole;
            free(parts);
        }
        adapted_same(alone[0], plain, ADAPTED_ROWS * golden.n_vocab, "an adapter that is not used");
        adapted_company(&r, alone, c->ids);
        runner_close(&r);
    }
    for (size_t i = 1; i < ADAPTED_KINDS; i++)
        assert_memory_not_equal(alone[i], alone[i - 1], golden.n_vocab * sizeof(float));
    for (size_t i = 0; i < ADAPTED_KINDS; i++)
        free(alone[i]);
    free(plain);
    golden_close(&golden);
}

static void test_company_changes_nothing(void **state)
{
    (void)state;
    char folder[SCRATCH_PATH], lora[MADE_LIST];
    made_two(&place, "llama", made_llama, folder, lora);
    check_bits(folder, lora, "ref");
    check_bits(folder, lora, "auto");
    made_two(&place, "qwen2-moe", made_moe, folder, lora);
    check_bits(folder, lora, "auto");
    made_remove_folder(&place, "one");
    made_remove_folder(&place, "two");
}

/* ---- the engine -------------------------------------------------------------------------------------------------- */

static spry_engine *open_engine(const char *folder, const char *lora, const char *cache)
{
    spry_engine *engine;
    spry_error error = {0};
    spry_engine_options o;
    spry_engine_options_default(&o);
    o.lora = lora;
    o.sessions = 4;
    o.device = TEST_DEVICE;
    o.cache_dir = cache;
    if (spry_engine_open(&engine, folder, &o, &error))
        fail_msg("%s", error.message);
    return engine;
}

enum { PROMPT = 70 };

static void fill(int32_t ids[PROMPT])
{
    for (int i = 0; i < PROMPT; i++)
        ids[i] = 5 + i * 7 % 200;
}

/* Memory is estimated with adapters before anything is loaded, as it is counted afterwards. */
static void test_estimates(void **state)
{
    (void)state;
    char folder[SCRATCH_PATH], lora[MADE_LIST];
    spry_error error = {0};
    spry_engine_needs without, with, open;
    spry_engine_options o;
    made_two(&place, "llama", made_llama, folder, lora);
    spry_engine_options_default(&o);
    assert_int_equal(spry_engine_estimate(&without, folder, NULL, 0, &o, &error), SPRY_OK);
    o.lora = lora;
    assert_int_equal(spry_engine_estimate(&with, folder, NULL, 0, &o, &error), SPRY_OK);
    spry_engine *engine;
    assert_int_equal(spry_engine_open(&engine, folder, &o, &error), SPRY_OK);
    assert_int_equal(spry_engine_measure(&open, engine, &error), SPRY_OK);
    assert_int_equal(with.weights, open.weights);
    assert_int_equal(with.weights - without.weights, engine->model->adapters.arena.total);
    assert_true(with.scratch > without.scratch);
    assert_int_equal(spry_engine_close(engine), SPRY_OK);
    o.lora = "/nowhere";
    assert_int_not_equal(spry_engine_estimate(&with, folder, NULL, 0, &o, &error), SPRY_OK);
    made_remove_folder(&place, "one");
    made_remove_folder(&place, "two");
}

/* Logits after the prompt under a choice of adapters, in a session of its own; *hits: tokens found in the cache. */
static float *logits_of(spry_engine *engine, const char *choice, uint64_t *hits)
{
    spry_session *session;
    spry_error error = {0};
    spry_kv_figures before, after;
    spry_engine_info info;
    const float *logits;
    int32_t ids[PROMPT];
    fill(ids);
    spry_engine_describe(engine, &info);
    spry_engine_kv_figures(engine, &before);
    assert_int_equal(spry_session_create(&session, engine, &error), SPRY_OK);
    if (choice && spry_session_set_lora(session, choice, &error))
        fail_msg("%s", error.message);
    if (spry_session_eval(session, &logits, ids, PROMPT, &error))
        fail_msg("%s", error.message);
    float *copy = malloc(info.vocabulary * sizeof *copy);
    assert_non_null(copy);
    memcpy(copy, logits, info.vocabulary * sizeof *copy);
    spry_session_destroy(session);
    spry_engine_kv_figures(engine, &after);
    *hits = after.hit_tokens - before.hit_tokens;
    return copy;
}

/* Pages computed with one choice of adapters serve that choice alone, in memory and from disk; warm equals cold. */
static void test_pages_belong_to_adapters(void **state)
{
    (void)state;
    static const char *const choices[] = {"", "one", "two", "one=0.5", "one,two=2", "0=0.25"};
    enum { N = SPRY_COUNT(choices) };
    char folder[SCRATCH_PATH], lora[MADE_LIST], cache[SCRATCH_PATH];
    float *cold[N];
    uint64_t hits;
    made_two(&place, "llama", made_llama, folder, lora);
    snprintf(cache, sizeof cache, "%s", scratch_path(&place, "pages"));
    size_t bytes = made_config(folder).n_vocab * sizeof(float);
    for (size_t i = 0; i < N; i++) { /* each in an engine that has computed nothing */
        spry_engine *engine = open_engine(folder, lora, NULL);
        cold[i] = logits_of(engine, choices[i], &hits);
        assert_int_equal(hits, 0);
        assert_int_equal(spry_engine_close(engine), SPRY_OK);
        for (size_t k = 0; k < i; k++)
            assert_memory_not_equal(cold[i], cold[k], bytes);
    }
    for (int turn = 0; turn < 2; turn++) { /* the second engine finds the pages of the first on disk */
        spry_engine *engine = open_engine(folder, lora, cache);
        for (int again = 0; again < 2; again++)
            for (size_t i = 0; i < N; i++) {
                float *warm = logits_of(engine, choices[i], &hits);
                if (turn == 0)
                    assert_int_equal(hits > 0, again);
                assert_memory_equal(warm, cold[i], bytes);
                free(warm);
            }
        spry_kv_figures figures;
        spry_engine_kv_figures(engine, &figures);
        if (turn == 1)
            assert_true(figures.disk_loaded_pages >= N);
        assert_int_equal(spry_engine_close(engine), SPRY_OK);
    }
    for (size_t i = 0; i < N; i++)
        free(cold[i]);
    char command[MADE_LIST];
    snprintf(command, sizeof command, "rm -r '%s'", cache);
    assert_int_equal(system(command), 0);
    made_remove_folder(&place, "one");
    made_remove_folder(&place, "two");
}

/* What the engine was opened with, and what it is told later, is the choice of those that make none. */
static void test_choices(void **state)
{
    (void)state;
    char folder[SCRATCH_PATH], both[MADE_LIST], lora[MADE_LIST + 8];
    spry_lora_info info;
    spry_error error = {0};
    uint64_t hits;
    made_two(&place, "llama", made_llama, folder, both);
    snprintf(lora, sizeof lora, "%s=0.5", both);
    spry_engine *engine = open_engine(folder, lora, NULL);
    size_t bytes = made_config(folder).n_vocab * sizeof(float);
    assert_true(spry_engine_lora(engine, 1, &info));
    assert_string_equal(info.name, "two");
    assert_int_equal(info.rank, 4);
    assert_float_equal(info.scale, 0.5, 0);
    assert_false(spry_engine_lora(engine, 2, &info));
    static const char *const same[][2] = {{NULL, "one,two=0.5"}, {"one", "0=1"}, {"one=0", ""}};
    for (size_t i = 0; i < SPRY_COUNT(same); i++) {
        float *a = logits_of(engine, same[i][0], &hits), *b = logits_of(engine, same[i][1], &hits);
        assert_memory_equal(a, b, bytes);
        free(a);
        free(b);
    }
    assert_int_equal(spry_engine_set_lora(engine, "two=3", &error), SPRY_OK);
    float *a = logits_of(engine, NULL, &hits), *b = logits_of(engine, "two=3", &hits);
    assert_memory_equal(a, b, bytes);
    free(a);
    free(b);
    static const char *const wrong[] = {"three", "one,one", "one=x", "one=nan", "2", ",", "one=1e300", "one,"};
    for (size_t i = 0; i + 1 < SPRY_COUNT(wrong); i++)
        assert_int_equal(spry_engine_set_lora(engine, wrong[i], &error), SPRY_ERR_INPUT);
    assert_int_equal(spry_engine_close(engine), SPRY_OK);
    made_remove_folder(&place, "one");
    made_remove_folder(&place, "two");
}

typedef struct said {
    char text[512];
    size_t size;
} said;

static bool on_text(void *user, const char *text, size_t size)
{
    said *s = user;
    if (s->size + size >= sizeof s->text)
        return false;
    memcpy(s->text + s->size, text, size);
    s->size += size;
    return true;
}

/* Answers of jobs with different adapters that run together are those they give alone. */
static void test_jobs_with_their_own(void **state)
{
    (void)state;
    static const char *const choices[] = {"", "one", "two", "one,two=-1"};
    enum { N = SPRY_COUNT(choices) };
    char folder[SCRATCH_PATH], lora[MADE_LIST];
    said alone[N] = {0}, together[N] = {0};
    spry_error error = {0};
    int32_t ids[PROMPT];
    fill(ids);
    made_two(&place, "llama", made_llama, folder, lora);
    for (int pass = 0; pass < 2; pass++) {
        spry_engine *engine = open_engine(folder, lora, NULL);
        spry_job *jobs[N];
        for (size_t i = 0; i < N; i++) {
            spry_request request;
            spry_job_options options;
            spry_request_default(&request);
            spry_job_options_default(&options);
            request.prompt = ids;
            request.n_prompt = PROMPT;
            request.max_tokens = 12;
            request.ignore_end = true;
            request.sampling.temperature = 0;
            request.on_text = on_text;
            request.user = pass ? &together[i] : &alone[i];
            options.lora = choices[i];
            if (spry_job_create_answer(&jobs[i], engine, &request, &options, &error) ||
                spry_job_submit(jobs[i], &error) || (!pass && spry_job_wait(jobs[i], -1, &error)))
                fail_msg("%s", error.message);
        }
        for (size_t i = 0; i < N; i++) {
            assert_int_equal(spry_job_wait(jobs[i], -1, &error), SPRY_OK);
            assert_int_equal(spry_job_result(jobs[i], NULL, &error), SPRY_OK);
            spry_job_free(jobs[i]);
        }
        assert_int_equal(spry_engine_close(engine), SPRY_OK);
    }
    for (size_t i = 0; i < N; i++) {
        assert_true(alone[i].size > 0);
        assert_int_equal(alone[i].size, together[i].size);
        assert_memory_equal(alone[i].text, together[i].text, alone[i].size);
    }
    made_remove_folder(&place, "one");
    made_remove_folder(&place, "two");
}

/* A model that is quantised while it is opened has the rows of q and k in another order. */
static void test_quantised_model(void **state)
{
    (void)state;
    made_adapter m;
    char folder[SCRATCH_PATH], lora[SCRATCH_PATH], merged[SCRATCH_PATH];
    const spry_config c = made_config(model_path(folder, "llama", ""));
    uint64_t hits;
    made_llama(&m, &c, 9);
    snprintf(lora, sizeof lora, "%s", made_folder(&place, "one", &m, NULL));
    made_deinit(&m);
    snprintf(merged, sizeof merged, "%s", export_merged(folder, lora, "merged.gguf"));
    spry_engine_options o;
    spry_error error = {0};
    spry_engine *adapted, *plain = open_engine(merged, NULL, NULL);
    spry_engine_options_default(&o);
    o.quantize = "f16";
    o.lora = lora;
    if (spry_engine_open(&adapted, folder, &o, &error))
        fail_msg("%s", error.message);
    float *a = logits_of(adapted, NULL, &hits), *b = logits_of(plain, NULL, &hits);
    for (uint32_t i = 0; i < c.n_vocab; i++)
        assert_float_equal(a[i], b[i], 0.05); /* of logits that reach 6; f16 keys and weights */
    free(a);
    free(b);
    assert_int_equal(spry_engine_close(adapted), SPRY_OK);
    assert_int_equal(spry_engine_close(plain), SPRY_OK);
    made_remove_folder(&place, "one");
    scratch_clear(&place);
}

/* ---- refused ----------------------------------------------------------------------------------------------------- */

static void expect_refused(const char *model, const char *lora, const char *sentence)
{
    spry_model *opened;
    spry_error error = {0};
    assert_int_equal(spry_model_open(&opened, model, &error), SPRY_OK);
    assert_int_not_equal(spry_model_add_adapters(opened, lora, &error), SPRY_OK);
    if (!strstr(error.message, sentence))
        fail_msg("'%s' does not say '%s'", error.message, sentence);
    spry_model_close(opened);
}

static void test_settings_refused(void **state)
{
    (void)state;
    made_adapter m = {.seed = 11};
    char folder[SCRATCH_PATH];
    const spry_config c = made_config(model_path(folder, "llama", ""));
    made_add_layer(&m, 0, "mlp.up_proj", "ffn_up", c.n_ff, c.n_embd, 0);
    static const struct {
        const char *settings, *sentence;
    } cases[] = {{"{\"peft_type\": \"LOHA\"}", "only LORA"},
                 {"{\"use_dora\": true}", "use_dora"},
                 {"{\"fan_in_fan_out\": true}", "fan_in_fan_out"},
                 {"{\"lora_bias\": true}", "lora_bias"},
                 {"{\"modules_to_save\": [\"lm_head\"]}", "modules_to_save"},
                 {"{\"lora_alpha\": \"8\"}", "alpha is nan"},
                 {"{\"lora_alpha\": 1e300}", "alpha is 1e+300"},
                 {"{\"alpha_pattern\": {\"up_proj\": null}}", "alpha is nan"},
                 {"{\"alpha_pattern\": {\".*up\": 1}}", "alpha_pattern"}};
    for (size_t i = 0; i < SPRY_COUNT(cases); i++)
        expect_refused(folder, made_folder(&place, "one", &m, json_loads(cases[i].settings, 0, NULL)),
                       cases[i].sentence);
    expect_refused(folder, made_gguf(&place, "nan.gguf", &m, "llama", NAN), "alpha is");
    expect_refused(folder, made_gguf(&place, "other.gguf", &m, "qwen2", 8), "models of 'qwen2'");
    expect_refused(folder, model_path((char[SCRATCH_PATH]){0}, "llama", "model-f32.gguf"), "not a LoRA adapter");
    expect_refused(folder, scratch_path(&place, "nowhere.gguf"), "nowhere.gguf");
    expect_refused(folder, "", "empty");
    char twice[MADE_LIST];
    snprintf(twice, sizeof twice, "%s/other.gguf,", place.folder);
    expect_refused(folder, twice, "models of 'qwen2'");
    made_folder(&place, "one", &m, NULL);
    snprintf(twice, sizeof twice, "%s/one,%s/one/", place.folder, place.folder);
    expect_refused(folder, twice, "two adapters");
    unlink(scratch_path(&place, "one/adapter_model.safetensors"));
    expect_refused(folder, scratch_path(&place, "one"), "no adapter_model.safetensors");
    unlink(scratch_path(&place, "one/adapter_config.json"));
    expect_refused(folder, scratch_path(&place, "one"), "no adapter_config.json");
    made_deinit(&m);
    made_remove_folder(&place, "one");
    scratch_clear(&place);
}

/* One pair that is wrong in some way, in both forms. */
static void refuse_pair(const char *folder, made_adapter *m, const char *sentence)
{
    expect_refused(folder, made_folder(&place, "one", m, NULL), sentence);
    if (m->pairs[0].a && m->pairs[0].b && m->pairs[0].rank)
        expect_refused(folder, made_gguf(&place, "one.gguf", m, "llama", 8), sentence);
    made_deinit(m);
    made_remove_folder(&place, "one");
    scratch_clear(&place);
}

static void test_pairs_refused(void **state)
{
    (void)state;
    made_adapter m = {.seed = 13};
    char folder[SCRATCH_PATH];
    const spry_config c = made_config(model_path(folder, "llama", ""));
    size_t n = c.n_embd, ff = c.n_ff;
    made_add_layer(&m, 0, "mlp.up_proj", "ffn_up", ff + 1, n, 0);
    refuse_pair(folder, &m, "made for another model");
    made_add_layer(&m, 0, "mlp.up_proj", "ffn_up", ff, n + 8, 0);
    refuse_pair(folder, &m, "made for another model");
    made_add_layer(&m, c.n_layers, "mlp.up_proj", "ffn_up", ff, n, 0);
    refuse_pair(folder, &m, "belongs to no matrix");
    made_add(&m, "model.embed_tokens", "token_embd", c.n_vocab, n, 4, 0);
    refuse_pair(folder, &m, "belongs to no matrix");
    made_add(&m, "model.layers.0.mlp.up_proj", "blk.0.ffn_up", ff, n, 5000, 0);
    refuse_pair(folder, &m, "rank 5000");
    made_pair *p = made_add(&m, "model.layers.0.mlp.up_proj", "blk.0.ffn_up", ff, n, 4, 0);
    p->b[5] = NAN;
    refuse_pair(folder, &m, "not finite");
    p = made_add(&m, "model.layers.0.mlp.up_proj", "blk.0.ffn_up", ff, n, 4, 0);
    p->a[n] = INFINITY;
    refuse_pair(folder, &m, "not finite");
    p = made_add(&m, "model.layers.0.mlp.up_proj", "blk.0.ffn_up", ff, n, 4, 0);
    free(p->a);
    p->a = NULL;
    refuse_pair(folder, &m, "only one of its two");
    p = made_add(&m, "model.layers.0.mlp.up_proj", "blk.0.ffn_up", ff, n, 4, 0);
    free(p->b);
    p->b = NULL;
    refuse_pair(folder, &m, "only one of its two");
    p = made_add(&m, "model.layers.0.mlp.up_proj", "blk.0.ffn_up", ff, n, 4, 0);
    p->rank = 0;
    refuse_pair(folder, &m, "");
    refuse_pair(folder, &m, "no tensors");
}

/* Ranks do not compute adapters, and say so. */
static void test_devices_refuse(void **state)
{
    (void)state;
    spry_error error = {0};
    const spry_step_limits limits = {.n_adapters = 1, .adapter_ranks = 4}, none = {0};
    assert_int_equal(spry_device_check_adapters(&spry_device_kind_ranks, &limits, &error), SPRY_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "does not compute adapters"));
    assert_int_equal(spry_device_check_adapters(&spry_device_kind_ranks, &none, &error), SPRY_OK);
}

/* A tied model's output is its embedding, too: an adapter of it alone cannot become part of the file. */
static void test_tied_output(void **state)
{
    (void)state;
    made_adapter m = {.seed = 17};
    char folder[SCRATCH_PATH];
    const spry_config c = made_config(model_path(folder, "gemma", ""));
    spry_model *model;
    spry_error error = {0};
    spry_export options = {.merges = true};
    assert_true(c.tied);
    made_add(&m, "lm_head", "output", c.n_vocab, c.n_embd, 4, 0);
    assert_int_equal(spry_recipe_find(&options.recipe, "f32", NULL), SPRY_OK);
    assert_int_equal(spry_model_open(&model, folder, &error), SPRY_OK);
    assert_int_equal(spry_model_add_adapters(model, made_folder(&place, "one", &m, NULL), &error), SPRY_OK);
    assert_int_equal(spry_model_export(model, scratch_path(&place, "out.gguf"), &options, &error),
                     SPRY_ERR_UNSUPPORTED);
    spry_model_close(model);
    made_deinit(&m);
    made_remove_folder(&place, "one");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama_like_merged),
        cmocka_unit_test(test_fused_and_experts),
        cmocka_unit_test(test_scales),
        cmocka_unit_test(test_company_changes_nothing),
        cmocka_unit_test(test_pages_belong_to_adapters),
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_estimates),
        cmocka_unit_test(test_jobs_with_their_own),
        cmocka_unit_test(test_quantised_model),
        cmocka_unit_test(test_settings_refused),
        cmocka_unit_test(test_pairs_refused),
        cmocka_unit_test(test_tied_output),
        cmocka_unit_test(test_devices_refuse),
    };
    return cmocka_run_group_tests(tests, place_make, place_remove);
}
