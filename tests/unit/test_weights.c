/* Checkpoints that lie differently than usual: unaligned, sharded, inside a larger model; and checkpoints that lack a
 * tensor or hold one of another shape. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "formats/gguf_writer.h"
#include "golden/model_runner.h"
#include "platform/file.h"
#include "support/hostile.h"
#include "support/model_folder.h"
#include "support/place.h"

static const int32_t prompt[] = {49, 80, 349, 507, 261, 260, 499, 17, 3,  511, 44, 44, 5,  6,  7, 8,
                                 9,  10, 11,  12,  13,  14,  15,  16, 18, 19,  20, 21, 22, 23, 24};

static float *logits_of(const char *path, spry_weights *facts)
{
    model_runner r;
    runner_open(&r, path, "auto", SPRY_F16, 1);
    *facts = r.model->weights;
    float *logits = runner_logits(&r, prompt, SPRY_COUNT(prompt), 64);
    runner_close(&r);
    return logits;
}

/* The made folder against the fixture it was made from: the same bits. */
static void same_as_fixture(const char *model, spry_weights *facts)
{
    char path[SCRATCH_PATH];
    spry_weights original;
    float *a = logits_of(model_path(path, model, ""), &original), *b = logits_of(place.folder, facts);
    if (memcmp(a, b, SPRY_COUNT(prompt) * original.embedding.n_out * sizeof *a))
        fail_msg("%s: other logits", model);
    assert_int_equal(facts->parameters, original.parameters);
    assert_int_equal(facts->bytes, original.bytes);
    free(a);
    free(b);
}

static spry_safetensors *open_fixture(const char *model)
{
    char path[SCRATCH_PATH];
    spry_safetensors *files;
    assert_int_equal(spry_safetensors_open(&files, model_path(path, model, "model.safetensors"), NULL), SPRY_OK);
    return files;
}

/* ---- unaligned -------------------------------------------------------------------------------------------------- */

static size_t matrix_bytes(const spry_safetensors *files)
{
    size_t sum = 0;
    for (size_t i = 0; i < spry_safetensors_count(files); i++) {
        const spry_tensor *t = spry_safetensors_tensor(files, i);
        sum += t->n_dims > 1 ? t->bytes : 0;
    }
    return sum;
}

static void test_unaligned(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        size_t size; /* of a value */
    } cases[] = {{"llama", 4}, {"gemma", 2}, {"qwen2", 2}, {"qwen2-moe", 2}, {"phi3", 2}};
    for (size_t i = 0; i < SPRY_COUNT(cases); i++)
        for (size_t shift = 0; shift < 4; shift++) {
            spry_safetensors *files = open_fixture(cases[i].model);
            tensor_file f = {.from = files, .shift = shift};
            spry_weights facts;
            model_folder_fill(&place, cases[i].model, "model.safetensors");
            tensor_file_write(&place, "model.safetensors", &f, NULL);
            same_as_fixture(cases[i].model, &facts);
            assert_int_equal(facts.copied_bytes, shift % cases[i].size ? matrix_bytes(files) : 0);
            spry_safetensors_close(files);
        }
}

/* Quantised while it is opened, a copy serves as well as the file. */
static void quantised_logits(float *out, const char *path, const char *type)
{
    spry_engine_options options;
    spry_engine *engine = NULL;
    spry_session *session = NULL;
    const float *logits = NULL;
    spry_error error = {0};
    spry_engine_options_default(&options);
    options.threads = 1;
    options.quantize = type;
    if (spry_engine_open(&engine, path, &options, &error) || spry_session_create(&session, engine, &error) ||
        spry_session_eval(session, &logits, prompt, SPRY_COUNT(prompt), &error))
        fail_msg("%s", error.message);
    memcpy(out, logits, 512 * sizeof *out);
    spry_session_destroy(session);
    spry_engine_close(engine);
}

