/* What tokenizer.json and tokenizer_config.json can say, each in a tokenizer small enough to work out by hand. */
#include "tokenizer_testing.h"

#include <unistd.h>

#define MARK "\xE2\x96\x81"

/* A tokenizer.json of the given parts; the caller frees it. Quotes are written as ` to keep the parts legible. */
static char *compose(const char *vocab, const char *merges, const char *model, const char *rest)
{
    size_t size = strlen(vocab) + strlen(merges) + strlen(model) + strlen(rest) + 100;
    char *json = malloc(size);
    snprintf(json, size, "{`model`:{`type`:`BPE`,`vocab`:{%s},`merges`:[%s]%s}%s}", vocab, merges, model, rest);
    for (char *c = json; *c; c++)
        *c = *c == '`' ? '"' : *c;
    return json;
}

static spry_tokenizer *make(const char *vocab, const char *merges, const char *model, const char *rest)
{
    char *json = compose(vocab, merges, model, rest);
    spry_tokenizer *tokenizer = tokenizer_from_json(json);
    free(json);
    return tokenizer;
}

/* Expects a refusal whose sentence holds `says`. */
static void refuse(spry_status status, const char *says, const char *vocab, const char *merges, const char *model,
                   const char *rest)
{
    char *json = compose(vocab, merges, model, rest);
    spry_tokenizer *tokenizer = NULL;
    spry_error error = {0};
    spry_status got = make_tokenizer_json(&tokenizer, spry_view_of(json), "bad.json", &error);
    assert_null(tokenizer);
    if (got != status || !strstr(error.message, says) || strncmp(error.message, "bad.json: ", 10) != 0)
        fail_msg("status %d and the sentence \"%s\", not status %d and \"%s\"", (int)got, error.message, (int)status,
                 says);
    free(json);
}

#define BYTE_LEVEL(options) ",`pre_tokenizer`:{`type`:`ByteLevel`" options "},`decoder`:{`type`:`ByteLevel`}"
#define PLAIN_BYTES         BYTE_LEVEL(",`add_prefix_space`:false,`use_regex`:true")
#define LETTERS                                                                                                        \
    "`a`:0,`b`:1,`c`:2,`ab`:3,`abc`:4,`\xC4\xA0`:5,`\xC4\xA0"                                                          \
    "a`:6" /* Ġ spells a space */
#define MERGES "`a b`,[`ab`,`c`],`\xC4\xA0 a`"

static void check_text(const spry_tokenizer *tokenizer, const int32_t *ids, bool special, const char *expected)
{
    spry_tokens tokens = {0};
    for (size_t i = 0; ids[i] >= 0; i++)
        spry_tokens_push(&tokens, ids[i]);
    check_decoded(tokenizer, &tokens, special, spry_view_of(expected), expected);
    spry_tokens_deinit(&tokens);
}

static void merges_may_be_strings_or_pairs(void **state)
{
    (void)state;
    spry_tokenizer *tokenizer = make(LETTERS, MERGES, "", PLAIN_BYTES);
    check_list(tokenizer, "abc", 0, IDS(4));
    check_list(tokenizer, "ab a abcab", 0, IDS(3, 6, 5, 4, 3));
    check_list(tokenizer, "cba", 0, IDS(2, 1, 0));
    check_list(tokenizer, "axb", 0, IDS(3)); /* x has no token, and there is none for the unknown */
    spry_tokenizer_destroy(tokenizer);
}

/* "abc" can be a token that no merge reaches. */
static void ignore_merges_takes_whole_words(void **state)
{
    (void)state;
    spry_tokenizer *tokenizer = make(LETTERS ",`bc`:7", "`b c`", ",`ignore_merges`:true", PLAIN_BYTES);
    check_list(tokenizer, "abc", 0, IDS(4));
    check_list(tokenizer, "abcb", 0, IDS(0, 7, 1));
    spry_tokenizer_destroy(tokenizer);
}

