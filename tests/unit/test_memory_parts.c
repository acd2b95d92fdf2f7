/* What an engine will take of memory, against what it takes: this program starts itself again for every case, so that
 * each is told and counted in a process of its own. And what tensors are said to be: where they lie, what becomes of
 * them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/compiler.h"
#include "engine/engine_state.h"
#include "model/model.h"
#include "model/shapes.h"
#include "platform/file.h"
#include "platform/memory.h"
#include "spry_tools.h"
#include "support/hostile.h"
#include "support/model_folder.h"
#include "support/must.h"
#include "support/place.h"

#define BUNDLED MODELS_DIR "/Spry-Tales-29M.gguf"

enum { MB = 1 << 20, SMALL = 1000000 };
enum {
    AT_ONCE = 16 * MB
}; /* rows beside their packed form, by two workers: a megabyte and a huge page each, and rooms */

/* ---- pages ------------------------------------------------------------------------------------------------------- */

/* Ascending ranges against a mark on every page. */
static void tallies_are_what_marks_say(void **state)
{
    (void)state;
    enum { PAGE = 16, HUGE = 128, SIZE = 128 * 5 + 70 };
    uint64_t random = 7;
    for (int round = 0; round < 2000; round++) {
        bool marked[SIZE / PAGE + 1] = {false};
        spry_memory_tally tally = {.size = SIZE, .page = PAGE, .huge = round % 2 ? HUGE : 0};
        size_t at = 0, bytes = 0;
        for (size_t end; at < SIZE; at += hostile_random(&random) % 150) {
            end = at + hostile_random(&random) % 200;
            end = end < SIZE ? end : SIZE;
            spry_memory_tally_add(&tally, at, end);
            for (size_t byte = at; byte < end; byte++) {
                bool huge = tally.huge && byte < SIZE / HUGE * HUGE;
                size_t first = huge ? byte / HUGE * HUGE : byte / PAGE * PAGE;
                for (size_t page = 0; page < (huge ? HUGE / PAGE : 1); page++)
                    marked[first / PAGE + page] = true;
            }
        }
        for (size_t i = 0; i < SPRY_COUNT(marked); i++)
            bytes += marked[i] ? PAGE : 0;
        assert_int_equal(tally.bytes, bytes);
    }
}

static size_t resident(const void *memory, size_t size)
{
    size_t bytes;
    assert_true(spry_memory_resident(&bytes, memory, size));
    return bytes;
}

static bool can_count(const char *test)
{
    static unsigned char probe[1 << 17];
    size_t bytes = 0;
    memset(probe, 1, sizeof probe);
    if (strcmp(TEST_PLATFORM, "linux") == 0 && spry_memory_resident(&bytes, probe, sizeof probe) && bytes &&
        spry_memory_now())
        return true;
    print_message("SKIPPED %s: this system or platform does not tell which pages of files are resident\n", test);
    return false;
}

static void memory_is_counted_as_it_is_touched(void **state)
{
    (void)state;
    const size_t size = 6 * MB + 5000;
    if (!can_count(__func__))
        return;
    unsigned char *memory = spry_memory_map(size);
    assert_non_null(memory);
    size_t huge = spry_memory_huge_page(), page = spry_memory_page();
    assert_int_equal((uintptr_t)memory % (huge && huge <= size ? huge : page), 0);
    assert_int_equal(resident(memory, size), 0);
    size_t before = spry_memory_now();
    memset(memory, 1, size);
    assert_int_equal(resident(memory, size), (size + page - 1) / page * page);
    assert_true(spry_memory_now() >= before + size);
    assert_int_equal(resident(memory, 3 * MB + 1) + resident(memory + 3 * MB + 1, size - 3 * MB - 1),
                     resident(memory, size));
    spry_memory_drop(memory, size);
    assert_true(resident(memory, size) <= page);
    spry_memory_unmap(memory, size);
}

/* A file's pages are in the system's memory since it was written; what counts is whether this process holds them. */
static void files_are_fetched_and_dropped(void **state)
{
    (void)state;
    const size_t size = 3 * MB + 77;
    spry_mapping file;
    spry_error error = {0};
    if (!can_count(__func__))
        return;
    char *bytes = calloc(1, size);
    assert_non_null(bytes);
    must(spry_mapping_open(&file, scratch_write(&place, "bytes", bytes, size), &error), &error);
    free(bytes);
    size_t page = spry_memory_page(), whole = (size + page - 1) / page * page;
    assert_int_equal(resident(file.data, size), 0);
    spry_memory_fetch(file.data + 100, size - 100);
    assert_int_equal(resident(file.data, size), whole);
    spry_memory_drop_file(file.data, size);
    assert_int_equal(resident(file.data, size), page); /* the last, which is not whole */
    assert_int_equal(file.data[size / 2], 0);
    assert_true(resident(file.data, size) > page);
    spry_mapping_close(&file);
}

