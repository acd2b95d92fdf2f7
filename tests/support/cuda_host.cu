/* Fibers as threads of a block. A fiber starts with makecontext; after that it is left and entered with _setjmp and
 * _longjmp, which make no system call, unlike swapcontext. */
#include "support/cuda_host.cuh"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "support/cuda_host.h"

cuda_host_index threadIdx, blockIdx, blockDim, gridDim;
size_t cuda_host_shared_asked, cuda_host_shared_left = SIZE_MAX;

enum { FIBERS_MAX = 4096, LANES = 32, STACK_BYTES = 256 << 10, BLOCKS_MAX = 8, SHARED_BYTES = 227 << 10 };
enum { FIBERS_STEP = 512, NUMBERS_MAX = 16, COPIES_MAX = 256, LINE = 64, GUARD_BYTES = 4096, GUARD = 0xa5 };

enum fiber_state { READY, AT_EXCHANGE, AT_BARRIER, AT_NUMBER, AT_COPY, AT_CLUSTER, DONE };

struct fiber {
    jmp_buf place;
    fiber_state state;
    bool begun;
    unsigned exchanges;  /* so far; two slots are used in turns */
    int number, threads; /* of a named barrier */
};

static fiber fibers[FIBERS_MAX];
static unsigned char *stacks;
alignas(16) static unsigned char slots[FIBERS_MAX / LANES][2][LANES][CUDA_HOST_SLOT];
static jmp_buf scheduler;
static unsigned current;
static uint64_t arrived; /* how often something happened that a thread may wait for */
alignas(1024) static unsigned char shared[BLOCKS_MAX][SHARED_BYTES + GUARD_BYTES];
static bool alone;                           /* blocks run one after another and share one memory */
static int went_on[BLOCKS_MAX][NUMBERS_MAX]; /* threads of a block that arrived at a named barrier without waiting */
static const cuda_host_kernel *kernels, *running;
static const void *running_arguments;

static void give_up(const char *why)
{
    fprintf(stderr, "kernel %s, block %u %u %u: %s\n", running->name, blockIdx.x, blockIdx.y, blockIdx.z, why);
    abort();
}

void (*cuda_host_at_wait)(void);

void cuda_host_shared_check(size_t bytes)
{
    if (bytes > cuda_host_shared_left)
        give_up("more shared memory than a block has");
}

/* Shared memory holds NaNs at the start. */
static void fill_shared(unsigned blocks)
{
    for (unsigned i = 0; i < blocks; i++) {
        memset(shared[i], 0xff, cuda_host_shared_asked);
        memset(shared[i] + cuda_host_shared_asked, GUARD, GUARD_BYTES);
    }
}

static void check_guards(unsigned blocks)
{
    for (unsigned i = 0; i < blocks; i++)
        for (unsigned k = 0; k < GUARD_BYTES; k++)
            if (shared[i][cuda_host_shared_asked + k] != GUARD)
                give_up("it writes past the shared memory that its launch asks for");
}

/* ---- kernels by name --------------------------------------------------------------------------------------------- */

cuda_host_kernel::cuda_host_kernel(const char *own_name, void (*own_run)(const void *), size_t size, unsigned own_max,
                                   unsigned)
    : name(own_name), run(own_run), max_threads(own_max), arguments(size), next(kernels)
{
    kernels = this;
}

const void *cuda_host_find(const char *name)
{
    for (const cuda_host_kernel *kernel = kernels; kernel; kernel = kernel->next)
        if (!strcmp(kernel->name, name))
            return kernel;
    return NULL;
}

size_t cuda_host_arguments(const void *kernel)
{
    return static_cast<const cuda_host_kernel *>(kernel)->arguments;
}

unsigned cuda_host_max_threads(const void *kernel)
{
    return static_cast<const cuda_host_kernel *>(kernel)->max_threads;
}

size_t cuda_host_count(void)
{
    size_t n = 0;
    for (const cuda_host_kernel *kernel = kernels; kernel; kernel = kernel->next)
        n++;
    return n;
}

/* ---- fibers ------------------------------------------------------------------------------------------------------ */

static void fiber_main()
{
    running->run(running_arguments);
    fibers[current].state = DONE;
    arrived++;
    _longjmp(scheduler, 1);
}

