/* The energy meter by perf and by NVML, both imitated: what is asked of them, what they may answer, and how they end.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "support/energy_scene.h"

/* ---- perf -------------------------------------------------------------------------------------------------------- */

static const char power_unit[] = "sys/bus/event_source/devices/power";

static void perf_is_the_second_choice(void **state)
{
    (void)state;
    energy_scene scene;
    scene_init(&scene, "sysfs-intel");
    scene_put(&scene, zone_file("intel-rapl:1", "energy_uj"), "?\n");
    perf_counters.failure = 0;
    scene_open(&scene);
    for (size_t i = 0; i < 4; i++)
        perf_say(i, 1);
    assert_cpu_text(&scene, "RAPL by perf: package-0, package-1, package-0 dram, package-1 dram");
    assert_int_equal(perf_counters.opened, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(perf_counters.type[i], 23);
        assert_int_equal(perf_counters.config[i], i < 2 ? 2 : 3);
        assert_int_equal(perf_counters.cpu[i], i % 2 ? 24 : 0);
    }
    scene_deinit(&scene);
}

static void perf_counts_in_its_own_unit(void **state)
{
    (void)state;
    energy_scene scene;
    scene_init(&scene, "sysfs-amd");
    zone_remove(&scene, "intel-rapl:0");
    perf_counters.failure = 0;
    scene_open(&scene);
    scene_wait(0.5);
    perf_say(0, (uint64_t)100 << 32); /* the scale is 2 to the power of -32 */
    assert_joules(scene_cpu(&scene), 100);
    scene_wait(0.5);
    perf_say(0, ((uint64_t)100 << 32) + (1u << 31));
    assert_joules(scene_cpu(&scene), 100.5);
    scene_wait(0.5);
    perf_say(0, (uint64_t)100 << 32);
    scene_no_cpu(&scene, "went back");
    scene_deinit(&scene);
}

static void perf_that_ends_is_noticed(void **state)
{
    (void)state;
    energy_scene scene;
    scene_init(&scene, "sysfs-amd");
    zone_remove(&scene, "intel-rapl:0");
    perf_counters.failure = 0;
    scene_open(&scene);
    scene_wait(1);
    scene_no_cpu(&scene, "perf's energy counter can no longer be read");
    scene_deinit(&scene);
}

static void what_sys_says_of_perf_is_not_trusted(void **state)
{
    (void)state;
    static const struct {
        const char *file, *text, *words;
    } cases[] = {
        {"type", "power\n", "/type: power is not"},
        {"type", "4294967296\n", "/type: 4294967296 is not"},
        {"type", "23", "/type: cannot be read"},
        {"cpumask", "\n", "/cpumask:  is not"},
        {"cpumask", "0,\n", "/cpumask"},
        {"cpumask", "0-\n", "/cpumask"},
        {"cpumask", "3-1\n", "/cpumask"},
        {"cpumask", "0;24\n", "/cpumask"},
        {"cpumask", "99999999\n", "/cpumask"},
        {"cpumask", "0-1000000\n", "more than 64 energy counters"},
        {"events/energy-pkg", "event=2\n", "/events/energy-pkg: event=2 is not"},
        {"events/energy-pkg", "event=0x\n", "/events/energy-pkg"},
        {"events/energy-pkg", "event=0x102\n", "/events/energy-pkg"},
        {"events/energy-pkg", "event=0x02,umask=0x01\n", "/events/energy-pkg"},
        {"events/energy-pkg.unit", "Calories\n", "Calories is not"},
        {"events/energy-pkg.scale", "0\n", "/events/energy-pkg: 0 is not"},
        {"events/energy-pkg.scale", "-1\n", "-1 is not"},
        {"events/energy-pkg.scale", "nan\n", "nan is not"},
        {"events/energy-pkg.scale", "2,5e-10\n", "2,5e-10 is not"},
    };
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        energy_scene scene;
        char name[256];
        scene_init(&scene, "sysfs-amd");
        zone_remove(&scene, "intel-rapl:0");
        perf_counters.failure = 0;
        snprintf(name, sizeof name, "%s/%s", power_unit, cases[i].file);
        scene_put(&scene, name, cases[i].text);
        scene_open(&scene);
        scene_no_cpu(&scene, cases[i].words);
        assert_int_equal(perf_counters.opened, 0);
        scene_deinit(&scene);
    }
}

