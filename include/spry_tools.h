/* spry_tools: functions for tools that examine models and machines, in addition to spry.h: inspect and convert
 * checkpoints, tokenise without loading weights, walk grammars, count memory and work, measure kernels, predict speed.
 * Programs that only generate text need spry.h alone. This header may change with any minor version; its structs follow
 * spry.h's rules.
 *
 * Threads: any thread, with different objects at the same time; one thread at a time for one object. */
#ifndef SPRY_TOOLS_H
#define SPRY_TOOLS_H

#include "spry.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- models as files ------------------------------------------------------------------------------------------- */

/* A model that is not loaded: a GGUF file or a Hugging Face folder at `path`, or a GGUF file in memory. */
typedef struct spry_model_file {
    const char *path; /* NULL when `data` is set */
    const char *name; /* name to show; NULL: its path */
    const void *data;
    size_t size;
} spry_model_file;

/* Names of types ("q4_k_m") and of shapes of published models ("qwen3-0.6b"); NULL ends a list. */
SPRY_API extern const char *const spry_recipe_names[];
SPRY_API extern const char *const spry_shape_names[];
SPRY_API bool spry_shape_published(const char *shape); /* false: invented for tests, or unknown */

/* Describes a model as one JSON object: format, metadata, shape, tokenizer, tensors and their placement, memory at the
 * default context and at `context` (0: only the default). `tensors`: with a list of all tensors. The caller frees *json
 * with spry_free. A model that this library cannot run is described as well, with the reason. */
SPRY_API spry_status spry_inspect_json(char **json, const spry_model_file *file, uint32_t context, bool tensors,
                                       spry_error *error);

/* What the files of a checkpoint say about its model. */
typedef struct spry_checkpoint {
    size_t size;              /* as in spry_engine_info */
    const char *architecture; /* "Qwen3" */
    size_t vocabulary;
    size_t context;        /* maximum tokens of a sequence without another RoPE scaling */
    size_t kv_token_bytes; /* bytes of the keys and values of a token in kv_type; 0: the type does not fit the model */
    uint32_t main_type;    /* number of the type that most matrix products use */
    uint32_t reserved32;
    uint64_t reserved[8];
} spry_checkpoint;

/* Reads a checkpoint without its weights. `kv_type` as in spry_engine_options. */
SPRY_API spry_status spry_checkpoint_read(spry_checkpoint *checkpoint, const spry_model_file *file, const char *kv_type,
                                          spry_error *error);

enum { SPRY_FINGERPRINT_TEXT = 33 };

/* 32 hexadecimal digits, which differ between models that differ in any weight or setting. Reads all weights. */
SPRY_API spry_status spry_checkpoint_fingerprint(char text[SPRY_FINGERPRINT_TEXT], const spry_model_file *file,
                                                 uint32_t threads, spry_error *error);

typedef struct spry_convert_options {
    size_t size;      /* set by spry_convert_options_default */
    const char *type; /* type of the matrices, one of spry_recipe_names; NULL: F16, BF16 or F32, as in the model */
    const char *name; /* model name in the file; NULL: unchanged */
    uint32_t threads; /* 0: every processor this process may use */
    uint32_t reserved32;
    bool (*progress)(void *user, size_t done, size_t total); /* bytes written; false stops. May be NULL */
    void *user;
    const char *lora; /* NULL, or adapters to merge into the matrices: "PATH,PATH=SCALE" */
} spry_convert_options;

SPRY_API void spry_convert_options_default_sized(spry_convert_options *options, size_t size);
#define spry_convert_options_default(options) spry_convert_options_default_sized(options, sizeof(spry_convert_options))

/* Writes a model as GGUF; the file appears when it is complete. */
SPRY_API spry_status spry_convert(const char *path, const spry_model_file *file, const spry_convert_options *options,
                                  spry_error *error);

/* Writes a GGUF file of a published shape with random weights: the same bytes on every machine. */
SPRY_API spry_status spry_convert_random(const char *path, const char *shape, const spry_convert_options *options,
                                         spry_error *error);

/* Writes a GGUF file of a model with the sizes of a published shape that computes what the model computes, up to
 * rounding: heads, columns and layers of zeros are added and norms rescaled; vocabulary and context stay. Of the
 * options only the name and the progress count. Plain Llama, Qwen2 and Qwen3 from GGUF; a shape that is smaller is
 * refused. */
SPRY_API spry_status spry_convert_widened(const char *path, const spry_model_file *file, const char *shape,
                                          const spry_convert_options *options, spry_error *error);

