/* The eyes of a model: a vision tower, what pictures are made into before it, and the projector after it, from a
 * Hugging Face folder or a GGUF file beside the model (mmproj). A family of towers is a row in the table of
 * tower_kinds.c: an architecture (arch/towers.c) and a recipe. The tower's layers run on a device like those of any
 * model; everything here is for the host. */
#ifndef SPRY_MODEL_TOWER_H
#define SPRY_MODEL_TOWER_H

#include "formats/image.h"
#include "model/model.h"
#include "model/picture.h"
#include "model/resample.h"
#include "model/weights_bind.h"
#include "platform/threads.h"

enum { SPRY_TOWER_STEPS = 3, SPRY_TOWER_RATIO = 200 /* the most of a longer side to a shorter one */ };

/* A norm and up to three products, with GELU (by the error function) before the last. */
typedef struct spry_projector {
    const float *norm, *norm_bias; /* norm of the input; NULL: none. Without a bias the mean is not subtracted */
    float eps;                     /* epsilon of the norm; 0: that of the layers */
    spry_weight steps[SPRY_TOWER_STEPS];
    uint32_t n_steps;
} spry_projector;

/* How neighbouring patches become one row. */
typedef enum spry_joining {
    SPRY_JOIN_SIDE_BY_SIDE, /* patches of a group one after the other */
    SPRY_JOIN_UNFOLD,       /* first value of every patch of a group, second value of every patch, ... */
    SPRY_JOIN_AVERAGE,
} spry_joining;

/* How a large picture becomes square sheets, the tiles, and one more of the whole. */
typedef enum spry_tiling {
    SPRY_TILES_NONE,
    SPRY_TILES_LONGEST, /* the longest side becomes `longest`, and both go up to whole tiles */
    SPRY_TILES_RATIO,   /* the lines and columns whose ratio is next to the picture's */
    SPRY_TILES_LARGE,   /* the same, for pictures that are over `large_pixels`; the whole keeps its ratio */
} spry_tiling;

/* How learned positions are added to patches. */
typedef enum spry_placing_kind {
    SPRY_PLACES_CORNERS, /* a square table, whose corners are the sheet's corners */
    SPRY_PLACES_SMOOTH,  /* a square table, resampled to the sheet's size with antialiasing */
    SPRY_PLACES_AXES,    /* a table for columns, and one for lines */
} spry_placing_kind;

/* Text of a prompt for a picture in tiles: \1 is a sheet. A tile is OPEN line _col_ column CLOSE; without OPEN it is
 * CLOSE. */
typedef struct spry_tile_text {
    const char *before, *open, *close, *line, *after;
} spry_tile_text;

typedef struct spry_tower {
    const struct spry_tower_kind *kind;
    spry_arena arena;
    spry_gguf *own;               /* the tower's file, or NULL: the model's files hold it */
    spry_config config;           /* config of the layers */
    spry_weights weights;         /* weights of the layers, in the files */
    uint32_t patch, merge, width; /* pixels of a patch's side, patches of a row's side, floats of a row */
    uint32_t window;              /* patches of a window's side; 0: all layers see the whole picture */
    double side, longest;         /* pixels of a square sheet's side, and of the longest side of a picture */
    double min_pixels, max_pixels, large_pixels;
    uint32_t min_tiles, max_tiles;
    bool two_way; /* rows of the text model see each other */
    spry_filter filter;
    float mean[3], deviation[3];
    spry_weight patches;    /* [n_embd, 3, patch, patch] */
    const float *positions; /* [position_side * position_side, n_embd] or [2, position_side, n_embd], or NULL */
    uint32_t position_side;
    const float *class_row;  /* [n_embd]: one more row for the layers, which is dropped after them; NULL: none */
    const float *patch_norm; /* RMS norm of each patch after the layers, with patch_norm_eps; NULL: none */
    float patch_norm_eps;
    spry_projector projector, deep[SPRY_MAX_TAPS];
    float joined_scale;                       /* factor of joined patches; 0: none */
    const float *joined_mean, *joined_scales; /* [n_embd]: subtracted from joined patches, and factors; NULL: none */
    const float *row_end;                     /* [width]: a row between two lines of the picture; NULL: none */
    const float *ones;                        /* [widest result of a projector's step] */
    const spry_ops *ops;
} spry_tower;