/* ---- estimates --------------------------------------------------------------------------------------------------- */

typedef struct memory_case {
    const char *type; /* of random weights; NULL: the bundled model */
    size_t tokens;
    const char *how; /* "file", "memory" (the file is), "mapped" (in memory, where its pages may be given back), "small"
                        (no huge pages), "q8_0" (so are keys and values), "quantize" */
} memory_case;

static void write_parts(const spry_memory_parts *p)
{
    printf("%zu %zu %zu %zu %zu %zu\n", p->weights, p->kv, p->cache, p->scratch, p->program, p->whole);
}

/* The other process: `measure PATH TOKENS HOW`. */
static int measure(const char *path, size_t count, const char *how)
{
    spry_error error = {0};
    spry_engine_options options;
    spry_engine *engine = NULL;
    spry_session *session = NULL;
    spry_steps *steps;
    spry_memory_parts told, counted;
    spry_buffer file;
    spry_mapping mapping = {0};
    const spry_memory_use use = {.size = sizeof use, .tokens = count};
    const float *logits;
    bool in_memory = strcmp(how, "memory") == 0, mapped = strcmp(how, "mapped") == 0;
    spry_engine_options_default(&options);
    options.context = count < 1000 ? 1024 : (uint32_t)count;
    options.threads = 2;
    options.kv_type = strcmp(how, "q8_0") == 0 ? "q8_0" : "f16";
    options.quantize = strcmp(how, "quantize") == 0 ? "q4_0" : NULL;
    options.data_is_mapped = mapped;
    if (strcmp(how, "small") == 0)
        prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    spry_buffer_init(&file, SIZE_MAX / 2);
    int32_t *ids = calloc(count, sizeof *ids);
    if (!ids || (in_memory && spry_file_read(&file, path, &error)) ||
        (mapped && spry_mapping_open(&mapping, path, &error)))
        goto done;
    const void *data = mapped ? mapping.data : (const void *)file.data;
    size_t size = mapped ? mapping.size : file.size;
    if (spry_memory_estimate(&told, path, data, size, &options, &use, &error) ||
        (data ? spry_engine_open_memory(&engine, data, size, path, &options, &error)
              : spry_engine_open(&engine, path, &options, &error)))
        goto done;
    uint64_t random = 99;
    for (size_t i = 0; i < count; i++)
        ids[i] = (int32_t)(hostile_random(&random) % engine->model->config.n_vocab);
    if (spry_steps_create(&steps, engine, 1, &error)) /* weights are packed by the second step that uses them */
        goto done;
    spry_steps_destroy(steps);
    if (!spry_session_create(&session, engine, &error) && !spry_session_eval(session, &logits, ids, count, &error) &&
        !spry_memory_measure(&counted, engine, &error)) {
        write_parts(&told);
        write_parts(&counted);
        printf("%zu\n", spry_memory_peak());
    }
done:
    if (error.status)
        printf("%s\n", error.message);
    spry_session_destroy(session);
    spry_engine_close(engine);
    spry_buffer_deinit(&file);
    spry_mapping_close(&mapping);
    free(ids);
    return error.status != SPRY_OK;
}

#if !SPRY_SANITIZE_ADDRESS

static void read_parts(spry_memory_parts *p, FILE *from)
{
    char line[SPRY_ERROR_MAX] = "nothing";
    if (!fgets(line, sizeof line, from) || sscanf(line, "%zu %zu %zu %zu %zu %zu", &p->weights, &p->kv, &p->cache,
                                                  &p->scratch, &p->program, &p->whole) != 6)
        fail_msg("the other process said: %s", line);
}

static double megabytes(size_t bytes)
{
    return (double)bytes / 1e6;
}

/* Within a share of it, unless both are small. */
static void near(double share, const char *part, const memory_case *c, size_t told, size_t counted)
{
    double off = counted ? (double)told / (double)counted - 1 : 1;
    if ((told < SMALL && counted < SMALL) || (off > -share && off < share))
        return;
    fail_msg("%s, %zu tokens, %s: %s are told to be %zu bytes and are %zu", c->type ? c->type : "bundled", c->tokens,
             c->how, part, told, counted);
}

