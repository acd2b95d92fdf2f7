/* Completions: at places of random walks the shortest text is taken, makes the text whole, is as long as was said, and
 * nothing shorter would do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/match/stacks.h"
#include "platform/file.h"
#include "support/random_grammar.h"

#define SCHEMAS TEST_DATA "/../cli/constrain_schemas"
#define BUNDLED MODELS_DIR "/Spry-Tales-29M.gguf"

static spry_grammar *compile(spry_grammar_kind kind, const char *source)
{
    spry_grammar *grammar;
    spry_error error;
    if (spry_grammar_create(&grammar, kind, spry_view_of(source), &error))
        fail_msg("%.200s: %s", source, error.message);
    return grammar;
}

static spry_matcher *start(spry_grammar *grammar, const spry_vocabulary *vocabulary)
{
    spry_matcher *matcher;
    spry_error error;
    if (spry_matcher_create(&matcher, grammar, vocabulary, &error))
        fail_msg("%s", error.message);
    return matcher;
}

static void take(spry_matcher *matcher, spry_view text)
{
    size_t taken;
    spry_error error;
    if (spry_matcher_bytes(matcher, &taken, text, &error))
        fail_msg("%s", error.message);
    if (taken < text.size)
        fail_msg("'%.*s' is taken up to %zu only", SPRY_VIEW_ARG(text), taken);
}

/* Completes, looks whether the text is whole, and goes back. The caller frees the text. */
static spry_buffer check_completion(spry_matcher *matcher)
{
    spry_buffer text;
    spry_error error;
    spry_buffer_init(&text, SPRY_COMPLETION_MAX + 1);
    bool whole = spry_matcher_may_end(matcher);
    size_t bound = spry_matcher_completion_bound(matcher);
    uint32_t set = matcher->set;
    if (spry_matcher_completion(matcher, &text, &error))
        fail_msg("%s", error.message);
    assert_int_equal(matcher->set, set);
    assert_int_equal(text.size, bound);
    assert_int_equal(whole, text.size == 0);
    take(matcher, spry_buffer_view(&text));
    if (!spry_matcher_may_end(matcher))
        fail_msg("'%s' does not make the text whole", text.data);
    spry_matcher_undo(matcher, 1);
    assert_int_equal(matcher->set, set);
    return text;
}

static void expect(spry_matcher *matcher, const char *expected)
{
    spry_buffer text = check_completion(matcher);
    assert_string_equal(spry_buffer_view(&text).data, expected);
    spry_buffer_deinit(&text);
}

/* Takes any byte that can come next. */
static bool random_byte(spry_matcher *matcher)
{
    uint64_t next[4];
    unsigned char bytes[256];
    unsigned count = 0;
    spry_matcher_next_bytes(matcher, next);
    for (unsigned i = 0; i < 256; i++)
        if (next[i / 64] >> i % 64 & 1)
            bytes[count++] = (unsigned char)i;
    if (!count)
        return false;
    char byte = (char)bytes[any(count)];
    take(matcher, (spry_view){&byte, 1});
    return true;
}

/* ---- random grammars --------------------------------------------------------------------------------------------- */

enum { SEARCH_DEPTH = 6, SEARCH_SETS = 2000 };

/* Whether some text shorter than `length` makes the text whole, as far as a plain search comes. */
static bool shorter_exists(spry_matcher *matcher, size_t length)
{
    static const char letters[] = "abc:,";
    uint32_t sets[SEARCH_SETS];
    size_t begin = 0, end = 1;
    sets[0] = matcher->set;
    for (size_t depth = 0; depth < length && depth < SEARCH_DEPTH; depth++) {
        size_t level = end;
        for (; begin < level; begin++) {
            if (matcher->places.sets[sets[begin]].may_end)
                return true;
            for (size_t i = 0; i < sizeof letters - 1 && end < SEARCH_SETS; i++) {
                uint32_t next = spry_places_step(&matcher->places, sets[begin], (unsigned char)letters[i]);
                size_t known = level;
                while (known < end && sets[known] != next)
                    known++;
                if (next != SPRY_NO_SET && known == end)
                    sets[end++] = next;
            }
        }
    }
    return false;
}