static void a_token_that_merging_misses_is_not_taken(void **state)
{
    (void)state;
    spry_tokenizer *tokenizer = make(LETTERS ",`bc`:7", "`b c`,`a b`,`ab c`", "", PLAIN_BYTES);
    for (int round = 0; round < 3; round++) /* the tokenizer remembers, and must remember the right thing */
        check_list(tokenizer, "abc", 0, IDS(0, 7));
    spry_tokenizer_destroy(tokenizer);
}

static void a_merge_never_makes_a_control_token(void **state)
{
    (void)state;
    spry_tokenizer *tokenizer =
        make(LETTERS, MERGES, ",`ignore_merges`:true",
             ",`added_tokens`:[{`id`:4,`content`:`abc`,`special`:true,`normalized`:false}]" PLAIN_BYTES);
    assert_int_equal(spry_tokenizer_kind(tokenizer, 4), SPRY_TOKEN_CONTROL);
    check_list(tokenizer, "abc", 0, IDS(3, 2));
    check_list(tokenizer, "abcab", SPRY_ENCODE_SPECIAL, IDS(4, 3));
    spry_tokenizer_destroy(tokenizer);
}

static void byte_level_may_add_a_space(void **state)
{
    (void)state;
    spry_tokenizer *tokenizer = make(LETTERS, MERGES, "", BYTE_LEVEL(",`add_prefix_space`:true"));
    check_list(tokenizer, "ab", 0, IDS(5, 3));
    check_list(tokenizer, " ab", 0, IDS(5, 3));
    check_list(tokenizer, "", 0, IDS(-1));
    spry_tokenizer_destroy(tokenizer);
}

/* ---- added tokens ---- */

static spry_tokenizer *with_added(const char *added)
{
    char rest[1024];
    snprintf(rest, sizeof rest, ",`added_tokens`:[%s]%s", added, PLAIN_BYTES);
    return make(LETTERS, MERGES, "", rest);
}

static void added_tokens_match_everywhere(void **state)
{
    (void)state;
    spry_tokenizer *tokenizer = with_added("{`id`:7,`content`:`<x>`,`special`:false,`normalized`:false},"
                                           "{`id`:8,`content`:`<x>>`,`special`:true,`normalized`:false},"
                                           "{`id`:9,`content`:`ca`,`special`:false,`normalized`:true}");
    assert_int_equal(spry_tokenizer_kind(tokenizer, 7), SPRY_TOKEN_ADDED);
    assert_int_equal(spry_tokenizer_kind(tokenizer, 8), SPRY_TOKEN_CONTROL);
    check_list(tokenizer, "a<x>b", 0, IDS(0, 7, 1));
    check_list(tokenizer, "a<x>>b", SPRY_ENCODE_SPECIAL, IDS(0, 8, 1)); /* the longest */
    check_list(tokenizer, "a<x>>b", 0, IDS(0, 7, 1));                   /* the longest allowed; > has no token */
    check_list(tokenizer, "bcab", 0, IDS(1, 9, 1));
    check_text(tokenizer, IDS(7, 8, 0), false, "<x>a");
    check_text(tokenizer, IDS(7, 8, 0), true, "<x><x>>a");
    spry_tokenizer_destroy(tokenizer);
}

static void added_tokens_may_take_spaces_along(void **state)
{
    (void)state;
    spry_tokenizer *tokenizer = with_added("{`id`:7,`content`:`<l>`,`lstrip`:true,`normalized`:false},"
                                           "{`id`:8,`content`:`<r>`,`rstrip`:true,`normalized`:false}");
    check_list(tokenizer, "a  <l>  b", 0, IDS(0, 7, 5, 5, 1));
    check_list(tokenizer, "a  <r> \n b", 0, IDS(0, 5, 5, 8, 1));
    check_list(tokenizer, "<r> <l>", 0, IDS(8, 7)); /* each space is taken once */
    check_list(tokenizer, "a\xE3\x80\x80<l>b", 0, IDS(0, 7, 1));
    spry_tokenizer_destroy(tokenizer);
}

