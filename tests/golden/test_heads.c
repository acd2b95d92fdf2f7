/* Heads that draft: their logits and chains of drafts against recorded ones, and answers with their drafts against
 * answers without. A checkpoint is also made whose head is always right, and some with damaged heads. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/engine_state.h"
#include "golden/golden_file.h"
#include "golden/golden_models.h"
#include "golden/logit_bound.h"
#include "golden/model_runner.h"
#include "model/draft_head.h"
#include "model/gguf_export.h"
#include "support/device_rows.h"
#include "support/fixed_costs.h"
#include "support/must.h"

enum { TOKENS = 40 };

/* ---- against recorded logits ------------------------------------------------------------------------------------- */

/* A model whose device gives its states after the last norm, and its head on a device of its own. */
typedef struct pair {
    model_runner model;
    spry_draft_head *head;
    spry_kv_pool pool;
    spry_device *device;
} pair;

static void pair_open(pair *p, const char *path, const char *cpu)
{
    spry_error error = {0};
    runner_open(&p->model, path, cpu, SPRY_F32, 2);
    spry_device_close(p->model.device);
    spry_config *c = &p->model.model->config;
    c->n_taps = 1;
    c->taps[0] = c->n_layers;
    spry_device_setup setup = runner_setup(&p->model);
    must(spry_device_open(&p->model.device, "cpu", &setup, &error), &error);
    spry_device_attach(p->model.device, &p->model.pool);
    must(spry_draft_head_open(&p->head, p->model.model, &error), &error);
    assert_non_null(p->head);
    const spry_config *h = &p->head->config;
    const spry_kv_shape shape = {.n_layers = 1, .n_kv_heads = h->n_kv_heads, .head_dim = h->head_dim, .type = SPRY_F32};
    must(spry_kv_pool_init(&p->pool, &shape, RUNNER_TOKENS / SPRY_PAGE_TOKENS, &error), &error);
    setup.config = h;
    setup.weights = &p->head->weights;
    setup.pool = &p->pool;
    setup.lender = p->model.device;
    must(spry_device_open(&p->device, "cpu", &setup, &error), &error);
    spry_device_attach(p->device, &p->pool);
}

static void pair_close(pair *p)
{
    spry_device_close(p->device);
    spry_kv_pool_deinit(&p->pool);
    spry_draft_head_close(p->head);
    runner_close(&p->model);
}

/* The model's states of all tokens. */
static float *states_of(pair *p, const int32_t *ids, size_t n)
{
    spry_error error = {0};
    spry_kv_table table;
    const size_t width = p->model.model->config.n_embd;
    float *out = malloc(n * width * sizeof *out);
    assert_non_null(out);
    must(spry_kv_table_init(&table, RUNNER_TOKENS, &error), &error);
    must(spry_kv_table_extend(&table, &p->model.pool, n, &error), &error);
    const spry_segment segment = {.table = &table, .tokens = ids, .n_rows = (uint32_t)n};
    must(step_run(p->model.device, &segment, 1, &error), &error);
    memcpy(out, step_hidden(p->model.device, 0, n), n * width * sizeof *out);
    spry_kv_table_deinit(&table, &p->model.pool);
    return out;
}

/* A step of the head over n rows, which wants all logits. */
static void run_head(pair *p, spry_kv_table *table, const int32_t *tokens, const float *states, size_t n)
{
    spry_error error = {0};
    const size_t first = table->n_tokens;
    must(spry_kv_table_extend(table, &p->pool, n, &error), &error);
    const spry_segment segment = {.table = table,
                                  .tokens = tokens,
                                  .first_position = (uint32_t)first,
                                  .n_rows = (uint32_t)n,
                                  .want = SPRY_WANT_ALL};
    const spry_device_step step = {.segments = &segment, .n_segments = 1, .inputs = states};
    must(spry_device_submit(p->device, &step, &error), &error);
    must(spry_device_wait(p->device, &error), &error);
}

static size_t argmax(const float *x, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}

/* The head is one layer more after the model's. */
static double allowed_of(const pair *p, const golden_case *c, const float *state, size_t row, float *room)
{
    const model_runner *r = &p->model;
    double layers = r->model->config.n_layers;
    double bound = (double)FLT_EPSILON / 2 * logit_rounding_steps(&r->model->config, row + 1) * (layers + 1) / layers *
                   logit_magnitude(r, state, room);
    return fmax(bound, logit_wobble(r, c->wobble));
}

