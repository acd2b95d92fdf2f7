/* Filters, in two files: those of texts and numbers, and those of sequences. */
#ifndef SPRY_TEMPLATE_JINJA_FILTERS_H
#define SPRY_TEMPLATE_JINJA_FILTERS_H

#include "template/jinja_eval.h"

typedef spry_jinja_value spry_jinja_filter_call(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args);

typedef struct spry_jinja_filter_entry {
    const char *name;
    spry_jinja_filter_call *call;
} spry_jinja_filter_entry;

/* NULL: none of that name among the filters of sequences. */
spry_jinja_filter_call *spry_jinja_find_sequence_filter(spry_view name);

/* "a.b.0" as attributes of attributes; a whole number is an index. */
spry_jinja_value spry_jinja_attribute_path(spry_jinja_run *run, spry_jinja_value v, spry_jinja_value path);

#endif
