/* The machine's state from recorded trees of /proc and /sys: whole, partial, absent and absurd; what is said to hold it
 * back; servers that run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "doctor/findings.h"
#include "platform/gpu.h"

#define assert_near(value, expected) assert_true(fabs((value) - (expected)) < 1e-6)

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static size_t known_fields(const spry_machine_state *s)
{
    size_t known = 0;
    for (size_t i = 0; i < SPRY_MACHINE_FIELDS; i++)
        known += isnan(spry_machine_field_value(s, &spry_machine_fields[i])) ? 0 : 1;
    return known;
}

static void a_laptop_reports_all(void **state)
{
    spry_machine_state s;
    (void)state;
    spry_machine_state_read(&s, TEST_DATA "/state-laptop");
    assert_int_equal(known_fields(&s), SPRY_MACHINE_FIELDS - 2); /* all but a GPU and a level of heat */
    assert_true(isnan(s.gpu_busy));
    assert_near(s.temperature_c, 73.5); /* the processor's hottest; not the board's 99, not the zone's 95 */
    assert_near(s.frequency_mhz, 1300);
    assert_near(s.highest_mhz, 4200);
    assert_near(s.throttles, 10 + 12 + 10 + 12 + 50); /* the package once */
    assert_near(s.quota_ms, 20);
    assert_near(s.battery_percent, 34); /* not the mouse's */
    assert_near(s.on_battery, 1);
    assert_near(s.memory_pressure, 12.5);
    assert_near(s.memory_full, 3);
    assert_near(s.cpu_pressure, 31.07);
    assert_near(s.disk_pressure, 0.25);
    assert_near(s.load, 3.1);
    assert_near(s.processors, 4);
    assert_near(s.resident_bytes, 2048000.0 * 1024);
}

static void a_board_has_zones_and_older_groups(void **state)
{
    spry_machine_state s;
    (void)state;
    spry_machine_state_read(&s, TEST_DATA "/state-board");
    assert_near(s.temperature_c, 61.5);
    assert_near(s.frequency_mhz, 1800); /* of the only processor that reports one */
    assert_near(s.quota_ms, 3);
    assert_true(isnan(s.highest_mhz) && isnan(s.throttles) && isnan(s.battery_percent) && isnan(s.on_battery));
    assert_int_equal(known_fields(&s), 4); /* and the processors */
}

static void nothing_there_and_nonsense_are_unknown(void **state)
{
    static char root[1 << 14];
    spry_machine_state s;
    (void)state;
    spry_machine_state_read(&s, TEST_DATA "/no such folder");
    assert_int_equal(known_fields(&s), 0);
    spry_machine_state_read(&s, TEST_DATA "/state-odd");
    for (size_t i = 0; i < SPRY_MACHINE_FIELDS; i++) {
        double value = spry_machine_field_value(&s, &spry_machine_fields[i]);
        bool is_cpu_pressure = spry_machine_fields[i].offset == offsetof(spry_machine_state, cpu_pressure);
        if (!isnan(value) && !is_cpu_pressure)
            fail_msg("%s is %g", spry_machine_fields[i].name, value);
    }
    assert_near(s.cpu_pressure, 1); /* before a zero byte */
    memset(root, 'r', sizeof root - 1);
    spry_machine_state_read(&s, root);
    assert_int_equal(known_fields(&s), 0);
}

/* ---- GPUs -------------------------------------------------------------------------------------------------------- */

static unsigned gpu_uses[3], n_gpus;
static int gpus_fail; /* 1: counting, 2: the handle of the second, 3: its use */

static int count_gpus(unsigned *count)
{
    *count = n_gpus;
    return gpus_fail == 1;
}

static int find_gpu(unsigned index, void **device)
{
    *device = &gpu_uses[index];
    return gpus_fail == 2 && index == 1;
}

static int use_of_gpu(void *device, unsigned percent[2])
{
    percent[0] = *(unsigned *)device;
    percent[1] = 7;
    return gpus_fail == 3 && device == &gpu_uses[1];
}

static void the_busiest_gpu_counts(void **state)
{
    const spry_gpu_use_api api = {count_gpus, find_gpu, use_of_gpu};
    (void)state;
    n_gpus = 0;
    assert_true(isnan(spry_gpu_busy_of(&api)));
    n_gpus = 3;
    memcpy(gpu_uses, (unsigned[]){30, 80, 101}, sizeof gpu_uses); /* the last is not plausible */
    assert_near(spry_gpu_busy_of(&api), 80);
    gpus_fail = 1;
    assert_true(isnan(spry_gpu_busy_of(&api)));
    for (gpus_fail = 2; gpus_fail <= 3; gpus_fail++)
        assert_near(spry_gpu_busy_of(&api), 30);
    gpus_fail = 0;
    memset(gpu_uses, 0, sizeof gpu_uses);
    assert_near(spry_gpu_busy_of(&api), 0);
}

