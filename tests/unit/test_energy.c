/* The energy meter on imitated systems: what is counted and what is not, wraps, counters that misbehave, shares. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "base/compiler.h"
#include "platform/clock.h"
#include "platform/energy.h"
#include "support/energy_scene.h"

static const uint64_t intel_range = 262143328850;

/* ---- powercap: what is counted ----------------------------------------------------------------------------------- */

static void packages_and_memory_are_counted_once(void **state)
{
    (void)state;
    energy_scene scene;
    scene_init(&scene, "sysfs-intel");
    scene_open(&scene);
    assert_cpu_text(&scene, "RAPL by powercap: package-0, package-0 dram, package-1, package-1 dram");
    scene_wait(1);
    zone_use(&scene, "intel-rapl:0", 100);
    zone_use(&scene, "intel-rapl:0:0", 60);
    zone_use(&scene, "intel-rapl:0:1", 5);
    zone_use(&scene, "intel-rapl:1", 200);
    zone_use(&scene, "intel-rapl:1:1", 0.5);
    zone_use(&scene, "intel-rapl:2", 400);
    zone_use(&scene, "intel-rapl-mmio:0", 100);
    assert_joules(scene_cpu(&scene), 305.5);
    scene_wait(1);
    zone_use(&scene, "intel-rapl:1", 0.000001);
    assert_joules(scene_cpu(&scene), 305.500001);
    scene_no_gpu(&scene, "there is no library");
    scene_deinit(&scene);
}

static void amd_is_counted(void **state)
{
    (void)state;
    energy_scene scene;
    scene_init(&scene, "sysfs-amd");
    scene_open(&scene);
    assert_cpu_text(&scene, "RAPL by powercap: package-0");
    scene_wait(0.25);
    zone_use(&scene, "intel-rapl:0", 41.25);
    zone_use(&scene, "intel-rapl:0:0", 30);
    assert_joules(scene_cpu(&scene), 41.25);
    scene_deinit(&scene);
}

static void another_interface_does_when_the_first_is_not_there(void **state)
{
    (void)state;
    energy_scene scene;
    scene_init(&scene, "sysfs-intel");
    zone_remove(&scene, "intel-rapl:0");
    zone_remove(&scene, "intel-rapl:1");
    scene_open(&scene);
    assert_cpu_text(&scene, "RAPL by powercap: package-0, package-1");
    scene_wait(1);
    zone_use(&scene, "intel-rapl-mmio:0", 10);
    zone_use(&scene, "intel-rapl-mmio:1", 20);
    assert_joules(scene_cpu(&scene), 30);
    scene_deinit(&scene);
}

/* Two dies with the package's counter in both, and a third with one of its own. */
static void dies_that_mirror_a_package_are_one(void **state)
{
    (void)state;
    energy_scene scene;
    scene_init(&scene, "sysfs-amd");
    zone_remove(&scene, "intel-rapl:0");
    zone_make(&scene, "intel-rapl:0", "package-0-die-0", 5000000000);
    zone_make(&scene, "intel-rapl:1", "package-0-die-1", 5000100000);
    zone_make(&scene, "intel-rapl:2", "package-0-die-2", 7000000000);
    zone_make(&scene, "intel-rapl:3", "package-1-die-0", 5000100000);
    scene_open(&scene);
    assert_cpu_text(&scene, "RAPL by powercap: package-0-die-0, package-0-die-2, package-1-die-0");
    scene_deinit(&scene);
}

static void memory_that_never_moves_is_left_out(void **state)
{
    (void)state;
    energy_scene scene;
    scene_init(&scene, "sysfs-intel");
    scene_open(&scene);
    for (int second = 1; second <= 5; second++) {
        scene_wait(1);
        zone_use(&scene, "intel-rapl:0", 50);
        zone_use(&scene, "intel-rapl:1", 50);
        zone_use(&scene, "intel-rapl:1:1", 3);
        assert_joules(scene_cpu(&scene), 103.0 * second);
    }
    assert_cpu_text(&scene, "RAPL by powercap: package-0, package-1, package-1 dram");
    scene_deinit(&scene);
}

