/* The checkpoints with recorded results (tests/data/models). */
#ifndef TESTS_GOLDEN_MODELS_H
#define TESTS_GOLDEN_MODELS_H

#include <stdbool.h>

/* Up to NULL. */
extern const char *const golden_models[];

/* Those with a head that drafts. */
extern const char *const golden_heads[];

/* Those with recurrent layers. */
extern const char *const golden_recurrent[];

/* Whether some of its layers have a recurrent state: text after other text gives other states, so fragments are plain
 * text. */
bool golden_recurs(const char *model);

/* NULL; or only this model is tested. */
extern const char *golden_only;

/* Writes the folder of a model to `path` and returns true; fails the running test when there is none. False: another
 * model is tested. */
bool golden_folder(char path[512], const char *model);

#endif