/* Huge pages the system had no room for are small ones instead. */
static size_t huge_pages_refused(void)
{
    char line[128];
    size_t count = 0;
    FILE *file = fopen("/proc/vmstat", "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "thp_fault_fallback %zu", &count) == 1)
            break;
    if (file)
        fclose(file);
    return count;
}

static void compare(const memory_case *c, const char *path)
{
    char self[SCRATCH_PATH] = "", command[3 * SCRATCH_PATH];
    spry_memory_parts told, counted;
    size_t peak, refused = huge_pages_refused();
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    snprintf(command, sizeof command, "'%s' measure '%s' %zu %s", self, path, c->tokens, c->how);
    FILE *other = popen(command, "re");
    assert_non_null(other);
    read_parts(&told, other);
    read_parts(&counted, other);
    assert_int_equal(fscanf(other, "%zu", &peak), 1);
    assert_int_equal(pclose(other), 0);
    print_message("%-8s %6zu %-8s %7.2f %7.2f %7.2f %7.2f %7.2f %7.2f  %+5.1f %%  peak %7.2f\n",
                  c->type ? c->type : "bundled", c->tokens, c->how, megabytes(told.weights), megabytes(told.kv),
                  megabytes(told.scratch), megabytes(told.program), megabytes(told.whole), megabytes(counted.whole),
                  ((double)told.whole / (double)counted.whole - 1) * 100, megabytes(peak));
    assert_int_equal(told.whole, told.weights + told.kv + told.cache + told.scratch + told.program);
    assert_int_equal(counted.whole, counted.weights + counted.kv + counted.cache + counted.scratch + counted.program);
    if (huge_pages_refused() != refused && strcmp(c->how, "small") != 0) {
        print_message("SKIPPED comparing: the system was short of huge pages meanwhile\n");
        return;
    }
    near(0.05, "weights", c, told.weights, counted.weights);
    near(0.05, "keys and values", c, told.kv, counted.kv);
    near(0.05, "what is kept for reuse", c, told.cache, counted.cache);
    near(0.05, "working memory", c, told.scratch, counted.scratch);
    /* Which pages of libraries are mapped depends on what of their files the system has in memory. */
    near(0.25, "the program's", c, told.program, counted.program);
    near(0.05, "all other parts", c, told.whole - told.program, counted.whole - counted.program);
    /* Quantising reads floats before it packs what they become. */
    size_t most = told.whole + (told.weights + told.kv) / 20 + AT_ONCE;
    if (peak > most && strcmp(c->how, "quantize") != 0)
        fail_msg("%s, %zu tokens, %s: %zu bytes at the peak, more than %zu", c->type ? c->type : "bundled", c->tokens,
                 c->how, peak, most);
}

/* Qwen3's make with a vocabulary and layers that make small files. */
static const char *write_random(const char *type)
{
    char file[64];
    spry_error error = {0};
    spry_shape shape = *spry_shape_find("qwen3-0.6b");
    spry_random_model job = {.shape = &shape, .name = "random"};
    shape.config.n_layers = 2;
    shape.config.n_vocab = 32768;
    must(spry_recipe_find(&job.recipe, type, &error), &error);
    must(spry_threads_create(&job.threads, 2, &error), &error);
    snprintf(file, sizeof file, "random-%s.gguf", type);
    must(spry_random_model_write(scratch_path(&place, file), &job, &error), &error);
    spry_threads_destroy(job.threads);
    return place.path;
}

static void estimates_are_within_five_percent(void **state)
{
    (void)state;
    static const memory_case cases[] = {
        {NULL, 100, "file"},    {NULL, 1000, "file"},   {NULL, 100, "memory"},    {NULL, 100, "mapped"},
        {NULL, 1000, "small"},  {NULL, 70, "q8_0"},     {"q4_0", 100, "file"},    {"q4_0", 4000, "file"},
        {"q8_0", 1000, "file"}, {"q8_0", 70, "small"},  {"q4_k_m", 100, "file"},  {"q4_k_m", 1000, "small"},
        {"f16", 100, "file"},   {"f16", 1000, "small"}, {"f16", 100, "quantize"}, {"f16", 100, "memory"},
    };
    if (!can_count(__func__))
        return;
    print_message("MB of     tokens         weights      kv scratch program   whole counted\n");
    const char *path = BUNDLED, *type = NULL;
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        if (cases[i].type && (!type || strcmp(type, cases[i].type) != 0)) {
            scratch_clear(&place);
            path = write_random(cases[i].type);
        }
        type = cases[i].type;
        compare(&cases[i], path);
    }
    scratch_clear(&place);
}

