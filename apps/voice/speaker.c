/* Speaks text while it is being written: cuts it into clauses, synthesises them and plays them in order. */
#include "voice/speaker.h"

#include <ctype.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "platform/clock.h"
#include "platform/threads.h"
#include "spry_voice.h"

enum {
    TEXT_MAX = 1 << 20,
    FIRST_LEAST = 10,   /* bytes of a first clause that ends at a comma */
    LATER_LEAST = 40,   /* the same for a later clause */
    LONGEST = 240,      /* bytes; a clause without an end is cut at a space */
    LONGEST_WORD = 240, /* where there is no space, text is cut between two characters */
};

void spry_clauses_init(spry_clauses *clauses)
{
    *clauses = (spry_clauses){0};
    spry_buffer_init(&clauses->text, TEXT_MAX);
}

void spry_clauses_deinit(spry_clauses *clauses)
{
    spry_buffer_deinit(&clauses->text);
}

static void clauses_clear(spry_clauses *clauses)
{
    spry_buffer_clear(&clauses->text);
    clauses->given = 0;
}

bool spry_clauses_add(spry_clauses *clauses, spry_view text)
{
    return spry_buffer_append(&clauses->text, text.data, text.size);
}

/* Whether the full stop at `at` is one of a number or of an abbreviation: "3.14", "e.g.", "Dr." */
static bool is_inner_stop(const char *text, size_t at)
{
    static const char *const titles[] = {"Mr", "Mrs", "Ms", "Dr", "St", "vs", "etc", "Prof"};
    if (at >= 1 && isdigit((unsigned char)text[at - 1]) && isdigit((unsigned char)text[at + 1]))
        return true;
    size_t begin = at;
    while (begin > 0 && isalpha((unsigned char)text[begin - 1]))
        begin--;
    size_t size = at - begin;
    if (size == 1 && !(text[begin] == 'I' || text[begin] == 'a'))
        return true;
    for (size_t i = 0; i < sizeof titles / sizeof *titles; i++)
        if (strlen(titles[i]) == size && strncmp(titles[i], text + begin, size) == 0)
            return true;
    return false;
}

/* The end of the clause whose mark is at `at`, or 0: the mark ends none. The space after a mark shows that it is one,
 * so it must have come. */
static size_t end_at(const spry_clauses *c, size_t at)
{
    const char *text = c->text.data;
    size_t least = c->given ? LATER_LEAST : FIRST_LEAST, end = at + 1;
    if (text[at] == '\n')
        return at + 1;
    if (!strchr(".!?;:,", text[at]))
        return 0;
    while (end < c->text.size && strchr("\"')]*", text[end]))
        end++;
    if (end >= c->text.size || !isspace((unsigned char)text[end]))
        return 0;
    if (text[at] == '.' && is_inner_stop(text, at))
        return 0;
    if (strchr(",;:", text[at]) && at + 1 < least)
        return 0;
    return end;
}

static bool is_blank(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (!isspace((unsigned char)text[i]))
            return false;
    return true;
}

bool spry_clauses_take(spry_clauses *clauses, spry_buffer *out, bool over)
{
    const spry_buffer *text = &clauses->text;
    size_t end = 0, space = 0;
    for (size_t i = 0; i < text->size && !end; i++) {
        size_t found = end_at(clauses, i);
        if (found && !is_blank(text->data, found))
            end = found;
        if (text->data[i] == ' ')
            space = i;
        if (!end && i >= LONGEST && space)
            end = space;
        if (!end && i >= LONGEST_WORD && ((unsigned char)text->data[i] & 0xC0) != 0x80)
            end = i;
    }
    if (!end && over)
        end = text->size;
    if (!end)
        return false;
    spry_buffer_clear(out);
    spry_buffer_append(out, text->data, end);
    spry_buffer_consume(&clauses->text, end);
    clauses->given++;
    return true;
}

/* ---- sound that waits to be heard -------------------------------------------------------------------------------- */

enum { ROOM = 60 * SPRY_SOUND_RATE, CLAUSES_MAX = 4096, PLAYER_TEXT_MAX = 1 << 20 };

typedef struct played_clause {
    uint64_t begin, end; /* samples since the beginning of the answer */
    size_t text_end;     /* bytes of the text so far */
} played_clause;