static void test_random(void **state)
{
    (void)state;
    size_t compiled = 0, places = 0, searched = 0;
    world *w = malloc(sizeof *w);
    for (seed = 1; compiled < 800;) {
        uint64_t first = seed;
        spry_error error;
        spry_grammar *grammar;
        if (!random_grammar(w, &grammar, &error)) {
            spry_matcher *matcher = start(grammar, NULL);
            for (int walk = 0; walk < 4; walk++) {
                for (int step = 0; step < 10; step++, places++) {
                    if (any(8) == 0) { /* what is no longer needed goes now */
                        matcher->collect_at = 0;
                        assert_int_equal(spry_matcher_keep_bounded(matcher, &error), SPRY_OK);
                    }
                    spry_buffer text = check_completion(matcher);
                    if (shorter_exists(matcher, text.size))
                        fail_msg("grammar %zu: something shorter than '%s' would do", compiled, text.data);
                    searched += text.size > 1;
                    spry_buffer_deinit(&text);
                    if (!random_byte(matcher))
                        break;
                }
                spry_matcher_reset(matcher);
            }
            spry_matcher_destroy(matcher);
            spry_grammar_unref(grammar);
            compiled++;
        }
        next_seed(first);
    }
    free(w);
    print_message("%zu places, %zu with more than a byte to come\n", places, searched);
    assert_true(places > 8000 && searched > 1500);
}

/* ---- by hand ----------------------------------------------------------------------------------------------------- */

static void complete(spry_grammar_kind kind, const char *source, const char *text, const char *expected)
{
    spry_grammar *grammar = compile(kind, source);
    spry_matcher *matcher = start(grammar, NULL);
    take(matcher, spry_view_of(text));
    expect(matcher, expected);
    spry_matcher_destroy(matcher);
    spry_grammar_unref(grammar);
}

static void test_gbnf(void **state)
{
    (void)state;
    static const char nested[] = "root ::= item\nitem ::= \"(\" item \")\" | \"[\" item \"]\" | \"longest\"";
    complete(SPRY_GRAMMAR_GBNF, nested, "", "longest");
    complete(SPRY_GRAMMAR_GBNF, nested, "(([", "longest]))");
    complete(SPRY_GRAMMAR_GBNF, nested, "((longest)", ")");
    complete(SPRY_GRAMMAR_GBNF, nested, "(longest)", "");
    static const char two_ways[] =
        "root ::= one \"!\" | two\none ::= \"a\" one \"bbb\" | \"x\"\ntwo ::= \"a\" two \"c\" | \"x\"";
    complete(SPRY_GRAMMAR_GBNF, two_ways, "aaa", "xccc");
    complete(SPRY_GRAMMAR_GBNF, two_ways, "aaaxb", "bbbbbbbb!");
    complete(SPRY_GRAMMAR_GBNF, "root ::= [^\"]{5,} \"\\\"\"", "xy", "aaa\"");
    complete(SPRY_GRAMMAR_GBNF, "root ::= word{3,9} \".\"\nword ::= [a-z]{2,} \" \" | \"(\" word \")\"", "ab (c",
             "a )aa .");
}

static void test_counted(void **state)
{
    (void)state;
    complete(SPRY_GRAMMAR_REGEX, "[a-\\u3000]{12,600}:", "xyz", "aaaaaaaaa:");
    complete(SPRY_GRAMMAR_REGEX, "([a-\\u3000]{2,4}[0-9]){4,50}", "abc5a", "a0aa0aa0");
    complete(SPRY_GRAMMAR_REGEX, "([a-\\u3000]{2,4}[0-9]){4,50}", "ab5ab5ab5ab5", "");
    complete(SPRY_GRAMMAR_REGEX, "(a|ba|bb[a-\\u3000]){6,}:", "ab", "aaaaa:");
    complete(SPRY_GRAMMAR_CHOICE, "[\"red\", \"redder\", \"green\"]", "g", "reen");
    complete(SPRY_GRAMMAR_CHOICE, "[\"red\", \"redder\", \"green\"]", "redd", "er");
}

