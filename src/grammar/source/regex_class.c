#include "grammar/source/regex_class.h"

#include <pthread.h>
#include <utf8proc.h>

#include "grammar/ir/grow.h"
#include "grammar/source/code_ranges.h"

void spry_code_set_add(spry_code_set *set, uint32_t first, uint32_t last)
{
    if (set->failed || !spry_grow(&set->ranges, &set->room, set->count + 1, sizeof *set->ranges))
        set->failed = true;
    else
        set->ranges[set->count++] = (spry_code_range){first, last};
}

/* The complement, without surrogates. */
static void invert(spry_code_set *set)
{
    size_t n = spry_code_ranges_normalize(set->ranges, set->count);
    if (set->failed || !spry_grow(&set->ranges, &set->room, 2 * n + 1, sizeof *set->ranges)) {
        set->failed = true;
        return;
    }
    set->count = spry_code_ranges_invert(set->ranges + n, set->ranges, n);
    memmove(set->ranges, set->ranges + n, set->count * sizeof *set->ranges);
}

static void add_all(spry_code_set *set, const spry_code_range *ranges, size_t count)
{
    for (size_t i = 0; i < count; i++)
        spry_code_set_add(set, ranges[i].first, ranges[i].last);
}

/* Adds a set, or its complement. */
static void add_maybe_negated(spry_code_set *set, spry_code_set *added, bool negated)
{
    if (negated)
        invert(added);
    add_all(set, added->ranges, added->count);
    set->failed |= added->failed;
    free(added->ranges);
}

