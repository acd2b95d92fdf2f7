/* `spry inspect` and `spry convert`: model files described, and written with other types. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/dtype.h"
#include "base/json.h"
#include "base/utf8.h"
#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/terminal.h"
#include "cli/usage.h"
#include "platform/file.h"
#include "platform/memory.h"

/* ---- a model's description as text ------------------------------------------------------------------------------- */

/* Rows of a label and a value under headings. Names and values come from files, so they are truncated and control
 * characters are replaced. */

enum { LABEL_MIN = 16, LABEL_MAX = 48, LINE_BYTES = 4096, SHOWN_CHARACTERS = 64 };

/* ---- pieces ------------------------------------------------------------------------------------------------------ */

static void print_heading(const char *text)
{
    spry_out_format("\n%s%s%s\n", spry_style_begin(stdout, SPRY_STYLE_BOLD), text, spry_style_end(stdout));
}

static void print_row(const char *label, const char *format, ...) SPRY_PRINTF(2, 3);

static void print_row(const char *label, const char *format, ...)
{
    char value[LINE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(value, sizeof value, format, args);
    va_end(args);
    spry_out_format("  %-*s %s\n", LABEL_MIN, label, value);
}

static size_t size_at(const json_t *object, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(object, key));
    return value > 0 ? (size_t)value : 0;
}

static const char *text_at(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "?";
}

/* Appends a value on one line, truncated to SHOWN_CHARACTERS. JSON escapes most control characters; others become
 * '?'. */
static void append_short(spry_buffer *out, const json_t *value)
{
    char *text = spry_json_text(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(7));
    if (!text)
        return;
    spry_view view = spry_view_of(text);
    if (json_is_string(value)) /* without its quotes */
        view = (spry_view){text + 1, view.size - 2};
    size_t at = 0;
    for (size_t i = 0; i < SHOWN_CHARACTERS && at < view.size; i++) {
        uint32_t character = 0;
        size_t size = spry_utf8_decode(&character, view.data + at, view.size - at);
        if (size == 0 || (character >= 0x7F && character < 0xA0))
            spry_buffer_text(out, "?");
        else
            spry_buffer_append(out, view.data + at, size);
        at += size ? size : 1;
    }
    if (at < view.size)
        spry_buffer_text(out, "...");
    free(text);
}

static size_t clamp_label(size_t length)
{
    return length < LABEL_MIN ? LABEL_MIN : length > LABEL_MAX ? LABEL_MAX : length;
}

/* ---- sections ---------------------------------------------------------------------------------------------------- */

static void print_file(const json_t *d)
{
    char bytes[SPRY_AMOUNT_MAX];
    spry_buffer text;
    spry_buffer_init(&text, LINE_BYTES);
    const json_t *path = json_object_get(d, "path");
    if (json_is_string(path))
        append_short(&text, path);
    else
        spry_buffer_text(&text, "bundled");
    spry_out_format("%s%s%s\n", spry_style_begin(stdout, SPRY_STYLE_BOLD), text_at(d, "model"), spry_style_end(stdout));
    print_row("file", "%s", spry_buffer_view(&text).data);
    size_t size = json_object_get(d, "file_bytes") ? size_at(d, "file_bytes") : size_at(d, "weight_bytes");
    print_row("format", "%s, %s", text_at(d, "format"), spry_amount_bytes(bytes, size));
    spry_buffer_deinit(&text);
}

static void print_model(const json_t *d)
{
    char count[SPRY_AMOUNT_MAX];
    const json_t *shape = json_object_get(d, "shape");
    spry_buffer architecture;
    spry_buffer_init(&architecture, LINE_BYTES);
    append_short(&architecture, json_object_get(d, "architecture"));
    print_row("architecture", "%s, %s parameters", architecture.size ? architecture.data : "not named",
              spry_amount_count(count, size_at(d, "parameters")));
    spry_buffer_deinit(&architecture);
    if (json_is_string(json_object_get(d, "problem")))
        print_row("cannot run", "%s", text_at(d, "problem"));
    if (!shape)
        return;
    print_row("layers", "%zu of width %zu, feed-forward %zu", size_at(shape, "layers"), size_at(shape, "embedding"),
              size_at(shape, "feed_forward"));
    if (json_object_get(shape, "experts"))
        print_row("experts", "%zu, %zu used at a time", size_at(shape, "experts"), size_at(shape, "experts_used"));
    print_row("heads", "%zu of size %zu, %zu for keys and values", size_at(shape, "heads"), size_at(shape, "head_size"),
              size_at(shape, "kv_heads"));
    print_row("context", "%zu tokens", size_at(shape, "context"));
    if (json_object_get(shape, "sliding_window"))
        print_row("sliding window", "%zu tokens", size_at(shape, "sliding_window"));
    print_row("chat template", "%s",
              strcmp(text_at(d, "chat_template"), "own") == 0 ? "its own" : "ChatML, because the file has none");
}

