#!/usr/bin/env bash
# scripts/check finds nothing in a small clean project and exactly the one fault planted in a copy of it, rule by rule.
# Words that the rules forbid are written in two halves here.
set -u
here=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

make_clean_project()
{
    mkdir -p "$work/clean" && cd "$work/clean" || exit 1
    mkdir -p include src/base src/platform src/formats src/kernels/x86 src/kv src/engine apps tests/unit scripts docs .ci
    cp "$here/scripts/check" scripts/check
    printf '#ifndef SPRY_H\n#define SPRY_H\nint spry_one(void);\n#endif\n' >include/spry.h
    printf '#ifndef COMPILER_H\n#define COMPILER_H\n#define SPRY_PACKED __attribute__((packed))\n#endif\n' \
        >src/base/compiler.h
    printf '#include "base/compiler.h"\n#include "spry.h"\n\nint spry_one(void)\n{\n    return 1;\n}\n' >src/base/one.c
    printf '#include <stdlib.h>\n\n#include "base/compiler.h"\n\nint spry_environment(void)\n{\n    return getenv("A") != 0;\n}\n' \
        >src/platform/environment.c
    printf '#include <stddef.h>\nsize_t spry_tensor(void);\n' >src/formats/tensor.h
    printf 'int spry_ops(void);\n' >src/kernels/ops.h
    printf '#include "kernels/ops.h"\n\nint spry_ops(void)\n{\n    return __builtin_popcount(1u);\n}\n' \
        >src/kernels/x86/ops_avx2.c
    printf '/* printf( strcpy( in a comment */\n#include "formats/tensor.h"\n\nconst char *spry_pages = "exit(1) abort() \\" puts(";\n' \
        >src/kv/pages.c
    printf '#include "kernels/ops.h"\n' >src/engine/engine.c
    printf '#include <stdio.h>\n\nint main(void)\n{\n    return printf("hello\\n") < 0;\n}\n' >apps/main.c
    printf 'int main(void)\n{\n    return 0;\n}\n' >tests/unit/test_one.c
    printf 'add_compile_options(-O3)\n' >CMakeLists.txt
    printf 'all:\n\tcmake .\n' >Makefile
}

