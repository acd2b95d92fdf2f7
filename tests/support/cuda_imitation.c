#include "support/cuda_imitation.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/cuda_host.h"

cuda_imitation imitation;

static const char image[] = "kernels";
const char cuda_imitation_foreign[] = "kernels of another GPU";
const void *const cuda_imitation_images[] = {cuda_imitation_foreign, image, NULL};

/* Sizes stand before what was allocated. */
enum { HEADER = 256, PROCESSORS = 5, CLOCK_KHZ = 1000000, SHARED_BYTES = 227 << 10 };

/* Launches between the beginning and the end of a capture. */
typedef struct node {
    const void *kernel;
    unsigned grid[3], threads;
    size_t shared_asked, shared_left; /* of what a block may have */
    cuda_host_launch_kind way;
    void *arguments;
    struct node *next;
} node;

static node *captured, **captured_end;

typedef struct event {
    unsigned recorded, done; /* how often */
    double ms;               /* on the GPU's clock */
    struct lane *stream;     /* that it was last recorded in */
} event;

/* What waits in a stream: a copy, a launch, a graph's launches, an event, or an event of another stream. */
typedef struct work {
    void *to;
    const void *from;
    size_t bytes;
    node *launch;      /* its own */
    const node *graph; /* lent */
    event *event, *awaited;
    unsigned times; /* that the awaited one was recorded by then */
    struct work *next;
} work;

typedef struct lane {
    work *first, **end;
    bool other; /* not the first of its device */
    struct lane *next;
} lane;

static lane *streams;
static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;

static void free_nodes(node *first)
{
    for (node *n = first, *next; n; n = next) {
        next = n->next;
        free(n->arguments);
        free(n);
    }
}

/* ---- launches that are watched -------------------------------------------------------------------------------------
 */

/* Kernels may begin before those launched earlier are done, as far as they touch nothing that those write. So until the
 * first block waits, whatever launches have written since the host last wrote is not there, and nothing may change. */
enum { MEMORIES = 64 };

static struct memory {
    unsigned char *at, *before, *now; /* before: what the host left; now: with what launches wrote */
    size_t bytes;
} memories[MEMORIES];
static bool host_wrote, waited;

static unsigned char hidden(const struct memory *m, size_t i)
{
    return m->now[i] == m->before[i] ? m->now[i] : 0xff;
}

static void watch_launch(void)
{
    for (struct memory *m = memories; m < memories + MEMORIES; m++) {
        if (!m->at)
            continue;
        if (host_wrote || !m->before) {
            free(m->before);
            m->before = malloc(m->bytes);
            memcpy(m->before, m->at, m->bytes);
        }
        m->now = malloc(m->bytes);
        memcpy(m->now, m->at, m->bytes);
        for (size_t i = 0; i < m->bytes; i++)
            m->at[i] = hidden(m, i);
    }
    host_wrote = waited = false;
    imitation.watched++;
}

static void at_wait(void)
{
    bool changed = false;
    for (struct memory *m = memories; m < memories + MEMORIES && !waited; m++) {
        if (!m->now)
            continue;
        for (size_t i = 0; i < m->bytes; i++)
            changed = changed || m->at[i] != hidden(m, i);
        memcpy(m->at, m->now, m->bytes);
        free(m->now);
        m->now = NULL;
    }
    imitation.too_early += changed;
    waited = true;
}

static void run_node(const node *n)
{
    bool watched = imitation.watch;
    cuda_host_shared_asked = n->shared_asked;
    cuda_host_shared_left = n->shared_left;
    cuda_host_at_wait = watched ? at_wait : NULL;
    if (watched)
        watch_launch();
    cuda_host_launch(n->kernel, n->grid[0], n->grid[1], n->grid[2], n->threads, n->way, n->arguments);
    cuda_host_at_wait = NULL;
    if (watched && !waited) {
        at_wait();
        imitation.too_early++;
    }
}

static void remember_memory(void *at, size_t bytes)
{
    struct memory *m = memories;
    while (m < memories + MEMORIES - 1 && m->at)
        m++;
    *m = (struct memory){.at = at, .bytes = bytes};
}

static void forget_memory(const void *at)
{
    for (struct memory *m = memories; m < memories + MEMORIES; m++)
        if (m->at == at) {
            free(m->before);
            *m = (struct memory){0};
        }
}

