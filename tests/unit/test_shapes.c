/* Shapes of published models and files with random weights: the published numbers of parameters, files that open, run
 * and stay finite, the same bytes with any number of threads, and nothing left behind when stopped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "golden/model_runner.h"
#include "model/gguf_export.h"
#include "model/shapes.h"
#include "support/hostile.h"
#include "support/made_tokenizer.h"
#include "support/must.h"
#include "support/place.h"
#include "tokenizer/tokenizer_gguf.h"

static spry_random_model job_of(const char *shape, const char *type, size_t n_threads)
{
    spry_error error = {0};
    spry_random_model job = {.shape = spry_shape_find(shape), .name = "random"};
    assert_non_null(job.shape);
    must(spry_recipe_find(&job.recipe, type, &error), &error);
    must(spry_threads_create(&job.threads, n_threads, &error), &error);
    return job;
}

/* Writes a shape; the path stays in place.path. */
static const char *write_shape(const char *name, const char *shape, const char *type, size_t n_threads)
{
    spry_error error = {0};
    spry_random_model job = job_of(shape, type, n_threads);
    must(spry_random_model_write(scratch_path(&place, name), &job, &error), &error);
    spry_threads_destroy(job.threads);
    return place.path;
}

/* ---- shapes ----------------------------------------------------------------------------------------------------- */

static void every_name_is_a_shape(void **state)
{
    (void)state;
    size_t count = 0;
    for (; spry_shape_names[count]; count++) {
        const spry_shape *shape = spry_shape_find(spry_shape_names[count]);
        assert_non_null(shape);
        assert_string_equal(shape->name, spry_shape_names[count]);
        assert_true(shape->config.n_vocab >= SPRY_MADE_VOCAB_MIN);
    }
    assert_true(count >= 6);
    assert_null(spry_shape_find("qwen9"));
}

static size_t count_parameters(const char *name)
{
    spry_error error = {0};
    spry_model *model;
    spry_export options = {0};
    spry_export_plan plan;
    size_t count = 0;
    must(spry_recipe_find(&options.recipe, "f16", &error), &error);
    must(spry_shape_model(&model, spry_shape_find(name), name, &error), &error);
    must(spry_export_plan_init(&plan, model, &options, &error), &error);
    for (size_t i = 0; i < plan.count; i++) {
        const spry_tensor *t = &plan.items[i].as;
        if (!spry_view_is(t->name, "rope_freqs.weight")) /* follows from the config */
            count += t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
    }
    spry_export_plan_deinit(&plan);
    spry_model_close(model);
    return count;
}

/* As their makers count them, embeddings that serve twice counted once, parts for images not at all. */
static void shapes_have_the_published_number_of_parameters(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t parameters;
    } published[] = {
        {"qwen3-0.6b", 596049920},      {"qwen3-1.7b", 1720574976},    {"qwen3-4b", 4022468096},
        {"qwen3-8b", 8190735360},       {"qwen3-14b", 14768307200},    {"qwen3-32b", 32762123264},
        {"qwen3-30b-a3b", 30532122624}, {"qwen2.5-0.5b", 494032768},   {"qwen2.5-1.5b", 1543714304},
        {"qwen2.5-3b", 3085938688},     {"qwen2.5-7b", 7615616512},    {"llama3.2-1b", 1235814400},
        {"llama3.2-3b", 3212749824},    {"llama3.1-8b", 8030261248},   {"llama3.1-70b", 70553706496},
        {"mistral-7b", 7248023552},     {"mixtral-8x7b", 46702792704}, {"gemma-2b", 2506172416},
        {"gemma-7b", 8537680896},       {"gemma2-2b", 2614341888},     {"gemma2-9b", 9241705984},
        {"gemma2-27b", 27227128320},    {"gemma3-1b", 999885952},      {"gemma3-4b", 3880263168},
        {"gemma3-12b", 11766034176},    {"gemma3-27b", 27009346304},   {"phi3-mini", 3821079552},
        {"phi4", 14659507200},          {"gpt-oss-20b", 20914757184},  {"gpt-oss-120b", 116829156672},
        {"glm4-9b", 9400279040},        {"glm4-32b", 32566081536},
    };
    for (size_t i = 0; i < SPRY_COUNT(published); i++)
        if (count_parameters(published[i].name) != published[i].parameters)
            fail_msg("%s has %zu parameters, not %zu", published[i].name, count_parameters(published[i].name),
                     published[i].parameters);
    size_t not_invented = 0;
    for (size_t i = 0; spry_shape_names[i]; i++)
        not_invented += !spry_shape_find(spry_shape_names[i])->invented;
    /* Sizes of which we know the configuration and the model's name only: billions, within 5 %. */
    static const struct {
        const char *name;
        double billions;
    } named[] = {{"ministral3-8b", 8.4},  {"gemma4-31b", 30.7},    {"gemma4-26b-a4b", 25.2}, {"gemma4-e4b", 7.5},
                 {"qwen3.5-0.8b", 0.75},  {"qwen3.5-4b", 4.2},     {"qwen3.6-35b-a3b", 35},  {"qwen3.8-27b", 27},
                 {"granite4-micro", 3.2}, {"nemotron3-nano", 31.6}};
    for (size_t i = 0; i < SPRY_COUNT(named); i++) {
        double billions = (double)count_parameters(named[i].name) / 1e9;
        if (!(fabs(billions / named[i].billions - 1) < 0.05))
            fail_msg("%s has %g billions of parameters", named[i].name, billions);
    }
    assert_int_equal(not_invented, SPRY_COUNT(published) + SPRY_COUNT(named)); /* none is missing above */
}

