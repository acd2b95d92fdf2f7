/* Fields of spry's own, on every path that answers. */
#include "server/fields/field_row.h"

const spry_field spry_own_fields[SPRY_OWN_FIELDS] = {
    HONOURED("priority", STRING, "\"batch\"",
             "`interactive` (default), or `batch`: it gives way to requests that are not"),
};
