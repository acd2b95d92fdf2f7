/* The table of paths and their handlers. HEAD is handled as GET; the connection omits the body. */

#include <stdio.h>

#include "server/api/apis.h"
#include "server/http/exchange.h"
#include "web/web_page.h"

#define PAGE_ROUTE(symbol, path, file, type) {"GET", path, spry_page_file, SPRY_ERRORS_OPENAI, SPRY_ROUTE_OPEN},
#define LIBRARY_ROUTE(symbol, path)          {"GET", path, spry_page_library, SPRY_ERRORS_OPENAI, SPRY_ROUTE_OPEN},

static const spry_route routes[] = {
    {"GET", "/page.json", spry_page_features, SPRY_ERRORS_OPENAI, SPRY_ROUTE_OPEN},
    {"GET", "/health", spry_status_health, SPRY_ERRORS_OPENAI, SPRY_ROUTE_OPEN},
    {"GET", "/metrics", spry_status_metrics, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"GET", "/watch", spry_status_watch, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},

    {"POST", "/v1/chat/completions", spry_openai_chat, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"POST", "/v1/completions", spry_openai_completion, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"POST", "/v1/embeddings", spry_openai_embeddings, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"GET", "/v1/models", spry_openai_models, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"GET", "/v1/models/*", spry_openai_model, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"GET", "/v1/settings", spry_openai_settings, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"GET", "/v1/catalogue", spry_catalogue_reply, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"GET", "/v1/audio", spry_audio_parts, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"POST", "/v1/audio/transcriptions", spry_audio_transcriptions, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"POST", "/v1/audio/translations", spry_audio_translations, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"POST", "/v1/audio/speech", spry_audio_speech, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"POST", "/v1/documents/text", spry_documents_text, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"POST", "/v1/documents/pages", spry_documents_pages, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"GET", "/v1/tools", spry_tools_list, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"POST", "/v1/tools/call", spry_tools_call, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"POST", "/v1/responses", spry_responses_create, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"POST", "/v1/responses/input_tokens", spry_responses_count, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"POST", "/v1/responses/compact", spry_responses_compact, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"GET", "/v1/responses/*", spry_responses_get, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"DELETE", "/v1/responses/*", spry_responses_delete, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"GET", "/v1/streams/*", spry_streams_read, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"DELETE", "/v1/streams/*", spry_streams_cancel, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"POST", "/v1/messages", spry_anthropic_messages, SPRY_ERRORS_ANTHROPIC, SPRY_ROUTE_KEYED},
    {"POST", "/v1/messages/count_tokens", spry_anthropic_count, SPRY_ERRORS_ANTHROPIC, SPRY_ROUTE_KEYED},
    {"POST", "/v1/chat/completions/input_tokens", spry_openai_chat_count, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"POST", "/chat/completions/input_tokens", spry_openai_chat_count, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"POST", "/chat/completions", spry_openai_chat, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"POST", "/embeddings", spry_openai_embeddings, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"POST", "/responses", spry_responses_create, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"GET", "/models", spry_openai_models, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"POST", "/models/pin", spry_models_pin, SPRY_ERRORS_OPENAI, SPRY_ROUTE_ADMIN},
    {"POST", "/models/load", spry_models_load, SPRY_ERRORS_OPENAI, SPRY_ROUTE_ADMIN},
    {"POST", "/models/unload", spry_models_unload, SPRY_ERRORS_OPENAI, SPRY_ROUTE_ADMIN},

    {"POST", "/completion", spry_llama_completion, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"POST", "/completions", spry_llama_completion, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"POST", "/infill", spry_llama_infill, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"POST", "/rerank", spry_llama_rerank, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"POST", "/reranking", spry_llama_rerank, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"POST", "/v1/rerank", spry_llama_rerank, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"POST", "/v1/reranking", spry_llama_rerank, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"GET", "/v1/health", spry_status_health, SPRY_ERRORS_OPENAI, SPRY_ROUTE_OPEN},
    {"POST", "/tokenize", spry_llama_tokenize, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"POST", "/detokenize", spry_llama_detokenize, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"POST", "/apply-template", spry_llama_apply_template, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"GET", "/props", spry_llama_props, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"GET", "/slots", spry_llama_slots, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"GET", "/lora-adapters", spry_llama_adapters, SPRY_ERRORS_OPENAI, SPRY_ROUTE_KEYED},
    {"POST", "/lora-adapters", spry_llama_set_adapters, SPRY_ERRORS_OPENAI, SPRY_ROUTE_ADMIN},

    {"POST", "/api/generate", spry_ollama_generate, SPRY_ERRORS_OLLAMA, SPRY_ROUTE_KEYED},
    {"POST", "/api/chat", spry_ollama_chat, SPRY_ERRORS_OLLAMA, SPRY_ROUTE_KEYED},
    {"GET", "/api/tags", spry_ollama_tags, SPRY_ERRORS_OLLAMA, SPRY_ROUTE_KEYED},
    {"GET", "/api/ps", spry_ollama_ps, SPRY_ERRORS_OLLAMA, SPRY_ROUTE_KEYED},
    {"POST", "/api/show", spry_ollama_show, SPRY_ERRORS_OLLAMA, SPRY_ROUTE_KEYED},
    {"POST", "/api/create", spry_ollama_create, SPRY_ERRORS_OLLAMA, SPRY_ROUTE_ADMIN},
    {"POST", "/api/copy", spry_ollama_copy, SPRY_ERRORS_OLLAMA, SPRY_ROUTE_ADMIN},
    {"DELETE", "/api/delete", spry_ollama_delete, SPRY_ERRORS_OLLAMA, SPRY_ROUTE_ADMIN},
    {"GET", "/api/version", spry_ollama_version, SPRY_ERRORS_OLLAMA, SPRY_ROUTE_OPEN},
    {"POST", "/api/embed", spry_ollama_embed, SPRY_ERRORS_OLLAMA, SPRY_ROUTE_KEYED},
    {"POST", "/api/embeddings", spry_ollama_embed_one, SPRY_ERRORS_OLLAMA, SPRY_ROUTE_KEYED},
    {"GET", "/api/chats", spry_stored_list, SPRY_ERRORS_OLLAMA, SPRY_ROUTE_KEYED},
    {"POST", "/api/chats", spry_stored_create, SPRY_ERRORS_OLLAMA, SPRY_ROUTE_KEYED},
    {"GET", "/api/chats/*", spry_stored_read, SPRY_ERRORS_OLLAMA, SPRY_ROUTE_KEYED},
    {"POST", "/api/chats/*", spry_stored_change, SPRY_ERRORS_OLLAMA, SPRY_ROUTE_KEYED},
    {"DELETE", "/api/chats/*", spry_stored_delete, SPRY_ERRORS_OLLAMA, SPRY_ROUTE_KEYED},
    {"POST", "/api/pull", spry_ollama_pull, SPRY_ERRORS_OLLAMA, SPRY_ROUTE_ADMIN},

    SPRY_WEB_FILES(PAGE_ROUTE) /* the page */
    SPRY_WEB_LIBRARIES(LIBRARY_ROUTE)};

static bool matches(const spry_route *route, const char *path, const char **tail)
{
    spry_view pattern = spry_view_of(route->path);
    *tail = "";
    if (!spry_view_ends(pattern, SPRY_VIEW("*")))
        return strcmp(route->path, path) == 0;
    pattern.size--;
    if (!spry_view_starts(spry_view_of(path), pattern))
        return false;
    *tail = path + pattern.size;
    return true;
}

const spry_route *spry_route_find(const char *method, const char *path, const char **tail, char allowed[64])
{
    const char *asked = strcmp(method, "HEAD") == 0 ? "GET" : method;
    allowed[0] = '\0';
    for (size_t i = 0; i < SPRY_COUNT(routes); i++) {
        if (!matches(&routes[i], path, tail))
            continue;
        if (strcmp(routes[i].method, asked) == 0)
            return &routes[i];
        size_t n = strlen(allowed);
        snprintf(allowed + n, 64 - n, "%s%s", n ? ", " : "",
                 strcmp(routes[i].method, "GET") == 0 ? "GET, HEAD" : routes[i].method);
    }
    return NULL;
}
