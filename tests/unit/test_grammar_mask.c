/* Masks against trying every token, undo by tokens, and forced tokens, with the bundled model's vocabulary and with
 * large ones where they are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/grammar.h"
#include "grammar/match/stacks.h"
#include "platform/file.h"
#include "support/made_tokenizer.h"

#define BUNDLED MODELS_DIR "/Spry-Tales-29M.gguf"

typedef struct fixture {
    spry_tokenizer *tokenizer;
    spry_vocabulary *vocabulary;
    size_t n_ids;
} fixture;

static bool open_vocabulary(fixture *f, const char *path)
{
    spry_error error;
    FILE *there = fopen(path, "rb");
    if (!there) {
        print_message("SKIPPED %s: ../shared/public is not there\n", path);
        return false;
    }
    fclose(there);
    if (spry_tokenizer_open(&f->tokenizer, path, &error))
        fail_msg("%s", error.message);
    f->n_ids = spry_tokenizer_size(f->tokenizer) + 70; /* a model may have more rows than its tokenizer has tokens */
    assert_int_equal(spry_vocabulary_create(&f->vocabulary, f->tokenizer, f->n_ids, &error), SPRY_OK);
    return true;
}

static void open_bundled(fixture *f)
{
    spry_gguf *gguf;
    spry_error error;
    if (spry_gguf_open(&gguf, BUNDLED, &error) || spry_tokenizer_from_gguf(&f->tokenizer, gguf, &error))
        fail_msg("%s", error.message);
    spry_gguf_close(gguf);
    f->n_ids = spry_tokenizer_size(f->tokenizer);
    assert_int_equal(spry_vocabulary_create(&f->vocabulary, f->tokenizer, f->n_ids, &error), SPRY_OK);
}

static void close_fixture(fixture *f)
{
    spry_vocabulary_destroy(f->vocabulary);
    spry_tokenizer_destroy(f->tokenizer);
}

static spry_grammar *compile(spry_grammar_kind kind, const char *source)
{
    spry_grammar *grammar;
    spry_error error;
    if (spry_grammar_create(&grammar, kind, spry_view_of(source), &error))
        fail_msg("%s", error.message);
    return grammar;
}

static bool in_mask(const uint32_t *mask, size_t id)
{
    return mask[id / 32] >> id % 32 & 1;
}

/* Every id is tried. */
static size_t compare_mask(const fixture *f, spry_matcher *matcher)
{
    const uint32_t *mask;
    spry_error error;
    if (spry_matcher_mask(matcher, &mask, &error))
        fail_msg("%s", error.message);
    size_t allowed = 0;
    uint32_t *copy = malloc((f->n_ids / 32 + 1) * sizeof *copy);
    memcpy(copy, mask, (f->n_ids + 31) / 32 * sizeof *copy);
    for (size_t id = 0; id < f->n_ids; id++) {
        bool fits = spry_matcher_token(matcher, (int32_t)id, &error) == SPRY_OK;
        if (fits)
            spry_matcher_undo(matcher, 1);
        if (fits != in_mask(copy, id))
            fail_msg("token %zu is %sallowed but %s the mask", id, fits ? "" : "not ", fits ? "not in" : "in");
        allowed += fits;
    }
    free(copy);
    return allowed;
}

/* Walks a text by its tokens, comparing the mask before each (or before every `stride`-th) and at the end. */
static void walk(const fixture *f, spry_grammar *grammar, const char *text, size_t stride)
{
    spry_tokens ids = {0};
    spry_matcher *matcher;
    spry_error error;
    assert_int_equal(spry_tokenizer_encode(f->tokenizer, &ids, spry_view_of(text), NULL, 0, 0, &error), SPRY_OK);
    assert_int_equal(spry_matcher_create(&matcher, grammar, f->vocabulary, &error), SPRY_OK);
    size_t first = 0, done = 0, size = strlen(text);
    if (!spry_view_starts(spry_view_of(text), spry_tokenizer_bytes(f->tokenizer, ids.ids[0])))
        first = 1; /* a space of the tokenizer's own */
    for (size_t i = first; i < ids.count; i++) {
        spry_view bytes = spry_tokenizer_bytes(f->tokenizer, ids.ids[i]);
        if (done + bytes.size > size || memcmp(text + done, bytes.data, bytes.size) != 0)
            break; /* the first word differs too */
        if ((i - first) % stride == 0)
            compare_mask(f, matcher);
        if (spry_matcher_token(matcher, ids.ids[i], &error))
            fail_msg("%s ('%.*s' in '%s')", error.message, SPRY_VIEW_ARG(bytes), text);
        done += bytes.size;
    }
    if (done == size) {
        assert_true(spry_matcher_may_end(matcher));
        compare_mask(f, matcher);
        int32_t eos = spry_tokenizer_eos(f->tokenizer);
        assert_true(eos < 0 || spry_matcher_token(matcher, eos, &error) == SPRY_OK);
    }
    spry_matcher_destroy(matcher);
    spry_tokens_deinit(&ids);
}