static void memory_that_cannot_be_read_is_left_out(void **state)
{
    (void)state;
    energy_scene scene;
    scene_init(&scene, "sysfs-intel");
    scene_put(&scene, zone_file("intel-rapl:0:1", "energy_uj"), "?\n");
    scene_open(&scene);
    assert_cpu_text(&scene, "RAPL by powercap: package-0, package-1, package-1 dram");
    scene_deinit(&scene);
}

static void a_machine_without_counters_says_so(void **state)
{
    (void)state;
    energy_scene scene;
    scene_init(&scene, "sysfs-amd");
    zone_remove(&scene, "intel-rapl:0");
    char bus[SCRATCH_PATH];
    snprintf(bus, sizeof bus, "%s", scratch_path(&scene.files, "sys/bus"));
    assert_int_equal(nftw(bus, remove_entry, 8, FTW_DEPTH | FTW_PHYS), 0);
    scene_open(&scene);
    scene_no_cpu(&scene, "this machine shows no package");
    scene_deinit(&scene);
}

/* ---- wraps ------------------------------------------------------------------------------------------------------- */

static void wraps_are_seen(void **state)
{
    (void)state;
    energy_scene scene;
    scene_init(&scene, "sysfs-intel");
    zone_say(&scene, "intel-rapl:0", intel_range - 1000000);
    zone_say(&scene, "intel-rapl:1", intel_range - 250);
    scene_open(&scene);
    scene_wait(1);
    zone_say(&scene, "intel-rapl:0", 2000000);
    zone_say(&scene, "intel-rapl:1", 0);
    assert_joules(scene_cpu(&scene), 3.00025);
    scene_deinit(&scene);
}

/* A machine of up to a kilowatt, looked at every second or so for many wraps. */
static void no_joule_is_lost_over_many_wraps(void **state)
{
    (void)state;
    spry_energy_counter counter = {.name = "made up", .joules = 1e-6, .range = 65532610987};
    uint64_t true_uj = 12345, now_ns = 0, start_uj = true_uj;
    uint32_t random = 1;
    double sum = 0;
    spry_error why;
    spry_energy_counter_start(&counter, true_uj, now_ns);
    for (int i = 0; i < 20000; i++) {
        random = random * 1664525u + 1013904223u;
        uint64_t step_ns = 1000000 + random % 1200000000u;
        now_ns += step_ns;
        true_uj += step_ns / 1000 * (random >> 22) + 1; /* up to 1,023 W */
        double joules;
        assert_int_equal(spry_energy_counter_take(&counter, &joules, true_uj % (counter.range + 1), now_ns, &why),
                         SPRY_OK);
        assert_true(joules >= 0);
        sum += joules;
    }
    uint64_t wraps = true_uj / (counter.range + 1);
    assert_true(wraps > 50);
    /* A wrap's own count is not seen: the largest value and 0 are taken to be one moment. */
    double wanted = (double)(true_uj - start_uj - wraps) * 1e-6;
    assert_true(fabs(sum - wanted) < 1e-9 * wanted);
}

/* Whatever a counter says, what is believed stays below what could have been drawn. */
static void nothing_impossible_is_ever_believed(void **state)
{
    (void)state;
    uint64_t random = 88172645463325252u;
    size_t refused = 0;
    for (int i = 0; i < 20000; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        spry_energy_counter counter = {.name = "made up", .joules = 1e-6, .range = i % 3 ? intel_range : 0};
        uint64_t first = random % (intel_range + 1), elapsed_ns = random % 2000000000u;
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        uint64_t second = i % 2 ? random : random % (intel_range + 1);
        double joules;
        spry_error why;
        spry_energy_counter_start(&counter, first, 5);
        if (spry_energy_counter_take(&counter, &joules, second, 5 + elapsed_ns, &why) != SPRY_OK) {
            refused++;
            assert_true(strstr(why.message, "made up") != NULL);
        }
        assert_true(joules >= 0 && joules <= SPRY_ENERGY_WATTS_MOST * ((double)elapsed_ns * 1e-9 + 0.1));
    }
    assert_true(refused > 19000);
}

