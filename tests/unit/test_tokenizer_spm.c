/* SentencePiece BPE on models made here: merging against its definition, and what the normaliser's switches do. */
#include "tokenizer_testing.h"

#define MARK "\xE2\x96\x81"

enum { NORMAL = 1, UNKNOWN, CONTROL, USER, UNUSED, BYTE };

typedef struct piece {
    char text[24];
    float score;
    int type;
} piece;

typedef struct model_options {
    bool byte_fallback, no_prefix, keep_spaces, no_escape;
} model_options;

/* ---- writing a model ---- */

static void put_varint(spry_buffer *out, uint64_t value)
{
    do {
        unsigned char byte = (unsigned char)((value & 0x7F) | (value > 0x7F ? 0x80 : 0));
        spry_buffer_append(out, &byte, 1);
        value >>= 7;
    } while (value);
}

static void put_number(spry_buffer *out, unsigned field, uint64_t value)
{
    put_varint(out, (uint64_t)field << 3);
    put_varint(out, value);
}

static void put_message(spry_buffer *out, unsigned field, const spry_buffer *message)
{
    put_varint(out, (uint64_t)field << 3 | 2);
    put_varint(out, message->size);
    spry_buffer_append(out, message->data, message->size);
}

static void put_piece(spry_buffer *out, const piece *one)
{
    spry_buffer message, text;
    spry_buffer_init(&message, 200);
    spry_buffer_init(&text, 100);
    spry_buffer_text(&text, one->text);
    put_message(&message, 1, &text);
    put_varint(&message, 2 << 3 | 5);
    spry_buffer_append(&message, &one->score, 4);
    put_number(&message, 3, (uint64_t)one->type);
    put_message(out, 1, &message);
    spry_buffer_deinit(&message);
    spry_buffer_deinit(&text);
}

static spry_tokenizer *make_model(const piece *pieces, size_t count, model_options options)
{
    spry_buffer model, spec;
    spry_buffer_init(&model, 1 << 20);
    spry_buffer_init(&spec, 200);
    for (size_t i = 0; i < count; i++)
        put_piece(&model, &pieces[i]);
    put_number(&spec, 3, 2);
    put_number(&spec, 35, options.byte_fallback);
    put_message(&model, 2, &spec);
    spry_buffer_clear(&spec);
    put_number(&spec, 3, !options.no_prefix);
    put_number(&spec, 4, !options.keep_spaces);
    put_number(&spec, 5, !options.no_escape);
    put_message(&model, 3, &spec);
    spry_tokenizer *tokenizer = NULL;
    spry_error error = {0};
    if (make_tokenizer_spm(&tokenizer, spry_buffer_view(&model), "made.model", &error))
        fail_msg("%s", error.message);
    spry_buffer_deinit(&model);
    spry_buffer_deinit(&spec);
    return tokenizer;
}

/* ---- the definition ---- */

static int find_piece(const piece *pieces, size_t count, const char *text)
{
    for (size_t i = 0; i < count; i++)
        if (pieces[i].type == NORMAL && strcmp(pieces[i].text, text) == 0)
            return (int)i;
    return -1;
}

/* Merges neighbours whose joint text is a piece, the highest score first, the leftmost of equals. */
static size_t merge_naively(const piece *pieces, size_t n_pieces, char symbols[][200], size_t count)
{
    for (;;) {
        size_t best = SIZE_MAX;
        int best_piece = -1;
        for (size_t i = 0; i + 1 < count; i++) {
            char joint[400];
            snprintf(joint, sizeof joint, "%.199s%.199s", symbols[i], symbols[i + 1]);
            int found = find_piece(pieces, n_pieces, joint);
            if (found >= 0 && (best == SIZE_MAX || pieces[found].score > pieces[best_piece].score)) {
                best = i;
                best_piece = found;
            }
        }
        if (best == SIZE_MAX)
            return count;
        snprintf(symbols[best], 200, "%s", pieces[best_piece].text);
        memmove(symbols[best + 1], symbols[best + 2], (count - best - 2) * sizeof *symbols);
        count--;
    }
}

