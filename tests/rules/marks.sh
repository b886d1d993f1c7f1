#!/usr/bin/env bash
# Checks that each step of a derivation is linked to its line of code. A mark, [dx], is in the text of
# kernels/NAME/README.md, in a line of its blocks of C as /* [dx] */, and in the code of the folder, at
# the end of a comment beside the line or above it. A row of a table, UNARY(exp, ...), is a mark by
# its name.
#   tests/rules/marks.sh SOURCE_DIR
#
# It complains about a mark that is missing in one of the three, a README's line that is not in the
# code at the mark, an op with a backward but without a README or a mark ([NAME] or [NAME ...]; any
# mark if its folder has its name); about a mark that stands twice in code, in formula.h or a loop, and
# a marked line without an operator or an index, or without two names of the README's table of symbols.
# A README begins with a sentence, which says what the op does, and its table of files comes last.
set -euo pipefail
cd "$1"
shopt -s nullglob extglob

# FOLDER MARK: why its line is not a formula in the letters of the table.
exceptions()
{
    cat <<'END'
rope rope_qkv   a copy
elementwise broadcast  a sum over axes, by reduce
elementwise erf slope  a function of x alone
reduce sum  a copy
reduce norm at 0  a condition, whose result is 0
shape reshape  a copy
shape contiguous  a copy
shape cast  a copy
END
}

failed=0 compared=0 marked=()
complain()
{
    echo "$1"
    failed=1
}