#else

static void estimates_are_within_five_percent(void **state)
{
    (void)state;
    print_message("SKIPPED %s: sanitizers use memory of their own\n", __func__);
}

#endif

/* Bytes that are not declared as a mapped file stay after packing; pages of a file go, and read as before. */
static void only_pages_of_mapped_files_are_given_back(void **state)
{
    (void)state;
    spry_error error = {0};
    spry_engine_options options;
    spry_engine *engine;
    spry_mapping file;
    if (!can_count(__func__))
        return;
    must(spry_mapping_open(&file, BUNDLED, &error), &error);
    unsigned char *copy = spry_memory_map(file.size);
    assert_non_null(copy);
    memcpy(copy, file.data, file.size);
    spry_engine_options_default(&options);
    must(spry_engine_open_memory(&engine, copy, file.size, "a copy", &options, &error), &error);
    assert_memory_equal(copy, file.data, file.size);
    spry_device_memory memory;
    assert_true(spry_device_measure(engine->device, &memory));
    bool packed = memory.weights > 0;
    spry_engine_close(engine);
    options.data_is_mapped = true;
    must(spry_engine_open_memory(&engine, file.data, file.size, "a mapping", &options, &error), &error);
    if (packed)
        assert_true(resident(file.data, file.size) < file.size / 8);
    spry_engine_close(engine);
    assert_memory_equal(copy, file.data, file.size);
    spry_memory_unmap(copy, file.size);
    spry_mapping_close(&file);
}

static void pages_kept_for_reuse_are_told_apart(void **state)
{
    (void)state;
    spry_error error = {0};
    spry_engine_options options;
    spry_engine *engine;
    spry_session *session;
    spry_memory_parts before, after;
    const float *logits;
    int32_t ids[320];
    if (!can_count(__func__))
        return;
    for (size_t i = 0; i < SPRY_COUNT(ids); i++)
        ids[i] = (int32_t)(i + 5);
    spry_engine_options_default(&options);
    must(spry_engine_open(&engine, BUNDLED, &options, &error), &error);
    must(spry_session_create(&session, engine, &error), &error);
    must(spry_session_eval(session, &logits, ids, SPRY_COUNT(ids), &error), &error);
    must(spry_memory_measure(&before, engine, &error), &error);
    assert_int_equal(before.cache, 0);
    spry_session_destroy(session);
    must(spry_memory_measure(&after, engine, &error), &error);
    assert_int_equal(after.cache, 10 * engine->pool.page_bytes);
    assert_int_equal(after.cache + after.kv, before.kv);
    spry_memory_parts told;
    const spry_memory_use use = {.size = sizeof use, .cached = SPRY_COUNT(ids)};
    must(spry_memory_estimate(&told, BUNDLED, NULL, 0, &options, &use, &error), &error);
    assert_int_equal(told.cache, after.cache);
    spry_engine_close(engine);
}

