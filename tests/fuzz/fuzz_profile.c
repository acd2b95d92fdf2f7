/* Any bytes as a profile of machines: it is read, or refused with a sentence. "THIS-MACHINE" is this machine's id, so
 * that its settings are used, too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli/common_options.h"
#include "cli/settings_profile.h"
#include "server/server_setup.h"
#include "support/scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char place_holder[] = "THIS-MACHINE";
static scratch place;

static void leave(void)
{
    (void)spry_settings_profile_load("none", false, NULL);
    scratch_deinit(&place);
}

static void use(void)
{
    spry_server_flags flags;
    spry_option_table tables[SPRY_SERVER_FLAG_TABLES];
    spry_error error;
    spry_buffer in_force;
    spry_server_flags_default(&flags);
    spry_server_flags_tables(tables, &flags);
    if (spry_settings_profile_apply(tables, SPRY_SERVER_FLAG_TABLES, "serve", false, &error) != SPRY_OK)
        return;
    spry_buffer_init(&in_force, 1 << 16);
    spry_settings_profile_in_force(&in_force, tables, SPRY_SERVER_FLAG_TABLES, "serve");
    spry_buffer_deinit(&in_force);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    spry_error error;
    spry_buffer text;
    if (!place.folder[0]) {
        scratch_init(&place);
        atexit(leave);
        if (spry_settings_profile_load("none", false, &error) != SPRY_OK)
            abort();
    }
    char id[SPRY_MACHINE_ID];
    snprintf(id, sizeof id, "%s", spry_settings_profile_get()->id);
    spry_buffer_init(&text, 1 << 20);
    for (size_t i = 0; i < size;) {
        bool here = size - i >= sizeof place_holder - 1 && !memcmp(data + i, place_holder, sizeof place_holder - 1);
        if (here)
            spry_buffer_text(&text, id);
        else
            spry_buffer_append(&text, data + i, 1);
        i += here ? sizeof place_holder - 1 : 1;
    }
    const char *path = scratch_write(&place, "profile.json", spry_buffer_view(&text).data, text.size);
    if (spry_settings_profile_load(path, false, &error) == SPRY_OK)
        use();
    spry_buffer_deinit(&text);
    return 0;
}