static void added_tokens_may_want_to_stand_alone(void **state)
{
    (void)state;
    spry_tokenizer *tokenizer = with_added("{`id`:7,`content`:`ab`,`single_word`:true,`normalized`:false}");
    check_list(tokenizer, "ab", 0, IDS(7));
    check_list(tokenizer, "c ab", 0, IDS(2, 5, 7));
    check_list(tokenizer, "cab", 0, IDS(2, 3));
    check_list(tokenizer, "ab_", 0, IDS(3));
    check_list(tokenizer, "ab.", 0, IDS(7));
    spry_tokenizer_destroy(tokenizer);
}

/* Tokens that ask for normalised text are found after NFC, the others before. */
static void added_tokens_and_normalisation(void **state)
{
    (void)state;
    spry_tokenizer *tokenizer =
        make(LETTERS, MERGES, "",
             ",`normalizer`:{`type`:`NFC`},`added_tokens`:[{`id`:7,`content`:`\xC3\xA9`,`normalized`:true},"
             "{`id`:8,`content`:`\xC3\xB3`,`normalized`:false}]" PLAIN_BYTES);
    check_list(tokenizer,
               "ae\xCC\x81"
               "b",
               0, IDS(0, 7, 1));
    check_list(tokenizer,
               "a\xC3\xA9"
               "b",
               0, IDS(0, 7, 1));
    check_list(tokenizer,
               "a\xC3\xB3"
               "b",
               0, IDS(0, 8, 1));
    check_list(tokenizer,
               "ao\xCC\x81"
               "b",
               0, IDS(3)); /* its bytes have no tokens */
    spry_tokenizer_destroy(tokenizer);
}

/* ---- SentencePiece in JSON ---- */

#define PIECES                                                                                                         \
    "`<unk>`:0,`<s>`:1,`</s>`:2,`<0xC3>`:3,`<0xA9>`:4,`" MARK "`:5,`a`:6,`b`:7,`" MARK "a`:8,`" MARK MARK "`:9,`ab`:"  \
    "10"
#define PIECE_MERGES "`" MARK " a`,`a b`,`" MARK " " MARK "`"
#define SPM_MODEL    ",`unk_token`:`<unk>`,`byte_fallback`:true,`fuse_unk`:true"
#define SPM_ADDED                                                                                                      \
    ",`added_tokens`:[{`id`:0,`content`:`<unk>`,`special`:true},{`id`:1,`content`:`<s>`,`special`:true},"              \
    "{`id`:2,`content`:`</s>`,`special`:true}]"
#define SPM_DECODER(strip)                                                                                             \
    ",`decoder`:{`type`:`Sequence`,`decoders`:[{`type`:`Replace`,`pattern`:{`String`:`" MARK "`},`content`:` `},"      \
    "{`type`:`ByteFallback`},{`type`:`Fuse`}" strip "]}"
#define STRIP ",{`type`:`Strip`,`content`:` `,`start`:1,`stop`:0}"

static void llama_normalizer(void **state)
{
    (void)state;
    spry_tokenizer *tokenizer =
        make(PIECES, PIECE_MERGES, SPM_MODEL,
             SPM_ADDED ",`normalizer`:{`type`:`Sequence`,`normalizers`:[{`type`:`Prepend`,`prepend`:`" MARK "`},"
                       "{`type`:`Replace`,`pattern`:{`String`:` `},`content`:`" MARK "`}]}" SPM_DECODER(STRIP));
    assert_string_equal(spry_tokenizer_algorithm(tokenizer), "SentencePiece BPE");
    check_list(tokenizer, "ab a", 0, IDS(8, 7, 8));
    check_list(tokenizer, " ab", 0, IDS(5, 8, 7));
    check_list(tokenizer, "b<s>b", SPRY_ENCODE_SPECIAL, IDS(5, 7, 1, 5, 7)); /* every part gets its prefix */
    check_list(tokenizer, "\xC3\xA9", 0, IDS(5, 3, 4));
    check_list(tokenizer,
               "b\xE4\xBD\xA0\xE5\xA5\xBD"
               "b",
               0, IDS(5, 7, 0, 7));              /* unknown characters are one token */
    check_list(tokenizer, "\xC3", 0, IDS(5, 3)); /* a byte that is no UTF-8 */
    check_list(tokenizer, "", 0, IDS(-1));
    check_text(tokenizer, IDS(8, 7, 8), false, "ab a");
    check_text(tokenizer, IDS(9, 8), false, "  a");
    check_text(tokenizer, IDS(1, 8, 2), true, "<s> a</s>");
    check_text(tokenizer, IDS(1, 8, 2), false, "a");
    check_text(tokenizer, IDS(3, 4), false, "\xC3\xA9");
    spry_tokenizer_destroy(tokenizer);
}

