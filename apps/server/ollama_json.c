/* Times and names as Ollama writes them. */
#include "ollama_json.h"

#include <stdio.h>
#include <time.h>

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
