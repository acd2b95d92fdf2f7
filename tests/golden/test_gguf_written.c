/* GGUF files exactly as llama.cpp's converter writes them: its tensors and no others, its keys and no others. Ours have
 * more keys; without those, and with the converter's values where they differ, models give the same bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "formats/gguf_writer.h"
#include "golden/golden_file.h"
#include "golden/golden_models.h"
#include "golden/model_runner.h"
#include "model/gguf_export.h"
#include "support/must.h"

#define SIZES                                                                                                          \
    "block_count context_length embedding_length feed_forward_length attention.head_count attention.head_count_kv "    \
    "rope.freq_base "
#define RMS     SIZES "attention.layer_norm_rms_epsilon "
#define MEAN    SIZES "attention.layer_norm_epsilon "
#define HEAD    "attention.key_length attention.value_length "
#define ROTATED "rope.dimension_count "
#define YARN                                                                                                           \
    "rope.scaling.type rope.scaling.factor rope.scaling.original_context_length rope.scaling.yarn_beta_fast "          \
    "rope.scaling.yarn_beta_slow "
#define EXPERTS     "expert_count expert_used_count "
#define EXPERT_SIZE EXPERTS "expert_feed_forward_length "
#define GROUPS      "expert_group_count expert_group_used_count "
#define SHARED      "leading_dense_block_count expert_shared_count "
#define LATENT                                                                                                         \
    "attention.kv_lora_rank attention.key_length_mla attention.value_length_mla vocab_size " GROUPS SHARED             \
    "expert_weights_scale "
#define GRANITE    "vocab_size attention.scale embedding_scale residual_scale logit_scale "
#define NORMS      "attn_norm ffn_norm "
#define QKV        "attn_q attn_k attn_v attn_output "
#define QKV_BIAS   QKV "attn_q.bias attn_k.bias attn_v.bias "
#define GATED      "ffn_gate ffn_up ffn_down "
#define MOE        "ffn_gate_inp ffn_gate_exps ffn_up_exps ffn_down_exps "
#define SHARED_MOE MOE "ffn_gate_shexp ffn_up_shexp ffn_down_shexp "
#define MLA        "attn_kv_a_mqa attn_kv_a_norm attn_k_b attn_v_b attn_output "
#define ENCODER                                                                                                        \
    "attn_output_norm attn_output_norm.bias layer_output_norm layer_output_norm.bias "                                 \
    "ffn_up ffn_up.bias ffn_down ffn_down.bias attn_output.bias "
#define INDEXER      "attention.indexer.head_count attention.indexer.key_length attention.indexer.top_k "
#define INDEX_LAYERS "indexer.attn_q_b indexer.attn_k indexer.k_norm indexer.k_norm.bias indexer.proj"
#define ENDS         "token_embd output_norm "

/* Names of layers stand without "blk.N.", weights without ".weight". "KEY=NUMBER" has another value in the converter's
 * files than in ours. */