static void gemma_normalizer(void **state)
{
    (void)state;
    spry_tokenizer *tokenizer =
        make(PIECES, PIECE_MERGES, SPM_MODEL,
             SPM_ADDED ",`normalizer`:{`type`:`Replace`,`pattern`:{`String`:` `},`content`:`" MARK "`},"
                       "`pre_tokenizer`:{`type`:`Split`,`pattern`:{`String`:` `},`behavior`:`MergedWithPrevious`,"
                       "`invert`:false}" SPM_DECODER(""));
    check_list(tokenizer, "ab a", 0, IDS(10, 8));
    check_list(tokenizer, "  ", 0, IDS(9));
    check_text(tokenizer, IDS(8, 7), false, " ab");
    spry_tokenizer_destroy(tokenizer);
}

static void metaspace(void **state)
{
    (void)state;
    static const struct {
        const char *options;
        int32_t b_s_b[6]; /* ids of "b<s>b" */
        const char *text; /* of ids 9 8 8 */
    } schemes[] = {
        {",`prepend_scheme`:`always`", {5, 7, 1, 5, 7, -1}, "a a"},
        {",`prepend_scheme`:`first`", {5, 7, 1, 7, -1}, "a a"},
        {",`prepend_scheme`:`never`", {7, 1, 7, -1}, "   a a"},
        {",`add_prefix_space`:true", {5, 7, 1, 5, 7, -1}, "a a"},
        {",`add_prefix_space`:false", {7, 1, 7, -1}, "   a a"},
    };
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        char rest[1024];
        snprintf(rest, sizeof rest,
                 SPM_ADDED ",`pre_tokenizer`:{`type`:`Metaspace`,`replacement`:`" MARK "`%s},"
                           "`decoder`:{`type`:`Metaspace`,`replacement`:`" MARK "`%s}",
                 schemes[i].options, schemes[i].options);
        spry_tokenizer *tokenizer = make(PIECES, PIECE_MERGES, SPM_MODEL, rest);
        check_list(tokenizer, "b<s>b", SPRY_ENCODE_SPECIAL, schemes[i].b_s_b);
        check_list(tokenizer, " a", 0, IDS(8));             /* a space is prefix enough */
        check_list(tokenizer, "  a  ", 0, IDS(5, 8, 5, 5)); /* words part before each space, so two never merge */
        check_text(tokenizer, IDS(9, 8, 8), false, i == 2 || i == 4 ? "   a a" : " a a");
        spry_tokenizer_destroy(tokenizer);
    }
}

/* ---- begin and end ---- */

static void templates_frame_the_text(void **state)
{
    (void)state;
    spry_tokenizer *tokenizer =
        make(PIECES, PIECE_MERGES, SPM_MODEL,
             SPM_ADDED
             ",`post_processor`:{`type`:`Sequence`,`processors`:[{`type`:`ByteLevel`},{`type`:`TemplateProcessing`,"
             "`single`:[{`SpecialToken`:{`id`:`<s>`,`type_id`:0}},{`Sequence`:{`id`:`A`,`type_id`:0}},"
             "{`SpecialToken`:{`id`:`</s>`,`type_id`:0}}],`special_tokens`:{`<s>`:{`id`:`<s>`,`ids`:[1]},"
             "`</s>`:{`id`:`</s>`,`ids`:[2]}}}]}");
    check_list(tokenizer, "b", SPRY_ENCODE_BOS_EOS, IDS(1, 7, 2));
    check_list(tokenizer, "", SPRY_ENCODE_BOS_EOS, IDS(1, 2));
    check_list(tokenizer, "b", 0, IDS(7));
    assert_int_equal(spry_tokenizer_bos(tokenizer), 1);
    assert_int_equal(spry_tokenizer_eos(tokenizer), 2);
    spry_tokenizer_destroy(tokenizer);
}