static void test_unaligned_and_quantised(void **state)
{
    (void)state;
    static const char *const models[] = {"llama-256", "llama3-rope"}; /* matrices of many pages, a tied embedding */
    static const char *const types[] = {"q8_0", "q4_0"};
    for (size_t i = 0; i < SPRY_COUNT(models); i++) {
        spry_safetensors *files = open_fixture(models[i]);
        tensor_file f = {.from = files, .shift = 1};
        model_folder_fill(&place, models[i], "model.safetensors");
        tensor_file_write(&place, "model.safetensors", &f, NULL);
        for (size_t t = 0; t < SPRY_COUNT(types); t++) {
            char path[SCRATCH_PATH];
            float a[512], b[512];
            quantised_logits(a, model_path(path, models[i], ""), types[t]);
            quantised_logits(b, place.folder, types[t]);
            assert_memory_equal(a, b, sizeof a);
        }
        spry_safetensors_close(files);
    }
}

/* ---- shards ----------------------------------------------------------------------------------------------------- */

typedef struct shard {
    size_t index, of, seen;
} shard;

static bool in_shard(void *context, spry_tensor *tensor, char name[SCRATCH_PATH])
{
    shard *s = context;
    (void)tensor;
    (void)name;
    return s->seen++ % s->of == s->index;
}

static void test_shards(void **state)
{
    (void)state;
    static const char *const models[] = {"llama", "gemma3", "mixtral", "phi3"};
    for (size_t i = 0; i < SPRY_COUNT(models); i++)
        for (size_t of = 1; of <= 3; of++) {
            spry_safetensors *files = open_fixture(models[i]);
            json_t *map = json_object(),
                   *index = json_pack("{s:{s:i}, s:o}", "metadata", "total_size", 1, "weight_map", map);
            size_t taken = 0;
            spry_weights facts;
            model_folder_fill(&place, models[i], "model.safetensors");
            for (size_t k = 0; k < of; k++) {
                char file[64];
                shard s = {k, of, 0};
                tensor_file f = {.from = files, .take = in_shard, .context = &s};
                snprintf(file, sizeof file, "model-%05zu-of-%05zu.safetensors", k + 1, of);
                taken += tensor_file_write(&place, file, &f, map);
            }
            assert_int_equal(taken, spry_safetensors_count(files));
            model_folder_json(&place, "model.safetensors.index.json", index);
            same_as_fixture(models[i], &facts);
            json_decref(index);
            spry_safetensors_close(files);
        }
}

/* ---- inside a larger model -------------------------------------------------------------------------------------- */

/* "model.x" becomes "<prefix>x"; what is before it is the larger model's own. */
static bool with_prefix(void *context, spry_tensor *tensor, char name[SCRATCH_PATH])
{
    char inner[SCRATCH_PATH];
    (void)tensor;
    assert_memory_equal(name, "model.", 6);
    snprintf(inner, sizeof inner, "%s", name + 6);
    assert_true(snprintf(name, SCRATCH_PATH, "%s%.500s", (const char *)context, inner) < SCRATCH_PATH);
    return true;
}

static void test_larger_model(void **state)
{
    (void)state;
    static const char *const prefixes[] = {"language_model.model.", "model.language_model.", ""};
    for (size_t i = 0; i < SPRY_COUNT(prefixes); i++) {
        spry_safetensors *files = open_fixture("gemma3");
        tensor_file f = {.from = files, .take = with_prefix, .context = (void *)prefixes[i]};
        json_t *outer = json_pack("{s:s, s:o, s:{s:s}}", "model_type", "gemma3", "text_config", model_config("gemma3"),
                                  "vision_config", "model_type", "siglip_vision_model");
        spry_weights facts;
        model_folder_fill(&place, "gemma3", "model.safetensors");
        tensor_file_write(&place, "model.safetensors", &f, NULL);
        model_folder_json(&place, "config.json", outer);
        same_as_fixture("gemma3", &facts);
        json_decref(outer);
        spry_safetensors_close(files);
    }
}

/* An untied output matrix of a larger model is beside its "model." or outside all. */
static bool untied_prefix(void *context, spry_tensor *tensor, char name[SCRATCH_PATH])
{
    if (!strcmp(name, "lm_head.weight"))
        return snprintf(name, SCRATCH_PATH, "language_model.lm_head.weight") > 0;
    return with_prefix(context, tensor, name);
}

static void test_larger_untied_model(void **state)
{
    (void)state;
    spry_safetensors *files = open_fixture("llama");
    tensor_file f = {.from = files, .take = untied_prefix, .context = (void *)"language_model.model."};
    spry_weights facts;
    model_folder_fill(&place, "llama", "model.safetensors");
    tensor_file_write(&place, "model.safetensors", &f, NULL);
    same_as_fixture("llama", &facts);
    assert_ptr_not_equal(facts.output.data, facts.embedding.data);
    spry_safetensors_close(files);
}