static const struct {
    const char *model, *keys, *ends, *layers;
} written[] = {
    {"llama", RMS HEAD ROTATED "vocab_size", ENDS "output", NORMS QKV GATED},
    {"llama3-rope", RMS HEAD ROTATED "vocab_size", ENDS "rope_freqs", NORMS QKV GATED},
    {"mixtral", RMS ROTATED "vocab_size " EXPERTS, ENDS "output", NORMS QKV MOE},
    {"qwen2-moe", RMS EXPERT_SIZE "expert_shared_feed_forward_length", ENDS "output",
     NORMS QKV_BIAS SHARED_MOE "ffn_gate_inp_shexp"},
    {"qwen3", RMS HEAD, ENDS, NORMS QKV GATED "attn_q_norm attn_k_norm"},
    {"qwen3-fp8", RMS HEAD, ENDS "output", NORMS QKV GATED "attn_q_norm attn_k_norm"},
    {"qwen3-moe", RMS HEAD EXPERT_SIZE, ENDS "output", NORMS QKV MOE "attn_q_norm attn_k_norm"},
    {"gemma3", RMS HEAD "rope.freq_base_swa attention.sliding_window", ENDS,
     NORMS QKV GATED "attn_q_norm attn_k_norm post_attention_norm post_ffw_norm"},
    {"phi3", RMS ROTATED "rope.scaling.original_context_length=4096 attention.sliding_window=0", ENDS "output",
     NORMS "attn_qkv attn_output ffn_up ffn_down"},
    {"phi4-mini",
     RMS ROTATED "rope.scaling.original_context_length rope.scaling.attn_factor attention.sliding_window=0",
     ENDS "rope_factors_long rope_factors_short", NORMS "attn_qkv attn_output ffn_up ffn_down"},
    {"olmo2", RMS, ENDS "output", QKV GATED "attn_q_norm attn_k_norm post_attention_norm post_ffw_norm"},
    {"granite", RMS ROTATED GRANITE, ENDS, NORMS QKV GATED},
    {"granite-moe", RMS ROTATED GRANITE EXPERTS, ENDS "output", NORMS QKV MOE},
    {"smollm3", RMS ROTATED "vocab_size", ENDS, NORMS QKV GATED},
    {"glm4", RMS HEAD ROTATED, ENDS "output", NORMS QKV_BIAS "ffn_up ffn_down post_attention_norm post_ffw_norm"},
    {"glm4-moe",
     RMS HEAD ROTATED EXPERT_SIZE GROUPS SHARED
     "expert_gating_func expert_weights_scale expert_weights_norm nextn_predict_layers=1 block_count=4",
     ENDS "output",
     "attn_norm post_attention_norm " QKV_BIAS GATED SHARED_MOE "attn_q_norm attn_k_norm exp_probs_b.bias"},
    {"gpt-oss", RMS HEAD EXPERT_SIZE YARN "attention.sliding_window", ENDS "output",
     "attn_norm post_attention_norm attn_sinks attn_output.bias ffn_gate_inp.bias ffn_gate_exps.bias ffn_up_exps.bias "
     "ffn_down_exps.bias " QKV_BIAS MOE},
    {"deepseek-v2", RMS HEAD ROTATED LATENT EXPERT_SIZE "expert_weights_scale=1", ENDS "output",
     NORMS MLA GATED SHARED_MOE "attn_q"},
    /* Transformers' own config does not say how experts are chosen. */
    {"deepseek-v3",
     RMS HEAD ROTATED LATENT EXPERT_SIZE YARN
     "attention.q_lora_rank expert_weights_norm rope.scaling.yarn_log_multiplier",
     ENDS "output", NORMS MLA GATED SHARED_MOE "attn_q_a attn_q_a_norm attn_q_b exp_probs_b.bias"},
    {"deepseek-v3.2",
     RMS HEAD ROTATED LATENT EXPERT_SIZE YARN
     "attention.q_lora_rank expert_weights_norm rope.scaling.yarn_log_multiplier " INDEXER,
     ENDS "output", NORMS MLA GATED SHARED_MOE "attn_q_a attn_q_a_norm attn_q_b exp_probs_b.bias " INDEX_LAYERS},
    {"glm-moe-dsa",
     RMS HEAD ROTATED LATENT EXPERT_SIZE "attention.q_lora_rank expert_weights_norm " INDEXER "attention.indexer.types",
     ENDS "output", NORMS MLA GATED SHARED_MOE "attn_q_a attn_q_a_norm attn_q_b exp_probs_b.bias " INDEX_LAYERS},
    {"cohere", MEAN "logit_scale attention.layer_norm_rms_epsilon=0.000001", ENDS, "attn_norm " QKV GATED},
    {"cohere2", MEAN HEAD ROTATED "logit_scale vocab_size attention.sliding_window", ENDS, "attn_norm " QKV GATED},
    {"exaone4", RMS HEAD "vocab_size attention.sliding_window attention.sliding_window_pattern", ENDS "output",
     QKV GATED "attn_q_norm attn_k_norm post_attention_norm post_ffw_norm"},
    {"seed-oss", RMS HEAD, ENDS "output", "attn_norm post_attention_norm " QKV_BIAS GATED},
    {"ernie4.5", RMS HEAD, ENDS, NORMS QKV GATED},
    /* The size of shared experts is written as another number, and counts for nothing. */
    {"ernie4.5-moe", RMS EXPERT_SIZE SHARED "interleave_moe_layer_step expert_shared_feed_forward_length=80", ENDS,
     NORMS QKV GATED SHARED_MOE "exp_probs_b.bias"},
    {"hunyuan", RMS HEAD "rope.scaling.factor=1 rope.scaling.original_context_length=262144", ENDS,
     NORMS QKV GATED "attn_q_norm attn_k_norm"},
    {"starcoder2", MEAN, ENDS "output_norm.bias",
     NORMS QKV_BIAS "ffn_up ffn_down attn_norm.bias ffn_norm.bias attn_output.bias ffn_up.bias ffn_down.bias"},
    {"gemma3n",
     RMS HEAD "rope.freq_base_swa final_logit_softcapping attention.sliding_window attention.sliding_window_pattern "
              "altup.active_idx altup.num_inputs embedding_length_per_layer_input attention.shared_kv_layers "
              "activation_sparsity_scale",
     ENDS "per_layer_token_embd per_layer_model_proj per_layer_proj_norm altup_proj altup_unembd_proj",
     NORMS QKV GATED
     "attn_q_norm attn_k_norm post_attention_norm post_ffw_norm laurel_l laurel_r laurel_post_norm altup_router "
     "altup_router_norm altup_correct_coef altup_correct_scale altup_predict_coef inp_gate proj post_norm"},
    {"lfm2", RMS "shortconv.l_cache vocab_size", "token_embd token_embd_norm",
     NORMS QKV GATED "attn_q_norm attn_k_norm shortconv.in_proj shortconv.conv shortconv.out_proj"},
    {"qwen3-next",
     RMS HEAD ROTATED EXPERT_SIZE
     "expert_shared_feed_forward_length ssm.conv_kernel ssm.state_size ssm.group_count ssm.time_step_rank "
     "ssm.inner_size full_attention_interval nextn_predict_layers=1 block_count=5",
     ENDS "output",
     "attn_norm post_attention_norm " QKV SHARED_MOE
     "ffn_gate_inp_shexp attn_q_norm attn_k_norm attn_qkv attn_gate ssm_conv1d ssm_dt.bias =ssm_a ssm_ba ssm_norm "
     "ssm_out"},
    {"qwen3.5-moe",
     RMS HEAD ROTATED EXPERT_SIZE
     "expert_shared_feed_forward_length ssm.conv_kernel ssm.state_size ssm.group_count ssm.time_step_rank "
     "ssm.inner_size full_attention_interval rope.dimension_sections",
     ENDS "output",
     "attn_norm post_attention_norm " QKV SHARED_MOE
     "ffn_gate_inp_shexp attn_q_norm attn_k_norm attn_qkv attn_gate ssm_conv1d ssm_dt.bias =ssm_a ssm_beta ssm_alpha "
     "ssm_norm ssm_out"},
    {"bert",
     "block_count context_length embedding_length feed_forward_length attention.head_count "
     "attention.layer_norm_epsilon attention.causal",
     "token_embd token_embd_norm token_embd_norm.bias position_embd token_types", QKV_BIAS ENCODER},
};

