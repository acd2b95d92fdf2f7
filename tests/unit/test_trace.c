/* Traces: files that are whole JSON whatever happens, parts that add up to requests, ops that add up to steps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <pthread.h>

#include "base/compiler.h"
#include "platform/clock.h"
#include "platform/trace.h"
#include "support/job_clients.h"
#include "support/scratch.h"

static scratch files;

static int set_up(void **state)
{
    (void)state;
    scratch_init(&files);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    scratch_deinit(&files);
    return 0;
}

static spry_trace *open_trace(const char *path, bool ops)
{
    spry_trace *trace;
    spry_error error = {0};
    if (spry_trace_open(&trace, path, ops, &error))
        fail_msg("%s", error.message);
    return trace;
}

static size_t n_counters; /* of the last trace that was read */

/* All events but counters of the machine's state, of which there may be any number. */
static json_t *events_of(const char *path)
{
    json_error_t error;
    json_t *all = json_load_file(path, 0, &error), *events = json_array(), *event;
    size_t i;
    if (!all)
        fail_msg("%s, line %d: %s", path, error.line, error.text);
    assert_true(json_is_array(all));
    n_counters = 0;
    json_array_foreach(all, i, event)
    {
        const char *phase = json_string_value(json_object_get(event, "ph"));
        if (strcmp(phase, "C") != 0) {
            json_array_append(events, event);
            continue;
        }
        n_counters++;
        assert_true(json_is_number(json_object_get(json_object_get(event, "args"), "value")));
        assert_true(json_is_number(json_object_get(event, "ts")));
    }
    json_decref(all);
    return events;
}

static const char *word(const json_t *event, const char *key)
{
    const char *text = json_string_value(json_object_get(event, key));
    return text ? text : "";
}

static double number(const json_t *event, const char *key)
{
    return json_number_value(json_object_get(event, key));
}

/* Duration of all spans of a category that lie inside `outer`, in its lane; their number. */
static double inside(const json_t *events, const json_t *outer, const char *category, size_t *count)
{
    size_t i;
    json_t *event;
    double sum = 0, begin = number(outer, "ts"), end = begin + number(outer, "dur");
    *count = 0;
    json_array_foreach(events, i, event)
    {
        double at = number(event, "ts");
        if (strcmp(word(event, "cat"), category) != 0 || number(event, "tid") != number(outer, "tid") ||
            at < begin - 0.002 || at + number(event, "dur") > end + 0.002)
            continue;
        sum += number(event, "dur");
        (*count)++;
    }
    return sum;
}

/* Everything of `category` lies in something of `outer`, without a gap of more than a fiftieth. Returns how many outer
 * ones there are. */
static size_t assert_adds_up(const json_t *events, const char *outer, const char *category)
{
    size_t i, n, found = 0, all = 0, within = 0;
    json_t *event;
    json_array_foreach(events, i, event)
    {
        all += strcmp(word(event, "cat"), category) == 0;
        if (strcmp(word(event, "cat"), outer) != 0)
            continue;
        double sum = inside(events, event, category, &n), whole = number(event, "dur");
        if (fabs(sum - whole) > 0.02 * whole)
            fail_msg("%s of %.3f us has %zu spans of %.3f us", outer, whole, n, sum);
        within += n;
        found++;
    }
    assert_int_equal(within, all);
    return found;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static void spans_are_written(void **state)
{
    (void)state;
    const char *path = scratch_path(&files, "plain.json");
    spry_trace *trace = open_trace(path, false);
    uint32_t lane = spry_trace_lane(trace, "a \"quoted\" \\ name\n");
    uint64_t now = spry_clock_ns();
    const spry_trace_span plain = {.name = "one",
                                   .category = "test",
                                   .lane = lane,
                                   .begin_ns = now,
                                   .end_ns = now + 1500},
                          full = {.name = "two",
                                  .category = "test",
                                  .lane = lane,
                                  .begin_ns = now,
                                  .end_ns = now,
                                  .args = {{"rows", 7}, {"big", INT64_MAX}},
                                  .kernel = "avx2",
                                  .type = "q4_0"};
    spry_trace_add(trace, &plain);
    spry_trace_add(trace, &full);
    assert_false(spry_trace_wants_ops(trace));
    assert_int_equal(spry_trace_close(trace, NULL), SPRY_OK);
    json_t *events = events_of(path);
    assert_true(n_counters > 0); /* at least the memory of this process */
    assert_int_equal(json_array_size(events), 5);
    const json_t *named = json_array_get(events, 1), *one = json_array_get(events, 3), *two = json_array_get(events, 4);
    assert_string_equal(word(json_object_get(named, "args"), "name"), "a ?quoted? ? name?");
    assert_string_equal(word(one, "name"), "one");
    assert_true(fabs(number(one, "dur") - 1.5) < 1e-9);
    assert_null(json_object_get(one, "args"));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(two, "args"), "rows")), 7);
    assert_true(json_integer_value(json_object_get(json_object_get(two, "args"), "big")) == INT64_MAX);
    assert_string_equal(word(json_object_get(two, "args"), "kernel"), "avx2 q4_0");
    json_decref(events);
}

