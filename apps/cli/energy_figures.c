#include "cli/energy_figures.h"

#include <stdio.h>

spry_joules spry_joules_between(const spry_joules *before, const spry_joules *after)
{
    return (spry_joules){.cpu = after->cpu - before->cpu,
                         .gpu = after->gpu - before->gpu,
                         .has_cpu = before->has_cpu && after->has_cpu,
                         .has_gpu = before->has_gpu && after->has_gpu};
}

double spry_joules_whole(const spry_joules *used)
{
    return (used->has_cpu ? used->cpu : 0) + (used->has_gpu ? used->gpu : 0);
}

json_t *spry_energy_json(const spry_joules *used, double ms, size_t tokens)
{
    if (!used->has_cpu && !used->has_gpu)
        return json_null();
    return json_pack("{s:f, s:o, s:o, s:o, s:o}", "joules", spry_joules_whole(used), "joules_per_100_tokens",
                     tokens ? json_real(spry_joules_whole(used) / (double)tokens * 100) : json_null(), "watts",
                     ms > 0 ? json_real(spry_joules_whole(used) / ms * 1e3) : json_null(), "cpu_joules",
                     used->has_cpu ? json_real(used->cpu) : json_null(), "gpu_joules",
                     used->has_gpu ? json_real(used->gpu) : json_null());
}

json_t *spry_energy_facts_json(const spry_energy_facts *f)
{
    return json_pack("{s:s?, s:s?, s:s?, s:s?}", "cpu", f->has_cpu ? f->cpu : NULL, "why_no_cpu",
                     f->has_cpu ? NULL : f->cpu, "gpu", f->has_gpu ? f->gpu : NULL, "why_no_gpu",
                     f->has_gpu ? NULL : f->gpu);
}

void spry_energy_why(char out[SPRY_ENERGY_TEXT], spry_energy *meter)
{
    spry_energy_facts facts;
    spry_energy_describe(meter, &facts);
    snprintf(out, SPRY_ENERGY_TEXT, "%s",
             facts.has_cpu || facts.has_gpu ? "it ended before a counter changed" : facts.cpu);
}

void spry_energy_words(spry_buffer *out, spry_energy *meter, const spry_joules *used, double ms, size_t tokens)
{
    char why[SPRY_ENERGY_TEXT];
    if (used->has_cpu || used->has_gpu) {
        spry_buffer_format(out, "%.2f J", spry_joules_whole(used));
        if (tokens)
            spry_buffer_format(out, ", %.2f J for 100 tokens", spry_joules_whole(used) / (double)tokens * 100);
        if (ms > 0)
            spry_buffer_format(out, ", %.1f W", spry_joules_whole(used) / ms * 1e3);
        if (!used->has_cpu)
            spry_buffer_text(out, ", GPU only");
        return;
    }
    spry_energy_why(why, meter);
    spry_buffer_format(out, "not measured: %s", why);
}
