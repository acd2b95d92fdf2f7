/* The results of `spry doctor`. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/report.h"

typedef struct fact {
    const char *name, *path;
    spry_doc_unit unit; /* of a number */
} fact;

static const fact facts[] = {
    {"Cores", "cpu.cores", SPRY_DOC_COUNT},
    {"Processors", "cpu.processors", SPRY_DOC_COUNT},
    {"Usable here", "cpu.usable", SPRY_DOC_COUNT},
    {"Processors the container may use", "cpu.cgroup_cpus", SPRY_DOC_COUNT},
    {"Kernels", "cpu.kernels", SPRY_DOC_COUNT},
    {"Governor", "cpu.governor", SPRY_DOC_COUNT},
    {"NUMA nodes", "cpu.numa_nodes", SPRY_DOC_COUNT},
    {"Memory", "memory.bytes", SPRY_DOC_BYTES},
    {"Memory that can be used", "memory.usable_bytes", SPRY_DOC_BYTES},
    {"Huge pages", "memory.huge_pages", SPRY_DOC_COUNT},
    {"Swap", "memory.swap_bytes", SPRY_DOC_BYTES},
    {"Reads", "speeds.read_gb_s", SPRY_DOC_GB_S},
    {"Attention", "speeds.attend_g_s", SPRY_DOC_PRODUCTS},
    {"Processor energy", "energy.cpu", SPRY_DOC_COUNT},
    {"Processor energy not measured", "energy.why_no_cpu", SPRY_DOC_COUNT},
    {"GPU energy", "energy.gpu", SPRY_DOC_COUNT},
    {"GPU energy not measured", "energy.why_no_gpu", SPRY_DOC_COUNT},
    {"No GPU", "why_no_gpu", SPRY_DOC_COUNT},
};

static void write_caches(spry_doc *doc, const json_t *machine)
{
    const json_t *caches = spry_report_at(machine, "cpu.caches");
    for (size_t i = 0; i < json_array_size(caches); i++) {
        const json_t *cache = json_array_get(caches, i);
        const char *kind = spry_report_text(cache, "kind");
        const double kib = spry_report_number(cache, "bytes") / 1024;
        spry_doc_cell(doc, "Cache of level %.0f%s%s", spry_report_number(cache, "level"), kind ? ", " : "",
                      kind ? kind : "");
        spry_doc_cell(doc, "%.4g %s, shared by %.0f", kib < 1024 ? kib : kib / 1024, kib < 1024 ? "KiB" : "MiB",
                      spry_report_number(cache, "shared_by"));
    }
}

static void write_isa(spry_doc *doc, const json_t *machine)
{
    const json_t *list = spry_report_at(machine, "cpu.isa");
    char text[1024] = "";
    size_t size = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        char name[SPRY_REPORT_WORDS];
        spry_report_cut(name, sizeof name, json_string_value(json_array_get(list, i)));
        const int length = snprintf(text + size, sizeof text - size, "%s%s", i ? ", " : "", name);
        if (length < 0 || (size_t)length >= sizeof text - size)
            break;
        size += (size_t)length;
    }
    text[size] = '\0';
    if (size) {
        spry_doc_cell(doc, "Instruction sets");
        spry_doc_cell(doc, "%s", text);
    }
}

static void write_gpus(spry_doc *doc, const json_t *machine)
{
    const json_t *list = spry_report_at(machine, "gpu");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *gpu = json_array_get(list, i);
        char bytes[SPRY_DOC_VALUE], reads[SPRY_DOC_VALUE];
        spry_doc_cell(doc, "GPU");
        spry_doc_cell(doc, "%s: %s, reads %s", spry_report_text(gpu, "name"),
                      spry_doc_print(bytes, SPRY_DOC_BYTES, spry_report_number(gpu, "bytes")),
                      spry_doc_print(reads, SPRY_DOC_GB_S, spry_report_number(gpu, "read_gb_s")));
    }
}

static void write_facts(spry_doc *doc, const json_t *machine)
{
    static const spry_doc_column columns[] = {{"Fact", true, false}, {"", true, true}};
    spry_doc_table(doc, columns, SPRY_COUNT(columns));
    spry_doc_cell(doc, "Processor");
    spry_doc_cell(doc, "%s", spry_report_text(machine, "cpu.name"));
    for (size_t i = 0; i < SPRY_COUNT(facts); i++) {
        const json_t *value = spry_report_at(machine, facts[i].path);
        if (!value)
            continue;
        spry_doc_cell(doc, "%s", facts[i].name);
        if (json_is_string(value))
            spry_doc_cell(doc, "%s", json_string_value(value));
        else if (facts[i].unit == SPRY_DOC_COUNT)
            spry_doc_cell(doc, "%.4g", json_number_value(value)); /* a container may have half a processor */
        else
            spry_doc_value(doc, facts[i].unit, json_number_value(value));
    }
    write_isa(doc, machine);
    write_caches(doc, machine);
    write_gpus(doc, machine);
    spry_doc_table_end(doc);
}

