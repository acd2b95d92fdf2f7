/* A rule is a condition on the facts and two sentences. Words in braces are replaced by facts. Unknown facts satisfy no
 * condition. */
#include "doctor/findings.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/compiler.h"
#include "base/number.h"
#include "cli/terminal.h"
#include "platform/file.h"
#include "platform/system_file.h"

typedef spry_finding_facts facts; /* the input of every function here */

/* ---- questions --------------------------------------------------------------------------------------------------- */

bool spry_findings_busy(double load, uint32_t processors)
{
    return processors && load >= 0.5 * processors;
}

static bool others_are_busy(const facts *f)
{
    return spry_findings_busy(f->hardware->load, f->hardware->usable);
}

static bool huge_pages_off(const facts *f)
{
    return strcmp(f->hardware->huge_pages, "never") == 0;
}

static bool saves_power(const facts *f)
{
    return strcmp(f->hardware->governor, "powersave") == 0;
}

static bool group_limits_processors(const facts *f)
{
    return f->hardware->cgroup_cpus && f->hardware->cgroup_cpus < f->hardware->processors;
}

static bool mask_limits_processors(const facts *f)
{
    const spry_hardware *h = f->hardware;
    uint32_t left = group_limits_processors(f) ? h->cgroup_cpus : h->processors;
    return h->usable && h->usable < left;
}

static bool memory_is_limited(const facts *f)
{
    return f->hardware->usable_bytes < f->hardware->memory_bytes;
}

static bool memory_is_nearly_full(const facts *f)
{
    return f->hardware->available_bytes && f->hardware->available_bytes < f->hardware->usable_bytes / 4;
}

static bool swap_is_used(const facts *f)
{
    return f->hardware->swap_used_bytes > f->hardware->swap_bytes / 20;
}

static bool kernels_are_plain(const facts *f)
{
    return strcmp(f->speed->kernels, "ref") == 0;
}

static bool kernels_are_without_vnni(const facts *f)
{
    return strcmp(f->speed->kernels, "avx2") == 0 || strcmp(f->speed->kernels, "avx512bw") == 0;
}

static bool kernels_lack_vnni(const facts *f)
{
    return kernels_are_without_vnni(f) && !spry_hardware_has(f->hardware, "avx512vnni");
}

static bool kernels_leave_avx512(const facts *f)
{
    return kernels_are_without_vnni(f) && spry_hardware_has(f->hardware, "avx512vnni");
}

static bool has_unused_tiles(const facts *f)
{
    return strcmp(f->speed->kernels, "amx") != 0 && spry_hardware_has(f->hardware, "amxint8");
}

static bool threads_share_cores(const facts *f)
{
    return f->hardware->cores && f->speed->threads > f->hardware->cores && f->hardware->processors > f->hardware->cores;
}

static bool has_several_nodes(const facts *f)
{
    return f->hardware->numa_nodes > 1;
}

static bool is_virtual(const facts *f)
{
    return f->hardware->virtual_machine == SPRY_YES;
}

static bool has_gpu(const facts *f)
{
    return f->gpus->count > 0;
}

static bool energy_is_unknown(const facts *f)
{
    return !f->energy->has_cpu;
}

/* A machine below this share of its family is slower for a reason. */
static const double family_share = 0.8;

static bool is_low(double share)
{
    return share > 0 && share < family_share;
}

static bool reads_below_family(const facts *f)
{
    return is_low(f->chips->processor.read_share);
}

static bool multiplies_below_family(const facts *f)
{
    return is_low(f->chips->processor.multiply_share);
}

static bool gpu_reads_below_family(const facts *f)
{
    return is_low(f->chips->gpu.read_share);
}

/* ---- the rules --------------------------------------------------------------------------------------------------- */