static void export(const char *path, const char *folder)
{
    spry_error error = {0};
    const spry_recipe *recipe;
    spry_threads *threads;
    spry_model *model;
    must(spry_model_open(&model, folder, &error), &error);
    must(spry_recipe_find(&recipe, "f32", &error), &error);
    must(spry_threads_create(&threads, 1, &error), &error);
    const spry_export options = {.recipe = recipe, .threads = threads};
    must(spry_model_export(model, path, &options, &error), &error);
    spry_threads_destroy(threads);
    spry_model_close(model);
}

/* The word of `list` that is `name`, or begins with it and "="; NULL: none. The last one counts. */
static const char *find_word(const char *list, const char *name)
{
    size_t size = strlen(name);
    const char *found = NULL;
    for (const char *at = list; (at = strstr(at, name)); at += size)
        if ((at == list || at[-1] == ' ') && (!at[size] || at[size] == ' ' || at[size] == '='))
            found = at;
    return found;
}

/* How a tensor is spelled in the lists. */
static const char *spelled(char out[128], spry_view name, const char **list, const char *ends, const char *layers)
{
    char all[128];
    snprintf(all, sizeof all, "%.*s", SPRY_VIEW_ARG(name));
    const char *rest = all;
    *list = ends;
    if (!strncmp(all, "blk.", 4) && strchr(all + 4, '.')) {
        rest = strchr(all + 4, '.') + 1;
        *list = layers;
    }
    size_t size = strlen(rest);
    bool weight = size > 7 && !strcmp(rest + size - 7, ".weight"), bare = !weight && !strstr(rest, ".bias");
    snprintf(out, 128, "%s%.*s", bare ? "=" : "", (int)(weight ? size - 7 : size), rest);
    return out;
}

static bool seen_in(const spry_gguf *gguf, const char *word, size_t size, const char *list, const char *ends,
                    const char *layers)
{
    char name[128];
    const char *in;
    for (size_t i = 0; i < spry_gguf_tensor_count(gguf); i++)
        if (strlen(spelled(name, spry_gguf_tensor(gguf, i)->name, &in, ends, layers)) == size && in == list &&
            !strncmp(name, word, size))
            return true;
    return false;
}

/* The file has all tensors of the lists, and no others. */
static void check_tensors(const spry_gguf *gguf, const char *model, const char *ends, const char *layers)
{
    char name[128];
    const char *list;
    for (size_t i = 0; i < spry_gguf_tensor_count(gguf); i++) {
        spelled(name, spry_gguf_tensor(gguf, i)->name, &list, ends, layers);
        if (!find_word(list, name))
            fail_msg("%s: the converter writes no '%s'", model, name);
    }
    const char *const lists[] = {ends, layers};
    for (size_t i = 0; i < SPRY_COUNT(lists); i++)
        for (const char *at = lists[i] + strspn(lists[i], " "); *at; at += strspn(at, " ")) {
            size_t size = strcspn(at, " ");
            if (!seen_in(gguf, at, size, lists[i], ends, layers))
                fail_msg("%s: '%.*s' is not written", model, (int)size, at);
            at += size;
        }
}