/* ---- counters that misbehave ------------------------------------------------------------------------------------- */

/* Measures well for a second, then reads what `text` replaces the counter of package-1 with. */
static void ends_with(const char *text, double seconds, const char *words)
{
    energy_scene scene;
    scene_init(&scene, "sysfs-intel");
    scene_open(&scene);
    scene_wait(1);
    zone_use(&scene, "intel-rapl:0", 10);
    zone_use(&scene, "intel-rapl:1", 10);
    assert_joules(scene_cpu(&scene), 20);
    scene_wait(seconds);
    if (text)
        scene_put(&scene, zone_file("intel-rapl:1", "energy_uj"), text);
    else
        zone_remove(&scene, "intel-rapl:1");
    scene_no_cpu(&scene, words);
    /* It stays so when the counter comes to its senses: what was used meanwhile is not known. */
    if (text)
        zone_say(&scene, "intel-rapl:1", 143303987000);
    scene_wait(1);
    scene_no_cpu(&scene, words);
    scene_deinit(&scene);
}

static void counters_that_misbehave_end_the_measuring(void **state)
{
    (void)state;
    ends_with("143203987000\n", 1, "went back from 143303987000 to 143203987000");
    ends_with("0\n", 1, "went back");
    ends_with("150000000000\n", 1, "rose by 6696 J in 1.000 s");
    ends_with("262143328851\n", 1, "its largest value is 262143328850");
    ends_with("99999999999999999999999\n", 1, "no whole number");
    ends_with("143303999999\n", 66, "could not be looked at for 66 s");
    ends_with("", 1, "no whole number");
    ends_with("\n", 1, "no whole number");
    ends_with("1433039", 1, "no whole number");
    ends_with("-1\n", 1, "no whole number");
    ends_with("143303987001 \n", 1, "no whole number");
    ends_with("1\n2\n", 1, "no whole number");
    ends_with("<unknown>\n", 1, "no whole number");
    ends_with(NULL, 1, "No such file");
}

/* Bytes that are no text at all, and a file without an end. */
static void a_counter_may_be_any_file(void **state)
{
    (void)state;
    energy_scene scene;
    char path[SCRATCH_PATH];
    scene_init(&scene, "sysfs-intel");
    scene_open(&scene);
    snprintf(path, sizeof path, "%s", scratch_path(&scene.files, zone_file("intel-rapl:0", "energy_uj")));
    assert_int_equal(remove(path), 0);
    assert_int_equal(symlink("/dev/zero", path), 0);
    scene_no_cpu(&scene, "no whole number");
    scene_deinit(&scene);
}

static void a_counter_that_stands_still_is_not_believed(void **state)
{
    (void)state;
    energy_scene scene;
    spry_joules joules;
    scene_init(&scene, "sysfs-amd");
    scene_open(&scene);
    for (int i = 0; i < 2; i++) {
        scene_wait(1);
        spry_energy_read(scene.meter, &joules); /* it never moved: nothing is claimed */
        assert_false(joules.has_cpu);
    }
    zone_use(&scene, "intel-rapl:0", 1);
    assert_joules(scene_cpu(&scene), 1);
    scene_wait(2.9);
    assert_joules(scene_cpu(&scene), 1);
    scene_wait(0.1);
    scene_no_cpu(&scene, "package-0 has not changed for 3 s");
    scene_deinit(&scene);
}

static void ranges_that_cannot_be_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } cases[] = {{"0\n", "too little"},
                 {"15999999999\n", "too little"},
                 {"x\n", "no whole number"},
                 {"60293986999\n", "60293987000 is more than its largest value, 60293986999"}};
    for (size_t i = 0; i < SPRY_COUNT(cases); i++) {
        energy_scene scene;
        scene_init(&scene, "sysfs-intel");
        scene_put(&scene, zone_file("intel-rapl:0", "max_energy_range_uj"), cases[i].text);
        scene_open(&scene);
        scene_no_cpu(&scene, cases[i].words);
        scene_deinit(&scene);
    }
}

