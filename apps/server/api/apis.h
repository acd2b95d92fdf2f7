/* The handlers of all paths; http_route.c has the table of routes. */
#ifndef SPRY_SERVER_APIS_H
#define SPRY_SERVER_APIS_H

#include "server/http/exchange.h"

void spry_page_file(spry_exchange *exchange);    /* a file of the list SPRY_WEB_FILES */
void spry_page_library(spry_exchange *exchange); /* a file of the list SPRY_WEB_LIBRARIES */
void spry_catalogue_reply(spry_exchange *exchange);
void spry_page_features(spry_exchange *exchange); /* which libraries the program has, and what the server allows */

void spry_status_health(spry_exchange *exchange);
void spry_status_metrics(spry_exchange *exchange);
void spry_status_watch(spry_exchange *exchange);

void spry_openai_chat_count(spry_exchange *exchange);
void spry_openai_settings(spry_exchange *exchange);
void spry_openai_chat(spry_exchange *exchange);
void spry_openai_completion(spry_exchange *exchange);
void spry_openai_embeddings(spry_exchange *exchange);
void spry_openai_models(spry_exchange *exchange);
void spry_openai_model(spry_exchange *exchange);
void spry_audio_parts(spry_exchange *exchange);
void spry_audio_transcriptions(spry_exchange *exchange);
void spry_audio_translations(spry_exchange *exchange);
void spry_audio_speech(spry_exchange *exchange);
void spry_documents_text(spry_exchange *exchange);
void spry_documents_pages(spry_exchange *exchange);
void spry_tools_list(spry_exchange *exchange);
void spry_tools_call(spry_exchange *exchange);
/* Whether the addresses of --allow-tool (NULL: none) are tools of this machine. */
spry_status spry_tools_check(const char *allowed, spry_error *error);
void spry_models_pin(spry_exchange *exchange);
void spry_models_load(spry_exchange *exchange);
void spry_models_unload(spry_exchange *exchange);
/* "encrypted_content" of this server's thoughts and summaries begins with this, and is their text. Clients send it
 * back, so nothing needs to be kept here; content of other servers cannot be read. */
#define SPRY_KEPT_THOUGHT "spry:"
void spry_responses_create(spry_exchange *exchange);
void spry_responses_count(spry_exchange *exchange);
void spry_responses_compact(spry_exchange *exchange);
void spry_responses_get(spry_exchange *exchange);
void spry_responses_delete(spry_exchange *exchange);

void spry_anthropic_messages(spry_exchange *exchange);
void spry_anthropic_count(spry_exchange *exchange);

void spry_llama_completion(spry_exchange *exchange);
void spry_llama_infill(spry_exchange *exchange);
void spry_llama_rerank(spry_exchange *exchange);
void spry_llama_tokenize(spry_exchange *exchange);
void spry_llama_detokenize(spry_exchange *exchange);
void spry_llama_apply_template(spry_exchange *exchange);
void spry_llama_props(spry_exchange *exchange);
void spry_llama_slots(spry_exchange *exchange);
void spry_llama_adapters(spry_exchange *exchange);
void spry_llama_set_adapters(spry_exchange *exchange);

void spry_ollama_generate(spry_exchange *exchange);
void spry_ollama_chat(spry_exchange *exchange);
void spry_ollama_tags(spry_exchange *exchange);
void spry_ollama_ps(spry_exchange *exchange);
void spry_ollama_show(spry_exchange *exchange);
void spry_ollama_create(spry_exchange *exchange);
void spry_ollama_copy(spry_exchange *exchange);
void spry_ollama_delete(spry_exchange *exchange);
void spry_ollama_version(spry_exchange *exchange);
void spry_ollama_embed(spry_exchange *exchange);
void spry_ollama_embed_one(spry_exchange *exchange);
void spry_ollama_pull(spry_exchange *exchange);

/* Streams that outlive their connection. */
void spry_streams_read(spry_exchange *exchange);
void spry_streams_cancel(spry_exchange *exchange);

/* Stored chats. */
void spry_stored_list(spry_exchange *exchange);
void spry_stored_create(spry_exchange *exchange);
void spry_stored_read(spry_exchange *exchange);
void spry_stored_change(spry_exchange *exchange);
void spry_stored_delete(spry_exchange *exchange);

#endif