/* Keys of the list that have a value there. */
static void write_values(spry_gguf_writer *writer, const char *arch, const char *keys)
{
    for (const char *at = keys + strspn(keys, " "); *at; at += strspn(at, " ")) {
        size_t size = strcspn(at, " "), name = strcspn(at, " =");
        char key[160];
        snprintf(key, sizeof key, "%s.%.*s", arch, (int)name, at);
        if (name < size && (strstr(key, "epsilon") || strstr(key, "factor") || strstr(key, "weights_scale")))
            spry_gguf_writer_f32(writer, key, strtof(at + name + 1, NULL));
        else if (name < size)
            spry_gguf_writer_u32(writer, key, (uint32_t)strtoul(at + name + 1, NULL, 10));
        at += size;
    }
}

/* Copies `from` with the keys of the list only. */
static void write_as_converter(const char *path, const spry_gguf *from, const char *arch, const char *keys)
{
    spry_error error = {0};
    spry_gguf_writer *writer;
    must(spry_gguf_writer_create(&writer, &error), &error);
    for (size_t i = 0; i < spry_gguf_entry_count(from); i++) {
        const spry_gguf_entry *entry = spry_gguf_entry_at(from, i);
        char key[160], own[64];
        snprintf(key, sizeof key, "%.*s", SPRY_VIEW_ARG(entry->key));
        snprintf(own, sizeof own, "%s.", arch);
        const char *word = strncmp(key, own, strlen(own)) ? "" : find_word(keys, key + strlen(own));
        if (word && word[strcspn(word, " =")] != '=' && strcmp(key, "general.alignment") != 0)
            spry_gguf_writer_entry(writer, entry);
    }
    write_values(writer, arch, keys);
    for (size_t i = 0; i < spry_gguf_tensor_count(from); i++)
        spry_gguf_writer_tensor(writer, spry_gguf_tensor(from, i));
    must(spry_gguf_writer_begin(writer, path, &error), &error);
    for (size_t i = 0; i < spry_gguf_tensor_count(from); i++) {
        const spry_tensor *t = spry_gguf_tensor(from, i);
        must(spry_gguf_writer_data(writer, t->data, t->bytes, &error), &error);
    }
    must(spry_gguf_writer_finish(writer, &error), &error);
    spry_gguf_writer_destroy(writer);
}

static void same_logits(const char *ours, const char *theirs, const char *folder, const char *model)
{
    static const int32_t ids[] = {2, 7, 300, 41, 5, 3};
    golden_file golden = {0};
    model_runner first, second;
    runner_open(&first, ours, "ref", SPRY_F32, 1);
    runner_open(&second, theirs, "ref", SPRY_F32, 1);
    if (first.model->config.bidirectional) {
        float *a = runner_hidden(&first, ids, SPRY_COUNT(ids)), *b = runner_hidden(&second, ids, SPRY_COUNT(ids));
        assert_memory_equal(a, b, SPRY_COUNT(ids) * first.model->config.n_embd * sizeof *a);
        free(a);
        free(b);
    } else {
        golden_open(&golden, folder);
    }
    for (size_t i = 0; i < golden.n_cases; i++) {
        const golden_case *c = &golden.cases[i];
        float *a = runner_logits(&first, c->ids, c->n_ids, 32), *b = runner_logits(&second, c->ids, c->n_ids, 32);
        if (memcmp(a, b, c->n_ids * golden.n_vocab * sizeof *a))
            fail_msg("%s: without our own keys it gives something else", model);
        free(a);
        free(b);
    }
    runner_close(&first);
    runner_close(&second);
    golden_close(&golden);
}

static void test_as_the_converter_writes(void **state)
{
    (void)state;
    for (size_t i = 0; i < SPRY_COUNT(written); i++) {
        char folder[512], ours[] = "/tmp/spry-ours-XXXXXX", theirs[] = "/tmp/spry-theirs-XXXXXX";
        spry_error error = {0};
        spry_model *model;
        if (!golden_folder(folder, written[i].model))
            continue;
        assert_int_equal(close(mkstemp(ours)) + close(mkstemp(theirs)), 0);
        export(ours, folder);
        must(spry_model_open(&model, ours, &error), &error);
        check_tensors(model->gguf, written[i].model, written[i].ends, written[i].layers);
        write_as_converter(theirs, model->gguf, model->config.arch->gguf, written[i].keys);
        spry_model_close(model);
        same_logits(ours, theirs, folder, written[i].model);
        unlink(ours);
        unlink(theirs);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_as_the_converter_writes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
