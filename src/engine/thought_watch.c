#include "engine/generation.h"

#include <string.h>

#include "template/tool_calls.h"

void spry_thought_watch_begin(spry_thought_watch *w, const spry_thought_style *style, spry_view prompt, uint32_t budget)
{
    *w = (spry_thought_watch){.style = budget ? style : NULL, .left = budget};
    if (w->style)
        w->inside = w->decided = spry_answer_opens_thought(style, prompt);
}

static void append(spry_thought_watch *w, spry_view text)
{
    size_t size = text.size < SPRY_THOUGHT_TAIL ? text.size : SPRY_THOUGHT_TAIL;
    size_t kept = w->n_tail + size > SPRY_THOUGHT_TAIL ? SPRY_THOUGHT_TAIL - size : w->n_tail;
    memmove(w->tail, w->tail + w->n_tail - kept, kept);
    if (size)
        memcpy(w->tail + kept, text.data + text.size - size, size);
    w->n_tail = kept + size;
}

/* Whether the answer begins with the mark that opens a thought; blanks may precede it. */
static void decide(spry_thought_watch *w)
{
    size_t blanks = 0;
    while (blanks < w->n_tail && strchr(" \t\r\n", w->tail[blanks]))
        blanks++;
    spry_view text = {w->tail + blanks, w->n_tail - blanks}, open = spry_view_of(w->style->open);
    w->inside = spry_view_starts(text, open);
    w->decided = w->inside || !spry_view_starts(open, text);
    if (w->decided)
        w->n_tail = 0;
}

void spry_thought_watch_token(spry_thought_watch *w, spry_view text)
{
    if (!w->style || (w->decided && !w->inside))
        return;
    append(w, text);
    if (!w->decided) {
        decide(w);
        return;
    }
    w->left -= w->left > 0;
    if (memmem(w->tail, w->n_tail, w->style->close, strlen(w->style->close)))
        w->inside = false;
}

bool spry_thought_watch_due(const spry_thought_watch *w)
{
    return w->inside && !w->left;
}

bool spry_thought_watch_near(const spry_thought_watch *w)
{
    return w->style && (w->inside || !w->decided) && w->left <= 2;
}