/* ---- a tensor is missing ---------------------------------------------------------------------------------------- */

static spry_status bind(const char *model, const spry_safetensors *files, spry_error *error)
{
    json_t *json = model_config(model);
    spry_config config = {0};
    spry_weights weights;
    spry_arena arena;
    spry_arena_init(&arena);
    spry_status status = spry_config_from_json(&config, json, model, &arena, error);
    if (!status)
        status = spry_weights_bind(&weights, &config, NULL, files, model, &arena, error);
    spry_arena_deinit(&arena);
    json_decref(json);
    return status;
}

/* The place of a tensor's name in a file's header. */
static char *name_in(spry_buffer *file, const char *name)
{
    char quoted[SCRATCH_PATH + 4];
    snprintf(quoted, sizeof quoted, "\"%s\":", name);
    char *at = strstr(file->data + sizeof(uint64_t), quoted);
    assert_non_null(at);
    return at + 1;
}

/* Fixtures with parts that the others lack: norms with biases, biases everywhere, sinks, experts in 4 bits. */
static const char *const more_names[] = {"granite", "cohere", "starcoder2", "hunyuan", "gpt-oss-mxfp4"};

/* Each tensor of each fixture is needed. A name with another first letter is unknown. */
static void miss_each_tensor(const char *model)
{
    spry_safetensors *files = open_fixture(model), *without;
    spry_buffer bytes;
    spry_buffer_init(&bytes, 1 << 26);
    tensor_file_build(&bytes, &(tensor_file){.from = files}, "", NULL);
    assert_int_equal(bind(model, files, NULL), SPRY_OK);
    for (size_t k = 0; k < spry_safetensors_count(files); k++) {
        const spry_tensor *t = spry_safetensors_tensor(files, k);
        char name[SCRATCH_PATH];
        spry_error error = {0};
        snprintf(name, sizeof name, "%.*s", (int)t->name.size, t->name.data);
        char *first = name_in(&bytes, name), letter = *first;
        *first = 'X';
        assert_int_equal(spry_safetensors_open_memory(&without, bytes.data, bytes.size, "", NULL), SPRY_OK);
        spry_status status = bind(model, without, &error);
        *first = letter;
        spry_safetensors_close(without);
        if (status != SPRY_ERR_FORMAT)
            fail_msg("%s without %s: %s", model, name, spry_status_name(status));
        /* A layer without a router is dense, so then a matrix of the dense kind is missed. */
        bool router = strstr(name, "mlp.gate.weight") || strstr(name, "block_sparse_moe.gate.weight") ||
                      strstr(name, "mlp.router.weight");
        hostile_expect(status, &error, SPRY_ERR_FORMAT, router ? "is missing" : name);
        hostile_expect(status, &error, SPRY_ERR_FORMAT, "is missing");
        hostile_expect(status, &error, SPRY_ERR_FORMAT, model);
    }
    spry_safetensors_close(files);
    spry_buffer_deinit(&bytes);
}

static void test_missing_tensors(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_MODELS; i++)
        miss_each_tensor(model_names[i]);
    for (size_t i = 0; i < SPRY_COUNT(more_names); i++)
        miss_each_tensor(more_names[i]);
}

