/* Pictures in prompts. A *picture* is what a model's vision tower makes of an image: rows of embeddings that take the
 * place of placeholder tokens in a prompt. It is found again in the KV cache by its content. */
#ifndef SPRY_PICTURES_H
#define SPRY_PICTURES_H

#include "spry.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct spry_picture spry_picture;

/* A picture, and the position `at` in the prompt of its first placeholder token; it replaces as many tokens as it has
 * rows. A list of them is ascending; a prompt with pictures has no spans. */
typedef struct spry_placed {
    size_t at;
    const spry_picture *picture;
} spry_placed;

/* True if the model can process pictures: parts {"type": "image_url", "image_url": {"url":
 * "data:image/png;base64,..."}} of messages then become pictures of a prompt (spry_engine_chat_prompt). PNG, JPEG, WebP
 * and GIF files are decoded in a child process without privileges. Any thread. */
SPRY_API bool spry_engine_sees(const spry_engine *engine);

/* Frees a list of pictures that the library made, as in spry_chat_prompt. */
SPRY_API void spry_placed_free(spry_placed *pictures, size_t count);

#ifdef __cplusplus
}
#endif
#endif
