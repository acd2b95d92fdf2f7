/* Typed access to the fields of a request. The first field that is wrong is remembered with a sentence that names it;
 * what is read after that is the fallback. Fields that are absent or null have their fallback, unknown ones are
 * ignored. */
#ifndef SPRY_SERVER_API_FIELDS_H
#define SPRY_SERVER_API_FIELDS_H

#include <jansson.h>

#include "server/request/completion.h"

typedef struct spry_fields {
    const json_t *object;
    const char *within; /* "options.", or "" */
    char wrong[64];     /* the field; empty: none */
    spry_error error;
} spry_fields;

/* The body of a request as JSON. False when it is none, and a reply was given. `fields` borrows *root, which is the
 * caller's to json_decref. */
bool spry_fields_open(spry_fields *fields, json_t **root, spry_exchange *exchange);

/* True when nothing was wrong; otherwise replies. */
bool spry_fields_fine(const spry_fields *fields, spry_exchange *exchange);

/* Remembers a sentence about a field. */
void spry_fields_refuse(spry_fields *fields, const char *key, const char *format, ...) SPRY_PRINTF(3, 4);

/* NULL when absent or null. */
const json_t *spry_fields_get(const spry_fields *fields, const char *key);

bool spry_fields_bool(spry_fields *fields, const char *key, bool fallback);
int64_t spry_fields_integer(spry_fields *fields, const char *key, int64_t fallback, int64_t min, int64_t max);
/* Text without zero bytes. */
const char *spry_fields_string(spry_fields *fields, const char *key, const char *fallback);
const json_t *spry_fields_object(spry_fields *fields, const char *key); /* NULL: absent */
const json_t *spry_fields_array(spry_fields *fields, const char *key);  /* NULL: absent */

/* ---- what every interface has ------------------------------------------------------------------------------------ */

/* Temperature and the like, with logit_bias in the forms of OpenAI and of llama-server. */
void spry_fields_sampling(spry_fields *fields, spry_completion *completion);

/* "stop": a string or a list of them. */
void spry_fields_stop(spry_fields *fields, spry_completion *completion);

/* What the answer must look like: response_format, grammar, json_schema and vLLM's guided_... */
void spry_fields_constraint(spry_fields *fields, spry_completion *completion);

/* JSON text as a constraint; `what` is its field. */
void spry_fields_set_constraint(spry_fields *fields, spry_completion *completion, const char *what,
                                spry_constraint constraint, const json_t *value);

/* Messages as templates can take them. */
void spry_fields_messages(spry_fields *fields, const json_t *messages);

/* ---- from the body to the answer --------------------------------------------------------------------------------- */

/* The completion that a body asks for, of the model it names; NULL when a reply was given. Takes `root`. */
spry_completion *spry_fields_completion(spry_fields *fields, json_t *root, spry_exchange *exchange,
                                        const spry_answer_form *form, const char *id_prefix);

/* Makes the prompts and serves; replies what is wrong with fields or prompts instead. */
typedef spry_status (*spry_prompt_maker)(spry_completion *completion, spry_fields *fields, spry_error *error);
void spry_fields_serve(spry_fields *fields, spry_completion *completion, spry_prompt_maker make_prompts);

#endif
