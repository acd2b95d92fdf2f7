/* A chat with streamed answers. One session holds the conversation: each turn passes the whole prompt again, and only
 * what is new is computed. Usage: chat MODEL [MAX_TOKENS], messages on standard input, one a line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <spry.h>

enum { MAX_MESSAGES = 64, MAX_LINE = 4096, MAX_ANSWER = 65536 };

typedef struct answer {
    char text[MAX_ANSWER];
    size_t size;
} answer;

/* Called for every piece of text as soon as it is certain; false ends the answer. */
static bool on_text(void *user, const char *text, size_t size)
{
    answer *a = user;
    if (size >= sizeof a->text - a->size)
        return false;
    memcpy(a->text + a->size, text, size);
    a->size += size;
    a->text[a->size] = '\0';
    return fwrite(text, 1, size, stdout) == size && fflush(stdout) == 0;
}

static spry_status reply(spry_engine *engine, spry_session *session, answer *a, const spry_message *messages, size_t n,
                         uint32_t max_tokens, spry_error *error)
{
    size_t count;
    spry_status status = spry_engine_chat(engine, NULL, 0, &count, messages, n, error); /* how many ids? */
    int32_t *ids = status ? NULL : malloc(count * sizeof *ids);
    if (!status)
        status = ids ? spry_engine_chat(engine, ids, count, &count, messages, n, error) : SPRY_ERR_MEMORY;
    spry_request request;
    spry_result result;
    spry_request_default(&request);
    request.prompt = ids;
    request.n_prompt = count;
    request.max_tokens = max_tokens;
    request.sampling.temperature = 0;
    request.on_text = on_text;
    request.user = a;
    a->size = 0;
    a->text[0] = '\0';
    if (!status)
        status = spry_session_generate(session, &result, &request, error);
    if (!status)
        printf("\n[%zu tokens of the prompt, %zu reused; %zu generated, %s]\n", result.prompt_tokens,
               result.reused_tokens, result.generated_tokens, spry_finish_name(result.finish));
    free(ids);
    return status;
}

int main(int argc, char **argv)
{
    static answer a;
    spry_error error = {0};
    spry_engine *engine = NULL;
    spry_session *session = NULL;
    spry_message messages[MAX_MESSAGES];
    size_t n = 0;
    char line[MAX_LINE];
    uint32_t max_tokens = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;
    if (argc < 2) {
        fprintf(stderr, "usage: chat MODEL [MAX_TOKENS]\n");
        return 2;
    }
    spry_status status = spry_engine_open(&engine, argv[1], NULL, &error);
    if (!status)
        status = spry_session_create(&session, engine, &error);
    while (!status && n + 2 <= MAX_MESSAGES && fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        messages[n++] = (spry_message){"user", strdup(line)};
        status = reply(engine, session, &a, messages, n, max_tokens, &error);
        messages[n++] = (spry_message){"assistant", strdup(a.text)};
    }
    if (status)
        fprintf(stderr, "chat: %s: %s\n", spry_status_name(status), error.message);
    for (size_t i = 0; i < n; i++)
        free((void *)messages[i].content);
    spry_session_destroy(session);
    spry_engine_close(engine);
    return status ? 1 : 0;
}
