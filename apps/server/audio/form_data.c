#include "server/audio/form_data.h"

#include <stdio.h>
#include <strings.h>

#include "server/http/http_reply.h"

enum { PARSER_BYTES = 64 << 10 };

static enum MHD_Result on_part(void *cls, enum MHD_ValueKind kind, const char *key, const char *filename,
                               const char *type, const char *encoding, const char *data, uint64_t offset, size_t size)
{
    (void)kind, (void)filename, (void)type, (void)encoding;
    spry_form *form = cls;
    if (!key)
        return MHD_YES;
    spry_form_field *last = form->count ? &form->fields[form->count - 1] : NULL;
    if (offset == 0 || !last || strcmp(last->name, key) != 0) {
        if (form->count == SPRY_FORM_FIELDS || strlen(key) >= SPRY_FORM_NAME) {
            form->failed = true;
            return MHD_NO;
        }
        last = &form->fields[form->count++];
        snprintf(last->name, sizeof last->name, "%s", key);
        spry_buffer_init(&last->value, SIZE_MAX / 2);
    }
    form->failed = form->failed || !spry_buffer_append(&last->value, data, size);
    return form->failed ? MHD_NO : MHD_YES;
}

bool spry_form_open(spry_form *form, spry_exchange *x)
{
    *form = (spry_form){0};
    const char *type = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_TYPE);
    if (!type || strncasecmp(type, "multipart/form-data", 19) != 0) {
        spry_reply_error(x, MHD_HTTP_UNSUPPORTED_MEDIA_TYPE, NULL, "the body must be multipart/form-data");
        return false;
    }
    struct MHD_PostProcessor *parser = MHD_create_post_processor(x->connection, PARSER_BYTES, on_part, form);
    bool whole = parser && MHD_post_process(parser, x->body.data ? x->body.data : "", x->body.size) == MHD_YES;
    whole = parser && MHD_destroy_post_processor(parser) == MHD_YES && whole && !form->failed;
    if (!whole) {
        spry_form_close(form);
        spry_reply_error(x, MHD_HTTP_BAD_REQUEST, NULL, "the body is not a whole form of at most %d fields",
                         SPRY_FORM_FIELDS);
    }
    return whole;
}

void spry_form_close(spry_form *form)
{
    for (size_t i = 0; i < form->count; i++)
        spry_buffer_deinit(&form->fields[i].value);
    form->count = 0;
}

const spry_buffer *spry_form_get(const spry_form *form, const char *name)
{
    for (size_t i = 0; i < form->count; i++)
        if (strcmp(form->fields[i].name, name) == 0)
            return &form->fields[i].value;
    return NULL;
}