static void test_objects(void **state)
{
    (void)state;
    static const char point[] =
        "{\"type\": \"object\", \"properties\": {\"x\": {\"type\": \"integer\"}, \"name\": {\"type\":"
        "\"string\", \"minLength\": 3}, \"note\": {\"type\": \"string\"}}, \"required\": [\"x\","
        "\"name\"], \"additionalProperties\": false}";
    complete(SPRY_GRAMMAR_JSON_SCHEMA, point, "", "{\"x\":0,\"name\":\"aaa\"}");
    complete(SPRY_GRAMMAR_JSON_SCHEMA, point, "{\"name\": \"a", "aa\",\"x\":0}");
    complete(SPRY_GRAMMAR_JSON_SCHEMA, point, "{\"n", "ame\":\"aaa\",\"x\":0}");
    complete(SPRY_GRAMMAR_JSON_SCHEMA, point, "{\"no", "te\":\"\",\"x\":0,\"name\":\"aaa\"}");
    complete(SPRY_GRAMMAR_JSON_SCHEMA, point, "{\"x\":-4,\"name\":\"four\",", "\"note\":\"\"}");
    complete(SPRY_GRAMMAR_JSON_SCHEMA, point, "{\"x\":-4,\"name\":\"four\"", "}");
    static const char several[] =
        "{\"type\": \"object\", \"properties\": {\"a\": {\"const\": 12345}, \"bb\": {\"const\": 1},"
        "\"ccc\": {\"const\": 20}, \"d\": {\"const\": 100}}, \"required\": [\"a\"],"
        "\"minProperties\": 3, \"additionalProperties\": false}";
    complete(SPRY_GRAMMAR_JSON_SCHEMA, several, "", "{\"a\":12345,\"bb\":1,\"d\":100}");
    complete(SPRY_GRAMMAR_JSON_SCHEMA, several, "{\"c", "cc\":20,\"a\":12345,\"bb\":1}");
    complete(SPRY_GRAMMAR_JSON_OBJECT, "", "{\"a\": [1, {\"b", "\":0}]}");
}

/* Recursion without a short end, and more than there may be. */
static void test_too_long(void **state)
{
    (void)state;
    char source[2048];
    size_t used = 0;
    used += (size_t)snprintf(source, sizeof source, "root ::= \"!\" | \"x\" r0\n");
    for (int i = 0; i < 40; i++)
        used += (size_t)snprintf(source + used, sizeof source - used, "r%d ::= \"(\" r%d r%d\n", i, i + 1, i + 1);
    snprintf(source + used, sizeof source - used, "r40 ::= \"a\" | \"(\" root r0 \")\"\n");
    spry_grammar *grammar = compile(SPRY_GRAMMAR_GBNF, source);
    spry_matcher *matcher = start(grammar, NULL);
    spry_buffer text;
    spry_error error;
    spry_buffer_init(&text, 16);
    expect(matcher, "!");
    take(matcher, SPRY_VIEW("x("));
    assert_true(spry_matcher_completion_bound(matcher) == SIZE_MAX);
    assert_int_equal(spry_matcher_completion(matcher, &text, &error), SPRY_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "more than 65536"));
    assert_int_equal(text.size, 0);
    spry_buffer_deinit(&text);
    spry_matcher_destroy(matcher);
    spry_grammar_unref(grammar);
}

/* Deep nesting uses no C stack, and the length at each depth is known at once. */
static void test_deep(void **state)
{
    (void)state;
    spry_grammar *grammar = compile(SPRY_GRAMMAR_GBNF, "root ::= \"[\" root* \"]\"");
    spry_matcher *matcher = start(grammar, NULL);
    for (size_t i = 1; i <= 60000; i++) {
        take(matcher, SPRY_VIEW("["));
        assert_int_equal(spry_matcher_completion_bound(matcher), i);
    }
    spry_buffer text = check_completion(matcher);
    assert_int_equal(text.data[59999], ']');
    spry_buffer_deinit(&text);
    spry_matcher_destroy(matcher);
    spry_grammar_unref(grammar);
}

/* ---- schemas, and tokens ----------------------------------------------------------------------------------------- */

typedef struct fixture {
    spry_tokenizer *tokenizer;
    spry_vocabulary *vocabulary;
} fixture;

static int open_fixture(void **state)
{
    static fixture f;
    spry_gguf *gguf;
    spry_error error;
    if (spry_gguf_open(&gguf, BUNDLED, &error) || spry_tokenizer_from_gguf(&f.tokenizer, gguf, &error) ||
        spry_vocabulary_create(&f.vocabulary, f.tokenizer, spry_tokenizer_size(f.tokenizer), &error))
        fail_msg("%s", error.message);
    spry_gguf_close(gguf);
    *state = &f;
    return 0;
}

static int close_fixture(void **state)
{
    fixture *f = *state;
    spry_vocabulary_destroy(f->vocabulary);
    spry_tokenizer_destroy(f->tokenizer);
    return 0;
}

