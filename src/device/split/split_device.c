/* A device composed of two: one has the first layers of a model, the other the last layers. */
#include "device/split/split_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/arch.h"
#include "model/tensor_names.h"

/* ---- a range of layers ------------------------------------------------------------------------------------------- */

/* Configs and weights of a part are those of the whole model, except that their lists begin at the part's first
 * layer. */

spry_status spry_split_check(const spry_config *c, spry_error *error)
{
    bool apart = !c->arch->streams && !c->n_delta_layers && !c->index_top;
    for (uint32_t i = 0; apart && i < c->n_layers; i++)
        apart = c->kv_layer[i] == i && c->kv_slot[i] == i;
    return apart ? SPRY_OK
                 : spry_fail(error, SPRY_ERR_UNSUPPORTED,
                             "layers of %s models share more than their rows and cannot be split over devices",
                             c->arch->name);
}

static void add_bytes(void *context, const spry_matrix *matrix)
{
    *(size_t *)context += matrix->weight->n_out * matrix->weight->row_bytes;
}

/* Bytes of the part's matrices; packing can release at most this. */
static size_t count_bytes(spry_weights *w, const spry_config *c)
{
    size_t bytes = w->embedding.data ? w->embedding.n_out * w->embedding.row_bytes : 0;
    spry_matrices_each(w, c, add_bytes, &bytes);
    for (uint32_t i = 0; i < c->n_layers; i++)
        for (uint32_t h = 0; w->layers[i].k_b && h < c->n_heads; h++)
            bytes += w->layers[i].k_b[h].n_out * w->layers[i].k_b[h].row_bytes +
                     w->layers[i].v_b[h].n_out * w->layers[i].v_b[h].row_bytes;
    return bytes;
}

static void take_weights(spry_split_part *part, const spry_device_setup *setup, uint32_t first, bool begins, bool ends)
{
    spry_weights *w = &part->weights;
    const spry_weight none = {0};
    *w = *setup->weights;
    bool tied = w->embedding.data == w->output.data;
    w->layers += first;
    if (!begins) {
        w->embedding = w->positions = w->token_types = none;
        w->embedding_norm = w->embedding_norm_bias = NULL;
    }
    if (!ends) {
        w->output = none;
        w->output_norm = w->output_norm_bias = NULL;
    }
    if (tied) { /* both parts read it, so neither may release its rows */
        w->quantized_bytes = 0;
        part->setup.mapped = false;
    }
    w->bytes = count_bytes(w, &part->config);
}

static spry_status take_config(spry_split_part *part, const spry_config *c, uint32_t first, uint32_t end,
                               spry_error *error)
{
    uint32_t n = end - first;
    part->lists = malloc(n * sizeof *part->lists);
    if (!part->lists)
        return spry_fail_memory(error, "a part of a model", n * sizeof *part->lists);
    for (uint32_t i = 0; i < n; i++)
        part->lists[i] = i;
    part->config = *c;
    part->config.n_layers = part->config.n_kv_slots = n;
    part->config.kv_layer = part->config.kv_slot = part->lists;
    part->config.convolves = c->convolves ? c->convolves + first : NULL;
    part->config.rotated = c->rotated ? c->rotated + first : NULL;
    part->config.sliding = c->sliding ? c->sliding + first : NULL;
    part->config.sparsity = c->sparsity ? c->sparsity + first : NULL;
    return SPRY_OK;
}

/* Initialises the part's pool with its share of a page: shape, sizes and turns. Pages are counted by the whole pool. */
static spry_status take_pool(spry_split_part *part, const spry_kv_pool *whole, spry_error *error)
{
    spry_kv_pool *pool = &part->pool;
    size_t token;
    *pool = *whole;
    pool->references = pool->free = NULL;
    pool->held = NULL;
    pool->shape.n_layers = part->config.n_layers;
    if (!spry_kv_token_bytes(&token, &pool->shape))
        return spry_fail(error, SPRY_ERR_MEMORY, "a KV page is larger than any memory");
    pool->page_bytes = token * SPRY_PAGE_TOKENS;
    return SPRY_OK;
}

