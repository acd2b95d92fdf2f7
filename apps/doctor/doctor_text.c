/* Sections of a label and a value, wrapped to the page. Names come from files and drivers, so control characters are
 * replaced. */
#include "doctor/machine_profile.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "cli/settings_profile.h"
#include "cli/terminal.h"
#include "platform/environment.h"

enum { LABEL = 16, INDENT = 2, SENTENCE = 640 };

typedef const spry_doctor_page page;

static const char shown_type[] = "q4_0"; /* the type shown in the table of models */

/* ---- pieces ------------------------------------------------------------------------------------------------------ */

static const char *begin(page *p, spry_style style)
{
    return p->coloured ? spry_style_begin(stdout, style) : "";
}

static const char *end(page *p)
{
    return p->coloured ? spry_style_end(stdout) : "";
}

static void put_heading(page *p, const char *text)
{
    spry_buffer_format(p->out, "\n%s%s%s\n", begin(p, SPRY_STYLE_BOLD), text, end(p));
}

/* Appends words from column `at`, wrapped to the page and indented there. */
static void put_wrapped(page *p, const char *text, size_t at)
{
    spry_buffer safe;
    spry_buffer_init(&safe, SENTENCE * 4);
    spry_terminal_defuse(&safe, spry_view_of(text), "");
    const char *word = spry_buffer_view(&safe).data;
    for (size_t column = at; *word; word += strspn(word, " ")) {
        size_t length = strcspn(word, " ");
        if (column > at && column + 1 + length > p->width) {
            spry_buffer_format(p->out, "\n%*s", (int)at, "");
            column = at;
        } else if (column > at) {
            spry_buffer_text(p->out, " ");
            column++;
        }
        spry_buffer_append(p->out, word, length);
        column += length;
        word += length;
    }
    spry_buffer_text(p->out, "\n");
    spry_buffer_deinit(&safe);
}

static void put_row(page *p, const char *label, const char *format, ...) SPRY_PRINTF(3, 4);

static void put_row(page *p, const char *label, const char *format, ...)
{
    char text[SENTENCE];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    spry_buffer_format(p->out, "%*s%-*s", INDENT, "", LABEL, label);
    put_wrapped(p, text, INDENT + LABEL);
}

static const char *known(const char *text)
{
    return text[0] ? text : "unknown";
}

/* ---- what the machine is ----------------------------------------------------------------------------------------- */

static const char *known_count(char out[SPRY_AMOUNT_MAX], uint32_t count)
{
    snprintf(out, SPRY_AMOUNT_MAX, "%u", count);
    return count ? out : "unknown";
}

static const char *known_bytes(char out[SPRY_AMOUNT_MAX], size_t bytes)
{
    return bytes ? spry_amount_bytes(out, bytes) : "unknown";
}

static void put_processors(page *p, const spry_hardware *h)
{
    char cores[SPRY_AMOUNT_MAX], usable[SPRY_AMOUNT_MAX], limit[64] = "";
    if (h->cgroup_cpus)
        snprintf(limit, sizeof limit, "; control groups allow %u", h->cgroup_cpus);
    put_row(p, "cores", "%s", known_count(cores, h->cores));
    put_row(p, "processors", "%s, %s available to spry%s", known_count(cores, h->processors),
            known_count(usable, h->usable), limit);
}

static void put_caches(page *p, const spry_hardware *h)
{
    spry_buffer text;
    spry_buffer_init(&text, SENTENCE);
    for (size_t i = 0; i < h->n_caches; i++) {
        const spry_hardware_cache *cache = &h->caches[i];
        char bytes[SPRY_NUMBER_TEXT];
        spry_number_print_bytes(bytes, cache->bytes);
        bool split = strcmp(cache->kind, "unified") != 0;
        spry_buffer_format(&text, "%sL%u%s%s %s", i ? ", " : "", cache->level, split ? " " : "",
                           split ? cache->kind : "", bytes);
        if (cache->shared_by > 1)
            spry_buffer_format(&text, " shared by %u", cache->shared_by);
    }
    put_row(p, "caches", "%s", known(spry_buffer_view(&text).data));
    spry_buffer_deinit(&text);
}

