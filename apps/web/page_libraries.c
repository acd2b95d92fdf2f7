#include "web/web_page.h"

#include <pthread.h>

#include "platform/environment.h"

static const spry_page_libraries none = {.chart = ""}, *libraries = &none;

static void open_module(void)
{
    const spry_page_libraries *found = spry_module_symbol("spry_page", "spry_page_module", NULL);
    if (found)
        libraries = found;
}

const spry_page_libraries *spry_page_libraries_get(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_module);
    return libraries;
}
