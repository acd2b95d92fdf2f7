/* Parts of the library that need a library of their own, in files that are opened only when asked for. */
#ifndef SPRY_PLATFORM_MODULE_H
#define SPRY_PLATFORM_MODULE_H

#include "base/error.h"

/* A symbol of the module `name`, which stays open. It lies beside the program, or in the library folder of the tree
 * that the program was installed to. NULL: there is none, and the error says why. */
void *spry_module_symbol(const char *name, const char *symbol, spry_error *error);

#endif
