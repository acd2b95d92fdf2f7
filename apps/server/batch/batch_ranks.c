#include "server/batch/batch.h"

#include <stdlib.h>
#include <string.h>

#include "platform/clock.h"
#include "platform/threads.h"
#include "spry_serve.h"

/* Guests say NEXT, ANSWER, ALIVE (from time to time) and BYE; the host replies to NEXT with LINE, LATER or END. */
typedef enum word { NEXT, ANSWER, ALIVE, BYE, LINE, LATER, END } word;

typedef struct message {
    uint32_t word, failed;
    uint64_t number; /* number of the line, whose text or answer follows */
} message;

/* Intervals of polling and of ALIVE messages; silence after which a guest is lost, and after which rank 0 is. */
static const uint64_t look_ns = 2000000, alive_ns = 1000000000, lost_ns = 10000000000, silent_ns = 60000000000;

static bool post(uint32_t to, word w, size_t number, bool failed, spry_view text)
{
    message head = {w, failed, number};
    char *bytes = malloc(sizeof head + text.size);
    if (!bytes)
        return false;
    memcpy(bytes, &head, sizeof head);
    memcpy(bytes + sizeof head, text.data, text.size);
    bool sent = spry_ranks_post(to, bytes, sizeof head + text.size);
    free(bytes);
    return sent;
}

/* ---- rank 0 ------------------------------------------------------------------------------------------------------ */

typedef struct guest_state {
    uint64_t heard_ns;
    bool gone;
} guest_state;

struct spry_batch_host {
    spry_batch_lines *lines;
    void (*on_answer)(void *user, spry_view json, bool failed);
    void *user;
    pthread_t thread;
    size_t n_ranks, n_present, n_lost;
    guest_state guests[]; /* [n_ranks], the first is not used */
};

static void lose(spry_batch_host *h, uint32_t rank, bool lost)
{
    if (h->guests[rank].gone)
        return;
    h->guests[rank].gone = true;
    h->n_present--;
    h->n_lost += lost;
    spry_batch_lines_lose(h->lines, rank);
}

static void reply(spry_batch_host *h, uint32_t rank)
{
    spry_batch_line line = {.number = 0};
    static const word words[] = {[SPRY_BATCH_LINE] = LINE, [SPRY_BATCH_LATER] = LATER, [SPRY_BATCH_END] = END};
    word w = words[spry_batch_lines_take(h->lines, &line, rank)];
    if (!post(rank, w, line.number, false, w == LINE ? line.text : (spry_view){"", 0}))
        lose(h, rank, true);
}

static void hear(spry_batch_host *h, uint32_t rank, const char *bytes, size_t size)
{
    message m;
    if (size < sizeof m || h->guests[rank].gone) /* other ranks have the lines of one that was given up */
        return;
    memcpy(&m, bytes, sizeof m);
    h->guests[rank].heard_ns = spry_clock_ns();
    if (m.word == NEXT)
        reply(h, rank);
    else if (m.word == BYE)
        lose(h, rank, false);
    else if (m.word == ANSWER && spry_batch_lines_done(h->lines, m.number, rank))
        h->on_answer(h->user, (spry_view){bytes + sizeof m, size - sizeof m}, m.failed);
}

static void *host_main(void *argument)
{
    spry_batch_host *h = argument;
    while (h->n_present) {
        uint32_t from;
        char *bytes;
        size_t size;
        if (spry_ranks_fetch(&from, &bytes, &size)) {
            hear(h, from, bytes, size);
            free(bytes);
            continue;
        }
        uint64_t now = spry_clock_ns();
        for (uint32_t rank = 1; rank < h->n_ranks; rank++)
            if (now > h->guests[rank].heard_ns + lost_ns)
                lose(h, rank, true);
        spry_clock_sleep_ns(look_ns);
    }
    return NULL;
}

