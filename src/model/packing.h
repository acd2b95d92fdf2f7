/* Weights in the layout that kernels want, made once when a model is opened for them. A matrix that has been
 * packed is not needed in the file any more, so its pages are given back to the system: packing costs time once, and no
 * memory. An embedding that is the output matrix, too, gives its rows from the packed form. One of its own stays in the
 * file and is fetched whole: rows of a few tokens would bring in most of it all the same, piece by piece and in the
 * middle of the first prompt. */
#ifndef SPRY_MODEL_PACKING_H
#define SPRY_MODEL_PACKING_H

#include "kernels/ops.h"
#include "model/weights.h"
#include "platform/threads.h"

/* `mapped`: the weights lie in mapped files, whose pages may be dropped and come back by themselves. */
spry_status spry_weights_pack(spry_weights *weights, const spry_config *config, const spry_ops *ops,
                              spry_threads *threads, bool mapped, spry_error *error);
void spry_weights_unpack(spry_weights *weights);

/* Bytes the weights take in memory once they are packed for these kernels, with those that stay as they lie. False when
 * that overflows. */
bool spry_weights_resident_bytes(size_t *bytes, const spry_weights *weights, const spry_config *config,
                                 const spry_ops *ops, bool mapped);

/* Bytes packing would take for these kernels; false when that overflows. */
bool spry_weights_packed_bytes(size_t *bytes, const spry_weights *weights, const spry_config *config,
                               const spry_ops *ops);

/* Whether a matrix meets a kernel that takes activations as integers; such matrices are packed. */
bool spry_weights_need_integers(const spry_weights *weights, const spry_config *config, const spry_ops *ops);

#endif