bool spry_regex_add_letter(spry_code_set *set, int letter)
{
    static const spry_code_range digits[] = {{'0', '9'}};
    static const spry_code_range words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    static const spry_code_range spaces[] = {{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680},
                                             {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                                             {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
    spry_code_set added = {0};
    switch (letter | 0x20) {
    case 'd': add_all(&added, digits, SPRY_COUNT(digits)); break;
    case 'w': add_all(&added, words, SPRY_COUNT(words)); break;
    case 's': add_all(&added, spaces, SPRY_COUNT(spaces)); break;
    default: return false;
    }
    add_maybe_negated(set, &added, letter < 'a');
    return true;
}

/* Categories are ranges of utf8proc's numbering: a one-letter category covers all that begin with the letter. */
static const struct category {
    const char *name, *long_name;
    utf8proc_category_t first, last;
} categories[] = {
    {"L", "Letter", UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LO},
    {"Lu", "Uppercase_Letter", UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LU},
    {"Ll", "Lowercase_Letter", UTF8PROC_CATEGORY_LL, UTF8PROC_CATEGORY_LL},
    {"Lt", "Titlecase_Letter", UTF8PROC_CATEGORY_LT, UTF8PROC_CATEGORY_LT},
    {"LC", "Cased_Letter", UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LT},
    {"Lm", "Modifier_Letter", UTF8PROC_CATEGORY_LM, UTF8PROC_CATEGORY_LM},
    {"Lo", "Other_Letter", UTF8PROC_CATEGORY_LO, UTF8PROC_CATEGORY_LO},
    {"Combining_Mark", "Mark", UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME},
    {"M", "Mark", UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME},
    {"Mn", "Nonspacing_Mark", UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_MN},
    {"Mc", "Spacing_Mark", UTF8PROC_CATEGORY_MC, UTF8PROC_CATEGORY_MC},
    {"Me", "Enclosing_Mark", UTF8PROC_CATEGORY_ME, UTF8PROC_CATEGORY_ME},
    {"N", "Number", UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO},
    {"digit", "Decimal_Number", UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_ND},
    {"Nd", "Decimal_Number", UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_ND},
    {"Nl", "Letter_Number", UTF8PROC_CATEGORY_NL, UTF8PROC_CATEGORY_NL},
    {"No", "Other_Number", UTF8PROC_CATEGORY_NO, UTF8PROC_CATEGORY_NO},
    {"punct", "Punctuation", UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO},
    {"P", "Punctuation", UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO},
    {"Pc", "Connector_Punctuation", UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PC},
    {"Pd", "Dash_Punctuation", UTF8PROC_CATEGORY_PD, UTF8PROC_CATEGORY_PD},
    {"Ps", "Open_Punctuation", UTF8PROC_CATEGORY_PS, UTF8PROC_CATEGORY_PS},
    {"Pe", "Close_Punctuation", UTF8PROC_CATEGORY_PE, UTF8PROC_CATEGORY_PE},
    {"Pi", "Initial_Punctuation", UTF8PROC_CATEGORY_PI, UTF8PROC_CATEGORY_PI},
    {"Pf", "Final_Punctuation", UTF8PROC_CATEGORY_PF, UTF8PROC_CATEGORY_PF},
    {"Po", "Other_Punctuation", UTF8PROC_CATEGORY_PO, UTF8PROC_CATEGORY_PO},
    {"S", "Symbol", UTF8PROC_CATEGORY_SM, UTF8PROC_CATEGORY_SO},
    {"Sm", "Math_Symbol", UTF8PROC_CATEGORY_SM, UTF8PROC_CATEGORY_SM},
    {"Sc", "Currency_Symbol", UTF8PROC_CATEGORY_SC, UTF8PROC_CATEGORY_SC},
    {"Sk", "Modifier_Symbol", UTF8PROC_CATEGORY_SK, UTF8PROC_CATEGORY_SK},
    {"So", "Other_Symbol", UTF8PROC_CATEGORY_SO, UTF8PROC_CATEGORY_SO},
    {"Z", "Separator", UTF8PROC_CATEGORY_ZS, UTF8PROC_CATEGORY_ZP},
    {"Zs", "Space_Separator", UTF8PROC_CATEGORY_ZS, UTF8PROC_CATEGORY_ZS},
    {"Zl", "Line_Separator", UTF8PROC_CATEGORY_ZL, UTF8PROC_CATEGORY_ZL},
    {"Zp", "Paragraph_Separator", UTF8PROC_CATEGORY_ZP, UTF8PROC_CATEGORY_ZP},
    {"cntrl", "Control", UTF8PROC_CATEGORY_CC, UTF8PROC_CATEGORY_CC},
    {"Cc", "Control", UTF8PROC_CATEGORY_CC, UTF8PROC_CATEGORY_CC},
    {"Cf", "Format", UTF8PROC_CATEGORY_CF, UTF8PROC_CATEGORY_CF},
    {"Co", "Private_Use", UTF8PROC_CATEGORY_CO, UTF8PROC_CATEGORY_CO},
    {"Cn", "Unassigned", UTF8PROC_CATEGORY_CN, UTF8PROC_CATEGORY_CN},
};

/* Runs of code points of one category, in order. Asking for each code point takes long, so it is done once. */
static struct category_run {
    spry_code_range range;
    utf8proc_category_t of;
} * runs;
static size_t n_runs; /* 0: memory was short */
static pthread_once_t runs_found = PTHREAD_ONCE_INIT;

static void find_runs(void)
{
    size_t room = 0;
    for (uint32_t point = 0; point <= SPRY_CODE_LAST; point++) {
        utf8proc_category_t of = utf8proc_category((utf8proc_int32_t)point);
        if (n_runs && runs[n_runs - 1].of == of) {
            runs[n_runs - 1].range.last = point;
            continue;
        }
        if (!spry_grow(&runs, &room, n_runs + 1, sizeof *runs)) {
            n_runs = 0;
            return;
        }
        runs[n_runs++] = (struct category_run){{point, point}, of};
    }
}

static void add_category(spry_code_set *set, const struct category *category)
{
    pthread_once(&runs_found, find_runs);
    set->failed |= n_runs == 0;
    for (size_t i = 0; i < n_runs; i++)
        if (runs[i].of >= category->first && runs[i].of <= category->last)
            spry_code_set_add(set, runs[i].range.first, runs[i].range.last);
}

bool spry_regex_add_property(spry_code_set *set, spry_view name, bool negated)
{
    static const char *const prefixes[] = {"General_Category=", "gc="};
    for (size_t i = 0; i < SPRY_COUNT(prefixes); i++) {
        spry_view prefix = spry_view_of(prefixes[i]);
        if (spry_view_starts(name, prefix))
            name = (spry_view){name.data + prefix.size, name.size - prefix.size};
    }
    spry_code_set added = {0};
    bool known = true;
    if (spry_view_is(name, "Any")) {
        spry_code_set_add(&added, 0, SPRY_CODE_LAST);
    } else if (spry_view_is(name, "ASCII")) {
        spry_code_set_add(&added, 0, 0x7F);
    } else {
        size_t i = 0;
        while (i < SPRY_COUNT(categories) && !spry_view_is(name, categories[i].name) &&
               !spry_view_is(name, categories[i].long_name))
            i++;
        known = i < SPRY_COUNT(categories);
        if (known)
            add_category(&added, &categories[i]);
    }
    add_maybe_negated(set, &added, negated && known);
    return known;
}