/* ---- vocabularies ---- */

static void ids_may_have_holes(void **state)
{
    (void)state;
    spry_tokenizer *tokenizer = make("`a`:0,`b`:1000", "", "", PLAIN_BYTES);
    assert_int_equal(spry_tokenizer_size(tokenizer), 1001);
    assert_int_equal(spry_tokenizer_kind(tokenizer, 500), SPRY_TOKEN_UNUSED);
    assert_int_equal(spry_tokenizer_name(tokenizer, 500).size, 0);
    check_list(tokenizer, "ab", 0, IDS(0, 1000));
    check_text(tokenizer, IDS(0, 500, 1000), true, "ab");
    spry_tokenizer_destroy(tokenizer);
}

static void insane_ids_are_refused(void **state)
{
    (void)state;
    static const char *const ids[] = {"2147483648", "2147483647",          "-1",     "1e300", "1.5", "`x`",
                                      "null",       "9223372036854775807", "4194304"};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        char vocab[64], added[128];
        snprintf(vocab, sizeof vocab, "`a`:0,`b`:%s", ids[i]);
        refuse(SPRY_ERR_FORMAT, "the id of \"b\"", vocab, "", "", "");
        snprintf(added, sizeof added, ",`added_tokens`:[{`content`:`x`,`id`:%s}]", ids[i]);
        refuse(SPRY_ERR_FORMAT, "added_tokens[0]", "`a`:0", "", "", added);
    }
    refuse(SPRY_ERR_FORMAT, "only 2 entries", "`a`:0,`b`:4000000", "", "", "");
    refuse(SPRY_ERR_FORMAT, "empty", "", "", "", "");
}

