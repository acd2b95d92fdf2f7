/* Pictures as files: PNG, JPEG, WebP and the first frame of GIF to 8-bit RGB. They are decoded in a child process
 * without privileges (platform/child.h). Transparent pixels are blended with white, and photographs are rotated as
 * their EXIF data says. */
#ifndef SPRY_FORMATS_IMAGE_H
#define SPRY_FORMATS_IMAGE_H

#include "base/buffer.h"
#include "base/error.h"

typedef struct spry_image {
    uint32_t width, height;
    unsigned char *rgb; /* [height, width, 3], rows from the top */
} spry_image;

/* "PNG" etc.; NULL: the file is no image that can be read. */
const char *spry_image_kind(const void *file, size_t size);

/* Refuses images with more than `max_pixels` before they are decoded. `name`: for messages, such as "picture 1". */
spry_status spry_image_decode(spry_image *out, const void *file, size_t size, size_t max_pixels, const char *name,
                              spry_error *error);
void spry_image_deinit(spry_image *image);

#endif
