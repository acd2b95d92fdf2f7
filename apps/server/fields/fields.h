/* The fields of a request's body: read one by one, and by tables.
 *
 * The first field that is wrong is stored with a sentence that names it; later reads return their fallback. A field
 * that is absent or null has its fallback. */
#ifndef SPRY_SERVER_FIELDS_FIELDS_H
#define SPRY_SERVER_FIELDS_FIELDS_H

#include <jansson.h>

#include "base/buffer.h"
#include "base/options.h"
#include "server/http/exchange.h"

typedef struct spry_fields {
    const json_t *object;
    const char *within; /* the prefix of names in messages: "options.", or "" */
    char wrong[64];     /* the first wrong field; empty: none */
    spry_error error;
    spry_buffer *ignored; /* takes the names of what is accepted and not used; NULL: such things are refused */
} spry_fields;

struct spry_field_table;

/* Reads the body, whose values take memory of --request-memory. The caller owns *root. */
spry_status spry_fields_parse(json_t **root, spry_exchange *exchange, spry_error *error);

/* Parses the body and checks its fields by the table (NULL: none). Fields that no row names are ignored by name, or
 * with --strict refused. False when the body is not a JSON object, and a reply was given. `fields` borrows *root, which
 * the caller owns. */
bool spry_fields_open(spry_fields *fields, json_t **root, spry_exchange *exchange,
                      const struct spry_field_table *table);

/* True when no field was wrong; otherwise replies. */
bool spry_fields_fine(const spry_fields *fields, spry_exchange *exchange);

/* Stores a sentence about a wrong field. */
void spry_fields_refuse(spry_fields *fields, const char *key, const char *format, ...) SPRY_PRINTF(3, 4);

/* Stores that there is not enough memory for a field, which is no fault of the request. */
void spry_fields_refuse_memory(spry_fields *fields, const char *key);

/* Stores that a field has the wrong type; `wanted`: "a string". */
void spry_fields_refuse_type(spry_fields *fields, const char *key, const json_t *value, const char *wanted);

/* Accepts a part of the body that nothing uses, and names it in x-spry-ignored, the log and /watch; with --strict,
 * field `key` is refused. `why` completes the sentence "NAME: ...". */
void spry_fields_ignore(spry_fields *fields, const char *key, const char *name, const char *why);

/* NULL when absent or null. */
const json_t *spry_fields_get(const spry_fields *fields, const char *key);

bool spry_fields_bool(spry_fields *fields, const char *key, bool fallback);
int64_t spry_fields_integer(spry_fields *fields, const char *key, int64_t fallback, int64_t min, int64_t max);
/* Text without zero bytes. */
const char *spry_fields_string(spry_fields *fields, const char *key, const char *fallback);
const json_t *spry_fields_object(spry_fields *fields, const char *key); /* NULL: absent */
const json_t *spry_fields_array(spry_fields *fields, const char *key);  /* NULL: absent */

/* "tools", a list of bounded length; NULL: absent. */
const json_t *spry_fields_tools(spry_fields *fields);

/* "an object", "a list", ... */
const char *spry_fields_type_name(const json_t *value);

/* Brings messages into the one form that templates expect, whatever form of it the client sends, and refuses what is no
 * message. Parts of the history that are no text are replaced by a sentence, and ignored by name. */
void spry_fields_messages(spry_fields *fields, const json_t *messages);

/* ---- tables ------------------------------------------------------------------------------------------------------ */

/* The fields of every request body, as data. A row has the name, types, range, meaning and storage of a field. The same
 * row checks the field, stores its value, and makes the list in docs/API_FIELDS.md (`spry help --fields`), from which a
 * test sends every field.
 *
 * No field is ignored in silence: a field that is not in the table of its path is named in the reply's header
 * x-spry-ignored, or with --strict refused. A field that the table refuses would change the meaning of the request: it
 * is refused by name, unless its value means the same as leaving it out. null always means that. */

/* Types of a value, or-ed. A whole number is also a number. */
enum {
    SPRY_TYPE_BOOL = 1,
    SPRY_TYPE_INTEGER = 2,
    SPRY_TYPE_NUMBER = 4,
    SPRY_TYPE_STRING = 8,
    SPRY_TYPE_LIST = 16,
    SPRY_TYPE_OBJECT = 32,
};

typedef enum spry_field_use {
    SPRY_FIELD_HONOURED, /* the field has an effect */
    SPRY_FIELD_ACCEPTED, /* the field has no effect, and `about` says why */
    SPRY_FIELD_REFUSED,  /* status 400 */
} spry_field_use;

struct spry_field;

/* Stores the value of a field, which is not null, in `target`, or refuses it. */
typedef void (*spry_field_reader)(void *target, spry_fields *fields, const struct spry_field *field,
                                  const json_t *value);