/* The same for GGUF. */
static void test_missing_gguf_tensors(void **state)
{
    (void)state;
    static const char *const models[] = {"llama", "qwen3", "gemma3", "qwen2-moe"};
    for (size_t i = 0; i < SPRY_COUNT(models); i++) {
        char path[SCRATCH_PATH];
        spry_buffer bytes;
        spry_gguf *gguf;
        spry_buffer_init(&bytes, 1 << 26);
        assert_int_equal(spry_file_read(&bytes, model_path(path, models[i], "model-f32.gguf"), NULL), SPRY_OK);
        assert_int_equal(spry_gguf_open_memory(&gguf, bytes.data, bytes.size, models[i], NULL), SPRY_OK);
        for (size_t k = 0; k < spry_gguf_tensor_count(gguf); k++) {
            spry_view name = spry_gguf_tensor(gguf, k)->name;
            char *first = bytes.data + (name.data - bytes.data), whole[SCRATCH_PATH], letter = *first;
            bool output = spry_view_is(name, "output.weight"), router = spry_view_ends(name, SPRY_VIEW("_inp.weight"));
            spry_model *model;
            spry_error error = {0};
            snprintf(whole, sizeof whole, "%.*s", (int)name.size, name.data);
            *first = 'X';
            spry_status status = spry_model_open_memory(&model, bytes.data, bytes.size, models[i], &error);
            *first = letter;
            spry_model_close(model);
            if (output) /* leaving it out says that the embedding serves for it */
                assert_int_equal(status, SPRY_OK);
            else
                hostile_expect(status, &error, SPRY_ERR_FORMAT, router ? "is missing" : whole);
        }
        spry_gguf_close(gguf);
        spry_buffer_deinit(&bytes);
    }
}

/* ---- a tensor of another shape ---------------------------------------------------------------------------------- */

static bool reshape_one(void *context, spry_tensor *tensor, char name[SCRATCH_PATH])
{
    if (!strcmp(name, context)) {
        if (tensor->dims[0] == tensor->dims[1])
            tensor->dims[0] *= 2, tensor->dims[1] /= 2;
        else {
            size_t rows = tensor->dims[0];
            tensor->dims[0] = tensor->dims[1];
            tensor->dims[1] = rows;
        }
    }
    return true;
}

static void bind_built(const tensor_file *f, const char *model, spry_status *status, spry_error *error)
{
    spry_buffer bytes;
    spry_safetensors *files;
    spry_buffer_init(&bytes, 1 << 26);
    tensor_file_build(&bytes, f, "", NULL);
    assert_int_equal(spry_safetensors_open_memory(&files, bytes.data, bytes.size, model, NULL), SPRY_OK);
    *status = bind(model, files, error);
    spry_safetensors_close(files);
    spry_buffer_deinit(&bytes);
}

static void test_wrong_shapes(void **state)
{
    (void)state;
    static const char *const models[] = {"llama", "phi3", "qwen2-moe", "starcoder2"};
    for (size_t i = 0; i < SPRY_COUNT(models); i++) {
        spry_safetensors *files = open_fixture(models[i]);
        for (size_t k = 0; k < spry_safetensors_count(files); k++) {
            const spry_tensor *t = spry_safetensors_tensor(files, k);
            char words[2 * SCRATCH_PATH], name[SCRATCH_PATH];
            spry_error error = {0};
            spry_status status;
            if (t->n_dims != 2)
                continue;
            snprintf(name, sizeof name, "%.*s", (int)t->name.size, t->name.data);
            snprintf(words, sizeof words, "%s|has shape [|expected [%zu, %zu]", name, t->dims[0], t->dims[1]);
            if (!strcmp(name, "model.embed_tokens.weight")) /* its rows say how large the vocabulary is */
                snprintf(words, sizeof words, "%s|has shape [64, 512|expected [64, 64]", name);
            tensor_file f = {.from = files, .take = reshape_one, .context = name};
            bind_built(&f, models[i], &status, &error);
            hostile_expect(status, &error, SPRY_ERR_FORMAT, words);
        }
        spry_safetensors_close(files);
    }
}

/* One expert fewer than the config says, in every tensor that holds all of them. */
static bool drop_expert(void *context, spry_tensor *tensor, char name[SCRATCH_PATH])
{
    if (!strcmp(name, context)) {
        tensor->dims[0] /= 2;
        tensor->dims[1] *= 2;
    }
    return true;
}

static void test_wrong_experts(void **state)
{
    (void)state;
    spry_safetensors *files = open_fixture("gpt-oss-mxfp4");
    for (size_t k = 0; k < spry_safetensors_count(files); k++) {
        const spry_tensor *t = spry_safetensors_tensor(files, k);
        char name[SCRATCH_PATH];
        spry_error error = {0};
        spry_status status;
        snprintf(name, sizeof name, "%.*s", (int)t->name.size, t->name.data);
        if (t->type != SPRY_U8)
            continue;
        tensor_file f = {.from = files, .take = drop_expert, .context = name};
        bind_built(&f, "gpt-oss-mxfp4", &status, &error);
        hostile_expect(status, &error, SPRY_ERR_FORMAT, name);
        hostile_expect(status, &error, SPRY_ERR_FORMAT, "has shape [2, ");
    }
    spry_safetensors_close(files);
}