/* ---- memory ---------------------------------------------------------------------------------------------------- */

/* Resident bytes of a process with an engine, by part. */
typedef struct spry_memory_parts {
    size_t size;    /* as in spry_engine_info */
    size_t weights; /* mapped, copied, quantised and packed */
    size_t kv;      /* pages of keys and values that are or were in use */
    size_t cache;   /* cached pages that no sequence holds */
    size_t scratch; /* working memory of steps */
    size_t program; /* the rest of the process: code, libraries, heap, tokenizer, stacks */
    size_t whole;   /* the process; the sum of the above */
    size_t tower;   /* an estimate: what the vision tower adds to these with the first picture; 0: no eyes */
    uint64_t reserved[7];
} spry_memory_parts;

/* How the engine will be used. */
typedef struct spry_memory_use {
    size_t size;   /* set by spry_memory_use_default */
    size_t tokens; /* maximum tokens held at once, of all sequences */
    size_t cached; /* tokens cached beside them */
    size_t rows;   /* rows of the longest step; 0: as many as tokens and chunk allow */
    size_t logits; /* rows with logits in a step; 0: one */
} spry_memory_use;

/* Any thread. */
SPRY_API void spry_memory_use_default_sized(spry_memory_use *use, size_t size);
#define spry_memory_use_default(use) spry_memory_use_default_sized(use, sizeof(spry_memory_use))

/* Estimates what this process would hold after opening an engine and using it like this. Nothing is loaded. `data`
 * NULL: `name` is a path. `use` NULL: one full session. Any thread. */
SPRY_API spry_status spry_memory_estimate(spry_memory_parts *parts, const char *name, const void *data, size_t size,
                                          const spry_engine_options *options, const spry_memory_use *use,
                                          spry_error *error);

/* Measures what this process holds now with an open engine, page by page; fails if the system does not report which
 * pages are resident. One thread at a time for the engine. */
SPRY_API spry_status spry_memory_measure(spry_memory_parts *parts, const spry_engine *engine, spry_error *error);

/* ---- tokenizers ------------------------------------------------------------------------------------------------ */

/* The tokenizer of a model without its weights; `file` may also be a tokenizer.json or tokenizer.model. */
typedef struct spry_tokenizer spry_tokenizer;

SPRY_API spry_status spry_tokenizer_load(spry_tokenizer **out, const spry_model_file *file, spry_error *error);
SPRY_API void spry_tokenizer_free(spry_tokenizer *tokenizer);
SPRY_API size_t spry_tokenizer_count(const spry_tokenizer *tokenizer); /* number of tokens in the vocabulary */

/* The ids of a text, or the text of ids; the caller frees them with spry_free. `special`: control tokens are
 * recognised, or written; `whole`: with the tokens that the model's own tokenizer adds before and after a text. */
SPRY_API spry_status spry_tokenizer_ids(const spry_tokenizer *tokenizer, int32_t **ids, size_t *count, const char *text,
                                        size_t size, bool special, bool whole, spry_error *error);
SPRY_API spry_status spry_tokenizer_text(const spry_tokenizer *tokenizer, char **text, size_t *size, const int32_t *ids,
                                         size_t count, bool special, spry_error *error);

/* ---- grammars -------------------------------------------------------------------------------------------------- */

/* The position of a text, read byte by byte or token by token, in a constraint. */
typedef struct spry_matching spry_matching;

/* `tokenizer` NULL: only bytes can be matched. The tokenizer must outlive the matching. */
SPRY_API spry_status spry_matching_create(spry_matching **out, spry_constraint constraint, spry_json_style style,
                                          const char *text, size_t size, const spry_tokenizer *tokenizer,
                                          spry_error *error);
/* Replaces the constraint, with the same tokenizer, whose vocabulary is not sorted again. After a failure there is no
 * constraint: only this function and spry_matching_destroy may be called. */
SPRY_API spry_status spry_matching_replace(spry_matching *matching, spry_constraint constraint, spry_json_style style,
                                           const char *text, size_t size, spry_error *error);
/* Returns to the beginning of the text. */
SPRY_API void spry_matching_reset(spry_matching *matching);
SPRY_API void spry_matching_destroy(spry_matching *matching);

/* Accepts bytes up to the first that does not match; *taken becomes their number. */
SPRY_API spry_status spry_matching_take(spry_matching *matching, size_t *taken, const char *bytes, size_t size,
                                        spry_error *error);
