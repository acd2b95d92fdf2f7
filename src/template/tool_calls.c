/* A state machine over the undecided text. Each state either decides a part of it or waits for more. */
#include "template/tool_calls.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/buffer.h"
#include "template/tool_call_body.h"

enum { MAX_HELD_BYTES = 64 << 20, ID_LETTERS = 9 };

typedef enum state {
    AT_START, /* only whitespace so far, which belongs to the following part */
    IN_THOUGHT,
    IN_CONTENT,
    IN_CALL,      /* the undecided text begins with whitespace, then the opening mark or JSON */
    BETWEEN_CALLS /* after a call: whitespace, possibly followed by another call */
} state;

typedef struct thought_marks {
    const char *open, *close;
} thought_marks;

static const thought_marks thoughts[] = {{"<think>", "</think>"}, {"[THINK]", "[/THINK]"}};

struct spry_answer_parser {
    spry_answer_options options;
    const spry_tool_marks *marks;
    spry_buffer held; /* undecided */
    state state;
    bool final;
    bool drop_space; /* drop leading whitespace */
    const thought_marks *thought;
    size_t lead; /* bytes before the call that are dropped with it */
    bool marked; /* the call has an opening mark */
    spry_call_scan scan;
    size_t n_calls;
    uint64_t random;
};

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static size_t skip_space(spry_view text, size_t at)
{
    while (at < text.size && is_space(text.data[at]))
        at++;
    return at;
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

static void say(spry_answer_parser *p, spry_answer_event_kind kind, spry_view text)
{
    if (text.size)
        p->options.on_event(p->options.user, &(spry_answer_event){.kind = kind, .text = text});
}

/* Reports the first `size` held bytes and removes them. */
static void release(spry_answer_parser *p, spry_answer_event_kind kind, size_t size)
{
    say(p, kind, (spry_view){p->held.data, size});
    spry_buffer_consume(&p->held, size);
}

/* splitmix64, as letters and digits. */
static void make_id(spry_answer_parser *p, char id[ID_LETTERS + 1])
{
    static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    uint64_t x = p->random += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    for (size_t i = 0; i < ID_LETTERS; i++, x /= sizeof letters - 1)
        id[i] = letters[x % (sizeof letters - 1)];
    id[ID_LETTERS] = 0;
}

static void tell_call(void *user, const spry_call *call)
{
    spry_answer_parser *p = user;
    char made[ID_LETTERS + 1], given[64];
    make_id(p, made);
    snprintf(given, sizeof given, "%.*s", SPRY_VIEW_ARG(call->id));
    spry_answer_event event = {SPRY_ANSWER_CALL_BEGIN, p->n_calls, call->id.size ? given : made, call->name, {"", 0}};
    p->options.on_event(p->options.user, &event);
    event.kind = SPRY_ANSWER_ARGUMENTS;
    event.text = call->arguments;
    p->options.on_event(p->options.user, &event);
    event.kind = SPRY_ANSWER_CALL_END;
    event.text = (spry_view){"", 0};
    p->options.on_event(p->options.user, &event);
    p->n_calls++;
}

/* ---- marks ------------------------------------------------------------------------------------------------------- */

typedef enum match { NO, PERHAPS, YES } match;

/* Whether a mark is at `at`; undecided when the text ends inside it. */
static match match_at(const spry_answer_parser *p, size_t at, const char *mark)
{
    spry_view rest = {p->held.data + at, p->held.size - at};
    size_t size = strlen(mark);
    if (size == 0)
        return NO;
    if (rest.size >= size)
        return memcmp(rest.data, mark, size) == 0 ? YES : NO;
    return !p->final && memcmp(rest.data, mark, rest.size) == 0 ? PERHAPS : NO;
}

/* The first place where a mark is or may begin; the end when there is none. */
static size_t find_mark(const spry_answer_parser *p, const char *mark, match *how)
{
    size_t at = 0;
    for (*how = NO; *mark && at < p->held.size; at++) {
        const char *first = memchr(p->held.data + at, mark[0], p->held.size - at);
        if (!first)
            break;
        at = (size_t)(first - p->held.data);
        *how = match_at(p, at, mark);
        if (*how != NO)
            return at;
    }
    return p->held.size;
}

/* ---- states: each says whether it got anywhere ------------------------------------------------------------------- */

/* `lead` bytes of whitespace precede it. */
static void begin_call(spry_answer_parser *p, size_t lead, bool marked)
{
    p->state = IN_CALL;
    p->lead = lead;
    p->marked = marked;
    p->scan = (spry_call_scan){0};
}

/* Whether JSON without a mark may be a call. */
static bool takes_bare_json(const spry_answer_parser *p)
{
    return p->options.tools && (p->options.style == SPRY_TOOLS_LLAMA || p->options.style == SPRY_TOOLS_JSON);
}

/* Reasoning begins here, or a call; otherwise content. */
static bool step_start(spry_answer_parser *p)
{
    size_t at = skip_space(spry_buffer_view(&p->held), 0);
    bool wait = at == p->held.size && !p->final;
    for (size_t i = 0; p->options.reasoning && !wait && i < SPRY_COUNT(thoughts); i++) {
        match how = match_at(p, at, thoughts[i].open);
        if (how == YES) {
            spry_buffer_consume(&p->held, at + strlen(thoughts[i].open));
            p->thought = &thoughts[i];
            p->state = IN_THOUGHT;
            p->drop_space = true;
            return true;
        }
        wait |= how == PERHAPS;
    }
    match call = p->options.tools ? match_at(p, at, p->marks->open) : NO;
    if (wait || call == PERHAPS)
        return false;
    bool bare = takes_bare_json(p) && at < p->held.size && (p->held.data[at] == '{' || p->held.data[at] == '[');
    if (p->drop_space) {
        spry_buffer_consume(&p->held, at);
        at = 0;
    }
    if (call == YES || bare)
        begin_call(p, at, call == YES);
    else
        p->state = IN_CONTENT;
    return true;
}

static bool step_thought(spry_answer_parser *p)
{
    match how;
    if (p->drop_space)
        spry_buffer_consume(&p->held, skip_space(spry_buffer_view(&p->held), 0));
    p->drop_space = p->drop_space && p->held.size == 0;
    size_t at = find_mark(p, p->thought->close, &how), end = at;
    while (end > 0 && is_space(p->held.data[end - 1]) && !(p->final && how == NO))
        end--;
    if (end)
        release(p, SPRY_ANSWER_REASONING, end);
    if (how != YES)
        return false;
    spry_buffer_consume(&p->held, at - end + strlen(p->thought->close));
    p->options.reasoning = false;
    p->drop_space = true;
    p->state = AT_START;
    return true;
}

static bool step_content(spry_answer_parser *p)
{
    match how = NO;
    size_t at = p->options.tools ? find_mark(p, p->marks->open, &how) : p->held.size;
    if (at)
        release(p, SPRY_ANSWER_CONTENT, at);
    if (how == YES)
        begin_call(p, 0, true);
    return how == YES;
}

static bool step_call(spry_answer_parser *p)
{
    size_t mark = p->lead + (p->marked ? strlen(p->marks->open) : 0), end = 0;
    spry_view body = {"", 0}, text = {p->held.data + mark, p->held.size - mark};
    spry_call_state found = spry_call_body_find(&p->scan, &body, &end, text, p->options.style, p->marked, p->final);
    if (found == SPRY_CALL_MORE)
        return false;
    if (found == SPRY_CALL_WHOLE && spry_call_body_read(body, p->marked, p->options.declared, tell_call, p)) {
        spry_buffer_consume(&p->held, mark + end);
        p->state = BETWEEN_CALLS;
        return true;
    }
    release(p, SPRY_ANSWER_CONTENT, mark);
    p->state = IN_CONTENT;
    return true;
}

static bool step_between(spry_answer_parser *p)
{
    spry_view text = spry_buffer_view(&p->held);
    size_t at = skip_space(text, 0);
    while (at < text.size && *p->marks->between && strchr(p->marks->between, text.data[at]))
        at = skip_space(text, at + 1);
    match call = match_at(p, at, p->marks->open);
    bool bare = takes_bare_json(p) && at < text.size && (text.data[at] == '{' || text.data[at] == '[');
    if (call == PERHAPS || (at == text.size && !p->final))
        return false;
    if (call == YES || bare) {
        begin_call(p, at, call == YES);
    } else {
        if (at == text.size)
            spry_buffer_consume(&p->held, at);
        p->state = IN_CONTENT;
    }
    return true;
}

static void advance(spry_answer_parser *p)
{
    static bool (*const steps[])(spry_answer_parser *) = {
        [AT_START] = step_start, [IN_THOUGHT] = step_thought,    [IN_CONTENT] = step_content,
        [IN_CALL] = step_call,   [BETWEEN_CALLS] = step_between,
    };
    while (p->held.size && steps[p->state](p))
        continue;
}

/* ---- from outside ------------------------------------------------------------------------------------------------ */

spry_status spry_answer_parser_create(spry_answer_parser **out, const spry_answer_options *options, spry_error *error)
{
    spry_answer_parser *p = *out = calloc(1, sizeof *p);
    if (!p)
        return spry_fail_memory(error, "a parser of answers", sizeof *p);
    p->options = *options;
    p->marks = spry_tool_style_marks(options->style);
    p->random = options->seed;
    p->thought = &thoughts[0];
    p->state = options->reasoning && options->in_thought ? IN_THOUGHT : AT_START;
    p->drop_space = p->state == IN_THOUGHT;
    spry_buffer_init(&p->held, MAX_HELD_BYTES);
    return SPRY_OK;
}

void spry_answer_parser_destroy(spry_answer_parser *p)
{
    if (p)
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
}

bool spry_answer_opens_thought(spry_view prompt)
{
    while (prompt.size && is_space(prompt.data[prompt.size - 1]))
        prompt.size--;
    for (size_t i = 0; i < SPRY_COUNT(thoughts); i++)
        if (spry_view_ends(prompt, spry_view_of(thoughts[i].open)))
            return true;
    return false;
}