static void append_token(spry_buffer *out, const char *label, const json_t *token)
{
    spry_buffer_format(out, ", %s ", label);
    if (!json_is_object(token)) {
        spry_buffer_text(out, "none");
        return;
    }
    append_short(out, json_object_get(token, "text"));
    spry_buffer_format(out, " (%zu)", size_at(token, "id"));
}

static void print_tokenizer(const json_t *tokenizer)
{
    spry_buffer text;
    spry_buffer_init(&text, LINE_BYTES);
    if (json_object_get(tokenizer, "problem")) {
        spry_buffer_format(&text, "none: %s", text_at(tokenizer, "problem"));
    } else {
        spry_buffer_format(&text, "%s, %zu tokens", text_at(tokenizer, "algorithm"), size_at(tokenizer, "size"));
        append_token(&text, "bos", json_object_get(tokenizer, "bos"));
        append_token(&text, "eos", json_object_get(tokenizer, "eos"));
    }
    print_row("tokenizer", "%s", spry_buffer_view(&text).data);
    spry_buffer_deinit(&text);
}

/* A row of the table of estimates: one column each. */
static void print_estimates(const json_t *estimates, const char *label, const char *key)
{
    const json_t *estimate;
    size_t i;
    spry_buffer line;
    spry_buffer_init(&line, LINE_BYTES);
    json_array_foreach(estimates, i, estimate)
    {
        char amount[SPRY_AMOUNT_MAX + 8];
        if (json_object_get(estimate, "problem"))
            continue;
        if (strcmp(key, "context") == 0)
            snprintf(amount, sizeof amount, "%zu tokens", size_at(estimate, key));
        else
            spry_amount_bytes(amount, size_at(estimate, key));
        spry_buffer_format(&line, "%14s", amount);
    }
    print_row(label, "%s", spry_buffer_view(&line).data);
    spry_buffer_deinit(&line);
}

static void print_parts(const json_t *estimates)
{
    static const char *const rows[][2] = {
        {"", "context"},         {"weights", "weights"}, {"keys and values", "kv"}, {"kept for reuse", "cache"},
        {"in steps", "scratch"}, {"program", "program"}, {"together", "whole"},     {"pictures, besides", "tower"}};
    const json_t *estimate;
    size_t i;
    print_heading("Memory in use once a session's context is full");
    for (i = 0; i < SPRY_COUNT(rows); i++)
        if (strcmp(rows[i][1], "tower") != 0 || json_object_get(json_array_get(estimates, 0), "tower"))
            print_estimates(estimates, rows[i][0], rows[i][1]);
    json_array_foreach(estimates, i, estimate)
    {
        if (json_object_get(estimate, "problem"))
            print_row("not told", "%s", text_at(estimate, "problem"));
    }
}

static void print_memory(const json_t *memory)
{
    char heading[64], weights[SPRY_AMOUNT_MAX], copied[SPRY_AMOUNT_MAX], scratch[SPRY_AMOUNT_MAX];
    if (!memory)
        return;
    snprintf(heading, sizeof heading, "Memory at %zu tokens of context", size_at(memory, "context"));
    print_heading(heading);
    print_row("weights", "%s, %s of it copied", spry_amount_bytes(weights, size_at(memory, "weights")),
              spry_amount_bytes(copied, size_at(memory, "copied")));
    spry_buffer line;
    spry_buffer_init(&line, LINE_BYTES);
    const char *type;
    json_t *bytes;
    json_object_foreach(json_object_get(memory, "kv"), type, bytes)
    {
        char amount[SPRY_AMOUNT_MAX];
        spry_buffer_format(
            &line, "%s%s as %s", line.size ? ", " : "",
            json_is_integer(bytes) ? spry_amount_bytes(amount, (size_t)json_integer_value(bytes)) : "impossible", type);
    }
    print_row("keys and values", "%s", spry_buffer_view(&line).data);
    spry_buffer_deinit(&line);
    print_row("working memory", "%s", spry_amount_bytes(scratch, size_at(memory, "scratch")));
    print_parts(json_object_get(memory, "estimates"));
}