static void compare_case(pair *p, const golden_case *c, double *worst)
{
    const size_t n = c->n_ids, width = p->head->config.n_embd, n_vocab = p->head->config.n_vocab;
    spry_error error = {0};
    spry_kv_table table;
    int32_t *tokens = malloc((n + GOLDEN_CHAIN) * sizeof *tokens);
    float *states = states_of(p, c->ids, n), *room = malloc(width * sizeof *room);
    assert_true(tokens && room);
    memcpy(tokens, c->ids, n * sizeof *tokens);
    tokens[n] = c->greedy[0];
    must(spry_kv_table_init(&table, RUNNER_TOKENS, &error), &error);
    run_head(p, &table, tokens + 1, states, n);
    const float *logits = step_logits(p->device, 0, n), *own = step_hidden(p->device, 0, n);
    double allowed = 0;
    for (size_t i = 0; i < c->n_rows; i++) {
        size_t row = c->first_row + i;
        allowed = allowed_of(p, c, own + row * width, row, room);
        for (size_t o = 0; o < n_vocab; o++) {
            double off = fabs((double)logits[row * n_vocab + o] - (double)c->head_logits[i * n_vocab + o]);
            if (!(off <= allowed))
                fail_msg("%s: row %zu, token %zu: off by %g, allowed %g", p->model.model->name, row, o, off, allowed);
            *worst = fmax(*worst, off / allowed);
        }
    }
    memcpy(states, own + (n - 1) * width, width * sizeof *states);
    int32_t next = (int32_t)argmax(logits + (n - 1) * n_vocab, n_vocab);
    for (size_t d = 0; d < GOLDEN_CHAIN && c->chain_margins[d] > 2 * (double)(d + 1) * allowed; d++) {
        assert_int_equal(next, c->chain[d]);
        run_head(p, &table, &next, states, 1);
        memcpy(states, step_hidden(p->device, 0, 1), width * sizeof *states);
        next = (int32_t)argmax(step_logits(p->device, 0, 1), n_vocab);
    }
    spry_kv_table_deinit(&table, &p->pool);
    free(tokens);
    free(states);
    free(room);
}

static void compare_model(const char *folder, const char *path, const char *label, const char *cpu)
{
    pair p;
    golden_file golden = {0};
    double worst = 0;
    golden_open(&golden, folder);
    assert_non_null(golden.head_rows);
    pair_open(&p, path, cpu);
    for (size_t i = 0; i < golden.n_cases; i++)
        compare_case(&p, &golden.cases[i], &worst);
    print_message("%-24s %-4s largest deviation %.0f %% of what is allowed\n", label, cpu, 100 * worst);
    pair_close(&p);
    golden_close(&golden);
}

/* From the folder, and from a GGUF file made of it; with kernels that multiply by floats. */
static void test_logits(void **state)
{
    static const char *const cpus[] = {"ref", "avx2", "avx512", "neon"};
    char folder[512], path[] = "/tmp/spry-heads-XXXXXX", label[64];
    spry_error error = {0};
    spry_export options = {0};
    spry_threads *threads;
    int file = mkstemp(path);
    (void)state;
    assert_true(file >= 0);
    close(file);
    must(spry_recipe_find(&options.recipe, "f32", &error), &error);
    must(spry_threads_create(&threads, 1, &error), &error);
    options.threads = threads;
    for (size_t i = 0; golden_heads[i]; i++) {
        spry_model *model;
        golden_folder(folder, golden_heads[i]);
        must(spry_model_open(&model, folder, &error), &error);
        must(spry_model_export(model, path, &options, &error), &error);
        spry_model_close(model);
        snprintf(label, sizeof label, "%s (converted)", golden_heads[i]);
        for (size_t k = 0; k < SPRY_COUNT(cpus); k++) {
            const spry_ops *ops;
            if (spry_ops_get(&ops, cpus[k], NULL))
                continue;
            compare_model(folder, folder, golden_heads[i], cpus[k]);
            compare_model(folder, path, label, cpus[k]);
        }
    }
    spry_threads_destroy(threads);
    unlink(path);
}

/* ---- folders with changed weights -------------------------------------------------------------------------------- */

/* A copy of a folder whose tensors `change` may alter. */
typedef struct changed {
    char folder[64];
    char *data; /* model.safetensors */
    size_t size, head;
} changed;

static void write_file(const char *folder, const char *name, const void *data, size_t size)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    fclose(file);
}

static char *read_file(const char *folder, const char *name, size_t *size)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    char *data = malloc(*size + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *size, file), *size);
    data[*size] = 0;
    fclose(file);
    return data;
}

