#!/usr/bin/env bash
# Checks that every block of code in docs/tutorial.md, gallery.md and own_op.md is what the line before it
# says: a part of a file, or the whole of it; that each program that the tutorial quotes is shown
# whole, once; that each example returns 1 where its output cannot be written; and with a folder takes
# the tutorial apart into it, for tests/rules/install/tutorial to follow:
#   fit_line.c ...             the programs
#   CMakeLists.txt             and WAY.cmake, what takes the place of find_package in it
#   run.sh, run-WAY.sh         the commands
#   tests/rules/tutorial.sh SOURCE_DIR [FOLDER]
set -euo pipefail
folder=${2:+$(realpath "$2")}
cd "$1"
ends='gallery_end\(|return .*fflush\(stdout\) == 0'
careless=$(grep -LE "$ends" docs/examples/*.c docs/examples/*.cpp) || true
[[ -z $careless ]] || { echo "$careless: it returns 0 if its output cannot be written" && exit 1; }
awk -v folder="$folder" '
    function complain(what) { print FILENAME ":" FNR ": " what; bad = 1 }
    function save(name) { if (folder != "" && FILENAME ~ /tutorial/) printf "%s", block >(folder "/" name) }
    function check(    line, source, name) {
        while ((getline line < path) > 0) source = source line "\n"
        close(path)
        if (source == "") complain("cannot read " path)
        else if (whole ? source != block : !index(source, block)) complain("not in " path ":\n" block)
        if (FILENAME ~ /tutorial/) shown[path] += whole
        if (!whole) return
        name = path
        sub(/.*\//, "", name)
        save(name)
    }
    function finish(    ways, count, i) {
        blocks++
        if (what == "code") check()
        else if (what == "CMakeLists.txt") save(what)
        else if (what == "place") save(place ".cmake")
        else if (what == "run" && place == "") save("run.sh")
        else if (what == "run") {
            count = split(place, ways, " ")
            for (i = 1; i <= count; i++) save("run-" ways[i] ".sh")
        }
        what = ""
    }
    inside && /^```/ { inside = 0; finish(); next }
    inside { block = block $0 "\n"; next }
    /^<!-- (run|install|CMakeLists\.txt).* -->$/ {
        what = $2
        sub(/:$/, "", what)
        place = $0
        if (!sub(/^<!-- run: /, "", place)) place = ""
        sub(/ -->$/, "", place)
        next
    }
    /^<!-- in place of find_package: .* -->$/ { what = "place"; place = $6; next }
    /^<!-- .* -->$/ { what = "code"; path = $2; whole = sub(/,$/, "", path) && $3 == "whole"; next }
    /^```/ {
        if (what == "") complain("a block of code that no line before it explains")
        inside = 1
        block = ""
    }
    END {
        if (!blocks) complain("no code in it")
        for (path in shown)
            if (path ~ /^docs\/examples\// && shown[path] != 1)
                complain(path " is shown whole " shown[path] " times")
        print blocks " blocks of code compared"
        exit bad
    }' docs/tutorial.md docs/gallery.md docs/own_op.md
