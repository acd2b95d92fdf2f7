/* Each step reads a view and writes a buffer; steps without effect pass the view on. */
#include "tokenizer/normalize.h"

#include "tokenizer/text_fold.h"

bool spry_changes_add(spry_changes *changes, spry_change_step step)
{
    if (changes->count == SPRY_CHANGE_STEPS_MAX)
        return false;
    changes->steps[changes->count++] = step;
    return true;
}

static const char *find(spry_view text, size_t from, spry_view needle)
{
    if (needle.size == 1)
        return memchr(text.data + from, needle.data[0], text.size - from);
    return memmem(text.data + from, text.size - from, needle.data, needle.size);
}

static bool replace(spry_buffer *out, spry_view text, spry_view from, spry_view to)
{
    size_t done = 0;
    const char *hit;
    while (done < text.size && (hit = find(text, done, from))) {
        size_t at = (size_t)(hit - text.data);
        spry_buffer_append(out, text.data + done, at - done);
        if (!spry_buffer_append(out, to.data, to.size))
            return false;
        done = at + from.size;
    }
    return spry_buffer_append(out, text.data + done, text.size - done);
}

static spry_view strip(const spry_unicode *unicode, spry_view text, bool left, bool right)
{
    size_t length;
    while (left && text.size && spry_unicode_next(unicode, text.data, text.size, &length) & SPRY_CHAR_SPACE) {
        text.data += length;
        text.size -= length;
    }
    while (right && text.size && spry_unicode_previous(unicode, text.data, text.size, &length) & SPRY_CHAR_SPACE)
        text.size -= length;
    return text;
}

static bool squeeze(spry_buffer *out, spry_view text)
{
    bool space = true; /* also removes spaces at the beginning */
    for (size_t i = 0; i < text.size; i++) {
        bool previous = space;
        space = text.data[i] == ' ';
        if (!(space && previous) && !spry_buffer_append(out, text.data + i, 1))
            return false;
    }
    if (space && out->size)
        out->data[--out->size] = 0;
    return true;
}

static bool join_runs(spry_buffer *out, spry_view text, spry_view to)
{
    for (size_t i = 0, run; i < text.size; i += run ? run : 1) {
        for (run = 0; i + run < text.size && text.data[i + run] == ' '; run++)
            continue;
        bool ok = run > 1 ? spry_buffer_append(out, to.data, to.size) : spry_buffer_append(out, text.data + i, 1);
        if (!ok)
            return false;
    }
    return true;
}

static bool join_words(spry_buffer *out, const spry_unicode *unicode, spry_view text)
{
    bool space = false; /* one is due before the next word */
    for (size_t i = 0, length; i < text.size; i += length) {
        if (spry_unicode_next(unicode, text.data + i, text.size - i, &length) & SPRY_CHAR_SPACE) {
            space = out->size > 0;
            continue;
        }
        if ((space && !spry_buffer_append(out, " ", 1)) || !spry_buffer_append(out, text.data + i, length))
            return false;
        space = false;
    }
    return true;
}

static bool prepend(spry_buffer *out, spry_view text, spry_view prefix)
{
    return spry_buffer_append(out, prefix.data, prefix.size) && spry_buffer_append(out, text.data, text.size);
}

/* Whether the step would leave `text` unchanged. */
static bool is_idle(const spry_change_step *step, const spry_unicode *unicode, spry_view text, bool first)
{
    switch (step->change) {
    case SPRY_CHANGE_FORM: return step->form == SPRY_NFC && spry_unicode_settled(unicode, text);
    case SPRY_CHANGE_PREPEND: return text.size == 0;
    case SPRY_CHANGE_PREFIX: return text.size == 0 || (step->only_first && !first) || spry_view_starts(text, step->to);
    case SPRY_CHANGE_REPLACE: return text.size == 0 || step->from.size == 0 || !find(text, 0, step->from);
    default: return text.size == 0;
    }
}

static bool apply_step(spry_buffer *out, const spry_change_step *step, const spry_unicode *unicode, spry_view text)
{
    switch (step->change) {
    case SPRY_CHANGE_FORM: return spry_unicode_normalize(out, unicode, text, step->form);
    case SPRY_CHANGE_PREPEND:
    case SPRY_CHANGE_PREFIX: return prepend(out, text, step->to);
    case SPRY_CHANGE_REPLACE: return replace(out, text, step->from, step->to);
    case SPRY_CHANGE_RUNS: return join_runs(out, text, step->to);
    case SPRY_CHANGE_WORDS: return join_words(out, unicode, text);
    case SPRY_CHANGE_FOLD: return spry_text_fold(out, unicode, text, step->folds);
    case SPRY_CHANGE_CHARS: return spry_charsmap_apply(out, &step->chars, text);
    default: return squeeze(out, text);
    }
}

bool spry_changes_apply(spry_view *result, const spry_changes *changes, const spry_unicode *unicode,
                        spry_buffer scratch[2], spry_view text, bool first)
{
    size_t next = 0; /* the buffer that does not contain the text */
    for (size_t i = 0; i < changes->count; i++) {
        const spry_change_step *step = &changes->steps[i];
        if (is_idle(step, unicode, text, first))
            continue;
        if (step->change == SPRY_CHANGE_STRIP) {
            text = strip(unicode, text, step->left, step->right);
            continue;
        }
        spry_buffer_clear(&scratch[next]);
        if (!apply_step(&scratch[next], step, unicode, text))
            return false;
        text = spry_buffer_view(&scratch[next]);
        next ^= 1;
    }
    *result = text;
    return true;
}
