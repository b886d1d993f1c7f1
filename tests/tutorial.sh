#!/usr/bin/env bash
# Checks that every block of C in docs/tutorial.md is in the example named in the line before it.
#   tests/tutorial.sh SOURCE_DIR
set -euo pipefail
cd "$1"
awk '
    function check(    line, source) {
        while ((getline line < path) > 0) source = source line "\n"
        close(path)
        blocks++
        if (source == "") { print "docs/tutorial.md:" NR ": cannot read " path; bad = 1 }
        else if (!index(source, block)) { print "docs/tutorial.md:" NR ": not in " path ":\n" block; bad = 1 }
    }
    inside && /^```/ { inside = 0; check(); path = ""; next }
    inside { block = block $0 "\n"; next }
    /^<!-- .* -->$/ { path = $2; next }
    /^```/ {
        if ($0 != "```c" || path == "") { print "docs/tutorial.md:" NR ": a block of no example"; bad = 1 }
        inside = 1; block = ""
    }
    END {
        if (!blocks) { print "docs/tutorial.md: no code in it"; bad = 1 }
        print blocks " blocks of code compared"
        exit bad
    }' docs/tutorial.md
