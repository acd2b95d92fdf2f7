/* Predicts the speed of a model from the speed of the machine and the work of the model. */
#ifndef SPRY_INSIGHT_PREDICTION_H
#define SPRY_INSIGHT_PREDICTION_H

#include "model/model.h"
#include "spry_tools.h"

/* The work of a model: bytes read, products and values processed, by the type of the matrices. Counted from the shapes
 * of the weights, so the model need not be loaded: a shape, or a file opened for its sizes, is enough. Experts are
 * counted as if every row chose its own at random. */

/* Products with matrices of one type. */
typedef struct spry_type_work {
    double bytes;    /* bytes of the matrix in the kernels' layout */
    double products; /* multiplications */
} spry_type_work;

/* The work of one step or several. */
typedef struct spry_step_work {
    spry_type_work one[SPRY_DTYPE_COUNT];  /* products with a single row */
    spry_type_work many[SPRY_DTYPE_COUNT]; /* products with several rows */
    double kv_bytes;                       /* keys and values read */
    double attend_products;                /* multiplications by keys and values */
    double one_small[SPRY_SMALL_COUNT];    /* values processed by one thread while the others wait */
    double many_small[SPRY_SMALL_COUNT];   /* values split among all threads */
    double syncs;                          /* number of times that all threads are woken and waited for */
} spry_step_work;

/* The inputs of the count. */
typedef struct spry_work_setting {
    const spry_model *model;
    const spry_ops *ops;
    spry_dtype kv_type;
    uint32_t chunk; /* rows of a step */
} spry_work_setting;

/* The work of a prefill of `tokens` from an empty context, with the logits of the last one; the work of one decode step
 * of `batch` sequences of `depth` tokens each. */
spry_step_work spry_work_of_prefill(const spry_work_setting *setting, size_t tokens);
spry_step_work spry_work_of_decode(const spry_work_setting *setting, size_t depth, size_t batch);

/* Over all types, with attention. */
double spry_work_bytes(const spry_step_work *work);
double spry_work_products(const spry_step_work *work);

/* The type of most products of a row. */
spry_dtype spry_work_main_type(const spry_model *model);

/* Predicts the speed of an open model, loaded or not, with the kernels that the speeds were measured with. A type that
 * has no measured speed is refused. */
spry_status spry_predict_model(spry_prediction *prediction, const spry_machine_speed *speed, const spry_model *model,
                               spry_error *error);

/* Seconds of a prefill, or of a decode step of `batch` sequences of `depth` tokens each. */
double spry_predict_prefill(const spry_machine_speed *speed, const spry_work_setting *setting, size_t tokens);
double spry_predict_decode(const spry_machine_speed *speed, const spry_work_setting *setting, size_t depth,
                           size_t batch);

/* The speed at which all threads read `bytes` repeatedly: from a cache that holds them, or from memory. */
double spry_predict_read(const spry_machine_speed *speed, double bytes);

#endif
