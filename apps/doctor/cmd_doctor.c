/* spry doctor: reports what this machine is, its speed, its bottlenecks, and which model to run on it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/interrupt.h"
#include "cli/settings_profile.h"
#include "cli/terminal.h"
#include "cli/usage.h"
#include "doctor/machine_profile.h"
#include "platform/clock.h"
#include "platform/file.h"
#include "platform/memory.h"
#include "platform/threads.h"
#include "pull/catalogue.h"

enum { THREADS_MAX = 1024, PATH_BYTES = 1 << 12, PAGE_BYTES = 1 << 22, WIDTH_MIN = 60, OBSERVED_NS = 1000000000 };

static const spry_usage usage = {
    .command = "doctor",
    .arguments = "[MODEL] [options]",
    .about =
        "Shows what this machine is and can do: processor, memory, GPU, energy counters, measured speeds, "
        "bottlenecks and how to remove them, the expected speeds of published models and which to choose. "
        "docs/DOCTOR.md explains every line.\n"
        "--write-profile chooses threads, chunk, types, drafting and batches from measurements and stores them with "
        "reasons in the profile, which every command then uses.\n"
        "Measuring takes some seconds; the results are stored and reused until the machine or spry changes, for 30 "
        "days at most. With a MODEL, as for spry run, it predicts the model's speed and memory without loading it.",
    .examples = "spry doctor\n"
                "spry doctor model.gguf\n"
                "spry doctor --measure --json -o machine.json\n"
                "spry doctor --write-profile\n"
                "spry doctor --explain",
};

typedef struct doctor_flags {
    bool json, measure, models, write_profile, explain;
    uint32_t threads;
    const char *output;
    spry_model_flags model;
} doctor_flags;

#define OPTION(...) SPRY_OPTION(doctor_flags, __VA_ARGS__)

static const spry_option doctor_options[] = {
    OPTION("measure", FLAG, measure, .help = "Measure again, even if a stored profile is valid", .group = "Doctor"),
    OPTION("write-profile", FLAG, write_profile, .flag_only = true,
           .help = "Measure what settings to use, and store them in the profile (--profile) for every command"),
    OPTION("explain", FLAG, explain, .flag_only = true,
           .help = "Only show the settings of the profile and why each was chosen; measures nothing"),
    OPTION("models", FLAG, models, .help = "Show the expected speeds of published models"),
    OPTION("threads", U32, threads, .flag_only = true, .letter = 't', .max = THREADS_MAX,
           .help = "Number of threads; 0: every processor available to this process"),
    OPTION("json", FLAG, json, .help = "Print one JSON object", .group = "Output"),
    OPTION("output", STRING, output, .letter = 'o', .metavar = "FILE",
           .help = "Write to FILE instead of standard output"),
};

/* ---- what was measured ------------------------------------------------------------------------------------------- */

static bool show_progress(void *user, size_t done, size_t total)
{
    spry_progress_update(user, done, total);
    return !spry_interrupt_seen();
}

static spry_status measure(spry_machine_profile *profile, uint32_t threads, spry_error *error)
{
    spry_progress_line line;
    spry_progress_begin(&line, "measuring this machine");
    const spry_speed_progress progress = {show_progress, &line};
    spry_status status = spry_machine_speed_measure(&profile->speed, "auto", threads, &progress, error);
    if (!status)
        spry_gpus_measure(&profile->gpus);
    spry_progress_end(&line);
    spry_time_text(profile->when, (int64_t)time(NULL));
    return status;
}

/* When the profile cannot be stored, only the time to measure again is lost. */
static bool store(const spry_machine_profile *profile, const char *path)
{
    spry_error error;
    spry_buffer text;
    spry_buffer_init(&text, PAGE_BYTES);
    spry_status status = spry_profile_json(&text, profile, true, &error);
    if (!status)
        status = spry_file_write(path, spry_buffer_view(&text), &error);
    if (status)
        spry_complain("the measurements are not stored: %s", error.message);
    spry_buffer_deinit(&text);
    return !status;
}

/* ---- the profile ------------------------------------------------------------------------------------------------- */

static spry_status read_facts(spry_machine_profile *profile, uint32_t threads, spry_error *error)
{
    spry_energy *energy = NULL;
    spry_hardware_read(&profile->hardware, "");
    spry_gpus_open(&profile->gpus, SPRY_CUDA_LIBRARY, "");
    spry_status status = spry_kernels_name(profile->speed.kernels, "auto", error);
    if (!status)
        status = spry_energy_open(&energy, "", error);
    if (status)
        return status;
    spry_energy_describe(energy, &profile->energy);
    spry_energy_close(energy);
    profile->speed.threads = threads;
    spry_machine_id(profile->id, profile->hardware.cpu, threads, profile->speed.kernels, spry_memory_total());
    return SPRY_OK;
}

