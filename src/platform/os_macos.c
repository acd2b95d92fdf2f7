/* macOS: facts by sysctl (macos_facts.h), Mach and libproc. Compiled and linked by scripts/test-macos; never run on a
 * Mac so far. */
#include "platform/os.h"

#include <libproc.h>
#include <mach-o/dyld.h>
#include <mach/mach.h>
#include <math.h>
#include <pthread/qos.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysctl.h>
#include <unistd.h>

#include "platform/macos_facts.h"
#include "platform/memory.h"

static bool read_sysctl(void *context, const char *name, void *value, size_t *size)
{
    (void)context;
    return sysctlbyname(name, value, size, NULL, 0) == 0;
}

static const spry_sysctl machine = {read_sysctl, NULL};

/* ---- threads and processors -------------------------------------------------------------------------------------- */

/* Threads of a lower class are moved to the efficient cores. */
void spry_os_begin_worker(void)
{
    pthread_set_qos_class_self_np(QOS_CLASS_USER_INITIATED, 0);
}

uint64_t spry_os_thread_ns(pthread_t thread)
{
    thread_basic_info_data_t info;
    mach_msg_type_number_t count = THREAD_BASIC_INFO_COUNT;
    mach_port_t port = pthread_mach_thread_np(thread);
    if (thread_info(port, THREAD_BASIC_INFO, (thread_info_t)&info, &count) != KERN_SUCCESS)
        return 0;
    uint64_t seconds = (uint64_t)(info.user_time.seconds + info.system_time.seconds);
    return seconds * 1000000000 + (uint64_t)(info.user_time.microseconds + info.system_time.microseconds) * 1000;
}

size_t spry_os_processors(void)
{
    return spry_macos_processors(&machine);
}

bool spry_os_program(char *path, size_t size)
{
    char own[4096], *whole;
    uint32_t room = sizeof own;
    if (_NSGetExecutablePath(own, &room) != 0 || !(whole = realpath(own, NULL)))
        return false;
    bool fits = strlen(whole) < size;
    if (fits)
        memcpy(path, whole, strlen(whole) + 1);
    free(whole);
    return fits;
}

/* ---- memory (memory.h) ------------------------------------------------------------------------------------------- */

size_t spry_os_memory(void)
{
    return (size_t)spry_sysctl_number(&machine, "hw.memsize", 0);
}

bool spry_os_memory_pressure(void)
{
    return spry_macos_memory_pressure(&machine);
}

static bool usage_of_process(struct rusage_info_v6 *usage)
{
    *usage = (struct rusage_info_v6){0};
    if (proc_pid_rusage(getpid(), RUSAGE_INFO_V6, (rusage_info_t *)usage) == 0)
        return true;
    return proc_pid_rusage(getpid(), RUSAGE_INFO_V4, (rusage_info_t *)usage) == 0; /* before macOS 13 */
}

size_t spry_os_memory_now(void)
{
    struct rusage_info_v6 usage;
    return usage_of_process(&usage) ? (size_t)usage.ri_phys_footprint : 0;
}

size_t spry_os_memory_peak(void)
{
    struct rusage_info_v6 usage;
    return usage_of_process(&usage) ? (size_t)usage.ri_lifetime_max_phys_footprint : 0;
}

/* ---- the machine ------------------------------------------------------------------------------------------------- */

uint32_t spry_os_cpu_features(void)
{
    return spry_macos_cpu_features(&machine);
}

void spry_os_hardware(spry_hardware *h)
{
    vm_statistics64_data_t vm;
    mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
    spry_macos_hardware(h, &machine);
    if (host_statistics64(mach_host_self(), HOST_VM_INFO64, (host_info64_t)&vm, &count) == KERN_SUCCESS) {
        size_t available = spry_macos_available(&(spry_macos_pages){.page_bytes = spry_memory_page(),
                                                                    .unused = vm.free_count,
                                                                    .inactive = vm.inactive_count,
                                                                    .purgeable = vm.purgeable_count,
                                                                    .speculative = vm.speculative_count});
        h->available_bytes = available < h->usable_bytes ? available : h->usable_bytes;
    }
    if (getloadavg(&h->load, 1) != 1)
        h->load = -1;
}

/* Declared in notify.h, which cross compilers lack. */
uint32_t notify_register_check(const char *name, int *token);
uint32_t notify_get_state(int token, uint64_t *state);

static double thermal_level(void)
{
    static int token;
    static bool registered;
    uint64_t state;
    if (!registered) /* a second thread that registers as well costs a token, no more */
        registered = notify_register_check("com.apple.system.thermalpressurelevel", &token) == 0;
    return registered && notify_get_state(token, &state) == 0 ? spry_macos_thermal_level(state) : NAN;
}

void spry_os_machine_state(spry_machine_state *s)
{
    size_t resident = spry_os_memory_now();
    s->thermal_level = thermal_level();
    s->processors = (double)spry_sysctl_number(&machine, "hw.logicalcpu", 0);
    s->resident_bytes = resident ? (double)resident : NAN;
    if (getloadavg(&s->load, 1) != 1)
        s->load = NAN;
}

/* ---- energy ------------------------------------------------------------------------------------------------------ */

static spry_status read_energy(void *context, size_t index, uint64_t *value, uint64_t now_ns, spry_error *why)
{
    (void)context, (void)index, (void)now_ns;
    struct rusage_info_v6 usage;
    if (!usage_of_process(&usage))
        return spry_fail(why, SPRY_ERR_UNSUPPORTED, "macOS does not report the energy of this process");
    *value = spry_macos_nanojoules(usage.ri_energy_nj, usage.ri_billed_energy);
    return SPRY_OK;
}

spry_status spry_os_open_energy(spry_energy_source *source, const spry_energy_system *system)
{
    static const spry_energy_kind kind = {"proc_pid_rusage", read_energy, NULL};
    uint64_t value, now_ns = system->clock();
    spry_status status = read_energy(NULL, 0, &value, now_ns, &source->why);
    if (status != SPRY_OK)
        return status;
    source->kind = &kind;
    source->sample_ns = SPRY_ENERGY_SAMPLE_NS;
    spry_energy_counter *counter = spry_energy_source_add(source);
    *counter = (spry_energy_counter){.name = "this process", .joules = 1e-9};
    spry_energy_counter_start(counter, value, now_ns);
    return SPRY_OK;
}