static void changed_begin(changed *c, const char *model)
{
    static const char *const files[] = {"config.json", "tokenizer.json", "tokenizer_config.json",
                                        "chat_template.jinja"};
    char folder[512];
    golden_folder(folder, model);
    snprintf(c->folder, sizeof c->folder, "/tmp/spry-heads-XXXXXX");
    assert_non_null(mkdtemp(c->folder));
    for (size_t i = 0; i < SPRY_COUNT(files); i++) {
        size_t size;
        char *data = read_file(folder, files[i], &size);
        write_file(c->folder, files[i], data, size);
        free(data);
    }
    uint64_t head;
    c->data = read_file(folder, "model.safetensors", &c->size);
    memcpy(&head, c->data, sizeof head);
    c->head = (size_t)head;
}

static void changed_end(changed *c)
{
    write_file(c->folder, "model.safetensors", c->data, c->size);
    free(c->data);
}

static void changed_remove(const changed *c)
{
    char path[512];
    DIR *files = opendir(c->folder);
    assert_non_null(files);
    for (const struct dirent *entry; (entry = readdir(files));) {
        snprintf(path, sizeof path, "%s/%s", c->folder, entry->d_name);
        (void)unlink(path);
    }
    closedir(files);
    rmdir(c->folder);
}

/* Hides a tensor by another name of the same length. */
static void hide(changed *c, const char *name)
{
    char quoted[128];
    snprintf(quoted, sizeof quoted, "\"%s\"", name);
    char *at = strstr(c->data + 8, quoted);
    assert_non_null(at);
    at[1] = '?';
}

/* The bytes of a tensor whose entry begins at `entry`. */
static uint16_t *values_of(const changed *c, const char *entry, size_t *n)
{
    unsigned long long from, to;
    const char *offsets = strstr(entry, "\"data_offsets\":");
    assert_non_null(offsets);
    assert_int_equal(sscanf(offsets + strlen("\"data_offsets\":"), " [%llu,%llu]", &from, &to), 2);
    *n = (size_t)(to - from) / 2;
    return (uint16_t *)(void *)(c->data + 8 + c->head + from);
}

