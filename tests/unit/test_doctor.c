/* What `spry doctor` makes of facts: findings of imitated machines, the profile as a document, and what of a stored one
 * is believed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "doctor/machine_profile.h"
#include "platform/file.h"

/* ---- findings ---------------------------------------------------------------------------------------------------- */

/* What there is to look at; tests change a field and look again. */
typedef struct setting {
    spry_hardware hardware;
    spry_gpus gpus;
    spry_energy_facts energy;
    spry_machine_speed speed;
    spry_chips chips;
    spry_finding findings[SPRY_FINDINGS_MAX];
    size_t count;
} setting;

static void look(setting *s)
{
    const spry_finding_facts facts = {&s->hardware, &s->gpus, &s->energy, &s->speed, &s->chips};
    s->count = spry_findings_make(s->findings, &facts);
    bool warns = true;
    for (size_t i = 0; i < s->count; i++) {
        const spry_finding *f = &s->findings[i];
        assert_true(f->what[0] && f->fix[0]);
        assert_null(strpbrk(f->what, "{}"));
        assert_null(strpbrk(f->fix, "{}"));
        assert_true(warns || !f->warns); /* warnings come first */
        warns = f->warns;
    }
}

static const spry_finding *find(const setting *s, const char *words)
{
    for (size_t i = 0; i < s->count; i++)
        if (strstr(s->findings[i].what, words))
            return &s->findings[i];
    return NULL;
}

/* A machine with nothing to complain about. */
static setting *good(void)
{
    static setting s;
    memset(&s, 0, sizeof s);
    spry_hardware *h = &s.hardware;
    snprintf(h->huge_pages, sizeof h->huge_pages, "madvise");
    snprintf(h->governor, sizeof h->governor, "performance");
    h->cores = h->processors = h->usable = 8;
    h->numa_nodes = 1;
    h->virtual_machine = SPRY_NO;
    h->memory_bytes = h->usable_bytes = (size_t)32 << 30;
    h->available_bytes = (size_t)30 << 30;
    h->sets[h->n_sets++] = "avx512vnni";
    s.speed.threads = 8;
    snprintf(s.speed.kernels, sizeof s.speed.kernels, "avx512");
    s.energy.has_cpu = true;
    return &s;
}

static void a_good_machine_has_no_findings(void **state)
{
    (void)state;
    setting *s = good();
    look(s);
    assert_int_equal(s->count, 0);
}

static void what_is_unknown_is_no_finding(void **state)
{
    static setting s;
    (void)state;
    s.energy.has_cpu = true;
    look(&s);
    assert_int_equal(s.count, 0);
}

static void a_laptop_has_many(void **state)
{
    static const char *const expected[] = {
        "used 2.5 processors",      "huge pages are switched off",
        "governor is powersave",    "Only 2.05 GB of 16.4 GB",
        "3.07 GB of swap",          "no AVX-512 VNNI",
        "4 threads run on 2 cores", "energy is not measured",
    };
    static setting s;
    (void)state;
    spry_hardware_read(&s.hardware, TEST_DATA "/hardware-laptop");
    s.speed.threads = 4;
    snprintf(s.speed.kernels, sizeof s.speed.kernels, "avx2");
    snprintf(s.energy.cpu, sizeof s.energy.cpu, "only root may read the counter; let all users");
    look(&s);
    assert_int_equal(s.count, sizeof expected / sizeof *expected);
    for (size_t i = 0; i < s.count; i++) {
        assert_non_null(strstr(s.findings[i].what, expected[i]));
        assert_int_equal(s.findings[i].warns, i < 5);
    }
    assert_string_equal(s.findings[7].fix, "The meter says: only root may read the counter; let all users.");
    assert_non_null(strstr(s.findings[1].fix, "madvise"));
    assert_non_null(strstr(s.findings[6].fix, "--threads 2"));
}

