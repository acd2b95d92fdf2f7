/* Conversion between JSON and values. */
#ifndef SPRY_TEMPLATE_JINJA_JSON_H
#define SPRY_TEMPLATE_JINJA_JSON_H

#include <jansson.h>

#include "template/jinja_value.h"

/* The value of a JSON tree that outlives the run; every string, including keys, is marked. */
spry_jinja_value spry_jinja_from_json(spry_jinja_run *run, const json_t *json);

typedef struct spry_jinja_json_style {
    bool ascii, sort;
    int64_t indent;      /* negative: on one line */
    spry_view item, key; /* separators; NULL: those of json.dumps */
} spry_jinja_json_style;

/* Writes JSON like json.dumps; fails for values without a JSON form. */
spry_jinja_value spry_jinja_to_json(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_json_style *style);

#endif