/* Whatever is asked for, a part is never larger than what it is a part of. */
static void nonsense_is_told_within_limits(void **state)
{
    (void)state;
    spry_error error = {0};
    spry_engine_options options;
    spry_memory_parts p;
    const spry_memory_use all = {sizeof all, SIZE_MAX, SIZE_MAX, SIZE_MAX, SIZE_MAX};
    spry_engine_options_default(&options);
    options.kv_bytes = 64 * MB;
    must(spry_memory_estimate(&p, BUNDLED, NULL, 0, &options, &all, &error), &error);
    assert_true(p.kv + p.cache <= 64 * MB && p.kv + p.cache > 60 * MB);
    assert_true(p.scratch < 64 * MB);
    options.context = 1 << 30;
    assert_int_equal(spry_memory_estimate(&p, BUNDLED, NULL, 0, &options, &all, &error), SPRY_ERR_CONTEXT);
    assert_int_equal(p.whole, 0);
    assert_int_equal(spry_memory_estimate(&p, "/nowhere.gguf", NULL, 0, &options, &all, &error), SPRY_ERR_FILE);
    assert_int_equal(spry_memory_estimate(&p, "text", "no model", 8, &options, &all, &error), SPRY_ERR_FORMAT);
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static spry_model *open_sizes(const char *path)
{
    spry_model *model;
    spry_error error = {0};
    must(spry_model_open_sizes(&model, path, NULL, 0, &error), &error);
    return model;
}

static const spry_ops *kernels(const char *name)
{
    const spry_ops *ops;
    spry_error error = {0};
    must(spry_ops_get(&ops, name, &error), &error);
    return ops;
}

static void tensors_are_what_their_numbers_say(void **state)
{
    (void)state;
    spry_tensor t = {.type = SPRY_Q4_0, .n_dims = 2, .dims = {3, 64, 1, 1}, .bytes = 3 * 36, .offset = 96};
    assert_int_equal(spry_tensor_alignment(&t), 32);
    assert_true(spry_tensor_contiguous(&t));
    t.bytes += 18;
    assert_false(spry_tensor_contiguous(&t));
    t.dims[1] = 65;
    assert_false(spry_tensor_contiguous(&t));
    t.offset = 7;
    assert_int_equal(spry_tensor_alignment(&t), 1);
    t.offset = 1 << 20;
    assert_int_equal(spry_tensor_alignment(&t), SPRY_ALIGNMENT_SHOWN);
}

static void bundled_tensors_are_packed_or_stay(void **state)
{
    (void)state;
    char text[256];
    spry_placement p;
    spry_model *model = open_sizes(BUNDLED);
    spry_model_placement(&p, model, kernels("ref"));
    assert_int_equal(p.tensors, spry_gguf_tensor_count(model->gguf));
    assert_int_equal(p.contiguous, p.tensors);
    assert_int_equal(p.placed[SPRY_PLACED_FLOATS] + p.placed[SPRY_PLACED_IN_PLACE], p.tensors);
    size_t matrices = p.placed[SPRY_PLACED_IN_PLACE];
    spry_model_placement(&p, model, kernels("auto"));
    assert_int_equal(p.placed[SPRY_PLACED_PACKED] + p.placed[SPRY_PLACED_IN_PLACE], matrices);
    spry_placement_describe(text, sizeof text, &p);
    assert_non_null(strstr(text, "all contiguous, smallest alignment 32; "));
    assert_non_null(strstr(text, " 0 copied"));
    spry_model_close(model);
}

/* The same checkpoint a byte off: every matrix is copied, and said to be. */
static void unaligned_tensors_are_copied(void **state)
{
    (void)state;
    spry_placement p;
    const char *why;
    spry_safetensors *files;
    char path[SCRATCH_PATH];
    assert_int_equal(spry_safetensors_open(&files, model_path(path, "llama", "model.safetensors"), NULL), SPRY_OK);
    for (size_t shift = 0; shift < 2; shift++) {
        tensor_file f = {.from = files, .shift = shift};
        size_t matrices = 0;
        model_folder_fill(&place, "llama", "model.safetensors");
        tensor_file_write(&place, "model.safetensors", &f, NULL);
        spry_model *model = open_sizes(place.folder);
        spry_model_placement(&p, model, kernels("ref"));
        for (size_t i = 0; i < p.tensors; i++) {
            bool matrix = spry_model_tensor(model, i)->n_dims > 1;
            spry_placing placing = spry_model_placing(model, i, kernels("ref"), &why);
            matrices += matrix;
            assert_int_equal(placing, !matrix ? SPRY_PLACED_FLOATS : shift ? SPRY_PLACED_COPIED : SPRY_PLACED_IN_PLACE);
            assert_true(*why);
        }
        assert_int_equal(p.placed[SPRY_PLACED_COPIED], shift ? matrices : 0);
        assert_true(shift ? p.smallest_alignment == 1 : p.smallest_alignment >= 4);
        spry_model_close(model);
    }
    spry_safetensors_close(files);
    scratch_clear(&place);
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "measure") == 0)
        return measure(argv[2], (size_t)strtoul(argv[3], NULL, 10), argv[4]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tallies_are_what_marks_say),
        cmocka_unit_test(memory_is_counted_as_it_is_touched),
        cmocka_unit_test(files_are_fetched_and_dropped),
        cmocka_unit_test(estimates_are_within_five_percent),
        cmocka_unit_test(pages_kept_for_reuse_are_told_apart),
        cmocka_unit_test(nonsense_is_told_within_limits),
        cmocka_unit_test(tensors_are_what_their_numbers_say),
        cmocka_unit_test(bundled_tensors_are_packed_or_stay),
        cmocka_unit_test(unaligned_tensors_are_copied),
        cmocka_unit_test(only_pages_of_mapped_files_are_given_back),
    };
    return cmocka_run_group_tests(tests, place_make, place_remove);
}
