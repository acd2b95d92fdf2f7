/* Functions of the C library that fail when they are told to: an allocation, a mapping, a thread, opening, writing or
 * syncing a file, renaming, a socket. In a library that is loaded before others (LD_PRELOAD) they serve any program:
 * the file that SPRY_FAILING_CALLS names is mapped, and a test writes there which call fails, also while the program
 * runs. Calls that write are appended to the file SPRY_RECORDED_CALLS, one a line, in their order. Not under a
 * sanitizer, which has such functions itself. */
#include "support/failing_calls.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* Visible, so that shared libraries call them too. */
#pragma GCC visibility push(default)

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *memory);

static failing_calls own, *shared = &own;

failing_calls *failing_calls_here(void)
{
    return shared;
}

static const int errors[FAILING_KINDS] = {
    [FAILING_MEMORY] = ENOMEM, [FAILING_MAP] = ENOMEM, [FAILING_THREAD] = EAGAIN, [FAILING_OPEN] = EMFILE,
    [FAILING_WRITE] = ENOSPC,  [FAILING_SYNC] = EIO,   [FAILING_RENAME] = EIO,    [FAILING_SOCKET] = EMFILE};

/* Whether this call fails; errno is set then. */
static bool fails(failing_kind kind)
{
    atomic_fetch_add(&shared->calls[kind], 1);
    if (atomic_load(&shared->kind) != (long long)kind || atomic_load(&shared->left) <= 0)
        return false;
    long long left = atomic_fetch_sub(&shared->left, 1);
    if (left == 1 && atomic_load(&shared->stays))
        atomic_store(&shared->left, 1);
    if (left != 1)
        return false;
    atomic_fetch_add(&shared->failed, 1);
    errno = errors[kind];
    return true;
}

static int record = -1;

/* "what path" or "what path to". */
static void note(const char *what, const char *path, const char *to)
{
    char line[2 * PATH_MAX];
    int before = errno, size = snprintf(line, sizeof line, "%s %s%s%s\n", what, path, to ? " " : "", to ? to : "");
    if (size > 0 && (size_t)size < sizeof line)
        (void)!syscall(SYS_write, record, line, (size_t)size);
    errno = before;
}

static void note_file(const char *what, int file)
{
    char link[64], path[PATH_MAX];
    struct stat facts;
    if (record < 0 || fstat(file, &facts) != 0 || !(S_ISREG(facts.st_mode) || S_ISDIR(facts.st_mode)))
        return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size > 0) {
        path[size] = 0;
        note(what, path, NULL);
    }
}

static void path_at(char out[PATH_MAX], int folder, const char *name)
{
    char link[64];
    ssize_t size = 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    if (name[0] != '/' && folder != AT_FDCWD)
        size = readlink(link, out, PATH_MAX - 1);
    size = size > 0 ? size : 0;
    snprintf(out + size, (size_t)(PATH_MAX - size), "%s%s", size ? "/" : "", name);
}

