/* Times, names and durations in Ollama's form. */
#include "server/api/ollama_json.h"

#include <stdio.h>
#include <time.h>

#include "base/number.h"

static void print_time(char out[SPRY_OLLAMA_TIME], struct timespec when)
{
    struct tm utc;
    time_t seconds = when.tv_sec;
    if (!gmtime_r(&seconds, &utc))
        utc = (struct tm){.tm_mday = 1, .tm_year = 70};
    size_t n = strftime(out, SPRY_OLLAMA_TIME, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(out + n, SPRY_OLLAMA_TIME - n, ".%06ldZ", (long)(when.tv_nsec / 1000 % 1000000));
}

void spry_ollama_now(char out[SPRY_OLLAMA_TIME])
{
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    print_time(out, now);
}

void spry_ollama_time(char out[SPRY_OLLAMA_TIME], int64_t seconds)
{
    print_time(out, (struct timespec){.tv_sec = (time_t)seconds});
}

const char *spry_ollama_model(char out[SPRY_OLLAMA_NAME], const char *name)
{
    spry_view view = spry_view_of(name), tag = SPRY_VIEW(":latest");
    if (spry_view_ends(view, tag))
        view.size -= tag.size;
    snprintf(out, SPRY_OLLAMA_NAME, "%.*s", (int)(view.size < SPRY_OLLAMA_NAME ? view.size : SPRY_OLLAMA_NAME - 1),
             view.data);
    return out;
}

bool spry_ollama_template_thinks(spry_view source)
{
    static const char *const words[] = {"enable_thinking", "<think>", "reasoning_effort"};
    for (size_t i = 0; i < SPRY_COUNT(words); i++)
        if (source.size && memmem(source.data, source.size, words[i], strlen(words[i])))
            return true;
    return false;
}

bool spry_ollama_thinks(const spry_engine *engine)
{
    spry_view source;
    source.data = spry_engine_chat_template(engine, false, &source.size);
    return spry_ollama_template_thinks(source);
}

/* ---- durations --------------------------------------------------------------------------------------------------- */

static bool read_unit(spry_view *text, double *seconds)
{
    static const struct {
        const char *name;
        double seconds;
    } units[] = {{"ns", 1e-9}, {"us", 1e-6}, {"\xc2\xb5s", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}};
    for (size_t i = 0; i < SPRY_COUNT(units); i++) {
        spry_view name = spry_view_of(units[i].name);
        if (spry_view_starts(*text, name)) {
            *text = (spry_view){text->data + name.size, text->size - name.size};
            *seconds = units[i].seconds;
            return true;
        }
    }
    return false;
}

/* Numbers with units in sequence; a number without a unit means seconds. */
static bool read_duration(double *seconds, spry_view text)
{
    double sum = 0, number, unit;
    bool negative = spry_view_starts(text, SPRY_VIEW("-")), whole = spry_number_double(seconds, text);
    if (whole)
        return true;
    if (negative)
        text = (spry_view){text.data + 1, text.size - 1};
    do {
        size_t digits = 0;
        while (digits < text.size &&
               (text.data[digits] == '.' || (text.data[digits] >= '0' && text.data[digits] <= '9')))
            digits++;
        if (!spry_number_double(&number, (spry_view){text.data, digits}))
            return false;
        text = (spry_view){text.data + digits, text.size - digits};
        if (!read_unit(&text, &unit))
            return false;
        sum += number * unit;
    } while (text.size);
    *seconds = negative ? -sum : sum;
    return true;
}

bool spry_ollama_keep_alive(spry_fields *fields, double *seconds)
{
    const json_t *value = spry_fields_get(fields, "keep_alive");
    if (!value)
        return false;
    *seconds = json_number_value(value);
    if (json_is_number(value) ||
        (json_is_string(value) &&
         read_duration(seconds, (spry_view){json_string_value(value), json_string_length(value)})))
        return true;
    spry_fields_refuse(fields, "keep_alive", "keep_alive must be seconds or a duration such as \"5m\"");
    return false;
}