struct spry_player {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int16_t *ring;           /* [ROOM] */
    uint64_t pushed, pulled; /* samples since the beginning of the answer */
    bool held, stopped;
    played_clause clauses[CLAUSES_MAX];
    size_t n_clauses;
    spry_buffer text;
};

spry_status spry_player_create(spry_player **out, spry_error *error)
{
    spry_player *p = *out = calloc(1, sizeof *p);
    if (p)
        p->ring = calloc(ROOM, sizeof *p->ring);
    if (!p || !p->ring) {
        free(p);
        *out = NULL;
        return spry_fail_memory(error, "sound that waits", ROOM * sizeof *p->ring);
    }
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    spry_buffer_init(&p->text, PLAYER_TEXT_MAX);
    return SPRY_OK;
}

void spry_player_destroy(spry_player *p)
{
    if (!p)
        return;
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->changed);
    spry_buffer_deinit(&p->text);
    free(p->ring);
    free(p);
}

void spry_player_begin(spry_player *p, bool held)
{
    pthread_mutex_lock(&p->lock);
    p->pushed = p->pulled = 0;
    p->n_clauses = 0;
    p->held = held;
    p->stopped = false;
    spry_buffer_clear(&p->text);
    pthread_mutex_unlock(&p->lock);
}

void spry_player_release(spry_player *p)
{
    pthread_mutex_lock(&p->lock);
    p->held = false;
    pthread_mutex_unlock(&p->lock);
}

bool spry_player_push(void *player, const int16_t *samples, size_t count)
{
    spry_player *p = player;
    pthread_mutex_lock(&p->lock);
    for (size_t i = 0; i < count && !p->stopped; i++) {
        while (!p->stopped && p->pushed - p->pulled == ROOM)
            pthread_cond_wait(&p->changed, &p->lock);
        p->ring[p->pushed++ % ROOM] = samples[i];
    }
    bool more = !p->stopped;
    pthread_mutex_unlock(&p->lock);
    return more;
}

void spry_player_clause(void *player, spry_view text)
{
    spry_player *p = player;
    pthread_mutex_lock(&p->lock);
    if (!p->stopped && p->n_clauses < CLAUSES_MAX) {
        spry_buffer_append(&p->text, text.data, text.size);
        uint64_t begin = p->n_clauses ? p->clauses[p->n_clauses - 1].end : 0;
        p->clauses[p->n_clauses++] = (played_clause){begin, p->pushed, p->text.size};
    }
    pthread_mutex_unlock(&p->lock);
}

size_t spry_player_pull(spry_player *p, int16_t *samples, size_t count)
{
    pthread_mutex_lock(&p->lock);
    uint64_t waiting = p->held || p->stopped ? 0 : p->pushed - p->pulled;
    size_t n = waiting < count ? (size_t)waiting : count;
    for (size_t i = 0; i < n; i++)
        samples[i] = p->ring[p->pulled++ % ROOM];
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    memset(samples + n, 0, (count - n) * sizeof *samples);
    return n;
}

