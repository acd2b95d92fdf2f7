/* Any bytes as the body of a multipart form: its fields are in the body, or it is refused. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/http/form_data.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    spry_form form;
    char *body = malloc(size + 1);
    if (!body)
        return 0;
    memcpy(body, data, size);
    body[size] = '\0';
    if (spry_form_split(&form, "multipart/form-data; boundary=b", body, size))
        for (size_t i = 0; i < form.count; i++) {
            spry_view value = form.fields[i].value;
            if (value.data < body || value.size > size || value.data + value.size > body + size)
                abort();
        }
    free(body);
    return 0;
}