/* What one family does in its own way. */
typedef struct spry_tower_kind {
    const char *model_types[2]; /* values of model_type in config.json */
    const char *gguf;           /* clip.projector_type */
    const spry_arch *arch;
    const spry_arch *gelu_arch; /* where hidden_act is "gelu" instead of "silu"; NULL: the same */
    /* Text of a prompt around a picture: what is tokenised with the text beside it, the rows' mark \1 in tokens, the
     * token in place of a row, and the one between two lines. */
    const char *margin, *frame, *pad, *row_end;
    const char *patches[2], *positions[2]; /* tensors in Hugging Face and GGUF files */
    /* Reads what is its own; `config` is config.json or its equivalent, `vision` its vision_config. */
    spry_status (*read)(spry_tower *tower, const spry_binder *b, const json_t *config, const json_t *vision);
    /* The sides of a sheet. */
    void (*sides)(const spry_tower *tower, uint32_t *width, uint32_t *height, const spry_image *image, double most);
    spry_joining joining;
    spry_placing_kind placing;
    spry_tiling tiling;
    spry_tile_text tiles;
    spry_filter filter;
    double patch, merge, layers, heads, ff, eps, theta; /* where files do not say */
    double least_rows, most_rows; /* rows of a picture, where the recipe counts rows; 0: it counts pixels */
    bool rotates;                 /* rope by row and column, half of the pairs each */
    bool odd_columns;             /* columns turn with frequencies between those of rows */
    bool columns;                 /* rope of the text model sees rows as a grid */
    bool two_way;                 /* rows of the text model see each other, where the config does not say */
    bool axes_apart;              /* rope: the first half of a head turns by columns and the second by lines */
    bool limits_side;             /* `longest` counts */
    bool class_row;               /* the first of the learned positions is that of a class row */
    bool square;                  /* sheets are squares of the same side, with a position for each patch */
    bool unit_pixels;             /* pixels go from -1 to 1, whatever the recipe says */
} spry_tower_kind;

/* By model_type or clip.projector_type; NULL: not known. */
const spry_tower_kind *spry_tower_kind_of(const char *model_type, const char *projector);
const char *spry_tower_kind_names(void); /* for messages */

/* Tensor "NAME.suffix" of the tower or of the projector, under its name in this kind of files; NULL: not there. */
const spry_tensor *spry_tower_find(const spry_binder *b, const char *const names[2], const char *suffix);

/* Whether the folder's model has eyes that this version knows. */
bool spry_tower_known(const char *folder);

/* The tower's file beside a GGUF model, for freeing: in its folder, of *mmproj*.gguf with rows for this model, the one
 * that is named as the model, or that names no model. *out stays NULL when there is none. */
spry_status spry_tower_beside(char **out, const spry_model *model, spry_error *error);

/* `mmproj`: a GGUF file with the tower, or NULL: it is in the model's folder. Fails for a model without eyes. */
spry_status spry_tower_open(spry_tower **out, const spry_model *model, const char *mmproj, const spry_ops *ops,
                            spry_error *error);
void spry_tower_close(spry_tower *tower);

/* Prepares what comes before and after the layers for the tower's kernels, once, before the first picture; and
 * the bytes of memory that this needs. */
spry_status spry_tower_pack(spry_tower *tower, spry_threads *threads, spry_error *error);
size_t spry_tower_packed_bytes(const spry_tower *tower);

/* The most rows of a picture of at most `max_pixels` that see each other, so that one step computes them all; 0: rows
 * of pictures are computed like those of text. */
uint32_t spry_tower_joint_rows(const spry_tower *tower, double max_pixels);

/* A hash of all weights in the tower's own file; 0: it has none. */
spry_kv_key spry_tower_hash(const spry_tower *tower);

/* ---- a picture ---- */

/* What a picture becomes for the tower: sheets that it sees one by one. */
typedef struct spry_sheets {
    spry_image *sheets;
    uint32_t n, rows, columns; /* the tiles, if any: all sheets but the last */
} spry_sheets;

/* Lines and columns of about the picture's ratio, from min_tiles to max_tiles of them. */
void spry_tower_grid(uint32_t *rows, uint32_t *columns, const spry_tower *tower, const spry_image *image,
                     uint32_t max_tiles);

spry_status spry_tower_sheets(const spry_tower *tower, spry_sheets *out, const spry_image *image, double max_pixels,
                              spry_error *error);
void spry_sheets_deinit(spry_sheets *sheets);

/* A sheet as rows of patches for the tower's layers, in windows, each a picture that is a grid; after the patches of a
 * window is the class row, if there is one. */
typedef struct spry_patches {
    spry_picture **windows;
    uint32_t n, rows, columns; /* rows, columns: of patches of the sheet */
} spry_patches;

/* The number of rows that the layers compute for all patches. */
static inline uint32_t spry_patches_rows(const spry_tower *tower, const spry_patches *p)
{
    return p->rows * p->columns + (tower->class_row ? p->n : 0);
}

spry_status spry_tower_patches(const spry_tower *tower, spry_patches *out, const spry_image *sheet,
                               spry_threads *threads, spry_error *error);
void spry_patches_deinit(spry_patches *patches);

/* Hidden states of all rows, window by window, and for each tap the same after them, become rows for the model. */
spry_status spry_tower_project(const spry_tower *tower, spry_picture **out, const spry_patches *patches,
                               const float *hidden, spry_kv_key hash, spry_threads *threads, spry_error *error);

/* Appends the prompt's text for these sheets: \1 for each picture. */
bool spry_tower_write(spry_buffer *text, const spry_tower *tower, const spry_sheets *sheets);

#endif
