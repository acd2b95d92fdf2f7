/* A line is an instruction and its value; a value may be quoted, with three quotes over several lines. */
#include "server/api/modelfile.h"

#include <ctype.h>
#include <strings.h>

#include "base/buffer.h"
#include "base/number.h"

enum { MODELFILE_BYTES = 1 << 20 };

static spry_view trimmed(spry_view text)
{
    while (text.size && isspace((unsigned char)text.data[0]))
        text = (spry_view){text.data + 1, text.size - 1};
    while (text.size && isspace((unsigned char)text.data[text.size - 1]))
        text.size--;
    return text;
}

/* Takes the text up to `mark`, which is dropped, too. False: there is no such mark. */
static bool take_until(spry_view *rest, spry_view *out, spry_view mark)
{
    for (size_t i = 0; i + mark.size <= rest->size; i++)
        if (memcmp(rest->data + i, mark.data, mark.size) == 0) {
            *out = (spry_view){rest->data, i};
            *rest = (spry_view){rest->data + i + mark.size, rest->size - i - mark.size};
            return true;
        }
    return false;
}

static spry_view take_line(spry_view *rest)
{
    spry_view line;
    if (take_until(rest, &line, SPRY_VIEW("\n")))
        return line;
    line = *rest;
    *rest = (spry_view){rest->data + rest->size, 0};
    return line;
}

static spry_view take_word(spry_view *line)
{
    size_t n = 0;
    while (n < line->size && !isspace((unsigned char)line->data[n]))
        n++;
    spry_view word = {line->data, n};
    *line = trimmed((spry_view){line->data + n, line->size - n});
    return word;
}

/* The value that begins on `line` and may go on in `rest`. */
static bool take_value(spry_view *value, spry_view line, spry_view *rest)
{
    const spry_view quotes = SPRY_VIEW("\"\"\"");
    *value = line;
    if (spry_view_starts(line, quotes)) {
        spry_view from = {line.data + quotes.size, (size_t)(rest->data + rest->size - line.data) - quotes.size};
        bool closed = take_until(&from, value, quotes);
        *rest = from;
        return closed;
    }
    if (line.size > 1 && line.data[0] == '"' && line.data[line.size - 1] == '"')
        *value = (spry_view){line.data + 1, line.size - 2};
    return true;
}

/* A setting that occurs again becomes a list ("stop"). */
static void add_parameter(json_t *parameters, spry_view line)
{
    char name[64];
    double number;
    spry_view word = take_word(&line), none = {line.data + line.size, 0}, value;
    size_t size = word.size < sizeof name ? word.size : sizeof name - 1;
    memcpy(name, word.data, size);
    name[size] = '\0';
    (void)take_value(&value, line, &none);
    json_t *json = json_stringn(value.data, value.size), *before = json_object_get(parameters, name);
    if (strcmp(name, "stop") != 0 && spry_number_double(&number, value)) {
        json_decref(json);
        json = number == (double)(json_int_t)number ? json_integer((json_int_t)number) : json_real(number);
    } else if (spry_view_is(value, "true") || spry_view_is(value, "false")) {
        json_decref(json);
        json = json_boolean(spry_view_is(value, "true"));
    }
    if (json_is_array(before))
        json_array_append_new(before, json);
    else if (strcmp(name, "stop") == 0)
        json_object_set_new(parameters, name, json_pack("[o]", json));
    else
        json_object_set_new(parameters, name, json);
}

static bool is(spry_view word, const char *instruction)
{
    return word.size == strlen(instruction) && strncasecmp(word.data, instruction, word.size) == 0;
}

json_t *spry_modelfile_parse(spry_view text, spry_error *error)
{
    json_t *description = json_pack("{s:{}}", "parameters");
    spry_status status = SPRY_OK;
    while (text.size && status == SPRY_OK) {
        spry_view line = trimmed(take_line(&text)), word = take_word(&line), value;
        if (!word.size || word.data[0] == '#')
            continue;
        if (is(word, "PARAMETER"))
            add_parameter(json_object_get(description, "parameters"), line);
        else if (!is(word, "FROM") && !is(word, "SYSTEM") && !is(word, "TEMPLATE"))
            status = spry_fail(error, SPRY_ERR_INPUT,
                               "%.*s is not supported in a Modelfile; FROM, PARAMETER, SYSTEM and TEMPLATE are",
                               SPRY_VIEW_ARG(word));
        else if (!take_value(&value, line, &text))
            status = spry_fail(error, SPRY_ERR_INPUT, "the text of %.*s has no closing quotes", SPRY_VIEW_ARG(word));
        else
            json_object_set_new(description,
                                is(word, "FROM")     ? "from"
                                : is(word, "SYSTEM") ? "system"
                                                     : "template",
                                json_stringn(value.data, value.size));
    }
    if (status == SPRY_OK)
        return description;
    json_decref(description);
    return NULL;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void print_value(spry_buffer *out, const char *before, const char *name, const json_t *value)
{
    size_t i;
    const json_t *item;
    if (json_is_string(value))
        spry_buffer_format(out, "%s%s \"%s\"\n", before, name, json_string_value(value));
    else if (json_is_integer(value))
        spry_buffer_format(out, "%s%s %" JSON_INTEGER_FORMAT "\n", before, name, json_integer_value(value));
    else if (json_is_real(value))
        spry_buffer_format(out, "%s%s %.9g\n", before, name, json_real_value(value));
    else if (json_is_boolean(value))
        spry_buffer_format(out, "%s%s %s\n", before, name, json_is_true(value) ? "true" : "false");
    json_array_foreach(value, i, item) print_value(out, before, name, item);
}

static void print_parameters(spry_buffer *out, const json_t *description, const char *before)
{
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(description, "parameters"), name, value) print_value(out, before, name, value);
}

static json_t *string_of(spry_buffer *text)
{
    json_t *json = json_stringn(spry_buffer_view(text).data, text->size);
    spry_buffer_deinit(text);
    return json;
}

json_t *spry_modelfile_parameters(const json_t *description)
{
    spry_buffer out;
    spry_buffer_init(&out, MODELFILE_BYTES);
    print_parameters(&out, description, "");
    return string_of(&out);
}

json_t *spry_modelfile_text(const json_t *description)
{
    static const char *const texts[][2] = {{"system", "SYSTEM"}, {"template", "TEMPLATE"}};
    spry_buffer out;
    spry_buffer_init(&out, MODELFILE_BYTES);
    const char *from = json_string_value(json_object_get(description, "from"));
    spry_buffer_format(&out, "FROM %s\n", from ? from : "");
    print_parameters(&out, description, "PARAMETER ");
    for (size_t i = 0; i < SPRY_COUNT(texts); i++) {
        const char *text = json_string_value(json_object_get(description, texts[i][0]));
        if (text && *text)
            spry_buffer_format(&out, "%s \"\"\"%s\"\"\"\n", texts[i][1], text);
    }
    return string_of(&out);
}