static void this_machine_is_plausible(void **state)
{
    spry_machine_state s;
    (void)state;
    spry_machine_state_read(&s, "");
    assert_false(s.temperature_c > 150 || s.frequency_mhz > 1e5 || s.battery_percent > 100 || s.cpu_pressure > 100);
    assert_false(s.resident_bytes <= 0);
}

/* ---- what holds it back ------------------------------------------------------------------------------------------ */

static void assert_slowdowns(const spry_machine_state *before, const spry_machine_state *now, const char *const *words,
                             size_t count)
{
    spry_slowdown slowdowns[SPRY_SLOWDOWNS_MAX];
    assert_int_equal(spry_slowdowns_make(slowdowns, before, now), count);
    for (size_t i = 0; i < count; i++) {
        if (!strstr(slowdowns[i].what, words[i]))
            fail_msg("\"%s\" is not in \"%s\"", words[i], slowdowns[i].what);
        assert_true(strlen(slowdowns[i].fix) > 10);
    }
}

static void a_laptop_is_held_back(void **state)
{
    static const char *const first[] = {"busy, but run at 1.3 of 4.2 GHz", "battery (34 % charged)",
                                        "In 12 % of the last 10 s programs waited for memory",
                                        "In 31 % of the last 10 s programs waited for a processor"};
    static const char *const then[] = {"reduced its speed 4 times", "93 degrees", "1.3 of 4.2", "for 75 ms"};
    spry_machine_state before, now;
    (void)state;
    spry_machine_state_read(&before, TEST_DATA "/state-laptop");
    spry_machine_state_read(&now, TEST_DATA "/state-laptop-later");
    assert_slowdowns(&before, &before, first, SPRY_COUNT(first));
    assert_slowdowns(&before, &now, then, SPRY_COUNT(then));
    now.load = 1; /* idle processors are slow on purpose */
    now.throttles = before.throttles;
    now.temperature_c = 60;
    now.quota_ms = before.quota_ms;
    assert_slowdowns(&before, &now, NULL, 0);
    now.throttles = before.throttles - 1; /* a processor left */
    assert_slowdowns(&before, &now, NULL, 0);
}

static void unknown_values_hold_nothing_back(void **state)
{
    spry_machine_state none, odd;
    (void)state;
    spry_machine_state_read(&none, TEST_DATA "/no such folder");
    spry_machine_state_read(&odd, TEST_DATA "/state-odd");
    assert_slowdowns(&none, &none, NULL, 0);
    assert_slowdowns(&none, &odd, NULL, 0);
    none.on_battery = 1; /* of unknown charge */
    static const char *const battery[] = {"runs on its battery:"};
    assert_slowdowns(&none, &none, battery, 1);
}

static void the_document_has_every_field(void **state)
{
    spry_machine_state none, laptop;
    (void)state;
    spry_machine_state_read(&none, TEST_DATA "/no such folder");
    spry_machine_state_read(&laptop, TEST_DATA "/state-laptop");
    json_t *out = spry_machine_state_json(&none, &none);
    for (size_t i = 0; i < SPRY_MACHINE_FIELDS; i++)
        assert_true(json_is_null(json_object_get(out, spry_machine_fields[i].name)));
    assert_int_equal(json_array_size(json_object_get(out, "slowed_by")), 0);
    json_decref(out);
    out = spry_machine_state_json(&laptop, &laptop);
    assert_near(json_number_value(json_object_get(out, "temperature_celsius")), 73.5);
    assert_int_equal(json_array_size(json_object_get(out, "slowed_by")), 4);
    json_decref(out);
}

/* ---- servers ----------------------------------------------------------------------------------------------------- */

static int by_process(const void *a, const void *b)
{
    const spry_running_server *one = a, *two = b;
    return (one->process > two->process) - (one->process < two->process);
}

static void servers_are_found(void **state)
{
    spry_running_server servers[SPRY_RUNNING_SERVERS_MAX];
    (void)state;
    assert_int_equal(spry_running_servers_find(servers, TEST_DATA "/state-laptop"), 2);
    qsort(servers, 2, sizeof *servers, by_process);
    assert_int_equal(servers[0].process, 812);
    assert_int_equal(servers[0].resident_bytes, (size_t)512000 * 1024);
    assert_int_equal(servers[1].process, 816);
    assert_int_equal(servers[1].resident_bytes, 0);
    assert_int_equal(spry_running_servers_find(servers, TEST_DATA "/state-odd"), 0);
    assert_int_equal(spry_running_servers_find(servers, TEST_DATA "/no such folder"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_laptop_reports_all),
        cmocka_unit_test(a_board_has_zones_and_older_groups),
        cmocka_unit_test(nothing_there_and_nonsense_are_unknown),
        cmocka_unit_test(this_machine_is_plausible),
        cmocka_unit_test(the_busiest_gpu_counts),
        cmocka_unit_test(a_laptop_is_held_back),
        cmocka_unit_test(unknown_values_hold_nothing_back),
        cmocka_unit_test(the_document_has_every_field),
        cmocka_unit_test(servers_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
