/* POST /rerank: documents in the order in which they fit a query, by their embeddings or by a model that says yes or
 * no. */
#include <math.h>
#include <stdlib.h>
#include <strings.h>

#include "server/api/apis.h"
#include "server/fields/field_table.h"
#include "server/http/http_reply.h"
#include "server/request/completion.h"
#include "server/request/embedding.h"
#include "server/request/job_wait.h"
#include "server/request/prompt.h"

enum { DOCUMENTS_MAX = 2048 };

typedef struct ranked {
    size_t index;
    double score;
} ranked;

typedef struct rerank_call {
    spry_fields fields;
    json_t *root;
    const json_t *documents;
    const char *query, *instruction;
    bool tei, with_text, yes_no;
    size_t top_n;
    spry_costs costs;
    const spry_pooled *model;
    size_t n_tokens;
    ranked *ranking; /* one for each document */
} rerank_call;

/* NULL: it has none. */
static const char *text_of(const json_t *document)
{
    const json_t *text = json_is_object(document) ? json_object_get(document, "text") : document;
    return json_string_value(text);
}

/* ---- by embeddings ----------------------------------------------------------------------------------------------- */

/* Behind the model's prompt of that name, where it has one. */
static spry_status embed(spry_embedder *embedder, const char *text, const char *prompt_name, spry_error *error)
{
    spry_tokens ids = {0};
    const spry_engine *engine = embedder->model->engine;
    const char *prompt = spry_engine_embedding_prompt(engine, prompt_name);
    prompt = prompt ? prompt : spry_engine_embedding_prompt(engine, NULL);
    spry_status status = spry_embedder_encode(&ids, engine, prompt, spry_view_of(text), error);
    if (status == SPRY_OK)
        status = spry_embedder_add(embedder, &ids, error);
    if (status == SPRY_OK)
        status = spry_embedder_take(embedder, error);
    spry_tokens_deinit(&ids);
    return status;
}

/* Models need not give embeddings of length 1. */
static double cosine(const float *a, const float *b, size_t n)
{
    double product = 0, first = 0, second = 0;
    for (size_t i = 0; i < n; i++) {
        product += (double)a[i] * (double)b[i];
        first += (double)a[i] * (double)a[i];
        second += (double)b[i] * (double)b[i];
    }
    return first > 0 && second > 0 ? product / sqrt(first * second) : 0;
}

static spry_status rank_by_embedding(rerank_call *call, spry_error *error)
{
    spry_embedder embedder;
    spry_status status = spry_embedder_init(&embedder, &call->costs, call->model, error);
    float *query = status == SPRY_OK ? calloc(embedder.width, sizeof *query) : NULL;
    if (status == SPRY_OK && !query)
        status = spry_fail_memory(error, "an embedding", 0);
    if (status == SPRY_OK)
        status = embed(&embedder, call->query, "query", error);
    if (status == SPRY_OK)
        memcpy(query, embedder.vector, embedder.width * sizeof *query);
    size_t i;
    const json_t *document;
    json_array_foreach(call->documents, i, document)
    {
        if (status == SPRY_OK)
            status = embed(&embedder, text_of(document), "document", error);
        call->ranking[i] = (ranked){i, status == SPRY_OK ? cosine(query, embedder.vector, embedder.width) : 0};
    }
    call->n_tokens = embedder.n_tokens;
    free(query);
    spry_embedder_deinit(&embedder);
    return status;
}

/* ---- by yes and no ----------------------------------------------------------------------------------------------- */

typedef struct verdict {
    int32_t yes, no; /* tokens */
    double score;
} verdict;

static bool on_row(void *user, size_t index, const float *logits)
{
    verdict *v = user;
    (void)index;
    v->score = 1 / (1 + exp((double)logits[v->no] - (double)logits[v->yes]));
    return true;
}

static bool one_token(int32_t *id, const spry_engine *engine, const char *text)
{
    size_t count = 0;
    return spry_engine_tokenize_part(engine, id, 1, &count, text, strlen(text), false, NULL) == SPRY_OK && count == 1;
}

/* The conversation that asks whether a document fits. */
static char *question(const rerank_call *call, const char *document)
{
    json_t *conversation = json_pack(
        "{s:[{s:s, s:s}, {s:s, s:o}], s:{s:b}}", "messages", "role", "system", "content",
        "Judge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the "
        "answer can only be \"yes\" or \"no\".",
        "role", "user", "content",
        json_sprintf("<Instruct>: %s\n<Query>: %s\n<Document>: %s", call->instruction, call->query, document),
        "chat_template_kwargs", "enable_thinking", 0);
    char *text = conversation ? json_dumps(conversation, JSON_COMPACT) : NULL;
    json_decref(conversation);
    return text;
}

static spry_status judge(rerank_call *call, verdict *v, const char *document, spry_error *error)
{
    spry_chat_prompt prompt = {0};
    spry_job *job = NULL;
    spry_job_options options;
    spry_evaluation evaluation;
    char *json = question(call, document);
    spry_status status = json ? spry_engine_chat_prompt(call->model->engine, &prompt, json, strlen(json), error)
                              : spry_fail_memory(error, "the conversation", 0);
    spry_job_options_of(&options, call->costs.exchange);
    spry_evaluation_default(&evaluation);
    evaluation.ids = prompt.ids;
    evaluation.count = prompt.count;
    evaluation.first = prompt.count ? prompt.count - 1 : 0;
    evaluation.on_row = on_row;
    evaluation.user = v;
    spry_costs_begin_share(&call->costs);
    if (status == SPRY_OK)
        status = spry_job_create_evaluation(&job, call->model->engine, &evaluation, &options, error);
    if (status == SPRY_OK)
        status = spry_job_begin(job, &call->costs, error);
    if (status == SPRY_OK)
        status = spry_job_finish(job, &call->costs, error);
    call->n_tokens += prompt.count;
    spry_job_free(job);
    spry_chat_prompt_deinit(&prompt);
    free(json);
    return status;
}