void spry_player_stop(spry_player *p)
{
    pthread_mutex_lock(&p->lock);
    p->stopped = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

bool spry_player_busy(spry_player *p)
{
    pthread_mutex_lock(&p->lock);
    bool busy = !p->stopped && p->pushed > p->pulled;
    pthread_mutex_unlock(&p->lock);
    return busy;
}

void spry_player_heard(spry_player *p, spry_buffer *out)
{
    size_t bytes = 0;
    pthread_mutex_lock(&p->lock);
    for (size_t i = 0; i < p->n_clauses; i++)
        if (2 * p->pulled >= p->clauses[i].begin + p->clauses[i].end)
            bytes = p->clauses[i].text_end;
    spry_buffer_append(out, p->text.data, bytes);
    pthread_mutex_unlock(&p->lock);
}

/* ---- the speaker ------------------------------------------------------------------------------------------------- */

enum { CLAUSE_MAX = 1 << 20 };

struct spry_speaker {
    spry_synthesiser *synthesiser;
    spry_speaker_sink sink;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, idle;
    /* Under the lock. */
    spry_clauses clauses;
    bool over, stopped, busy, leave;
    spry_status status;
    spry_error error;
    spry_speaker_figures figures;
};

static bool pass_on(void *user, const int16_t *samples, size_t count)
{
    spry_speaker *s = user;
    pthread_mutex_lock(&s->lock);
    bool stopped = s->stopped;
    if (!stopped && !s->figures.first_ns && count)
        s->figures.first_ns = spry_clock_ns();
    s->figures.samples += count;
    pthread_mutex_unlock(&s->lock);
    return !stopped && s->sink.sound(s->sink.user, samples, count);
}

/* Speaks one clause with the lock open. */
static void speak(spry_speaker *s, spry_buffer *clause)
{
    spry_error error;
    s->busy = true;
    pthread_mutex_unlock(&s->lock);
    uint64_t began = spry_clock_ns();
    spry_status status = spry_synthesiser_speak(s->synthesiser, spry_buffer_view(clause), pass_on, s, &error);
    uint64_t took = spry_clock_ns() - began;
    pthread_mutex_lock(&s->lock);
    bool stopped = s->stopped;
    pthread_mutex_unlock(&s->lock);
    if (status == SPRY_OK && !stopped && s->sink.clause)
        s->sink.clause(s->sink.user, spry_buffer_view(clause));
    pthread_mutex_lock(&s->lock);
    s->busy = false;
    s->figures.busy_ns += took;
    if (status != SPRY_OK && s->status == SPRY_OK) {
        s->status = status;
        s->error = error;
        s->stopped = true;
    }
}

static void *run(void *context)
{
    spry_speaker *s = context;
    spry_buffer clause;
    spry_buffer_init(&clause, CLAUSE_MAX);
    pthread_mutex_lock(&s->lock);
    while (!s->leave) {
        if (!s->stopped && spry_clauses_take(&s->clauses, &clause, s->over && s->clauses.text.size > 0))
            speak(s, &clause);
        else {
            pthread_cond_broadcast(&s->idle);
            pthread_cond_wait(&s->work, &s->lock);
        }
    }
    pthread_mutex_unlock(&s->lock);
    spry_buffer_deinit(&clause);
    return NULL;
}

spry_status spry_speaker_create(spry_speaker **out, spry_synthesiser *synthesiser, const spry_speaker_sink *sink,
                                spry_error *error)
{
    *out = NULL;
    spry_speaker *s = calloc(1, sizeof *s);
    if (!s)
        return spry_fail_memory(error, "a speaker", sizeof *s);
    s->synthesiser = synthesiser;
    s->sink = *sink;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->work, NULL);
    pthread_cond_init(&s->idle, NULL);
    spry_clauses_init(&s->clauses);
    spry_status status = spry_background_start(&s->thread, run, s, "the speaker", error);
    if (status != SPRY_OK) {
        free(s);
        return status;
    }
    *out = s;
    return SPRY_OK;
}

void spry_speaker_destroy(spry_speaker *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->leave = s->stopped = true;
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->idle);
    spry_clauses_deinit(&s->clauses);
    free(s);
}

/* Waits, with the lock held, until no clause is being spoken and none can be. */
static void wait_idle(spry_speaker *s)
{
    pthread_cond_broadcast(&s->work);
    while (s->busy || (!s->stopped && s->over && s->clauses.text.size > 0))
        pthread_cond_wait(&s->idle, &s->lock);
}

void spry_speaker_begin(spry_speaker *s)
{
    pthread_mutex_lock(&s->lock);
    s->stopped = true;
    wait_idle(s);
    clauses_clear(&s->clauses);
    s->over = s->stopped = false;
    s->status = SPRY_OK;
    s->figures = (spry_speaker_figures){0};
    pthread_mutex_unlock(&s->lock);
}

void spry_speaker_write(spry_speaker *s, spry_view text)
{
    pthread_mutex_lock(&s->lock);
    spry_clauses_add(&s->clauses, text);
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->lock);
}

spry_status spry_speaker_finish(spry_speaker *s, spry_error *error)
{
    pthread_mutex_lock(&s->lock);
    s->over = true;
    wait_idle(s);
    spry_status status = s->status;
    if (status != SPRY_OK && error)
        *error = s->error;
    pthread_mutex_unlock(&s->lock);
    return status;
}

void spry_speaker_stop(spry_speaker *s)
{
    pthread_mutex_lock(&s->lock);
    s->stopped = true;
    pthread_cond_broadcast(&s->work);
    pthread_cond_broadcast(&s->idle);
    pthread_mutex_unlock(&s->lock);
}

spry_speaker_figures spry_speaker_report(spry_speaker *s)
{
    pthread_mutex_lock(&s->lock);
    spry_speaker_figures figures = s->figures;
    pthread_mutex_unlock(&s->lock);
    return figures;
}