static void put_processor(page *p, const spry_machine_profile *m)
{
    const spry_hardware *h = &m->hardware;
    static const char *const answers[] = {[SPRY_UNKNOWN] = "unknown", [SPRY_NO] = "no", [SPRY_YES] = "yes"};
    spry_buffer sets;
    spry_buffer_init(&sets, SENTENCE);
    for (size_t i = 0; i < h->n_sets; i++)
        spry_buffer_format(&sets, "%s%s", i ? " " : "", h->sets[i]);
    put_heading(p, "Processor");
    put_processors(p, h);
    put_row(p, "instructions", "%s", known(spry_buffer_view(&sets).data));
    put_row(p, "kernels", "%s", m->speed.kernels);
    put_caches(p, h);
    put_row(p, "governor", "%s", known(h->governor));
    if (h->numa_nodes)
        put_row(p, "NUMA nodes", "%u", h->numa_nodes);
    put_row(p, "virtual machine", "%s", answers[h->virtual_machine]);
    spry_buffer_deinit(&sets);
}

static void put_memory(page *p, const spry_hardware *h)
{
    char all[SPRY_AMOUNT_MAX], usable[SPRY_AMOUNT_MAX], available[SPRY_AMOUNT_MAX], swap[SPRY_AMOUNT_MAX];
    put_heading(p, "Memory");
    put_row(p, "size", "%s, %s available to spry; %s free", known_bytes(all, h->memory_bytes),
            known_bytes(usable, h->usable_bytes), known_bytes(available, h->available_bytes));
    put_row(p, "huge pages", "%s", known(h->huge_pages));
    if (h->swap_bytes)
        put_row(p, "swap", "%s, %s in use", spry_amount_bytes(all, h->swap_bytes),
                spry_amount_bytes(swap, h->swap_used_bytes));
    else
        put_row(p, "swap", "none");
}

static void put_gpus(page *p, const spry_gpus *gpus)
{
    put_heading(p, "GPU");
    if (!gpus->count)
        put_row(p, "none", "%s", gpus->why);
    for (size_t i = 0; i < gpus->count; i++) {
        const spry_gpu *gpu = &gpus->list[i];
        char bytes[SPRY_AMOUNT_MAX], number[SPRY_AMOUNT_MAX];
        snprintf(number, sizeof number, "%zu", i);
        put_row(p, number, "%s, %s, compute capability %u.%u, %u multiprocessors", gpu->name,
                spry_amount_bytes(bytes, gpu->bytes), gpu->compute_major, gpu->compute_minor, gpu->multiprocessors);
        if (gpu->read_gb_s > 0)
            put_row(p, "", "reads %.0f GB/s", gpu->read_gb_s);
        else
            put_row(p, "", "reading not measured: %s", known(gpu->why));
    }
    if (gpus->count)
        put_row(p, "driver", "%s", gpus->driver);
}

static void put_energy(page *p, const spry_energy_facts *e)
{
    put_heading(p, "Energy");
    put_row(p, "processor", "%s%s", e->has_cpu ? "" : "not measured: ", e->cpu);
    put_row(p, "GPU", "%s%s", e->has_gpu ? "" : "not measured: ", e->gpu);
}

/* ---- how fast it is ---------------------------------------------------------------------------------------------- */

static void put_speeds(page *p, const spry_machine_speed *s)
{
    char heading[96];
    snprintf(heading, sizeof heading, "Speed of %u %s", s->threads, s->threads == 1 ? "thread" : "threads");
    put_heading(p, heading);
    put_row(p, "memory", "%.1f GB/s read", s->read_gb_s);
    put_row(p, "waking threads", "%.1f us, until all are done", s->sync_us);
    put_row(p, "attention", "%.1f G products/s over many rows", s->attend_g_s);
    spry_buffer_format(p->out, "%*s%s%-*s%14s%16s%s\n", INDENT, "", begin(p, SPRY_STYLE_DIM), LABEL, "type",
                       "many rows", "one row", end(p));
    for (size_t i = 0; i < SPRY_DTYPE_COUNT; i++)
        if (s->types[i].multiply_g_s > 0)
            spry_buffer_format(p->out, "%*s%-*s%12.0f G/s%11.1f GB/s\n", INDENT, "", LABEL,
                               spry_dtype_name((spry_dtype)i), s->types[i].multiply_g_s, s->types[i].decode_gb_s);
}

