/* Writes measurements as a page and as Markdown. */
#include "report/report_page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* page.S */
extern const char spry_report_css[], spry_report_js[], spry_report_library[];

/* ---- the page ---------------------------------------------------------------------------------------------------- */

/* The data cannot end its element, since '<' is escaped; and nothing on the page can reach the network. */
void spry_report_page(spry_buffer *out, const json_t *data)
{
    char *json = json_dumps(data, JSON_COMPACT | JSON_REAL_PRECISION(12));
    out->failed |= !json;
    spry_buffer_text(out, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; base-uri 'none'; "
                          "form-action 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'\">\n"
                          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                          "<title>Report</title>\n<style>\n");
    spry_buffer_text(out, spry_report_css);
    spry_buffer_text(out, "</style></head>\n<body><noscript>This page needs JavaScript.</noscript>\n"
                          "<script type=\"application/json\" id=\"data\">");
    for (const char *at = json, *end; at && *at; at = end) {
        end = at + strcspn(at, "<");
        spry_buffer_append(out, at, (size_t)(end - at));
        if (*end == '<' && end++)
            spry_buffer_text(out, "\\u003c");
    }
    free(json);
    spry_buffer_text(out, "</script>\n<script>\n");
    spry_buffer_text(out, spry_report_library);
    spry_buffer_text(out, "\n</script>\n<script>\n");
    spry_buffer_text(out, spry_report_js);
    spry_buffer_text(out, "</script></body></html>\n");
}

/* ---- Markdown ---------------------------------------------------------------------------------------------------- */

/* The label of an item of a list: the values that identify it, or its index. */
static void label(spry_buffer *path, const json_t *item, size_t index)
{
    static const char *const keys[] = {"tokens", "depth", "batch", "op", "part", "turn", "request", "shape", "type"};
    bool any = false;
    for (size_t i = 0; i < SPRY_COUNT(keys); i++) {
        const json_t *value = json_object_get(item, keys[i]);
        if (json_is_string(value))
            spry_buffer_format(path, "%s%s", any ? "," : "[", json_string_value(value));
        else if (json_is_number(value))
            spry_buffer_format(path, "%s%.0f", any ? "," : "[", json_number_value(value));
        any |= json_is_string(value) || json_is_number(value);
    }
    if (any)
        spry_buffer_text(path, "]");
    else
        spry_buffer_format(path, "[%zu]", index);
}

/* Adds every value to rows, {path: {name of the file: value}}. */
static void flatten(json_t *rows, const char *name, const json_t *json, spry_buffer *path)
{
    const size_t before = path->size;
    const char *key;
    json_t *value;
    size_t i;
    if (json_is_object(json) || json_is_array(json)) {
        json_object_foreach((json_t *)json, key, value) if (*key != '_')
        {
            spry_buffer_format(path, "%s%s", before ? "." : "", key);
            flatten(rows, name, value, path);
            path->data[path->size = before] = '\0';
        }
        json_array_foreach(json, i, value)
        {
            label(path, value, i);
            flatten(rows, name, value, path);
            path->data[path->size = before] = '\0';
        }
        return;
    }
    while (json_object_get(json_object_get(rows, path->data), name)) /* two ops of the same name */
        spry_buffer_text(path, "'");
    if (!json_object_get(rows, path->data))
        json_object_set_new(rows, path->data, json_object());
    json_object_set(json_object_get(rows, path->data), name, (json_t *)json);
}

static void write_text(spry_buffer *out, const char *text)
{
    for (; *text; text++) {
        if (strchr("\\`*_[]<>|&#~", *text))
            spry_buffer_append(out, "\\", 1);
        spry_buffer_append(out, (unsigned char)*text < ' ' ? " " : text, 1);
    }
    spry_buffer_text(out, "|");
}

static void write_row(spry_buffer *out, const json_t *files, const char *path, const json_t *values)
{
    double first = NAN;
    spry_buffer_text(out, "|");
    write_text(out, path);
    for (size_t i = 0; i < json_array_size(files); i++) {
        const char *name = json_string_value(json_object_get(json_array_get(files, i), "_name"));
        const json_t *value =
            values ? json_object_get(values, name) : json_object_get(json_array_get(files, i), "_name");
        const double number = json_number_value(value);
        if (!json_is_number(value)) {
            write_text(out, json_is_string(value)  ? json_string_value(value)
                            : json_is_true(value)  ? "yes"
                            : json_is_false(value) ? "no"
                                                   : "–");
            continue;
        }
        spry_buffer_format(out, "%.6g", number);
        if (first > 0 && isfinite(number / first))
            spry_buffer_format(out, " (%.2f×)", number / first);
        spry_buffer_text(out, "|");
        first = i ? first : number;
    }
    spry_buffer_text(out, "\n");
}

void spry_report_markdown(spry_buffer *out, const json_t *files)
{
    json_t *rows = json_object(), *values;
    spry_buffer path;
    const char *key;
    spry_buffer_init(&path, 1 << 16);
    for (size_t i = 0; i < json_array_size(files); i++)
        flatten(rows, json_string_value(json_object_get(json_array_get(files, i), "_name")), json_array_get(files, i),
                &path);
    out->failed |= path.failed || !rows;
    write_row(out, files, "Value", NULL);
    spry_buffer_text(out, "|---|");
    for (size_t i = 0; i < json_array_size(files); i++)
        spry_buffer_text(out, "---:|");
    spry_buffer_text(out, "\n");
    json_object_foreach(rows, key, values) write_row(out, files, key, values);
    spry_buffer_deinit(&path);
    json_decref(rows);
}