static void a_part_of_a_server_has_others(void **state)
{
    static setting s;
    (void)state;
    spry_hardware_read(&s.hardware, TEST_DATA "/hardware-server");
    s.speed.threads = 3;
    snprintf(s.speed.kernels, sizeof s.speed.kernels, "avx512");
    s.energy.has_cpu = true;
    s.gpus.count = 1;
    snprintf(s.gpus.list[0].name, SPRY_GPU_NAME, "Example GPU");
    look(&s);
    assert_int_equal(s.count, 5);
    assert_true(find(&s, "limits spry to 3 of the machine's 8 processors")->warns);
    assert_false(find(&s, "AMX")->warns);
    assert_non_null(find(&s, "limited to 8.59 GB of the machine's 275 GB"));
    assert_non_null(find(&s, "2 NUMA nodes"));
    assert_non_null(find(&s, "Example GPU is present; spry computes on the processor unless"));
    snprintf(s.speed.kernels, sizeof s.speed.kernels, "amx");
    look(&s);
    assert_int_equal(s.count, 4); /* AMX is used */
    snprintf(s.speed.kernels, sizeof s.speed.kernels, "avx512bw");
    look(&s);
    assert_true(find(&s, "avx512bw kernels are used although the processor has AVX-512 VNNI")->warns);
}

/* Within a quarter of what was measured on an H200 (docs/GPU.md); nothing is said of a GPU that spry does not use. */
static void speeds_of_a_gpu_are_predicted(void **state)
{
    static const struct {
        double parameters, bytes, decode, prefill; /* the latter two measured */
    } cases[] = {{0.596e9, 1.19e9, 1080, 122721}, {0.596e9, 0.335e9, 1260, 117630}, {1.236e9, 2.47e9, 903, 82212}};
    spry_gpu gpu = {
        .bytes = (size_t)143 << 30, .compute_major = 9, .multiprocessors = 132, .clock_ghz = 1.98, .read_gb_s = 4640};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        spry_prediction model = {
            .size = {.parameters = cases[i].parameters, .file_bytes = cases[i].bytes, .weight_bytes = cases[i].bytes}};
        spry_gpu_prediction p = spry_predict_gpu(&gpu, &model);
        assert_true(p.fits);
        assert_true(p.decode_tps > 0.75 * cases[i].decode && p.decode_tps < 1.25 * cases[i].decode);
        assert_true(p.prefill_tps > 0.75 * cases[i].prefill && p.prefill_tps < 1.25 * cases[i].prefill);
        model.size.file_bytes = 200e9;
        assert_false(spry_predict_gpu(&gpu, &model).fits);
        spry_gpu old = gpu;
        old.compute_major = 7;
        assert_true(spry_predict_gpu(&old, &model).decode_tps == 0);
        old = gpu;
        old.read_gb_s = 0; /* not measured */
        assert_true(spry_predict_gpu(&old, &model).prefill_tps == 0);
    }
}

static void each_of_the_rest_is_found(void **state)
{
    (void)state;
    setting *s = good();
    s->hardware.usable = 3;
    look(s);
    assert_non_null(find(s, "to 3 of the machine's 8"));
    s = good();
    s->hardware.virtual_machine = SPRY_YES;
    look(s);
    assert_non_null(find(s, "virtual machine"));
    s = good();
    snprintf(s->speed.kernels, sizeof s->speed.kernels, "ref");
    look(s);
    assert_true(find(s, "plain C")->warns);
    s = good();
    snprintf(s->speed.kernels, sizeof s->speed.kernels, "avx2");
    look(s);
    assert_true(find(s, "although the processor has AVX-512")->warns);
    assert_int_equal(s->count, 1);
}

/* ---- families of chips ------------------------------------------------------------------------------------------- */

/* Compares with apps/doctor/chips.json. */
static void compare(setting *s)
{
    spry_error error;
    spry_buffer text;
    spry_buffer_init(&text, 1 << 20);
    assert_int_equal(spry_file_read(&text, TEST_DATA "/../../apps/doctor/chips.json", &error), SPRY_OK);
    assert_int_equal(spry_chips_compare(&s->chips, spry_buffer_view(&text), &s->hardware, &s->speed, &s->gpus, &error),
                     SPRY_OK);
    spry_buffer_deinit(&text);
}

