/* The fields of every request body, as data. One table checks requests, makes the list in docs/SERVER.md
 * (`spry help --fields`) and drives the test that sends every field.
 *
 * No field is ignored in silence: one that is not in the table of its path is refused by name, and so is one that the
 * table refuses, unless its value means the same as leaving it out. null always means that. */
#ifndef SPRY_SERVER_FIELD_TABLE_H
#define SPRY_SERVER_FIELD_TABLE_H

#include "base/buffer.h"
#include "server/request/request_fields.h"

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
    SPRY_FIELD_HONOURED, /* it has its effect */
    SPRY_FIELD_ACCEPTED, /* it has no effect here, and `about` says why */
    SPRY_FIELD_REFUSED,  /* status 400 */
} spry_field_use;

typedef struct spry_field {
    const char *name;
    unsigned types;
    spry_field_use use;
    const char *example; /* JSON: a value that works or, of a refused field, one that is refused */
    const char *about;
    const char *neutral; /* of a refused field: JSON list of values that mean the same as leaving it out; NULL: none */
} spry_field;

typedef struct spry_field_group {
    const spry_field *fields;
    size_t count;
} spry_field_group;

enum { SPRY_FIELD_GROUPS = 5 };

typedef struct spry_field_table {
    const char *title;                            /* of the list in the documentation: its paths */
    const char *within;                           /* prefix of the names: "options."; "" */
    spry_field_group groups[SPRY_FIELD_GROUPS];   /* those without a count are empty */
    const struct spry_field_table *const *inside; /* NULL-terminated tables of objects inside the body; NULL: none */
} spry_field_table;

#define SPRY_FIELD_GROUP(list)                                                                                         \
    {                                                                                                                  \
        (list), SPRY_COUNT(list)                                                                                       \
    }

/* spry's own, on every path that answers. */
enum { SPRY_OWN_FIELDS = 5 };
extern const spry_field spry_own_fields[SPRY_OWN_FIELDS];

extern const spry_field_table spry_fields_openai_chat, spry_fields_openai_completion, spry_fields_openai_embeddings,
    spry_fields_responses, spry_fields_anthropic, spry_fields_anthropic_count, spry_fields_llama_completion,
    spry_fields_ollama_chat, spry_fields_ollama_generate, spry_fields_ollama_embed, spry_fields_ollama_create,
    spry_fields_llama_infill, spry_fields_llama_tokenize, spry_fields_llama_detokenize, spry_fields_rerank,
    spry_fields_chats, spry_fields_model_state, spry_fields_model_pin, spry_fields_tool_call;

/* Refuses the first field that is unknown, refused or of the wrong type. */
void spry_fields_check(spry_fields *fields, const spry_field_table *table);

/* Prints the lists of all tables as Markdown. */
void spry_fields_print(spry_buffer *out);

#endif
