/* JSON into values and values into JSON. */
#ifndef SPRY_TEMPLATE_JINJA_JSON_H
#define SPRY_TEMPLATE_JINJA_JSON_H

#include <jansson.h>

#include "template/jinja_value.h"

/* The value of a JSON tree that outlives the run; every string in it, keys too, is marked. */
spry_jinja_value spry_jinja_from_json(spry_jinja_run *run, const json_t *json);

typedef struct spry_jinja_json_style {
    bool ascii, sort;
    int64_t indent;      /* negative: everything on one line */
    spry_view item, key; /* separators; NULL: as json.dumps has them */
} spry_jinja_json_style;

/* As json.dumps writes it; fails for what JSON has no form for. */
spry_jinja_value spry_jinja_to_json(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_json_style *style);

#endif