/* ---- work in streams -----------------------------------------------------------------------------------------------
 */

static void catch_up_to(lane *s, const event *until, unsigned times);

static void do_work(const work *w)
{
    if (w->awaited)
        catch_up_to(w->awaited->stream, w->awaited, w->times);
    if (w->bytes)
        memcpy(w->to, w->from, w->bytes);
    host_wrote = host_wrote || w->bytes;
    for (const node *n = w->launch ? w->launch : w->graph; n; n = n->next) {
        run_node(n);
        imitation.ms += IMITATED_LAUNCH_MS;
    }
    if (w->event) {
        w->event->done++;
        w->event->ms = imitation.ms;
    }
    free_nodes(w->launch);
}

/* Does what waits in a stream, in order, until an event was done this many times; NULL: all of it. */
static void catch_up_to(lane *s, const event *until, unsigned times)
{
    while (s && s->first && !(until && until->done >= times)) {
        work *first = s->first;
        s->first = first->next;
        if (!s->first)
            s->end = &s->first;
        do_work(first);
        free(first);
    }
}

static void catch_up_all(void)
{
    for (lane *s = streams; s; s = s->next)
        catch_up_to(s, NULL, 0);
}

static void put_work(void *in, const work *w)
{
    lane *s = in;
    if (!imitation.late) {
        do_work(w);
        return;
    }
    work *last = malloc(sizeof *last);
    *last = *w;
    *s->end = last;
    s->end = &last->next;
    if (imitation.early && s->other)
        catch_up_to(s, NULL, 0);
}

static bool work_waits(void)
{
    bool any = false;
    for (const lane *s = streams; s; s = s->next)
        any = any || s->first;
    return any;
}

void cuda_imitation_reset(void)
{
    catch_up_all();
    imitation = (cuda_imitation){.devices = 1,
                                 .compute_major = 9,
                                 .sm_count = PROCESSORS,
                                 .free_bytes = (size_t)8 << 30,
                                 .shared_bytes = SHARED_BYTES};
    captured_end = NULL;
}

bool cuda_imitation_is_clean(void)
{
    return !imitation.events && !work_waits() && !imitation.contexts && !imitation.modules && !imitation.streams &&
           !imitation.graphs && !imitation.allocations && !imitation.host_allocations;
}

static int step_of(bool memory)
{
    bool fails = ++imitation.calls == imitation.fail_at && (memory || !imitation.fail_memory);
    return fails ? imitation.fail_with : 0;
}

static int step(void)
{
    return step_of(false);
}

/* ---- the device -------------------------------------------------------------------------------------------------- */

static int init(unsigned flags)
{
    (void)flags;
    return step();
}

static int error_string(int result, const char **text)
{
    (void)result;
    *text = "the driver is tired";
    return 0;
}

static int driver_version(int *version)
{
    *version = 13000;
    return step();
}

static int device_count(int *count)
{
    *count = imitation.devices;
    return step();
}

static int device(int *number, int index)
{
    *number = index;
    int result = step();
    return result ? result : index < imitation.devices ? 0 : 101; /* no such device */
}

static int device_name(char *name, int size, int number)
{
    snprintf(name, (size_t)size, "Imitated GPU %d", number);
    return step();
}

static int device_attribute(int *value, int attribute, int number)
{
    (void)number;
    *value = attribute == SPRY_CUDA_COMPUTE_MAJOR     ? imitation.compute_major
             : attribute == SPRY_CUDA_MULTIPROCESSORS ? imitation.sm_count
             : attribute == SPRY_CUDA_SHARED_BYTES    ? (int)imitation.shared_bytes
             : attribute == SPRY_CUDA_CLOCK           ? CLOCK_KHZ
                                                      : 0;
    return step();
}

static int context_retain(void **context, int number)
{
    (void)number;
    int result = step();
    if (result)
        return result;
    *context = &imitation.contexts;
    imitation.contexts++;
    return 0;
}

static int context_release(int number)
{
    (void)number;
    imitation.contexts--;
    return 0;
}

