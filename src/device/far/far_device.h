/* A device as strict as one on the other side of a bus, for tests: the CPU's kernels in a thread of their own, behind
 * memory that only this thread can reach. Its weights, pages and working memory (logits among them) are mapped without
 * any access except while it works, so a caller that follows a pointer into the device, or reads a result before wait,
 * faults. Submit returns before the step has run. */
#ifndef SPRY_DEVICE_FAR_FAR_DEVICE_H
#define SPRY_DEVICE_FAR_FAR_DEVICE_H

#include "device/cpu/cpu_device.h"

/* The device inside, whose memory that is. For tests. */
const spry_cpu_device *spry_far_device_inside(const spry_device *device);

/* Its thread begins nothing more until it is let go; for tests of what happens meanwhile. */
void spry_far_device_hold(spry_device *device, bool hold);

#endif