spry_status spry_batch_host_start(spry_batch_host **out, spry_batch_lines *lines, uint32_t n_ranks,
                                  void (*on_answer)(void *user, spry_view json, bool failed), void *user,
                                  spry_error *error)
{
    const uint64_t loading_ns = 600 * (uint64_t)1000000000; /* time that a rank may take until its first message */
    spry_batch_host *h = *out = calloc(1, sizeof *h + n_ranks * sizeof *h->guests);
    if (!h)
        return spry_fail_memory(error, "the ranks of a batch", n_ranks * sizeof *h->guests);
    h->lines = lines;
    h->on_answer = on_answer;
    h->user = user;
    h->n_ranks = n_ranks;
    h->n_present = n_ranks - 1;
    for (uint32_t i = 0; i < n_ranks; i++)
        h->guests[i].heard_ns = spry_clock_ns() + loading_ns;
    spry_status status = spry_background_start(&h->thread, host_main, h, "the ranks of a batch", error);
    if (status) {
        free(h);
        *out = NULL;
    }
    return status;
}

size_t spry_batch_host_finish(spry_batch_host *h)
{
    pthread_join(h->thread, NULL);
    size_t lost = h->n_lost;
    free(h);
    return lost;
}

/* ---- other ranks ------------------------------------------------------------------------------------------------- */

struct spry_batch_guest {
    pthread_mutex_t asking; /* one thread asks for a line and waits for the reply */
    pthread_mutex_t lock;   /* guards `stopping` */
    pthread_cond_t changed;
    bool stopping;
    pthread_t thread;
};

static void *guest_main(void *argument)
{
    spry_batch_guest *g = argument;
    pthread_mutex_lock(&g->lock);
    while (!g->stopping) {
        post(0, ALIVE, 0, false, (spry_view){"", 0});
        spry_background_wait(&g->changed, &g->lock, alive_ns);
    }
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

spry_status spry_batch_guest_start(spry_batch_guest **out, spry_error *error)
{
    spry_batch_guest *g = *out = calloc(1, sizeof *g);
    if (!g)
        return spry_fail_memory(error, "a rank of a batch", sizeof *g);
    pthread_mutex_init(&g->asking, NULL);
    pthread_mutex_init(&g->lock, NULL);
    spry_background_condition(&g->changed);
    spry_status status = spry_background_start(&g->thread, guest_main, g, "a rank of a batch", error);
    if (status) {
        free(g);
        *out = NULL;
    }
    return status;
}

/* Waits for the next message of rank 0; END also when rank 0 stays silent. */
static word await_reply(spry_batch_line *line, char **text)
{
    uint32_t from;
    size_t size;
    message m;
    *text = NULL;
    uint64_t until = spry_clock_ns() + silent_ns;
    while (!spry_ranks_fetch(&from, text, &size)) {
        if (spry_clock_ns() > until)
            return END;
        spry_clock_sleep_ns(look_ns);
    }
    if (size < sizeof m)
        return END;
    memcpy(&m, *text, sizeof m);
    *line = (spry_batch_line){.text = {*text + sizeof m, size - sizeof m}, .number = m.number};
    return (word)m.word;
}

bool spry_batch_guest_next(spry_batch_guest *g, spry_batch_line *line, char **text)
{
    const uint64_t later_ns = 100000000;
    for (;;) {
        pthread_mutex_lock(&g->asking);
        post(0, NEXT, 0, false, (spry_view){"", 0});
        word w = await_reply(line, text);
        pthread_mutex_unlock(&g->asking);
        if (w == LINE)
            return true;
        free(*text);
        *text = NULL;
        if (w == END)
            return false;
        spry_clock_sleep_ns(later_ns);
    }
}

void spry_batch_guest_answer(spry_batch_guest *g, size_t number, const char *json, bool failed)
{
    (void)g;
    post(0, ANSWER, number, failed, spry_view_of(json));
}

void spry_batch_guest_finish(spry_batch_guest *g)
{
    pthread_mutex_lock(&g->lock);
    g->stopping = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    pthread_join(g->thread, NULL);
    post(0, BYE, 0, false, (spry_view){"", 0});
    pthread_mutex_destroy(&g->asking);
    pthread_mutex_destroy(&g->lock);
    pthread_cond_destroy(&g->changed);
    free(g);
}
