/* One file of a known size, downloaded in chunks, several at once.
 *
 * A record beside the unfinished file says which chunks are there. It is used again when the file has a checksum, which
 * is compared at the end; a file without one begins anew. A broken connection, too many requests and errors of the
 * server are retried as long as every few tries make progress. */
#ifndef SPRY_APPS_PULL_RANGES_H
#define SPRY_APPS_PULL_RANGES_H

#include "pull/hub.h"
#include "pull/pull_state.h"

/* Downloads to `part`, a name in `folder`; the record is `part` + ".from". Counts in pull->done. On success the file is
 * complete, checked and synced, and the record is gone; a file with a wrong checksum is removed. */
spry_status spry_pull_ranges(spry_model_pull *pull, const spry_directory *folder, const char *part,
                             const spry_remote_file *file, spry_error *error);

#endif