static const char *known_share(char out[SPRY_AMOUNT_MAX], double share)
{
    snprintf(out, SPRY_AMOUNT_MAX, "%.0f %%", 100 * share);
    return share > 0 ? out : "an unknown share";
}

/* This machine beside others of its family. */
static void put_chip(page *p, const char *label, const spry_chip *chip)
{
    char reads[SPRY_AMOUNT_MAX], multiplies[SPRY_AMOUNT_MAX], products[64] = "";
    if (!chip->family[0])
        return put_row(p, label, "no figures of such a chip are known, so nothing is compared");
    if (chip->multiply_g_s > 0)
        snprintf(products, sizeof products, " and %s of its products", known_share(multiplies, chip->multiply_share));
    put_row(p, label, "%s: %s of its reading%s (%s)", chip->family, known_share(reads, chip->read_share), products,
            chip->source);
}

static void put_families(page *p, const spry_machine_profile *m)
{
    put_heading(p, "Beside its family");
    put_chip(p, "processor", &m->chips.processor);
    if (m->gpus.count)
        put_chip(p, "GPU", &m->chips.gpu);
}

/* Rows of what is known; NAN is omitted. */
static void put_state(page *p, const spry_machine_state *s)
{
    if (!isnan(s->temperature_c))
        put_row(p, "temperature", "%.0f degrees Celsius", s->temperature_c);
    if (!isnan(s->frequency_mhz) && !isnan(s->highest_mhz))
        put_row(p, "frequency", "%.2f of %.2f GHz", s->frequency_mhz / 1e3, s->highest_mhz / 1e3);
    else if (!isnan(s->frequency_mhz))
        put_row(p, "frequency", "%.2f GHz", s->frequency_mhz / 1e3);
    if (!isnan(s->throttles))
        put_row(p, "throttled", "%.0f times since the machine started", s->throttles);
    if (!isnan(s->on_battery))
        put_row(p, "power", "%s", s->on_battery > 0 ? "battery" : "plugged in");
    if (!isnan(s->memory_pressure) && !isnan(s->cpu_pressure) && !isnan(s->disk_pressure))
        put_row(p, "waiting",
                "in the last 10 s programs waited for memory %.0f %%, a processor %.0f %%, a disk %.0f %% of the time",
                s->memory_pressure, s->cpu_pressure, s->disk_pressure);
}

static void put_now(page *p, const spry_machine_profile *m)
{
    spry_slowdown slowdowns[SPRY_SLOWDOWNS_MAX];
    size_t count = spry_slowdowns_make(slowdowns, &m->before, &m->now);
    char bytes[SPRY_AMOUNT_MAX];
    put_heading(p, "At present");
    put_state(p, &m->now);
    for (size_t i = 0; i < m->n_servers; i++)
        put_row(p, "server", "process %llu, %s of memory", (unsigned long long)m->servers[i].process,
                known_bytes(bytes, m->servers[i].resident_bytes));
    if (!count)
        put_row(p, "held back by", "nothing that the system shows");
    for (size_t i = 0; i < count; i++) {
        put_row(p, i ? "" : "held back by", "%s", slowdowns[i].what);
        put_row(p, "", "%s", slowdowns[i].fix);
    }
}

static void put_findings(page *p, const spry_machine_profile *m)
{
    put_heading(p, "Bottlenecks");
    if (!m->n_findings)
        put_row(p, "nothing", "known to spry");
    for (size_t i = 0; i < m->n_findings; i++) {
        const spry_finding *finding = &m->findings[i];
        spry_buffer_format(p->out, "%*s%s%-5s%s", INDENT, "",
                           begin(p, finding->warns ? SPRY_STYLE_ERROR : SPRY_STYLE_DIM),
                           finding->warns ? "warn" : "info", end(p));
        put_wrapped(p, finding->what, INDENT + 5);
        spry_buffer_format(p->out, "%*s", INDENT + 5, "");
        put_wrapped(p, finding->fix, INDENT + 5);
    }
}

/* ---- settings ---------------------------------------------------------------------------------------------------- */

