/* A device that computes nothing: its answers are written in a script. Everything else is the program's own: the
 * template, the tokenizer, the cache, grammars, streams. So tests can have answers that make sense, and prompts of any
 * length.
 *
 * Pages hold the ids of their tokens in place of keys and values. A draw reads the ids of its sequence through the page
 * table, finds the answer that the script has for such a prompt, and takes the longest allowed token with which the
 * answer goes on. Blanks need not agree, because a grammar may decide about them.
 *
 * The environment variable SPRY_SCRIPT names the script, which is read for every draw:
 *
 *   {"start": "...",      the text after which an answer begins, and
 *    "skip": "...",       text that may follow it in the prompt
 *    "log": "FILE",       every prompt is appended, as a line of JSON
 *    "hold": "FILE",      while this file is there, a step waits
 *    "rules": [{"has": ["..."], "count": {"...": 2}, "answer": "..."}]}
 *
 * The first rule is used whose texts are all in the prompt, and whose counted texts are there as often as it says. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "device/cpu/cpu_device.h"
#include "model/model.h"

typedef struct row_place {
    const spry_kv_table *table;
    size_t position;
} row_place;

typedef struct script_device {
    spry_cpu_device cpu; /* its pages are used */
    spry_tokenizer *tokenizer;
    spry_kv_table *tables; /* of the last step, copied */
    size_t n_tables;
    row_place *rows; /* [max_logits] with logits */
    size_t n_rows;
    float *zeros; /* [max_logits, n_vocab], and hidden states */
} script_device;