typedef struct spry_field {
    const char *name;
    unsigned types;
    spry_field_use use;
    const char *example; /* JSON: a value that works or, of a refused field, one that is refused */
    const char *about;
    const char *neutral;    /* of a refused field: JSON list of values that are accepted; NULL: none */
    const char *chat;       /* the field of chat completions with the same meaning, for other interfaces; NULL: none */
    spry_field_reader read; /* NULL: the code of the path reads the field */
    size_t offset;          /* offset of the member in which `read` stores the value */
    int64_t min, max;       /* range of a whole number; `min` of a constraint: its kind */
    const char *const *words; /* texts that are allowed, the last NULL; NULL: any text */
} spry_field;

typedef struct spry_field_group {
    const spry_field *fields;
    size_t count;
} spry_field_group;

enum { SPRY_FIELD_GROUPS = 5 };

typedef struct spry_field_table {
    const char *title;  /* heading of the list in the documentation: the paths of the interface */
    const char *within; /* prefix of the names: "options."; "" */
    spry_field_group groups[SPRY_FIELD_GROUPS];   /* groups without a count are empty */
    spry_option_table (*options)(void *target);   /* options whose JSON keys are fields, too; NULL: none */
    const char *const *only;                      /* keys of these options, the last NULL; NULL: all keys */
    const struct spry_field_table *const *inside; /* NULL-terminated tables of objects inside the body; NULL: none */
    const struct spry_field_place *places;        /* members.c: of objects further inside; NULL: none */
} spry_field_table;

/* The members of objects at one place of a body, such as "tools.function"; lists are passed through. Objects at places
 * that are not listed have any members, as schemas and arguments have. */
typedef struct spry_field_place {
    const char *name;    /* the last one of a list: NULL */
    const char *members; /* names with blanks between them */
    const char *types;   /* values of "type" that have these members; others are named elsewhere; NULL: all */
} spry_field_place;

extern const spry_field_place spry_places_chat[], spry_places_anthropic[], spry_places_responses[],
    spry_places_ollama[];

/* Names every member that no place has (spry_fields_ignore), with its place. */
void spry_fields_check_members(spry_fields *fields, const spry_field_place *places);

#define SPRY_FIELD_GROUP(list)                                                                                         \
    {                                                                                                                  \
        (list), SPRY_COUNT(list)                                                                                       \
    }

extern const spry_field_table spry_fields_openai_chat, spry_fields_openai_completion, spry_fields_openai_embeddings,
    spry_fields_responses, spry_fields_anthropic, spry_fields_anthropic_count, spry_fields_llama_completion,
    spry_fields_ollama_chat, spry_fields_ollama_generate, spry_fields_ollama_options, spry_fields_ollama_embed,
    spry_fields_ollama_create, spry_fields_llama_infill, spry_fields_llama_tokenize, spry_fields_llama_detokenize,
    spry_fields_rerank, spry_fields_chats, spry_fields_model_state, spry_fields_model_pin, spry_fields_tool_call;

/* The row of a field; NULL: there is none. */
const spry_field *spry_fields_find(const spry_field_table *table, const char *name);

/* Refuses the first field that is refused or of the wrong type, and ignores or refuses unknown ones. */
void spry_fields_check(spry_fields *fields, const spry_field_table *table);

/* Stores the fields of the table in `target`, in the order of its rows. Absent fields leave their members as they are.
 */
void spry_fields_read(void *target, spry_fields *fields, const spry_field_table *table);

/* Readers. The member is a bool; a bool that gets the opposite; uint32_t; const char *, borrowed from the body; an
 * unsigned char that gets the index of the text among `words`; const json_t *, borrowed. */
void spry_read_bool(void *target, spry_fields *fields, const spry_field *field, const json_t *value);
void spry_read_not(void *target, spry_fields *fields, const spry_field *field, const json_t *value);
void spry_read_u32(void *target, spry_fields *fields, const spry_field *field, const json_t *value);
void spry_read_text(void *target, spry_fields *fields, const spry_field *field, const json_t *value);
void spry_read_word(void *target, spry_fields *fields, const spry_field *field, const json_t *value);
void spry_read_json(void *target, spry_fields *fields, const spry_field *field, const json_t *value);

/* The name that a field or option of the table has in chat completions; NULL: none. */
const char *spry_fields_chat_name(const spry_field_table *table, const char *name);

/* Copies the fields that chat completions have, too, to a body of chat completions. */
void spry_fields_copy(json_t *chat_body, const spry_fields *fields, const spry_field_table *table);

/* Prints the lists of all tables as Markdown. */
void spry_fields_print(spry_buffer *out);

#endif
