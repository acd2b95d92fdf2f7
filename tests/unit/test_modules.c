/* Modules: the module of the page, which is beside this program, one that there is not, and a symbol that there is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "platform/environment.h"

static void a_module_beside_the_program_is_found(void **state)
{
    (void)state;
    spry_error error = {0};
    assert_non_null(spry_module_symbol("spry_page", "spry_page_module", &error));
    assert_null(spry_module_symbol("spry_page", "spry_page_modules", &error));
    assert_non_null(strstr(error.message, "spry_page_modules"));
}

static void a_module_that_is_not_installed_is_named(void **state)
{
    (void)state;
    spry_error error = {0};
    assert_null(spry_module_symbol("spry_nothing", "anything", &error));
    assert_int_equal(error.status, SPRY_ERR_UNSUPPORTED);
    assert_string_equal(error.message, "spry_nothing.so is neither beside the program nor in the library's folder");
    assert_null(spry_module_symbol("spry_nothing", "anything", NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_module_beside_the_program_is_found),
        cmocka_unit_test(a_module_that_is_not_installed_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
