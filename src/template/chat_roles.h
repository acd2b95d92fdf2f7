/* Instructions (messages of the roles system and developer) in the forms that chat templates accept. */
#ifndef SPRY_TEMPLATE_CHAT_ROLES_H
#define SPRY_TEMPLATE_CHAT_ROLES_H

#include <jansson.h>

#include "base/error.h"
#include "base/view.h"

/* The forms are tried in this order. */
typedef enum spry_chat_roles {
    SPRY_ROLES_MERGED,        /* instructions at the beginning become one message; the role developer becomes system if
                               * the template does not know it */
    SPRY_ROLES_LATER_AS_USER, /* also, later instructions become text of the user, as do messages of roles that few
                               * templates know; those of "ai" and "model" become the assistant's */
    SPRY_ROLES_ALL_AS_USER,   /* all instructions become text of the user */
    SPRY_ROLES_FORMS
} spry_chat_roles;

/* Applies a form; the caller releases *out with json_decref. *differs: the result differs from that of the previous
 * form, or for the first form from `messages`. `source`: source text of the template. */
spry_status spry_chat_roles_apply(json_t **out, bool *differs, const json_t *messages, spry_chat_roles roles,
                                  spry_view source, spry_error *error);

/* True if a rendered text contains the beginning of every instruction in `messages` that is not among the first
 * messages, and of every message of a role that few templates know: templates may omit these. */
bool spry_chat_roles_rendered(const json_t *messages, spry_view text);

#endif