static setting *epyc(double read_gb_s, double multiply_g_s, uint32_t threads)
{
    setting *s = good();
    snprintf(s->hardware.cpu, sizeof s->hardware.cpu, "AMD EPYC");
    s->hardware.sets[s->hardware.n_sets++] = "avx512bf16";
    s->speed.threads = threads;
    s->speed.read_gb_s = read_gb_s;
    s->speed.types[SPRY_Q4_0].multiply_g_s = multiply_g_s;
    compare(s);
    look(s);
    return s;
}

static void a_machine_is_compared_with_its_family(void **state)
{
    (void)state;
    setting *s = epyc(40, 340, 2);
    assert_string_equal(s->chips.processor.family, "AMD EPYC, Zen 4");
    assert_true(s->chips.processor.source[0] && s->chips.processor.read_share > 0.9);
    assert_int_equal(s->count, 0);
    s = epyc(21, 340, 2); /* half of the family's bandwidth */
    assert_int_equal(s->count, 1);
    assert_non_null(strstr(find(s, "Memory is read at 50 %")->what, "AMD EPYC, Zen 4"));
    s = epyc(300, 340, 8); /* four times the threads multiply four times as much; reading need not grow */
    assert_int_equal(s->count, 1);
    assert_true(find(s, "Products are 25 %")->warns);
    s = good();
    s->hardware.sets[s->hardware.n_sets++] = "avx512bf16"; /* a processor without a name */
    s->gpus.count = 1;
    snprintf(s->gpus.list[0].name, SPRY_GPU_NAME, "NVIDIA H200");
    s->gpus.list[0].read_gb_s = 2150;
    compare(s);
    look(s);
    assert_string_equal(s->chips.processor.family, "");
    assert_non_null(find(s, "The GPU reads its memory at 50 % of the speed of NVIDIA H200"));
    s->gpus.list[0].read_gb_s = 0; /* not measured */
    compare(s);
    look(s);
    assert_null(find(s, "reads its memory"));
}

static void a_damaged_list_of_families_is_refused(void **state)
{
    static const char *const bad[] = {"", "{\"processors\":", "{\"processors\": [{\"name\": \"EPYC\"}]}",
                                      "{\"processors\": [{\"name\": \"\", \"family\": \"x\", \"read_gb_s\": 4}]}"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        spry_error error = {0};
        setting *s = epyc(40, 340, 2);
        assert_int_equal(spry_chips_compare(&s->chips, spry_view_of(bad[i]), &s->hardware, &s->speed, &s->gpus, &error),
                         SPRY_ERR_FORMAT);
        assert_non_null(strstr(error.message, "chips.json"));
    }
}

/* ---- the document ------------------------------------------------------------------------------------------------ */

/* Of the imitated server, with speeds made up. */
static spry_machine_profile *some_profile(void)
{
    static spry_machine_profile p;
    memset(&p, 0, sizeof p);
    spry_hardware_read(&p.hardware, TEST_DATA "/hardware-server");
    p.speed.threads = 3;
    snprintf(p.speed.kernels, sizeof p.speed.kernels, "avx512");
    p.speed.read_gb_s = 40;
    for (size_t i = 0; i < SPRY_READ_SPEEDS; i++)
        p.speed.reads[i] = (spry_read_speed){1000.0 * (double)(i + 1), 100};
    p.speed.sync_us = 2.5;
    p.speed.attend_g_s = p.speed.attend_gb_s = 30;
    for (size_t i = 0; i < SPRY_SMALL_COUNT; i++)
        p.speed.small_g_s[i] = 1.5;
    p.speed.types[SPRY_Q4_0] = (spry_type_speed){200, 30, 60};
    p.gpus.count = 2;
    snprintf(p.gpus.list[0].name, SPRY_GPU_NAME, "Example GPU");
    p.gpus.list[0].read_gb_s = 900;
    snprintf(p.gpus.list[1].name, SPRY_GPU_NAME, "Another GPU");
    snprintf(p.gpus.list[1].why, SPRY_GPU_TEXT, "cuMemAlloc: the driver is tired");
    snprintf(p.gpus.driver, sizeof p.gpus.driver, "580, CUDA 13.0");
    snprintf(p.energy.cpu, sizeof p.energy.cpu, "no counter");
    snprintf(p.energy.gpu, sizeof p.energy.gpu, "no counter");
    p.n_findings = 1;
    p.findings[0] = (spry_finding){true, "what", "fix"};
    p.n_candidates = 1;
    p.candidates[0] = (spry_candidate){.shape = "shape",
                                       .type = "q4_0",
                                       .fits = true,
                                       .predicted = {.prefill_tps = 1, .decode_tps = 2, .ttft_1k_ms = 3}};
    p.n_choices = 2;
    p.choices[0] = (spry_model_choice){SPRY_USE_FAST, &p.candidates[0], "because", "hf:a/b:Q4_0", NULL};
    p.choices[1] = (spry_model_choice){SPRY_USE_BEST, NULL, "nothing fits", "", NULL};
    spry_machine_id(p.id, "cpu", 3, "avx512", 1);
    spry_time_text(p.when, 1794744000);
    return &p;
}