/* Ids of merged symbols; a run of symbols that are no pieces is one unknown. */
static void push_symbols(spry_tokens *out, const piece *pieces, size_t n_pieces, char symbols[][200], size_t count)
{
    bool after_unknown = false;
    for (size_t i = 0; i < count; i++) {
        int found = find_piece(pieces, n_pieces, symbols[i]);
        if (found >= 0 || !after_unknown)
            spry_tokens_push(out, found >= 0 ? found : 0);
        after_unknown = found < 0;
    }
}

/* Random pieces over few characters; `c` never is a piece by itself, and `d` is in none. Scores repeat. */
static size_t random_pieces(piece *pieces, size_t capacity, uint64_t *seed)
{
    static const char *const letters[] = {"a", "b", MARK, "\xC3\xA9", "c"};
    size_t count = 0;
    static const piece fixed[] = {{"<unk>", 0, UNKNOWN}, {"<s>", 0, CONTROL}, {"</s>", 0, CONTROL},   {"a", 0, NORMAL},
                                  {"b", 0, NORMAL},      {MARK, 0, NORMAL},   {"\xC3\xA9", 0, NORMAL}};
    for (; count < sizeof fixed / sizeof fixed[0]; count++)
        pieces[count] = fixed[count];
    while (count < capacity) {
        piece one = {.type = NORMAL, .score = -(float)(random_next(seed) % 12)};
        for (uint32_t n = 2 + random_next(seed) % 4; n > 0; n--)
            strncat(one.text, letters[random_next(seed) % 5], sizeof one.text - strlen(one.text) - 1);
        if (find_piece(pieces, count, one.text) < 0)
            pieces[count++] = one;
    }
    return count;
}

static void merging_follows_the_definition(void **state)
{
    (void)state;
    static const char *const letters[] = {"a", "b", MARK, "\xC3\xA9", "c", "d", " "};
    static char symbols[200][200];
    uint64_t seed = 21;
    for (int round = 0; round < 120; round++) {
        piece pieces[60];
        size_t n_pieces = random_pieces(pieces, 12 + random_next(&seed) % 48, &seed);
        spry_tokenizer *tokenizer =
            make_model(pieces, n_pieces, (model_options){.no_prefix = true, .keep_spaces = true});
        for (int text_round = 0; text_round < 30; text_round++) {
            char text[800] = "";
            size_t count = 1 + random_next(&seed) % 90;
            for (size_t i = 0; i < count; i++) {
                const char *letter = letters[random_next(&seed) % 7];
                strncat(text, letter, sizeof text - strlen(text) - 1);
                snprintf(symbols[i], sizeof symbols[i], "%s", *letter == ' ' ? MARK : letter);
            }
            size_t merged = merge_naively(pieces, n_pieces, symbols, count);
            spry_tokens expected = {0}, tokens = encode(tokenizer, spry_view_of(text), 0);
            push_symbols(&expected, pieces, n_pieces, symbols, merged);
            if (tokens.count != expected.count ||
                memcmp(tokens.ids, expected.ids, tokens.count * sizeof *tokens.ids) != 0) {
                print_ids("got   ", &tokens);
                print_ids("wanted", &expected);
                fail_msg("\"%s\"", text);
            }
            spry_tokens_deinit(&tokens);
            spry_tokens_deinit(&expected);
        }
        spry_tokenizer_destroy(tokenizer);
    }
}

/* ---- switches ---- */

static const piece small[] = {
    {"<unk>", 0, UNKNOWN}, {"<s>", 0, CONTROL}, {"</s>", 0, CONTROL},   {"<0x64>", 0, BYTE},     {MARK, -9, NORMAL},
    {"a", -9, NORMAL},     {"b", -9, NORMAL},   {MARK "a", -1, NORMAL}, {MARK MARK, -2, NORMAL}, {"ab", -3, NORMAL},
    {"<x>", 0, USER},      {"ba", 0, UNUSED},   {" ", -9, NORMAL}};
