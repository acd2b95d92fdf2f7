/* Filters, in two files: for texts and numbers, and for sequences. */
#ifndef SPRY_TEMPLATE_JINJA_FILTERS_H
#define SPRY_TEMPLATE_JINJA_FILTERS_H

#include "template/jinja_eval.h"

typedef spry_jinja_value spry_jinja_filter_call(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args);

typedef struct spry_jinja_filter_entry {
    const char *name;
    spry_jinja_filter_call *call;
} spry_jinja_filter_entry;

/* NULL: not a sequence filter. */
spry_jinja_filter_call *spry_jinja_find_sequence_filter(spry_view name);

/* "a.b.0": attributes of attributes; an integer is an index. */
spry_jinja_value spry_jinja_attribute_path(spry_jinja_run *run, spry_jinja_value v, spry_jinja_value path);

#endif
