/* The checkpoints with recorded results, and where they lie: with the project, or, the larger ones, beside it. */
#ifndef TESTS_GOLDEN_MODELS_H
#define TESTS_GOLDEN_MODELS_H

#include <stdbool.h>

/* Up to NULL. */
extern const char *const golden_models[];

/* The folder of a model. False, after a line that says SKIPPED, when it is not there. */
bool golden_folder(char path[512], const char *model);

#endif
