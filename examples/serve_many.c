/* Several conversations at once: each has a session, each turn is a job, and all jobs are computed together.
 * Usage: serve_many MODEL "FIRST MESSAGE|SECOND MESSAGE|..." ..., one argument for each conversation. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <spry.h>

enum { MAX_CONVERSATIONS = 8, MAX_TURNS = 16, MAX_ANSWER = 4096, MAX_IDS = 8192, MAX_TOKENS = 32 };

typedef struct conversation {
    char *next;                           /* what is asked next; NULL: nothing */
    spry_message messages[2 * MAX_TURNS]; /* user, assistant, user, ... */
    char answers[MAX_TURNS][MAX_ANSWER];
    size_t n_messages, size; /* bytes of the answer under way */
    spry_session *session;
    spry_job *job; /* the turn that is being answered */
} conversation;

/* Runs on the engine's thread, while the main thread leaves this conversation alone. */
static bool on_text(void *user, const char *text, size_t size)
{
    conversation *c = user;
    if (size >= MAX_ANSWER - c->size)
        return false;
    memcpy(c->answers[c->n_messages / 2] + c->size, text, size); /* zeros follow */
    c->size += size;
    return true;
}

/* The next turn of a conversation becomes a job. */
static spry_status ask(conversation *c, spry_engine *engine, spry_error *error)
{
    static int32_t ids[MAX_IDS];
    spry_request request;
    spry_job_options options;
    spry_request_default(&request);
    spry_job_options_default(&options);
    char *bar = strchr(c->next, '|');
    if (bar)
        *bar = '\0';
    c->messages[c->n_messages++] = (spry_message){"user", c->next};
    c->next = bar && c->n_messages + 2 <= 2 * MAX_TURNS ? bar + 1 : NULL;
    spry_status status = spry_engine_chat(engine, ids, MAX_IDS, &request.n_prompt, c->messages, c->n_messages, error);
    if (status || request.n_prompt > MAX_IDS)
        return status ? status : SPRY_ERR_CONTEXT;
    request.prompt = ids; /* the whole conversation; the session computes only what is new */
    request.max_tokens = MAX_TOKENS;
    request.sampling.temperature = 0;
    request.on_text = on_text;
    request.user = c;
    options.session = c->session;
    c->size = 0;
    status = spry_job_create_answer(&c->job, engine, &request, &options, error);
    return status ? status : spry_job_submit(c->job, error);
}

int main(int argc, char **argv)
{
    static conversation all[MAX_CONVERSATIONS];
    size_t n = argc < 3 ? 0 : (size_t)argc - 2, busy = n;
    spry_error error = {0};
    spry_engine *engine = NULL;
    spry_engine_options options;
    spry_engine_options_default(&options);
    options.sessions = 2 * MAX_CONVERSATIONS; /* those that are not created here are for jobs */
    if (n == 0 || n > MAX_CONVERSATIONS) {
        fprintf(stderr, "usage: serve_many MODEL \"FIRST MESSAGE|SECOND MESSAGE|...\" ...\n");
        return 2;
    }
    spry_status status = spry_engine_open(&engine, argv[1], &options, &error);
    for (size_t i = 0; !status && i < n; i++)
        status = spry_session_create(&all[i].session, engine, &error);
    for (size_t i = 0; !status && i < n; i++) {
        all[i].next = argv[i + 2];
        status = ask(&all[i], engine, &error);
    }
    for (size_t i = 0; !status && busy; i = (i + 1) % n) {
        conversation *c = &all[i];
        if (!c->job || spry_job_wait(c->job, 5, NULL)) /* not over after 5 ms: look at the next one */
            continue;
        status = spry_job_result(c->job, NULL, &error);
        spry_job_free(c->job);
        c->job = NULL;
        c->messages[c->n_messages] = (spry_message){"assistant", c->answers[c->n_messages / 2]};
        printf("%zu: %s\n", i + 1, c->messages[c->n_messages++].content);
        if (!status && c->next)
            status = ask(c, engine, &error);
        busy -= !c->job;
    }
    if (status)
        fprintf(stderr, "serve_many: %s: %s\n", spry_status_name(status), error.message);
    for (size_t i = 0; i < n; i++) {
        spry_job_free(all[i].job);
        spry_session_destroy(all[i].session);
    }
    spry_engine_close(engine);
    return status ? 1 : 0;
}
