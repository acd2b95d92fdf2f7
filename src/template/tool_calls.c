/* Parses answers with a state machine over the text that is not decided yet. Each state either decides a part of that
 * text or waits for more. */
#include "template/tool_calls.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/buffer.h"
#include "base/compiler.h"
#include "template/call_reader.h"

enum { MAX_HELD_BYTES = 64 << 20, ID_LETTERS = 9, MAX_MARKS = 32 };

typedef enum parser_state { IN_CONTENT, IN_THOUGHT, IN_CALL } parser_state;

typedef enum mark_kind {
    THOUGHT_OPEN,  /* begins a thought (reasoning) */
    THOUGHT_CLOSE, /* ends a thought; if no thought has begun, only before all content */
    SECTION_OPEN,
    CALL_OPEN,
    SECTION_CLOSE, /* is dropped after calls */
    HIDDEN,        /* is dropped */
    TURN_END,      /* is dropped at the end of the answer */
} mark_kind;

typedef struct known_mark {
    mark_kind kind;
    const char *text;
} known_mark;

struct spry_answer_parser {
    spry_answer_options options;
    const spry_thought_style *thoughts;
    known_mark marks[MAX_MARKS];
    size_t n_marks;
    bool starts[256];  /* bytes with which marks begin */
    spry_buffer held;  /* text that is not decided yet */
    spry_buffer space; /* whitespace at the end of the current part, which is dropped unless more text follows */
    parser_state state;
    bool final;
    bool at_start;   /* no content and no call yet */
    bool after_call; /* only whitespace has come since the last call */
    bool drop_space; /* drop leading whitespace of the current part */
    bool in_section;
    bool from_thought;  /* the call began inside a thought, which may not have ended */
    bool thought_fresh; /* nothing of the thought has been read yet */
    bool suspect;       /* the text held back begins with a call's mark inside the thought */
    size_t searched;    /* the end of the thought is not before this offset */
    const char *thought_close;
    spry_call_reader reader;
    char id[64];
    size_t n_calls;
    uint64_t random;
};

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

static void say(spry_answer_parser *p, spry_answer_event_kind kind, spry_view text)
{
    if (text.size)
        p->options.on_event(p->options.user, &(spry_answer_event){.kind = kind, .text = text});
}

/* Reports the first `size` bytes held back and removes them; whitespace at their end is held back further. */
static void release(spry_answer_parser *p, spry_answer_event_kind kind, size_t size)
{
    spry_view text = {p->held.data, size};
    size_t begin = p->drop_space ? spry_space_skip(text, 0) : 0, end = size;
    while (end > begin && is_space(text.data[end - 1]))
        end--;
    if (end > begin) {
        say(p, kind, spry_buffer_view(&p->space));
        spry_buffer_clear(&p->space);
        say(p, kind, (spry_view){text.data + begin, end - begin});
        p->drop_space = false;
        p->at_start = p->at_start && kind != SPRY_ANSWER_CONTENT;
        p->after_call = false;
    }
    if (begin < size || !p->drop_space)
        spry_buffer_append(&p->space, text.data + end, size - end);
    spry_buffer_consume(&p->held, size);
}

/* Begins a part; whitespace before it is dropped. */
static void begin_part(spry_answer_parser *p, bool drop_space)
{
    spry_buffer_clear(&p->space);
    p->drop_space = drop_space;
}

/* Makes a call's id from the random generator splitmix64: letters and digits. */
static void make_id(spry_answer_parser *p)
{
    static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    uint64_t x = p->random += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    for (size_t i = 0; i < ID_LETTERS; i++, x /= sizeof letters - 1)
        p->id[i] = letters[x % (sizeof letters - 1)];
    p->id[ID_LETTERS] = 0;
}

static void tell_call(spry_answer_parser *p, spry_answer_event_kind kind, spry_view text)
{
    p->options.on_event(p->options.user,
                        &(spry_answer_event){kind, p->n_calls, p->id, spry_buffer_view(&p->reader.name), text});
}

static void on_begin(void *user, spry_view name, spry_view id)
{
    spry_answer_parser *p = user;
    (void)name;
    make_id(p);
    if (id.size)
        snprintf(p->id, sizeof p->id, "%.*s", SPRY_VIEW_ARG(id));
    begin_part(p, false);
    tell_call(p, SPRY_ANSWER_CALL_BEGIN, (spry_view){"", 0});
}

