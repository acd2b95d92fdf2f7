/* What a matcher takes is compared with a plain backtracking matcher on many small random grammars, and its masks with
 * trying every token of a made-up vocabulary. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/match/stacks.h"
#include "support/made_tokenizer.h"
#include "support/random_grammar.h"

/* ---- a plain matcher --------------------------------------------------------------------------------------------- */

/* The places where a node's text can end that begins at `at`, as bits. */
static uint32_t ends(world *w, int number, size_t at);

static uint32_t ends_all(world *w, int number, uint32_t begins)
{
    uint32_t found = 0;
    for (size_t at = 0; at <= w->size; at++)
        if (begins >> at & 1)
            found |= ends(w, number, at);
    return found;
}

static uint32_t ends_repeat(world *w, const node *n, size_t at)
{
    uint32_t now = 1u << at, found = n->min == 0 ? now : 0, seen = 0;
    for (unsigned i = 1; i <= n->max && now; i++) {
        now = ends_all(w, n->a, now);
        if (i >= n->min)
            found |= now;
        if (n->max == SPRY_IR_UNBOUNDED && i > n->min + TEXT_MAX + 1)
            break;
        if (n->max == SPRY_IR_UNBOUNDED && i >= n->min) {
            if ((seen | now) == seen)
                break;
            seen |= now;
        }
    }
    return found;
}

static uint32_t ends_object(world *w, const node *n, size_t at, unsigned seen, unsigned count)
{
    uint32_t found = 0;
    bool complete = count >= n->min && count <= n->max;
    for (int i = 0; i < MEMBERS; i++)
        complete = complete && !(n->required[i] && !(seen >> i & 1));
    if (complete)
        found |= 1u << at;
    if (count >= n->max)
        return found;
    uint32_t begin = 1u << at;
    if (count)
        begin = at < w->size && w->text[at] == ',' ? 1u << (at + 1) : 0;
    for (int i = 0; i < MEMBERS; i++) {
        if (seen >> i & 1 && !n->many[i])
            continue;
        uint32_t after = ends_all(w, n->values[i], ends_all(w, n->keys[i], begin));
        for (size_t to = at + 1; to <= w->size; to++)
            if (after >> to & 1)
                found |= ends_object(w, n, to, seen | 1u << i, count + 1);
    }
    return found;
}

static uint32_t ends(world *w, int number, size_t at)
{
    const node *n = &w->nodes[number];
    switch (n->kind) {
    case EMPTY: return 1u << at;
    case NEVER: return 0;
    case LITERAL: {
        size_t size = strlen(n->text);
        return w->size - at >= size && memcmp(w->text + at, n->text, size) == 0 ? 1u << (at + size) : 0;
    }
    case CLASS: return at < w->size && w->text[at] >= n->text[0] && w->text[at] <= n->text[1] ? 1u << (at + 1) : 0;
    case SEQUENCE: return ends_all(w, n->b, ends(w, n->a, at));
    case CHOICE: return ends(w, n->a, at) | ends(w, n->b, at);
    case REPEAT: return ends_repeat(w, n, at);
    case RULE:
        if (!w->known[n->a][at]) { /* while it is looked for it is none: parts that cannot end may be left recursive */
            w->known[n->a][at] = true;
            w->memo[n->a][at] = 0;
            w->memo[n->a][at] = ends(w, w->rules[n->a], at);
        }
        return w->memo[n->a][at];
    case OBJECT: return ends_object(w, n, at, 0, 0);
    case BOTH: return ends(w, n->a, at) & ends(w, n->b, at);
    case WITHOUT: return ends(w, n->a, at) & ~ends(w, n->b, at);
    }
    return 0;
}

