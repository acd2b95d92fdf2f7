/* What an implementation of a device fills in. Its own state begins with a spry_device.
 *
 * device.c checks steps, draws and row numbers, so functions here trust their arguments. */
#ifndef SPRY_DEVICE_DEVICE_IMPL_H
#define SPRY_DEVICE_DEVICE_IMPL_H

#include "device/device.h"
#include "device/whisper_device.h"

typedef struct spry_device_ops {
    void (*close)(spry_device *device);
    spry_status (*submit)(spry_device *device, const spry_device_step *step, spry_error *error);
    /* Starts a step after the one under way; `wait` then means that one. NULL: the device cannot. */
    spry_status (*submit_after)(spry_device *device, const spry_device_step *step, const uint32_t *drawn,
                                spry_error *error);
    spry_status (*wait)(spry_device *device, spry_error *error);
    spry_status (*draw)(spry_device *device, spry_draw *const *draws, size_t n, spry_error *error);
    spry_status (*logits)(spry_device *device, const float **logits, size_t first, size_t count, spry_error *error);
    spry_status (*hidden)(spry_device *device, const float **hidden, size_t first, size_t count, spry_error *error);
    spry_kv_mover (*mover)(spry_device *device);
    uint64_t (*waits)(spry_device *device); /* NULL: it never does */
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
    unsigned under_way;        /* steps: 2 where one is after another */
    size_t n_draws;            /* of the last step */
    size_t logits_after;       /* its rows with logits, while it is submitted after another; 0: it is not */
    size_t n_logits, n_hidden; /* rows of the last step that can be asked for */
    uint64_t sampling_ns;      /* set by the implementation */
    bool placed_weights;       /* the last step also placed weights; set by the implementation */
    uint64_t attention_ns;     /* of the last step; set by the implementation */
    uint32_t split_layers;     /* see spry_device_layers */
    bool pictures, two_way;    /* it computes rows of pictures, also of those whose rows see each other */
};

struct spry_device_kind {
    const char *name;
    uint32_t features;                      /* spry_feature bits of what it computes; device.c refuses other models */
    bool adapters;                          /* it computes LoRA adapters; else they are refused */
    uint32_t chunk;                         /* prompt tokens that pay in one step; 0: as many as on the CPU */
    size_t (*total)(const char *piece);     /* bytes of memory, 0: not known; NULL: never known */
    size_t (*available)(const char *piece); /* those that are free now; the same */
    void (*explain)(const char *piece, spry_error *why); /* why `total` is 0; NULL: there is no more to say */
    /* Names everything besides model and layout that decides the bits of a page: kernels and their
     * revision. NULL: the kind's name and SPRY_KERNEL_REVISION. */
    void (*identify)(char *out, size_t size, const spry_device_setup *setup);
    /* `piece`: what is after the colon of the device's name, or "". Leaves *out NULL on failure. */
    spry_status (*open)(spry_device **out, const char *piece, const spry_device_setup *setup, spry_error *error);
    bool (*estimate)(spry_device_memory *memory, const spry_device_setup *setup, const spry_device_use *use);
    /* Opens a Whisper model, as `open` does; NULL: the CPU computes it. */
    spry_status (*open_whisper)(spry_whisper_device **out, const char *piece, const spry_whisper_setup *setup,
                                spry_error *error);
    bool whisper_rows; /* it takes the rows of files, and unpacks what is packed for the host */
};

/* Refuses adapters that such a device does not compute. */
spry_status spry_device_check_adapters(const spry_device_kind *kind, const spry_step_limits *limits, spry_error *error);

/* Refuses a piece of a kind of device that is one piece. */
spry_status spry_device_only(const spry_device_kind *kind, const char *piece, spry_error *error);

/* What attention of a layer reads, of keys and values, and multiplies in a step. */
void spry_device_attention_work(double *bytes, double *products, const spry_segment *segments, size_t n_segments,
                                const spry_config *config, const spry_kv_pool *pool, uint32_t layer);

/* The kinds there are. */
extern const spry_device_kind spry_device_kind_cpu, spry_device_kind_cuda, spry_device_kind_ranks,
    spry_device_kind_split;

/* Adds a kind that the program brings itself, such as the device of tests; before any device is looked for. */
void spry_device_add_kind(const spry_device_kind *kind);

#endif