static void on_arguments(void *user, spry_view text)
{
    tell_call(user, SPRY_ANSWER_ARGUMENTS, text);
}

static void on_end(void *user)
{
    spry_answer_parser *p = user;
    tell_call(p, SPRY_ANSWER_CALL_END, (spry_view){"", 0});
    p->n_calls++;
}

/* ---- marks ------------------------------------------------------------------------------------------------------- */

static void add_mark(spry_answer_parser *p, mark_kind kind, const char *text)
{
    if (!text || !*text || p->n_marks == MAX_MARKS)
        return;
    p->marks[p->n_marks++] = (known_mark){kind, text};
    p->starts[(unsigned char)text[0]] = true;
}

/* Lists all marks; a longer mark comes before marks that are its beginning. */
static void collect_marks(spry_answer_parser *p)
{
    const spry_answer_options *o = &p->options;
    const spry_thought_style *general = spry_thought_style_default();
    const char *ends[SPRY_TURN_ENDS];
    if (o->reasoning) {
        add_mark(p, THOUGHT_OPEN, p->thoughts->open);
        add_mark(p, THOUGHT_CLOSE, p->thoughts->close);
        if (strcmp(general->open, p->thoughts->open) != 0)
            add_mark(p, THOUGHT_OPEN, general->open);
    }
    if (o->tools) {
        add_mark(p, SECTION_OPEN, o->style->section_open);
        add_mark(p, SECTION_CLOSE, o->style->section_close);
        if (!o->style->prompted)
            add_mark(p, CALL_OPEN, o->style->open);
    }
    for (size_t i = 0; i < SPRY_THOUGHT_HIDDEN && p->thoughts->hidden[i]; i++)
        add_mark(p, HIDDEN, p->thoughts->hidden[i]);
    if (o->tools && o->style->prompted)
        add_mark(p, CALL_OPEN, o->style->open);
    for (size_t i = 0, n = spry_turn_ends_find(ends, o->source, o->eos); i < n; i++)
        add_mark(p, TURN_END, ends[i]);
}

/* True if a mark has a meaning at this point of the answer. */
static bool applies(const spry_answer_parser *p, const known_mark *m, size_t at)
{
    bool first = p->at_start && spry_space_skip(spry_buffer_view(&p->held), 0) >= at;
    switch (m->kind) {
    case THOUGHT_OPEN: return p->thoughts->anywhere ? m->text == p->thoughts->open || first : first;
    case THOUGHT_CLOSE: return first;
    case SECTION_CLOSE: return p->in_section;
    default: return true;
    }
}

/* Finds the first mark in the text held back: *at is where it is or may begin, or the end. NULL: no mark is certain. */
static const known_mark *find_mark(spry_answer_parser *p, size_t *at, size_t *end)
{
    spry_view text = spry_buffer_view(&p->held);
    for (*at = 0; *at < text.size; ++*at) {
        if (!p->starts[(unsigned char)text.data[*at]])
            continue;
        for (size_t i = 0; i < p->n_marks; i++) {
            if (!applies(p, &p->marks[i], *at))
                continue;
            spry_mark_match how = spry_mark_at(end, text, *at, p->marks[i].text, p->final);
            if (how == SPRY_MARK_YES)
                return &p->marks[i];
            if (how == SPRY_MARK_PERHAPS)
                return NULL;
        }
    }
    return NULL;
}

/* ---- states; each returns whether it made progress --------------------------------------------------------------- */

static void begin_thought(spry_answer_parser *p)
{
    p->state = IN_THOUGHT;
    p->thought_fresh = true;
    p->searched = 0;
    p->suspect = p->in_section = p->from_thought = false;
    begin_part(p, true);
}

/* Begins a call; its opening mark is the first `mark_size` bytes held back. */
static void begin_call(spry_answer_parser *p, size_t mark_size, bool section)
{
    p->state = IN_CALL;
    spry_call_reader_start(&p->reader, mark_size, section);
}