/* Sets all BF16 values of tensors whose names contain `part`. */
static size_t fill(changed *c, const char *part, uint16_t value)
{
    size_t found = 0, n;
    for (char *at = c->data + 8; (at = strstr(at, part)) && at < c->data + 8 + c->head; at++, found++) {
        uint16_t *values = values_of(c, at, &n);
        for (size_t i = 0; i < n; i++)
            values[i] = value;
    }
    return found;
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

typedef struct answered {
    int32_t ids[TOKENS];
    size_t n;
} answered;

static bool keep(void *user, spry_logprob_entry token, const spry_logprob_entry *top, size_t n_top)
{
    answered *a = user;
    (void)top;
    (void)n_top;
    assert_true(a->n < TOKENS);
    a->ids[a->n++] = token.id;
    return true;
}

static spry_result answer(spry_session *session, answered *out, const int32_t *ids, size_t n, spry_speculation how,
                          float temperature)
{
    spry_request request;
    spry_result result;
    spry_error error = {0};
    spry_request_default(&request);
    request.prompt = ids;
    request.n_prompt = n;
    request.max_tokens = TOKENS;
    request.ignore_end = true;
    request.sampling.temperature = temperature;
    request.sampling.seed = 7;
    request.speculation = how;
    request.on_token = keep;
    request.user = out;
    out->n = 0;
    must(spry_session_generate(session, &result, &request, &error), &error);
    return result;
}

static spry_engine *open_engine(const char *folder, const char *head, spry_status expected, spry_error *error)
{
    spry_engine *engine;
    spry_engine_options options;
    spry_engine_options_default(&options);
    options.threads = 2;
    options.chunk = 24;
    options.draft_head = head;
    assert_int_equal(spry_engine_open(&engine, folder, &options, error), expected);
    return engine;
}

/* Answers to prompts, and to what follows them, with and without drafts. Returns accepted and drafted tokens. */
static void compare_answers(const char *folder, size_t *accepted, size_t *drafted)
{
    static const int32_t prompts[][6] = {{49, 80, 349, 507, 261, 260}, {5, 6, 7, 8, 9, 10}, {49, 80, 11, 12, 300, 4}};
    static const float temperatures[] = {0, 0.9f};
    spry_error error = {0};
    spry_session *session;
    spry_engine *engine = open_engine(folder, "head", SPRY_OK, &error);
    must(spry_session_create(&session, engine, &error), &error);
    *accepted = *drafted = 0;
    for (size_t t = 0; t < SPRY_COUNT(temperatures); t++)
        for (size_t i = 0; i < SPRY_COUNT(prompts); i++) {
            answered plain, guessed;
            int32_t longer[6 + 2 * TOKENS];
            answer(session, &plain, prompts[i], 6, SPRY_DRAFT_NONE, temperatures[t]);
            for (int turn = 0; turn < 2; turn++) { /* the second time pages are cached, and the head has its rows */
                spry_result r = answer(session, &guessed, prompts[i], 6, SPRY_DRAFT_MODEL, temperatures[t]);
                assert_int_equal(guessed.n, plain.n);
                assert_memory_equal(guessed.ids, plain.ids, plain.n * sizeof *plain.ids);
                *accepted += r.drafts.accepted;
                *drafted += r.drafts.drafted;
            }
            memcpy(longer, prompts[i], sizeof prompts[i]);
            memcpy(longer + 6, plain.ids, TOKENS * sizeof *longer);
            answer(session, &guessed, longer, 6 + TOKENS, SPRY_DRAFT_MODEL, temperatures[t]);
            answer(session, &plain, longer, 6 + TOKENS, SPRY_DRAFT_NONE, temperatures[t]);
            assert_memory_equal(guessed.ids, plain.ids, TOKENS * sizeof *plain.ids);
        }
    spry_session_destroy(session);
    spry_engine_close(engine);
}

static void test_answers_are_the_same(void **state)
{
    char folder[512];
    (void)state;
    for (size_t i = 0; golden_heads[i]; i++) {
        size_t accepted, drafted;
        golden_folder(folder, golden_heads[i]);
        compare_answers(folder, &accepted, &drafted);
        print_message("%s: %zu of %zu drafts accepted\n", golden_heads[i], accepted, drafted);
        assert_true(drafted > 0);
    }
}

/* Layers that add nothing make the next token depend on the last one alone, and a head that passes embeddings on says
 * the same. */
static void test_a_head_that_is_right(void **state)
{
    static const char *const zeros[] = {"o_proj.weight", "out_proj.weight", "down_proj.weight",
                                        "mtp.pre_fc_norm_embedding.weight", "norm.weight"};
    changed c;
    size_t n, accepted, drafted;
    (void)state;
    changed_begin(&c, "qwen3.5");
    for (size_t i = 0; i < SPRY_COUNT(zeros); i++)
        assert_true(fill(&c, zeros[i], 0) > 0); /* norms multiply by 1 + w */
    assert_int_equal(fill(&c, "mtp.fc.weight", 0), 1);
    uint16_t *fc = values_of(&c, strstr(c.data + 8, "\"mtp.fc.weight\""), &n);
    for (size_t i = 0; i < n / 128; i++)
        fc[i * 128 + i] = 0x3f80; /* 1 in BF16 */
    changed_end(&c);
    compare_answers(c.folder, &accepted, &drafted);
    print_message("%zu of %zu drafts accepted\n", accepted, drafted);
    assert_true(drafted > TOKENS &&
                accepted * 10 > drafted * 4); /* those drawn at a temperature are refused at times */
    changed_remove(&c);
}

/* ---- bad input --------------------------------------------------------------------------------------------------- */

static void test_half_a_head(void **state)
{
    static const char *const parts[] = {"mtp.fc.weight", "mtp.norm.weight", "mtp.layers.0.mlp.up_proj.weight",
                                        "mtp.layers.0.input_layernorm.weight"};
    (void)state;
    for (size_t i = 0; i < SPRY_COUNT(parts); i++) {
        changed c;
        spry_error error = {0};
        char hidden[64];
        changed_begin(&c, "qwen3.5");
        hide(&c, parts[i]);
        changed_end(&c);
        assert_null(open_engine(c.folder, "head", SPRY_ERR_FORMAT, &error));
        snprintf(hidden, sizeof hidden, "tensor '%s' is missing", parts[i]);
        assert_non_null(strstr(error.message, hidden));
        spry_engine *engine = open_engine(c.folder, "auto", SPRY_OK, &error); /* it answers without the head */
        assert_null(engine->head);
        spry_engine_close(engine);
        changed_remove(&c);
    }
}

static void test_no_head(void **state)
{
    char folder[512];
    spry_error error = {0};
    (void)state;
    golden_folder(folder, "qwen3");
    assert_null(open_engine(folder, "head", SPRY_ERR_UNSUPPORTED, &error));
    assert_non_null(strstr(error.message, "has no head that drafts"));
    assert_null(open_engine(folder, "tail", SPRY_ERR_INPUT, &error));
    spry_engine *engine = open_engine(folder, "auto", SPRY_OK, &error);
    assert_null(engine->head);
    spry_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits),
        cmocka_unit_test(test_answers_are_the_same),
        cmocka_unit_test(test_a_head_that_is_right),
        cmocka_unit_test(test_half_a_head),
        cmocka_unit_test(test_no_head),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