static const struct rule {
    bool warns;
    bool (*applies)(const facts *f);
    const char *what, *fix;
} rules[] = {
    {true, others_are_busy, "Other programs used {busy} processors in the last minute, and {usable} are available.",
     "Stop them, then measure again: spry doctor --measure."},
    {true, reads_below_family,
     "Memory is read at {read_share} of the speed of {family}, so answers are written that much slower.",
     "Other programs, one memory module of several, or other virtual machines on the host use or lack bandwidth: "
     "measure again on an idle machine (spry doctor --measure), then check that all memory channels are filled."},
    {true, multiplies_below_family,
     "Products are {multiply_share} as fast as those of {family}, so prompts are read that much slower.",
     "Other programs, heat, a limit of power or threads that share cores: 'At present' shows what the system reports; "
     "measure again on an idle machine (spry doctor --measure)."},
    {true, gpu_reads_below_family, "The GPU reads its memory at {gpu_share} of the speed of {gpu_family}.",
     "Another program uses it, or its clocks are limited: nvidia-smi -q -d PERFORMANCE,CLOCK shows which."},
    {true, huge_pages_off, "Transparent huge pages are switched off, so weights are read through many small pages.",
     "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"},
    {true, saves_power, "The processor's frequency governor is {governor}, which reduces speed to save power.",
     "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"},
    {true, group_limits_processors, "A control group limits spry to {group} of the machine's {processors} processors.",
     "Give the container or service more processors (docker run --cpus, CPUQuota= in systemd) if they are free."},
    {true, memory_is_nearly_full, "Only {available} of {usable_memory} of memory are free.",
     "Close other programs, or choose a model that needs less."},
    {true, swap_is_used, "{swap_used} of swap is in use: reading it back is slow.",
     "Close other programs or choose a smaller model; sudo swapoff -a && sudo swapon -a moves swapped data back to "
     "memory."},
    {true, kernels_are_plain, "There are no kernels for this processor: plain C is used, which is many times slower.",
     "Nothing to do if --cpu asks for it; otherwise use a processor with AVX2, or a 64-bit ARM one."},
    {true, kernels_leave_avx512, "The {kernels} kernels are used although the processor has AVX-512 VNNI.",
     "The system has disabled part of AVX-512: check the kernel's command line."},
    {false, kernels_lack_vnni, "The {kernels} kernels are used: this processor has no AVX-512 VNNI.",
     "Nothing to do; a processor with it has a faster prefill and about the same decode speed."},
    {false, has_unused_tiles, "The processor has AMX, which the {kernels} kernels do not use.",
     "Nothing to do if --cpu asks for them; otherwise the system has not enabled AMX (Linux does since 5.16)."},
    {false, mask_limits_processors, "spry is limited to {usable} of the machine's {processors} processors.",
     "Start it without taskset, or give its container a larger cpuset, if the others are free."},
    {false, memory_is_limited, "spry is limited to {usable_memory} of the machine's {memory} of memory.",
     "Raise the limit (ulimit -v, docker run --memory, MemoryMax= in systemd) if a larger model should fit."},
    {false, threads_share_cores,
     "{threads} threads run on {cores} cores, and the threads of a core share its "
     "execution units.",
     "Try --threads {cores}: often as fast, and it leaves processors free for other programs."},
    {false, has_several_nodes, "Memory is in {nodes} NUMA nodes, and reading another node's memory is slower.",
     "numactl --interleave=all spry ... for one large model, --cpunodebind=0 --membind=0 for one that fits a node."},
    {false, is_virtual, "This is a virtual machine: its speed may depend on other machines on the same host.",
     "Compare measurements taken minutes apart, not days; spry doctor --measure measures again."},
    {false, has_gpu, "{gpu} is present; spry computes on the processor unless it is told otherwise.",
     "--device cuda computes there; --gpu-layers auto, too, where a model is larger than its memory."},
    {false, energy_is_unknown, "The processor's energy is not measured.", "The meter says: {energy}."},
};

_Static_assert(SPRY_COUNT(rules) <= SPRY_FINDINGS_MAX, "every rule may apply");

/* ---- filling in -------------------------------------------------------------------------------------------------- */

static void put_number(spry_buffer *out, uint32_t number)
{
    spry_buffer_format(out, "%u", number);
}

static void put_bytes(spry_buffer *out, size_t bytes)
{
    char text[SPRY_AMOUNT_MAX];
    spry_buffer_text(out, spry_amount_bytes(text, bytes));
}

static void put_fact(spry_buffer *out, const facts *f, spry_view name)
{
    const spry_hardware *h = f->hardware;
    const struct {
        const char *name;
        uint32_t value;
    } numbers[] = {{"processors", h->processors}, {"usable", h->usable},          {"group", h->cgroup_cpus},
                   {"cores", h->cores},           {"threads", f->speed->threads}, {"nodes", h->numa_nodes}};
    const struct {
        const char *name;
        size_t value;
    } sizes[] = {{"memory", h->memory_bytes},
                 {"usable_memory", h->usable_bytes},
                 {"available", h->available_bytes},
                 {"swap_used", h->swap_used_bytes}};
    const struct {
        const char *name, *value;
    } words[] = {{"governor", h->governor},
                 {"kernels", f->speed->kernels},
                 {"energy", f->energy->cpu},
                 {"gpu", f->gpus->list[0].name},
                 {"family", f->chips->processor.family},
                 {"gpu_family", f->chips->gpu.family}};
    const struct {
        const char *name;
        double value;
    } shares[] = {{"read_share", f->chips->processor.read_share},
                  {"multiply_share", f->chips->processor.multiply_share},
                  {"gpu_share", f->chips->gpu.read_share}};
    if (spry_view_is(name, "busy"))
        spry_buffer_format(out, "%.1f", h->load);
    for (size_t i = 0; i < SPRY_COUNT(numbers); i++)
        if (spry_view_is(name, numbers[i].name))
            put_number(out, numbers[i].value);
    for (size_t i = 0; i < SPRY_COUNT(sizes); i++)
        if (spry_view_is(name, sizes[i].name))
            put_bytes(out, sizes[i].value);
    for (size_t i = 0; i < SPRY_COUNT(shares); i++)
        if (spry_view_is(name, shares[i].name))
            spry_buffer_format(out, "%.0f %%", 100 * shares[i].value);
    for (size_t i = 0; i < SPRY_COUNT(words); i++)
        if (spry_view_is(name, words[i].name))
            spry_buffer_text(out, words[i].value);
}

