/* What every operating system does its own way: these functions, those of wakeup.h, and some of memory.h. Linux has
 * os_linux.c; all others share os_posix.c, with os_macos.c or, on a system that nothing more is known of, os_unknown.c.
 * CMake compiles the files of SPRY_PLATFORM. Everything else in this folder is the same on every system.
 *
 * Files of Linux (/proc, /sys) are read by portable code (system_file.h), which finds none of them elsewhere. */
#ifndef SPRY_PLATFORM_OS_H
#define SPRY_PLATFORM_OS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "platform/energy_impl.h"
#include "platform/hardware.h"
#include "platform/machine_state.h"

/* ---- threads and processors -------------------------------------------------------------------------------------- */

/* The processors a thread may run on. */
typedef struct spry_processor_set {
    uint64_t bits[16];
} spry_processor_set;

enum { SPRY_PROCESSOR_SET_MAX = 16 * 64 };

/* Prepares the calling thread for long computation, where the system wants to be told. */
void spry_os_begin_worker(void);

/* The processor that the calling thread runs on; -1: unknown. */
int spry_os_processor(void);

/* False where threads cannot be bound to processors. */
bool spry_os_affinity(spry_processor_set *set, pthread_t thread);
void spry_os_set_affinity(pthread_t thread, const spry_processor_set *set);

/* Binds a thread to one processor, below SPRY_PROCESSOR_SET_MAX. */
void spry_os_bind(pthread_t thread, int processor);

/* Processor time of a thread; 0: unknown. */
uint64_t spry_os_thread_ns(pthread_t thread);

/* Processors on which this process computes well: those of its affinity mask, or the fast ones. */
size_t spry_os_processors(void);

/* ---- descriptors ------------------------------------------------------------------------------------------------- */

/* All descriptors that these functions make are closed in child processes. */

/* Sockets that do not block; -1 and errno. */
int spry_os_socket(int family);
int spry_os_accept(int listening, struct sockaddr *address, socklen_t *size);

/* False and errno. */
bool spry_os_pipe(int ends[2]);

/* Writes a file to the disk and lets the system drop its cached pages. */
void spry_os_forget(int file);

/* A folder in which the name of an open descriptor is its number. */
extern const char spry_os_descriptors[];

/* The path of this program; false: unknown. */
bool spry_os_program(char *path, size_t size);

/* ---- the machine ------------------------------------------------------------------------------------------------- */

/* Bytes of the machine's memory, and of this process now and at most; 0: unknown, or told by a file of Linux. */
size_t spry_os_memory(void);
size_t spry_os_memory_now(void);
size_t spry_os_memory_peak(void);

/* Whether the system itself reports that memory is short. */
bool spry_os_memory_pressure(void);

/* Features that the operating system reports instead of the processor: all of ARM's and of Macs; AMX on Linux. */
uint32_t spry_os_cpu_features(void);

/* Fill in what the files of Linux did not tell. */
void spry_os_hardware(spry_hardware *hardware);
void spry_os_machine_state(spry_machine_state *state);

/* Opens the system's own energy counters, as the functions of energy_impl.h do. */
spry_status spry_os_open_energy(spry_energy_source *source, const spry_energy_system *system);

#endif