/* ---- random weights --------------------------------------------------------------------------------------------- */

/* Random logits of a sound model: all finite, about 0, of the size of 1. */
static void check_logits(const char *path, const char *what)
{
    enum { COUNT = 40 };
    int32_t ids[COUNT];
    model_runner r;
    for (int32_t i = 0; i < COUNT; i++)
        ids[i] = i * 23 % 1000;
    runner_open(&r, path, "auto", SPRY_F16, 1);
    float *logits = runner_logits(&r, ids, COUNT, COUNT);
    size_t n = COUNT * (size_t)r.model->config.n_vocab;
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(logits[i]))
            fail_msg("%s: logit %zu is not finite", what, i);
        sum += (double)logits[i];
        squares += (double)logits[i] * (double)logits[i];
    }
    double mean = sum / (double)n, deviation = sqrt(squares / (double)n);
    if (fabs(mean) > 0.1 || deviation < 0.5 || deviation > 2)
        fail_msg("%s: logits have a mean of %g and a deviation of %g", what, mean, deviation);
    free(logits);
    runner_close(&r);
}

static void every_type_runs(void **state)
{
    (void)state;
    for (size_t i = 0; spry_recipe_names[i]; i++)
        check_logits(write_shape("type.gguf", "tiny", spry_recipe_names[i], 1), spry_recipe_names[i]);
    check_logits(write_shape("type.gguf", "tiny-moe", "q4_0", 2), "tiny-moe");
}

static uint32_t small_rope(const spry_config *c)
{
    return c->rope_dim ? c->rope_dim : c->head_dim;
}

/* Every published shape, made small: its file opens as the same architecture, with the same parts, and runs. */
static void every_family_runs(void **state)
{
    (void)state;
    for (size_t i = 0; spry_shape_names[i]; i++) {
        spry_error error = {0};
        spry_shape small = *spry_shape_find(spry_shape_names[i]);
        spry_config *c = &small.config;
        if (small.invented)
            continue;
        c->n_layers = 3;
        c->attention_interval = c->attention_interval ? 3 : 0;
        small.kinds = !small.kinds ? NULL : c->n_experts ? "M*E" : "MM*";
        c->n_shared_kv = c->n_shared_kv ? 1 : 0;
        c->n_layer_embd = c->n_layer_embd ? 32 : 0;
        c->n_delta_keys = c->n_delta_keys > 1 ? 2 : c->n_delta_keys;
        c->n_delta_heads = c->n_delta_heads ? 4 : 0;
        c->n_shared_ff = c->n_shared_ff ? 64 : 0;
        c->n_embd = 128;
        c->n_ff = c->n_expert_ff = 64;
        c->n_heads = 2;
        c->n_kv_heads = 1;
        c->slide.n_kv_heads = c->slide.n_kv_heads ? 1 : 0;
        c->n_vocab = 1024;
        c->n_experts = c->n_experts ? 4 : 0;
        c->n_experts_used = c->n_experts ? 2 : 0;
        c->n_expert_ff = c->n_experts ? 64 : 0;
        spry_random_model job = job_of(spry_shape_names[i], "q8_0", 1);
        job.shape = &small;
        must(spry_random_model_write(scratch_path(&place, "family.gguf"), &job, &error), &error);
        spry_threads_destroy(job.threads);
        model_runner r;
        int32_t ids[40];
        for (int32_t k = 0; k < 40; k++)
            ids[k] = k * 23 % 1000;
        runner_open(&r, place.path, "auto", SPRY_F16, 1);
        const spry_config *read = &r.model->config;
        assert_string_equal(read->arch->gguf, c->arch->gguf);
        assert_int_equal(read->n_delta_layers,
                         c->attention_interval || c->arch->mamba ? (c->n_experts && c->arch->mamba ? 1 : 2) : 0);
        assert_true(read->n_layer_embd == c->n_layer_embd && read->n_shared_kv == c->n_shared_kv);
        assert_true(read->window == c->window && read->n_experts == c->n_experts && read->rope_dim == small_rope(c));
        if (c->rope.kind != SPRY_ROPE_LLAMA3 && c->rope.kind != SPRY_ROPE_PROPORTIONAL) /* a table of factors in GGUF */
            assert_int_equal(read->rope.kind, c->rope.kind);
        float *logits = runner_logits(&r, ids, 40, 40);
        for (size_t k = 0; k < 40 * (size_t)read->n_vocab; k++)
            if (!isfinite(logits[k]))
                fail_msg("%s: logit %zu is not finite", spry_shape_names[i], k);
        free(logits);
        runner_close(&r);
    }
}

