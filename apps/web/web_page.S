/* The bytes of the web page; CMake sets the include folder of the files. The scripts are concatenated in this order:
 * those that only declare, then page.js, which starts them. */
    .section .rodata

    .macro begin name
    .global spry_web_\name\()_begin
    .hidden spry_web_\name\()_begin
    .type spry_web_\name\()_begin, %object
spry_web_\name\()_begin:
    .endm

    .macro end name
    .global spry_web_\name\()_end
    .hidden spry_web_\name\()_end
    .type spry_web_\name\()_end, %object
spry_web_\name\()_end:
    .byte 0
    .endm

    begin html
    .incbin "page.html"
    end html

    begin css
    .incbin "page.css"
    .incbin "attachments.css"
    .incbin "figures.css"
    .incbin "compare.css"
    end css

    begin js
    .incbin "messages.js"
    .incbin "messages_views.js"
    .incbin "language.js"
    .incbin "dom.js"
    .incbin "words.js"
    .incbin "markdown_inline.js"
    .incbin "markdown.js"
    .incbin "libraries.js"
    .incbin "tree.js"
    .incbin "store.js"
    .incbin "server.js"
    .incbin "schemas.js"
    .incbin "tools.js"
    .incbin "models.js"
    .incbin "documents.js"
    .incbin "attachments.js"
    .incbin "settings.js"
    .incbin "terms.js"
    .incbin "timings.js"
    .incbin "context.js"
    .incbin "message.js"
    .incbin "transcripts.js"
    .incbin "conversations.js"
    .incbin "speaker.js"
    .incbin "listener.js"
    .incbin "watch_parts.js"
    .incbin "stored_chats.js"
    .incbin "chat.js"
    .incbin "answers.js"
    .incbin "watch.js"
    .incbin "compare.js"
    .incbin "keys.js"
    .incbin "page.js"
    end js

    begin microphone
    .incbin "microphone.js"
    end microphone

    /* Libraries of the system, compressed; empty when they were not there. */
    begin highlight
#ifdef SPRY_HIGHLIGHT_FILE
    .incbin SPRY_HIGHLIGHT_FILE
#endif
    end highlight

    begin katex
#ifdef SPRY_KATEX_FILE
    .incbin SPRY_KATEX_FILE
#endif
    end katex

    .section .note.GNU-stack, "", %progbits
