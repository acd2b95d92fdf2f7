/* The list. */
#include "golden/golden_models.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "platform/file.h"

const char *const golden_models[] = {
    "gemma",         "gemma2",        "gemma3",      "llama",          "llama-256",
    "llama3-rope",   "mistral-swa",   "mixtral",     "qwen2",          "qwen2-moe",
    "qwen3",         "qwen3-moe",     "phi3",        "phi4-mini",      "olmo2",
    "granite",       "smollm3",       "glm4",        "cohere",         "cohere2",
    "exaone4",       "seed-oss",      "ernie4.5",    "hunyuan",        "starcoder2",
    "granite-moe",   "glm4-moe",      "gpt-oss",     "gpt-oss-mxfp4",  "ernie4.5-moe",
    "qwen3-fp8",     "deepseek-v2",   "deepseek-v3", "gemma3n",        "lfm2",
    "qwen3-next",    "ministral3",    "mistral4",    "minimax-m2",     "hunyuan-moe",
    "exaone-moe",    "glm4-moe-lite", "lfm2-moe",    "llama4",         "afmoe",
    "cohere2-moe",   "gemma4-dense",  "gemma4-ple",  "gemma4-moe",     "mimo-v2-flash",
    "qwen3.5",       "qwen3.5-moe",   "mamba2",      "granite-hybrid", "granite-hybrid-dense",
    "bamba",         "falcon-h1",     "nemotron-h",  "nemotron-h-moe", "olmo-hybrid",
    "deepseek-v3.2", "glm-moe-dsa",   "zamba2",      "deepseek-v4",    NULL,
};

const char *const golden_heads[] = {"qwen3.5", "qwen3-next-mtp", "glm4-moe-mtp", NULL};

const char *const golden_recurrent[] = {
    "qwen3-next",           "qwen3.5", "qwen3.5-moe", "mamba2",     "granite-hybrid",
    "granite-hybrid-dense", "bamba",   "falcon-h1",   "nemotron-h", "nemotron-h-moe",
    "olmo-hybrid",          "zamba2",  NULL};

bool golden_recurs(const char *model)
{
    for (size_t i = 0; golden_recurrent[i]; i++)
        if (!strcmp(model, golden_recurrent[i]))
            return true;
    return false;
}

const char *golden_only;

bool golden_folder(char path[512], const char *model)
{
    if (golden_only && strcmp(golden_only, model) != 0)
        return false;
    snprintf(path, 512, "%s/models/%s", GOLDEN_DATA, model);
    if (!spry_path_is_folder(path))
        fail_msg("%s is not there", path);
    return true;
}
