/* A completion as tokens: the tokenisation with the fewest tokens. */
#include <stdlib.h>

#include "grammar/match/matcher.h"
#include "grammar/match/vocabulary.h"

typedef struct spelling {
    uint32_t count; /* tokens to the end of the text */
    int32_t id;     /* the first token */
} spelling;

/* Replaces `best` if a token of a slice at the beginning of `text` is better, or as good and longer; `behind[n]` is the
 * result for the text after n bytes. */
static spelling better_token(spelling best, const spry_vocabulary *vocabulary, const spry_trie *trie, spry_view text,
                             const spelling *behind)
{
    const spry_trie_node *nodes = vocabulary->nodes;
    uint32_t at = trie->begin, end = trie->end;
    for (size_t i = 0; i < text.size; i++) {
        while (at < end && nodes[at].byte != (unsigned char)text.data[i])
            at = nodes[at].skip;
        if (at >= end)
            break;
        int32_t id = vocabulary->order[nodes[at].first_token];
        uint32_t count = behind[i + 1].count == UINT32_MAX ? UINT32_MAX : behind[i + 1].count + 1;
        if (vocabulary->texts[id].size == i + 1 &&
            (count < best.count || (count == best.count && best.id >= 0 && i + 1 > vocabulary->texts[best.id].size)))
            best = (spelling){count, id};
        end = nodes[at].skip;
        at++;
    }
    return best;
}

static spelling best_token(const spry_vocabulary *vocabulary, spry_view text, const spelling *behind)
{
    spelling best = {UINT32_MAX, -1};
    for (unsigned i = 0; i < SPRY_SLICES; i++)
        best = better_token(best, vocabulary, &vocabulary->tries[i], text, behind);
    return best;
}

spry_status spry_matcher_completion_tokens(spry_matcher *matcher, spry_tokens *out, spry_error *error)
{
    spry_buffer made;
    spry_buffer_init(&made, SPRY_COMPLETION_MAX + 1);
    spry_status status = spry_matcher_completion(matcher, &made, error);
    spry_view text = spry_buffer_view(&made);
    spelling *spellings = malloc((text.size + 1) * sizeof *spellings);
    size_t before = out->count;
    if (!status && !spellings)
        status = spry_fail_memory(error, "the tokens of a completion", text.size * sizeof *spellings);
    if (!status)
        spellings[text.size] = (spelling){0, -1};
    for (size_t i = text.size; !status && i-- > 0;)
        spellings[i] = best_token(matcher->vocabulary, (spry_view){text.data + i, text.size - i}, spellings + i);
    if (!status && text.size && spellings[0].id < 0)
        status = spry_fail(error, SPRY_ERR_INPUT, "the model's vocabulary cannot spell what completes the text");
    for (size_t i = 0; !status && i < text.size; i += matcher->vocabulary->texts[spellings[i].id].size)
        if (!spry_tokens_push(out, spellings[i].id))
            status = spry_fail_memory(error, "the tokens of a completion", text.size * sizeof *out->ids);
    if (status)
        out->count = before;
    free(spellings);
    spry_buffer_deinit(&made);
    return status;
}