static void write_findings(spry_doc *doc, const json_t *machine)
{
    static const spry_doc_column columns[] = {{"", true, false}, {"Found", true, true}, {"What to do", true, true}};
    const json_t *list = spry_report_at(machine, "findings");
    if (!json_array_size(list))
        return;
    spry_doc_heading(doc, "What could be better");
    spry_doc_table(doc, columns, SPRY_COUNT(columns));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *finding = json_array_get(list, i);
        const char *fix = spry_report_text(finding, "fix");
        spry_doc_cell(doc, "%s", strcmp(spry_report_text(finding, "level"), "warn") == 0 ? "⚠ warning" : "note");
        spry_doc_cell(doc, "%s", spry_report_text(finding, "what"));
        spry_doc_cell(doc, "%s", fix ? fix : "–");
    }
    spry_doc_table_end(doc);
}

static void write_types(spry_doc *doc, const json_t *machine)
{
    static const spry_doc_column columns[] = {
        {"Type of weights", true, false}, {"Multiplies", false, false}, {"Reads when decoding", false, false}};
    json_t *types = (json_t *)spry_report_at(machine, "speeds.types");
    const char *name;
    json_t *type;
    if (!json_object_size(types))
        return;
    spry_doc_heading(doc, "Speeds by type");
    spry_doc_table(doc, columns, SPRY_COUNT(columns));
    json_object_foreach(types, name, type)
    {
        char text[SPRY_REPORT_WORDS];
        spry_doc_cell(doc, "%s", spry_report_cut(text, sizeof text, name));
        spry_doc_value(doc, SPRY_DOC_PRODUCTS, spry_report_number(type, "multiply_g_s"));
        spry_doc_value(doc, SPRY_DOC_GB_S, spry_report_number(type, "decode_gb_s"));
    }
    spry_doc_table_end(doc);
}

static void write_models(spry_doc *doc, const json_t *machine)
{
    static const spry_doc_column columns[] = {{"Model", true, false},
                                              {"Type", true, false},
                                              {"Parameters", false, false},
                                              {"Memory", false, false},

                                              {"Prefill, tokens/s", false, false},
                                              {"Decode, tokens/s", false, false},
                                              {"First token of 1k", false, false}};
    const json_t *list = spry_report_at(machine, "models");
    size_t too_large = 0;
    if (!json_array_size(list))
        return;
    spry_doc_heading(doc, "What to expect");
    spry_doc_table(doc, columns, SPRY_COUNT(columns));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *model = json_array_get(list, i);
        const double parameters = spry_report_number(model, "parameters");
        if (json_is_false(spry_report_at(model, "fits"))) {
            too_large++;
            continue;
        }
        spry_doc_cell(doc, "%s", spry_report_text(model, "shape"));
        spry_doc_cell(doc, "%s", spry_report_text(model, "type"));
        if (parameters >= 1e9)
            spry_doc_cell(doc, "%.1fB", parameters / 1e9);
        else if (parameters > 0)
            spry_doc_cell(doc, "%.0fM", parameters / 1e6);
        else
            spry_doc_cell(doc, "–");
        spry_doc_value(doc, SPRY_DOC_BYTES, spry_report_number(model, "memory_bytes"));
        spry_doc_value(doc, SPRY_DOC_SPEED, spry_report_number(model, "prefill_tps"));
        spry_doc_value(doc, SPRY_DOC_SPEED, spry_report_number(model, "decode_tps"));
        spry_doc_value(doc, SPRY_DOC_MS, spry_report_number(model, "ttft_1k_ms"));
    }
    spry_doc_table_end(doc);
    if (too_large)
        spry_doc_say(doc, "Left out: %zu that need more than 70 %% of this machine's memory.", too_large);
}

static void write_choices(spry_doc *doc, const json_t *machine)
{
    static const spry_doc_column columns[] = {
        {"For", true, false}, {"Model", true, false}, {"Type", true, false}, {"Why", true, true}};
    const json_t *list = spry_report_at(machine, "choices");
    if (!json_array_size(list))
        return;
    spry_doc_heading(doc, "What to choose");
    spry_doc_table(doc, columns, SPRY_COUNT(columns));
    for (size_t i = 0; i < json_array_size(list); i++) {
        static const char *const keys[] = {"use", "shape", "type", "why"};
        for (size_t j = 0; j < SPRY_COUNT(keys); j++) {
            const json_t *choice = json_array_get(list, i);
            const char *model = j == 1 ? spry_report_text(choice, "model") : NULL;
            const char *text = model ? model : spry_report_text(choice, keys[j]);
            spry_doc_cell(doc, "%s", text ? text : "–");
        }
    }
    spry_doc_table_end(doc);
}

void spry_report_machine(spry_doc *doc, const spry_report *report)
{
    const spry_report_input *input;
    for (size_t at = 0; (input = spry_report_next(report, SPRY_REPORT_MACHINE, &at));) {
        char title[SPRY_REPORT_NAME + 16];
        snprintf(title, sizeof title, "Machine: %s", input->name);
        spry_doc_section(doc, title);
        write_findings(doc, input->json);
        write_choices(doc, input->json);
        write_models(doc, input->json);
        write_types(doc, input->json);
        spry_doc_heading(doc, "Facts");
        write_facts(doc, input->json);
    }
}