/* For a mark that ends a turn: true if only such marks follow; *wait: that cannot be decided yet. */
static bool ends_answer(const spry_answer_parser *p, size_t at, bool *wait)
{
    spry_view text = spry_buffer_view(&p->held);
    *wait = false;
    while ((at = spry_space_skip(text, at)) < text.size) {
        size_t next = at;
        for (size_t i = 0; i < p->n_marks && next == at; i++) {
            spry_mark_match how =
                p->marks[i].kind == TURN_END ? spry_mark_at(&next, text, at, p->marks[i].text, p->final) : SPRY_MARK_NO;
            if (how == SPRY_MARK_PERHAPS) {
                *wait = true;
                return false;
            }
        }
        if (next == at)
            return false;
        at = next;
    }
    *wait = !p->final;
    return p->final;
}

static bool take_mark(spry_answer_parser *p, const known_mark *m, size_t size)
{
    bool wait;
    switch (m->kind) {
    case THOUGHT_OPEN:
        spry_buffer_consume(&p->held, size);
        p->thought_close = m->text == p->thoughts->open ? p->thoughts->close : spry_thought_style_default()->close;
        begin_thought(p);
        return true;
    case THOUGHT_CLOSE:
        spry_buffer_consume(&p->held, size);
        begin_part(p, true);
        return true;
    case SECTION_OPEN:
    case CALL_OPEN: begin_call(p, size, m->kind == SECTION_OPEN); return true;
    case TURN_END:
        if (ends_answer(p, size, &wait)) {
            spry_buffer_clear(&p->held);
            return true;
        }
        if (!wait)
            release(p, SPRY_ANSWER_CONTENT, size);
        return !wait;
    case SECTION_CLOSE: p->in_section = false; /* fall through */
    case HIDDEN: spry_buffer_consume(&p->held, size); return true;
    }
    return false;
}

/* True if JSON without a mark begins a call here. */
static bool takes_bare_json(const spry_answer_parser *p, size_t at)
{
    return p->options.tools && p->options.style->bare && (p->at_start || p->after_call) && at < p->held.size &&
           (p->held.data[at] == '{' || p->held.data[at] == '[');
}

static bool step_content(spry_answer_parser *p)
{
    size_t at, end, first = spry_space_skip(spry_buffer_view(&p->held), 0);
    if (takes_bare_json(p, first)) {
        release(p, SPRY_ANSWER_CONTENT, first);
        begin_call(p, 0, false);
        return true;
    }
    const known_mark *found = find_mark(p, &at, &end);
    if (at)
        release(p, SPRY_ANSWER_CONTENT, at);
    return found && p->held.size && take_mark(p, found, end - at);
}

/* The offset of a call's mark inside a thought, from `from` on; text.size: there is none. */
static size_t find_call(const spry_answer_parser *p, size_t from)
{
    spry_view text = spry_buffer_view(&p->held);
    size_t first = text.size;
    for (size_t i = 0; i < p->n_marks; i++)
        if (p->marks[i].kind == SECTION_OPEN || p->marks[i].kind == CALL_OPEN) {
            size_t at = spry_mark_find(text, from, p->marks[i].text);
            first = at < first ? at : first;
        }
    return first;
}

/* The size of the longest end of the text with which a mark may begin. */
static size_t partial_mark(const spry_answer_parser *p, size_t from)
{
    spry_view text = spry_buffer_view(&p->held);
    size_t end;
    for (size_t at = from; at < text.size && !p->final; at++) {
        if (spry_mark_at(&end, text, at, p->thought_close, false) == SPRY_MARK_PERHAPS)
            return at;
        for (size_t i = 0; i < p->n_marks; i++)
            if ((p->marks[i].kind == SECTION_OPEN || p->marks[i].kind == CALL_OPEN) &&
                spry_mark_at(&end, text, at, p->marks[i].text, false) == SPRY_MARK_PERHAPS)
                return at;
    }
    return text.size;
}

/* Skips the mark of a thought that the prompt has begun, if the model repeats it. */
static bool skip_repeated_open(spry_answer_parser *p)
{
    spry_view text = spry_buffer_view(&p->held);
    size_t at = spry_space_skip(text, 0), end;
    spry_mark_match how = spry_mark_at(&end, text, at, p->thoughts->open, p->final);
    if (how == SPRY_MARK_PERHAPS || (at == text.size && !p->final))
        return false;
    p->thought_fresh = false;
    if (how == SPRY_MARK_YES)
        spry_buffer_consume(&p->held, end);
    return true;
}

