/* The interface for implementations of devices. An implementation's own state begins with a spry_device.
 *
 * device.c checks steps, draws and row numbers, so the functions here can rely on their arguments. */
#ifndef SPRY_DEVICE_DEVICE_IMPL_H
#define SPRY_DEVICE_DEVICE_IMPL_H

#include "device/device.h"
#include "device/whisper_device.h"

typedef struct spry_device_ops {
    void (*close)(spry_device *device);
    spry_status (*submit)(spry_device *device, const spry_device_step *step, spry_error *error);
    /* Starts a step after the current one; `wait` then waits for the current one. NULL: the device cannot do that. */
    spry_status (*submit_after)(spry_device *device, const spry_device_step *step, const uint32_t *drawn,
                                spry_error *error);
    spry_status (*wait)(spry_device *device, spry_error *error);
    spry_status (*draw)(spry_device *device, spry_draw *const *draws, size_t n, spry_error *error);
    spry_status (*logits)(spry_device *device, const float **logits, size_t first, size_t count, spry_error *error);
    spry_status (*hidden)(spry_device *device, const float **hidden, size_t first, size_t count, spry_error *error);
    spry_kv_mover (*mover)(spry_device *device);
    spry_kv_mover (*state_mover)(spry_device *device); /* NULL: it computes no models with recurrent states */
    uint64_t (*waits)(spry_device *device);            /* NULL: it never does */
    void (*set_trace)(spry_device *device, spry_trace *trace, uint32_t lane);
    void (*set_watch)(spry_device *device, spry_op_watch *watch);
    void (*set_threads)(spry_device *device, spry_threads *threads);
    bool (*measure)(spry_device *device, spry_device_memory *memory);
    bool (*measure_pages)(spry_device *device, size_t *bytes, const uint32_t *pages, size_t n_pages);
} spry_device_ops;

struct spry_device {
    const spry_device_ops *ops;
    const spry_config *config;
    spry_step_limits limits;
    unsigned under_way;        /* number of steps submitted and not waited for; 2 if one follows the other */
    size_t n_draws;            /* number of draws of the last step */
    size_t logits_after;       /* rows with logits of a step that follows another one; 0: there is none */
    size_t n_logits, n_hidden; /* rows of the last step whose results can be fetched */
    uint64_t sampling_ns;      /* set by the implementation */
    bool placed_weights;       /* the last step also converted weights; set by the implementation */
    uint64_t attention_ns;     /* nanoseconds of attention in the last step; set by the implementation */
    uint32_t split_layers;     /* see spry_device_layers */
    bool pictures, two_way;    /* computes rows of pictures; also pictures whose rows see each other */
};

struct spry_device_kind {
    const char *name;
    uint32_t features;                      /* bits of spry_feature that it can compute; device.c refuses models that
                                             * need others */
    bool adapters;                          /* computes LoRA adapters; otherwise they are refused */
    bool taps;                              /* it can give the output of layers; otherwise `taps` of configs are
                                             * ignored */
    bool towers;                            /* computes vision towers */
    bool nibbles;                           /* computes Q4_0 pages (base/kv_types.h); otherwise they are refused */
    uint32_t chunk;                         /* default number of prompt tokens in a step; 0: the same as for the CPU */
    size_t (*total)(const char *piece);     /* bytes of memory, 0: not known; NULL: never known */
    size_t (*available)(const char *piece); /* free bytes now; otherwise the same */
    bool (*is_host)(const char *piece);     /* it is the CPU, imitating a GPU, or a driver that
                                             * was never tried; NULL: never */
    void (*explain)(const char *piece, spry_error *why); /* gives the reason why `total` is 0; NULL: there is none to
                                                          * add */
    /* Writes a text that names everything besides model and layout that determines the bits of a page: kernels and
     * their revision. NULL: the kind's name and SPRY_KERNEL_REVISION. */
    void (*identify)(char *out, size_t size, const spry_device_setup *setup);
    /* `piece`: the text after the colon of the device's name, or "". Leaves *out NULL on failure. */
    spry_status (*open)(spry_device **out, const char *piece, const spry_device_setup *setup, spry_error *error);
    bool (*estimate)(spry_device_memory *memory, const spry_device_setup *setup, const spry_device_use *use);
    /* Opens a Whisper model like `open`; NULL: the CPU computes it. */
    spry_status (*open_whisper)(spry_whisper_device **out, const char *piece, const spry_whisper_setup *setup,
                                spry_error *error);
    bool whisper_rows; /* reads Whisper's rows in file layout, and unpacks rows that were packed for the host */
};

/* Refuses adapters if this kind of device cannot compute them. */
spry_status spry_device_check_adapters(const spry_device_kind *kind, const spry_step_limits *limits, spry_error *error);

/* Refuses a type of keys and values that this kind of device has no kernels for. */
spry_status spry_device_check_pages(const spry_device_kind *kind, const spry_device_setup *setup, spry_error *error);

/* Refuses a piece if devices of this kind have none. */
spry_status spry_device_only(const spry_device_kind *kind, const char *piece, spry_error *error);

/* The work of a layer's attention in a step: bytes of keys and values that are read, and multiplications. */
void spry_device_attention_work(double *bytes, double *products, const spry_segment *segments, size_t n_segments,
                                const spry_config *config, const spry_kv_pool *pool, uint32_t layer);

/* All kinds. */
extern const spry_device_kind spry_device_kind_cpu, spry_device_kind_cuda, spry_device_kind_vulkan,
    spry_device_kind_ranks, spry_device_kind_split;

/* Adds a kind that the program itself provides, such as a device for tests; call it before any device is searched
 * for. */
void spry_device_add_kind(const spry_device_kind *kind);

#endif
