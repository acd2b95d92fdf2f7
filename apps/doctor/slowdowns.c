/* A comparison with NAN is false, so unknown values satisfy no rule. */
#include "doctor/slowdowns.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/compiler.h"

typedef struct moment {
    const spry_machine_state *before, *now;
} moment;

static const double hot_c = 90, slow_share = 0.7, busy_share = 0.5;

/* ---- the rules: each writes its sentence where it applies ----------------------------------------------------------
 */

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

static const struct rule {
    bool (*applies)(char what[SPRY_SLOWDOWN_TEXT], const moment *m);
    const char *fix;
} rules[] = {
    {throttled, "Improve the cooling, or use fewer threads (--threads)."},
    {hot, "Improve the cooling, or use fewer threads (--threads)."},
    {slow, "Look for a power limit, a power-saving profile or governor, and heat."},
    {stopped, "Raise the quota (docker run --cpus, CPUQuota= in systemd), or set --threads to what it allows."},
    {discharging, "Connect the power supply."},
    {waits_for_memory, "Close other programs, choose a smaller model, or lower --kv-bytes and --cache-bytes."},
    {waits_for_processor, "Stop other programs, or give spry fewer threads (--threads)."},
    {waits_for_disk, "While a model is loaded this is normal; otherwise it does not fit the memory that is free."},
};

_Static_assert(SPRY_COUNT(rules) <= SPRY_SLOWDOWNS_MAX, "every rule may apply");

size_t spry_slowdowns_make(spry_slowdown slowdowns[SPRY_SLOWDOWNS_MAX], const spry_machine_state *before,
                           const spry_machine_state *now)
{
    const moment m = {before, now};
    size_t count = 0;
    for (size_t i = 0; i < SPRY_COUNT(rules); i++)
        if (rules[i].applies(slowdowns[count].what, &m))
            slowdowns[count++].fix = rules[i].fix;
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
