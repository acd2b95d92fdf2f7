/* A table of published tokenizers. */
#include "tokenizer/pattern_names.h"

#include "tokenizer/pattern_scan.h"

#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define TAIL        "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SLASH_TAIL  "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER       "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER       "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(suffix)                                                                                                  \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" suffix "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" suffix
#define GPT2   "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define LLAMA3 CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" TAIL
#define QWEN2  CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" TAIL
#define QWEN35                                                                                                         \
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+"     \
                "|\\s+(?!\\S)|\\s+"
#define BLOOM " ?[^(\\s|.,!?…。，、।۔،)]+"
#define DEEPSEEK3_WORD                                                                                                 \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"                \
    "| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

const char spry_gpt2_regex[] = GPT2;

static const spry_named_pattern patterns[] = {
    {.names = {"gpt-2", "default", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "gigachat", "mellum",
               "modern-bert"},
     .regexes = {GPT2}},
    {.names = {"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"},
     .regexes = {LLAMA3},
     .ignore_merges = true,
     .add_bos = true},
    {.names = {"smaug-bpe", "dbrx", "glm4", "chatglm-bpe"}, .regexes = {LLAMA3}},
    {.names = {"qwen2"}, .regexes = {QWEN2}, .nfc = true},
    {.names = {"deepseek-r1-qwen", "stablelm2", "hunyuan", "kormo", "grok-2", "solar-open"}, .regexes = {QWEN2}},
    {.names = {"qwen35"}, .regexes = {QWEN35}, .nfc = true},
    {.names = {"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"},
     .regexes = {"\\p{N}", GPT2}},
    {.names = {"tekken"}, .regexes = {CASED("") "|\\p{N}" SLASH_TAIL}, .ignore_merges = true, .add_bos = true},
    {.names = {"gpt-4o", "llama4", "kanana2", "minimax-m2"},
     .regexes = {CASED(CONTRACTION "?") "|\\p{N}{1,3}" SLASH_TAIL}},
    {.names = {"deepseek-v3", "hunyuan-dense", "joyai-llm"},
     .regexes = {"\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK3_WORD}},
    {.names = {"deepseek-coder"},
     .regexes = {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[一-龥ࠀ-一가-퟿]+", "\\p{N}"}},
    {.names = {"falcon"}, .regexes = {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]"}},
    {.names = {"bloom", "poro-chat", "gpt3-finnish"}, .regexes = {BLOOM}},
    {.names = {"viking"}, .regexes = {BLOOM, "\\p{N}"}},
};

const spry_named_pattern *spry_named_pattern_find(spry_view name)
{
    for (size_t i = 0; i < SPRY_COUNT(patterns); i++)
        for (size_t k = 0; k < SPRY_PATTERN_NAMES_MAX && patterns[i].names[k]; k++)
            if (spry_view_is(name, patterns[i].names[k]))
                return &patterns[i];
    return NULL;
}

/* Whether two expressions split every text the same way: the same source, or spellings of one scanner. The spelling of
 * 's with a long s is ignored: GGUF has one name for both. */
static bool same_regex(spry_view a, spry_view b)
{
    spry_scan x, y;
    if (spry_view_equal(a, b))
        return true;
    return spry_scan_find(&x, a) && spry_scan_find(&y, b) && x.family == y.family && x.max_digits == y.max_digits;
}

static bool splits_alike(const spry_named_pattern *pattern, const spry_view *regexes, size_t count)
{
    if (count > SPRY_NAMED_REGEXES_MAX || (count < SPRY_NAMED_REGEXES_MAX && pattern->regexes[count]))
        return false;
    for (size_t i = 0; i < count; i++)
        if (!pattern->regexes[i] || !same_regex(regexes[i], spry_view_of(pattern->regexes[i])))
            return false;
    return true;
}

const spry_named_pattern *spry_named_pattern_of(const spry_view *regexes, size_t count, bool nfc, bool ignore_merges)
{
    const spry_named_pattern *best = NULL;
    int best_agreement = -1;
    for (size_t i = 0; i < SPRY_COUNT(patterns); i++) {
        int agreement = (patterns[i].nfc == nfc) + (patterns[i].ignore_merges == ignore_merges);
        if (agreement > best_agreement && splits_alike(&patterns[i], regexes, count)) {
            best = &patterns[i];
            best_agreement = agreement;
        }
    }
    return best;
}

void spry_named_pattern_list(spry_buffer *out)
{
    for (size_t i = 0; i < SPRY_COUNT(patterns); i++) {
        spry_buffer_text(out, i ? ", " : "");
        spry_buffer_text(out, patterns[i].names[0]);
    }
}
