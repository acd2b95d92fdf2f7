#include "platform/child.h"

#include <sys/resource.h>

#include "base/compiler.h"

const char *const spry_sandbox_programs[] = {"/bin",
                                             "/lib",
                                             "/lib32",
                                             "/lib64",
                                             "/usr",
                                             "/nix/store",
                                             "/etc/alternatives",
                                             "/etc/fonts",
                                             "/etc/ld.so.cache",
                                             "/etc/locale.alias",
                                             "/var/cache/fontconfig",
                                             "/dev/null",
                                             "/dev/urandom",
                                             NULL};

static bool off;

void spry_sandbox_switch_off(void)
{
    off = true;
}

bool spry_sandbox_is_on(void)
{
    return !off;
}

static bool set_limits(const spry_sandbox *s)
{
    const struct rlimit memory = {s->memory, s->memory}, data = {s->data, s->data};
    const struct rlimit cpu = {s->cpu_s, s->cpu_s + 1}, none = {0, 0};
    return (!s->memory || setrlimit(RLIMIT_AS, &memory) == 0) && (!s->data || setrlimit(RLIMIT_DATA, &data) == 0) &&
           (!s->cpu_s || setrlimit(RLIMIT_CPU, &cpu) == 0) && setrlimit(RLIMIT_CORE, &none) == 0;
}

#ifdef SPRY_OS_LINUX

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "platform/system_calls.h"

/* ---- files, network and signals: Landlock ------------------------------------------------------------------------ */

/* The kernel's interface by its numbers, since headers are older than kernels. */
enum {
    ABI_RENAME = 2, /* between folders */
    ABI_NETWORK = 4,
    ABI_SCOPE = 6,
    VERSION = 1, /* flag of create_ruleset: asks for the ABI */
    PATH_BENEATH = 1,
    MAY_EXECUTE = 1 << 0,
    MAY_WRITE = 1 << 1,
    MAY_READ = 1 << 2,
    MAY_LIST = 1 << 3,
    MAY_CUT = 1 << 14,
    NETWORK_ALL = 3, /* to bind and connect TCP */
    SCOPE_ALL = 3,   /* abstract sockets and signals */
};

typedef struct ruleset {
    uint64_t files, network, scope;
} ruleset;

typedef struct path_rule {
    uint64_t access;
    int32_t file;
} path_rule;

static long landlock_abi(void)
{
    return syscall(SYS_landlock_create_ruleset, NULL, 0, VERSION);
}

/* All rights over files that an ABI knows. */
static uint64_t all_rights(long abi)
{
    static const int bits[] = {0, 13, 14, 15, 15, 16};
    const long known = (long)(sizeof bits / sizeof *bits) - 1;
    return ((uint64_t)1 << bits[abi < known ? abi : known]) - 1;
}

/* `most`: the rights that this kernel knows. */
static void allow(int rules, const char *path, bool change, uint64_t most)
{
    struct stat about;
    int file = open(path, O_PATH | O_CLOEXEC);
    if (file < 0)
        return;
    const uint64_t access = MAY_READ | MAY_EXECUTE | (change ? MAY_WRITE | MAY_CUT : 0);
    const uint64_t folder = change ? most : access | MAY_LIST;
    bool is_folder = fstat(file, &about) == 0 && S_ISDIR(about.st_mode), is_device = S_ISCHR(about.st_mode);
    const path_rule rule = {(is_folder ? folder : is_device ? MAY_READ | MAY_WRITE : access) & most, file};
    /* The kernel's struct has no padding at its end; it reads 12 bytes. */
    (void)syscall(SYS_landlock_add_rule, rules, PATH_BENEATH, &rule, 0);
    close(file);
}

static void restrict_files(const spry_sandbox *s)
{
    long abi = landlock_abi();
    if (abi < 1)
        return;
    const ruleset all = {all_rights(abi), s->network ? 0 : NETWORK_ALL, SCOPE_ALL};
    size_t size = abi >= ABI_SCOPE ? sizeof all : abi >= ABI_NETWORK ? 2 * sizeof all.files : sizeof all.files;
    int rules = (int)syscall(SYS_landlock_create_ruleset, &all, size, 0);
    if (rules < 0)
        return;
    for (const char *const *path = s->readable; path && *path; path++)
        allow(rules, *path, false, all.files);
    for (const char *const *path = s->writable; path && *path; path++)
        allow(rules, *path, true, all.files);
    if (s->program)
        allow(rules, s->program, false, all.files);
    (void)syscall(SYS_landlock_restrict_self, rules, 0);
    close(rules);
}