SPRY_API spry_status spry_matching_token(spry_matching *matching, int32_t id, spry_error *error);
SPRY_API bool spry_matching_may_end(const spry_matching *matching); /* the text so far is complete */

/* The bytes allowed next: bit b % 64 of word b / 64. The tokens allowed next: bit i % 32 of word i / 32, valid until
 * the next call. */
SPRY_API void spry_matching_next_bytes(const spry_matching *matching, uint64_t bytes[4]);
SPRY_API spry_status spry_matching_mask(spry_matching *matching, const uint32_t **mask, spry_error *error);

/* Milliseconds of compiling the constraint, sorting the vocabulary, and computing the first masks. */
typedef struct spry_matching_times {
    double compile_ms, vocabulary_ms, prepare_ms;
} spry_matching_times;

SPRY_API spry_matching_times spry_matching_get_times(const spry_matching *matching);

/* ---- sampling -------------------------------------------------------------------------------------------------- */

/* Draws `n_tokens` tokens one after the other from the same logits, as answers draw them. `probabilities`: NULL, or
 * memory for n_logits floats, which gets the distribution that they are drawn from. */
SPRY_API spry_status spry_sample_logits(int32_t *tokens, size_t n_tokens, float *probabilities,
                                        const spry_sampling *settings, const float *logits, size_t n_logits,
                                        const int32_t *history, size_t n_history, spry_error *error);

/* ---- machines -------------------------------------------------------------------------------------------------- */

enum { SPRY_TYPES_ROOM = 48, SPRY_READ_SPEEDS = 10, SPRY_KERNELS_NAME = 16 };

/* The kernel set that a mask as in spry_engine_options.cpu selects on this machine. */
SPRY_API spry_status spry_kernels_name(char name[SPRY_KERNELS_NAME], const char *cpu, spry_error *error);

/* Speed of products with a matrix of one type; zeros: no kernel supports the type. */
typedef struct spry_type_speed {
    double multiply_g_s; /* many rows, as in prefill: billions of multiplications a second */
    double decode_gb_s;  /* one row, weights from memory */
    double cached_gb_s;  /* one row, weights from the caches */
} spry_type_speed;

/* Speed of all threads when they read the same `bytes` again and again. */
typedef struct spry_read_speed {
    double bytes, gb_s;
} spry_read_speed;

/* Ops on rows of floats between the matrix products. */
typedef enum spry_small_op {
    SPRY_SMALL_NORM = 0,   /* a norm and a residual */
    SPRY_SMALL_ROPE = 1,   /* RoPE of queries and keys; keys and values into their pages */
    SPRY_SMALL_GATE = 2,   /* activation */
    SPRY_SMALL_ENCODE = 3, /* activations for integer kernels */
    SPRY_SMALL_COUNT = 4
} spry_small_op;

/* How fast this machine computes the parts of a forward pass, with the kernels and threads that an engine would use. */
typedef struct spry_machine_speed {
    uint32_t threads;
    char kernels[SPRY_KERNELS_NAME];
    double read_gb_s;                        /* from memory */
    spry_read_speed reads[SPRY_READ_SPEEDS]; /* ascending by bytes, from what fits into every cache to what fits into
                                              * none */
    double sync_us;                          /* waking all threads and waiting for them */
    double attend_g_s;                       /* attention of many rows over keys and values in F16: billions of
                                              * multiplications a second */
    double attend_gb_s;                      /* attention of one row: keys and values read from memory */
    double small_g_s[SPRY_SMALL_COUNT];      /* billions of values processed a second */
    spry_type_speed types[SPRY_TYPES_ROOM];  /* by number of the type */
} spry_machine_speed;

/* Called from time to time with the amount done; false stops, with SPRY_ERR_CANCELLED. */
typedef struct spry_speed_progress {
    bool (*report)(void *user, size_t done, size_t total);
    void *user;
} spry_speed_progress;

/* Measures all figures in about 5 seconds: the upper quartile of short tries, taken in rounds over all of them, so that
 * other load on the machine affects all figures alike. `cpu` as in spry_engine_options, `threads` 0: all usable,
 * `progress` may be NULL. Needs some hundred megabytes of memory meanwhile. */
SPRY_API spry_status spry_machine_speed_measure(spry_machine_speed *speed, const char *cpu, uint32_t threads,
                                                const spry_speed_progress *progress, spry_error *error);

