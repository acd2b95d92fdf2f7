/* The array of architectures. The order matters only for GGUF: Mistral and Mixtral are stored as "llama", and the first
 * match wins. */
#include "model/arch.h"

static const spry_arch *const table[] = {
    &spry_arch_llama,
    &spry_arch_mistral,
    &spry_arch_mixtral,
    &spry_arch_qwen2,
    &spry_arch_qwen2_moe,
    &spry_arch_qwen3,
    &spry_arch_qwen3_moe,
    &spry_arch_gemma,
    &spry_arch_gemma2,
    &spry_arch_gemma3,
    &spry_arch_phi3,
    &spry_arch_olmo2,
    &spry_arch_granite,
    &spry_arch_smollm3,
    &spry_arch_glm4,
    &spry_arch_cohere,
    &spry_arch_cohere2,
    &spry_arch_exaone4,
    &spry_arch_seed_oss,
    &spry_arch_ernie4_5,
    &spry_arch_hunyuan,
    &spry_arch_starcoder2,
    &spry_arch_granite_moe,
    &spry_arch_glm4_moe,
    &spry_arch_gpt_oss,
    &spry_arch_ernie4_5_moe,
    &spry_arch_deepseek_v2,
    &spry_arch_deepseek_v3,
    &spry_arch_gemma3n,
    &spry_arch_bert,
    &spry_arch_roberta,
    &spry_arch_xlm_roberta,
    &spry_arch_nomic_bert,
    &spry_arch_modern_bert,
    &spry_arch_gemma_embedding,
    &spry_arch_lfm2,
    &spry_arch_qwen3_next,
    &spry_arch_ministral3,
    &spry_arch_mistral4,
    &spry_arch_minimax_m2,
    &spry_arch_hunyuan_moe,
    &spry_arch_exaone_moe,
    &spry_arch_glm4_moe_lite,
    &spry_arch_lfm2_moe,
    &spry_arch_llama4,
    &spry_arch_afmoe,
    &spry_arch_cohere2_moe,
    &spry_arch_gemma4,
    &spry_arch_mimo2,
    &spry_arch_qwen3_5,
    &spry_arch_qwen3_5_moe,
    &spry_arch_mamba2,
    &spry_arch_granite_hybrid,
    &spry_arch_bamba,
    &spry_arch_olmo_hybrid,
    &spry_arch_falcon_h1,
    &spry_arch_nemotron_h,
    &spry_arch_nemotron_h_moe,
    &spry_arch_qwen3_vl,
    &spry_arch_qwen2_vl,
    &spry_arch_qwen3_tower,
    &spry_arch_qwen2_5_tower,
    &spry_arch_siglip,
    &spry_arch_siglip_first,
    &spry_arch_pixtral,
    &spry_arch_pixtral_gelu,
    &spry_arch_internvit,
    &spry_arch_gemma4_tower,
    &spry_arch_deepseek_v32,
    &spry_arch_glm_dsa,
    &spry_arch_zamba2,
    &spry_arch_deepseek_v4,
};

const spry_arch *spry_arch_by_gguf(spry_view name)
{
    for (size_t i = 0; i < SPRY_COUNT(table); i++)
        if (!table[i]->tower && table[i]->gguf && spry_view_is(name, table[i]->gguf))
            return table[i];
    return NULL;
}

const spry_arch *spry_arch_by_hf(spry_view model_type)
{
    for (size_t i = 0; i < SPRY_COUNT(table); i++)
        if (table[i]->hf_type && spry_view_is(model_type, table[i]->hf_type))
            return table[i];
    return NULL;
}

const char *spry_arch_gguf_names(void)
{
    return "llama, qwen2, qwen2moe, qwen3, qwen3moe, gemma, gemma2, gemma3, phi3, "
           "olmo2, granite, smollm3, glm4, command-r, cohere2, exaone4, seed_oss, ernie4_5, hunyuan-dense, starcoder2, "
           "granitemoe, glm4moe, gpt-oss, ernie4_5-moe, deepseek2, gemma3n, bert, nomic-bert, modern-bert, "
           "gemma-embedding, lfm2, "
           "qwen3next, mistral3, mistral4, minimax-m2, hunyuan-moe, exaone-moe, lfm2moe, llama4, afmoe, cohere2moe, "
           "gemma4, mimo2, "
           "qwen3_5_text, qwen3_5_moe_text, mamba2, granitemoehybrid, bamba, falcon_h1, nemotron_h, olmo-hybrid, "
           "qwen2vl, qwen3vl, deepseek32, glm-dsa, deepseek4";
}

const char *spry_arch_hf_names(void)
{
    return "llama, mistral, mixtral, qwen2, qwen2_moe, qwen3, qwen3_moe, gemma, gemma2, gemma3_text, phi3, "
           "olmo2, granite, smollm3, glm4, cohere, cohere2, exaone4, seed_oss, ernie4_5, hunyuan_v1_dense, starcoder2, "
           "granitemoe, glm4_moe, gpt_oss, ernie4_5_moe, deepseek_v2, deepseek_v3, gemma3n_text, bert, "
           "roberta, xlm-roberta, nomic_bert, modernbert, lfm2, qwen3_next, ministral3, mistral4, minimax_m2, "
           "hunyuan_v1_moe, "
           "exaone_moe, glm4_moe_lite, lfm2_moe, llama4_text, afmoe, cohere2_moe, gemma4_text, mimo_v2_flash, "
           "qwen3_5_text, qwen3_5_moe_text, mamba2, granitemoehybrid, bamba, falcon_h1, nemotron_h, "
           "olmo_hybrid, qwen2_5_vl_text, qwen3_vl_text, deepseek_v32, glm_moe_dsa, zamba2, deepseek_v4";
}