static const char json_gbnf[] =
    "root ::= value\n"
    "value ::= object | array | string | number | (\"true\" | \"false\" | \"null\") ws\n"
    "object ::= \"{\" ws (string \":\" ws value (\",\" ws string \":\" ws value)*)? \"}\" ws\n"
    "array ::= \"[\" ws (value (\",\" ws value)*)? \"]\" ws\n"
    "string ::= \"\\\"\" ([^\"\\\\\\x00-\\x1F] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" [0-9a-fA-F]{4}))* \"\\\"\" ws\n"
    "number ::= \"-\"? (\"0\" | [1-9] [0-9]*) (\".\" [0-9]+)? ws\n"
    "ws ::= [ \\t\\n]*\n";

static const struct sample {
    spry_grammar_kind kind;
    const char *source, *text;
} samples[] = {
    {SPRY_GRAMMAR_GBNF, json_gbnf, "{\"name\": \"Tom \\\"the\\\" cat\", \"n\": [1, 20.5, {}, [[]]], \"ok\": true}"},
    {SPRY_GRAMMAR_GBNF, "root ::= (\"- \" [^\\r\\n]+ \"\\n\")+", "- one thing\n- another \xC3\xA9t\xC3\xA9\n"},
    {SPRY_GRAMMAR_GBNF, "root ::= \"(\" root? \")\" | [a-z ]{2,40}", "(((once upon a time)))"},
    {SPRY_GRAMMAR_REGEX, "\"[^\"\\\\\\u0000-\\u001f]{4,30}\"(, \"[^\"]{0,5}\")*",
     "\"Once upon a time\", \"ab\", \"c\""},
    {SPRY_GRAMMAR_REGEX, "[a-z]{3,12}[a-z ]{2,9}(once|upon)?", "there was a do"},
    {SPRY_GRAMMAR_REGEX, "\"([^\"a]|a[^b\"])*\"", "\"once upon a time a cat sat at a mat\""},
    {SPRY_GRAMMAR_REGEX, "(\\w+ ){1,20}\\d{4}-\\d\\d", "on the day 2024-05"},
    {SPRY_GRAMMAR_CHOICE, "[\"one\", \"one two\", \"three\"]", "one two"},
};

static void test_masks(void **state)
{
    (void)state;
    fixture f;
    open_bundled(&f);
    for (size_t i = 0; i < SPRY_COUNT(samples); i++) {
        spry_grammar *grammar = compile(samples[i].kind, samples[i].source);
        walk(&f, grammar, samples[i].text, 1);
        walk(&f, grammar, samples[i].text, 3);
        spry_grammar_unref(grammar);
    }
    close_fixture(&f);
}

/* Objects with keys in any order. */
static spry_grammar *object_grammar(void)
{
    spry_ir *ir;
    spry_error error;
    assert_int_equal(spry_ir_create(&ir, &error), SPRY_OK);
    spry_ir_node value = spry_ir_regex(ir, SPRY_VIEW("\"[^\"]{1,20}\"|\\d+|true"), false);
    spry_ir_member members[] = {
        {spry_ir_literal(ir, SPRY_VIEW("\"name\": ")), value, true, false},
        {spry_ir_literal(ir, SPRY_VIEW("\"names\": ")), value, false, false},
        {spry_ir_literal(ir, SPRY_VIEW("\"number\": ")), spry_ir_rule(ir, SPRY_VIEW("object")), false, false},
        {spry_ir_regex(ir, SPRY_VIEW("\"x\\w*\": "), false), value, false, true},
    };
    spry_ir_node parts[] = {spry_ir_literal(ir, SPRY_VIEW("{")),
                            spry_ir_members(ir, members, 4, spry_ir_literal(ir, SPRY_VIEW(", ")), 1, 4),
                            spry_ir_literal(ir, SPRY_VIEW("}"))};
    spry_ir_define(ir, SPRY_VIEW("object"), spry_ir_sequence(ir, parts, 3));
    spry_grammar *grammar;
    if (spry_grammar_from_ir(&grammar, ir, spry_ir_rule(ir, SPRY_VIEW("object")), &error))
        fail_msg("%s", error.message);
    spry_ir_destroy(ir);
    return grammar;
}

