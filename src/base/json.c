/* Parsing by jansson. */
#include "base/json.h"

spry_status spry_json_object(json_t **out, spry_view text, spry_error *error)
{
    const size_t flags = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL;
    json_error_t why;
    *out = json_loadb(text.data, text.size, flags, &why);
    if (!*out && json_error_code(&why) == json_error_numeric_overflow)
        *out = json_loadb(text.data, text.size, flags | JSON_DECODE_INT_AS_REAL, &why);
    if (json_is_object(*out))
        return SPRY_OK;
    bool parsed = *out;
    json_decref(*out);
    *out = NULL;
    if (parsed)
        return spry_fail(error, SPRY_ERR_FORMAT, "not a JSON object");
    return spry_fail(error, SPRY_ERR_FORMAT, "not valid JSON at line %d, column %d: %s", why.line, why.column,
                     why.text);
}
