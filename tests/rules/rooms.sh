#!/usr/bin/env bash
# Compares what the rooms of the library include and call with the table of docs/architecture.md, whose
# last column says what a room may include.
#   tests/rules/rooms.sh SOURCE_DIR [NM FILE]     FILE lists the objects of the library
#
# A file of another room may be included if that room, or the file, is in the column. A call is one
# symbol of an object that is undefined there and defined in another. Calls follow the same column; if
# it has only a header of a room, the header must declare the function; and a room that has include/
# but not src/core/ may call what include/ declares. The tables of kernels/registry.c count as
# src/core/'s, whose services.h declares them. No files of one room call each other in a circle; but the
# functions of ops.h do not count, as definitions and derivatives of ops call any op. Nor do the folders
# of kernels/, by calls or includes. No other room than platform/ has an #if for a system. Each CUDA kernel waits for the one before it.
set -euo pipefail
cd "$1"
nm=${2:-} objects=${3:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# ROOM ALLOWED: the rooms of the table, and each path of their last column.
awk -F'|' '
    function paths(cell) { # of the form `path`, into list
        count = 0
        while (match(cell, /`[^`]*`/)) {
            list[++count] = substr(cell, RSTART + 1, RLENGTH - 2)
            cell = substr(cell, RSTART + RLENGTH)
        }
    }
    /^\| `/ && NF == 5 {
        paths($2)
        if ($4 ~ /everything/) {
            print list[1], "*"
            next
        }
        room = list[1]
        print room, room
        paths($4)
        for (i = 1; i <= count; i++) print room, list[i]
    }' docs/architecture.md | sed -E 's#/( |$)#\1#g' >"$work/table"

# FILE INCLUDED
find include platform src kernels train bench -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' |
    grep -vE '^kernels/[^/]*/(test|planted|cuda_)[^/]*$' | sort |
    xargs grep -HoE '^ *# *include "[^"]+"' | sed -E 's/: *# *include "/ /; s/"$//' |
    while read -r file name; do
        for folder in "${file%/*}/" include/ "" src/ kernels/ kernels/common/; do
            [[ -f $folder$name ]] || continue
            echo "$file $folder$name"
            break
        done
    done | sed -E 's#[^ /]+/\.\./##' >"$work/includes"

# What headers declare: HEADER SYMBOL
grep -HoE '\bgd_[a-z0-9_]+\(' include/gradus/*.h platform/*.h src/*/*.h | sed 's/:/ /; s/($//' |
    sort -u >"$work/declared"

# SOURCE SYMBOL U (undefined) or D (defined)
: >"$work/symbols"
if [[ -n $nm ]]; then
    xargs "$nm" -A -P <"$objects" | awk '
        {
            sub(/:$/, "", $1)
            sub(/.*\.dir\/(\.\/)?/, "", $1)
            sub(/\.(o|obj)$/, "", $1)
            sub(/^_/, "", $2)
            if ($3 == "U") print $1, $2, "U"
            else if ($3 ~ /^[TDBRCVWSGi]$/) print $1, $2, "D"
        }' >"$work/symbols"
fi

# Prints what is against the rule; status 1 if there is anything.
check()
{
    awk '
        function complain(text) { print text; wrong = 1 }
        function room_of(file) { # the innermost of the table that the file is in
            for (; file != ""; sub(/\/?[^\/]*$/, "", file)) if (file in rooms) return file
            return ""
        }
        function folders(from, to) { # of kernels/, but for registry.c
            if (from to ~ /registry/ || !sub(/[^\/]*$/, "", from) || !sub(/[^\/]*$/, "", to)) return
            if (from == to || from !~ /^kernels/ || to !~ /^kernels/) return
            edge[from, to]
            files[from]
            files[to]
        }
        function allowed(from, path) { # it, or a folder that it is in
            for (; path != ""; sub(/\/?[^\/]*$/, "", path)) if ((from, path) in may) return 1
            return (from, "*") in may
        }
        FILENAME ~ /table$/ { rooms[$1]; may[$1, $2]; next }
        FILENAME ~ /declared$/ {
            in_header[$1, $2]
            if ($1 ~ /^include/) public[$2]
            headers[$1]
            next
        }
        FILENAME ~ /includes$/ {
            from = room_of($1)
            to = room_of($2)
            if (from == "" || to == "") next
            checked++
            folders($1, $2)
            if (!allowed(from, $2))
                complain($1 " includes " $2 ", but " from " may not include " to)
            next
        }
        $3 == "D" { file_of[$2] = $1; next }
        { calls[++count] = $0 }
        END {
            for (i = 1; i <= count; i++) {
                split(calls[i], call, " ")
                if (!(call[2] in file_of)) continue
                maker = file_of[call[2]]
                if (maker == call[1]) continue
                if (maker == "kernels/registry.c") maker = "src/core/services.h"
                from = room_of(call[1])
                to = room_of(maker)
                if (from == "" || to == "") continue
                called++
                if (from == to) {
                    if (("include/gradus/ops.h", call[2]) in in_header) continue
                    edge[call[1], maker]
                    files[call[1]]
                    files[maker]
                    folders(call[1], maker)
                    continue
                }
                good = allowed(from, maker)
                if (!good && !((from, "src/core") in may)) good = call[2] in public
                for (header in headers)
                    if (!good) good = ((from, header) in may) && ((header, call[2]) in in_header)
                if (!good) complain(call[1] " calls " call[2] " of " maker ", but " from \
                    " may not call " to)
            }
            for (pair in edge) reach[pair]
            for (k in files) for (i in files) if ((i, k) in reach)
                for (j in files) if ((k, j) in reach) reach[i, j]
            for (i in files) if ((i, i) in reach) {
                circle = ""
                for (j in files) if ((i, j) in reach && (j, i) in reach) circle = circle " " j
                complain(i " is in a circle of calls:" circle)
            }
            for (a in rooms) for (b in rooms) if (a != b && (a, b) in may && (b, a) in may)
                complain(a " and " b " may include each other")
            printf "%d includes, %d calls\n", checked, called
            exit wrong
        }' "$work/table" "$work/declared" "$1" "$2"
}

# Only platform/ asks which system it is compiled for. Prints the files of others that do.
ask_for_systems()
{
    local systems='_WIN32|_WIN64|__MINGW|_MSC_VER|__CYGWIN__|__APPLE__|__linux|__unix|BSD__|__wasi__'
    grep -rnE --include='*.[ch]' --include='*.cu' --include='*.cuh' --include='*.def' \
        "^ *# *(el)?if.*($systems)" "$@"
}

# Prints the kernels that do not wait for the one before them (kernels/common/launch.cuh).
do_not_wait()
{
    awk '/__global__/ && !/\/\// { kernel = FILENAME ":" FNR }
        /gd_in_turn|wait_for_previous|ring\.start/ { kernel = "" }
        /^}/ && kernel { print kernel, "does not wait for the kernel before it"; kernel = ""; bad = 1 }
        END { exit !bad }' "$@"
}

failed=0
check "$work/includes" "$work/symbols" || failed=1
if ask_for_systems include src kernels train bench tests python docs study; then
    echo "only platform/ may have code for one system"
    failed=1
fi
find kernels -name '*.cu' -o -name '*.cuh' | grep -vE 'ladder|rms_norm/cuda_' >"$work/kernels"
mapfile -t kernels <"$work/kernels"
do_not_wait "${kernels[@]}" && failed=1

# It must notice what is planted.
planted()
{
    cp "$work/includes" "$work/some_includes"
    cp "$work/symbols" "$work/some"
    echo "$2" >>"$1"
    if check "$work/some_includes" "$work/some" >"$work/out"; then
        echo "not noticed: $2"
        failed=1
    fi
}
planted "$work/some_includes" "src/core/memory.c src/optim/graph.h"
planted "$work/some_includes" "kernels/copy/copy.c src/core/core.h"
planted "$work/some_includes" "platform/file_posix.c include/gradus/context.h"
planted "$work/some_includes" "src/cuda/device_cuda.c src/group/group.h"
planted "$work/some_includes" "kernels/reduce/reduce.c kernels/shape/shape.h" # a circle
printf '#  if defined(x) && defined(__APPLE__)\n' >"$work/planted.h"
ask_for_systems "$work" >/dev/null || { echo "not noticed: code for one system" && failed=1; }
printf '__global__ void f(int *x)\n{\n    *x = 0;\n}\n' >"$work/planted.cu"
do_not_wait "$work/planted.cu" >/dev/null || { echo "not noticed: a kernel that does not wait" && failed=1; }
if [[ -n $nm ]]; then
    planted "$work/some" "src/core/backward.c gd_update_create U"
    planted "$work/some" "src/core/error.c gd_backward U" # a circle
    planted "$work/some" "src/gradcheck/compare.c gd_frame_tensor U"
    planted "$work/some" "kernels/copy/copy.c gd_tape_append U"
fi
exit $failed