static bool plain_match(world *w, const char *text, size_t size)
{
    w->text = text;
    w->size = size;
    memset(w->known, 0, sizeof w->known);
    return ends(w, w->rules[0], 0) >> size & 1;
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

static bool matcher_matches(spry_matcher *matcher, const char *text, size_t size)
{
    spry_error error;
    size_t taken;
    assert_int_equal(spry_matcher_bytes(matcher, &taken, (spry_view){text, size}, &error), SPRY_OK);
    if (taken < size)
        return false;
    bool whole = spry_matcher_may_end(matcher);
    spry_matcher_undo(matcher, 1);
    return whole;
}

/* From every state something must be able to follow, unless it may end. */
static void walk_without_dead_end(spry_matcher *matcher)
{
    static const char letters[] = "abc:,";
    spry_error error;
    spry_matcher_reset(matcher);
    for (int step = 0; step < 24; step++) {
        size_t taken, first = any(sizeof letters - 1), tried = 0;
        for (; tried < sizeof letters - 1; tried++) {
            char letter = letters[(first + tried) % (sizeof letters - 1)];
            assert_int_equal(spry_matcher_bytes(matcher, &taken, (spry_view){&letter, 1}, &error), SPRY_OK);
            if (taken == 1)
                break;
        }
        if (tried == sizeof letters - 1) {
            uint64_t next[4];
            spry_matcher_next_bytes(matcher, next);
            bool other = (next[0] | next[1] | next[2] | next[3]) != 0; /* a letter that is not tried here */
            assert_true(other || spry_matcher_may_end(matcher));
            assert_int_equal(spry_matcher_must_end(matcher), !other);
            break;
        }
    }
    spry_matcher_reset(matcher);
}

static void compare(world *w, spry_matcher *matcher, size_t *matches)
{
    static const char letters[] = "abc:,";
    for (int i = 0; i < 300; i++) {
        char text[TEXT_MAX + 1];
        size_t size = any(TEXT_MAX + 1);
        for (size_t j = 0; j < size; j++)
            text[j] = letters[any(i % 2 ? 3 : sizeof letters - 1)];
        text[size] = 0;
        if (i % 16 == 0)
            matcher->collect_at = 0; /* what is no longer needed goes now */
        bool expected = plain_match(w, text, size), found = matcher_matches(matcher, text, size);
        if (expected != found)
            fail_msg("'%s' should %smatch", text, expected ? "" : "not ");
        *matches += found;
        if (found) {
            size_t taken, cut = any((unsigned)size + 1);
            spry_error error;
            assert_int_equal(spry_matcher_bytes(matcher, &taken, (spry_view){text, cut}, &error), SPRY_OK);
            assert_int_equal(taken, cut);
            spry_matcher_undo(matcher, 1);
        }
    }
}

/* ---- masks ------------------------------------------------------------------------------------------------------- */

enum { TOKENS = 300 };

typedef struct vocabulary {
    spry_tokenizer *tokenizer;
    spry_vocabulary *made;
} vocabulary;

/* Every letter, and random texts of up to seven of them. */
static void open_vocabulary(vocabulary *v)
{
    static const char letters[] = "abc:,";
    spry_buffer json;
    spry_error error;
    spry_buffer_init(&json, 1 << 20);
    spry_buffer_text(&json, "{\"added_tokens\": [], \"model\": {\"type\": \"BPE\", \"merges\": [], \"vocab\": {");
    for (unsigned i = 0; i < TOKENS; i++) {
        char text[8] = {0};
        unsigned size = i < 5 ? 1 : 2 + any(6);
        for (unsigned j = 0; j < size; j++)
            text[j] = i < 5 ? letters[i] : letters[any(any(2) ? 2 : 5)];
        if (!strstr(json.data, text) || i < 5)
            spry_buffer_format(&json, "%s\"%s\": %u", i ? ", " : "", text, i);
    }
    spry_buffer_text(&json, "}}}");
    if (make_tokenizer_json(&v->tokenizer, spry_buffer_view(&json), "made", &error))
        fail_msg("%s", error.message);
    assert_int_equal(spry_vocabulary_create(&v->made, v->tokenizer, TOKENS, &error), SPRY_OK);
    spry_buffer_deinit(&json);
}

static void compare_masks(const vocabulary *v, spry_grammar *grammar, size_t *allowed)
{
    spry_matcher *matcher;
    spry_error error;
    assert_int_equal(spry_matcher_create(&matcher, grammar, v->made, &error), SPRY_OK);
    for (int step = 0; step < 8; step++) {
        const uint32_t *mask;
        uint32_t copy[TOKENS / 32 + 1];
        int32_t fitting[TOKENS];
        unsigned count = 0;
        if (spry_matcher_must_end(matcher))
            break;
        if (step % 2)
            matcher->collect_at = 0;
        bool spells = spry_matcher_mask(matcher, &mask, &error) == SPRY_OK;
        memset(copy, 0, sizeof copy);
        if (spells)
            memcpy(copy, mask, (TOKENS + 31) / 32 * sizeof *copy);
        else
            assert_non_null(strstr(error.message, "cannot spell"));
        for (int32_t id = 0; id < TOKENS; id++) {
            bool fits = spry_matcher_token(matcher, id, NULL) == SPRY_OK;
            if (fits) {
                fitting[count++] = id;
                spry_matcher_undo(matcher, 1);
            }
            if (fits != (copy[id / 32] >> id % 32 & 1))
                fail_msg("token %d is %sallowed but %s the mask", id, fits ? "" : "not ", fits ? "not in" : "in");
        }
        *allowed += count;
        assert_int_equal(spells, count > 0 || spry_matcher_may_end(matcher));
        if (!count)
            break;
        assert_int_equal(spry_matcher_token(matcher, fitting[any(count)], &error), SPRY_OK);
    }
    spry_matcher_destroy(matcher);
}

static void test_random(void **state)
{
    (void)state;
    size_t compiled = 0, left = 0, never = 0, matches = 0, allowed = 0;
    vocabulary v;
    open_vocabulary(&v);
    world *w = malloc(sizeof *w);
    for (seed = 1; compiled < 600;) {
        uint64_t first = seed;
        spry_error error;
        spry_grammar *grammar;
        spry_status status = random_grammar(w, &grammar, &error);
        if (status) {
            left += strstr(error.message, "left recursion") != NULL;
            never += strstr(error.message, "no text at all") != NULL;
            assert_true(strstr(error.message, "left recursion") || strstr(error.message, "no text at all"));
        } else {
            spry_matcher *matcher;
            assert_int_equal(spry_matcher_create(&matcher, grammar, NULL, &error), SPRY_OK);
            compare(w, matcher, &matches);
            walk_without_dead_end(matcher);
            spry_matcher_destroy(matcher);
            compare_masks(&v, grammar, &allowed);
            spry_grammar_unref(grammar);
            compiled++;
        }
        next_seed(first);
    }
    free(w);
    spry_vocabulary_destroy(v.made);
    spry_tokenizer_destroy(v.tokenizer);
    print_message("%zu grammars, %zu left recursive, %zu without texts, %zu texts matched, %zu tokens allowed\n",
                  compiled, left, never, matches, allowed);
    assert_true(matches > 10000 && left > 20 && never > 5 && allowed > 10000);
}

/* Counted parts whose rounds are several letters long, of which a token may end in the middle of one. */
static void test_counted_masks(void **state)
{
    (void)state;
    static const char *const patterns[] = {
        "(ab|b[b\\u0100-\\u3000]|ca){4,6}c?",
        "(ab|c[a-\\u3000]){5}a*",
        "[a-\\u3000]{4,9}:?",
        "([a-\\u3000]{4,5},){2}",
        "([ab][b-\\u3000]a){0,4}ab",
        "([a-\\u3000]{2,4}){3,5}",
        "[a-\\u3000]{0,6}[a-\\u3000]{0,6}:",
        "(a|ba|bb[a-\\u3000]){6,}:",
    };
    size_t allowed = 0;
    vocabulary v;
    seed = 4;
    open_vocabulary(&v);
    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < SPRY_COUNT(patterns); i++) {
            spry_grammar *grammar;
            spry_error error;
            if (spry_grammar_create(&grammar, SPRY_GRAMMAR_REGEX, spry_view_of(patterns[i]), &error))
                fail_msg("%s: %s", patterns[i], error.message);
            compare_masks(&v, grammar, &allowed);
            spry_grammar_unref(grammar);
        }
    }
    spry_vocabulary_destroy(v.made);
    spry_tokenizer_destroy(v.tokenizer);
    assert_true(allowed > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random), cmocka_unit_test(test_counted_masks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