/* Initialises a part with layers [first, end) of the setup's model, which is borrowed. The part must not move. */
static spry_status part_init(spry_split_part *part, const spry_device_setup *setup, uint32_t first, uint32_t end,
                             spry_error *error)
{
    bool begins = first == 0, ends = end == setup->config->n_layers;
    *part = (spry_split_part){.setup = *setup};
    spry_status status = take_config(part, setup->config, first, end, error);
    if (!status)
        status = take_pool(part, setup->pool, error);
    if (status) {
        spry_split_part_deinit(part);
        return status;
    }
    take_weights(part, setup, first, begins, ends);
    part->setup.config = &part->config;
    part->setup.weights = &part->weights;
    part->setup.pool = &part->pool;
    part->setup.expert_bytes = 0;
    part->setup.limits.max_logits = ends ? setup->limits.max_logits : 1;
    return SPRY_OK;
}

void spry_split_part_deinit(spry_split_part *part)
{
    free(part->lists);
    part->lists = NULL;
}

/* ---- the device -------------------------------------------------------------------------------------------------- */

enum { WRITES = 16 }; /* maximum number of pages written at once */
enum { FRONT, BACK };

typedef struct split_device {
    spry_device device;
    const spry_kv_pool *pool; /* the caller's; its turns are copied by submit */
    spry_split_part parts[2];
    spry_device *inside[2];
    spry_kv_mover movers[2];
    spry_segment *segments; /* [capacity]: segments of the step for the front part */
    size_t capacity;
    unsigned char *pages; /* [WRITES, page_bytes], NULL until a page is written */
    uint32_t written[WRITES];
    size_t n_writes;
} split_device;

static split_device *split_of(spry_device *device)
{
    return (split_device *)device;
}