/* ---- permission -------------------------------------------------------------------------------------------------- */

enum { NOBODY = 65534 };

/* Files as many systems have them: for root only. Root tests it as another user. */
static void permission_is_explained(void **state)
{
    (void)state;
    energy_scene scene;
    scene_init(&scene, "sysfs-intel");
    bool root = geteuid() == 0;
    mode_t mode = root ? 0400 : 0;
    assert_int_equal(chmod(scratch_path(&scene.files, zone_file("intel-rapl:1", "energy_uj")), mode), 0);
    perf_counters.failure = EACCES;
    if (root && seteuid(NOBODY) != 0) {
        print_message("SKIPPED permission_is_explained: this root cannot become another user\n");
    } else {
        spry_energy_facts facts;
        scene_open(&scene);
        spry_energy_describe(scene.meter, &facts);
        scene_no_cpu(&scene, "only root may read it");
        scene_no_cpu(&scene, "sudo chmod a+r /sys/class/powercap/*/energy_uj");
        scene_no_cpu(&scene, "perf_event_paranoid is 2; sudo sysctl kernel.perf_event_paranoid=0");
        assert_int_equal(seteuid(root ? 0 : geteuid()), 0);
        assert_true(strlen(facts.cpu) < SPRY_ENERGY_TEXT - 1);
    }
    assert_int_equal(chmod(scratch_path(&scene.files, zone_file("intel-rapl:1", "energy_uj")), 0600), 0);
    scene_deinit(&scene);
}

/* ---- shares ------------------------------------------------------------------------------------------------------ */

static void use(energy_scene *scene, double joules)
{
    scene_wait(1);
    zone_use(scene, "intel-rapl:0", joules);
    gpus.gpus[0].millijoules += (unsigned long long)(joules * 2000);
}

static void shares_are_equal_parts(void **state)
{
    (void)state;
    energy_scene scene;
    spry_energy_share a, b, c;
    spry_joules of_a, of_b, of_c;
    scene_init(&scene, "sysfs-amd");
    gpus = (scene_nvml){.count = 1};
    scene_open(&scene);
    use(&scene, 1000); /* unowned */
    spry_energy_begin(scene.meter, &a);
    use(&scene, 10);
    spry_energy_begin(scene.meter, &b);
    use(&scene, 20);
    spry_energy_begin(scene.meter, &c);
    use(&scene, 30);
    spry_energy_end(scene.meter, &a, &of_a);
    use(&scene, 40);
    spry_energy_end(scene.meter, &c, &of_c);
    use(&scene, 50);
    spry_energy_end(scene.meter, &b, &of_b);
    use(&scene, 2000); /* unowned */
    assert_true(of_a.has_cpu && of_b.has_cpu && of_c.has_cpu && of_a.has_gpu && of_b.has_gpu && of_c.has_gpu);
    assert_joules(of_a.cpu, 10 + 10 + 10);
    assert_joules(of_b.cpu, 10 + 10 + 20 + 50);
    assert_joules(of_c.cpu, 10 + 20);
    assert_joules(of_a.gpu, 2 * of_a.cpu);
    assert_joules(of_b.gpu, 2 * of_b.cpu);
    assert_joules(of_c.gpu, 2 * of_c.cpu);
    assert_joules(scene_cpu(&scene), 1000 + 150 + 2000);
    spry_energy_begin(scene.meter, &a); /* alone it has all */
    use(&scene, 7);
    spry_energy_end(scene.meter, &a, &of_a);
    assert_joules(of_a.cpu, 7);
    scene_deinit(&scene);
}