static void put_setting(page *p, const char *command, const char *key, const json_t *value, const json_t *why)
{
    char label[64], variable[80], text[64];
    snprintf(label, sizeof label, "%.20s%s%.40s", command, command[0] ? "." : "", key);
    const char *reason = json_string_value(json_object_get(why, label));
    const char *string = json_string_value(value);
    if (string)
        snprintf(text, sizeof text, "%s", string);
    else
        spry_number_print(text, json_number_value(value));
    spry_options_variable(variable, sizeof variable, key);
    const char *overridden = spry_environment_setting(variable);
    put_row(p, label, "%s%s%s%s%s%s%s%s", text, reason ? ": " : "", reason ? reason : "", overridden ? " (" : "",
            overridden ? variable : "", overridden ? " is set to " : "", overridden ? overridden : "",
            overridden ? " and overrides it)" : "");
}

static void put_settings(page *p)
{
    const spry_settings_profile *profile = spry_settings_profile_get();
    const json_t *settings = json_object_get(profile->section, "settings"),
                 *why = json_object_get(profile->section, "why");
    const char *key, *inner;
    json_t *value, *one;
    put_heading(p, "Settings of every command");
    if (!profile->section && profile->document)
        put_row(p, "defaults", "%s has no section for this machine; spry doctor --write-profile adds it",
                profile->path);
    else if (!profile->section)
        put_row(p, "defaults", "there is no profile; spry doctor --write-profile measures and writes one");
    else
        put_row(p, "profile", "%s", profile->path);
    json_object_foreach((json_t *)settings, key, value)
    {
        if (!json_is_object(value))
            put_setting(p, "", key, value, why);
        json_object_foreach(value, inner, one)
        {
            put_setting(p, key, inner, one, why);
        }
    }
}

/* ---- models ------------------------------------------------------------------------------------------------------ */

static void put_model_row(page *p, const spry_candidate *c)
{
    char parameters[SPRY_AMOUNT_MAX], memory[SPRY_AMOUNT_MAX], first[SPRY_AMOUNT_MAX];
    const spry_prediction *e = &c->predicted;
    spry_buffer_format(p->out, "%*s%-18s%7s%10s%11.1f%11.2f%11s%s\n", INDENT, "", c->shape,
                       spry_amount_count(parameters, (size_t)e->size.parameters),
                       spry_amount_bytes(memory, (size_t)e->memory_bytes), e->prefill_tps, e->decode_tps,
                       spry_amount_time(first, e->ttft_1k_ms), c->fits ? "" : "  tight");
}

static void put_models(page *p, const spry_machine_profile *m)
{
    char heading[96];
    snprintf(heading, sizeof heading, "Expected speeds as %s (--json has every type; tight: over 70 %% of memory)",
             shown_type);
    put_heading(p, heading);
    spry_buffer_format(p->out, "%*s%s%-18s%7s%10s%11s%11s%11s%s\n", INDENT, "", begin(p, SPRY_STYLE_DIM), "model",
                       "size", "memory", "read t/s", "write t/s", "1k prompt", end(p));
    for (size_t i = 0; i < m->n_candidates; i++)
        if (strcmp(m->candidates[i].type, shown_type) == 0)
            put_model_row(p, &m->candidates[i]);
}

/* The same on the first GPU, where it was measured. */
static void put_gpu_models(page *p, const spry_machine_profile *m)
{
    const spry_gpu *gpu = &m->gpus.list[0];
    char heading[160];
    if (!m->gpus.count || !(gpu->read_gb_s > 0))
        return;
    snprintf(heading, sizeof heading, "Expected speeds as %s on %s (--device cuda)", shown_type, gpu->name);
    put_heading(p, heading);
    spry_buffer_format(p->out, "%*s%s%-18s%11s%11s%s\n", INDENT, "", begin(p, SPRY_STYLE_DIM), "model", "read t/s",
                       "write t/s", end(p));
    for (size_t i = 0; i < m->n_candidates; i++) {
        const spry_candidate *c = &m->candidates[i];
        const spry_gpu_prediction g = spry_predict_gpu(gpu, &c->predicted);
        if (strcmp(c->type, shown_type) == 0 && g.decode_tps > 0 && g.fits)
            spry_buffer_format(p->out, "%*s%-18s%11.0f%11.0f\n", INDENT, "", c->shape, g.prefill_tps, g.decode_tps);
        else if (strcmp(c->type, shown_type) == 0)
            spry_buffer_format(p->out, "%*s%-18s%22s\n", INDENT, "", c->shape,
                               g.decode_tps > 0 ? "--gpu-layers auto" : "not known");
    }
}

