#!/usr/bin/env bash
# A GeForce computes in double at 1/64 of float's speed. So the machine code of kernels for 16- and
# 32-bit tensors must have no double arithmetic, except in the kernels of fp64_allowed.txt, all of which
# must have some, but for those with a * there: not every build has them by that name. A kernel for
# double tensors has double among its template arguments, or arrays of it if it is no template.
#   fp64.sh LIBRARY ALLOWED
set -euo pipefail
library=$1 allowed=$2
# Where scripts/lib.sh fetches them to.
export PATH=$PATH:${BASH_SOURCE[0]%/*}/../../.cache/cuda-tools/nvidia/cu13/bin
for tool in cuobjdump nvdisasm c++filt; do
    command -v $tool >/dev/null || { echo "skipped: there is no $tool (of the CUDA toolkit)" && exit 77; }
done

# The number of instructions and the name of each function that has any; then "kernels NUMBER".
count()
{
    awk '
        /Function : / { name = $3; functions++ }
        /[ \t]D(ADD|MUL|FMA|SETP|MNMX)[. ]/ || /[ \t][A-Z0-9]+\.[A-Z0-9.]*F64/ || /MUFU\.[A-Z0-9]*64H/ { found[name]++ }
        END {
            for (name in found) print found[name], name
            print "kernels", functions + 0
        }' | c++filt
}

# Functions of the compiler (__cuda_sm20_..., __internal_...) count for the kernels that call them.
check()
{
    awk -v allowed="$allowed" '
        # What stands between the first < and its >; nothing if the function is no template.
        function template_arguments(text,    i, depth) {
            if (text !~ /^[^(]*</) return ""
            text = substr(text, index(text, "<"))
            for (i = 1; i <= length(text); i++) {
                depth += (substr(text, i, 1) == "<") - (substr(text, i, 1) == ">")
                if (depth == 0) return substr(text, 1, i)
            }
            return text
        }
        BEGIN {
            while ((getline line < allowed) > 0)
                if (split(line, part, " ") && line !~ /^#/) {
                    always = !sub(/\*$/, "", part[1])
                    known[part[1]] = always
                }
        }
        $1 == "kernels" { kernels = $2; next }
        { doubles++ }
        $2 ~ /^__(cuda|internal)_/ { next }
        {
            name = $0
            gsub(/\(anonymous namespace\)::/, "", name)
            sub(/^[0-9]+ (void )?/, "", name)
            arguments = template_arguments(name)
            if (arguments ~ /[<, ]double[>,]/ || (arguments == "" && name ~ /[(, ]double( const)?\*/)) next
            sub(/[<(].*/, "", name); sub(/.*::/, "", name)
            used[name] = 1
            if (!(name in known)) { print "double arithmetic: " $0; bad++ }
        }
        END {
            for (name in known) if (known[name] && !(name in used)) { print "allowed, but not needed: " name; bad++ }
            printf "%d kernels and functions, %d with double arithmetic\n", kernels, doubles
            exit kernels == 0 ? 77 : bad > 0
        }'
}

cuobjdump -sass "$library" | count | check