__attribute__((constructor)) static void map_file(void)
{
    const char *recorded = getenv("SPRY_RECORDED_CALLS");
    record = recorded ? open(recorded, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    const char *path = getenv("SPRY_FAILING_CALLS");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *mapped = file >= 0 ? mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    if (mapped != MAP_FAILED)
        shared = mapped;
    if (file >= 0)
        close(file);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static void *counted(void *memory)
{
    if (memory)
        atomic_fetch_add(&shared->live, 1);
    return memory;
}

void *malloc(size_t size)
{
    return fails(FAILING_MEMORY) ? NULL : counted(__libc_malloc(size));
}

void *calloc(size_t count, size_t size)
{
    return fails(FAILING_MEMORY) ? NULL : counted(__libc_calloc(count, size));
}

void *realloc(void *memory, size_t size)
{
    if (fails(FAILING_MEMORY))
        return NULL;
    void *moved = __libc_realloc(memory, size);
    return memory ? moved : counted(moved);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return fails(FAILING_MEMORY) ? NULL : counted(__libc_memalign(alignment, size));
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
    void *memory = fails(FAILING_MEMORY) ? NULL : counted(__libc_memalign(alignment, size));
    if (!memory)
        return ENOMEM;
    *out = memory;
    return 0;
}

void free(void *memory)
{
    int kept = errno;
    if (memory)
        atomic_fetch_sub(&shared->live, 1);
    __libc_free(memory);
    errno = kept;
}

/* ---- everything else: the C library's own function, or a failure ------------------------------------------------- */

#define NEXT(name) ((__typeof__(&name))(uintptr_t)dlsym(RTLD_NEXT, #name))

void *mmap(void *at, size_t size, int access, int flags, int file, off_t from)
{
    return fails(FAILING_MAP) ? MAP_FAILED : NEXT(mmap)(at, size, access, flags, file, from);
}

void *mmap64(void *at, size_t size, int access, int flags, int file, off64_t from)
{
    return fails(FAILING_MAP) ? MAP_FAILED : NEXT(mmap64)(at, size, access, flags, file, from);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *argument)
{
    return fails(FAILING_THREAD) ? EAGAIN : NEXT(pthread_create)(thread, how, run, argument);
}

static mode_t mode_of(int flags, va_list arguments)
{
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
}

#define OPEN(name)                                                                                                     \
    int name(const char *path, int flags, ...)                                                                         \
    {                                                                                                                  \
        va_list arguments;                                                                                             \
        va_start(arguments, flags);                                                                                    \
        mode_t mode = mode_of(flags, arguments);                                                                       \
        va_end(arguments);                                                                                             \
        return fails(FAILING_OPEN) ? -1 : NEXT(name)(path, flags, mode);                                               \
    }

#define OPENAT(name)                                                                                                   \
    int name(int folder, const char *path, int flags, ...)                                                             \
    {                                                                                                                  \
        va_list arguments;                                                                                             \
        va_start(arguments, flags);                                                                                    \
        mode_t mode = mode_of(flags, arguments);                                                                       \
        va_end(arguments);                                                                                             \
        return fails(FAILING_OPEN) ? -1 : NEXT(name)(folder, path, flags, mode);                                       \
    }

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

FILE *fopen(const char *path, const char *how)
{
    return fails(FAILING_OPEN) ? NULL : NEXT(fopen)(path, how);
}

FILE *fopen64(const char *path, const char *how)
{
    return fails(FAILING_OPEN) ? NULL : NEXT(fopen64)(path, how);
}

/* Writing wakes threads, too, by descriptors that cannot fail. */
static bool fails_to_write(int file)
{
    struct stat facts;
    if (fstat(file, &facts) != 0 || !S_ISREG(facts.st_mode))
        return false;
    note_file("write", file);
    return fails(FAILING_WRITE);
}

ssize_t write(int file, const void *data, size_t size)
{
    return fails_to_write(file) ? -1 : NEXT(write)(file, data, size);
}

ssize_t pwrite(int file, const void *data, size_t size, off_t at)
{
    return fails_to_write(file) ? -1 : NEXT(pwrite)(file, data, size, at);
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t at)
{
    return fails_to_write(file) ? -1 : NEXT(pwrite64)(file, data, size, at);
}

ssize_t writev(int file, const struct iovec *parts, int count)
{
    return fails_to_write(file) ? -1 : NEXT(writev)(file, parts, count);
}

size_t fwrite(const void *data, size_t size, size_t count, FILE *file)
{
    note_file("write", fileno(file));
    return file != stderr && fails(FAILING_WRITE) ? 0 : NEXT(fwrite)(data, size, count, file);
}

int ftruncate(int file, off_t size)
{
    return fails_to_write(file) ? -1 : NEXT(ftruncate)(file, size);
}

int ftruncate64(int file, off64_t size)
{
    return fails_to_write(file) ? -1 : NEXT(ftruncate64)(file, size);
}

int fsync(int file)
{
    note_file("sync", file);
    return fails(FAILING_SYNC) ? -1 : NEXT(fsync)(file);
}

int fdatasync(int file)
{
    note_file("sync", file);
    return fails(FAILING_SYNC) ? -1 : NEXT(fdatasync)(file);
}

int rename(const char *from, const char *to)
{
    if (record >= 0)
        note("rename", from, to);
    return fails(FAILING_RENAME) ? -1 : NEXT(rename)(from, to);
}

int renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    char path[PATH_MAX], target[PATH_MAX];
    path_at(path, from_folder, from);
    path_at(target, to_folder, to);
    if (record >= 0)
        note("rename", path, target);
    return fails(FAILING_RENAME) ? -1 : NEXT(renameat)(from_folder, from, to_folder, to);
}

int socket(int family, int type, int protocol)
{
    return fails(FAILING_SOCKET) ? -1 : NEXT(socket)(family, type, protocol);
}

int accept4(int listening, struct sockaddr *address, socklen_t *size, int flags)
{
    return fails(FAILING_SOCKET) ? -1 : NEXT(accept4)(listening, address, size, flags);
}