/* Derives findings and predictions from facts and speeds. */
static spry_status conclude(spry_machine_profile *profile, spry_error *error)
{
    const spry_finding_facts facts = {&profile->hardware, &profile->gpus, &profile->energy, &profile->speed,
                                      &profile->chips};
    const spry_view families = {(const char *)spry_bundled_chips_begin,
                                (size_t)(spry_bundled_chips_end - spry_bundled_chips_begin)};
    size_t memory = spry_memory_total();
    spry_status status =
        spry_chips_compare(&profile->chips, families, &profile->hardware, &profile->speed, &profile->gpus, error);
    if (!status)
        profile->n_findings = spry_findings_make(profile->findings, &facts);
    if (!status)
        status = spry_candidates_predict(profile->candidates, &profile->n_candidates, &profile->speed, memory, error);
    json_t *catalogue = NULL;
    if (!status)
        status = spry_catalogue_load(&catalogue, error);
    for (size_t i = 0; !status && i < profile->n_candidates; i++) {
        spry_candidate *c = &profile->candidates[i];
        c->schema = spry_catalogue_schema(catalogue, c->shape, &c->schema_source);
    }
    profile->n_choices = 0;
    for (spry_use use = 0; !status && use < SPRY_USE_COUNT; use++)
        spry_choice_make(&profile->choices[profile->n_choices++], use, profile->candidates, profile->n_candidates,
                         memory);
    for (size_t i = 0; i < profile->n_candidates; i++)
        profile->candidates[i].schema_source = NULL;
    json_decref(catalogue);
    return status;
}

/* Uses a stored profile; false: there is no valid one. A damaged file is reported. */
static bool recall(spry_machine_profile *profile, const char *path)
{
    static spry_stored_profile stored; /* too large for some stacks */
    spry_error error;
    bool found;
    spry_status status = spry_profile_load(&stored, &found, path, &error);
    if (!status && (!found || spry_profile_stale(&stored, profile, (int64_t)time(NULL))))
        return false;
    if (!status) {
        spry_profile_adopt(profile, &stored);
        if (conclude(profile, &error))
            status = spry_fail_prefix(&error, SPRY_ERR_FORMAT, path);
    }
    if (status)
        spry_complain("%s; measuring again", error.message);
    return !status;
}

/* While a server runs, counters are observed for a second; otherwise for as long as measuring took. */
static void observe(spry_machine_profile *profile)
{
    profile->n_servers = spry_running_servers_find(profile->servers, "");
    if (profile->n_servers)
        spry_clock_sleep_ns(OBSERVED_NS);
    spry_machine_state_read(&profile->now, "");
}

/* `path` is the file of the stored profile; NULL: none. *kept: it is stored. */
static spry_status examine(spry_machine_profile *profile, bool *kept, const doctor_flags *flags, const char *path,
                           spry_error *error)
{
    uint32_t threads = flags->threads ? flags->threads : (uint32_t)spry_threads_usable();
    spry_status status = read_facts(profile, threads, error);
    bool recalled = !status && path && !flags->measure && recall(profile, path);
    if (!status && !recalled)
        status = measure(profile, threads, error);
    if (!status && !recalled)
        status = conclude(profile, error);
    if (!status)
        observe(profile);
    if (recalled)
        return status;
    *kept = !status && path && store(profile, path);
    return status;
}

/* ---- settings ---------------------------------------------------------------------------------------------------- */

static spry_status write_settings(const spry_machine_profile *profile, spry_error *error)
{
    static spry_settings_evidence evidence; /* too large for some stacks */
    static spry_chosen_settings chosen;
    const spry_settings_profile *loaded = spry_settings_profile_get();
    spry_progress_line line;
    spry_progress_begin(&line, "measuring settings");
    const spry_speed_progress progress = {show_progress, &line};
    spry_status status = spry_settings_measure(&evidence, profile, &progress, error);
    spry_progress_end(&line);
    if (status)
        return status;
    spry_settings_choose(&chosen, profile, &evidence);
    status = spry_settings_write(&chosen, profile, error);
    char *path = loaded->path ? strdup(loaded->path) : NULL;
    if (!status)
        status =
            path ? spry_settings_profile_load(path, true, error) : spry_fail_memory(error, "the profile's path", 0);
    free(path);
    return status;
}

/* ---- a model ----------------------------------------------------------------------------------------------------- */