static void test_object_masks(void **state)
{
    (void)state;
    fixture f;
    open_bundled(&f);
    spry_grammar *grammar = object_grammar();
    for (int i = 0; i < 2;
         i++) { /* the second answer finds its masks cached; the last ones differ in the members seen */
        walk(&f, grammar, "{\"names\": true, \"xyz\": \"hello there\", \"number\": {\"name\": 12}, \"name\": \"Tom\"}",
             1);
        walk(&f, grammar, "{\"name\": true, \"xyz\": \"hello there\", \"number\": {\"name\": 12}, \"names\": \"Tom\"}",
             1);
        walk(&f, grammar, "{\"number\": {\"name\": true, \"number\": {\"name\": 12}}, \"name\": \"Tom\", \"xy\": true}",
             1);
    }
    spry_grammar_unref(grammar);
    close_fixture(&f);
}

/* Random patterns of the kinds that accept whole slices of a vocabulary, or nearly: masks along random answers, and
 * once more from a matcher that finds them cached. */
static uint32_t draw(uint32_t *seed, uint32_t below)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % below;
}

static void random_pattern(spry_buffer *out, uint32_t *seed)
{
    static const char *const pieces[] = {"[a-z]{1,9}",
                                         "[a-z]{1,20}",
                                         "[a-zA-Z0-9]+",
                                         "[A-Za-z0-9]{7,8}",
                                         "[^\"\\\\\\x00-\\x1f]*",
                                         "( ?[^ \"\\\\\\n])*",
                                         "( ?[^ \"])+ ?",
                                         ".{0,30}",
                                         "\"[^\"]*\"",
                                         "([^o]|o[^n])*",
                                         "[^\\u0100-\\uffff\"]*",
                                         "(the|he|she| )*",
                                         "\\S+",
                                         "[^e]{3,40}",
                                         ", ",
                                         "\""};
    for (uint32_t i = 0, n = 1 + draw(seed, 4); i < n; i++) {
        const char *piece = pieces[draw(seed, SPRY_COUNT(pieces))];
        if (draw(seed, 4) == 0)
            spry_buffer_format(out, "(%s|%s)", piece, pieces[draw(seed, SPRY_COUNT(pieces))]);
        else
            spry_buffer_text(out, piece);
    }
}

static int32_t random_token(const fixture *f, spry_matcher *matcher, uint32_t *seed)
{
    const uint32_t *mask;
    spry_error error;
    assert_int_equal(spry_matcher_mask(matcher, &mask, &error), SPRY_OK);
    uint32_t begin = draw(seed, (uint32_t)f->n_ids);
    for (uint32_t i = 0; i < f->n_ids; i++)
        if (in_mask(mask, (begin + i) % f->n_ids))
            return (int32_t)((begin + i) % f->n_ids);
    return -1;
}

static void test_slices(void **state)
{
    (void)state;
    enum { ROUNDS = 60, STEPS = 4 };
    fixture f;
    uint32_t seed = 5;
    open_bundled(&f);
    for (int round = 0; round < ROUNDS; round++) {
        spry_buffer pattern;
        spry_buffer_init(&pattern, 1000);
        random_pattern(&pattern, &seed);
        spry_grammar *grammar = compile(SPRY_GRAMMAR_REGEX, pattern.data);
        int32_t tokens[STEPS] = {-1, -1, -1, -1};
        for (int pass = 0; pass < 2; pass++) {
            spry_matcher *matcher;
            spry_error error;
            assert_int_equal(spry_matcher_create(&matcher, grammar, f.vocabulary, &error), SPRY_OK);
            for (int i = 0; i < STEPS; i++) {
                compare_mask(&f, matcher);
                tokens[i] = pass ? tokens[i] : random_token(&f, matcher, &seed);
                if (tokens[i] < 0 || spry_matcher_must_end(matcher))
                    break;
                assert_int_equal(spry_matcher_token(matcher, tokens[i], &error), SPRY_OK);
            }
            spry_matcher_destroy(matcher);
        }
        spry_grammar_unref(grammar);
        spry_buffer_deinit(&pattern);
    }
    close_fixture(&f);
}