static json_t *read_script(void)
{
    const char *path = getenv("SPRY_SCRIPT");
    json_t *script = path ? json_load_file(path, 0, NULL) : NULL;
    return script ? script : json_object();
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static int32_t *slot(script_device *d, const spry_kv_table *table, size_t position)
{
    const spry_kv_entry *entry = spry_kv_table_find(table, position);
    unsigned char *page = spry_host_page(&d->cpu.pages, entry->page);
    return (int32_t *)(void *)page + (position - entry->start);
}

static void wait_while_held(void)
{
    json_t *script = read_script();
    const char *hold = text_of(script, "hold");
    while (*hold && access(hold, F_OK) == 0)
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    json_decref(script);
}

static void forget_tables(script_device *d)
{
    for (size_t i = 0; i < d->n_tables; i++)
        free(d->tables[i].entries);
    free(d->tables);
    d->tables = NULL;
    d->n_tables = d->n_rows = 0;
}

static spry_status submit(spry_device *device, const spry_device_step *step, spry_error *error)
{
    script_device *d = (script_device *)device;
    wait_while_held();
    forget_tables(d);
    d->tables = calloc(step->n_segments, sizeof *d->tables);
    if (!d->tables)
        return spry_fail_memory(error, "a step", step->n_segments);
    for (size_t i = 0; i < step->n_segments; i++) {
        const spry_segment *segment = &step->segments[i];
        spry_kv_table *table = &d->tables[d->n_tables++];
        *table = *segment->table;
        table->entries = malloc(table->n_entries * sizeof *table->entries);
        if (!table->entries)
            return spry_fail_memory(error, "a step", table->n_entries);
        memcpy(table->entries, segment->table->entries, table->n_entries * sizeof *table->entries);
        for (size_t k = 0; k < segment->n_rows; k++)
            *slot(d, table, segment->first_position + k) = segment->tokens[k];
        for (size_t k = spry_segment_unwanted(segment); segment->want != SPRY_WANT_HIDDEN && k < segment->n_rows; k++)
            d->rows[d->n_rows++] = (row_place){table, segment->first_position + k};
    }
    return device->ops->draw(device, step->draws, step->n_draws, error);
}

static spry_status wait_step(spry_device *device, spry_error *error)
{
    (void)device;
    (void)error;
    return SPRY_OK;
}

static spry_status rows(spry_device *device, const float **out, size_t first, size_t count, spry_error *error)
{
    (void)first;
    (void)count;
    (void)error;
    *out = ((script_device *)device)->zeros;
    return SPRY_OK;
}

/* ---- draws ------------------------------------------------------------------------------------------------------- */

static size_t occurrences(const char *text, const char *of)
{
    size_t n = 0;
    for (const char *at = text; *of && (at = strstr(at, of)); at += strlen(of))
        n++;
    return n;
}

static const char *answer_for(const json_t *script, const char *prompt)
{
    const json_t *rule, *text, *number;
    const char *key;
    size_t i, k;
    json_array_foreach(json_object_get(script, "rules"), i, rule)
    {
        bool fits = true;
        json_array_foreach(json_object_get(rule, "has"), k, text) fits =
            fits && strstr(prompt, json_string_value(text));
        json_object_foreach(json_object_get(rule, "count"), key, number) fits =
            fits && occurrences(prompt, key) == (size_t)json_integer_value(number);
        if (fits)
            return text_of(rule, "answer");
    }
    return "The script has no answer for this prompt.";
}

static void log_prompt(const json_t *script, const char *prompt)
{
    const char *path = text_of(script, "log");
    FILE *file = *path ? fopen(path, "a") : NULL;
    json_t *text = json_string_nocheck(prompt);
    char *line = json_dumps(text, JSON_ENCODE_ANY);
    if (file && line)
        fprintf(file, "%s\n", line);
    if (file)
        fclose(file);
    free(line);
    json_decref(text);
}

/* What remains of the answer after what was generated of it. A thought may have been cut. */
static const char *rest_of(const char *answer, const char *generated)
{
    static const char close[] = "</think>";
    const char *thought = strstr(generated, close), *own = strstr(answer, close);
    if (thought && own) {
        generated = thought + strlen(close);
        answer = own + strlen(close);
    }
    while (*generated) {
        if (*answer == *generated && *answer)
            answer++, generated++;
        else if (isspace((unsigned char)*answer))
            answer++;
        else if (isspace((unsigned char)*generated))
            generated++;
        else
            return ""; /* the grammar went another way */
    }
    return answer;
}

static bool allowed(const spry_draw *draw, int32_t id)
{
    return !draw->mask || (draw->mask[id / 32] >> (id % 32) & 1);
}

/* The longest allowed token with which `rest` begins; -1: there is none. */
static int32_t next_token(const script_device *d, const spry_draw *draw, const char *rest)
{
    int32_t best = -1;
    size_t most = 0;
    for (int32_t id = 0; (size_t)id < spry_tokenizer_size(d->tokenizer); id++) {
        spry_view bytes = spry_tokenizer_bytes(d->tokenizer, id);
        if (bytes.size > most && allowed(draw, id) && strncmp(rest, bytes.data, bytes.size) == 0) {
            most = bytes.size;
            best = id;
        }
    }
    return best;
}

static int32_t any_token(const script_device *d, const spry_draw *draw, bool end)
{
    for (int32_t id = 0; (size_t)id < spry_tokenizer_size(d->tokenizer); id++)
        if (allowed(draw, id) && (!end || spry_tokenizer_is_end(d->tokenizer, id)))
            return id;
    return end ? any_token(d, draw, false) : 0;
}

static int32_t choose(const script_device *d, const spry_draw *draw, char *context)
{
    json_t *script = read_script();
    const char *start = text_of(script, "start");
    char *generated = context + strlen(context);
    for (char *at = context; *start && (at = strstr(at, start)); at += strlen(start))
        generated = at + strlen(start);
    if (strncmp(generated, text_of(script, "skip"), strlen(text_of(script, "skip"))) == 0)
        generated += strlen(text_of(script, "skip"));
    char first = *generated;
    if (!first)
        log_prompt(script, context);
    *generated = '\0';
    char *answer = strdup(answer_for(script, context));
    *generated = first;
    const char *rest = rest_of(answer, generated);
    int32_t id = *rest ? next_token(d, draw, rest) : any_token(d, draw, true);
    if (id < 0) {
        while (isspace((unsigned char)*rest))
            rest++;
        id = next_token(d, draw, rest);
    }
    free(answer);
    json_decref(script);
    return id < 0 ? any_token(d, draw, false) : id;
}

static void draw_one(script_device *d, spry_draw *draw)
{
    const row_place *row = &d->rows[draw->row];
    size_t count = row->position + 1;
    int32_t *ids = malloc(count * sizeof *ids);
    spry_buffer text;
    spry_buffer_init(&text, SIZE_MAX / 2);
    for (size_t i = 0; i < count; i++)
        ids[i] = *slot(d, row->table, i);
    spry_tokenizer_decode(d->tokenizer, &text, ids, count, true, NULL);
    spry_buffer_append(&text, "", 1);
    draw->status = SPRY_OK;
    draw->logprob = 0;
    draw->n_top = 0;
    draw->token = choose(d, draw, text.data);
    spry_buffer_deinit(&text);
    free(ids);
}

static spry_status draw(spry_device *device, spry_draw *const *draws, size_t n, spry_error *error)
{
    (void)error;
    for (size_t i = 0; i < n; i++)
        draw_one((script_device *)device, draws[i]);
    return SPRY_OK;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static void close_device(spry_device *device)
{
    script_device *d = (script_device *)device;
    forget_tables(d);
    spry_tokenizer_destroy(d->tokenizer);
    spry_cpu_device_deinit(&d->cpu);
    free(d->rows);
    free(d->zeros);
    free(d);
}

static spry_kv_mover mover(spry_device *device)
{
    return spry_host_pages_mover(&((script_device *)device)->cpu.pages);
}

static void no_trace(spry_device *device, spry_trace *trace, uint32_t lane)
{
    (void)device;
    (void)trace;
    (void)lane;
}

static void no_watch(spry_device *device, spry_op_watch *watch)
{
    (void)device;
    (void)watch;
}

static void no_threads(spry_device *device, spry_threads *threads)
{
    (void)device;
    (void)threads;
}

static bool measure(spry_device *device, spry_device_memory *memory)
{
    (void)device;
    (void)memory;
    return false;
}

static bool measure_pages(spry_device *device, size_t *bytes, const uint32_t *pages, size_t n_pages)
{
    (void)device;
    (void)bytes;
    (void)pages;
    (void)n_pages;
    return false;
}

static const spry_device_ops ops = {.close = close_device,
                                    .submit = submit,
                                    .wait = wait_step,
                                    .draw = draw,
                                    .logits = rows,
                                    .hidden = rows,
                                    .mover = mover,
                                    .set_trace = no_trace,
                                    .set_watch = no_watch,
                                    .set_threads = no_threads,
                                    .measure = measure,
                                    .measure_pages = measure_pages};

static spry_status open_device(spry_device **out, const char *piece, const spry_device_setup *setup, spry_error *error)
{
    script_device *d = calloc(1, sizeof *d);
    size_t wide = setup->config->n_vocab > setup->config->n_embd ? setup->config->n_vocab : setup->config->n_embd;
    size_t most = setup->limits.max_logits > setup->limits.max_rows ? setup->limits.max_logits : setup->limits.max_rows;
    (void)piece;
    *out = NULL;
    spry_status status = spry_cpu_device_init(&d->cpu, setup, false, NULL, error);
    if (!status)
        status = spry_tokenizer_open(&d->tokenizer, setup->source.name, error);
    if (status) {
        free(d);
        return status;
    }
    d->cpu.device.ops = &ops;
    d->rows = calloc(most, sizeof *d->rows);
    d->zeros = calloc(most * wide, sizeof *d->zeros);
    *out = &d->cpu.device;
    return SPRY_OK;
}

static size_t total(const char *piece)
{
    return spry_device_kind_cpu.total(piece);
}

static bool estimate(spry_device_memory *memory, const spry_device_setup *setup, const spry_device_use *use)
{
    return spry_device_kind_cpu.estimate(memory, setup, use);
}

static const spry_device_kind kind = {
    .name = "script", .features = SPRY_FEATURES_END - 1, .total = total, .open = open_device, .estimate = estimate};

__attribute__((constructor)) static void add_kind(void)
{
    spry_device_add_kind(&kind);
}
