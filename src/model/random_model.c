/* Encoding every weight of a large model would take minutes, so only a deck of blocks is encoded for each type and
 * width, and the tensors are dealt from it: every block is one an encoder makes, and their order is random. */
#include "model/random_model.h"

#include <math.h>
#include <stdlib.h>

#include "model/export_plan.h"
#include "tokenizer/made_vocab.h"

enum { DECK_VALUES = 1 << 16, CARD_VALUES = 32, DECKS_MAX = 32, BATCH_BYTES = 4 << 20 };

/* Cards: runs of values, whole blocks each. */
typedef struct deck {
    spry_dtype type;
    size_t n_in; /* the rows' width, on which the weights' size depends */
    size_t card_values, card_bytes, n_cards;
    unsigned char *cards;
} deck;

typedef struct dealer {
    const spry_random_model *job;
    const spry_ops *ops;
    spry_gguf_writer *writer;
    deck decks[DECKS_MAX];
    size_t n_decks;
    unsigned char *batch; /* [BATCH_BYTES], or one row where that is larger */
    size_t batch_bytes;
    size_t done, total;
    spry_error *error;
} dealer;

/* ---- random numbers (splitmix64) --------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t next(uint64_t *state)
{
    return mix(*state += 0x9e3779b97f4a7c15u);
}

/* Near enough to a normal distribution of variance 1: four uniform numbers added. */
static float bell(uint64_t *state)
{
    uint64_t bits = next(state);
    int32_t sum = 0;
    for (int i = 0; i < 4; i++, bits >>= 16)
        sum += (int32_t)(bits & 0xffff) - 0x8000;
    return (float)sum * (sqrtf(3.0f) / 65536.0f);
}

/* ---- decks ------------------------------------------------------------------------------------------------------- */

static spry_status shuffle(deck *d, const spry_ops *ops, spry_error *error)
{
    size_t block = spry_dtype_block(d->type);
    d->card_values = block > CARD_VALUES ? block : CARD_VALUES;
    while (d->n_in % d->card_values)
        d->card_values /= 2;
    d->n_cards = DECK_VALUES / d->card_values;
    d->card_bytes = d->card_values / block * spry_dtype_bytes(d->type);
    d->cards = malloc(d->n_cards * d->card_bytes);
    float *values = malloc(DECK_VALUES * sizeof *values);
    spry_status status = SPRY_OK;
    if (!d->cards || !values) {
        status = spry_fail_memory(error, "random weights", DECK_VALUES * sizeof *values);
    } else {
        uint64_t state = mix(d->n_in) ^ (uint64_t)d->type;
        float size = 1 / sqrtf((float)d->n_in);
        for (size_t i = 0; i < DECK_VALUES; i++)
            values[i] = bell(&state) * size;
        ops->encode[d->type](d->cards, values, DECK_VALUES);
    }
    free(values);
    return status;
}