static json_t *some_document(void)
{
    spry_error error;
    spry_buffer text;
    json_t *document = NULL;
    spry_buffer_init(&text, 1 << 20);
    assert_int_equal(spry_profile_json(&text, some_profile(), true, &error), SPRY_OK);
    assert_int_equal(spry_json_object(&document, spry_buffer_view(&text), &error), SPRY_OK);
    spry_buffer_deinit(&text);
    return document;
}

static spry_status parse(spry_stored_profile *stored, const json_t *document, spry_error *error)
{
    char *text = json_dumps(document, 0);
    assert_non_null(text);
    spry_status status = spry_profile_parse(stored, spry_view_of(text), error);
    free(text);
    return status;
}

static void a_document_is_read_back(void **state)
{
    static spry_stored_profile stored;
    spry_error error;
    (void)state;
    json_t *document = some_document();
    const spry_machine_profile *p = some_profile();
    assert_int_equal(parse(&stored, document, &error), SPRY_OK);
    assert_string_equal(stored.id, p->id);
    assert_string_equal(stored.spry, spry_version());
    assert_string_equal(stored.when, "2026-11-15T12:00:00Z");
    assert_int_equal(stored.seconds, 1794744000);
    assert_true(stored.load == 0.1);
    assert_int_equal(stored.speed.threads, 3);
    assert_true(stored.speed.read_gb_s == 40 && stored.speed.types[SPRY_Q4_0].decode_gb_s == 30);
    assert_int_equal(stored.n_gpus, 2);
    assert_true(stored.gpus[0].read_gb_s == 900 && stored.gpus[1].read_gb_s == 0);
    assert_string_equal(stored.gpus[1].why, "cuMemAlloc: the driver is tired");
    json_decref(document);
}

static void lists_of_models_are_left_out_where_not_wanted(void **state)
{
    spry_error error;
    spry_buffer text;
    json_t *document = NULL;
    (void)state;
    spry_buffer_init(&text, 1 << 20);
    assert_int_equal(spry_profile_json(&text, some_profile(), false, &error), SPRY_OK);
    assert_int_equal(spry_json_object(&document, spry_buffer_view(&text), &error), SPRY_OK);
    assert_int_equal(json_array_size(json_object_get(document, "models")), 0);
    assert_int_equal(json_array_size(json_object_get(document, "choices")), 0);
    assert_int_equal(json_array_size(json_object_get(document, "findings")), 1);
    json_decref(document);
    spry_buffer_deinit(&text);
}

/* Makes each key something it must not be, and has the document refused by that key's name. */
static void assert_kinds_are_checked(json_t *document, json_t *object, const char *const *keys)
{
    static spry_stored_profile stored;
    spry_error error;
    for (; *keys; keys++) {
        json_t *value = json_incref(json_object_get(object, *keys));
        assert_non_null(value);
        json_object_set_new(object, *keys, json_real(-1.5));
        assert_int_equal(parse(&stored, document, &error), SPRY_ERR_FORMAT);
        assert_non_null(strstr(error.message, *keys));
        json_object_set_new(object, *keys, value);
        assert_int_equal(parse(&stored, document, &error), SPRY_OK);
    }
}