static void a_share_is_not_measured_when_its_counter_is_not(void **state)
{
    (void)state;
    energy_scene scene;
    spry_energy_share share;
    spry_joules joules;
    scene_init(&scene, "sysfs-amd");
    scene_open(&scene);
    spry_energy_begin(scene.meter, &share); /* no step of the counter falls into it */
    spry_energy_end(scene.meter, &share, &joules);
    assert_false(joules.has_cpu);
    spry_energy_begin(scene.meter, &share); /* the first it makes does */
    use(&scene, 5);
    spry_energy_end(scene.meter, &share, &joules);
    assert_true(joules.has_cpu && !joules.has_gpu);
    assert_joules(joules.cpu, 5);
    spry_energy_begin(scene.meter, &share); /* again none does: that is not 0 joules */
    spry_energy_end(scene.meter, &share, &joules);
    assert_false(joules.has_cpu);
    spry_energy_begin(scene.meter, &share); /* and this one breaks */
    use(&scene, 5);
    assert_joules(scene_cpu(&scene), 10);
    zone_say(&scene, "intel-rapl:0", 1);
    spry_energy_end(scene.meter, &share, &joules);
    assert_false(joules.has_cpu);
    assert_joules(joules.cpu, 0);
    scene_deinit(&scene);
}

static void no_meter_measures_nothing(void **state)
{
    (void)state;
    spry_joules joules = {1, 1, true, true};
    spry_energy_share share = {1, 1, true, true};
    spry_energy_facts facts;
    spry_energy_read(NULL, &joules);
    assert_false(joules.has_cpu || joules.has_gpu);
    spry_energy_begin(NULL, &share);
    joules = (spry_joules){1, 1, true, true};
    spry_energy_end(NULL, &share, &joules);
    assert_false(joules.has_cpu || joules.has_gpu);
    spry_energy_describe(NULL, &facts);
    assert_false(facts.has_cpu || facts.has_gpu);
    assert_true(facts.cpu[0] && facts.gpu[0]);
    spry_energy_close(NULL);
}

/* ---- with its thread --------------------------------------------------------------------------------------------- */

enum { SHARERS = 4, STEPS = 150, STEP_NS = 200000 };

typedef struct crowd {
    energy_scene *scene;
    atomic_bool spent; /* all of it */
} crowd;

typedef struct sharer {
    crowd *in;
    double joules;
} sharer;

static void nap(long ns)
{
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

/* A package of some hundred watts. */
static void *spend(void *argument)
{
    crowd *in = argument;
    for (int i = 0; i < STEPS; i++) {
        zone_use(in->scene, "intel-rapl:0", 0.1);
        nap(STEP_NS);
    }
    atomic_store(&in->spent, true);
    return NULL;
}

static void *share_often(void *argument)
{
    sharer *self = argument;
    for (int i = 0; !atomic_load(&self->in->spent); i++) {
        spry_energy_share share;
        spry_joules joules;
        spry_energy_begin(self->in->scene->meter, &share);
        nap(i % 3 * STEP_NS);
        spry_energy_end(self->in->scene->meter, &share, &joules);
        self->joules += joules.cpu;
    }
    return NULL;
}

/* While one share is always under way, all of them add up to the whole. */
static void shares_of_threads_add_up(void **state)
{
    (void)state;
    energy_scene scene;
    spry_error error;
    crowd in = {.scene = &scene};
    pthread_t spender, threads[SHARERS];
    sharer sharers[SHARERS];
    spry_energy_share around;
    spry_joules joules;
    scene_init(&scene, "sysfs-amd");
    assert_int_equal(spry_energy_open(&scene.meter, scene.system.root, &error), SPRY_OK);
    spry_energy_begin(scene.meter, &around);
    for (size_t i = 0; i < SHARERS; i++) {
        sharers[i] = (sharer){&in, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, share_often, &sharers[i]), 0);
    }
    assert_int_equal(pthread_create(&spender, NULL, spend, &in), 0);
    pthread_join(spender, NULL);
    double sum = 0;
    for (size_t i = 0; i < SHARERS; i++) {
        pthread_join(threads[i], NULL);
        assert_true(sharers[i].joules > 0);
        sum += sharers[i].joules;
    }
    spry_energy_end(scene.meter, &around, &joules);
    assert_true(joules.has_cpu);
    assert_joules(sum + joules.cpu, STEPS * 0.1);
    assert_joules(scene_cpu(&scene), STEPS * 0.1);
    scene_deinit(&scene);
}