# Every mark of the code in a folder: "MARK<tab>code", the code from the mark on, three lines more.
marks_of_code()
{
    awk '
        function marks(comment,    name) {
            while (match(comment, /\[[a-z][a-z_0-9A-Z. ]*\]/)) {
                name = substr(comment, RSTART + 1, RLENGTH - 2)
                comment = substr(comment, RSTART + RLENGTH)
                print name "\t" code
            }
        }
        function flush(    i, j) {
            for (i = 1; i <= lines; i++) {
                comment = line[i]
                if (match(line[i], /^ *(UNARY|SCALAR|RANGE|BINARY|LOSS)\([a-z_0-9]+,/)) {
                    code = line[i]
                    for (j = i; line[j] !~ /\)$/ && j < lines; j++) code = code " " line[j + 1]
                    gsub(/ +/, " ", code)
                    comment = substr(line[i], RSTART, RLENGTH - 1)
                    sub(/^.*\(/, "", comment)
                    print comment "\t" code
                } else if (match(comment, /( \[[a-z][a-z_0-9A-Z. ]*\])+ \*\/$/)) {
                    comment = substr(comment, RSTART)
                    code = line[i] " " line[i + 1] " " line[i + 2] " " line[i + 3]
                    gsub(/ +/, " ", code)
                    marks(comment)
                }
            }
            lines = 0
            split("", line)
        }
        FNR == 1 { flush() }
        { line[++lines] = $0 }
        END { flush() }' "$@"
}

# "MARK<tab>code" of the blocks of C in a README, then "MARK<tab>" of its text.
marks_of_readme()
{
    awk '
        /^```c$/ { inside = 1; next }
        /^```/ { inside = 0; next }
        inside && match($0, /( \[[a-z][a-z_0-9A-Z. ]*\]| \/\*)+ \*\/$/) {
            code = substr($0, 1, index($0, "/* [") - 1)
            gsub(/ +/, " ", code)
            sub(/[ ;]+$/, "", code)
            rest = substr($0, index($0, "/* ["))
            while (match(rest, /\[[a-z][a-z_0-9A-Z. ]*\]/)) {
                print "line\t" substr(rest, RSTART + 1, RLENGTH - 2) "\t" code
                rest = substr(rest, RSTART + RLENGTH)
            }
        }
        inside || /^    / { next }
        {
            rest = $0
            gsub(/`[^`]*`|\$[^$]*\$/, "", rest)
            while (match(rest, /\[[a-z][a-z_0-9A-Z. ]*\]/)) {
                before = RSTART > 1 ? substr(rest, RSTART - 1, 1) : " "
                if (before !~ /[A-Za-z0-9_\]\[]/ && substr(rest, RSTART + RLENGTH, 1) !~ /[(\[]/)
                    print "text\t" substr(rest, RSTART + 1, RLENGTH - 2) "\t"
                rest = substr(rest, RSTART + RLENGTH)
            }
        }' "$1"
}

# is_formula LINE README: whether it has an operator or an index, and two names of the table of symbols.
is_formula()
{
    local name names=0
    [[ ${1//->/.} =~ [-+*/?\<\>\[] ]] || return 1
    while read -r name; do
        ! [[ " ${1//[^A-Za-z0-9_]/ } " == *" $name "* ]] || names=$((names + 1))
    done < <(awk -F'|' '/^\| .*`.*\|/ {
        while (match($3, /`[A-Za-z_0-9]+`/)) {
            print substr($3, RSTART + 1, RLENGTH - 2)
            $3 = substr($3, RSTART + RLENGTH)
        }
    }' "$2" | sort -u)
    ((names >= 2))
}

for folder in kernels/*/; do
    [[ -e $folder/README.md ]] || ! grep -Eqs '^ *(\.backward =|GD_KERNELS)' "$folder"!(test*|planted*).c ||
        complain "$folder: an op with a backward, but no README.md"
done

for readme in kernels/*/README.md; do
    folder=${readme%/README.md}
    awk 'NR == 3 && !/^[A-Z`].* .* .*/ { exit 1 } table && /^## / { exit 1 } /^\| files?[, |]/ { table = 1 }' "$readme" ||
        complain "$readme: it begins with a sentence on what the op does; a table of files comes last"
    sources=("$folder"/!(test*|planted*).c "$folder"/*.h "$folder"/*.cu "$folder"/*.cuh "$folder"/*.def)
    declare -A code=() line=() text=() times=()
    while IFS=$'\t' read -r mark where; do
        code[$mark]+=" $where"
        times[$mark]=$((${times[$mark]-0} + 1))
    done < <(marks_of_code "${sources[@]}")
    while IFS=$'\t' read -r kind mark where; do
        if [[ $kind == line ]]; then line[$mark]=$where; else text[$mark]=1; fi
    done < <(marks_of_readme "$readme")

    for mark in "${!code[@]}"; do
        [[ ${line[$mark]+there} ]] || complain "$readme: no line of C for [$mark] of the code"
    done
    for mark in "${!text[@]}"; do
        [[ ${line[$mark]+there} ]] || complain "$readme: no line of C for [$mark] of the text"
    done
    for mark in "${!line[@]}"; do
        compared=$((compared + 1))
        if [[ ! ${code[$mark]+there} ]]; then
            complain "$readme: no code in $folder has [$mark]"
        elif [[ ${code[$mark]} != *"${line[$mark]}"* ]]; then
            complain "$readme: what the code has at [$mark] is not: ${line[$mark]}"
        fi
        [[ ${text[$mark]+there} ]] ||
            complain "$readme: no step of the derivation has [$mark]"
        [[ ${code[$mark]+there} ]] || continue
        ((${times[$mark]} == 1)) ||
            complain "$folder: [$mark] stands ${times[$mark]} times in code, not once"
        # A row of a table is its formula.
        [[ ! ${code[$mark]} =~ ^\ *(UNARY|SCALAR|RANGE|BINARY|LOSS|TRIANGLE|REDUCTION)\( ]] || continue
        exceptions | grep -q "^${folder##*/} $mark  " || is_formula "${line[$mark]}" "$readme" ||
            complain "$readme: [$mark] is no formula in letters of the table: ${line[$mark]}"
    done

    # The ops of this folder that have a backward.
    mapfile -t ops < <(awk '
        match($0, /^ *(UNARY|SCALAR|RANGE|BINARY|LOSS|TRIANGLE|REDUCTION)\([a-z_0-9]+,/) {
            name = substr($0, RSTART, RLENGTH - 1); sub(/^.*\(/, "", name); print name
        }
        /^const gd_op gd_op_/ { name = substr($3, 7) }
        /^#define/ { name = "" }
        /^ *(\.(backward|definition) =|GD_KERNELS|REDUCES|VIEW|GATHER|SOFTMAX|OF_BOTH)/ && name != "" { print name; name = "" }
        /^};/ { name = "" }' "${sources[@]}")
    for op in "${ops[@]}"; do
        if [[ $op == "${folder##*/}" ]]; then
            ((${#line[@]})) || complain "$readme: $op has a backward, but no mark"
            continue
        fi
        found=0
        for mark in "${!line[@]}"; do [[ $mark != "$op" && $mark != "$op "* ]] || found=1; done
        ((found)) || complain "$readme: $op has a backward, but no mark [$op]"
    done
    marked+=("${ops[@]}")
    unset code line text times
done
# None was overlooked: all ops but these, which have no backward.
without=(eq ne lt le gt ge any all argmax topk sort one_hot)
while read -r op; do
    [[ " ${without[*]} ${marked[*]} " == *" $op "* ]] ||
        complain "no record with a backward was found for $op"
done < <(sed -nE 's/^(const gd_op gd_op_|[A-Z]+\()([a-z0-9_]+)( =|, ").*/\2/p' kernels/*/*.def \
    kernels/*/!(test*|planted*).c)
echo "$compared marks compared, ${#marked[@]} ops with a backward"
exit $failed