/* ---- system calls: seccomp --------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

#ifdef ARCHITECTURE

#define DENY(name)                                                                                                     \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)

#define ALLOWED BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define REFUSED BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)
#define KILLED  BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)
#define NUMBER  BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))

#ifdef __x86_64__
#define NO_X32 BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1), KILLED,
#else
#define NO_X32
#endif

#define OWN_CALLS                                                                                                      \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),                                           \
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0), KILLED, NUMBER

/* Calls that no program needs which works with files: other processes, the kernel's own machinery. All others are
 * allowed, since libraries differ in what they call. */
#define DENIED                                                                                                         \
    DENY(ptrace), DENY(process_vm_readv), DENY(process_vm_writev), DENY(pidfd_getfd), DENY(unshare), DENY(setns),      \
        DENY(mount), DENY(umount2), DENY(pivot_root), DENY(chroot), DENY(mknodat), DENY(bpf), DENY(perf_event_open),   \
        DENY(userfaultfd), DENY(keyctl), DENY(add_key), DENY(request_key), DENY(io_uring_setup), DENY(io_uring_enter), \
        DENY(io_uring_register), DENY(open_by_handle_at), DENY(init_module), DENY(finit_module), DENY(delete_module),  \
        DENY(kexec_load), DENY(reboot), DENY(swapon), DENY(swapoff), DENY(personality), DENY(quotactl), DENY(acct),    \
        DENY(settimeofday), DENY(clock_settime)

#define DENIED_SOCKETS                                                                                                 \
    DENY(socket), DENY(connect), DENY(bind), DENY(listen), DENY(accept), DENY(accept4), DENY(sendmmsg)

/* Sockets of the network only: IPv4, IPv6, and those that list its interfaces. */
#define NETWORK_SOCKETS                                                                                                \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 6),                                                             \
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),                                       \
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET, 3, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 2, 0),       \
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 1, 0), REFUSED, NUMBER

static const struct sock_filter filter[] = {OWN_CALLS, NO_X32 DENIED_SOCKETS, DENIED, ALLOWED};
static const struct sock_filter with_network[] = {OWN_CALLS, NO_X32 NETWORK_SOCKETS, DENIED, ALLOWED};

static const struct sock_filter of_server[] = {OWN_CALLS, NO_X32 DENIED, ALLOWED};

static void set_filter(const struct sock_filter *chosen, size_t count)
{
    struct sock_fprog program = {(unsigned short)count, (struct sock_filter *)(uintptr_t)chosen};
    (void)prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}

static void restrict_calls(const spry_sandbox *s)
{
    if (s->network)
        set_filter(with_network, sizeof with_network / sizeof *with_network);
    else
        set_filter(filter, sizeof filter / sizeof *filter);
}

static void restrict_server_calls(void)
{
    set_filter(of_server, sizeof of_server / sizeof *of_server);
}

static bool has_seccomp(void)
{
    uint32_t action = SECCOMP_RET_ERRNO;
    return syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

#else

static void restrict_calls(const spry_sandbox *s)
{
    (void)s;
}

static void restrict_server_calls(void)
{
}

static bool has_seccomp(void)
{
    return false;
}

#endif

bool spry_sandbox_enter(const spry_sandbox *s)
{
    if (!set_limits(s) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return false;
    if (off)
        return true;
    restrict_files(s);
    restrict_calls(s);
    return true;
}

void spry_sandbox_enter_server(const char *const *writable)
{
    static const char *const all[] = {"/", NULL};
    const spry_sandbox s = {.readable = all, .writable = writable, .network = true};
    if (off || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return;
    if (writable && landlock_abi() >= ABI_RENAME)
        restrict_files(&s);
#if !SPRY_SANITIZE_ADDRESS /* which looks for leaks with ptrace */
    restrict_server_calls();
#else
    (void)restrict_server_calls;
#endif
}

bool spry_sandbox_complete(void)
{
    return landlock_abi() >= 1 && has_seccomp();
}

#else

bool spry_sandbox_enter(const spry_sandbox *s)
{
    return set_limits(s);
}

void spry_sandbox_enter_server(const char *const *writable)
{
    (void)writable;
}

bool spry_sandbox_complete(void)
{
    return false;
}

#endif