/* A dealt row is not the next one, and blocks are not all alike. */
static void rows_differ(void **state)
{
    (void)state;
    spry_error error = {0};
    spry_gguf *gguf;
    must(spry_gguf_open(&gguf, write_shape("rows.gguf", "tiny", "q4_0", 1), &error), &error);
    const spry_tensor *t = spry_gguf_find_tensor(gguf, SPRY_VIEW("blk.1.ffn_up.weight"));
    assert_non_null(t);
    size_t row = t->bytes / t->dims[0];
    for (size_t i = 1; i < t->dims[0]; i++)
        assert_memory_not_equal(t->data, t->data + i * row, row);
    const spry_tensor *other = spry_gguf_find_tensor(gguf, SPRY_VIEW("blk.0.ffn_up.weight"));
    assert_memory_not_equal(t->data, other->data, row);
    assert_memory_not_equal(t->data, t->data + 18, 18);
    spry_gguf_close(gguf);
}

static char *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *size = (size_t)ftell(file);
    rewind(file);
    char *data = malloc(*size);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *size, file), *size);
    fclose(file);
    return data;
}

static void threads_do_not_change_a_byte(void **state)
{
    (void)state;
    size_t one_size, three_size;
    char *one = read_file(write_shape("one.gguf", "tiny-moe", "q5_1", 1), &one_size);
    char *three = read_file(write_shape("three.gguf", "tiny-moe", "q5_1", 3), &three_size);
    assert_int_equal(one_size, three_size);
    assert_memory_equal(one, three, one_size);
    free(one);
    free(three);
}

typedef struct stopper {
    size_t calls, last, total;
} stopper;

static bool stop_at_third(void *user, size_t done, size_t total)
{
    stopper *s = user;
    assert_true(done > s->last && done <= total);
    s->last = done;
    s->total = total;
    return ++s->calls < 3;
}

static bool count_bytes(void *user, size_t done, size_t total)
{
    stopper *s = user;
    s->last = done;
    s->total = total;
    return true;
}

static void stopping_leaves_nothing(void **state)
{
    (void)state;
    spry_error error = {0};
    stopper stop = {0}, whole = {0};
    scratch_clear(&place);
    spry_random_model job = job_of("tiny", "q8_0", 1);
    job.progress = stop_at_third;
    job.user = &stop;
    hostile_expect(spry_random_model_write(scratch_path(&place, "stopped.gguf"), &job, &error), &error,
                   SPRY_ERR_CANCELLED, "stopped after");
    assert_int_equal(stop.calls, 3);
    assert_int_equal(scratch_count(&place), 0);
    job.progress = count_bytes;
    job.user = &whole;
    must(spry_random_model_write(place.path, &job, &error), &error);
    assert_int_equal(whole.last, whole.total);
    assert_int_equal(whole.total, stop.total);
    spry_threads_destroy(job.threads);
}

static void full_disk_is_said(void **state)
{
    (void)state;
    spry_error error = {0};
    scratch_clear(&place);
    spry_random_model job = job_of("tiny", "f32", 1);
    scratch_limit_files(1 << 20);
    spry_status status = spry_random_model_write(scratch_path(&place, "full.gguf"), &job, &error);
    scratch_limit_files(RLIM_INFINITY);
    hostile_expect(status, &error, SPRY_ERR_FILE, "full.gguf");
    assert_int_equal(scratch_count(&place), 0);
    spry_threads_destroy(job.threads);
}

/* ---- the vocabulary --------------------------------------------------------------------------------------------- */

