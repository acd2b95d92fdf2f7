/* Pictures in the interactive chat: `/image FILE`, and paths that a terminal pastes when a file is dropped on it. In
 * the conversation a picture is a line `[image: PATH]` at the beginning of a user's message. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "base/utf8.h"
#include "chat/chat_loop.h"
#include "cli/terminal.h"
#include "platform/file.h"

enum { PATH_BYTES = 4096 };

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Lets the model see the picture, which is then found again when the message is answered. */
static spry_status look(spry_chat_loop *c, const char *path, spry_error *error)
{
    spry_chat_prompt prompt = {0};
    char tokens[SPRY_AMOUNT_MAX];
    json_t *parts = json_array();
    spry_status status = spry_parts_add_image(parts, path, error);
    json_t *request = json_pack("{s:[{s:s, s:o}]}", "messages", "role", "user", "content", parts);
    char *json = request ? spry_json_text(request, 0) : NULL;
    if (!status)
        status = json ? spry_engine_chat_prompt(c->job.engine, &prompt, json, strlen(json), error)
                      : spry_fail_memory(error, "a picture", 0);
    if (!status)
        spry_chat_note("%.200s: %zu tokens, seen in %s.", file_name(path), (size_t)prompt.picture_tokens,
                       spry_amount_time(tokens, prompt.preprocess_ms + prompt.encode_ms));
    spry_chat_prompt_deinit(&prompt);
    json_decref(request);
    free(json);
    return status;
}

bool spry_chat_picture_add(spry_chat_loop *c, const char *path)
{
    spry_error error;
    char *whole = realpath(path, NULL);
    size_t before = c->pictures.size;
    if (!spry_engine_sees(c->job.engine)) {
        spry_complain("%s cannot see pictures: it is a model of text", c->job.source.name);
    } else if (!whole) {
        spry_complain("%.200s: there is no such file", path);
    } else if (strchr(whole, '\n') || !spry_utf8_valid(spry_view_of(whole))) {
        spry_complain("%.200s: a chat cannot store this name", path);
    } else if (look(c, whole, &error) != SPRY_OK) {
        spry_complain("%.200s: %s", file_name(whole), error.message);
    } else {
        spry_image_line(&c->pictures, whole);
        if (c->pictures.failed)
            spry_complain("not enough memory");
    }
    free(whole);
    return c->pictures.size > before;
}

void spry_chat_pictures_drop(spry_chat_loop *c)
{
    spry_buffer_clear(&c->pictures);
}