static void print_types(const json_t *types, const json_t *layout)
{
    const json_t *type;
    size_t i;
    print_heading("Tensors");
    json_array_foreach(types, i, type)
    {
        char bytes[SPRY_AMOUNT_MAX];
        size_t count = size_at(type, "tensors");
        print_row(text_at(type, "type"), "%zu tensor%s, %s", count, count == 1 ? "" : "s",
                  spry_amount_bytes(bytes, size_at(type, "bytes")));
    }
    print_row("layout", "%s", text_at(layout, "text"));
}

static void append_value(spry_buffer *out, const json_t *value)
{
    const json_t *first = json_object_get(value, "first");
    if (first) /* the beginning of a long array */
        spry_buffer_format(out, "%zu x %s: ", size_at(value, "count"), text_at(value, "kind"));
    append_short(out, first ? first : value);
}

static void print_metadata(json_t *metadata)
{
    const char *key;
    json_t *value;
    size_t widest = 0;
    if (!json_is_object(metadata))
        return;
    print_heading("Metadata");
    json_object_foreach(metadata, key, value) widest = strlen(key) > widest ? strlen(key) : widest;
    json_object_foreach(metadata, key, value)
    {
        spry_buffer name, line;
        spry_buffer_init(&name, LINE_BYTES);
        spry_buffer_init(&line, LINE_BYTES);
        json_t *text = json_string(key);
        append_short(&name, text);
        append_value(&line, value);
        spry_out_format("  %-*s %s\n", (int)clamp_label(widest), spry_buffer_view(&name).data,
                        spry_buffer_view(&line).data);
        json_decref(text);
        spry_buffer_deinit(&name);
        spry_buffer_deinit(&line);
    }
}

static void append_shape(spry_buffer *out, const json_t *shape)
{
    const json_t *dim;
    size_t i;
    json_array_foreach(shape, i, dim)
        spry_buffer_format(out, "%s%lld", i ? " x " : "", (long long)json_integer_value(dim));
}

static void print_list(const json_t *tensors)
{
    const json_t *tensor;
    size_t i, widest = 0;
    if (!tensors)
        return;
    json_array_foreach(tensors, i, tensor)
    {
        size_t length = json_string_length(json_object_get(tensor, "name"));
        widest = length > widest ? length : widest;
    }
    print_heading("Every tensor");
    spry_out_format("  %-*s %-8s %-20s %14s %14s %7s  %s\n", (int)clamp_label(widest), "name", "type", "shape", "bytes",
                    "offset", "aligned", "use");
    json_array_foreach(tensors, i, tensor)
    {
        spry_buffer name, shape;
        spry_buffer_init(&name, LINE_BYTES);
        spry_buffer_init(&shape, LINE_BYTES);
        append_short(&name, json_object_get(tensor, "name"));
        append_shape(&shape, json_object_get(tensor, "shape"));
        bool used = json_object_get(tensor, "use");
        spry_out_format("  %-*s %-8s %-20s %14zu %14zu %7zu  %s%s%s%s\n", (int)clamp_label(widest),
                        spry_buffer_view(&name).data, text_at(tensor, "type"), spry_buffer_view(&shape).data,
                        size_at(tensor, "bytes"), size_at(tensor, "offset"), size_at(tensor, "alignment"),
                        used ? text_at(tensor, "use") : "", used ? ": " : "", used ? text_at(tensor, "why") : "",
                        json_is_false(json_object_get(tensor, "contiguous")) ? " (not contiguous)" : "");
        spry_buffer_deinit(&name);
        spry_buffer_deinit(&shape);
    }
}