report() # status, name, what went wrong
{
    if [ "$1" = 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAILED %s\n%s\n' "$2" "$3"
    fi
}

# plant NAME FINDING COMMAND: in a fresh copy, after COMMAND, the check must fail with one finding, which matches FINDING.
plant()
{
    local output status findings
    rm -rf "$work/copy"
    cp -r "$work/clean" "$work/copy"
    (cd "$work/copy" && eval "$3") || report 1 "$1" "could not plant the fault"
    output=$("$work/copy/scripts/check" 2>/dev/null)
    status=$?
    findings=$(grep -v ': warning: ' <<<"$output")
    [ "$status" = 1 ] && [ "$(wc -l <<<"$findings")" = 1 ] && grep -qE "^$2" <<<"$findings"
    report $? "$1" "$output"
}

# pass NAME WARNING COMMAND: the check must succeed, with a line that matches WARNING.
pass()
{
    local output status
    rm -rf "$work/copy"
    cp -r "$work/clean" "$work/copy"
    (cd "$work/copy" && eval "$3") || report 1 "$1" "could not change the copy"
    output=$("$work/copy/scripts/check" 2>/dev/null)
    status=$?
    [ "$status" = 0 ] && grep -qE "^$2" <<<"$output"
    report $? "$1" "$output"
}

lines() # count, line
{
    yes "$2" | head -n "$1"
}

append_function() # file, lines in all
{
    { echo && echo 'static int long_one(int a)' && echo '{' && lines $(($2 - 3)) '    a++;' && echo '    return a;' && echo '}'; } >>"$1"
}

make_library() # symbol
{
    mkdir -p build && echo "int $1(void); int $1(void) { return 1; }" >"build/object.c" &&
        cc -c build/object.c -o build/object.o && ar rc build/libspry.a build/object.o
}

make_clean_project
pass "clean project" "scripts/check:1: warning: no built library" true

plant "higher layer" 'src/base/one.c:8: base \(layer 0\) may not include kernels/ops.h' \
    "echo '#include \"kernels/ops.h\"' >>src/base/one.c"
plant "other folder of the same layer" 'src/kernels/ops.h:2: kernels \(layer 2\) may not include formats/tensor.h' \
    "echo '#include \"formats/tensor.h\"' >>src/kernels/ops.h"
plant "library includes a program's header" 'src/engine/engine.c:2: there is no main.h' \
    "echo '#include \"main.h\"' >>src/engine/engine.c"
plant "a program that looks into the library" 'apps/main.c:7: apps may include .* only, not kernels/ops.h' \
    "echo '#include \"kernels/ops.h\"' >>apps/main.c"
plant "include with dots" 'src/kv/pages.c:5: include ../base/compiler.h by its path' \
    "echo '#include \"../base/compiler.h\"' >>src/kv/pages.c"
plant "folder without a layer" 'src/extra/more.c:1: folder extra has no layer' \
    "mkdir src/extra && touch src/extra/more.c && echo '#include <stdio.h>' >src/extra/more.c"

plant "file too long" 'src/base/one.c:1501: the file has 1501 lines' "lines 1494 'extern int spry_x;' >>src/base/one.c"
pass "file rather long" 'src/base/one.c:801: warning: the file has 801 lines' \
    "lines 794 'extern int spry_x;' >>src/base/one.c"
plant "function too long" 'src/base/one.c:10: function long_one has 101 lines' "append_function src/base/one.c 101"
pass "function rather long" 'src/base/one.c:10: warning: function long_one has 81 lines' \
    "append_function src/base/one.c 81"
plant "public header too long" 'include/spry.h:601: the public header has 601 lines' "lines 597 '' >>include/spry.h"

for word in strcpy strcat sprintf vsprintf gets atoi atol atof strtok alloca; do
    plant "banned function $word" 'apps/main.c:7: banned function' "echo '#define BAD $word(x)' >>apps/main.c"
done
plant "text of JSON by jansson" 'apps/main.c:7: jansson leaves out keys' "echo '#define BAD json_dumps(x, 0)' >>apps/main.c"
for word in printf puts exit abort perror; do
    plant "library calls $word" 'src/base/one.c:8: the library never prints and never exits' \
        "echo '#define BAD $word (x)' >>src/base/one.c"
done
plant "library writes to stderr" 'src/base/one.c:8: the library never prints' \
    "echo '#define BAD fprintf(stderr, x)' >>src/base/one.c"
plant "getenv outside the platform layer" 'apps/main.c:7: the environment is read' \
    "echo '#define BAD getenv(x)' >>apps/main.c"
plant "Linux header outside the platform layer" 'src/base/one.c:8: what only Linux has' \
    "echo '#include <sys/pr''ctl.h>' >>src/base/one.c"
plant "Linux name outside the platform layer" 'apps/main.c:7: what only Linux has' \
    "echo '#define BAD POLLRD''HUP' >>apps/main.c"
plant "the other threads" 'src/base/one.c:8: use the threads of pthread.h' "echo '#include <threads.h>' >>src/base/one.c"
plant "compiler extension" 'src/base/one.c:8: compiler extensions belong' \
    "echo '#define BAD __attribute__((unused))' >>src/base/one.c"
plant "builtin" 'src/kv/pages.c:5: compiler extensions belong' "echo '#define BAD __builtin_clz(1)' >>src/kv/pages.c"
plant "this machine's instructions" 'CMakeLists.txt:2: flag' "echo 'add_compile_options(-march=na''tive)' >>CMakeLists.txt"
plant "loose arithmetic" 'Makefile:3: flag' "echo 'CFLAGS = -ffast-ma''th' >>Makefile"

plant "symbol without the prefix" 'build/libspry.a:object.o: global symbol helper' "make_library helper"
pass "symbol with the prefix" '$' "make_library spry_helper"

plant "header that needs another" 'src/kernels/ops.h:1: does not compile alone' \
    "echo 'size_t spry_count(void);' >>src/kernels/ops.h"
pass "a comment names a file that is gone" 'src/base/one.c:8: warning: there is no file gone_file\.c' \
    "echo '/* See gone_''file.c, ops.h and <limits.h>. */' >>src/base/one.c"
plant "file name in capitals" 'src/kv/Pages2.c:1: file names are snake_case' "echo >src/kv/Pages2.c"

plant "home folder" 'README.md:1: path of' "echo 'see /ho''me/user/x' >README.md"
plant "work folder" 'src/base/one.c:8: path of' "echo '/* /wo''rk/main */' >>src/base/one.c"
plant "trailing whitespace" 'src/base/one.c:8: trailing whitespace' "echo 'extern int spry_x; ' >>src/base/one.c"
plant "tab" 'src/base/one.c:8: tab' "printf 'extern\\tint spry_x;\\n' >>src/base/one.c"
for word in TO'DO' FIX'ME' X'XX'; do
    plant "word $word" 'docs/plan.md:1: unfinished work' "echo 'a $word here' >docs/plan.md"
done

people='a word for people, not for program parts'
for word in who'ever' some'body' no'body' every'body' any'body' h'e' hi's' hi'm'; do
    plant "$word in a comment" "src/base/one.c:8: $people" "echo '/* what $word asks */' >>src/base/one.c"
done
plant "a default without a size" "include/spry.h:[0-9]+: a default needs the size" \
    "echo 'void spry_x_options_default(int *x);' >>include/spry.h"
plant "a layer that CONTRIBUTING lacks" "CONTRIBUTING.md:1: device is not in the row of layer 5" \
    'sed s,/device,/devices, "$here/CONTRIBUTING.md" >CONTRIBUTING.md'
plant 'a riddle in a page' 'docs/plan.md:1: say it in plain words' "echo 'it is all the s''ame' >docs/plan.md"
plant "a word for people in a document" "docs/plan.md:2: $people" "printf 'A plan.\\nFor no''body.\\n' >docs/plan.md"
plant "a pronoun in a script's comment" "scripts/check:[0-9]+: $people" "echo '# h''e comes' >>scripts/check"
plant "capitals in a comment of several lines" "src/base/one.c:9: $people" \
    "printf '/* One.\\n * No''body asks. */\\n' >>src/base/one.c"
plant "a word for people in a message" "src/base/one.c:8: $people" \
    "echo 'const char *spry_m = \"every''body\";' >>src/base/one.c"
pass "a pronoun in an example text" "scripts/check:1: warning" "echo 'const char *spry_m = \"h''e said hi''s name\";' >>src/base/one.c"
pass "longer words with the same letters" "scripts/check:1: warning" "echo '/* the history helps */' >>src/base/one.c"

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