static void no_trace_takes_everything(void **state)
{
    (void)state;
    const spry_trace_span span = {.name = "one", .category = "test"};
    spry_trace_add(NULL, &span);
    assert_int_equal(spry_trace_lane(NULL, "x"), 0);
    assert_int_equal(spry_trace_take_lane(NULL, 0), 0);
    spry_trace_leave_lane(NULL, 0, 0);
    assert_false(spry_trace_wants_ops(NULL));
    assert_int_equal(spry_trace_close(NULL, NULL), SPRY_OK);
}

static void lanes_are_used_again(void **state)
{
    (void)state;
    spry_trace *trace = open_trace(scratch_path(&files, "lanes.json"), false);
    uint32_t a = spry_trace_take_lane(trace, 10), b = spry_trace_take_lane(trace, 10);
    assert_true(a && b && a != b);
    spry_trace_leave_lane(trace, a, 20);
    uint32_t began_before_its_end = spry_trace_take_lane(trace, 19);
    assert_true(began_before_its_end > b);
    assert_int_equal(spry_trace_take_lane(trace, 20), a);
    assert_true(spry_trace_take_lane(trace, 20) > began_before_its_end);
    uint32_t steps = spry_trace_lane(trace, "steps of x");
    assert_true(spry_trace_lane(trace, "steps of y") != steps);
    assert_int_equal(spry_trace_lane(trace, "steps of x"), steps);
    assert_int_equal(spry_trace_close(trace, NULL), SPRY_OK);
}

static void a_file_that_cannot_be_made_is_refused(void **state)
{
    (void)state;
    spry_trace *trace;
    spry_error error = {0};
    assert_int_equal(spry_trace_open(&trace, scratch_path(&files, "no/such/folder.json"), false, &error),
                     SPRY_ERR_FILE);
    assert_non_null(strstr(error.message, "folder.json"));
    assert_null(trace);
}

/* A model named by mistake stays what it is, and so does a trace that is being written. */
static void other_files_are_left_alone(void **state)
{
    (void)state;
    spry_trace *trace, *second;
    spry_error error = {0};
    const char *path = scratch_write(&files, "model.gguf", "GGUF and more", 13);
    assert_int_equal(spry_trace_open(&trace, path, false, &error), SPRY_ERR_FILE);
    assert_non_null(strstr(error.message, "is no trace"));
    struct stat facts;
    assert_int_equal(stat(path, &facts), 0);
    assert_int_equal(facts.st_size, 13);
    path = scratch_path(&files, "twice.json");
    trace = open_trace(path, false);
    assert_int_equal(spry_trace_open(&second, path, false, &error), SPRY_ERR_BUSY);
    assert_int_equal(spry_trace_close(trace, NULL), SPRY_OK);
    trace = open_trace(path, false); /* an old one is replaced */
    assert_int_equal(spry_trace_close(trace, NULL), SPRY_OK);
    json_t *events = events_of(path);
    assert_int_equal(json_array_size(events), 1);
    json_decref(events);
}