static spry_status rank_by_verdict(rerank_call *call, spry_error *error)
{
    verdict v;
    spry_status status = SPRY_OK;
    size_t i;
    const json_t *document;
    if (!one_token(&v.yes, call->model->engine, "yes") || !one_token(&v.no, call->model->engine, "no"))
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "this model has no single tokens for \"yes\" and \"no\"");
    json_array_foreach(call->documents, i, document)
    {
        v.score = 0;
        if (status == SPRY_OK)
            status = judge(call, &v, text_of(document), error);
        call->ranking[i] = (ranked){i, v.score};
    }
    return status;
}

/* ---- the reply --------------------------------------------------------------------------------------------------- */

static int better(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->score != y->score)
        return x->score < y->score ? 1 : -1;
    return x->index < y->index ? -1 : 1;
}

static json_t *result_json(const rerank_call *call, const ranked *r)
{
    const char *text = text_of(json_array_get(call->documents, r->index));
    json_t *result =
        json_pack("{s:I, s:f}", "index", (json_int_t)r->index, call->tei ? "score" : "relevance_score", r->score);
    if (call->with_text)
        json_object_set_new(result, call->tei ? "text" : "document",
                            call->tei ? json_string(text) : json_pack("{s:s}", "text", text));
    return result;
}

static json_t *reply_json(rerank_call *call)
{
    size_t count = json_array_size(call->documents);
    json_t *results = json_array();
    qsort(call->ranking, count, sizeof *call->ranking, better);
    for (size_t i = 0; i < count && i < call->top_n; i++)
        json_array_append_new(results, result_json(call, &call->ranking[i]));
    if (call->tei)
        return results;
    json_int_t n = (json_int_t)call->n_tokens;
    return json_pack("{s:s, s:s, s:{s:I, s:I}, s:o}", "model", call->model->name, "object", "list", "usage",
                     "prompt_tokens", n, "total_tokens", n, "results", results);
}

static void rank(rerank_call *call, spry_exchange *x)
{
    spry_error error = {.status = SPRY_OK};
    const char *method = spry_fields_string(&call->fields, "method", NULL);
    call->model = spry_completion_model(x, spry_fields_string(&call->fields, "model", NULL));
    if (!call->model)
        return;
    call->yes_no = method ? strcmp(method, "yes_no") == 0 : strcasestr(call->model->name, "rerank") != NULL;
    spry_status status = (call->yes_no ? rank_by_verdict : rank_by_embedding)(call, &error);
    spry_costs_end_share(&call->costs);
    const spry_model_counts counts = {.requests = 1, .failed = status != SPRY_OK, .prompt_tokens = call->n_tokens};
    spry_registry_add_counts(&x->server->registry, call->model->name, &counts);
    if (status == SPRY_OK)
        spry_reply_json(x, MHD_HTTP_OK, reply_json(call));
    else
        spry_reply_failure(x, &error);
    spry_model_pool_release(x->server->pool, call->model);
}

static void read_documents(rerank_call *call)
{
    spry_fields *fields = &call->fields;
    size_t i;
    const json_t *document;
    call->tei = spry_fields_get(fields, "texts") != NULL;
    const char *name = call->tei ? "texts" : "documents";
    call->documents = spry_fields_array(fields, name);
    if (!json_array_size(call->documents) || json_array_size(call->documents) > DOCUMENTS_MAX)
        spry_fields_refuse(fields, name, "%s must be a list of 1 to %d texts", name, DOCUMENTS_MAX);
    json_array_foreach(call->documents, i, document)
    {
        if (!text_of(document))
            spry_fields_refuse(fields, name, "%s[%zu] must be a text", name, i);
    }
}

void spry_llama_rerank(spry_exchange *x)
{
    rerank_call call = {0};
    spry_fields *fields = &call.fields;
    if (!spry_fields_open(fields, &call.root, x))
        return;
    spry_fields_check(fields, &spry_fields_rerank);
    call.query = spry_fields_string(fields, "query", NULL);
    call.instruction = spry_fields_string(fields, "instruction",
                                          "Given a web search query, retrieve relevant passages that answer the query");
    call.with_text =
        spry_fields_bool(fields, "return_documents", false) || spry_fields_bool(fields, "return_text", false);
    call.top_n = (size_t)spry_fields_integer(fields, "top_n", DOCUMENTS_MAX, 1, INT32_MAX);
    const char *method = spry_fields_string(fields, "method", "embedding");
    if (strcmp(method, "embedding") != 0 && strcmp(method, "yes_no") != 0)
        spry_fields_refuse(fields, "method", "method must be \"embedding\" or \"yes_no\"");
    if (!call.query)
        spry_fields_refuse(fields, "query", "query is missing");
    read_documents(&call);
    if (spry_fields_fine(fields, x)) {
        call.ranking = calloc(json_array_size(call.documents), sizeof *call.ranking);
        spry_costs_begin(&call.costs, x);
        if (call.ranking)
            rank(&call, x);
        else
            spry_reply_error(x, MHD_HTTP_SERVICE_UNAVAILABLE, NULL, "not enough memory for the documents");
        spry_costs_end(&call.costs, call.n_tokens, 0);
        free(call.ranking);
    }
    json_decref(call.root);
}