/* ---- pasted paths ------------------------------------------------------------------------------------------------ */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* A picture file that can be there: its name has a folder and one of the endings. */
static bool is_picture_file(const char *path)
{
    static const char *const endings[] = {".png", ".jpg", ".jpeg", ".webp", ".gif"};
    size_t size = strlen(path);
    bool named = false;
    for (size_t i = 0; i < SPRY_COUNT(endings); i++) {
        size_t n = strlen(endings[i]);
        named = named || (size > n && strcasecmp(path + size - n, endings[i]) == 0);
    }
    return named && strchr(path, '/') && spry_path_exists(path) && !spry_path_is_folder(path);
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

/* The path in a word: of a file:// URL without the scheme, with %20 and the like decoded. */
static void unfold(spry_buffer *path, spry_view word)
{
    static const char scheme[] = "file://";
    bool url = word.size > sizeof scheme && memcmp(word.data, scheme, sizeof scheme - 1) == 0;
    spry_buffer_clear(path);
    if (url)
        word = (spry_view){word.data + sizeof scheme - 1, word.size - sizeof scheme + 1};
    for (size_t i = 0; i < word.size; i++) {
        int high = url && word.data[i] == '%' && i + 2 < word.size ? hex_digit(word.data[i + 1]) : -1;
        int low = high >= 0 ? hex_digit(word.data[i + 2]) : -1;
        char c = low >= 0 ? (char)(high * 16 + low) : word.data[i];
        if (c)
            spry_buffer_append(path, &c, 1);
        i += low >= 0 ? 2 : 0;
    }
}

/* The word at the beginning of `text` as a shell would read it, without quotes and escapes; returns its length. */
static size_t read_word(spry_buffer *word, spry_view text)
{
    char quote = text.data[0] == '\'' || text.data[0] == '"' ? text.data[0] : 0;
    const char *end = quote ? memchr(text.data + 1, quote, text.size - 1) : NULL;
    spry_buffer_clear(word);
    if (end && ((size_t)(end + 1 - text.data) == text.size || is_blank(end[1]))) {
        spry_buffer_append(word, text.data + 1, (size_t)(end - text.data) - 1);
        return (size_t)(end + 1 - text.data);
    }
    size_t i = 0;
    for (; i < text.size && !is_blank(text.data[i]); i++) {
        i += text.data[i] == '\\' && i + 1 < text.size;
        spry_buffer_append(word, text.data + i, 1);
    }
    return i;
}

/* True, with the path, if the word names a picture file; `after`: bytes of punctuation that follow the name. */
static bool names_picture(spry_buffer *path, size_t *after, spry_view word)
{
    *after = 0;
    unfold(path, word);
    while (!is_picture_file(spry_buffer_view(path).data) && word.size && strchr("?!.,;:)", word.data[word.size - 1])) {
        word.size--;
        ++*after;
        unfold(path, word);
    }
    return is_picture_file(spry_buffer_view(path).data);
}

static spry_view trimmed(spry_view text)
{
    while (text.size && is_blank(text.data[text.size - 1]))
        text.size--;
    while (text.size && is_blank(text.data[0]))
        text = (spry_view){text.data + 1, text.size - 1};
    return text;
}

/* Copies `text`, with names in place of paths of pictures, which are added. *words: whether there is anything else. */
static bool take_paths(spry_chat_loop *c, spry_buffer *out, bool *words, spry_view text)
{
    spry_buffer word, path;
    bool fine = true;
    size_t after;
    spry_buffer_init(&word, text.size + PATH_BYTES);
    spry_buffer_init(&path, text.size + PATH_BYTES);
    unfold(&path, text);
    *words = false;
    if (is_picture_file(spry_buffer_view(&path).data)) { /* a path with blanks that the terminal did not escape */
        fine = spry_chat_picture_add(c, path.data);
        text.size = 0;
    }
    while (fine && text.size) {
        size_t n = 0;
        while (n < text.size && is_blank(text.data[n]))
            n++;
        spry_buffer_append(out, text.data, n);
        text = (spry_view){text.data + n, text.size - n};
        if (!text.size)
            break;
        n = read_word(&word, text);
        if (names_picture(&path, &after, spry_buffer_view(&word))) {
            fine = spry_chat_picture_add(c, path.data);
            spry_buffer_text(out, file_name(path.data));
            spry_buffer_append(out, text.data + n - after, after);
        } else {
            spry_buffer_append(out, text.data, n);
            *words = true;
        }
        text = (spry_view){text.data + n, text.size - n};
    }
    spry_buffer_deinit(&word);
    spry_buffer_deinit(&path);
    return fine;
}

bool spry_chat_pictures_message(spry_chat_loop *c, spry_buffer *message, spry_view text)
{
    spry_buffer words;
    bool has_words = true, fine = true;
    size_t before = c->pictures.size;
    spry_buffer_init(&words, text.size + PATH_BYTES);
    if (spry_engine_sees(c->job.engine))
        fine = take_paths(c, &words, &has_words, trimmed(text));
    if (!fine)
        c->pictures.size = before;
    if (fine && !has_words)
        spry_chat_note("Now ask about it; /image alone leaves it out again.");
    if (fine && has_words) {
        const spry_view lines = spry_buffer_view(&c->pictures), rest = spry_buffer_view(&words);
        bool changed = c->pictures.size > before;
        spry_buffer_append(message, lines.data, lines.size);
        spry_buffer_append(message, changed ? rest.data : text.data, changed ? rest.size : text.size);
    }
    spry_buffer_deinit(&words);
    return fine && has_words;
}
