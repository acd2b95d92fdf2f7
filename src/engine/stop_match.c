/* The earliest stop string wins; of a partial match, the earliest start. */
#include "engine/stop_match.h"

size_t spry_stop_match(bool *found, spry_view text, const char *const *stop, size_t n_stop, bool whole)
{
    *found = false;
    for (size_t at = 0; at < text.size; at++) {
        spry_view rest = {text.data + at, text.size - at};
        bool partial = false;
        for (size_t i = 0; i < n_stop; i++) {
            spry_view wanted = spry_view_of(stop[i]);
            *found = *found || (wanted.size && spry_view_starts(rest, wanted));
            partial = partial || (!whole && rest.size < wanted.size && spry_view_starts(wanted, rest));
        }
        if (*found || partial)
            return at;
    }
    return text.size;
}
