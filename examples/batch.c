/* Many answers at once: every prompt becomes a job, and the engine computes as many together as pays.
 * Usage: batch MODEL [MAX_TOKENS], prompts on standard input, one a line; answers in the same order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <spry.h>

enum { MAX_PROMPTS = 1000, MAX_LINE = 4096, MAX_IDS = 8192, MAX_ANSWER = 4096, AT_ONCE = 8 };

typedef struct item {
    spry_job *job;
    char answer[MAX_ANSWER];
    size_t size;
} item;

/* Runs on the engine's thread. */
static bool on_text(void *user, const char *text, size_t size)
{
    item *it = user;
    if (size >= sizeof it->answer - it->size)
        return false;
    memcpy(it->answer + it->size, text, size);
    it->size += size;
    return true;
}

static spry_status create(item *it, spry_engine *engine, char *line, uint32_t max_tokens, spry_error *error)
{
    int32_t ids[MAX_IDS];
    spry_request request;
    spry_request_default(&request);
    line[strcspn(line, "\n")] = '\0';
    spry_message message = {"user", line};
    spry_status status = spry_engine_chat(engine, ids, MAX_IDS, &request.n_prompt, &message, 1, error);
    if (status || request.n_prompt > MAX_IDS)
        return status ? status : SPRY_ERR_CONTEXT;
    request.prompt = ids; /* the job copies them */
    request.max_tokens = max_tokens;
    request.sampling.temperature = 0;
    request.on_text = on_text;
    request.user = it;
    return spry_job_create_answer(&it->job, engine, &request, NULL, error);
}

int main(int argc, char **argv)
{
    static item items[MAX_PROMPTS];
    spry_error error = {0};
    spry_engine *engine = NULL;
    spry_engine_options options;
    spry_jobs_options jobs;
    spry_result result;
    size_t n = 0, shown = 0;
    char line[MAX_LINE];
    uint32_t max_tokens = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;
    if (argc < 2) {
        fprintf(stderr, "usage: batch MODEL [MAX_TOKENS]\n");
        return 2;
    }
    spry_engine_options_default(&options);
    options.sessions = AT_ONCE;
    spry_jobs_options_default(&jobs);
    jobs.policy = SPRY_POLICY_OFFLINE;
    spry_status status = spry_engine_open(&engine, argv[1], &options, &error);
    if (!status)
        status = spry_engine_set_jobs(engine, &jobs, &error);
    for (; !status && n < MAX_PROMPTS && fgets(line, sizeof line, stdin); n += !status) {
        status = create(&items[n], engine, line, max_tokens, &error);
        if (status)
            break;
        /* When too many wait, wait for the oldest and try again. */
        for (size_t i = 0; (status = spry_job_submit(items[n].job, &error)) == SPRY_ERR_BUSY && i < n; i++)
            spry_job_wait(items[i].job, -1, NULL);
    }
    for (; !status && shown < n; shown++) {
        spry_job_wait(items[shown].job, -1, NULL);
        status = spry_job_result(items[shown].job, &result, &error);
        if (!status)
            printf("%zu (%zu tokens, %s): %.*s\n", shown + 1, result.generated_tokens, spry_finish_name(result.finish),
                   (int)items[shown].size, items[shown].answer);
    }
    if (status)
        fprintf(stderr, "batch: %s: %s\n", spry_status_name(status), error.message);
    for (size_t i = 0; i < MAX_PROMPTS; i++)
        spry_job_free(items[i].job);
    spry_engine_close(engine);
    return status ? 1 : 0;
}