static void test_public_vocabularies(void **state)
{
    (void)state;
    static const char *const names[] = {"qwen2.5/tokenizer.json", "llama2/tokenizer.json", "gpt2/tokenizer.json"};
    for (size_t i = 0; i < SPRY_COUNT(names); i++) {
        char path[512];
        fixture f;
        snprintf(path, sizeof path, "%s/tokenizers/%s", PUBLIC_DATA, names[i]);
        if (!open_vocabulary(&f, path))
            continue;
        spry_grammar *grammar = compile(SPRY_GRAMMAR_GBNF, json_gbnf);
        walk(&f, grammar, samples[0].text, 9);
        spry_grammar_unref(grammar);
        grammar = object_grammar();
        walk(&f, grammar, "{\"names\": true, \"name\": \"Tom the cat\"}", 4);
        spry_grammar_unref(grammar);
        grammar = compile(SPRY_GRAMMAR_REGEX, "[^\"]{4,24}\"");
        walk(&f, grammar, "the mouse, 18 letters\"", 3);
        spry_grammar_unref(grammar);
        close_fixture(&f);
    }
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

static void test_tokens(void **state)
{
    (void)state;
    fixture f;
    open_bundled(&f);
    spry_grammar *grammar = compile(SPRY_GRAMMAR_REGEX, "[a-z]{1,50}( [a-z]+)*");
    spry_matcher *matcher;
    spry_error error;
    assert_int_equal(spry_matcher_create(&matcher, grammar, f.vocabulary, &error), SPRY_OK);
    int32_t eos = spry_tokenizer_eos(f.tokenizer);
    assert_int_equal(spry_matcher_token(matcher, eos, &error), SPRY_ERR_INPUT);
    assert_int_equal(spry_matcher_token(matcher, -1, &error), SPRY_ERR_INPUT);
    assert_int_equal(spry_matcher_token(matcher, (int32_t)f.n_ids, &error), SPRY_ERR_INPUT);
    assert_int_equal(spry_matcher_token(matcher, spry_tokenizer_bos(f.tokenizer), &error), SPRY_ERR_INPUT);
    spry_tokens ids = {0};
    assert_int_equal(spry_tokenizer_encode(f.tokenizer, &ids, SPRY_VIEW("once upon a time there"), NULL, 0, 0, &error),
                     SPRY_OK);
    size_t taken = 0;
    while (taken < ids.count && spry_matcher_token(matcher, ids.ids[taken], &error) == SPRY_OK)
        taken++;
    if (taken) {
        assert_int_equal(spry_matcher_token(matcher, eos, &error), SPRY_OK);
        spry_matcher_undo(matcher, taken + 1);
        assert_int_equal(spry_matcher_token(matcher, ids.ids[0], &error), SPRY_OK);
    }
    spry_tokens_deinit(&ids);
    spry_matcher_destroy(matcher);
    spry_grammar_unref(grammar);
    close_fixture(&f);
}

/* Forced tokens are those that the tokenizer writes, whatever text comes after them. */
static void check_forced(const fixture *f)
{
    spry_grammar *grammar = compile(SPRY_GRAMMAR_REGEX, "\\{\"first name\": \"[a-z]+\", \"surname\": (1|2)\\}");
    spry_matcher *matcher;
    spry_error error;
    assert_int_equal(spry_matcher_create(&matcher, grammar, f->vocabulary, &error), SPRY_OK);
    spry_tokens forced = {0};
    spry_buffer text;
    spry_buffer_init(&text, 1000);
    assert_int_equal(spry_matcher_forced_tokens(matcher, f->tokenizer, &forced, &error), SPRY_OK);
    assert_true(forced.count > 0);
    for (size_t i = 0; i < forced.count; i++) {
        spry_view bytes = spry_tokenizer_bytes(f->tokenizer, forced.ids[i]);
        spry_buffer_append(&text, bytes.data, bytes.size);
        assert_int_equal(spry_matcher_token(matcher, forced.ids[i], &error), SPRY_OK);
    }
    print_message("forced: '%s' in %zu tokens\n", text.data, forced.count);
    assert_true(spry_view_starts(SPRY_VIEW("{\"first name\": \""), spry_buffer_view(&text)));
    assert_true(text.size >= 7);
    size_t taken;
    spry_view rest = SPRY_VIEW("{\"first name\": \"tom\"");
    rest = (spry_view){rest.data + text.size, rest.size - text.size};
    assert_int_equal(spry_matcher_bytes(matcher, &taken, rest, &error), SPRY_OK);
    assert_int_equal(taken, rest.size);
    forced.count = 0;
    assert_int_equal(spry_matcher_forced_tokens(matcher, f->tokenizer, &forced, &error), SPRY_OK);
    assert_true(forced.count > 0);
    spry_buffer_deinit(&text);
    spry_tokens_deinit(&forced);
    spry_matcher_destroy(matcher);
    spry_grammar_unref(grammar);
}

static void test_forced_tokens(void **state)
{
    (void)state;
    static const char *const names[] = {"qwen2.5/tokenizer.json", "llama2/tokenizer.json", "llama3/tokenizer.json"};
    fixture f;
    open_bundled(&f);
    check_forced(&f);
    close_fixture(&f);
    for (size_t i = 0; i < SPRY_COUNT(names); i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/tokenizers/%s", PUBLIC_DATA, names[i]);
        if (!open_vocabulary(&f, path))
            continue;
        check_forced(&f);
        close_fixture(&f);
    }
}

/* A vocabulary without what the grammar requires. */
static void test_cannot_spell(void **state)
{
    (void)state;
    static const char json[] = "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, "
                               "\"merges\": [\"a b\"]}, \"added_tokens\": []}";
    fixture f;
    spry_error error;
    if (make_tokenizer_json(&f.tokenizer, spry_view_of(json), "made", &error))
        fail_msg("%s", error.message);
    assert_int_equal(spry_vocabulary_create(&f.vocabulary, f.tokenizer, 3, &error), SPRY_OK);
    f.n_ids = 3;
    spry_grammar *grammar = compile(SPRY_GRAMMAR_REGEX, "abz|b");
    spry_matcher *matcher;
    const uint32_t *mask;
    assert_int_equal(spry_matcher_create(&matcher, grammar, f.vocabulary, &error), SPRY_OK);
    assert_int_equal(compare_mask(&f, matcher), 3);
    assert_int_equal(spry_matcher_token(matcher, 2, &error), SPRY_OK);
    assert_int_equal(spry_matcher_mask(matcher, &mask, &error), SPRY_ERR_INPUT);
    assert_non_null(strstr(error.message, "cannot spell"));
    spry_matcher_destroy(matcher);
    spry_grammar_unref(grammar);
    close_fixture(&f);
}

/* Grammars whose places multiply: a request may use up its own work, and then ends with a reason. */
static void test_work_is_limited(void **state)
{
    (void)state;
    static const char *const sources[] = {
        "root ::= (([a-z ]{0,6000} [a-z ]{0,6000}){0,6000} [a-z ]{0,6000}){0,6000}",
        "root ::= ((([a-z ]{0,300}){0,300} [a-z]{0,300}){0,300}){0,300}",
        "root ::= a{0,5000} b{0,5000} a{0,5000} b{0,5000}\na ::= [a-z ]{1,3000}\nb ::= [a-z e]{1,3000} | a",
    };
    fixture f;
    open_bundled(&f);
    for (size_t i = 0; i < SPRY_COUNT(sources); i++) {
        spry_grammar *grammar = compile(SPRY_GRAMMAR_GBNF, sources[i]);
        spry_matcher *matcher;
        spry_error error;
        assert_int_equal(spry_matcher_create(&matcher, grammar, f.vocabulary, &error), SPRY_OK);
        spry_status status = SPRY_OK;
        size_t n_tokens = 0;
        while (!status && n_tokens < 40) {
            const uint32_t *mask;
            uint64_t before = matcher->places.work;
            status = spry_matcher_mask(matcher, &mask, &error);
            size_t id = 300; /* a word, not a byte */
            while (!status && !in_mask(mask, id))
                id++;
            status = status ? status : spry_matcher_token(matcher, (int32_t)id, &error);
            assert_true(matcher->places.work - before < ((uint64_t)1 << 23) + ((uint64_t)1 << 17));
            n_tokens++;
        }
        print_message("%s: %zu tokens, work %llu, %s\n", sources[i], n_tokens, (unsigned long long)matcher->places.work,
                      status ? error.message : "no error");
        if (i == 0)
            assert_int_equal(status, SPRY_ERR_UNSUPPORTED);
        if (status)
            assert_non_null(strstr(error.message, "takes too long to follow"));
        /* The grammar is usable afterwards, within a new amount of work. */
        spry_matcher_reset(matcher);
        assert_int_equal(spry_matcher_token(matcher, 300, &error), SPRY_OK);
        spry_matcher_destroy(matcher);
        spry_grammar_unref(grammar);
    }
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masks),        cmocka_unit_test(test_object_masks),
        cmocka_unit_test(test_slices),       cmocka_unit_test(test_public_vocabularies),
        cmocka_unit_test(test_tokens),       cmocka_unit_test(test_forced_tokens),
        cmocka_unit_test(test_cannot_spell),
        cmocka_unit_test(test_work_is_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
