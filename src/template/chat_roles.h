/* Instructions (messages of the roles system and developer) in the forms that chat templates accept. */
#ifndef SPRY_TEMPLATE_CHAT_ROLES_H
#define SPRY_TEMPLATE_CHAT_ROLES_H

#include <jansson.h>

#include "base/error.h"
#include "base/view.h"

/* In the order in which they are tried. */
typedef enum spry_chat_roles {
    SPRY_ROLES_MERGED,        /* instructions at the beginning become one message; developer becomes system where the
                               * template does not know it */
    SPRY_ROLES_LATER_AS_USER, /* in addition, instructions after it become text of the user */
    SPRY_ROLES_ALL_AS_USER,   /* all instructions become text of the user */
    SPRY_ROLES_FORMS
} spry_chat_roles;

/* The caller releases *out with json_decref. *differs: whether it differs from the previous form; of the first form,
 * from `messages`. `source`: of the template. */
spry_status spry_chat_roles_apply(json_t **out, bool *differs, const json_t *messages, spry_chat_roles roles,
                                  spry_view source, spry_error *error);

/* Whether a rendered text has the beginning of every instruction of `messages` that is not at their beginning:
 * templates may have no place for those. */
bool spry_chat_roles_rendered(const json_t *messages, spry_view text);

#endif