static void put_choices(page *p, const spry_machine_profile *m)
{
    put_heading(p, "Recommended models");
    for (size_t i = 0; i < m->n_choices; i++) {
        const spry_model_choice *c = &m->choices[i];
        if (c->chosen)
            put_row(p, spry_use_name(c->use), "%s as %s: %s", c->model ? c->model : c->chosen->shape, c->chosen->type,
                    c->why);
        else
            put_row(p, spry_use_name(c->use), "%s", c->why);
        if (c->pull[0])
            put_row(p, "", "spry pull %s", c->pull);
    }
}

/* A mixture of experts that does not fit: what the engine would keep of them (src/engine/engine_size.c), and what that
 * costs. */
static void put_experts(page *p, const spry_asked_model *asked, const spry_hardware *h)
{
    const spry_prediction *e = &asked->predicted;
    const spry_expert_prediction x = spry_predict_experts(e, h->usable_bytes);
    char one[SPRY_AMOUNT_MAX], two[SPRY_AMOUNT_MAX], three[SPRY_AMOUNT_MAX];
    if (!(x.kept_bytes > 0) || !(x.read_bytes > 0))
        return;
    put_row(
        p, "experts",
        "%s of %s stay in memory (--expert-bytes), the others are read from the file when they are used: about %s a "
        "token, if all are used alike. With a disk of 1 GB/s that makes %.2f tokens/s",
        spry_amount_bytes(one, (size_t)x.kept_bytes), spry_amount_bytes(two, (size_t)e->size.expert_bytes),
        spry_amount_bytes(three, (size_t)x.read_bytes), x.decode_tps);
}

static void put_asked(page *p, const spry_asked_model *asked, const spry_hardware *h)
{
    const spry_prediction *e = &asked->predicted;
    char one[SPRY_AMOUNT_MAX], two[SPRY_AMOUNT_MAX], three[SPRY_AMOUNT_MAX], four[SPRY_AMOUNT_MAX];
    put_heading(p, "Prediction for this model");
    put_row(p, "model", "%s", asked->name);
    put_row(p, "architecture", "%s, %s parameters, %s of tensors", asked->architecture,
            spry_amount_count(one, (size_t)e->size.parameters), spry_amount_bytes(two, (size_t)e->size.file_bytes));
    put_row(p, "memory", "%s: weights %s, keys and values of %u tokens %s, working memory %s",
            spry_amount_bytes(one, (size_t)e->memory_bytes), spry_amount_bytes(two, (size_t)e->size.weight_bytes),
            e->context, spry_amount_bytes(three, (size_t)e->size.kv_bytes),
            spry_amount_bytes(four, (size_t)e->size.scratch_bytes));
    put_row(p, "fits", "%s: a model should need at most 70 %% of the %s available", asked->fits ? "yes" : "no",
            spry_amount_bytes(one, h->usable_bytes));
    put_row(p, "prompt", "%.1f tokens/s for 512 tokens; one of %d is read in %s", e->prefill_tps, SPRY_PREDICTED_PROMPT,
            spry_amount_time(one, e->ttft_1k_ms));
    put_row(p, "answer", "%.2f tokens/s at its beginning", e->decode_tps);
    put_experts(p, asked, h);
}

/* ---- the answer -------------------------------------------------------------------------------------------------- */

/* A model and how fast it would answer: "qwen3-4b as q4_k_m, 12.3 tokens/s". */
static void print_speed(char out[SENTENCE], const spry_machine_profile *m, const spry_candidate *c, const char *name)
{
    const spry_gpu *gpu = m->gpus.count ? &m->gpus.list[0] : NULL;
    const spry_gpu_prediction g = gpu ? spry_predict_gpu(gpu, &c->predicted) : (spry_gpu_prediction){0};
    int length =
        snprintf(out, SENTENCE, "%s as %s, %.3g tokens/s", name ? name : c->shape, c->type, c->predicted.decode_tps);
    if (g.decode_tps > 0 && g.fits && length > 0 && length < SENTENCE)
        snprintf(out + length, SENTENCE - (size_t)length, " (%.0f on the GPU)", g.decode_tps);
}