static void every_kind_is_checked(void **state)
{
    static const char *const top[] = {"spry",   "when",   "id",       "cpu",    "memory",  "gpu", "why_no_gpu",
                                      "energy", "speeds", "findings", "models", "choices", NULL};
    static const struct {
        const char *where, *keys[12];
        bool list;
    } parts[] = {
        {"cpu",
         {"name", "cores", "processors", "usable", "cgroup_cpus", "isa", "kernels", "caches", "governor", "numa_nodes"},
         false},
        {"memory", {"bytes", "usable_bytes", "huge_pages", "swap_bytes"}, false},
        {"energy", {"cpu", "why_no_cpu", "gpu", "why_no_gpu"}, false},
        {"speeds", {"read_gb_s", "threads", "sync_us", "attend_g_s", "types"}, false},
        {"gpu", {"name", "bytes", "read_gb_s", "compute", "driver"}, true},
        {"findings", {"level", "what", "fix"}, true},
        {"models", {"shape", "type", "parameters", "bytes", "memory_bytes", "fits", "prefill_tps", "decode_tps"}, true},
        {"choices", {"use", "shape", "type", "why", "pull"}, true},
    };
    (void)state;
    json_t *document = some_document();
    assert_kinds_are_checked(document, document, top);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        json_t *part = json_object_get(document, parts[i].where);
        assert_kinds_are_checked(document, parts[i].list ? json_array_get(part, 0) : part, parts[i].keys);
    }
    json_decref(document);
}

static void what_is_wanted_must_be_there(void **state)
{
    static const char *const wanted[] = {"format", "id", "spry", "when", "speeds", "cpu"};
    static spry_stored_profile stored;
    spry_error error;
    (void)state;
    json_t *document = some_document();
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        json_t *value = json_incref(json_object_get(document, wanted[i]));
        json_object_del(document, wanted[i]);
        assert_int_equal(parse(&stored, document, &error), SPRY_ERR_FORMAT);
        json_object_set_new(document, wanted[i], value);
        assert_int_equal(parse(&stored, document, &error), SPRY_OK);
    }
    json_decref(document);
}

static void hostile_documents_are_refused(void **state)
{
    static const char *const times[] = {"",
                                        "now",
                                        "2026-02-31T00:00:00Z",
                                        "2026-11-15 12:00:00",
                                        "2026-11-15T12:00:00Z ",
                                        "99999999999-01-01T00:00:00Z"};
    static spry_stored_profile stored;
    spry_error error;
    (void)state;
    json_t *document = some_document();
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        json_object_set_new(document, "when", json_string(times[i]));
        assert_int_equal(parse(&stored, document, &error), SPRY_ERR_FORMAT);
        assert_non_null(strstr(error.message, "when"));
    }
    json_object_set_new(document, "when", json_string("2026-11-15T12:00:00Z"));
    json_object_set_new(document, "id", json_string("a name that is longer than any"));
    assert_int_equal(parse(&stored, document, &error), SPRY_ERR_FORMAT);
    json_object_set_new(document, "id", json_stringn("a\0b", 3));
    assert_int_equal(parse(&stored, document, &error), SPRY_ERR_FORMAT);
    json_object_set_new(document, "id", json_string("0"));
    assert_int_equal(parse(&stored, document, &error), SPRY_OK);
    json_t *gpus = json_object_get(document, "gpu");
    while (json_array_size(gpus) <= SPRY_GPUS_MAX)
        json_array_append(gpus, json_array_get(gpus, 0));
    assert_int_equal(parse(&stored, document, &error), SPRY_ERR_FORMAT);
    json_object_set_new(document, "format", json_string("spry-machine-2"));
    assert_int_equal(parse(&stored, document, &error), SPRY_ERR_FORMAT);
    assert_non_null(strstr(error.message, "spry-machine-1"));
    json_decref(document);
}

static void truncated_documents_are_refused(void **state)
{
    static spry_stored_profile stored;
    spry_error error;
    spry_buffer text;
    (void)state;
    spry_buffer_init(&text, 1 << 20);
    assert_int_equal(spry_profile_json(&text, some_profile(), true, &error), SPRY_OK);
    for (size_t size = 0; size + 2 < text.size; size++) { /* the last two are its brace and a line break */
        assert_int_equal(spry_profile_parse(&stored, (spry_view){text.data, size}, &error), SPRY_ERR_FORMAT);
        assert_true(error.message[0]);
    }
    spry_buffer_deinit(&text);
}