static spry_device *back_of(spry_device *device)
{
    return split_of(device)->inside[BACK];
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* Computes the front part: all rows as they leave its last layer. */
static spry_status front_rows(split_device *d, const float **rows, const spry_device_step *step, spry_error *error)
{
    size_t n_rows = 0;
    if (step->n_segments > d->capacity) {
        spry_segment *grown = realloc(d->segments, step->n_segments * sizeof *grown);
        if (!grown)
            return spry_fail_memory(error, "a step", step->n_segments * sizeof *grown);
        d->segments = grown;
        d->capacity = step->n_segments;
    }
    for (size_t i = 0; i < step->n_segments; i++) {
        d->segments[i] = step->segments[i];
        d->segments[i].want = SPRY_WANT_HIDDEN;
        n_rows += d->segments[i].n_rows;
    }
    const spry_device_step front = {.segments = d->segments, .n_segments = step->n_segments};
    spry_status status = spry_device_submit(d->inside[FRONT], &front, error);
    return status ? status : spry_device_hidden(d->inside[FRONT], rows, 0, n_rows, error);
}

static spry_status submit(spry_device *device, const spry_device_step *step, spry_error *error)
{
    split_device *d = split_of(device);
    spry_device_step back = *step;
    for (size_t i = 0; i < 2; i++)
        d->parts[i].pool.turns = d->pool->turns;
    spry_status status = front_rows(d, &back.inputs, step, error);
    return status ? status : spry_device_submit(d->inside[BACK], &back, error);
}

static spry_status wait_for_step(spry_device *device, spry_error *error)
{
    spry_status status = spry_device_wait(back_of(device), error);
    device->sampling_ns = spry_device_sampling_ns(back_of(device));
    device->placed_weights = false;
    device->attention_ns = 0;
    for (size_t i = 0; i < 2; i++) {
        const spry_device *inside = split_of(device)->inside[i];
        device->placed_weights = spry_device_placed_weights(inside) || device->placed_weights;
        device->attention_ns += spry_device_attention_ns(inside);
    }
    return status;
}

static spry_status draw(spry_device *device, spry_draw *const *draws, size_t n, spry_error *error)
{
    return spry_device_draw(back_of(device), draws, n, error);
}

static spry_status logits(spry_device *device, const float **out, size_t first, size_t count, spry_error *error)
{
    return spry_device_logits(back_of(device), out, first, count, error);
}

static spry_status hidden(spry_device *device, const float **out, size_t first, size_t count, spry_error *error)
{
    return spry_device_hidden(back_of(device), out, first, count, error);
}

/* ---- pages ------------------------------------------------------------------------------------------------------- */

static void copy_page(void *self, uint32_t to, uint32_t from)
{
    const split_device *d = self;
    for (size_t i = 0; i < 2; i++)
        d->movers[i].copy(d->movers[i].self, to, from);
}

/* May be called from any thread. */
static const void *read_page(void *self, uint32_t page, void *room)
{
    const split_device *d = self;
    unsigned char *to = room;
    for (size_t i = 0; i < 2; to += d->parts[i++].pool.page_bytes) {
        const void *bytes = d->movers[i].read(d->movers[i].self, page, to);
        if (!bytes)
            return NULL;
        if (bytes != to)
            memcpy(to, bytes, d->parts[i].pool.page_bytes);
    }
    return room;
}

static void *begin_write(void *self, uint32_t page)
{
    split_device *d = self;
    if (!d->pages)
        d->pages = malloc(WRITES * d->pool->page_bytes);
    if (!d->pages || d->n_writes == WRITES)
        return NULL;
    d->written[d->n_writes] = page;
    return d->pages + d->n_writes++ * d->pool->page_bytes;
}

static bool end_write(void *self, uint32_t page, bool whole)
{
    const split_device *d = self;
    size_t at = 0;
    bool fine = true;
    while (d->written[at] != page)
        at++;
    const unsigned char *bytes = d->pages + at * d->pool->page_bytes;
    for (size_t i = 0; i < 2 && whole; bytes += d->parts[i++].pool.page_bytes) {
        const spry_kv_mover *m = &d->movers[i];
        void *room = m->write_begin(m->self, page);
        if (!room && (fine = m->write_finish(m->self) && fine)) /* the device takes fewer pages at once, so finish those
                                                                 * first */
            room = m->write_begin(m->self, page);
        if (!room)
            return false;
        memcpy(room, bytes, d->parts[i].pool.page_bytes);
        fine = m->write_end(m->self, page, true) && fine;
    }
    return fine;
}

static bool finish_writes(void *self)
{
    split_device *d = self;
    bool fine = true;
    for (size_t i = 0; i < 2; i++)
        fine = d->movers[i].write_finish(d->movers[i].self) && fine;
    d->n_writes = 0;
    return fine;
}

static void release_pages(void *self, uint32_t first, size_t count)
{
    const split_device *d = self;
    for (size_t i = 0; i < 2; i++)
        if (d->movers[i].release)
            d->movers[i].release(d->movers[i].self, first, count);
}

static spry_kv_mover mover(spry_device *device)
{
    return (spry_kv_mover){.self = device,
                           .copy = copy_page,
                           .read = read_page,
                           .max_writes = WRITES,
                           .write_begin = begin_write,
                           .write_end = end_write,
                           .write_finish = finish_writes,
                           .release = release_pages};
}

/* ---- figures ----------------------------------------------------------------------------------------------------- */

static uint64_t waits(spry_device *device)
{
    const split_device *d = split_of(device);
    return spry_device_waits(d->inside[0]) + spry_device_waits(d->inside[1]);
}

static void set_trace(spry_device *device, spry_trace *trace, uint32_t lane)
{
    for (size_t i = 0; i < 2; i++)
        spry_device_set_trace(split_of(device)->inside[i], trace, lane);
}

static void set_watch(spry_device *device, spry_op_watch *watch)
{
    for (size_t i = 0; i < 2; i++)
        spry_device_set_watch(split_of(device)->inside[i], watch);
}

static void set_threads(spry_device *device, spry_threads *threads)
{
    for (size_t i = 0; i < 2; i++)
        spry_device_set_threads(split_of(device)->inside[i], threads);
}

static void add_memory(spry_device_memory *memory, const spry_device_memory *part)
{
    memory->weights += part->weights;
    memory->kv += part->kv;
    memory->scratch += part->scratch;
}

static bool measure(spry_device *device, spry_device_memory *memory)
{
    bool known = true;
    for (size_t i = 0; i < 2; i++) {
        spry_device_memory part;
        known = spry_device_measure(split_of(device)->inside[i], &part) && known;
        add_memory(memory, &part);
    }
    return known;
}

static bool measure_pages(spry_device *device, size_t *bytes, const uint32_t *pages, size_t n_pages)
{
    bool known = true;
    for (size_t i = 0; i < 2; i++) {
        size_t part;
        known = spry_device_measure_pages(split_of(device)->inside[i], &part, pages, n_pages) && known;
        *bytes += part;
    }
    return known;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static void close_device(spry_device *device)
{
    split_device *d = split_of(device);
    for (size_t i = 0; i < 2; i++) {
        spry_device_close(d->inside[i]);
        spry_split_part_deinit(&d->parts[i]);
    }
    free(d->segments);
    free(d->pages);
    free(d);
}

static const spry_device_ops ops = {.close = close_device,
                                    .submit = submit,
                                    .wait = wait_for_step,
                                    .draw = draw,
                                    .logits = logits,
                                    .hidden = hidden,
                                    .mover = mover,
                                    .waits = waits,
                                    .set_trace = set_trace,
                                    .set_watch = set_watch,
                                    .set_threads = set_threads,
                                    .measure = measure,
                                    .measure_pages = measure_pages};

/* Estimates the memory that each side needs; false when a size overflows or memory is short. */
static bool estimate_sides(spry_device_memory needs[2], const spry_split_side sides[2], const spry_device_setup *setup,
                           uint32_t layers, const spry_device_use *use)
{
    uint32_t n = setup->config->n_layers, border = n - layers;
    bool known = true;
    for (size_t i = 0; i < 2; i++) {
        spry_split_part part;
        needs[i] = (spry_device_memory){0};
        uint32_t first = i ? border : 0, end = i ? n : border;
        if (first == end)
            continue;
        if (end - first == n) {
            known = sides[i].kind->estimate(&needs[i], setup, use) && known;
            continue;
        }
        if (part_init(&part, setup, first, end, NULL))
            return false;
        known = sides[i].kind->estimate(&needs[i], &part.setup, use) && known;
        spry_split_part_deinit(&part);
    }
    return known;
}

/* The maximum number of layers that fit into the second side's free memory; all layers if that is not known. */
static uint32_t count_fitting(const spry_split_side sides[2], const spry_device_setup *setup)
{
    enum { SPARE = 16 }; /* this fraction of its memory stays free, for kernels and graphs */
    size_t room = sides[BACK].kind->available ? sides[BACK].kind->available(sides[BACK].piece) : 0;
    uint32_t layers = setup->config->n_layers;
    room = setup->gpu_bytes && (!room || setup->gpu_bytes < room) ? setup->gpu_bytes : room;
    for (room -= room / SPARE; room && layers; layers--) {
        spry_device_memory needs[2];
        if (estimate_sides(needs, sides, setup, layers, NULL) &&
            needs[BACK].weights + needs[BACK].kv + needs[BACK].scratch <= room)
            break;
    }
    return layers;
}

static spry_status open_both(split_device *d, const spry_split_side sides[2], const spry_device_setup *setup,
                             uint32_t layers, spry_error *error)
{
    uint32_t n = setup->config->n_layers, border = n - layers;
    spry_status status = part_init(&d->parts[FRONT], setup, 0, border, error);
    if (!status)
        status = part_init(&d->parts[BACK], setup, border, n, error);
    for (size_t i = 2; !status && i-- > 0;) { /* opens the one with less memory first */
        status = sides[i].kind->open(&d->inside[i], sides[i].piece, &d->parts[i].setup, error);
        if (!status)
            d->movers[i] = spry_device_mover(d->inside[i]);
    }
    return status;
}

static spry_status open_split(spry_device **out, const spry_split_side sides[2], const spry_device_setup *setup,
                              uint32_t layers, spry_error *error)
{
    *out = NULL;
    if (!layers || layers == setup->config->n_layers) {
        const spry_split_side *side = &sides[layers ? BACK : FRONT];
        return side->kind->open(out, side->piece, setup, error);
    }
    split_device *d = calloc(1, sizeof *d);
    if (!d)
        return spry_fail_memory(error, "a device", sizeof *d);
    d->device = (spry_device){.ops = &ops, .config = setup->config, .limits = setup->limits};
    d->pool = setup->pool;
    spry_status status = open_both(d, sides, setup, layers, error);
    if (status) {
        close_device(&d->device);
        return status;
    }
    d->device.pictures = d->inside[FRONT]->pictures && d->inside[BACK]->pictures;
    d->device.two_way = d->inside[FRONT]->two_way && d->inside[BACK]->two_way;
    *out = &d->device;
    return SPRY_OK;
}

static void tell(const spry_split_side sides[2], const spry_device_setup *setup, uint32_t layers)
{
    spry_device_memory needs[2];
    uint32_t n = setup->config->n_layers;
    if (!estimate_sides(needs, sides, setup, layers, NULL))
        return;
    spry_log_write(
        &setup->log, SPRY_LOG_INFO,
        "%u of %u layers are on %s (%zu MB of weights, %zu of KV pages, %zu to work in), %u and the output on "
        "%s (%zu, %zu, %zu)",
        n - layers, n, sides[FRONT].name, needs[FRONT].weights / 1000000, needs[FRONT].kv / 1000000,
        needs[FRONT].scratch / 1000000, layers, sides[BACK].name, needs[BACK].weights / 1000000,
        needs[BACK].kv / 1000000, needs[BACK].scratch / 1000000);
}

spry_status spry_split_open(spry_device **out, const spry_split_side sides[2], const spry_device_setup *setup,
                            spry_error *error)
{
    enum { STEP = 8 };
    uint32_t n = setup->config->n_layers, layers = setup->layers < n ? setup->layers : n;
    spry_error trouble = {0};
    spry_status status = spry_split_check(setup->config, error);
    if (status)
        return status;
    if (setup->layers == SPRY_LAYERS_AUTO)
        layers = count_fitting(sides, setup);
    while ((status = open_split(out, sides, setup, layers, &trouble)) == SPRY_ERR_MEMORY && layers) {
        uint32_t fewer = layers - (layers + STEP - 1) / STEP;
        spry_log_write(&setup->log, SPRY_LOG_WARN, "%s; %u instead of %u layers go to %s", trouble.message, fewer,
                       layers, sides[BACK].name);
        layers = fewer;
    }
    if (status)
        return spry_fail(error, status, "%s", trouble.message);
    (*out)->split_layers = layers;
    tell(sides, setup, layers);
    return SPRY_OK;
}

/* ---- the kind ---------------------------------------------------------------------------------------------------- */

enum { NAME = 64 };

/* Splits "cpu+cuda:0" into two sides; `room` gets the first name. */
static spry_status read_sides(spry_split_side sides[2], char room[NAME], const char *name, spry_error *error)
{
    const char *plus = strchr(name, '+');
    snprintf(room, NAME, "%.*s", (int)(plus - name), name);
    const char *names[] = {room, plus + 1};
    for (size_t i = 0; i < 2; i++) {
        const char *colon = strchr(names[i], ':');
        sides[i] = (spry_split_side){.name = names[i], .piece = colon ? colon + 1 : ""};
        spry_status status = spry_device_find(&sides[i].kind, names[i], error);
        if (!status && sides[i].kind == &spry_device_kind_ranks)
            status = spry_fail(error, SPRY_ERR_INPUT, "device '%.40s': '%.40s' cannot be a part of it", name, names[i]);
        if (status)
            return status;
    }
    return SPRY_OK;
}

static spry_status open_named(spry_device **out, const char *name, const spry_device_setup *setup, spry_error *error)
{
    spry_split_side sides[2];
    char room[NAME];
    *out = NULL;
    spry_status status = read_sides(sides, room, name, error);
    for (size_t i = 0; !status && i < 2; i++) {
        status = spry_device_check(sides[i].kind, setup->config, error);
        if (!status)
            status = spry_device_check_adapters(sides[i].kind, &setup->limits, error);
        if (!status)
            status = spry_device_check_pages(sides[i].kind, setup, error);
    }
    return status ? status : spry_split_open(out, sides, setup, error);
}

static size_t total(const char *name)
{
    char room[NAME];
    spry_split_side sides[2];
    if (read_sides(sides, room, name, NULL))
        return 0;
    size_t first = spry_device_total(sides[0].name), second = spry_device_total(sides[1].name);
    return first && second ? first + second : 0;
}

/* Number of layers to expect before the device is open. `auto` counts as half of them, because both halves need about
 * the same memory. */
static uint32_t expected_layers(const spry_device_setup *setup)
{
    uint32_t n = setup->config->n_layers;
    return setup->layers == SPRY_LAYERS_AUTO ? n / 2 : setup->layers < n ? setup->layers : n;
}

static bool estimate(spry_device_memory *memory, const spry_device_setup *setup, const spry_device_use *use)
{
    char room[NAME];
    spry_split_side sides[2];
    spry_device_memory needs[2];
    if (read_sides(sides, room, setup->name, NULL) || !estimate_sides(needs, sides, setup, expected_layers(setup), use))
        return false;
    for (size_t i = 0; i < 2; i++)
        add_memory(memory, &needs[i]);
    return true;
}

static void identify(char *out, size_t size, const spry_device_setup *setup)
{
    char room[NAME], names[2][SPRY_DEVICE_IDENTITY] = {"", ""};
    spry_split_side sides[2];
    if (!read_sides(sides, room, setup->name, NULL))
        for (size_t i = 0; i < 2; i++)
            spry_device_identify(sides[i].kind, names[i], setup);
    snprintf(out, size, "%.36s + %.36s %u", names[0], names[1], setup->layers);
}

const spry_device_kind spry_device_kind_split = {.name = "split",
                                                 .features = SPRY_FEATURES_END - 1,
                                                 .adapters = true,
                                                 .nibbles = true,
                                                 .total = total,
                                                 .identify = identify,
                                                 .open = open_named,
                                                 .estimate = estimate};