/* Biases of q and k change places: vectors of the wrong length. */
static bool swap_biases(void *context, spry_tensor *tensor, char name[SCRATCH_PATH])
{
    char *letter = strstr(name, "_proj.bias");
    (void)context;
    (void)tensor;
    if (letter && letter[-1] != 'v')
        letter[-1] = (char)(letter[-1] == 'q' ? 'k' : 'q');
    return true;
}

static void test_wrong_lengths(void **state)
{
    (void)state;
    spry_safetensors *files = open_fixture("qwen2");
    tensor_file f = {.from = files, .take = swap_biases};
    spry_error error = {0};
    spry_status status;
    bind_built(&f, "qwen2", &status, &error);
    hostile_expect(status, &error, SPRY_ERR_FORMAT, "model.layers.0.self_attn.q_proj.bias|has shape [32|expected [64");
    spry_safetensors_close(files);
}

/* ---- one number a layer ----------------------------------------------------------------------------------------- */

/* Copies a GGUF file, head_count_kv given as an array. */
static void write_with_array(const char *path, const spry_gguf *from, const int32_t *counts, size_t n)
{
    spry_gguf_writer *writer;
    assert_int_equal(spry_gguf_writer_create(&writer, NULL), SPRY_OK);
    for (size_t i = 0; i < spry_gguf_entry_count(from); i++) {
        const spry_gguf_entry *entry = spry_gguf_entry_at(from, i);
        if (spry_view_ends(entry->key, SPRY_VIEW("attention.head_count_kv")))
            spry_gguf_writer_i32s(writer, "llama.attention.head_count_kv", counts, n);
        else
            spry_gguf_writer_entry(writer, entry);
    }
    for (size_t i = 0; i < spry_gguf_tensor_count(from); i++)
        spry_gguf_writer_tensor(writer, spry_gguf_tensor(from, i));
    assert_int_equal(spry_gguf_writer_begin(writer, path, NULL), SPRY_OK);
    for (size_t i = 0; i < spry_gguf_tensor_count(from); i++) {
        const spry_tensor *t = spry_gguf_tensor(from, i);
        assert_int_equal(spry_gguf_writer_data(writer, t->data, t->bytes, NULL), SPRY_OK);
    }
    assert_int_equal(spry_gguf_writer_finish(writer, NULL), SPRY_OK);
    spry_gguf_writer_destroy(writer);
}

static void test_arrays_of_layers(void **state)
{
    (void)state;
    static const int32_t equal[] = {2, 2, 2}, unequal[] = {2, 2, 1};
    char path[SCRATCH_PATH];
    spry_gguf *gguf;
    spry_weights facts;
    spry_model *model;
    spry_error error = {0};
    scratch_clear(&place);
    assert_int_equal(spry_gguf_open(&gguf, model_path(path, "llama", "model-f32.gguf"), NULL), SPRY_OK);
    write_with_array(scratch_path(&place, "equal.gguf"), gguf, equal, SPRY_COUNT(equal));
    float *a = logits_of(path, &facts), *b = logits_of(place.path, &facts);
    assert_memory_equal(a, b, SPRY_COUNT(prompt) * facts.embedding.n_out * sizeof *a);
    free(a);
    free(b);
    write_with_array(scratch_path(&place, "unequal.gguf"), gguf, unequal, SPRY_COUNT(unequal));
    hostile_expect(spry_model_open(&model, place.path, &error), &error, SPRY_ERR_FORMAT,
                   "attention.head_count_kv|not the same for every layer");
    spry_gguf_close(gguf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unaligned),
        cmocka_unit_test(test_unaligned_and_quantised),
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_larger_model),
        cmocka_unit_test(test_larger_untied_model),
        cmocka_unit_test(test_missing_tensors),
        cmocka_unit_test(test_missing_gguf_tensors),
        cmocka_unit_test(test_wrong_shapes),
        cmocka_unit_test(test_wrong_experts),
        cmocka_unit_test(test_wrong_lengths),
        cmocka_unit_test(test_arrays_of_layers),
    };
    return cmocka_run_group_tests(tests, place_make, place_remove);
}