static void open_vocab(spry_tokenizer **out, size_t size, const char *pattern)
{
    spry_error error = {0};
    spry_gguf_writer *writer;
    spry_gguf *gguf;
    const spry_tensor one = {.name = SPRY_VIEW("x"), .type = SPRY_F32, .n_dims = 1, .dims = {1, 1, 1, 1}};
    const float zero = 0;
    must(spry_gguf_writer_create(&writer, &error), &error);
    assert_true(spry_made_vocab_write(writer, size, pattern));
    spry_gguf_writer_tensor(writer, &one);
    must(spry_gguf_writer_begin(writer, scratch_path(&place, "vocab.gguf"), &error), &error);
    must(spry_gguf_writer_data(writer, &zero, sizeof zero, &error), &error);
    must(spry_gguf_writer_finish(writer, &error), &error);
    spry_gguf_writer_destroy(writer);
    must(spry_gguf_open(&gguf, place.path, &error), &error);
    must(spry_tokenizer_from_gguf(out, gguf, &error), &error);
    spry_gguf_close(gguf);
}

static void round_trip(const spry_tokenizer *tokenizer, spry_view text, size_t least, size_t most)
{
    spry_error error = {0};
    spry_tokens ids = {0};
    spry_buffer back;
    spry_buffer_init(&back, 4096);
    must(spry_tokenizer_encode(tokenizer, &ids, text, NULL, 0, 0, &error), &error);
    must(spry_tokenizer_decode(tokenizer, &back, ids.ids, ids.count, true, &error), &error);
    assert_int_equal(back.size, text.size);
    assert_memory_equal(back.data, text.data, text.size);
    if (ids.count < least || ids.count > most)
        fail_msg("'%.*s' became %zu tokens", (int)text.size, text.data, ids.count);
    spry_tokens_deinit(&ids);
    spry_buffer_deinit(&back);
}

static void check_vocab(size_t size, const char *pattern)
{
    spry_tokenizer *tokenizer;
    open_vocab(&tokenizer, size, pattern);
    assert_int_equal(spry_tokenizer_size(tokenizer), size);
    for (size_t id = 0; id < size; id++) /* every spelling is there, once */
        if (spry_vocab_find(&tokenizer->vocab, spry_tokenizer_name(tokenizer, (int32_t)id)) != (int32_t)id)
            fail_msg("token %zu of %zu is spelled like another", id, size);
    assert_int_equal(spry_tokenizer_kind(tokenizer, (int32_t)size - 1), SPRY_TOKEN_CONTROL);
    assert_int_equal(spry_tokenizer_kind(tokenizer, (int32_t)size - 4), SPRY_TOKEN_NORMAL);
    assert_int_equal(spry_vocab_find(&tokenizer->vocab, SPRY_VIEW("<|im_end|>")), (int32_t)size - 1);
    assert_true(spry_tokenizer_is_end(tokenizer, (int32_t)size - 1));
    assert_int_equal(spry_tokenizer_bos(tokenizer), (int32_t)size - 3);
    round_trip(tokenizer, SPRY_VIEW("Once upon a time, \xC3\xA9t\xC3\xA9 \xE2\x82\xAC 42!\n\n"), 8, 36);
    spry_tokenizer_destroy(tokenizer);
}

static void vocabularies_are_whole(void **state)
{
    (void)state;
    check_vocab(SPRY_MADE_VOCAB_MIN, "qwen2");
    check_vocab(SPRY_MADE_VOCAB_MIN + 1, "qwen2");
    check_vocab(1024, "gpt-2");
    check_vocab(128256, "llama-bpe");
    check_vocab(151936, "qwen2");
}

static void words_are_merged(void **state)
{
    (void)state;
    spry_tokenizer *tokenizer;
    open_vocab(&tokenizer, 151936, "qwen2");
    round_trip(tokenizer, SPRY_VIEW("abc"), 1, 1);
    round_trip(tokenizer, SPRY_VIEW(" ab"), 1, 1);
    spry_tokenizer_destroy(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_name_is_a_shape),
        cmocka_unit_test(shapes_have_the_published_number_of_parameters),
        cmocka_unit_test(every_type_runs),
        cmocka_unit_test(every_family_runs),
        cmocka_unit_test(rows_differ),
        cmocka_unit_test(threads_do_not_change_a_byte),
        cmocka_unit_test(stopping_leaves_nothing),
        cmocka_unit_test(full_disk_is_said),
        cmocka_unit_test(vocabularies_are_whole),
        cmocka_unit_test(words_are_merged),
    };
    return cmocka_run_group_tests(tests, place_make, place_remove);
}