/* Hands the tokens of a completion to the matcher and takes them back. */
static size_t check_tokens(spry_matcher *matcher, size_t text_size)
{
    spry_tokens ids = {0};
    spry_error error;
    uint32_t set = matcher->set;
    if (spry_matcher_completion_tokens(matcher, &ids, &error))
        fail_msg("%s", error.message);
    assert_true(ids.count <= text_size && (ids.count > 0) == (text_size > 0));
    for (size_t i = 0; i < ids.count; i++)
        if (spry_matcher_token(matcher, ids.ids[i], &error))
            fail_msg("%s", error.message);
    assert_true(spry_matcher_may_end(matcher));
    spry_matcher_undo(matcher, ids.count);
    assert_int_equal(matcher->set, set);
    size_t count = ids.count;
    spry_tokens_deinit(&ids);
    return count;
}

static bool random_token(spry_matcher *matcher, size_t n_ids)
{
    const uint32_t *mask;
    spry_error error;
    if (spry_matcher_must_end(matcher))
        return false;
    if (spry_matcher_mask(matcher, &mask, &error))
        fail_msg("%s", error.message);
    size_t first = any((unsigned)n_ids);
    for (size_t i = 0; i < n_ids; i++) {
        size_t id = (first + i) % n_ids;
        if (mask[id / 32] >> id % 32 & 1)
            return spry_matcher_token(matcher, (int32_t)id, &error) == SPRY_OK;
    }
    return false;
}

static void walk_grammar(const fixture *f, spry_grammar *grammar, size_t *bytes, size_t *tokens)
{
    spry_matcher *matcher = start(grammar, f->vocabulary);
    for (int walk = 0; walk < 12; walk++) {
        for (int step = 0; step < 40; step++) {
            spry_buffer text = check_completion(matcher);
            *bytes += text.size;
            *tokens += check_tokens(matcher, text.size);
            spry_buffer_deinit(&text);
            if (walk % 2 ? !random_byte(matcher) : !random_token(matcher, spry_tokenizer_size(f->tokenizer)))
                break;
        }
        spry_matcher_reset(matcher);
    }
    spry_matcher_destroy(matcher);
}

typedef struct schema_walk {
    const fixture *f;
    size_t schemas, bytes, tokens;
} schema_walk;

static void walk_schema(void *context, const char *name)
{
    schema_walk *walk = context;
    spry_buffer source;
    spry_error error;
    char path[1024];
    snprintf(path, sizeof path, SCHEMAS "/%s", name);
    spry_buffer_init(&source, 1 << 20);
    if (spry_file_read(&source, path, &error))
        fail_msg("%s", error.message);
    spry_grammar *grammar = compile(SPRY_GRAMMAR_JSON_SCHEMA, source.data);
    walk_grammar(walk->f, grammar, &walk->bytes, &walk->tokens);
    spry_grammar_unref(grammar);
    spry_buffer_deinit(&source);
    walk->schemas++;
}

static void test_schemas(void **state)
{
    schema_walk walk = {.f = *state};
    seed = 7;
    assert_int_equal(spry_folder_each(SCHEMAS, walk_schema, &walk, NULL), SPRY_OK);
    print_message("%zu schemas, %zu bytes in %zu tokens\n", walk.schemas, walk.bytes, walk.tokens);
    assert_true(walk.schemas >= 20 && walk.bytes > 100000 && walk.tokens < walk.bytes);
}

static void test_json_tokens(void **state)
{
    size_t bytes = 0, tokens = 0;
    seed = 3;
    spry_grammar *grammar = compile(SPRY_GRAMMAR_JSON_OBJECT, "");
    walk_grammar(*state, grammar, &bytes, &tokens);
    spry_matcher *matcher = start(grammar, ((const fixture *)*state)->vocabulary);
    spry_tokens ids = {0};
    take(matcher, SPRY_VIEW("{"));
    assert_int_equal(spry_matcher_completion_tokens(matcher, &ids, NULL), SPRY_OK);
    assert_int_equal(ids.count, 1);
    spry_tokens_deinit(&ids);
    spry_matcher_destroy(matcher);
    spry_grammar_unref(grammar);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),  cmocka_unit_test(test_gbnf),        cmocka_unit_test(test_counted),
        cmocka_unit_test(test_objects), cmocka_unit_test(test_too_long),    cmocka_unit_test(test_deep),
        cmocka_unit_test(test_schemas), cmocka_unit_test(test_json_tokens),
    };
    return cmocka_run_group_tests(tests, open_fixture, close_fixture);
}