static void other_things_are_refused(void **state)
{
    (void)state;
    static const struct {
        spry_status status;
        const char *says, *merges, *model, *rest;
    } bad[] = {
        {SPRY_ERR_UNSUPPORTED, "end_of_word_suffix", "", ",`end_of_word_suffix`:`</w>`", ""},
        {SPRY_ERR_FORMAT, "makes \"aa\"", "`a a`", "", ""},
        {SPRY_ERR_FORMAT, "model.merges[0]", "`a`", "", ""},
        {SPRY_ERR_FORMAT, "model.merges[0]", "[`a`]", "", ""},
        {SPRY_ERR_FORMAT, "model.merges[0]", "[`a`,`b`,`c`]", "", ""},
        {SPRY_ERR_FORMAT, "model.merges[0]", "7", "", ""},
        {SPRY_ERR_UNSUPPORTED, "normalizer of type \"Nmt\"", "", "", ",`normalizer`:{`type`:`Nmt`}"},
        {SPRY_ERR_FORMAT, "base64", "", "", ",`normalizer`:{`type`:`Precompiled`,`precompiled_charsmap`:`!`}"},
        {SPRY_ERR_FORMAT, "charsmap", "", "", ",`normalizer`:{`type`:`Precompiled`,`precompiled_charsmap`:`/////w==`}"},
        {SPRY_ERR_UNSUPPORTED, "normalizer of type \"\"", "", "", ",`normalizer`:7"},
        {SPRY_ERR_UNSUPPORTED, "Replace", "", "",
         ",`normalizer`:{`type`:`Replace`,`pattern`:{`Regex`:`x`},`content`:`y`}"},
        {SPRY_ERR_UNSUPPORTED, "pre_tokenizer of type \"UnicodeScripts\"", "", "",
         ",`pre_tokenizer`:{`type`:`UnicodeScripts`}"},
        {SPRY_ERR_FORMAT, "behavior", "", "", ",`pre_tokenizer`:{`type`:`Split`,`pattern`:{`String`:`x`}}"},
        {SPRY_ERR_FORMAT, "cannot be compiled", "", "",
         ",`pre_tokenizer`:{`type`:`Split`,`pattern`:{`Regex`:`(`},`behavior`:`Isolated`}"},
        {SPRY_ERR_UNSUPPORTED, "after ByteLevel", "", "",
         ",`pre_tokenizer`:{`type`:`Sequence`,`pretokenizers`:[{`type`:`ByteLevel`},{`type`:`Digits`}]}"},
        {SPRY_ERR_FORMAT, "pretokenizers", "", "", ",`pre_tokenizer`:{`type`:`Sequence`}"},
        {SPRY_ERR_UNSUPPORTED, "decoder of type \"CTC\"", "", "", ",`decoder`:{`type`:`CTC`}"},
        {SPRY_ERR_UNSUPPORTED, "Strip", "", "", ",`decoder`:{`type`:`Strip`,`content`:` `,`start`:0,`stop`:1}"},
        {SPRY_ERR_FORMAT, "special_tokens", "", "",
         ",`post_processor`:{`type`:`TemplateProcessing`,`single`:[{`SpecialToken`:{`id`:`x`}}]}"},
        {SPRY_ERR_FORMAT, "no id in the vocabulary", "", "",
         ",`post_processor`:{`type`:`TemplateProcessing`,`single`:[{`SpecialToken`:{`id`:`x`}}],"
         "`special_tokens`:{`x`:{`ids`:[70]}}}"},
        {SPRY_ERR_FORMAT, "added_tokens is not a list", "", "", ",`added_tokens`:{}"},
        {SPRY_ERR_FORMAT, "added_tokens[0]", "", "", ",`added_tokens`:[{`id`:1}]"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        refuse(bad[i].status, bad[i].says, "`a`:0", bad[i].merges, bad[i].model, bad[i].rest);
    spry_tokenizer *tokenizer = NULL;
    spry_error error = {0};
    static const char *const wrong[] = {"{}", "{\"model\":7}", "{\"model\":{\"vocab\":{\"a\":0}}}", "{\"model\":", "",
                                        "[]"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(make_tokenizer_json(&tokenizer, spry_view_of(wrong[i]), "x", &error), SPRY_ERR_FORMAT);
    spry_view level = SPRY_VIEW("{\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"a\":0}}}");
    assert_int_equal(make_tokenizer_json(&tokenizer, level, "x", &error), SPRY_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "WordLevel"));
    static const char *const scored[] = {"[[`a`]]", "[[1,2]]", "[`a`]", "{`a`:1}", "[]"};
    for (size_t i = 0; i < sizeof scored / sizeof scored[0]; i++) {
        char text[128];
        snprintf(text, sizeof text, "{`model`:{`type`:`Unigram`,`vocab`:%s}}", scored[i]);
        for (char *quote = text; (quote = strchr(quote, '`'));)
            *quote = '"';
        assert_int_equal(make_tokenizer_json(&tokenizer, spry_view_of(text), "x", &error), SPRY_ERR_FORMAT);
    }
}

/* ---- folders ---- */

static void write_file(const char *folder, const char *name, const void *data, size_t size)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    fclose(file);
}

static void remove_files(const char *folder)
{
    static const char *const files[] = {"tokenizer.json", "tokenizer.model", "tokenizer_config.json"};
    char path[512];
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        unlink(path);
    }
    rmdir(folder);
}