/* The disk is full at once, or after a while: what is there can be read. */
static void a_full_disk_is_said(void **state)
{
    (void)state;
    spry_error error = {0};
    const spry_trace_span span = {.name = "one", .category = "test", .lane = 1};
    spry_trace *trace = open_trace("/dev/full", false);
    spry_trace_add(trace, &span);
    while (!spry_trace_failed(trace))
        sched_yield();
    assert_int_equal(spry_trace_close(trace, &error), SPRY_ERR_FILE);
    assert_non_null(strstr(error.message, "No space left"));

    const char *path = scratch_path(&files, "limited.json");
    struct rlimit before, limit;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = (struct rlimit){300000, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    trace = open_trace(path, false);
    for (int i = 0; i < 20000; i++)
        spry_trace_add(trace, &span);
    spry_status status = spry_trace_close(trace, &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(status, SPRY_ERR_FILE);
    assert_non_null(strstr(error.message, "can be opened"));
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, 400000);
    assert_non_null(file);
    assert_non_null(text);
    size_t size = fread(text, 1, 300001, file);
    fclose(file);
    assert_true(size > 1000 && size <= 300000 && text[size - 1] == '}');
    memcpy(text + size, "]", 2);
    json_t *events = json_loads(text, 0, NULL);
    assert_true(json_array_size(events) > 100);
    json_decref(events);
    free(text);
}

static void *add_many(void *context)
{
    const spry_trace_span span = {.name = "one", .category = "test", .lane = 1};
    for (int i = 0; i < 5000; i++)
        spry_trace_add(context, &span);
    return NULL;
}

/* Nothing gets lost between threads: what is not in the file is counted. */
static void threads_add_at_once(void **state)
{
    (void)state;
    const char *path = scratch_path(&files, "threads.json");
    spry_trace *trace = open_trace(path, false);
    pthread_t threads[4];
    spry_error error = {0};
    for (size_t i = 0; i < SPRY_COUNT(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, add_many, trace), 0);
    for (size_t i = 0; i < SPRY_COUNT(threads); i++)
        pthread_join(threads[i], NULL);
    spry_status status = spry_trace_close(trace, &error);
    json_t *events = events_of(path);
    size_t there = json_array_size(events) - 1;
    assert_true(status ? there < 20000 && strstr(error.message, "left out") : there == 20000);
    json_decref(events);
}

/* ---- laps -------------------------------------------------------------------------------------------------------- */

static void laps_leave_no_gap(void **state)
{
    (void)state;
    spry_laps laps;
    double ms[SPRY_PART_COUNT], sum = 0;
    spry_laps_begin(&laps, NULL, 0, 1000);
    spry_lap_until(&laps, SPRY_PART_QUEUE, 5000);
    spry_lap_until(&laps, SPRY_PART_PREFILL, 4000); /* not later: nothing */
    spry_lap_until(&laps, SPRY_PART_PREFILL, 8000);
    spry_lap_until(&laps, SPRY_PART_QUEUE, 9000);
    assert_int_equal(laps.ns[SPRY_PART_QUEUE], 5000);
    assert_int_equal(laps.ns[SPRY_PART_PREFILL], 3000);
    spry_lap(&laps, SPRY_PART_DECODE);
    spry_laps_ms(&laps, ms);
    for (size_t i = 0; i < SPRY_PART_COUNT; i++) {
        sum += ms[i];
        assert_string_not_equal(spry_part_name((spry_part)i), "unknown");
    }
    assert_true(fabs(sum - (double)(laps.last_ns - laps.began_ns) / 1e6) < 1e-6 * sum);
}

/* ---- through the engine ------------------------------------------------------------------------------------------ */

static double sum_of(const double ms[SPRY_PART_COUNT])
{
    double sum = 0;
    for (size_t i = 0; i < SPRY_PART_COUNT; i++)
        sum += ms[i];
    return sum;
}

static spry_engine *traced_engine(const char *model, spry_trace *trace, uint32_t sessions)
{
    spry_engine_options options;
    spry_engine_options_default(&options);
    options.threads = 1;
    options.chunk = 16;
    options.sessions = sessions;
    options.trace = trace;
    return fixture_open(model, &options);
}

static bool has_span(const json_t *events, const char *category, const char *name)
{
    size_t i;
    json_t *event;
    json_array_foreach(events, i, event) if (strcmp(word(event, "cat"), category) == 0 &&
                                             strcmp(word(event, "name"), name) == 0) return true;
    return false;
}

/* Also with experts, whose ops are other ones, and with a grammar. */
static void parts_and_ops_add_up(void **state)
{
    (void)state;
    static const char *const models[] = {"llama", "qwen2-moe", "gemma2"};
    for (size_t m = 0; m < SPRY_COUNT(models); m++) {
        const char *path = scratch_path(&files, "run.json");
        spry_trace *trace = open_trace(path, true);
        spry_engine *engine = traced_engine(models[m], trace, 1);
        spry_session *session = fixture_session(engine);
        int32_t ids[100];
        fixture_ids(ids, SPRY_COUNT(ids), 3);
        spry_request request;
        spry_result result;
        spry_error error = {0};
        spry_request_default(&request);
        request.prompt = ids;
        request.n_prompt = SPRY_COUNT(ids);
        request.max_tokens = 12;
        request.ignore_end = true;
        request.constraint = m == 0 ? SPRY_JSON_OBJECT : SPRY_ANY_TEXT;
        uint64_t start = spry_clock_ns();
        if (spry_session_generate(session, &result, &request, &error))
            fail_msg("%s", error.message);
        double whole = (double)(spry_clock_ns() - start) / 1e6;
        double sum = sum_of(result.parts_ms), first = sum_of(result.first_parts_ms);
        assert_true(sum <= whole && sum >= result.total_ms);
        assert_true(first <= sum && first >= result.prefill_ms);
        assert_true(result.parts_ms[SPRY_PART_PREFILL] > 0 && result.parts_ms[SPRY_PART_DECODE] > 0);
        assert_true(m || result.parts_ms[SPRY_PART_GRAMMAR] > 0);
        spry_session_destroy(session);
        spry_engine_close(engine);
        assert_int_equal(spry_trace_close(trace, NULL), SPRY_OK);
        json_t *events = events_of(path);
        assert_int_equal(assert_adds_up(events, "answer", "part"), 1);
        assert_true(assert_adds_up(events, "step", "op") >= 100 / 16 + 2);
        assert_true(has_span(events, "part", "sampling") && has_span(events, "op", "attend"));
        assert_true(has_span(events, "op", "route") == (m == 1));
        json_decref(events);
    }
}

/* Several at once: what each waited for others is a part like any. */
static void parts_add_up_in_company(void **state)
{
    (void)state;
    enum { CLIENTS = 5 };
    client *clients = clients_new(CLIENTS);
    const char *path = scratch_path(&files, "company.json");
    spry_trace *trace = open_trace(path, false);
    spry_engine *engine = traced_engine("llama", trace, 3);
    spry_jobs_options options = plain_options(3);
    spry_engine *scheduler = start(engine, &options);
    for (size_t i = 0; i < CLIENTS; i++) {
        ask(&clients[i], 40 + 20 * i, (uint32_t)i + 1, 20);
        submit(scheduler, &clients[i]);
    }
    wait_for(CLIENTS);
    stop(scheduler);
    for (size_t i = 0; i < CLIENTS; i++) {
        const spry_result *r = &clients[i].job.result;
        assert_int_equal(clients[i].job.status, SPRY_OK);
        assert_true(sum_of(r->parts_ms) >= r->total_ms);
        assert_true(i < 3 || r->parts_ms[SPRY_PART_QUEUE] > 0);
    }
    spry_engine_close(engine);
    assert_int_equal(spry_trace_close(trace, NULL), SPRY_OK);
    json_t *events = events_of(path);
    assert_int_equal(assert_adds_up(events, "answer", "part"), CLIENTS);
    assert_true(has_span(events, "part", "others") && !has_span(events, "op", "attend"));
    json_decref(events);
    free(clients);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_are_written),    cmocka_unit_test(no_trace_takes_everything),
        cmocka_unit_test(lanes_are_used_again), cmocka_unit_test(a_file_that_cannot_be_made_is_refused),
        cmocka_unit_test(a_full_disk_is_said),  cmocka_unit_test(other_files_are_left_alone),
        cmocka_unit_test(threads_add_at_once),  cmocka_unit_test(laps_leave_no_gap),
        cmocka_unit_test(parts_and_ops_add_up), cmocka_unit_test(parts_add_up_in_company),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