enum { N_SMALL = sizeof small / sizeof small[0] };

static void check_decoding(const spry_tokenizer *tokenizer, const char *text, const char *expected)
{
    spry_tokens tokens = encode(tokenizer, spry_view_of(text), 0);
    check_decoded(tokenizer, &tokens, true, spry_view_of(expected), text);
    spry_tokens_deinit(&tokens);
}

static void the_prefix_and_its_absence(void **state)
{
    (void)state;
    spry_tokenizer *tokenizer = make_model(small, N_SMALL, (model_options){.keep_spaces = true});
    check_list(tokenizer, "ab", 0, IDS(7, 6));
    check_list(tokenizer, "  a", 0, IDS(8, 7));
    check_list(tokenizer, "a", SPRY_ENCODE_BOS_EOS, IDS(1, 7));
    check_decoding(tokenizer, "  ab a ", "  ab a ");
    spry_tokenizer_destroy(tokenizer);
    tokenizer = make_model(small, N_SMALL, (model_options){.keep_spaces = true, .no_prefix = true});
    check_list(tokenizer, "ab", 0, IDS(9));
    check_decoding(tokenizer, "  ab a ", "  ab a ");
    spry_tokenizer_destroy(tokenizer);
}

static void extra_spaces_may_go(void **state)
{
    (void)state;
    spry_tokenizer *tokenizer = make_model(small, N_SMALL, (model_options){0});
    check_list(tokenizer, "  a   b  ", 0, IDS(7, 4, 6));
    check_list(tokenizer, "   ", 0, IDS(-1));
    check_decoding(tokenizer, "  a   b  ", "a b");
    spry_tokenizer_destroy(tokenizer);
}

static void spaces_may_stay_spaces(void **state)
{
    (void)state;
    spry_tokenizer *tokenizer = make_model(small, N_SMALL, (model_options){.no_escape = true, .keep_spaces = true});
    check_list(tokenizer, "a b", 0, IDS(12, 5, 12, 6));
    check_decoding(tokenizer, "a b", "a b");
    spry_tokenizer_destroy(tokenizer);
}

static void user_defined_pieces_stand_apart(void **state)
{
    (void)state;
    spry_tokenizer *tokenizer = make_model(small, N_SMALL, (model_options){.keep_spaces = true});
    check_list(tokenizer, "b<x>a", 0, IDS(4, 6, 10, 5)); /* no prefix after it, unlike after a control token */
    check_list(tokenizer, "b<s>a", SPRY_ENCODE_SPECIAL, IDS(4, 6, 1, 7));
    check_list(tokenizer, "bba", 0, IDS(4, 6, 6, 5)); /* "ba" is not used */
    spry_tokenizer_destroy(tokenizer);
}

static void bytes_stand_in_where_they_may(void **state)
{
    (void)state;
    spry_tokenizer *tokenizer =
        make_model(small, N_SMALL, (model_options){.keep_spaces = true, .no_prefix = true, .byte_fallback = true});
    check_list(tokenizer, "adeb", 0, IDS(5, 3, 0, 6)); /* d has its byte, e is unknown */
    check_list(tokenizer,
               "a\xFF"
               "b",
               0, IDS(5, 0, 6));
    check_list(tokenizer, "<0x64>", 0, IDS(0)); /* this spelling is not the byte */
    spry_tokenizer_destroy(tokenizer);
    tokenizer = make_model(small, N_SMALL, (model_options){.keep_spaces = true, .no_prefix = true});
    check_list(tokenizer, "adeb", 0, IDS(5, 0, 6)); /* one unknown for the run */
    spry_tokenizer_destroy(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merging_follows_the_definition),
        cmocka_unit_test(the_prefix_and_its_absence),
        cmocka_unit_test(extra_spaces_may_go),
        cmocka_unit_test(spaces_may_stay_spaces),
        cmocka_unit_test(user_defined_pieces_stand_apart),
        cmocka_unit_test(bytes_stand_in_where_they_may),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