/* The largest model that fits; NULL: none does. */
static const spry_candidate *largest(const spry_machine_profile *m)
{
    const spry_candidate *best = NULL;
    for (size_t i = 0; i < m->n_candidates; i++) {
        const spry_candidate *c = &m->candidates[i];
        if (c->fits && (!best || c->predicted.size.parameters > best->predicted.size.parameters))
            best = c;
    }
    return best;
}

/* The model to choose: balanced, else fast, else the best for its quality; then the other two. */
static void put_short_choices(page *p, const spry_machine_profile *m)
{
    static const spry_use order[] = {SPRY_USE_BALANCED, SPRY_USE_FAST, SPRY_USE_BEST};
    const spry_candidate *most = largest(m);
    char text[SENTENCE];
    const char *label = "choose";
    for (size_t i = 0; i < SPRY_COUNT(order); i++) {
        const spry_model_choice *c = &m->choices[order[i]];
        if (order[i] >= m->n_choices || !c->chosen)
            continue;
        print_speed(text, m, c->chosen, c->model);
        put_row(p, label, "%s (%s)", text, spry_use_name(c->use));
        if (label[0] && c->pull[0])
            put_row(p, "", "spry pull %s", c->pull);
        label = "";
    }
    if (label[0])
        put_row(p, label, "no published model writes 3 tokens/s here; the bundled model does: spry run");
    if (most) {
        print_speed(text, m, most, NULL);
        put_row(p, "largest", "%s", text);
    }
}

/* What this machine can run, which model to choose, how fast that is, and what slows the machine down. */
static void put_answer(page *p, const spry_machine_profile *m)
{
    spry_slowdown slowdowns[SPRY_SLOWDOWNS_MAX];
    size_t n_slow = spry_slowdowns_make(slowdowns, &m->before, &m->now), n_warnings = 0;
    char bytes[SPRY_AMOUNT_MAX];
    for (size_t i = 0; i < m->n_findings; i++)
        n_warnings += m->findings[i].warns;
    put_row(p, "computes with", "%u %s, %s of memory%s%s", m->speed.threads,
            m->speed.threads == 1 ? "thread" : "threads", known_bytes(bytes, m->hardware.usable_bytes),
            m->gpus.count ? ", " : ", no GPU", m->gpus.count ? m->gpus.list[0].name : "");
    if (p->models)
        put_short_choices(p, m);
    put_row(p, "slowed by", "%s%s",
            n_slow       ? slowdowns[0].what
            : n_warnings ? m->findings[0].what
                         : "nothing that spry knows",
            n_slow + n_warnings > 1 ? " And more: see below." : "");
}

/* ---- the page ---------------------------------------------------------------------------------------------------- */

static void put_foot(page *p, const spry_machine_profile *m)
{
    char text[SENTENCE];
    snprintf(text, sizeof text, "Measured %s%s%s. spry doctor --measure measures again.", m->when,
             p->stored ? ", stored in " : ", not stored", p->stored ? p->stored : "");
    spry_buffer_text(p->out, "\n");
    put_wrapped(p, text, 0);
}

void spry_doctor_print(const spry_doctor_page *p, const spry_machine_profile *m)
{
    spry_buffer_format(p->out, "%s", begin(p, SPRY_STYLE_BOLD));
    put_wrapped(p, m->hardware.cpu, 0);
    spry_buffer_format(p->out, "%sid %s\n", end(p), m->id);
    if (m->asked.name[0]) {
        put_asked(p, &m->asked, &m->hardware);
    } else {
        put_answer(p, m);
        put_processor(p, m);
        put_memory(p, &m->hardware);
        put_gpus(p, &m->gpus);
        put_energy(p, &m->energy);
        put_speeds(p, &m->speed);
        put_families(p, m);
    }
    put_now(p, m);
    put_findings(p, m);
    if (!m->asked.name[0])
        put_settings(p);
    if (p->models && !m->asked.name[0]) {
        put_models(p, m);
        put_gpu_models(p, m);
        put_choices(p, m);
    }
    put_foot(p, m);
}

void spry_doctor_explain(const spry_doctor_page *p)
{
    put_settings(p);
}