static void begin(unsigned thread)
{
    ucontext_t context;
    if (getcontext(&context))
        give_up("getcontext failed");
    context.uc_stack.ss_sp = stacks + (size_t)thread * STACK_BYTES;
    context.uc_stack.ss_size = STACK_BYTES;
    context.uc_link = NULL;
    makecontext(&context, fiber_main, 0);
    fibers[thread].begun = true;
    setcontext(&context);
}

/* Runs a thread until it waits or ends. */
static void enter(unsigned thread)
{
    if (_setjmp(scheduler))
        return;
    current = thread;
    threadIdx.x = thread % blockDim.x;
    if (fibers[thread].begun)
        _longjmp(fibers[thread].place, 1);
    begin(thread);
}

static void wait_as(fiber_state state)
{
    unsigned thread = current;
    fibers[thread].state = state;
    if (!_setjmp(fibers[thread].place))
        _longjmp(scheduler, 1);
}

void cuda_host_block_wait()
{
    wait_as(AT_BARRIER);
}

void cuda_host_grid_wait()
{
    if (!cuda_host_at_wait || blockIdx.x || blockIdx.y || blockIdx.z)
        return;
    wait_as(AT_BARRIER);
    if (threadIdx.x == 0)
        cuda_host_at_wait();
    wait_as(AT_BARRIER);
}

void cuda_host_cluster_wait()
{
    wait_as(AT_CLUSTER);
}

void named_barrier_sync(int number, int threads)
{
    fibers[current].number = number;
    fibers[current].threads = threads;
    wait_as(AT_NUMBER);
}

void named_barrier_arrive(int number, int)
{
    if (number < 1 || number >= NUMBERS_MAX)
        give_up("threads arrive with a number that no barrier has");
    went_on[current / blockDim.x][number]++;
    arrived++;
}

unsigned char *cuda_host_shared()
{
    return shared[alone ? 0 : blockIdx.x];
}

float4 dsmem_load(const float4 *own, uint32_t rank)
{
    float4 four;
    const unsigned char *at = (const unsigned char *)own;
    if (alone || rank >= gridDim.x || at < shared[blockIdx.x] || at + sizeof four > shared[blockIdx.x] + SHARED_BYTES)
        give_up("a load from no shared memory of the cluster");
    memcpy(&four, shared[rank] + (at - shared[blockIdx.x]), sizeof four);
    return four;
}

const unsigned char *cuda_host_exchange(const void *bytes, size_t size)
{
    unsigned thread = current, which = fibers[thread].exchanges++ % 2;
    memcpy(slots[thread / LANES][which][thread % LANES], bytes, size);
    wait_as(AT_EXCHANGE);
    return slots[thread / LANES][which][0];
}

/* ---- mbarriers and bulk copies ----------------------------------------------------------------------------------- */

/* An mbarrier in the emulation. */
struct host_barrier {
    uint16_t arrivals, left; /* arrivals of a phase; arrivals that are missing */
    int32_t rest;            /* missing bytes times 2, plus the phase */
};

struct host_copy {
    void *to;
    const void *from;
    uint32_t bytes;
    mbarrier *barrier;
    const cuda_host_tensor_map *map; /* NULL: a contiguous copy */
};
static host_copy copies[COPIES_MAX]; /* copies in flight */
static unsigned n_copies;

static host_barrier &open_barrier(mbarrier *b)
{
    static_assert(sizeof(host_barrier) == sizeof(mbarrier), "one in place of the other");
    return *reinterpret_cast<host_barrier *>(b);
}

static void pass(host_barrier &b)
{
    if (b.left || b.rest / 2)
        return;
    b.left = b.arrivals;
    b.rest ^= 1;
    arrived++;
}

void mbarrier_init(mbarrier *b, uint32_t arrivals)
{
    open_barrier(b) = {(uint16_t)arrivals, (uint16_t)arrivals, 0};
}

void mbarrier_arrive(mbarrier *b)
{
    host_barrier &its = open_barrier(b);
    if (!its.left)
        give_up("more threads arrive at a barrier than it was made for");
    its.left--;
    arrived++;
    pass(its);
}