/* Two limits that no engine exceeds, each the best of several tries: all threads reading memory; all threads
 * multiplying data in their own caches, by the kernel of a type (by number). */
SPRY_API spry_status spry_machine_peaks(double *read_gb_s, double *multiply_g_s, const char *cpu, uint32_t threads,
                                        uint32_t type, spry_error *error);

/* Attention of a step of a prompt, by the CPU's kernel, and by three ops with all scores in memory between them. */
typedef struct spry_attention_speed {
    double fused_ms, unfused_ms, difference; /* the largest difference of two results */
} spry_attention_speed;

/* Measures the last 128 rows of `n_keys` tokens, a multiple of SPRY_PAGE_TOKENS; `cpu` and `threads` as above. */
enum { SPRY_ATTENTION_KEYS_MAX = 8192 };
SPRY_API spry_status spry_attention_measure(spry_attention_speed *speed, const char *cpu, uint32_t threads,
                                            uint32_t n_keys, spry_error *error);

/* ---- predictions ----------------------------------------------------------------------------------------------- */

enum {
    SPRY_PREDICTED_PREFILL = 512,
    SPRY_PREDICTED_PROMPT = 1000,
    SPRY_PREDICTED_CONTEXT = 4096,
    SPRY_PREDICTED_CHUNK = 128 /* the engine's default */
};

/* The size of a model in memory and on disk, for an engine that opens it from a file with these types. */
typedef struct spry_model_size {
    double parameters;
    double file_bytes;   /* bytes of its tensors in the file */
    double weight_bytes; /* in memory: packed for these kernels, or used in place */
    double kv_bytes;     /* one session of that context */
    double scratch_bytes;
    double expert_bytes;       /* bytes of experts' weights; 0: it has none */
    double expert_token_bytes; /* bytes of experts' weights that one token uses */
} spry_model_size;

typedef struct spry_prediction {
    spry_model_size size;
    uint32_t context;    /* SPRY_PREDICTED_CONTEXT, or the model's own where that is less */
    double memory_bytes; /* of an engine with one session of that context, keys and values in F16 */
    double prefill_tps;  /* in a prompt of SPRY_PREDICTED_PREFILL tokens */
    double decode_tps;   /* at the beginning of the context */
    double ttft_1k_ms;   /* for a prompt of SPRY_PREDICTED_PROMPT tokens, nothing of it cached */
} spry_prediction;

/* Predicts how fast a model will run, from the speed of the machine and the amount of work: for a file, whose weights
 * are not read; or for a published shape in a type. Fails if `speed` has no figures for a type. */
SPRY_API spry_status spry_predict_file(spry_prediction *prediction, const spry_machine_speed *speed,
                                       const spry_model_file *file, spry_error *error);
SPRY_API spry_status spry_predict_shape(spry_prediction *prediction, const spry_machine_speed *speed, const char *shape,
                                        const char *type, spry_error *error);

/* ---- ops ------------------------------------------------------------------------------------------------------- */

/* What a step's time is spent on. */
typedef enum spry_op {
    SPRY_OP_LAYOUT = 0,    /* rows, positions, slots and turns of the step */
    SPRY_OP_EMBED = 1,     /* embeddings, cos and sin for RoPE */
    SPRY_OP_NORM = 2,      /* norms before and after parts of a layer, and at the end */
    SPRY_OP_QKV = 3,       /* products: queries, keys, values */
    SPRY_OP_ROPE = 4,      /* head norms, rope, keys and values into their pages */
    SPRY_OP_ATTEND = 5,    /* attention over the pages */
    SPRY_OP_OUT = 6,       /* product: attention's output */
    SPRY_OP_ADD = 7,       /* residual */
    SPRY_OP_GATE_UP = 8,   /* products: gate and up */
    SPRY_OP_GATE = 9,      /* activation */
    SPRY_OP_DOWN = 10,     /* product: down */
    SPRY_OP_ROUTE = 11,    /* choosing experts, gathering and scattering rows */
    SPRY_OP_LOGITS = 12,   /* product: output matrix, and soft-capping */
    SPRY_OP_EXCHANGE = 13, /* waiting for the other ranks of a team, and their shares; copies to a GPU */
    SPRY_OP_COUNT = 14
} spry_op;

SPRY_API const char *spry_op_name(spry_op op); /* "gate_up" */

/* Where an op ran; the host: it prepares a step for the GPU, starts kernels, and waits. */
typedef enum spry_op_place {
    SPRY_PLACE_CPU = 0,
    SPRY_PLACE_GPU = 1,
    SPRY_PLACE_HOST = 2,
    SPRY_OP_PLACES = 3
} spry_op_place;

