/* Every operation uses the folder's descriptor, so a rename of the folder has no effect. */
#include "platform/directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/os.h"

enum { FOLDER_MODE = 0700, FILE_MODE = 0600, NAME_ATTEMPTS = 8, NAME_BYTES = 48 };

/* ---- the folder ------------------------------------------------------------------------------------------------- */

/* Failures are ignored here and reported by the open that follows: a parent may exist and refuse new folders. */
static void make_with_parents(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, FOLDER_MODE);
        *slash = '/';
    }
    mkdir(path, FOLDER_MODE);
}

spry_status spry_directory_open(spry_directory *directory, const char *path, spry_error *error)
{
    directory->descriptor = -1;
    if (!path[0])
        return spry_fail(error, SPRY_ERR_INPUT, "the name of a folder is empty");
    char *copy = strdup(path);
    if (!copy)
        return spry_fail_memory(error, "the name of a folder", strlen(path) + 1);
    make_with_parents(copy);
    free(copy);
    directory->descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory->descriptor < 0)
        return spry_fail(error, SPRY_ERR_FILE, "%s: cannot make or open this folder: %s", path, strerror(errno));
    return SPRY_OK;
}

void spry_directory_close(spry_directory *directory)
{
    if (directory->descriptor >= 0)
        close(directory->descriptor);
    directory->descriptor = -1;
}

int spry_directory_each(const spry_directory *directory, spry_directory_visit visit, void *context)
{
    /* A separate descriptor: closing the listing closes it, and its position is not shared. */
    int descriptor = openat(directory->descriptor, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = descriptor >= 0 ? fdopendir(descriptor) : NULL;
    if (!listing) {
        int failure = errno;
        if (descriptor >= 0)
            close(descriptor);
        return failure;
    }
    const struct dirent *entry;
    do {
        errno = 0; /* the only way to distinguish the end from a failure */
        entry = readdir(listing);
    } while (entry && (entry->d_name[0] == '.' || visit(context, entry->d_name)));
    int failure = entry ? 0 : errno;
    closedir(listing);
    return failure;
}

/* ---- names in it ------------------------------------------------------------------------------------------------ */

int spry_directory_facts(const spry_directory *directory, const char *name, spry_file_facts *facts)
{
    struct stat found;
    if (fstatat(directory->descriptor, name, &found, AT_SYMLINK_NOFOLLOW) != 0)
        return errno;
    *facts = (spry_file_facts){(uint64_t)found.st_size, (int64_t)found.st_mtime, S_ISREG(found.st_mode)};
    return 0;
}

int spry_directory_remove(const spry_directory *directory, const char *name)
{
    return unlinkat(directory->descriptor, name, 0) == 0 ? 0 : errno;
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

/* The name is random, because process numbers repeat when containers share a folder. Returns the descriptor or -1. */
static int create_unfinished(const spry_directory *directory, char name[NAME_BYTES])
{
    int descriptor = -1;
    for (int attempt = 0; attempt < NAME_ATTEMPTS; attempt++) {
        snprintf(name, NAME_BYTES, "%016" PRIx64 SPRY_DIRECTORY_UNFINISHED, spry_entropy());
        descriptor = openat(directory->descriptor, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, FILE_MODE);
        if (descriptor >= 0 || errno != EEXIST)
            break;
    }
    return descriptor;
}

bool spry_directory_writable(const spry_directory *directory)
{
    char name[NAME_BYTES];
    int descriptor = create_unfinished(directory, name);
    if (descriptor < 0)
        return errno != EROFS && errno != EACCES && errno != EPERM;
    close(descriptor);
    unlinkat(directory->descriptor, name, 0);
    return true;
}

/* Skips the bytes that a call transferred; true while bytes are left. */
static bool advance(struct iovec **pieces, size_t *n_pieces, size_t moved)
{
    while (*n_pieces && moved >= (*pieces)->iov_len) {
        moved -= (*pieces)->iov_len;
        ++*pieces;
        --*n_pieces;
    }
    if (!*n_pieces)
        return false;
    (*pieces)->iov_base = (char *)(*pieces)->iov_base + moved;
    (*pieces)->iov_len -= moved;
    return true;
}

static int write_pieces(int descriptor, struct iovec *pieces, size_t n_pieces)
{
    ssize_t written = 0;
    while (advance(&pieces, &n_pieces, (size_t)written)) {
        written = writev(descriptor, pieces, (int)n_pieces);
        if (written < 0 && errno != EINTR)
            return errno;
        if (written < 0)
            written = 0;
    }
    return 0;
}

int spry_directory_write(const spry_directory *directory, const char *name, struct iovec *pieces, size_t n_pieces)
{
    char unfinished[NAME_BYTES];
    int descriptor = create_unfinished(directory, unfinished);
    if (descriptor < 0)
        return errno;
    int failure = write_pieces(descriptor, pieces, n_pieces);
    if (close(descriptor) != 0 && !failure)
        failure = errno; /* network file systems report a full disk here */
    if (!failure && renameat(directory->descriptor, unfinished, directory->descriptor, name) != 0)
        failure = errno;
    if (failure)
        unlinkat(directory->descriptor, unfinished, 0);
    return failure;
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

int spry_opened_open(spry_opened *opened, const spry_directory *directory, const char *name)
{
    *opened = (spry_opened){.descriptor = -1};
    int descriptor = openat(directory->descriptor, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (descriptor < 0)
        return errno;
    struct stat facts;
    int failure = fstat(descriptor, &facts) != 0 ? errno : S_ISREG(facts.st_mode) ? 0 : EINVAL;
    if (failure) {
        close(descriptor);
        return failure;
    }
    *opened = (spry_opened){descriptor, (uint64_t)facts.st_size};
    return 0;
}

void spry_opened_close(spry_opened *opened)
{
    if (opened->descriptor >= 0)
        close(opened->descriptor);
    opened->descriptor = -1;
}

int spry_opened_read(const spry_opened *opened, struct iovec *pieces, size_t n_pieces, uint64_t offset)
{
    ssize_t got = 0;
    while (advance(&pieces, &n_pieces, (size_t)got)) {
        got = preadv(opened->descriptor, pieces, (int)n_pieces, (off_t)offset);
        if (got == 0)
            return ENODATA;
        if (got < 0 && errno != EINTR)
            return errno;
        if (got < 0)
            got = 0;
        offset += (uint64_t)got;
    }
    return 0;
}

void spry_opened_forget(const spry_opened *opened)
{
    spry_os_forget(opened->descriptor);
}