/* Whether there is such a model, before anything is measured; then what to expect of it. */
static spry_status find_model(spry_model_source *source, spry_asked_model *asked, const char *name,
                              const spry_model_flags *flags, spry_error *error)
{
    spry_checkpoint checkpoint;
    spry_status status = spry_model_source_find(source, name, flags->models_folder, error);
    if (status)
        return status;
    const spry_model_file file = spry_model_source_file(source);
    status = spry_checkpoint_read(&checkpoint, &file, "f16", error);
    snprintf(asked->name, sizeof asked->name, "%s", source->name);
    asked->architecture = checkpoint.architecture;
    return status;
}

static spry_status expect(spry_machine_profile *profile, const spry_model_source *source, spry_error *error)
{
    spry_asked_model *asked = &profile->asked;
    const spry_model_file file = spry_model_source_file(source);
    spry_status status = spry_predict_file(&asked->predicted, &profile->speed, &file, error);
    asked->fits = spry_prediction_fits(&asked->predicted, spry_memory_total());
    return status;
}

/* ---- output ------------------------------------------------------------------------------------------------------ */

static spry_status render(spry_buffer *out, const spry_machine_profile *profile, const doctor_flags *flags,
                          const char *path, spry_error *error)
{
    if (flags->json)
        return spry_profile_json(out, profile, flags->models, error);
    size_t width = flags->output ? SPRY_DOCTOR_WIDTH : spry_terminal_width(stdout);
    const spry_doctor_page page = {
        .out = out,
        .width = width > SPRY_DOCTOR_WIDTH ? SPRY_DOCTOR_WIDTH
                 : width < WIDTH_MIN       ? WIDTH_MIN
                                           : width,
        .coloured = !flags->output,
        .models = flags->models,
        .stored = path,
    };
    if (flags->explain)
        spry_doctor_explain(&page);
    else
        spry_doctor_print(&page, profile);
    return out->failed ? spry_fail_memory(error, "the page", out->size) : SPRY_OK;
}

static spry_status emit(const spry_machine_profile *profile, const doctor_flags *flags, const char *path,
                        spry_error *error)
{
    spry_buffer text;
    spry_buffer_init(&text, PAGE_BYTES);
    spry_status status = render(&text, profile, flags, path, error);
    if (!status && flags->output)
        status = spry_file_write(flags->output, spry_buffer_view(&text), error);
    else if (!status)
        spry_out_write(text.data, text.size);
    spry_buffer_deinit(&text);
    return status;
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static spry_status doctor(const doctor_flags *flags, const char *name, spry_error *error)
{
    static spry_machine_profile profile; /* too large for some stacks */
    spry_model_source source = {0};
    spry_buffer path;
    spry_error no_place;
    spry_buffer_init(&path, PATH_BYTES);
    spry_machine_state_read(&profile.before, "");
    bool kept = spry_profile_path(&path, &no_place) == SPRY_OK;
    if (!kept)
        spry_complain("the measurements will not be stored: %s", no_place.message);
    spry_status status = SPRY_OK;
    if (name && flags->output && spry_path_same(name, flags->output))
        status = spry_fail(error, SPRY_ERR_INPUT, "%s is an input file: name another file with -o", name);
    if (!status && name)
        status = find_model(&source, &profile.asked, name, &flags->model, error);
    if (!status && !flags->explain)
        status = examine(&profile, &kept, flags, kept ? path.data : NULL, error);
    if (!status && flags->write_profile)
        status = write_settings(&profile, error);
    if (!status && name)
        status = expect(&profile, &source, error);
    if (!status)
        status = emit(&profile, flags, kept ? path.data : NULL, error);
    spry_gpus_close(&profile.gpus);
    spry_model_source_deinit(&source);
    spry_buffer_deinit(&path);
    return status;
}

int spry_cmd_doctor(int argc, char **argv)
{
    doctor_flags flags = {.models = true};
    const spry_option_table tables[] = {{doctor_options, SPRY_COUNT(doctor_options), &flags},
                                        spry_model_flags_table(&flags.model)};
    const char *model = NULL;
    spry_option_list positionals = {&model, 1, 0};
    spry_error error;
    int code = SPRY_EXIT_OK;
    if (!spry_usage_parse(&code, &usage, tables, SPRY_COUNT(tables), &positionals, argc, argv))
        return code;
    if (flags.write_profile && flags.threads)
        return spry_usage_wrong(&usage, "--write-profile chooses the threads: omit --threads");
    if (flags.explain && (model || flags.json || flags.measure || flags.write_profile))
        return spry_usage_wrong(&usage, "--explain shows the profile and nothing else: omit %s",
                                model           ? "MODEL"
                                : flags.json    ? "--json"
                                : flags.measure ? "--measure"
                                                : "--write-profile");
    spry_interrupt_install(NULL, true);
    if (doctor(&flags, model, &error) != SPRY_OK)
        code = spry_complain_error(&error);
    spry_interrupt_remove();
    return spry_out_finish(code);
}