/* Prints to standard output. */
static void inspect_print(const json_t *d)
{
    print_file(d);
    print_model(d);
    print_tokenizer(json_object_get(d, "tokenizer"));
    print_memory(json_object_get(d, "memory"));
    print_types(json_object_get(d, "types"), json_object_get(d, "layout"));
    print_metadata(json_object_get(d, "metadata"));
    print_list(json_object_get(d, "tensors"));
}

/* ---- spry inspect ------------------------------------------------------------------------------------------------ */

static const spry_usage usage = {
    .command = "inspect",
    .arguments = "[MODEL] [options]",
    .about =
        "Shows the contents of a model's files: metadata, tensors, tokenizer, sizes, and the memory it needs to run. "
        "Files of an unknown architecture are shown as far as they can be read.\n"
        "MODEL is as for `spry run`; without it the bundled model is shown.",
    .examples = "spry inspect\n"
                "spry inspect model.gguf --tensors\n"
                "spry inspect model-folder --context 4096 --json",
};

typedef struct inspect_settings {
    bool json, tensors;
    uint32_t context;
    spry_model_flags model;
} inspect_settings;

#define OPTION(...)         SPRY_OPTION(inspect_settings, __VA_ARGS__)
#define CONVERT_OPTION(...) SPRY_OPTION(convert_flags, __VA_ARGS__)

static const spry_option inspect_options[] = {
    OPTION("tensors", FLAG, tensors,
           .help =
               "List every tensor: name, type, shape, bytes, offset in its file and its alignment, layout in memory",
           .group = "Inspect"),
    OPTION(
        "context", U32, context, .letter = 'c',
        .help =
            "Context size for the memory estimate; 0: the model's limit, or less where that does not fit the memory"),
    OPTION("json", FLAG, json, .help = "Print one JSON object"),
};

static spry_status inspect(const inspect_settings *settings, const char *model, spry_error *error)
{
    spry_model_source source = {0};
    json_t *description = NULL;
    char *text = NULL;
    spry_status status = spry_model_source_find(&source, model, settings->model.models_folder, error);
    const spry_model_file file = spry_model_source_file(&source);
    if (status == SPRY_OK)
        status = spry_inspect_json(&text, &file, settings->context, settings->tensors, error);
    if (status == SPRY_OK && !(description = spry_json_value(spry_view_of(text))))
        status = spry_fail_memory(error, "the description", strlen(text));
    if (status == SPRY_OK && settings->json)
        status = spry_out_json(description, JSON_INDENT(2) | JSON_REAL_PRECISION(9), "the description", error);
    else if (status == SPRY_OK)
        inspect_print(description);
    json_decref(description);
    spry_free(text);
    spry_model_source_deinit(&source);
    return status;
}

int spry_cmd_inspect(int argc, char **argv)
{
    inspect_settings settings = {0};
    const spry_option_table tables[] = {{inspect_options, SPRY_COUNT(inspect_options), &settings},
                                        spry_model_flags_table(&settings.model)};
    const char *model = NULL;
    spry_option_list positionals = {&model, 1, 0};
    int code = SPRY_EXIT_OK;
    if (!spry_usage_parse(&code, &usage, tables, SPRY_COUNT(tables), &positionals, argc, argv))
        return code;
    spry_error error;
    spry_json_watch(spry_memory_size);
    if (inspect(&settings, model, &error) != SPRY_OK)
        code = spry_complain_error(&error);
    return spry_out_finish(code);
}

/* ---- spry convert ------------------------------------------------------------------------------------------------ */

static const spry_usage convert_usage = {
    .command = "convert",
    .arguments = "MODEL FILE.gguf [options]",
    .about =
        "Writes MODEL as a GGUF file, its matrices in the given type; without --type F16, BF16 and F32 stay as they "
        "are. MODEL may also be a checkpoint of llama2.c, with its vocabulary after its weights or as tokenizer.bin "
        "beside it. Embedding and output of a 4- or 5-bit model have 8 bits.\n"
        "q4_k_m and q5_k_m use 6 bits (Q6_K) for the value and down projections of about half of the layers, the "
        "embedding and the output; at the same size they lose less than q4_0 and q5_0. mxfp4 has 4-bit floats for "
        "feed-forward matrices and experts, as gpt-oss has, and 8 bits elsewhere. Rows that are not a multiple "
        "of 256 use the next larger type with blocks of 32, others f16. Norms, biases and routers stay f32.\n"
        "The file appears under its name only when it is complete, and an existing one is replaced only with --force. "
        "llama.cpp can read it.",
    .examples = "spry convert ./Qwen3-0.6B qwen3.gguf --type q4_k_m\n"
                "spry convert model-f16.gguf model-q8.gguf --type q8_0",
};