/* ---- what is stored ---------------------------------------------------------------------------------------------- */

static void what_holds_is_used_again(void **state)
{
    enum { DAY = 86400 };
    static spry_stored_profile stored;
    spry_error error;
    (void)state;
    json_t *document = some_document();
    assert_int_equal(parse(&stored, document, &error), SPRY_OK);
    json_decref(document);
    spry_machine_profile *p = some_profile();
    int64_t now = stored.seconds;
    assert_null(spry_profile_stale(&stored, p, now));
    assert_null(spry_profile_stale(&stored, p, now + 29 * DAY));
    assert_string_equal(spry_profile_stale(&stored, p, now + 31 * DAY), "too old");
    assert_string_equal(spry_profile_stale(&stored, p, now - 2 * DAY), "from the future");
    stored.load = 2; /* of three processors, when it was measured */
    assert_string_equal(spry_profile_stale(&stored, p, now), "measured under load");
    p->hardware.load = 2;
    assert_null(spry_profile_stale(&stored, p, now)); /* no better now */
    stored.load = -1;
    p->gpus.count = 1;
    assert_string_equal(spry_profile_stale(&stored, p, now), "of another machine");
    p = some_profile();
    p->id[0] ^= 1;
    assert_string_equal(spry_profile_stale(&stored, p, now), "of another machine");
    p = some_profile();
    stored.spry[0] = 'x';
    assert_string_equal(spry_profile_stale(&stored, p, now), "of another version of spry");
    memset(&p->speed, 0, sizeof p->speed);
    p->gpus.list[0].read_gb_s = 0;
    spry_profile_adopt(p, &stored);
    assert_true(p->speed.read_gb_s == 40 && p->gpus.list[0].read_gb_s == 900);
}