static void fill_in(char out[SPRY_FINDING_TEXT], const char *sentence, const facts *f)
{
    spry_buffer text;
    spry_buffer_init(&text, SPRY_FINDING_TEXT - 1);
    while (*sentence) {
        size_t plain = strcspn(sentence, "{");
        spry_buffer_append(&text, sentence, plain);
        sentence += plain;
        if (*sentence) {
            size_t length = strcspn(sentence, "}");
            put_fact(&text, f, (spry_view){sentence + 1, length - 1});
            sentence += length + 1;
        }
    }
    snprintf(out, SPRY_FINDING_TEXT, "%s", spry_buffer_view(&text).data);
    spry_buffer_deinit(&text);
}

size_t spry_findings_make(spry_finding findings[SPRY_FINDINGS_MAX], const spry_finding_facts *f)
{
    size_t count = 0;
    for (size_t i = 0; i < SPRY_COUNT(rules); i++) {
        if (!rules[i].applies(f))
            continue;
        spry_finding *finding = &findings[count++];
        finding->warns = rules[i].warns;
        fill_in(finding->what, rules[i].what, f);
        fill_in(finding->fix, rules[i].fix, f);
    }
    return count;
}

/* ---- at present ------------------------------------------------------------------------------------------------- */

/* A comparison with NAN is false, so unknown values satisfy no rule. */
typedef struct moment {
    const spry_machine_state *before, *now;
} moment;

static const double hot_c = 90, slow_share = 0.7, busy_share = 0.5;

/* ---- the rules: each writes its sentence where it applies -------------------------------------------------------- */

static bool throttled(char what[SPRY_SLOWDOWN_TEXT], const moment *m)
{
    double times = m->now->throttles - m->before->throttles;
    snprintf(what, SPRY_SLOWDOWN_TEXT,
             "The processor reduced its speed %.0f times because of heat while it was observed.", times);
    return times > 0;
}

static bool hot(char what[SPRY_SLOWDOWN_TEXT], const moment *m)
{
    snprintf(what, SPRY_SLOWDOWN_TEXT,
             "The processor has %.0f degrees Celsius; most reduce their speed soon above that.", m->now->temperature_c);
    return m->now->temperature_c >= hot_c;
}

/* Idle processors are slow on purpose. */
static bool slow(char what[SPRY_SLOWDOWN_TEXT], const moment *m)
{
    const spry_machine_state *s = m->now;
    snprintf(what, SPRY_SLOWDOWN_TEXT, "The processors are busy, but run at %.1f of %.1f GHz.", s->frequency_mhz / 1e3,
             s->highest_mhz / 1e3);
    return s->frequency_mhz < slow_share * s->highest_mhz && s->load >= busy_share * s->processors;
}

static bool stopped(char what[SPRY_SLOWDOWN_TEXT], const moment *m)
{
    double ms = m->now->quota_ms - m->before->quota_ms;
    snprintf(what, SPRY_SLOWDOWN_TEXT,
             "A control group's quota stopped the processors for %.0f ms while they were observed.", ms);
    return ms > 0;
}

static bool discharging(char what[SPRY_SLOWDOWN_TEXT], const moment *m)
{
    if (isnan(m->now->battery_percent))
        snprintf(what, SPRY_SLOWDOWN_TEXT, "The machine runs on its battery: most are slower then.");
    else
        snprintf(what, SPRY_SLOWDOWN_TEXT, "The machine runs on its battery (%.0f %% charged): most are slower then.",
                 m->now->battery_percent);
    return m->now->on_battery > 0;
}

static bool waits(char what[SPRY_SLOWDOWN_TEXT], const char *thing, double percent, double least)
{
    snprintf(what, SPRY_SLOWDOWN_TEXT, "In %.0f %% of the last 10 s programs waited for %s.", percent, thing);
    return percent >= least;
}

static bool waits_for_memory(char what[SPRY_SLOWDOWN_TEXT], const moment *m)
{
    return waits(what, "memory", m->now->memory_pressure, 10);
}