/* Called when a thought ended without its mark: text that looks like a call becomes one if it is complete. */
static bool end_suspect(spry_answer_parser *p)
{
    size_t end;
    p->suspect = false;
    p->searched = 1;
    p->from_thought = true;
    for (size_t i = 0; i < p->n_marks; i++) {
        mark_kind kind = p->marks[i].kind;
        if ((kind == SECTION_OPEN || kind == CALL_OPEN) &&
            spry_mark_at(&end, spry_buffer_view(&p->held), 0, p->marks[i].text, true) == SPRY_MARK_YES) {
            begin_call(p, end, kind == SECTION_OPEN);
            return true;
        }
    }
    return false;
}

static bool step_thought(spry_answer_parser *p)
{
    spry_view text = spry_buffer_view(&p->held);
    if (p->thought_fresh && !skip_repeated_open(p))
        return false;
    text = spry_buffer_view(&p->held);
    size_t close = spry_mark_find(text, p->searched, p->thought_close);
    if (close < text.size) {
        release(p, SPRY_ANSWER_REASONING, close);
        spry_buffer_consume(&p->held, strlen(p->thought_close));
        begin_part(p, true);
        p->state = IN_CONTENT;
        return true;
    }
    if (!p->suspect) {
        size_t call = p->thoughts->anywhere ? text.size : find_call(p, p->from_thought ? p->searched : 0);
        p->from_thought = false;
        if (call < text.size) {
            release(p, SPRY_ANSWER_REASONING, call);
            p->suspect = true;
        } else {
            release(p, SPRY_ANSWER_REASONING, partial_mark(p, text.size > 64 ? text.size - 64 : 0));
        }
    }
    size_t keep = strlen(p->thought_close);
    p->searched = p->suspect && p->held.size > keep ? p->held.size - keep : 0;
    return p->suspect && p->final && end_suspect(p);
}

/* Called when the reader's text is not a call, or is no longer a correct one. */
static void drop_call(spry_answer_parser *p)
{
    spry_call_reader *r = &p->reader;
    if (r->begun) {
        tell_call(p, SPRY_ANSWER_CALL_CUT, (spry_view){p->held.data + r->done, r->at - r->done});
        p->n_calls++;
        spry_buffer_consume(&p->held, r->at);
        p->after_call = true;
        p->state = IN_CONTENT;
    } else if (r->done) {
        spry_buffer_consume(&p->held, r->done);
        p->after_call = false;
        p->state = IN_CONTENT;
    } else if (p->from_thought) {
        p->state = IN_THOUGHT; /* `searched` is 1, so this mark is not found again */
        return;
    } else {
        bool bare = !r->marked;
        p->at_start = p->at_start && !bare;
        p->after_call = p->after_call && !bare;
        p->state = IN_CONTENT;
        if (!bare)
            release(p, SPRY_ANSWER_CONTENT, 1);
    }
    p->from_thought = false;
}

static bool step_call(spry_answer_parser *p)
{
    spry_call_reader *r = &p->reader;
    spry_call_state state = spry_call_read(r, spry_buffer_view(&p->held), p->final);
    if (state == SPRY_CALL_MORE)
        return false;
    if (state == SPRY_CALL_WRONG) {
        drop_call(p);
        return true;
    }
    spry_buffer_consume(&p->held, r->done);
    begin_part(p, false);
    p->in_section = p->options.style->section_close != NULL;
    p->at_start = p->from_thought = false;
    p->after_call = true;
    p->state = IN_CONTENT;
    return true;
}

static void advance(spry_answer_parser *p)
{
    static bool (*const steps[])(spry_answer_parser *) = {
        [IN_CONTENT] = step_content, [IN_THOUGHT] = step_thought, [IN_CALL] = step_call};
    while (p->held.size && steps[p->state](p))
        continue;
}

/* ---- functions for other files ----------------------------------------------------------------------------------- */