void mbarrier_arrive_expect_tx(mbarrier *b, uint32_t bytes)
{
    open_barrier(b).rest += (int32_t)bytes * 2;
    mbarrier_arrive(b);
}

void cp_async_bulk(void *to, const void *from, uint32_t bytes, mbarrier *b)
{
    if (bytes % 16 || (uintptr_t)to % 16 || (uintptr_t)from % 16)
        give_up("a copy that is not of whole pieces of 16 bytes");
    if (n_copies == COPIES_MAX)
        give_up("more copies under way than there is room for");
    memset(to, 0xff, bytes);
    copies[n_copies++] = {to, from, bytes, b, nullptr};
    arrived++;
}

void cp_async_bulk_tensor(void *to, const void *map, uint32_t row, uint32_t page, mbarrier *b)
{
    const cuda_host_tensor_map *m = static_cast<const cuda_host_tensor_map *>(map);
    if (row + m->box[1] > m->sizes[1] || page >= m->sizes[3] || (uintptr_t)to % 512)
        give_up("a copy of a box that is not there, or not to a multiple of 512");
    cp_async_bulk(to, m->memory + row * m->strides[0] + page * m->strides[2], LINE * m->box[1] * m->box[2], b);
    copies[n_copies - 1].map = m;
}

/* A line's pieces of 16 bytes are swizzled by bits of its number. */
static void end_copy(const host_copy &c)
{
    if (!c.map) {
        memcpy(c.to, c.from, c.bytes);
        return;
    }
    for (uint32_t n = 0; n < c.bytes / LINE; n++) {
        uint32_t block = n / c.map->box[1], row = n % c.map->box[1];
        for (uint32_t piece = 0; piece < 4; piece++)
            memcpy((char *)c.to + n * LINE + (piece ^ n / 2 % 4) * 16,
                   (const char *)c.from + row * c.map->strides[0] + block * c.map->strides[1] + piece * 16, 16);
    }
}

/* Completes the copies of an mbarrier, as late as possible. */
static void end_copies(mbarrier *b)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < n_copies; i++) {
        const host_copy c = copies[i];
        if (c.barrier != b) {
            copies[kept++] = c;
            continue;
        }
        end_copy(c);
        open_barrier(b).rest -= (int32_t)c.bytes * 2;
        if (open_barrier(b).rest < 0)
            give_up("more bytes than a barrier expects");
        pass(open_barrier(b));
    }
    n_copies = kept;
}