/* One op at one place with matrices, or keys and values, of one type (by number). */
typedef struct spry_op_sum {
    spry_op op;
    spry_op_place place;
    uint32_t type;
    uint64_t ns, calls;
    double bytes;    /* bytes of weights, or of keys and values, that had to be read */
    double products; /* multiplications */
} spry_op_sum;

/* ---- steps ----------------------------------------------------------------------------------------------------- */

enum { SPRY_STEPS_MAX = 64, SPRY_POLICY_STEPS = 32 };

/* Sequences that are computed together on an engine, for measuring. They use pages of the engine. One thread at a time
 * for the engine, which has no session or job in use. */
typedef struct spry_steps spry_steps;

/* Creates `count` empty sequences, at most SPRY_STEPS_MAX. Packs the weights, so that the first steps need not do
 * it. */
SPRY_API spry_status spry_steps_create(spry_steps **out, spry_engine *engine, size_t count, spry_error *error);
SPRY_API void spry_steps_destroy(spry_steps *steps);
SPRY_API size_t spry_steps_held(const spry_steps *steps); /* tokens of the first sequence */

/* Appends the tokens of one step (at most spry_engine_info.chunk) to the first sequence; `last`: computes the logits
 * after the last one. */
SPRY_API spry_status spry_steps_prefill(spry_steps *steps, const int32_t *ids, size_t count, bool last,
                                        spry_error *error);

/* Makes sequences 1 to n - 1 hold what the first one holds, in pages of their own. */
SPRY_API spry_status spry_steps_spread(spry_steps *steps, size_t n, spry_error *error);

/* Appends one token to each of the first n sequences, ids[i] to sequence i, and computes logits. */
SPRY_API spry_status spry_steps_decode(spry_steps *steps, const int32_t *ids, size_t n, spry_error *error);

/* Truncates every sequence to at most `n_tokens` tokens. */
SPRY_API void spry_steps_truncate(spry_steps *steps, size_t n_tokens);

/* Sums ops from now on, from zero, or no longer; the sums so far, of which at most `capacity` are written: returns how
 * many there are, at most SPRY_OP_PLACES * SPRY_OP_COUNT * SPRY_TYPES_ROOM. */
SPRY_API void spry_steps_watch(spry_steps *steps, bool on);
SPRY_API size_t spry_steps_ops(const spry_steps *steps, spry_op_sum *sums, size_t capacity);

typedef struct spry_work_amount {
    double bytes;    /* bytes of weights, keys and values that must be read */
    double products; /* multiplications */
} spry_work_amount;

/* The work of a prefill of `tokens` tokens with nothing cached, in steps of the engine's chunk; then, of one decode
 * step of `batch` sequences with `depth` tokens each. Experts are counted as if every row selected its own at
 * random. */
SPRY_API spry_work_amount spry_engine_prefill_work(const spry_engine *engine, size_t tokens);
SPRY_API spry_work_amount spry_engine_decode_work(const spry_engine *engine, size_t depth, size_t batch);

/* The number of the type that most matrix products of a row use. */
SPRY_API uint32_t spry_engine_main_type(const spry_engine *engine);

/* The kind of device that computes, whatever the options said: "cpu", "cuda". */
SPRY_API const char *spry_engine_device_kind(const spry_engine *engine);

/* Why the CPU computes all or some layers although a GPU was asked for or is there: a sentence; "": it does not, or
 * nothing but the CPU was asked for. */
SPRY_API const char *spry_engine_why_cpu(const spry_engine *engine);

/* A step of `size` answers. */
typedef struct spry_policy_step {
    uint32_t size;
    double ms;
} spry_policy_step;

/* The number of answers, at most `most`, that a policy computes together, given the durations of these steps (at least
 * SPRY_POLICY_STEPS of each size); `why` gets the reason in one sentence. */
SPRY_API uint32_t spry_policy_choose(char *why, size_t capacity, spry_policy policy, uint32_t most,
                                     const spry_policy_step *steps, size_t n_steps);

/* Measures `count` lookups of a cached prompt of `tokens` tokens among *pages cached pages; *pages becomes their real
 * number. No model is needed. */
SPRY_API spry_status spry_lookup_measure(double *us, size_t count, size_t tokens, size_t *pages, spry_error *error);

#ifdef __cplusplus
}
#endif
#endif