/* Without reads, the counters are still followed: the thread samples every second. */
static void the_thread_samples_by_itself(void **state)
{
    (void)state;
    energy_scene scene;
    spry_energy_facts facts;
    spry_error error;
    scene_init(&scene, "sysfs-amd");
    uint64_t value = zone_value(&scene, "intel-rapl:0");
    assert_int_equal(spry_energy_open(&scene.meter, scene.system.root, &error), SPRY_OK);
    spry_energy_describe(scene.meter, &facts);
    assert_true(facts.has_cpu);
    scene_put(&scene, zone_file("intel-rapl:0", "energy_uj"), "?\n");
    nap(700000000);
    nap(700000000);
    zone_say(&scene, "intel-rapl:0", value + 1);
    scene_no_cpu(&scene, "no whole number");
    scene_no_gpu(&scene, "an imitated system has no GPU");
    scene_deinit(&scene);
}

/* Reading the total samples the GPU at once; a share uses the samples of the thread. */
static void the_thread_samples_gpus_for_shares(void **state)
{
    (void)state;
    energy_scene scene;
    spry_energy_share share;
    spry_joules joules;
    spry_error error;
    scene_init(&scene, "sysfs-amd");
    gpus.missing = false;
    gpus.count = 1;
    scene.system.clock = spry_clock_ns;
    assert_int_equal(spry_energy_open_on(&scene.meter, &scene.system, true, &error), SPRY_OK);
    spry_energy_read(scene.meter, &joules); /* waits until it is open */
    assert_false(joules.has_gpu);
    gpus.gpus[0].millijoules += 5000;
    assert_joules(scene_gpu_joules(&scene), 5);
    spry_energy_begin(scene.meter, &share);
    gpus.gpus[0].millijoules += 7000;
    nap(800000000);
    spry_energy_end(scene.meter, &share, &joules);
    assert_true(joules.has_gpu);
    assert_joules(joules.gpu, 7);
    scene_deinit(&scene);
}

/* Whatever this machine has: numbers or sentences. */
static void the_real_system_is_described(void **state)
{
    (void)state;
    spry_energy *meter;
    spry_energy_facts facts;
    spry_joules joules;
    spry_error error;
    assert_int_equal(spry_energy_open(&meter, "", &error), SPRY_OK);
    spry_energy_describe(meter, &facts);
    spry_energy_read(meter, &joules);
    print_message("cpu: %s\ngpu: %s\n", facts.cpu, facts.gpu);
    assert_true(facts.cpu[0] && facts.gpu[0]);
    assert_true(!joules.has_cpu || (facts.has_cpu && joules.cpu > 0));
    assert_true(!joules.has_gpu || (facts.has_gpu && joules.gpu > 0));
    spry_energy_close(meter);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packages_and_memory_are_counted_once),
        cmocka_unit_test(amd_is_counted),
        cmocka_unit_test(another_interface_does_when_the_first_is_not_there),
        cmocka_unit_test(dies_that_mirror_a_package_are_one),
        cmocka_unit_test(memory_that_never_moves_is_left_out),
        cmocka_unit_test(memory_that_cannot_be_read_is_left_out),
        cmocka_unit_test(a_machine_without_counters_says_so),
        cmocka_unit_test(wraps_are_seen),
        cmocka_unit_test(no_joule_is_lost_over_many_wraps),
        cmocka_unit_test(nothing_impossible_is_ever_believed),
        cmocka_unit_test(counters_that_misbehave_end_the_measuring),
        cmocka_unit_test(a_counter_may_be_any_file),
        cmocka_unit_test(a_counter_that_stands_still_is_not_believed),
        cmocka_unit_test(ranges_that_cannot_be_are_refused),
        cmocka_unit_test(permission_is_explained),
        cmocka_unit_test(shares_are_equal_parts),
        cmocka_unit_test(a_share_is_not_measured_when_its_counter_is_not),
        cmocka_unit_test(no_meter_measures_nothing),
        cmocka_unit_test(shares_of_threads_add_up),
        cmocka_unit_test(the_thread_samples_by_itself),
        cmocka_unit_test(the_thread_samples_gpus_for_shares),
        cmocka_unit_test(the_real_system_is_described),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