static void files_are_written_and_read(void **state)
{
    static spry_stored_profile stored;
    char folder[] = "/tmp/spry-test-XXXXXX", path[64];
    bool found = true;
    spry_error error;
    spry_buffer text;
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/machine.json", folder);
    assert_int_equal(spry_profile_load(&stored, &found, path, &error), SPRY_OK);
    assert_false(found);
    spry_buffer_init(&text, 1 << 20);
    assert_int_equal(spry_profile_json(&text, some_profile(), true, &error), SPRY_OK);
    assert_int_equal(spry_file_write(path, spry_buffer_view(&text), &error), SPRY_OK);
    assert_int_equal(spry_profile_load(&stored, &found, path, &error), SPRY_OK);
    assert_true(found);
    assert_string_equal(stored.id, some_profile()->id);
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(spry_profile_load(&stored, &found, path, &error), SPRY_ERR_FORMAT);
    assert_non_null(strstr(error.message, path));
    assert_int_equal(truncate(path, (off_t)1 << 30), 0);
    assert_int_equal(spry_profile_load(&stored, &found, path, &error), SPRY_ERR_FORMAT);
    assert_int_equal(remove(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(spry_profile_load(&stored, &found, path, &error), SPRY_ERR_FILE);
    assert_int_equal(spry_file_write(path, spry_buffer_view(&text), &error), SPRY_ERR_FILE);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(folder), 0);
    spry_buffer_deinit(&text);
}

/* ---- settings ---------------------------------------------------------------------------------------------------- */

static const spry_chosen_setting *setting_of(const spry_chosen_settings *all, const char *command, const char *key)
{
    for (size_t i = 0; i < all->count; i++)
        if (strcmp(all->list[i].key, key) == 0 && (command != NULL) == (all->list[i].command != NULL))
            return &all->list[i];
    return NULL;
}

static void settings_follow_from_measurements(void **state)
{
    static spry_machine_profile p;
    static spry_chosen_settings chosen;
    spry_settings_evidence evidence = {.chunks = {64, 128, 256, 512}, .chunk_tps = {90, 100, 109, 105}};
    (void)state;
    p.speed.threads = 4;
    p.speed.types[SPRY_Q8_0] = (spry_type_speed){.multiply_g_s = 320, .decode_gb_s = 34};
    p.candidates[0] = (spry_candidate){.shape = "qwen3-1.7b", .type = "f16", .predicted = {.decode_tps = 10}};
    p.candidates[1] = (spry_candidate){.shape = "qwen3-1.7b", .type = "q8_0", .predicted = {.decode_tps = 12}};
    p.n_candidates = 2;
    spry_settings_choose(&chosen, &p, &evidence);
    assert_int_equal(setting_of(&chosen, NULL, "threads")->number, 4);
    assert_int_equal(setting_of(&chosen, NULL, "chunk")->number, 128); /* 256 is not a tenth faster */
    assert_string_equal(setting_of(&chosen, NULL, "kv_type")->value, "auto");
    assert_null(setting_of(&chosen, NULL, "quantize")); /* not 1.3 times as fast */
    assert_string_equal(setting_of(&chosen, NULL, "draft")->value, "auto");
    assert_int_equal(setting_of(&chosen, "serve", "parallel")->number, 8); /* 320 / 32 rows: 16 are slower */
    evidence.chunk_tps[2] = 120;
    p.candidates[1].predicted.decode_tps = 19;
    p.speed.types[SPRY_Q8_0].multiply_g_s = 40;
    spry_settings_choose(&chosen, &p, &evidence);
    assert_int_equal(setting_of(&chosen, NULL, "chunk")->number, 256);
    assert_non_null(strstr(setting_of(&chosen, NULL, "chunk")->why, "100 with 128, 120 with 256"));
    assert_string_equal(setting_of(&chosen, NULL, "quantize")->value, "auto");
    assert_string_equal(setting_of(&chosen, NULL, "draft")->value, "none");
    assert_int_equal(setting_of(&chosen, "serve", "parallel")->number, 2);
    assert_non_null(strstr(setting_of(&chosen, "serve", "parallel")->why, "the policy offline takes 1 together"));
}

/* ---- the page ---------------------------------------------------------------------------------------------------- */

static void the_page_keeps_to_its_width(void **state)
{
    spry_buffer text;
    (void)state;
    spry_buffer_init(&text, 1 << 20);
    const spry_doctor_page page = {.out = &text, .width = SPRY_DOCTOR_WIDTH, .models = true, .stored = "/some/where"};
    spry_machine_profile *p = some_profile();
    snprintf(p->gpus.list[1].why, SPRY_GPU_TEXT, "a driver\x1b[31m that writes to the terminal");
    spry_doctor_print(&page, p);
    assert_false(text.failed);
    for (const char *line = text.data; *line; line += strcspn(line, "\n") + 1)
        assert_in_range(strcspn(line, "\n"), 0, SPRY_DOCTOR_WIDTH);
    assert_null(strchr(text.data, '\x1b'));
    assert_non_null(strstr(text.data, "Example Server CPU 8000"));
    assert_non_null(strstr(text.data, "105M shared by 4"));
    assert_non_null(strstr(text.data, "reads 900 GB/s"));
    assert_non_null(strstr(text.data, "stored in /some/where"));
    spry_buffer_deinit(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_machine_has_no_findings),
        cmocka_unit_test(what_is_unknown_is_no_finding),
        cmocka_unit_test(a_machine_is_compared_with_its_family),
        cmocka_unit_test(a_damaged_list_of_families_is_refused),
        cmocka_unit_test(a_laptop_has_many),
        cmocka_unit_test(a_part_of_a_server_has_others),
        cmocka_unit_test(each_of_the_rest_is_found),
        cmocka_unit_test(speeds_of_a_gpu_are_predicted),
        cmocka_unit_test(a_document_is_read_back),
        cmocka_unit_test(lists_of_models_are_left_out_where_not_wanted),
        cmocka_unit_test(every_kind_is_checked),
        cmocka_unit_test(what_is_wanted_must_be_there),
        cmocka_unit_test(hostile_documents_are_refused),
        cmocka_unit_test(truncated_documents_are_refused),
        cmocka_unit_test(what_holds_is_used_again),
        cmocka_unit_test(files_are_written_and_read),
        cmocka_unit_test(settings_follow_from_measurements),
        cmocka_unit_test(the_page_keeps_to_its_width),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
