/* A rule is a condition on the facts and two sentences. Words in braces are replaced by facts. Unknown facts satisfy no
 * condition. */
#include "doctor/findings.h"

#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "cli/terminal.h"

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

/* ---- the rules --------------------------------------------------------------------------------------------------- */

static const struct rule {
    bool warns;
    bool (*applies)(const facts *f);
    const char *what, *fix;
} rules[] = {
    {true, others_are_busy, "Other programs used {busy} processors in the last minute, and {usable} are available.",
     "Stop them, then measure again: spry doctor --measure."},
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
                 {"gpu", f->gpus->list[0].name}};
    if (spry_view_is(name, "busy"))
        spry_buffer_format(out, "%.1f", h->load);
    for (size_t i = 0; i < SPRY_COUNT(numbers); i++)
        if (spry_view_is(name, numbers[i].name))
            put_number(out, numbers[i].value);
    for (size_t i = 0; i < SPRY_COUNT(sizes); i++)
        if (spry_view_is(name, sizes[i].name))
            put_bytes(out, sizes[i].value);
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
