/* Opens tokenizers on disk: a Hugging Face folder or one file. As in transformers, tokenizer_config.json takes
 * precedence over tokenizer.json's post-processor for begin and end tokens. */
#include "platform/file.h"
#include "tokenizer/tokenizer_json.h"

enum { TOKENIZER_BYTES_MAX = 256 << 20, CONFIG_BYTES_MAX = 16 << 20 };

/* Tokens in the configuration are strings or objects with a "content". */
static int32_t configured_token(const spry_tokenizer *tokenizer, const json_t *config, const char *key,
                                int32_t otherwise)
{
    const json_t *value = spry_json_member(config, key);
    spry_view text = spry_json_view(json_is_object(value) ? json_object_get(value, "content") : value);
    int32_t id = text.size ? spry_vocab_find(&tokenizer->vocab, text) : -1;
    return id >= 0 ? id : otherwise;
}

/* add_bos_token and add_eos_token take precedence if present. */
static void configure_frame(spry_frame *frame, const json_t *config, const char *key, int32_t id)
{
    const json_t *value = spry_json_member(config, key);
    if (!json_is_boolean(value))
        return;
    frame->count = json_is_true(value) && id >= 0;
    frame->ids[0] = id;
}

static void configure(spry_tokenizer *tokenizer, const json_t *config)
{
    tokenizer->bos = configured_token(tokenizer, config, "bos_token", tokenizer->bos);
    tokenizer->eos = configured_token(tokenizer, config, "eos_token", tokenizer->eos);
    tokenizer->padding = configured_token(tokenizer, config, "pad_token", tokenizer->padding);
    configure_frame(&tokenizer->before, config, "add_bos_token", tokenizer->bos);
    configure_frame(&tokenizer->behind, config, "add_eos_token", tokenizer->eos);
}

static bool looks_like_json(spry_view text)
{
    size_t i = 0;
    while (i < text.size &&
           (text.data[i] == ' ' || text.data[i] == '\t' || text.data[i] == '\n' || text.data[i] == '\r'))
        i++;
    return i < text.size && text.data[i] == '{';
}

/* `config` may be NULL. Errors have no path yet. */
static spry_status load(spry_tokenizer *tokenizer, spry_view text, json_t *config, spry_error *error)
{
    spry_status status =
        looks_like_json(text)
            ? spry_tokenizer_load_json(tokenizer, text, error)
            : spry_tokenizer_load_spm(tokenizer, text, json_object_get(config, "added_tokens_decoder"), error);
    if (!status)
        configure(tokenizer, config);
    return status;
}

static spry_status open_file(spry_tokenizer **out, const char *path, json_t *config, spry_error *error)
{
    spry_buffer text;
    spry_buffer_init(&text, TOKENIZER_BYTES_MAX);
    spry_status status = spry_file_read(&text, path, error); /* its messages contain the path */
    if (!status) {
        spry_tokenizer *tokenizer = spry_tokenizer_create();
        status = tokenizer ? load(tokenizer, spry_buffer_view(&text), config, error)
                           : spry_fail_memory(error, "a tokenizer", sizeof *tokenizer);
        status = spry_tokenizer_complete(out, tokenizer, status, path, error);
    }
    spry_buffer_deinit(&text);
    return status;
}

/* Reads an optional configuration file. */
static spry_status read_config(json_t **out, const char *path, spry_error *error)
{
    *out = NULL;
    if (!spry_path_exists(path))
        return SPRY_OK;
    spry_buffer text;
    spry_buffer_init(&text, CONFIG_BYTES_MAX);
    spry_status status = spry_file_read(&text, path, error);
    if (!status && !(*out = spry_json_parse(spry_buffer_view(&text), error)))
        status = spry_fail_prefix(error, SPRY_ERR_FORMAT, path);
    spry_buffer_deinit(&text);
    return status;
}

static spry_status open_folder(spry_tokenizer **out, const char *folder, spry_error *error)
{
    spry_buffer path, config_path;
    spry_buffer_init(&path, 4096);
    spry_buffer_init(&config_path, 4096);
    json_t *config = NULL;
    spry_status status = spry_path_join(&path, folder, "tokenizer.json", error);
    if (!status && !spry_path_exists(path.data)) {
        spry_buffer_clear(&path);
        status = spry_path_join(&path, folder, "tokenizer.model", error);
    }
    if (!status && !spry_path_exists(path.data))
        status = spry_fail(error, SPRY_ERR_FILE, "%s holds neither tokenizer.json nor tokenizer.model", folder);
    if (!status)
        status = spry_path_join(&config_path, folder, "tokenizer_config.json", error);
    if (!status)
        status = read_config(&config, config_path.data, error);
    if (!status)
        status = open_file(out, path.data, config, error);
    json_decref(config);
    spry_buffer_deinit(&path);
    spry_buffer_deinit(&config_path);
    return status;
}

spry_status spry_tokenizer_open(spry_tokenizer **out, const char *path, spry_error *error)
{
    return spry_path_is_folder(path) ? open_folder(out, path, error) : open_file(out, path, NULL, error);
}
