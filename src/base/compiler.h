/* The only place for compiler extensions and for facts about the compiler. */
#ifndef SPRY_BASE_COMPILER_H
#define SPRY_BASE_COMPILER_H

#if defined(__GNUC__)
#define SPRY_PRINTF(format_index, first_arg) __attribute__((format(printf, format_index, first_arg)))
#define SPRY_INLINE                          static inline __attribute__((always_inline))
#define SPRY_PRAGMA(text)                    _Pragma(#text)
#define SPRY_UNROLL(n)                       SPRY_PRAGMA(GCC unroll n) /* before a loop */
#define SPRY_LIKELY(x)                       __builtin_expect(!!(x), 1)
#define SPRY_UNLIKELY(x)                     __builtin_expect(!!(x), 0)
#else
#define SPRY_PRINTF(format_index, first_arg)
#define SPRY_INLINE static inline
#define SPRY_UNROLL(n)
#define SPRY_LIKELY(x)   (x)
#define SPRY_UNLIKELY(x) (x)
#endif

/* Prefetches memory that is read, or written, soon; any address is allowed. */
#if defined(__GNUC__)
#define SPRY_PREFETCH(address)       __builtin_prefetch((const void *)(address))
#define SPRY_PREFETCH_FAR(address)   __builtin_prefetch((const void *)(address), 0, 2) /* into the second-level cache */
#define SPRY_PREFETCH_WRITE(address) __builtin_prefetch((const void *)(address), 1)
#else
#define SPRY_PREFETCH(address)       ((void)(address))
#define SPRY_PREFETCH_FAR(address)   ((void)(address))
#define SPRY_PREFETCH_WRITE(address) ((void)(address))
#endif

/* Memory is written before here and read after it, in the order of the source. */
#if defined(__GNUC__)
#define SPRY_BARRIER() __asm__ volatile("" ::: "memory")
#else
#define SPRY_BARRIER() ((void)0)
#endif

/* Inside a loop that waits for another thread: saves power and leaves the core to its sibling. */
#if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
#define SPRY_PAUSE() __builtin_ia32_pause()
#elif defined(__GNUC__) && defined(__aarch64__)
#define SPRY_PAUSE() __asm__ volatile("yield" ::: "memory")
#else
#define SPRY_PAUSE() ((void)0)
#endif

/* Whether the CPU and the operating system support an x86 instruction set. */
#if defined(__GNUC__) && defined(__x86_64__)
#define SPRY_X86_HAS(name) (__builtin_cpu_init(), __builtin_cpu_supports(name))
#endif

/* Whether a sanitizer watches, which gcc says with a macro and clang with a feature. */
#if defined(__has_feature)
#define SPRY_HAS_FEATURE(name) __has_feature(name)
#else
#define SPRY_HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || SPRY_HAS_FEATURE(address_sanitizer)
#define SPRY_SANITIZE_ADDRESS 1
#else
#define SPRY_SANITIZE_ADDRESS 0
#endif
#if defined(__SANITIZE_THREAD__) || SPRY_HAS_FEATURE(thread_sanitizer)
#define SPRY_SANITIZE_THREAD 1
#else
#define SPRY_SANITIZE_THREAD 0
#endif

#define SPRY_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#endif