/* The deck for a type and width, made when it is first asked for. */
static spry_status find_deck(const deck **out, dealer *d, spry_dtype type, size_t n_in)
{
    for (size_t i = 0; i < d->n_decks; i++)
        if (d->decks[i].type == type && d->decks[i].n_in == n_in) {
            *out = &d->decks[i];
            return SPRY_OK;
        }
    if (d->n_decks == DECKS_MAX || !d->ops->encode[type] || n_in % spry_dtype_block(type))
        return spry_fail(d->error, SPRY_ERR_UNSUPPORTED, "rows of %zu random weights cannot be made in %s", n_in,
                         spry_dtype_name(type));
    deck *made = &d->decks[d->n_decks++];
    *made = (deck){.type = type, .n_in = n_in};
    *out = made;
    return shuffle(made, d->ops, d->error);
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

typedef struct deal_job {
    const deck *deck;
    unsigned char *out;
    uint64_t seed; /* of the tensor */
    size_t first_row, n_rows, row_bytes;
} deal_job;

static void deal_part(void *context, size_t worker, size_t n_workers)
{
    const deal_job *job = context;
    const deck *d = job->deck;
    size_t begin, end;
    spry_threads_part(&begin, &end, job->n_rows, 1, worker, n_workers);
    for (size_t row = begin; row < end; row++) {
        uint64_t state = mix(job->seed + job->first_row + row);
        unsigned char *out = job->out + row * job->row_bytes;
        for (size_t at = 0; at < job->row_bytes; at += d->card_bytes)
            memcpy(out + at, d->cards + next(&state) % d->n_cards * d->card_bytes, d->card_bytes);
    }
}

static spry_status hand_over(dealer *d, const void *data, size_t bytes)
{
    const spry_random_model *job = d->job;
    spry_status status = spry_gguf_writer_data(d->writer, data, bytes, d->error);
    d->done += bytes;
    if (!status && job->progress && !job->progress(job->user, d->done, d->total))
        status = spry_fail(d->error, SPRY_ERR_CANCELLED, "stopped after %zu of %zu bytes", d->done, d->total);
    return status;
}

static spry_status write_random(dealer *d, const spry_export_item *item, size_t index)
{
    size_t n_in = item->as.dims[item->as.n_dims - 1], n_rows = item->n_pieces * item->pieces[0].n_out;
    deal_job job = {.out = d->batch, .seed = mix((uint64_t)index + 1)};
    spry_status status = find_deck(&job.deck, d, item->as.type, n_in);
    if (status)
        return status;
    job.row_bytes = n_in / job.deck->card_values * job.deck->card_bytes;
    size_t at_once = d->batch_bytes / job.row_bytes;
    for (; !status && job.first_row < n_rows; job.first_row += job.n_rows) {
        job.n_rows = n_rows - job.first_row < at_once ? n_rows - job.first_row : at_once;
        spry_threads_run(d->job->threads, deal_part, &job);
        status = hand_over(d, d->batch, job.n_rows * job.row_bytes);
    }
    return status;
}

static size_t item_bytes(const spry_export_item *item)
{
    const size_t *dims = item->as.dims;
    size_t bytes = 0;
    spry_dtype_size(&bytes, item->as.type, dims[0] * dims[1] * dims[2] * dims[3]);
    return bytes;
}

/* Vectors come as they are; everything else is made here. */
static spry_status write_tensors(dealer *d, const spry_export_plan *plan)
{
    spry_status status = SPRY_OK;
    for (size_t i = 0; !status && i < plan->count; i++) {
        const spry_export_item *item = &plan->items[i];
        if (item->pieces[0].data == spry_unmade)
            status = write_random(d, item, i);
        else
            status = hand_over(d, item->pieces[0].data, item_bytes(item));
    }
    return status;
}

static spry_status write_plan(dealer *d, const spry_export_plan *plan, const char *path)
{
    const spry_shape *shape = d->job->shape;
    d->batch_bytes = BATCH_BYTES;
    for (size_t i = 0; i < plan->count; i++) {
        const spry_export_item *item = &plan->items[i];
        size_t row = item_bytes(item) / (item->n_pieces * item->pieces[0].n_out);
        spry_gguf_writer_tensor(d->writer, &item->as);
        d->total += item_bytes(item);
        d->batch_bytes = row > d->batch_bytes ? row : d->batch_bytes;
    }
    d->batch = malloc(d->batch_bytes);
    if (!d->batch || !spry_export_metadata(plan, d->writer) ||
        !spry_made_vocab_write(d->writer, shape->config.n_vocab, shape->pattern))
        return spry_fail_memory(d->error, "random weights", d->batch_bytes);
    spry_status status = spry_gguf_writer_begin(d->writer, path, d->error);
    if (!status)
        status = write_tensors(d, plan);
    return status ? status : spry_gguf_writer_finish(d->writer, d->error);
}

static void clear_table(dealer *d)
{
    spry_gguf_writer_destroy(d->writer);
    for (size_t i = 0; i < d->n_decks; i++)
        free(d->decks[i].cards);
    free(d->batch);
}

spry_status spry_random_model_write(const char *path, const spry_random_model *job, spry_error *error)
{
    spry_export options = {.recipe = job->recipe, .title = job->name, .threads = job->threads};
    spry_export_plan plan;
    spry_model *model = NULL;
    dealer d = {.job = job, .error = error};
    spry_status status = spry_ops_get(&d.ops, "auto", error);
    if (!status)
        status = spry_shape_model(&model, job->shape, job->name, error);
    if (status)
        return status;
    status = spry_export_plan_init(&plan, model, &options, error);
    if (!status)
        status = spry_gguf_writer_create(&d.writer, error);
    if (!status)
        status = write_plan(&d, &plan, path);
    clear_table(&d);
    spry_export_plan_deinit(&plan);
    spry_model_close(model);
    return status;
}
