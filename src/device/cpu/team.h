/* Several processes that compute one model together. Each has a share of the outputs of every large matrix and of the
 * heads, with their keys and values; `gather` exchanges the results. Sums are never split, so results have the same
 * bits as those of a single process. */
#ifndef SPRY_DEVICE_CPU_TEAM_H
#define SPRY_DEVICE_CPU_TEAM_H

#include "model/config.h"
#include "platform/threads.h"

enum { SPRY_TEAM_MAX = 256 };
enum { SPRY_OUTPUT_GRAIN = 16 }; /* outputs are divided in multiples of this, which are whole groups of every kernel */

typedef struct spry_team spry_team;
struct spry_team {
    size_t rank, size;
    const spry_config *whole; /* config of the whole model; a pass has a config that counts only its own heads */
    /* Concatenates bytes[rank] bytes of each rank in `all`; with `to_first` only rank 0 needs the result. */
    void (*gather)(spry_team *team, void *all, const void *own, const size_t *bytes, bool to_first);
};

/* A rank's heads, [begin, end). Key/value heads are not divided: if there are more ranks than these, several ranks have
 * the same one and divide its query heads. */
typedef struct spry_team_heads {
    size_t q_begin, q_end, kv_begin, kv_end;
} spry_team_heads;

static inline spry_team_heads spry_team_heads_of(const spry_team *team, size_t rank)
{
    size_t n_kv = team->whole->n_kv_heads, group = team->whole->n_heads / n_kv, begin, end;
    spry_team_heads h;
    if (team->size <= n_kv) {
        spry_threads_part(&h.kv_begin, &h.kv_end, n_kv, 1, rank, team->size);
        h.q_begin = h.kv_begin * group;
        h.q_end = h.kv_end * group;
        return h;
    }
    size_t kv = 0;
    while ((kv + 1) * team->size / n_kv <= rank)
        kv++;
    size_t first = kv * team->size / n_kv, after = (kv + 1) * team->size / n_kv;
    spry_threads_part(&begin, &end, group, 1, rank - first, after - first);
    return (spry_team_heads){kv * group + begin, kv * group + end, kv, kv + 1};
}

/* Computes where each rank's share of `total` outputs begins: starts[size + 1]. */
static inline void spry_team_outputs(size_t *starts, const spry_team *team, size_t total)
{
    size_t begin = 0;
    for (size_t rank = 0; rank < team->size; rank++)
        spry_threads_part(&starts[rank], &begin, total, SPRY_OUTPUT_GRAIN, rank, team->size);
    starts[team->size] = total;
}

/* Computes the same for the results of query heads, `each` values per head. */
static inline void spry_team_head_outputs(size_t *starts, const spry_team *team, size_t each)
{
    for (size_t rank = 0; rank < team->size; rank++)
        starts[rank] = spry_team_heads_of(team, rank).q_begin * each;
    starts[team->size] = team->whole->n_heads * each;
}

/* Computes the same for keys. If several ranks have the same head, its outputs count for the first of them. */
static inline void spry_team_key_outputs(size_t *starts, const spry_team *team, size_t each)
{
    for (size_t rank = 0; rank < team->size; rank++) {
        spry_team_heads own = spry_team_heads_of(team, rank);
        bool given = rank && spry_team_heads_of(team, rank - 1).kv_begin == own.kv_begin;
        starts[rank] = (given ? own.kv_end : own.kv_begin) * each;
    }
    starts[team->size] = team->whole->n_kv_heads * each;
}

#endif
