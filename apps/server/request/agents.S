/* agents.json, ended by a zero. CMake sets the include folder. */
#include "base/embed.S"

    embed_begin

    embed spry_agents_json
    .incbin "agents.json"
    .byte 0

    embed_end
