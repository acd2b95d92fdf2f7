/* The constraint given by --json-schema, --grammar, --regex or --choice. */
#ifndef SPRY_APPS_ANSWER_SHAPE_H
#define SPRY_APPS_ANSWER_SHAPE_H

#include "base/buffer.h"
#include "cli/common_options.h"

/* The constraint and its text, read from a file if it names one. At most one of the flags may be given. */
spry_status spry_answer_shape(spry_constraint *constraint, spry_buffer *text, const spry_answer_flags *flags,
                              spry_error *error);

#endif
