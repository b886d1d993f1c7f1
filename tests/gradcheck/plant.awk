# Plants faults into a copy of kernels/: of each line that a row of planted.def replaces, the copy has
# both, and gd_planted, a number, chooses at run time (planted.c sets it during the backward).
#   awk -v out=FOLDER -f plant.awk kernels/*/planted.def SOURCE...
# writes FOLDER/kernels/NAME/FILE for every SOURCE, and FOLDER/planted_lines.c, the table of the faults.
#
# A row of planted.def is three lines or more, a fault of which gradcheck must say the words at its end:
#   softmax rows5_cols17: the sum is missing
#       [softmax] return y * dy;
#       = a sum along axis 1 is missing
# The op, one of its cases, what is wrong; `by` and the plain twin's backward, if the line stands there;
# then each mark of the folder that is replaced, and the statement that stands there instead, or, of the
# row of a table, dx, da, db or dt = its value; or, where no line has a mark, an expression after - and
# after + what every line of the folder that has it computes instead; and what gradcheck must say, if it
# must say anything.

function folder_of(file) { sub(/\/[^\/]*$/, "", file); sub(/^.*\//, "", file); return file }
function quoted(text) { gsub(/\\/, "\\\\", text); gsub(/"/, "\\\"", text); return "\"" text "\"" }
function trimmed(text) { sub(/^[ \t]+/, "", text); sub(/[ \t]+$/, "", text); return text }
function fail(text) { print FILENAME ":" FNR ": " text >"/dev/stderr"; failed = 1; exit 1 }

# ---- The rows ------------------------------------------------------------------------------------

# The expressions of a folder, the longest first: a shorter one may be a part of it.
function exchange(place, right, wrong,    k, last) {
    for (k = 1; k <= rights[place] && expression[place, k] != right; k++) {}
    if (k > rights[place]) {
        for (k = ++rights[place]; k > 1 && length(expression[place, k - 1]) < length(right); k--)
            expression[place, k] = expression[place, k - 1]
        expression[place, k] = right
    }
    last = ++exchanges[place, right]
    instead[place, right, last] = wrong
    fault_of[place, right, last] = faults
}

FILENAME ~ /planted\.def$/ {
    if (/^#/ || /^ *$/) next
    if (/^[a-z]/) {
        if (!match($0, /^[a-z0-9_]+ [A-Za-z0-9_.]+: /)) fail("wanted OP CASE: WHAT")
        faults++
        op[faults] = $1
        check[faults] = substr($2, 1, length($2) - 1)
        what[faults] = substr($0, RLENGTH + 1)
    } else if (match($0, /^ +\[[a-z][a-zA-Z0-9_ ]*\] /)) {
        mark = trimmed(substr($0, 1, RLENGTH))
        place = folder_of(FILENAME) " " substr(mark, 2, length(mark) - 2)
        wrong[place, ++count[place]] = trimmed(substr($0, RLENGTH + 1))
        number[place, count[place]] = faults
    } else if (/^ +by [a-z0-9_]+$/) {
        twin[faults] = $2 "_f64"
    } else if (/^ +- /) {
        right = substr(trimmed($0), 3)
    } else if (/^ +\+ /) {
        if (right == "") fail("wanted the expression that this one replaces above it")
        exchange(folder_of(FILENAME), right, substr(trimmed($0), 3))
        right = ""
    } else if (/^ += /) {
        finding[faults] = substr(trimmed($0), 3)
    } else {
        fail("neither a mark nor what gradcheck says")
    }
    next
}

# ---- The sources ---------------------------------------------------------------------------------

FNR == 1 {
    finish()
    to = out "/kernels/" folder_of(FILENAME) "/" FILENAME
    sub(/[^\/]*$/, "", to)
    sub(/kernels\/.*$/, "kernels/" folder_of(FILENAME) "/", to)
    name = FILENAME
    sub(/^.*\//, "", name)
    to = to name
    above = row = ""
    printf "" >to
    if (name !~ /\.def$/) print "extern int gd_planted;" >to
}

function finish() { if (to) close(to) }

# The statement of a line, with the faults of a place before it.
function with_faults(text, place,    k, code, before, value) {
    code = text
    sub(/ *\/\*.*$/, "", code)
    for (k = 1; k <= count[place]; k++) {
        used[number[place, k]]++
        if (code ~ /^ *(const )?[A-Za-z_0-9]+ \*?[a-zA-Z_0-9]+ = .*;$/) { # a declaration
            before = substr(code, 1, index(code, " = ") + 2)
            value = wrong[place, k]
            if (index(value, trimmed(before)) != 1) fail(value ", wanted it to declare the same")
            value = substr(value, length(trimmed(before)) + 1)
            sub(/;$/, "", value)
            code = before "gd_planted == " number[place, k] " ? (" value ") : (" \
                   substr(code, length(before) + 1, length(code) - length(before) - 1) ");"
        } else {
            code = "if (gd_planted == " number[place, k] ") { " wrong[place, k] " } else " trimmed(code)
        }
    }
    return code
}

# An expression with those that stand there instead.
function choice(place, right,    i, code) {
    code = "(" right ")"
    for (i = 1; i <= exchanges[place, right]; i++) {
        code = "(gd_planted == " fault_of[place, right, i] " ? (" instead[place, right, i] ") : " code ")"
        used[fault_of[place, right, i]]++
    }
    return code
}

# A line with the choices of its expressions, not where one is assigned to.
function exchanged(text, place,    k, i, right, done, rest) {
    for (k = 1; k <= rights[place]; k++) {
        right = expression[place, k]
        for (done = ""; i = index(text, right); text = rest) {
            done = done substr(text, 1, i - 1)
            rest = substr(text, i + length(right))
            if (done ~ /[A-Za-z_0-9]$/ || rest ~ /^([A-Za-z_0-9]| [-+*\/]?= )/) done = done right
            else done = done choice(place, right)
        }
        text = done text
    }
    return text
}

# The arguments of a row of a table, at commas outside of brackets and quotes.
function arguments_of(text,    i, c, depth, text_inside, n) {
    n = 1
    argument[1] = ""
    for (i = 1; i <= length(text); i++) {
        c = substr(text, i, 1)
        if (c == "\"") text_inside = !text_inside
        if (!text_inside && c ~ /[(\[{]/) depth++
        if (!text_inside && c ~ /[)\]}]/) depth--
        if (c == "," && !depth && !text_inside) argument[++n] = ""
        else argument[n] = argument[n] c
    }
    return n
}

function table_row(text,    n, i, k, place, column, value, name) {
    i = index(text, "(")
    n = arguments_of(substr(text, i + 1, length(text) - i - 1))
    name = substr(text, 1, i - 1)
    place = folder_of(FILENAME) " " argument[1]
    for (k = 1; k <= count[place]; k++) {
        value = wrong[place, k]
        column = name == "BINARY" ? (value ~ /^da = / ? 4 : value ~ /^db = / ? 5 : 0) : \
                 value ~ /^dx = / ? 4 : name == "LOSS" && value ~ /^dt = / ? 5 : 0
        if (!column) fail(value " is no column of " name)
        argument[column] = "(gd_planted == " number[place, k] " ? (" substr(value, 6) ") : (" \
                           trimmed(argument[column]) "))"
        used[number[place, k]]++
    }
    text = name "("
    for (k = 1; k <= n; k++) text = text (k > 1 ? "," : "") argument[k]
    return text ")"
}

{
    if (row != "" || (name ~ /\.def$/ && /^(UNARY|SCALAR|RANGE|BINARY|LOSS)\(/)) {
        row = row $0
        if (/\)$/) {
            print table_row(row) >to
            row = ""
        }
        next
    }
    text = $0
    marked = above
    above = ""
    if (match(text, /\/\*.*\[.*\] \*\/$/)) {
        if (text ~ /^ *\/\*/) above = substr(text, RSTART) # of the next line
        else marked = substr(text, RSTART)
    }
    while (match(marked, /\[[a-z][a-zA-Z0-9_ ]*\]/)) {
        place = folder_of(FILENAME) " " substr(marked, RSTART + 1, RLENGTH - 2)
        marked = substr(marked, RSTART + RLENGTH)
        if (count[place] && text !~ /^ *\/\*/) text = with_faults(text, place)
    }
    print (text ~ /^ *(\/\*|\*)/ ? text : exchanged(text, folder_of(FILENAME))) >to
}

END {
    if (failed) exit 1
    finish()
    table = out "/planted_lines.c"
    print "/* The faults of kernels/NAME/planted.def: a table that plant.awk writes. */" >table
    print "#include \"planted.h\"\n" >table
    for (i = 1; i <= faults; i++)
        if (twin[i] && !declared[twin[i]]++) print "gd_status " twin[i] "(const gd_call *call);" >table
    print "const planted_bug planted_lines[] = {" >table
    for (i = 1; i <= faults; i++) {
        if (!used[i]) {
            print op[i] ": " what[i] ": no line has the mark or the expression" >"/dev/stderr"
            exit 1
        }
        print "    {" quoted(op[i]) ", " quoted(check[i]) ", " quoted(what[i]) ", " \
              (finding[i] == "" ? "NULL" : quoted(finding[i])) ", .line = " i \
              (twin[i] ? ", .backward = " twin[i] : "") "}," >table
    }
    print "    {0},\n};" >table
}