void mbarrier_wait(mbarrier *b, uint32_t phase)
{
    for (end_copies(b); (uint32_t)(open_barrier(b).rest & 1) == phase; end_copies(b))
        wait_as(AT_COPY);
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* Runs a warp until all its threads wait at a block barrier or have ended. */
static void run_warp(unsigned first)
{
    for (;;) {
        unsigned exchanging = 0, elsewhere = 0;
        for (unsigned i = first; i < first + LANES; i++) {
            if (fibers[i].state == READY)
                enter(i);
            exchanging += fibers[i].state == AT_EXCHANGE;
            elsewhere += fibers[i].state != AT_EXCHANGE;
        }
        if (!exchanging)
            return;
        for (unsigned i = first; i < first + LANES; i++)
            if (fibers[i].state == AT_COPY) /* the other lanes arrive later */
                return;
        if (elsewhere)
            give_up("not all lanes of a warp take part in an exchange");
        arrived++;
        for (unsigned i = first; i < first + LANES; i++)
            fibers[i].state = READY;
    }
}

/* Continues the threads of a named barrier at which all threads have arrived. */
static void pass_numbers(unsigned base, unsigned threads)
{
    int counts[NUMBERS_MAX] = {}, wanted[NUMBERS_MAX] = {}, *others = went_on[base / threads];
    for (unsigned i = base; i < base + threads; i++) {
        const fiber &f = fibers[i];
        if (f.state != AT_NUMBER)
            continue;
        if (f.number < 1 || f.number >= NUMBERS_MAX || (counts[f.number] && wanted[f.number] != f.threads))
            give_up("threads wait with one number for different ones");
        counts[f.number]++;
        wanted[f.number] = f.threads;
    }
    for (unsigned i = base; i < base + threads; i++)
        if (fibers[i].state == AT_NUMBER &&
            counts[fibers[i].number] + others[fibers[i].number] == wanted[fibers[i].number]) {
            fibers[i].state = READY;
            arrived++;
        }
    for (int i = 0; i < NUMBERS_MAX; i++)
        if (counts[i] && counts[i] + others[i] == wanted[i])
            others[i] = 0;
}

/* Returns `all`: whether all threads of the block ended. No arrival at a named barrier may be left over then. */
static bool ended(unsigned base, unsigned threads, bool all)
{
    for (int i = 0; all && i < NUMBERS_MAX; i++)
        if (went_on[base / threads][i])
            give_up("threads arrived at a barrier for which none waited");
    return all;
}

/* Runs the block whose first fiber is `base` until all its threads end or wait for the cluster; returns true if they
 * ended. */
static bool run_block(unsigned base, unsigned threads)
{
    for (;;) {
        unsigned counts[DONE + 1] = {};
        uint64_t before = arrived;
        for (unsigned first = base; first < base + threads; first += LANES)
            run_warp(first);
        for (unsigned i = base; i < base + threads; i++)
            counts[fibers[i].state]++;
        if (counts[DONE] == threads || counts[AT_CLUSTER] == threads)
            return ended(base, threads, counts[DONE] == threads);
        if (counts[AT_NUMBER])
            pass_numbers(base, threads);
        if (counts[AT_BARRIER] != threads && before == arrived)
            give_up(counts[AT_COPY] ? "threads wait for copies that nothing begins"
                                    : "not all threads of a block reach a barrier");
        for (unsigned i = base; i < base + threads; i++)
            if (fibers[i].state == AT_COPY || counts[AT_BARRIER] == threads)
                fibers[i].state = READY;
    }
}

/* Allocates stacks for `count` fibers; programs with limited memory rarely need the maximum. */
static void make_stacks(size_t count)
{
    static size_t made;
    if (count <= made)
        return;
    if (made)
        munmap(stacks, made * STACK_BYTES);
    made = (count + FIBERS_STEP - 1) / FIBERS_STEP * FIBERS_STEP;
    stacks = (unsigned char *)mmap(NULL, made * STACK_BYTES, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED)
        give_up("no memory for the stacks of threads");
}

/* Runs all blocks of one y and z, as a cluster or one after another. */
static void run_line(unsigned blocks, unsigned threads, bool cluster)
{
    unsigned together = cluster ? blocks : 1;
    if (together > BLOCKS_MAX || together * threads > FIBERS_MAX)
        give_up("a cluster of more threads than there are fibers");
    make_stacks(together * threads);
    for (unsigned first = 0; first < blocks; first += together) {
        unsigned ended = 0;
        for (unsigned i = 0; i < together * threads; i++)
            fibers[i] = fiber();
        while (ended < together) {
            ended = 0;
            for (unsigned i = 0; i < together; i++) {
                blockIdx.x = first + i;
                ended += run_block(i * threads, threads);
            }
            if (ended != together && (ended || !cluster))
                give_up("not all blocks of a cluster wait for it");
            for (unsigned i = 0; i < together * threads && ended < together; i++)
                fibers[i].state = READY;
        }
    }
}

void cuda_host_launch(const void *kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned threads,
                      cuda_host_launch_kind kind, const void *arguments)
{
    running = static_cast<const cuda_host_kernel *>(kernel);
    running_arguments = arguments;
    gridDim = {grid_x, grid_y, grid_z};
    blockDim = {threads, 1, 1};
    if (threads == 0 || threads % LANES || threads > running->max_threads)
        give_up("a number of threads that it is not made for");
    blockIdx = {0, 0, 0};
    alone = kind == CUDA_HOST_BLOCKS;
    unsigned at_once = alone || grid_x > BLOCKS_MAX ? 1 : grid_x;
    fill_shared(at_once);
    for (blockIdx.z = 0; blockIdx.z < grid_z; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < grid_y; blockIdx.y++)
            run_line(grid_x, threads, !alone);
    check_guards(at_once);
}

/* ---- mma --------------------------------------------------------------------------------------------------------- */

/* The operands of a lane. */
struct operands {
    uint32_t a[4], b[2];
};

static const operands &lane_operands(const unsigned char *slot, int lane)
{
    return *reinterpret_cast<const operands *>(slot + lane * CUDA_HOST_SLOT);
}

static float half_word(uint32_t word, int which, bool bf16)
{
    uint16_t bits = (uint16_t)(word >> 16 * which);
    return bf16 ? spry_bf16_decode(bits) : spry_f16_decode(bits);
}

static void mma_halves(float c[4], const operands &own, bool bf16)
{
    const unsigned char *slot = cuda_host_exchange(&own, sizeof own);
    int lane = (int)(threadIdx.x % LANES);
    for (int i = 0; i < 4; i++) {
        int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        double sum = (double)c[i];
        for (int k = 0; k < 16; k++) {
            const operands &left = lane_operands(slot, row % 8 * 4 + k % 8 / 2);
            const operands &right = lane_operands(slot, column * 4 + k % 8 / 2);
            sum += (double)half_word(left.a[row / 8 + k / 8 * 2], k % 2, bf16) *
                   (double)half_word(right.b[k / 8], k % 2, bf16);
        }
        c[i] = (float)sum;
    }
}

void mma_bf16(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    mma_halves(c, operands{{a[0], a[1], a[2], a[3]}, {b0, b1}}, true);
}

void mma_f16(float c[4], uint4 a, uint32_t b0, uint32_t b1)
{
    mma_halves(c, operands{{a.x, a.y, a.z, a.w}, {b0, b1}}, false);
}

uint32_t fma_bf16x2(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t bits = 0;
    for (int i = 0; i < 2; i++) {
        double value = (double)half_word(a, i, true) * (double)half_word(b, i, true) + (double)half_word(c, i, true);
        bits |= (uint32_t)spry_bf16_encode((float)value) << 16 * i;
    }
    return bits;
}

/* ---- wgmma ------------------------------------------------------------------------------------------------------- */

/* Address of 16 bytes of a column in core matrices: groups of 8 columns, then pieces of 16 bytes of inputs. */
static const unsigned char *core_matrix(const void *b, uint32_t group_bytes, int group, int column, int piece)
{
    return static_cast<const unsigned char *>(b) + (size_t)group * group_bytes + (size_t)(piece * 128 + column * 16);
}

/* `right(group, column, k)`: address of input k of a column. */
template <class RIGHT>
static void wgmma_halves(float (*c)[4], const uint32_t a[4], bool fresh, int groups, bool bf16, RIGHT right)
{
    const operands own = {{a[0], a[1], a[2], a[3]}, {0, 0}};
    const unsigned char *slot = cuda_host_exchange(&own, sizeof own);
    int lane = (int)(threadIdx.x % LANES);
    for (int j = 0; j < groups * 4; j++) {
        int i = j % 4, row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        double sum = fresh ? 0 : (double)c[j / 4][i];
        for (int k = 0; k < 16; k++) {
            uint16_t bits;
            memcpy(&bits, right(j / 4, column, k), 2);
            const operands &left = lane_operands(slot, row % 8 * 4 + k % 8 / 2);
            sum += (double)half_word(left.a[row / 8 + k / 8 * 2], k % 2, bf16) * (double)half_word(bits, 0, bf16);
        }
        c[j / 4][i] = (float)sum;
    }
}

void wgmma_bf16(float (*c)[4], const uint32_t a[4], const void *b, uint32_t group_bytes, bool fresh, int groups)
{
    wgmma_halves(c, a, fresh, groups, true, [&](int group, int column, int k) {
        return core_matrix(b, group_bytes, group, column, k / 8) + k % 8 * 2;
    });
}

void wgmma_f16(float (*c)[4], const uint32_t a[4], const swizzled_matrix &b, bool fresh, int groups)
{
    wgmma_halves(c, a, fresh, groups, false, [&](int group, int column, int k) {
        const unsigned char *lines = b.at + (size_t)(k / 8) * b.input_bytes + (size_t)(group / 4) * b.column_bytes;
        return lines + k % 8 * 64 + (group % 4 ^ k % 8 / 2) * 16 + column * 2;
    });
}
