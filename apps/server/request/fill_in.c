/* The order is: prefix token, text before, suffix token, text behind, middle token. The text of users never becomes a
 * control token. */
#include "server/request/fill_in.h"

#include "base/error.h"
#include "server/request/prompt.h"

typedef struct fill_in_tokens {
    const char *prefix, *suffix, *middle;
} fill_in_tokens;

static const fill_in_tokens known[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},
    {"<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "begin\xef\xbd\x9c>",
     "<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "hole\xef\xbd\x9c>",
     "<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "end\xef\xbd\x9c>"},
    {"\xe2\x96\x81<PRE>", "\xe2\x96\x81<SUF>", "\xe2\x96\x81<MID>"},
    {"<PRE>", "<SUF>", "<MID>"},
};

/* The id of a control token with this spelling; -1: there is none. */
static int32_t control_token(const spry_engine *engine, const char *spelling)
{
    int32_t ids[2], plain[2];
    size_t count = 0, n_plain = 0, size = strlen(spelling);
    if (spry_engine_tokenize_part(engine, ids, 2, &count, spelling, size, true, NULL) != SPRY_OK || count != 1)
        return -1;
    bool ordinary =
        spry_engine_tokenize_part(engine, plain, 2, &n_plain, spelling, size, false, NULL) == SPRY_OK && n_plain == 1;
    return ordinary ? -1 : ids[0];
}

static const fill_in_tokens *tokens_of(const spry_engine *engine)
{
    for (size_t i = 0; i < SPRY_COUNT(known); i++)
        if (control_token(engine, known[i].prefix) >= 0 && control_token(engine, known[i].suffix) >= 0 &&
            control_token(engine, known[i].middle) >= 0)
            return &known[i];
    return NULL;
}

bool spry_engine_can_fill_in(const spry_engine *engine)
{
    return tokens_of(engine) != NULL;
}

static spry_status add(spry_tokens *out, const spry_engine *engine, const char *token, spry_view text,
                       spry_error *error)
{
    if (!spry_tokens_push(out, control_token(engine, token)))
        return spry_fail_memory(error, "the prompt", 0);
    return text.size ? spry_prompt_encode(out, engine, text, false, false, error) : SPRY_OK;
}

/* Files are set apart by the model's token for that, or by a line. */
static spry_status add_files(spry_tokens *out, const spry_engine *engine, const json_t *extra, spry_error *error)
{
    static const char separator[] = "<|file_sep|>";
    bool has_token = control_token(engine, separator) >= 0;
    spry_status status = SPRY_OK;
    size_t i;
    const json_t *file;
    json_array_foreach(extra, i, file)
    {
        const char *name = json_string_value(json_object_get(file, "filename"));
        spry_buffer text;
        spry_buffer_init(&text, SIZE_MAX / 2);
        spry_buffer_format(&text, has_token ? "%s\n" : "\n--- %s\n", name ? name : "file");
        spry_buffer_text(&text, json_string_value(json_object_get(file, "text")));
        if (status == SPRY_OK)
            status = has_token ? add(out, engine, separator, spry_buffer_view(&text), error)
                               : spry_prompt_encode(out, engine, spry_buffer_view(&text), false, false, error);
        spry_buffer_deinit(&text);
    }
    return status;
}

spry_status spry_prompt_fill_in(spry_tokens *out, const spry_engine *engine, spry_view before, spry_view after,
                                const json_t *extra, spry_error *error)
{
    const fill_in_tokens *tokens = tokens_of(engine);
    int32_t begin = spry_engine_begin_token(engine);
    if (!tokens)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED,
                         "this model has no fill-in tokens, so it cannot write the text before a suffix");
    if (begin >= 0 && !spry_tokens_push(out, begin))
        return spry_fail_memory(error, "the prompt", 0);
    spry_status status = add_files(out, engine, extra, error);
    if (status == SPRY_OK)
        status = add(out, engine, tokens->prefix, before, error);
    if (status == SPRY_OK)
        status = add(out, engine, tokens->suffix, after, error);
    return status == SPRY_OK ? add(out, engine, tokens->middle, SPRY_VIEW(""), error) : status;
}