static void configuration_decides_about_begin_and_end(void **state)
{
    (void)state;
    char folder[] = "/tmp/spry-tokenizer-XXXXXX";
    assert_non_null(mkdtemp(folder));
    char *json = compose(PIECES, PIECE_MERGES, SPM_MODEL, SPM_ADDED);
    write_file(folder, "tokenizer.json", json, strlen(json));
    free(json);
    static const struct {
        const char *config;
        int32_t bos, eos, ids[4];
    } cases[] = {
        {"{}", -1, -1, {7, -1}},
        {"{\"bos_token\":\"<s>\",\"eos_token\":null}", 1, -1, {7, -1}},
        {"{\"bos_token\":{\"content\":\"<s>\"},\"add_bos_token\":true}", 1, -1, {1, 7, -1}},
        {"{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"add_bos_token\":true,\"add_eos_token\":true}",
         1,
         2,
         {1, 7, 2, -1}},
        {"{\"bos_token\":\"nowhere\",\"add_bos_token\":true}", -1, -1, {7, -1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_file(folder, "tokenizer_config.json", cases[i].config, strlen(cases[i].config));
        spry_tokenizer *tokenizer = open_tokenizer(folder);
        assert_int_equal(spry_tokenizer_bos(tokenizer), cases[i].bos);
        assert_int_equal(spry_tokenizer_eos(tokenizer), cases[i].eos);
        check_list(tokenizer, "b", SPRY_ENCODE_BOS_EOS, cases[i].ids);
        spry_tokenizer_destroy(tokenizer);
    }
    write_file(folder, "tokenizer_config.json", "{", 1);
    spry_tokenizer *tokenizer = NULL;
    spry_error error = {0};
    assert_int_equal(spry_tokenizer_open(&tokenizer, folder, &error), SPRY_ERR_FORMAT);
    assert_non_null(strstr(error.message, "tokenizer_config.json"));
    remove_files(folder);
}

/* Tokens that were added to a SentencePiece model stand in its configuration. */
static void a_model_may_have_more_tokens(void **state)
{
    (void)state;
    char folder[] = "/tmp/spry-tokenizer-XXXXXX";
    assert_non_null(mkdtemp(folder));
    size_t size;
    char *model = read_file(TEST_DATA "/tokenizers/spm-llama/tokenizer.model", &size);
    write_file(folder, "any-name", model, size);
    write_file(folder, "tokenizer.model", model, size);
    free(model);
    static const char config[] =
        "{\"added_tokens_decoder\":{\"2\":{\"content\":\"</s>\",\"special\":true},"
        "\"2001\":{\"content\":\"<|end|>\",\"special\":true,\"rstrip\":true},"
        "\"2000\":{\"content\":\"<tool>\",\"special\":false}},\"eos_token\":\"<|end|>\",\"add_bos_token\":false}";
    write_file(folder, "tokenizer_config.json", config, strlen(config));
    spry_tokenizer *tokenizer = open_tokenizer(folder);
    assert_int_equal(spry_tokenizer_size(tokenizer), 2002);
    assert_int_equal(spry_tokenizer_eos(tokenizer), 2001);
    check_list(tokenizer, "a<tool>a", SPRY_ENCODE_BOS_EOS, IDS(261, 2000, 261));
    check_list(tokenizer, "a<|end|>  a</s>", SPRY_ENCODE_SPECIAL, IDS(261, 2001, 261, 2));
    spry_tokenizer_destroy(tokenizer);
    static const char bad[] = "{\"added_tokens_decoder\":{\"2000x\":{\"content\":\"y\"}}}";
    write_file(folder, "tokenizer_config.json", bad, strlen(bad));
    spry_error error = {0};
    assert_int_equal(spry_tokenizer_open(&tokenizer, folder, &error), SPRY_ERR_FORMAT);
    assert_non_null(strstr(error.message, "2000x"));
    char path[64];
    snprintf(path, sizeof path, "%s/any-name", folder);
    tokenizer = open_tokenizer(path); /* one file, known by what is in it */
    assert_int_equal(spry_tokenizer_size(tokenizer), 2000);
    spry_tokenizer_destroy(tokenizer);
    unlink(path);
    remove_files(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_may_be_strings_or_pairs),
        cmocka_unit_test(ignore_merges_takes_whole_words),
        cmocka_unit_test(a_token_that_merging_misses_is_not_taken),
        cmocka_unit_test(a_merge_never_makes_a_control_token),
        cmocka_unit_test(byte_level_may_add_a_space),
        cmocka_unit_test(added_tokens_match_everywhere),
        cmocka_unit_test(added_tokens_may_take_spaces_along),
        cmocka_unit_test(added_tokens_may_want_to_stand_alone),
        cmocka_unit_test(added_tokens_and_normalisation),
        cmocka_unit_test(llama_normalizer),
        cmocka_unit_test(gemma_normalizer),
        cmocka_unit_test(metaspace),
        cmocka_unit_test(templates_frame_the_text),
        cmocka_unit_test(ids_may_have_holes),
        cmocka_unit_test(insane_ids_are_refused),
        cmocka_unit_test(other_things_are_refused),
        cmocka_unit_test(configuration_decides_about_begin_and_end),
        cmocka_unit_test(a_model_may_have_more_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
