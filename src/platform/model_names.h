/* Models of a folder by name: NAME means NAME.gguf or, where it has a config.json or a split GGUF file, the folder NAME
 * in it. A name has no slash and does not begin with a dot, and what it means is in the folder, links followed: so no
 * name leaves it. A model that was pulled is also found by the names it was pulled by, such as hf:OWNER/REPO or the
 * catalogue's: the folder has a file for each, whose name is made from a hash. */
#ifndef SPRY_PLATFORM_MODEL_NAMES_H
#define SPRY_PLATFORM_MODEL_NAMES_H

#include "base/buffer.h"
#include "base/error.h"

enum { SPRY_MODEL_NAME_MAX = 127, SPRY_MODEL_PATH_MAX = 1023 };

/* Finds the file or folder that `name`, also with ".gguf", means: what it is called, and its real path. */
spry_status spry_model_name_find(char called[SPRY_MODEL_NAME_MAX + 1], char path[SPRY_MODEL_PATH_MAX + 1],
                                 const char *folder, const char *name, spry_error *error);

/* The file that holds the name of the model that `source` gave. */
enum { SPRY_MODEL_ORIGIN_MAX = 40 };
void spry_model_origin(char out[SPRY_MODEL_ORIGIN_MAX], const char *source);

/* The same in the user's models folder, then among the models that are installed with this library. */
spry_status spry_model_locate(char path[SPRY_MODEL_PATH_MAX + 1], const char *name, spry_error *error);

/* Replaces `path` with the first part of the split GGUF file that the folder holds; false: it holds none. */
bool spry_model_first_part(spry_buffer *path, const char *folder);

/* Calls `visit` with every name the folder has, in no order. Nothing where there is no folder. */
typedef void (*spry_model_name_visit)(void *context, const char *called, const char *path);
void spry_model_names_each(const char *folder, spry_model_name_visit visit, void *context);

/* Bytes of a model's file, or of the files in its folder, and when it was last written. */
void spry_model_file_facts(const char *path, size_t *bytes, int64_t *modified);

#endif
