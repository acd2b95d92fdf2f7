/* What the two halves of OpenAI's Responses share. */
#ifndef SPRY_SERVER_API_RESPONSES_H
#define SPRY_SERVER_API_RESPONSES_H

/* "encrypted_content" of this server's thoughts and summaries begins with this, and is their text. Clients send it
 * back, so nothing needs to be kept here; content of other servers cannot be read. */
#define SPRY_KEPT_THOUGHT "spry:"

#endif