static void dies_that_perf_cannot_tell_apart_are_refused(void **state)
{
    (void)state;
    energy_scene scene;
    scene_init(&scene, "sysfs-intel");
    zone_remove(&scene, "intel-rapl:0");
    zone_remove(&scene, "intel-rapl:1");
    zone_remove(&scene, "intel-rapl-mmio:0");
    zone_remove(&scene, "intel-rapl-mmio:1");
    scene_put(&scene, "sys/devices/system/cpu/cpu24/topology/physical_package_id", "0\n");
    perf_counters.failure = 0;
    scene_open(&scene);
    scene_no_cpu(&scene, "several energy counters for package 0");
    scene_deinit(&scene);
}

/* ---- NVML -------------------------------------------------------------------------------------------------------- */

static void gpus_are_added_up(void **state)
{
    (void)state;
    energy_scene scene;
    spry_energy_facts facts;
    scene_init(&scene, "sysfs-amd");
    /* One that counts, one that another container has, one that only knows its power. */
    gpus = (scene_nvml){.count = 3,
                        .gpus = {{.millijoules = 987654321},
                                 {.handle_result = 4},
                                 {.energy_result = SPRY_NVML_NOT_SUPPORTED, .milliwatts = 100000}}};
    scene_open(&scene);
    spry_energy_describe(scene.meter, &facts);
    assert_true(facts.has_gpu);
    assert_string_equal(facts.gpu, "NVML: GPU 0 Made-up?[1m 1000, GPU 2 Made-up?[1m 1000 (power, added up)");
    scene_wait(0.1);
    gpus.gpus[0].millijoules += 70000;
    gpus.gpus[2].milliwatts = 200000;
    assert_joules(scene_gpu_joules(&scene), 70 + 15);
    scene_wait(0.5);
    gpus.gpus[0].millijoules += 1;
    gpus.gpus[2].milliwatts = 100000;
    assert_joules(scene_gpu_joules(&scene), 70.001 + 15 + 75);
    gpus.gpus[2].power_result = SCENE_NVML_LOST;
    scene_no_gpu(&scene, "GPU is lost");
    scene_deinit(&scene);
}

static void a_gpu_counter_that_goes_back_ends_it(void **state)
{
    (void)state;
    energy_scene scene;
    scene_init(&scene, "sysfs-amd");
    gpus = (scene_nvml){.count = 1, .gpus = {{.millijoules = 5000}}};
    scene_open(&scene);
    scene_wait(1);
    zone_use(&scene, "intel-rapl:0", 1);
    gpus.gpus[0].millijoules = 4999;
    scene_no_gpu(&scene, "went back from 5000 to 4999");
    assert_joules(scene_cpu(&scene), 1); /* the processor's goes on */
    scene_deinit(&scene);
}

static void gpus_that_cannot_be_read_say_why(void **state)
{
    (void)state;
    static const struct {
        scene_nvml gpus;
        const char *words;
    } cases[] = {
        {{.missing = true}, "there is no library"},
        {{.init_result = 9}, "it does not start: an error without a name"},
        {{.count_result = SCENE_NVML_LOST}, "cannot be counted: GPU is lost"},
        {{.count = 0}, "there is no GPU"},
        {{.count = 1, .gpus = {{.handle_result = SCENE_NVML_LOST}}}, "GPU 0 has no energy to read: GPU is lost"},
        {{.count = 1, .gpus = {{.handle_result = SPRY_NVML_NOT_SUPPORTED}}}, "GPU 0 has no energy to read"},
        {{.count = 1, .gpus = {{.energy_result = SPRY_NVML_NOT_SUPPORTED, .power_result = SPRY_NVML_NOT_SUPPORTED}}},
         "GPU 0 has no energy to read: Not Supported"},
    };
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        energy_scene scene;
        scene_init(&scene, "sysfs-amd");
        gpus = cases[i].gpus;
        scene_open(&scene);
        scene_no_gpu(&scene, cases[i].words);
        assert_int_equal(gpus.running, 0);
        scene_deinit(&scene);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(perf_is_the_second_choice),
        cmocka_unit_test(perf_counts_in_its_own_unit),
        cmocka_unit_test(perf_that_ends_is_noticed),
        cmocka_unit_test(what_sys_says_of_perf_is_not_trusted),
        cmocka_unit_test(dies_that_perf_cannot_tell_apart_are_refused),
        cmocka_unit_test(gpus_are_added_up),
        cmocka_unit_test(a_gpu_counter_that_goes_back_ends_it),
        cmocka_unit_test(gpus_that_cannot_be_read_say_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