/* True if a prompt ends with a mark, except for whitespace. */
static bool ends_with(spry_view prompt, const char *mark)
{
    spry_view text = spry_view_of(mark);
    while (text.size && is_space(text.data[text.size - 1]))
        text.size--;
    while (prompt.size && is_space(prompt.data[prompt.size - 1]))
        prompt.size--;
    return text.size && spry_view_ends(prompt, text);
}

bool spry_answer_opens_thought(const spry_thought_style *thoughts, spry_view prompt)
{
    return ends_with(prompt, thoughts->open) || ends_with(prompt, spry_thought_style_default()->open);
}

/* Sets the state that the end of the prompt requires. */
static void continue_prompt(spry_answer_parser *p)
{
    const spry_thought_style *general = spry_thought_style_default();
    const spry_answer_options *o = &p->options;
    bool own = ends_with(o->prompt, p->thoughts->open);
    if (o->reasoning && (own || ends_with(o->prompt, general->open))) {
        p->thought_close = own ? p->thoughts->close : general->close;
        begin_thought(p);
    } else if (o->tools && o->style->prompted && ends_with(o->prompt, o->style->open)) {
        spry_buffer_text(&p->held, o->style->open);
    }
}

spry_status spry_answer_parser_create(spry_answer_parser **out, const spry_answer_options *options, spry_error *error)
{
    spry_answer_parser *p = *out = calloc(1, sizeof *p);
    if (!p)
        return spry_fail_memory(error, "a parser of answers", sizeof *p);
    p->options = *options;
    p->thoughts = options->thoughts ? options->thoughts : spry_thought_style_default();
    p->random = options->seed;
    p->at_start = true;
    spry_buffer_init(&p->held, MAX_HELD_BYTES);
    spry_buffer_init(&p->space, MAX_HELD_BYTES);
    spry_call_reader_init(&p->reader, options->style, options->declared);
    p->reader.on_begin = on_begin;
    p->reader.on_arguments = on_arguments;
    p->reader.on_end = on_end;
    p->reader.user = p;
    collect_marks(p);
    continue_prompt(p);
    return SPRY_OK;
}

void spry_answer_parser_destroy(spry_answer_parser *p)
{
    if (!p)
        return;
    spry_call_reader_deinit(&p->reader);
    spry_buffer_deinit(&p->space);
    spry_buffer_deinit(&p->held);
    free(p);
}

spry_status spry_answer_parser_feed(spry_answer_parser *p, spry_view text, spry_error *error)
{
    if (!spry_buffer_append(&p->held, text.data, text.size))
        return spry_fail_memory(error, "an answer", text.size);
    advance(p);
    return SPRY_OK;
}

void spry_answer_parser_finish(spry_answer_parser *p)
{
    p->final = true;
    advance(p);
    if (!p->after_call && !p->drop_space)
        say(p, p->state == IN_THOUGHT ? SPRY_ANSWER_REASONING : SPRY_ANSWER_CONTENT, spry_buffer_view(&p->space));
    spry_buffer_clear(&p->space);
}

bool spry_answer_needs_token(const spry_tool_style *style, const spry_thought_style *thoughts, spry_view spelling)
{
    const char *const marks[] = {style->section_open,
                                 style->section_close,
                                 style->open,
                                 style->close,
                                 style->arguments_open,
                                 style->arguments_close,
                                 style->name_mark,
                                 style->name_tails[0],
                                 style->name_tails[1],
                                 style->id_mark,
                                 style->parameter.key_open,
                                 style->parameter.key_close,
                                 style->parameter.value_open,
                                 style->parameter.value_close,
                                 style->quote,
                                 thoughts->open,
                                 thoughts->close,
                                 spry_thought_style_default()->open,
                                 spry_thought_style_default()->close};
    for (size_t i = 0; i < SPRY_COUNT(marks) && spelling.size > 1; i++)
        if (marks[i] && memmem(marks[i], strlen(marks[i]), spelling.data, spelling.size))
            return true;
    for (size_t i = 0; i < SPRY_THOUGHT_HIDDEN && thoughts->hidden[i] && spelling.size > 1; i++)
        if (memmem(thoughts->hidden[i], strlen(thoughts->hidden[i]), spelling.data, spelling.size))
            return true;
    return false;
}