typedef struct convert_flags {
    const char *type, *title, *lora;
    uint32_t threads;
    bool force;
} convert_flags;

static const spry_option options[] = {
    CONVERT_OPTION("type", CHOICE, type, .letter = 't', .choices = spry_recipe_names, .unset = "as in MODEL",
                   .help = "Type of the matrices"),
    CONVERT_OPTION("force", FLAG, force, .letter = 'f', .help = "Replace FILE if it exists"),
    CONVERT_OPTION("title", STRING, title, .metavar = "NAME",
                   .help = "Name of the model in the file; default: its current name"),
    CONVERT_OPTION(
        "lora", STRING, lora, .metavar = "PATH[=SCALE],...",
        .help = "LoRA adapters that become part of the matrices, times SCALE: Hugging Face folders or GGUF files"),
    CONVERT_OPTION("threads", U32, threads, .max = 1024,
                   .help = "Number of threads; 0: every processor available to this process"),
};

static bool show_progress(void *user, size_t done, size_t total)
{
    spry_progress_update(user, done, total);
    return true;
}

/* FILE does not exist, or may be replaced, and is not the model itself. */
static spry_status check_target(const spry_model_source *source, const char *path, bool force, spry_error *error)
{
    size_t bytes;
    int64_t modified;
    if (source->path && spry_path_same(source->path, path))
        return spry_fail(error, SPRY_ERR_INPUT, "%s is the model itself: choose another name for the result", path);
    if (!force && !spry_path_is_folder(path) && spry_path_facts(path, &bytes, &modified))
        return spry_fail(error, SPRY_ERR_INPUT, "%s exists: choose another name, or replace it with --force", path);
    return SPRY_OK;
}

static spry_status convert(const spry_model_source *source, const char *path, const convert_flags *flags,
                           spry_error *error)
{
    spry_progress_line progress;
    spry_convert_options how;
    const spry_model_file file = spry_model_source_file(source);
    spry_convert_options_default(&how);
    how.type = flags->type;
    spry_status status = check_target(source, path, flags->force, error);
    if (status != SPRY_OK)
        return status;
    how.name = flags->title;
    how.lora = flags->lora;
    how.threads = flags->threads;
    how.progress = show_progress;
    how.user = &progress;
    spry_progress_begin(&progress, "writing");
    status = spry_convert(path, &file, &how, error);
    spry_progress_end(&progress);
    size_t bytes;
    int64_t modified;
    spry_checkpoint written;
    if (status == SPRY_OK)
        status = spry_checkpoint_read(&written, &(spry_model_file){.path = path}, "auto", error);
    if (status == SPRY_OK && spry_path_facts(path, &bytes, &modified)) {
        char size[SPRY_AMOUNT_MAX];
        spry_out_quote("%s: %s, %s\n", path, spry_dtype_name((spry_dtype)written.main_type),
                       spry_amount_bytes(size, bytes));
    }
    return status;
}

int spry_cmd_convert(int argc, char **argv)
{
    convert_flags flags = {0};
    spry_model_flags model_flags = {0};
    const char *items[2];
    spry_option_list names = {items, 2, 0};
    spry_option_table tables[] = {{options, SPRY_COUNT(options), &flags}, spry_model_flags_table(&model_flags)};
    int code;
    if (!spry_usage_parse(&code, &convert_usage, tables, SPRY_COUNT(tables), &names, argc, argv))
        return code;
    if (names.count != 2)
        return spry_usage_wrong(&convert_usage, "convert needs a MODEL and the FILE to write");
    spry_error error = {0};
    spry_model_source source = {0};
    spry_status status = spry_model_source_find(&source, items[0], model_flags.models_folder, &error);
    if (!status)
        status = convert(&source, items[1], &flags, &error);
    spry_model_source_deinit(&source);
    return status ? spry_complain_error(&error) : spry_out_finish(SPRY_EXIT_OK);
}
