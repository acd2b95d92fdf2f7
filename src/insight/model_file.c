/* Models as files, and their tokenizers alone. */
#include "insight/model_file.h"

#include <stdio.h>
#include <string.h>

#include "insight/model_work.h"
#include "model/model.h"
#include "platform/file.h"

const char *spry_model_file_name(const spry_model_file *file)
{
    return file->name ? file->name : file->path ? file->path : "a model in memory";
}

bool spry_model_file_is_gguf(const spry_model_file *file)
{
    if (file->data)
        return true;
    if (spry_path_is_folder(file->path))
        return false;
    spry_mapping mapping;
    if (spry_mapping_open(&mapping, file->path, NULL) != SPRY_OK)
        return false;
    bool is = mapping.size >= 4 && memcmp(mapping.data, "GGUF", 4) == 0;
    spry_mapping_close(&mapping);
    return is || spry_view_ends(spry_view_of(file->path), SPRY_VIEW(".gguf"));
}

spry_status spry_model_file_gguf(spry_gguf **out, const spry_model_file *file, spry_error *error)
{
    if (file->data)
        return spry_gguf_open_memory(out, file->data, file->size, spry_model_file_name(file), error);
    return spry_gguf_open(out, file->path, error);
}

spry_status spry_model_file_open(spry_model **out, const spry_model_file *file, spry_error *error)
{
    if (file->data)
        return spry_model_open_memory(out, file->data, file->size, spry_model_file_name(file), error);
    return spry_model_open(out, file->path, error);
}

/* ---- checkpoints ----------------------------------------------------------------------------------------------- */

spry_status spry_checkpoint_read(spry_checkpoint *checkpoint, const spry_model_file *file, const char *kv_type,
                                 spry_error *error)
{
    spry_model *model = NULL;
    spry_dtype type;
    *checkpoint = (spry_checkpoint){.size = offsetof(spry_checkpoint, reserved)};
    if (strcmp(kv_type, "auto") == 0)
        type = SPRY_F16;
    else if (!spry_dtype_find(&type, spry_view_of(kv_type)))
        return spry_fail(error, SPRY_ERR_INPUT, "kv-type '%.40s' is not known", kv_type);
    const char *name = file->data ? spry_model_file_name(file) : file->path;
    spry_status status = spry_model_open_sizes(&model, name, file->data, file->size, error);
    if (!status) {
        const spry_config *c = &model->config;
        bool longer = c->rope.long_factors && c->rope.original_context < c->n_context;
        spry_kv_shape shape = spry_model_kv_shape(model, type);
        checkpoint->architecture = c->arch->name;
        checkpoint->vocabulary = c->n_vocab;
        checkpoint->context = longer ? c->rope.original_context : c->n_context;
        checkpoint->main_type = spry_work_main_type(model);
        if (!spry_kv_token_bytes(&checkpoint->kv_token_bytes, &shape))
            checkpoint->kv_token_bytes = 0;
    }
    spry_model_close(model);
    return status;
}

spry_status spry_checkpoint_fingerprint(char text[SPRY_FINGERPRINT_TEXT], const spry_model_file *file,
                                        uint32_t n_threads, spry_error *error)
{
    spry_threads *threads = NULL;
    spry_model *model = NULL;
    spry_status status = spry_threads_create(&threads, n_threads, error);
    if (!status)
        status = spry_model_file_open(&model, file, error);
    spry_kv_key key = {0};
    if (!status)
        status = spry_model_fingerprint(&key, model, threads, error);
    if (!status)
        snprintf(text, SPRY_FINGERPRINT_TEXT, "%016llx%016llx", (unsigned long long)key.high,
                 (unsigned long long)key.low);
    spry_model_close(model);
    spry_threads_destroy(threads);
    return status;
}

/* ---- tokenizers ------------------------------------------------------------------------------------------------ */

spry_status spry_tokenizer_load(spry_tokenizer **out, const spry_model_file *file, spry_error *error)
{
    *out = NULL;
    if (!spry_model_file_is_gguf(file))
        return spry_tokenizer_open(out, file->path, error);
    spry_gguf *gguf = NULL;
    spry_status status = spry_model_file_gguf(&gguf, file, error);
    if (status == SPRY_OK)
        status = spry_tokenizer_from_gguf(out, gguf, error);
    spry_gguf_close(gguf);
    return status;
}

void spry_tokenizer_free(spry_tokenizer *tokenizer)
{
    spry_tokenizer_destroy(tokenizer);
}

size_t spry_tokenizer_count(const spry_tokenizer *tokenizer)
{
    return spry_tokenizer_size(tokenizer);
}

spry_status spry_tokenizer_ids(const spry_tokenizer *tokenizer, int32_t **ids, size_t *count, const char *text,
                               size_t size, bool special, bool whole, spry_error *error)
{
    unsigned flags = (special ? SPRY_ENCODE_SPECIAL : 0u) | (whole ? SPRY_ENCODE_BOS_EOS : 0u);
    spry_tokens tokens = {0};
    spry_status status = spry_tokenizer_encode(tokenizer, &tokens, (spry_view){text, size}, NULL, 0, flags, error);
    if (status != SPRY_OK)
        spry_tokens_deinit(&tokens);
    *ids = tokens.ids;
    *count = tokens.count;
    return status;
}

spry_status spry_tokenizer_text(const spry_tokenizer *tokenizer, char **text, size_t *size, const int32_t *ids,
                                size_t count, bool special, spry_error *error)
{
    spry_buffer buffer;
    spry_buffer_init(&buffer, SIZE_MAX / 2);
    spry_status status = spry_tokenizer_decode(tokenizer, &buffer, ids, count, special, error);
    if (status != SPRY_OK)
        spry_buffer_deinit(&buffer);
    *text = buffer.data;
    *size = buffer.size;
    return status;
}
