/* Resolves references against base URIs (RFC 3986). Nothing is fetched: URIs are only names. */
#include "grammar/schema/schema.h"

#include "base/buffer.h"

/* Length of "scheme:", or 0. */
static size_t scheme_size(spry_view uri)
{
    for (size_t i = 0; i < uri.size; i++) {
        char c = uri.data[i];
        if (c == ':')
            return i ? i + 1 : 0;
        if (c == '/' || c == '?')
            return 0;
    }
    return 0;
}

/* Length of "scheme://authority". */
static size_t authority_end(spry_view uri)
{
    size_t at = scheme_size(uri);
    if (!spry_view_starts((spry_view){uri.data + at, uri.size - at}, SPRY_VIEW("//")))
        return at;
    for (at += 2; at < uri.size && uri.data[at] != '/' && uri.data[at] != '?';)
        at++;
    return at;
}

/* Appends a path and resolves "." and ".."; `start` is where the path begins in `out`. */
static void append_path(spry_buffer *out, size_t start, spry_view path)
{
    size_t at = 0;
    while (at < path.size) {
        size_t end = at;
        while (end < path.size && path.data[end] != '/')
            end++;
        spry_view step = {path.data + at, end - at};
        bool more = end < path.size;
        if (spry_view_is(step, "..")) {
            if (out->size > start) /* the slash after the removed step */
                out->size--;
            while (out->size > start && out->data[out->size - 1] != '/')
                out->size--;
        } else if (!spry_view_is(step, ".")) {
            spry_buffer_append(out, step.data, step.size);
            if (more)
                spry_buffer_text(out, "/");
        }
        at = end + 1;
    }
}

const char *spry_schema_uri(spry_schema *schema, const char *base_text, spry_view reference)
{
    spry_view base = spry_view_of(base_text);
    if (scheme_size(reference) || base.size == 0)
        return spry_arena_copy(&schema->arena, reference);
    if (reference.size == 0)
        return base_text;
    spry_buffer out;
    spry_buffer_init(&out, SPRY_SCHEMA_BYTES_MAX);
    size_t authority = authority_end(base), keep = base.size;
    if (spry_view_starts(reference, SPRY_VIEW("//"))) {
        spry_buffer_append(&out, base.data, scheme_size(base));
        spry_buffer_append(&out, reference.data, reference.size);
    } else if (reference.data[0] == '?') {
        spry_buffer_append(&out, base.data, strcspn(base.data, "?"));
        spry_buffer_append(&out, reference.data, reference.size);
    } else {
        if (reference.data[0] == '/')
            keep = authority;
        while (keep > authority && base.data[keep - 1] != '/')
            keep--;
        spry_buffer_append(&out, base.data, keep);
        append_path(&out, authority < keep ? authority + 1 : keep, reference);
    }
    const char *copy = out.failed ? NULL : spry_arena_copy(&schema->arena, spry_buffer_view(&out));
    spry_buffer_deinit(&out);
    return copy;
}