static int context_set(void *context)
{
    (void)context;
    return step();
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static int memory_info(size_t *free_bytes, size_t *bytes)
{
    *free_bytes = imitation.free_bytes;
    *bytes = (size_t)8 << 30;
    return step();
}

static int device_memory(size_t *bytes, int number)
{
    (void)number;
    *bytes = (size_t)8 << 30;
    return step();
}

static void *allocate(size_t bytes)
{
    unsigned char *memory = NULL;
    if (posix_memalign((void **)&memory, HEADER, HEADER + bytes))
        return NULL;
    memcpy(memory, &bytes, sizeof bytes);
    memset(memory + HEADER, 0xff, bytes);
    return memory + HEADER;
}

static void release(void *memory)
{
    free((unsigned char *)memory - HEADER);
}

static int memory_allocate(spry_cuda_memory *memory, size_t bytes)
{
    int result = step_of(true);
    if (result)
        return result;
    void *there = bytes <= imitation.free_bytes ? allocate(bytes) : NULL;
    if (!there)
        return SPRY_CUDA_OUT_OF_MEMORY;
    imitation.free_bytes -= bytes;
    imitation.allocations++;
    *memory = (spry_cuda_memory)(uintptr_t)there;
    remember_memory(there, bytes);
    return 0;
}

size_t cuda_imitation_bytes(spry_cuda_memory memory)
{
    size_t bytes;
    memcpy(&bytes, (unsigned char *)(uintptr_t)memory - HEADER, sizeof bytes);
    return bytes;
}

static int memory_free(spry_cuda_memory memory)
{
    catch_up_all();
    imitation.free_bytes += cuda_imitation_bytes(memory);
    imitation.allocations--;
    forget_memory((void *)(uintptr_t)memory);
    release((void *)(uintptr_t)memory);
    return 0;
}

static int memory_fill(spry_cuda_memory memory, unsigned word, size_t words)
{
    unsigned *at = (unsigned *)(uintptr_t)memory;
    host_wrote = true;
    for (size_t i = 0; i < words; i++)
        at[i] = word;
    return step();
}

static int memory_write(spry_cuda_memory to, const void *from, size_t bytes)
{
    catch_up_all();
    memcpy((void *)(uintptr_t)to, from, bytes);
    return step();
}

static int memory_read(void *to, spry_cuda_memory from, size_t bytes)
{
    catch_up_all();
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    return step();
}

static int host_allocate(void **memory, size_t bytes, unsigned flags)
{
    (void)flags;
    int result = step_of(true);
    if (result)
        return result;
    if (bytes == imitation.scarce && !imitation.scarce_left--) {
        imitation.scarce_left = 0;
        return SPRY_CUDA_OUT_OF_MEMORY;
    }
    *memory = allocate(bytes);
    imitation.host_allocations++;
    return *memory ? 0 : SPRY_CUDA_OUT_OF_MEMORY;
}

static int host_free(void *memory)
{
    catch_up_all();
    imitation.host_allocations--;
    release(memory);
    return 0;
}

/* ---- streams and kernels ----------------------------------------------------------------------------------------- */

static int stream_create(void **out, unsigned flags)
{
    (void)flags;
    int result = step();
    if (result)
        return result;
    lane *s = calloc(1, sizeof *s);
    s->end = &s->first;
    s->other = imitation.streams++ > 0;
    pthread_mutex_lock(&streams_lock);
    s->next = streams;
    streams = s;
    pthread_mutex_unlock(&streams_lock);
    *out = s;
    return 0;
}

static int stream_destroy(void *old)
{
    lane **at = &streams;
    catch_up_to(old, NULL, 0);
    imitation.streams--;
    pthread_mutex_lock(&streams_lock);
    while (*at != old)
        at = &(*at)->next;
    *at = (*at)->next;
    pthread_mutex_unlock(&streams_lock);
    free(old);
    return 0;
}

static int stream_wait(void *stream)
{
    imitation.waits++;
    catch_up_to(stream, NULL, 0);
    return step();
}

static int stream_wait_event(void *stream, void *at, unsigned flags)
{
    event *awaited = at;
    (void)flags;
    int result = step();
    if (!result)
        put_work(stream, &(work){.awaited = awaited, .times = awaited->recorded});
    return result;
}

static int stream_query(void *stream)
{
    imitation.waits++;
    int result = step();
    if (!imitation.hangs)
        catch_up_to(stream, NULL, 0);
    return result ? result : imitation.hangs ? SPRY_CUDA_NOT_READY : 0;
}

static int stream_write(spry_cuda_memory to, const void *from, size_t bytes, void *stream)
{
    put_work(stream, &(work){.to = (void *)(uintptr_t)to, .from = from, .bytes = bytes});
    return step();
}

static int stream_read(void *to, spry_cuda_memory from, size_t bytes, void *stream)
{
    put_work(stream, &(work){.to = to, .from = (const void *)(uintptr_t)from, .bytes = bytes});
    return step();
}

static int stream_copy(spry_cuda_memory to, spry_cuda_memory from, size_t bytes, void *stream)
{
    return stream_write(to, (const void *)(uintptr_t)from, bytes, stream);
}

static int event_create(void **out, unsigned flags)
{
    (void)flags;
    int result = step();
    if (result)
        return result;
    *out = calloc(1, sizeof(event));
    imitation.events++;
    return *out ? 0 : SPRY_CUDA_OUT_OF_MEMORY;
}

static int event_destroy(void *old)
{
    catch_up_all();
    free(old);
    imitation.events--;
    return 0;
}

static int event_record(void *at, void *stream)
{
    event *recorded = at;
    int result = step();
    if (result)
        return result;
    recorded->recorded++;
    recorded->stream = stream;
    put_work(stream, &(work){.event = at});
    return 0;
}

static int event_query(void *at)
{
    const event *asked = at;
    int result = step();
    imitation.waits++;
    if (!imitation.hangs && asked->stream && !asked->stream->other) /* others go on when they are waited for */
        catch_up_to(asked->stream, asked, asked->recorded);
    return result ? result : imitation.hangs || asked->done < asked->recorded ? SPRY_CUDA_NOT_READY : 0;
}

static int event_elapsed(float *ms, void *from, void *to)
{
    const event *a = from, *b = to;
    *ms = (float)(b->ms - a->ms);
    int result = step();
    return result ? result : a->done == a->recorded && b->done == b->recorded ? 0 : SPRY_CUDA_NOT_READY;
}

static int module_load(void **module, const void *data)
{
    int result = step();
    if (result)
        return result;
    if (data == cuda_imitation_foreign)
        return SPRY_CUDA_NO_BINARY;
    imitation.modules++;
    *module = (void *)(uintptr_t)data;
    return 0;
}

static int module_unload(void *module)
{
    (void)module;
    imitation.modules--;
    return 0;
}

/* The kernel that measures reading is PTX, and nothing here. */
static int launch(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned x, unsigned y, unsigned z,
                  unsigned shared, void *stream, void **parameters, void **extra)
{
    (void)grid_x, (void)grid_y, (void)grid_z, (void)x, (void)y, (void)z, (void)shared;
    (void)stream, (void)parameters, (void)extra;
    imitation.ms += IMITATED_LAUNCH_MS;
    int result = step();
    return result ? result : function != image;
}

static int module_function(void **function, void *module, const char *name)
{
    (void)module;
    bool reads = !strcmp(name, "spry_read");
    *function = (void *)(uintptr_t)(reads ? image : cuda_host_find(name));
    int result = step();
    return result ? result : *function ? 0 : 500; /* not found */
}

/* Only what is asked for: 16-bit numbers in lines of 64 bytes, permuted. */
static int tensor_map_encode(void *map, int type, uint32_t rank, void *memory, const uint64_t *sizes,
                             const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave,
                             int permuted, int cached, int fill)
{
    (void)cached;
    int result = step();
    bool fine = type == SPRY_CUDA_TMA_16_BIT && rank == 4 && (uintptr_t)memory % 16 == 0 && !interleave &&
                permuted == SPRY_CUDA_TMA_SWIZZLE_64 && !fill && box[0] == 32;
    for (size_t i = 0; i < 4; i++)
        fine =
            fine && box[i] && box[i] <= 256 && box[i] <= sizes[i] && steps[i] == 1 && (i == 3 || strides[i] % 16 == 0);
    cuda_host_tensor_map m = {.memory = memory};
    memcpy(m.sizes, sizes, sizeof m.sizes);
    memcpy(m.strides, strides, sizeof m.strides);
    memcpy(m.box, box, sizeof m.box);
    memcpy(map, &m, sizeof m);
    return result ? result : fine ? 0 : 1;
}

static int function_attribute(void *function, int attribute, int value)
{
    (void)function;
    int result = step();
    size_t most = attribute == SPRY_CUDA_SHARED_MAX ? imitation.shared_bytes
                  : attribute == SPRY_CUDA_CARVEOUT ? 100
                                                    : 0;
    return result ? result : value < 0 || (size_t)value > most;
}

static int launch_as(const spry_cuda_launch_config *c, void *function, void **parameters, void **extra)
{
    int result = step();
    if (result)
        return result;
    if (c->block_y != 1 || c->block_z != 1 || extra || !c->grid_x || !c->grid_y || !c->grid_z || c->grid_y > 65535 ||
        c->grid_z > 65535 || c->shared_bytes > imitation.shared_bytes)
        return 1; /* invalid value */
    cuda_host_launch_kind way = CUDA_HOST_BLOCKS;
    for (unsigned i = 0; i < c->n_attributes; i++) {
        const spry_cuda_attribute *a = &c->attributes[i];
        if (a->id != SPRY_CUDA_CLUSTER)
            continue;
        if (a->value.size[0] != c->grid_x || a->value.size[0] > 8 || a->value.size[1] != 1 || a->value.size[2] != 1)
            return 1;
        way = CUDA_HOST_CLUSTER;
    }
    imitation.launches++;
    node *n = calloc(1, sizeof *n);
    *n = (node){.kernel = function,
                .grid = {c->grid_x, c->grid_y, c->grid_z},
                .threads = c->block_x,
                .shared_asked = c->shared_bytes,
                .shared_left = imitation.shared_bytes - c->shared_bytes,
                .way = way,
                .arguments = aligned_alloc(64, (cuda_host_arguments(function) + 63) / 64 * 64)};
    memcpy(n->arguments, parameters[0], cuda_host_arguments(function));
    if (captured_end) {
        *captured_end = n;
        captured_end = &n->next;
    } else {
        put_work(c->stream, &(work){.launch = n});
    }
    return 0;
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

static int capture_begin(void *stream, int mode)
{
    (void)stream;
    (void)mode;
    captured = NULL;
    captured_end = &captured;
    return step();
}

static int capture_end(void *stream, void **graph)
{
    (void)stream;
    *graph = captured;
    captured_end = NULL;
    return step();
}

static int graph_prepare(void **exec, void *graph, unsigned long long flags)
{
    (void)flags;
    int result = step();
    if (result)
        return result;
    imitation.graphs++;
    *exec = graph;
    captured = NULL; /* the nodes belong to what was prepared of them */
    return 0;
}

static int graph_launch(void *exec, void *stream)
{
    int result = step();
    if (!result)
        put_work(stream, &(work){.graph = exec});
    return result;
}

static int graph_exec_destroy(void *exec)
{
    catch_up_all();
    imitation.graphs--;
    free_nodes(exec);
    return 0;
}

static int graph_destroy(void *graph)
{
    (void)graph;
    free_nodes(captured);
    captured = NULL;
    return 0;
}

spry_cuda cuda_imitation_driver(void)
{
    return (spry_cuda){
        .init = init,
        .error_string = error_string,
        .driver_version = driver_version,
        .device_count = device_count,
        .device = device,
        .device_name = device_name,
        .device_attribute = device_attribute,
        .context_retain = context_retain,
        .context_release = context_release,
        .context_set = context_set,
        .device_memory = device_memory,
        .memory_info = memory_info,
        .memory_allocate = memory_allocate,
        .memory_free = memory_free,
        .memory_fill = memory_fill,
        .memory_write = memory_write,
        .memory_read = memory_read,
        .tensor_map_encode = tensor_map_encode,
        .host_allocate = host_allocate,
        .host_free = host_free,
        .stream_create = stream_create,
        .stream_destroy = stream_destroy,
        .stream_wait = stream_wait,
        .stream_query = stream_query,
        .stream_wait_event = stream_wait_event,
        .stream_write = stream_write,
        .stream_read = stream_read,
        .stream_copy = stream_copy,
        .event_create = event_create,
        .event_destroy = event_destroy,
        .event_record = event_record,
        .event_query = event_query,
        .event_wait = event_query,
        .event_elapsed = event_elapsed,
        .module_load = module_load,
        .module_unload = module_unload,
        .module_function = module_function,
        .function_attribute = function_attribute,
        .launch = launch,
        .launch_as = launch_as,
        .capture_begin = capture_begin,
        .capture_end = capture_end,
        .graph_prepare = graph_prepare,
        .graph_launch = graph_launch,
        .graph_exec_destroy = graph_exec_destroy,
        .graph_destroy = graph_destroy,
    };
}