static bool waits_for_processor(char what[SPRY_SLOWDOWN_TEXT], const moment *m)
{
    return waits(what, "a processor", m->now->cpu_pressure, 25);
}

static bool waits_for_disk(char what[SPRY_SLOWDOWN_TEXT], const moment *m)
{
    return waits(what, "a disk", m->now->disk_pressure, 25);
}

static const struct slowdown_rule {
    bool (*applies)(char what[SPRY_SLOWDOWN_TEXT], const moment *m);
    const char *fix;
} slowdown_rules[] = {
    {throttled, "Improve the cooling, or use fewer threads (--threads)."},
    {hot, "Improve the cooling, or use fewer threads (--threads)."},
    {slow, "Look for a power limit, a power-saving profile or governor, and heat."},
    {stopped, "Raise the quota (docker run --cpus, CPUQuota= in systemd), or set --threads to what it allows."},
    {discharging, "Connect the power supply."},
    {waits_for_memory, "Close other programs, choose a smaller model, or lower --kv-bytes and --cache-bytes."},
    {waits_for_processor, "Stop other programs, or give spry fewer threads (--threads)."},
    {waits_for_disk, "While a model is loaded this is normal; otherwise it does not fit the memory that is free."},
};

_Static_assert(SPRY_COUNT(slowdown_rules) <= SPRY_SLOWDOWNS_MAX, "every rule may apply");

size_t spry_slowdowns_make(spry_slowdown slowdowns[SPRY_SLOWDOWNS_MAX], const spry_machine_state *before,
                           const spry_machine_state *now)
{
    const moment m = {before, now};
    size_t count = 0;
    for (size_t i = 0; i < SPRY_COUNT(slowdown_rules); i++)
        if (slowdown_rules[i].applies(slowdowns[count].what, &m))
            slowdowns[count++].fix = slowdown_rules[i].fix;
    return count;
}

json_t *spry_machine_state_json(const spry_machine_state *before, const spry_machine_state *now)
{
    spry_slowdown slowdowns[SPRY_SLOWDOWNS_MAX];
    const size_t count = spry_slowdowns_make(slowdowns, before, now);
    json_t *out = json_object(), *why = json_array();
    for (size_t i = 0; i < SPRY_MACHINE_FIELDS; i++) {
        double value = spry_machine_field_value(now, &spry_machine_fields[i]);
        json_object_set_new(out, spry_machine_fields[i].name, isnan(value) ? json_null() : json_real(value));
    }
    for (size_t i = 0; i < count; i++)
        json_array_append_new(why, json_pack("{s:s, s:s}", "what", slowdowns[i].what, "fix", slowdowns[i].fix));
    if (json_object_set_new(out, "slowed_by", why) == 0)
        return out;
    json_decref(out);
    return NULL;
}

/* ---- servers ---------------------------------------------------------------------------------------------------- */

enum { PATH_BYTES = 4096 };

typedef struct search {
    const char *root;
    spry_running_server *found;
    size_t count;
} search;

/* /proc/N/cmdline has the arguments with a zero after each. */
static bool is_server(const char *root, uint64_t process)
{
    char line[SPRY_SYSTEM_VALUE + 2] = "";
    if (!spry_system_value(line, root, "/proc/%llu/cmdline", (unsigned long long)process))
        return false;
    const char *slash = strrchr(line, '/'), *program = slash ? slash + 1 : line;
    return strcmp(program, "spry") == 0 && strcmp(line + strlen(line) + 1, "serve") == 0;
}

static void visit(void *context, const char *name)
{
    search *s = context;
    uint64_t process, kib;
    char path[64];
    if (s->count == SPRY_RUNNING_SERVERS_MAX || !spry_number_u64(&process, spry_view_of(name)) ||
        !is_server(s->root, process))
        return;
    spry_running_server *server = &s->found[s->count++];
    *server = (spry_running_server){.process = process};
    snprintf(path, sizeof path, "/proc/%llu/status", (unsigned long long)process);
    char *resident = spry_system_line(s->root, path, "VmRSS");
    if (resident && spry_system_number(&kib, resident) && kib < SIZE_MAX / 1024)
        server->resident_bytes = (size_t)kib * 1024;
    free(resident);
}

size_t spry_running_servers_find(spry_running_server servers[SPRY_RUNNING_SERVERS_MAX], const char *root)
{
    search s = {root, servers, 0};
    char folder[PATH_BYTES];
    spry_error none;
    int length = snprintf(folder, sizeof folder, "%s/proc", root);
    if (length > 0 && length < PATH_BYTES)
        (void)spry_folder_each(folder, visit, &s, &none);
    return s.count;
}
