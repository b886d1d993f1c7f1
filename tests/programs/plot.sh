#!/usr/bin/env bash
# Draws runs of gradus-train with scripts/plot, and looks into the pictures.
#   tests/programs/plot.sh SOURCE_DIR GRADUS_TRAIN WORK_DIR
# Exits with 77, skipped, if gnuplot or jq is missing.
set -euo pipefail
plot=$1/scripts/plot train=$2 work=$3
# shellcheck source=scripts/lib.sh
source "$1/scripts/lib.sh"
# What is missing is said, and nothing is installed.
mkdir -p "$work/bin"
printf '#!/bin/sh\ntouch "%s"\n' "$work/installed" >"$work/bin/apt-get"
chmod +x "$work/bin/apt-get"
ln -sf "$(command -v bash)" "$(command -v dirname)" "$(command -v id)" "$work/bin"
said=$(PATH=$work/bin "$plot" somewhere 2>&1) && exit 1
[[ $said == "plot: gnuplot is missing (Debian, Ubuntu: apt install gnuplot-nox"* && ! -e $work/installed ]] || {
    echo "without gnuplot: $said" >&2
    exit 1
}
if [[ $(missing_of gnuplot jq) ]]; then
    echo "gnuplot or jq is not there: skipped"
    exit 77
fi
rm -rf "$work"
mkdir -p "$work"
cd "$work"

fail()
{
    echo "$1" >&2
    exit 1
}
# The picture has these curves, in this order, and no others.
has_curves()
{
    local said
    said=$(sed -n 's/.*id="gnuplot_plot_[^>]*><title>\(.*\)<\/title>.*/\1/p' "$1" | paste -sd,)
    [[ $said == "$2" ]] || fail "$1 has the curves $said, wanted $2"
    grep -q '</svg>' "$1" || fail "$1 is not whole"
}
# How many points a curve of a picture has: its own, and two in the legend.
points() # FILE CURVE
{
    sed -n "/<title>$2</,/<title>/p" "$1" | grep -oE '[ML][0-9]+\.[0-9]+,' | wc -l
}
is_png() # FILE WIDTH HEIGHT
{
    [[ $(head -c 24 "$1" | od -An -tu1 | tr -s ' \n' ' ') == \
        " 137 80 78 71 13 10 26 10 0 0 0 13 73 72 68 82 0 0 $(($2 / 256)) $(($2 % 256)) 0 0 \
$(($3 / 256)) $(($3 % 256)) " ]] || fail "$1 is not a PNG of $2 x $3"
}
# One sentence, no picture, exit status 1.
refused() # WANTED ARGUMENT...
{
    local wanted=$1 status=0
    shift
    "$plot" "$@" >said 2>&1 || status=$?
    [[ $status == 1 ]] || fail "$*: exit status $status"
    grep -qF -- "$wanted" said || fail "$*: not said: $wanted: $(<said)"
    [[ $(tail -n +2 said) == "" ]] || fail "$*: more than a sentence: $(<said)"
    [[ ! -e no.svg ]] || fail "$*: a picture all the same"
}

small=(--layers 1 --dim 8 --heads 2 --context 8 --batch 2 --warmup 5 --sample-length 0 --threads 1)
export OMP_NUM_THREADS=1
"$train" --data "$1/README.md" "${small[@]}" --steps 40 --log-every 2 --eval-every 10 \
    --log one.jsonl >/dev/null
mkdir -p "it's <b"
"$train" --data "$1/README.md" "${small[@]}" --steps 30 --log-every 1 --eval-every 0 --lr 0.01 \
    --log "it's <b/log.jsonl" >/dev/null

# The curve of the loss is that of the means; a log of metrics.h may have only the batches' losses.
sed 's/"mean_loss": [^,]*, //' one.jsonl >plain.jsonl
sed 's/"loss": [^,]*, "mean_loss"/"loss": 1, "mean_loss"/' one.jsonl >means.jsonl
sed 's/"loss": [^,]*, "mean_loss": \([^,]*\)/"loss": \1/' one.jsonl >swapped.jsonl
for log in plain means swapped; do "$plot" $log.jsonl -o $log.svg; done
"$plot" one.jsonl -o one
curve() { sed -n "/<title>training</,/<title>/p" "$1"; }
[[ $(curve means.svg) == "$(curve one.svg)" && $(curve swapped.svg) == "$(curve one.svg)" ]] ||
    fail "the curve of the loss is not that of the means"
[[ $(curve plain.svg) != "$(curve one.svg)" ]] || fail "without means: not the loss of the batches"
has_curves plain.svg training,validation,norm,rate,speed
has_curves one.svg training,validation,norm,rate,speed
is_png one.png 1200 800
[[ $(points one.svg training) == 23 ]] || fail "one.svg: $(points one.svg training) points of 23"

# Whatever the folder of temporary files is called, gnuplot obeys no word of it.
odd="a'; print 'obeyed'; set title 'b\\t \"\$x"
mkdir "$odd"
TMPDIR=$PWD/$odd "$plot" one.jsonl -o odd.svg >said 2>&1 || fail "TMPDIR is $odd: $(<said)"
cmp one.svg odd.svg || fail "TMPDIR is $odd: another picture"
[[ $(<said) == odd.svg ]] || fail "TMPDIR is $odd: $(<said)"

# A picture that is drawn again: a link to it stays, and so do its permissions.
mkdir elsewhere
echo old >elsewhere/real.svg
chmod 600 elsewhere/real.svg
ln -s elsewhere/real.svg linked.svg
ln -s elsewhere/new.svg dangling.svg
for name in linked dangling; do "$plot" one.jsonl -o $name.svg >/dev/null; done
[[ -L linked.svg && -L dangling.svg ]] || fail "a link has become a file"
for name in real new; do cmp one.svg elsewhere/$name.svg || fail "$name.svg is not the picture"; done
[[ $(stat -c %a elsewhere/real.svg) == 600 ]] || fail "a picture that was private is not any more"
[[ $(find elsewhere | wc -l) == 3 ]] || fail "something is left beside the picture"

"$plot" one.jsonl "it's <b" -o two.svg
two="one.jsonl: training,it's &lt;b: training,one.jsonl: validation,it's &lt;b: validation"
for curve in norm rate speed; do two+=",one.jsonl: $curve,it's &lt;b: $curve"; done
has_curves two.svg "$two"
[[ ! -e two.png ]] || fail "two.png was not asked for"

# A run that has just begun; a line that is being written.
head -2 one.jsonl >first.jsonl
"$plot" first.jsonl -o first
has_curves first.svg training,norm,rate,speed
head -c -5 one.jsonl >torn.jsonl
"$plot" torn.jsonl -o torn.svg 2>said
grep -q 'the last line of torn.jsonl is incomplete, and was skipped' said
has_curves torn.svg training,validation,norm,rate,speed

# Where the time of a step goes: a bar for each op.
cat >step.jsonl <<'EOS'
{"benchmark": "step", "model": "toy", "dtype": "f32", "device": "it's", "ms": 3.14159}
{"name": "linear", "pass": "forward", "ms": 1}
{"name": "linear", "pass": "backward", "ms": 2.5}
{"name": "rope_qkv", "pass": "forward", "ms": 0.25}
{"name": "adamw", "pass": "update", "ms": 0.5}
EOS
"$plot" step.jsonl -o step.svg
has_curves step.svg forward,backward,update
for word in "toy f32, 3.142 ms a step, it's" linear rope_qkv adamw; do
    sed "s/&#39;/'/g; s/&apos;/'/g" step.svg | grep -cF ">$word<" >/dev/null ||
        fail "step.svg: not said: $word"
done
"$plot" step.jsonl step.jsonl -o steps
is_png steps.png 1200 800
sed '3s/2.5/"x"/' step.jsonl >bad_step.jsonl
refused "bad_step.jsonl: it has no parts, or one without a name or a time" bad_step.jsonl -o no.svg
refused "one.jsonl is not what gradus-bench step --json prints" step.jsonl one.jsonl -o no.svg

head -1 one.jsonl >bare.jsonl
tail -n +2 one.jsonl >headless.jsonl
sed '5s/.$//' one.jsonl >broken.jsonl
sed '5s/"loss": /"loss": "/; 5s/, "val"/", "val"/' one.jsonl >text.jsonl
: >empty.jsonl
refused "no RUN is given"
refused "there is no nowhere" nowhere -o no.svg
refused "there is no ./log.jsonl" . -o no.svg
refused "/dev/zero is not a readable file" /dev/zero -o no.svg
refused "README.md: line 1 was not written by gradus-train" "$1/README.md" -o no.svg
refused "bare.jsonl has no step yet" bare.jsonl -o no.svg
refused "headless.jsonl: line 1 was not written by" headless.jsonl -o no.svg
refused "broken.jsonl: line 5 was not written by" one.jsonl broken.jsonl -o no.svg
refused "text.jsonl: line 5 was not written by" text.jsonl -o no.svg
refused "empty.jsonl is empty" empty.jsonl -o no.svg
refused "--bogus is not an option" one.jsonl --bogus
refused "-o needs a file name" one.jsonl -o
refused "there is no folder for none/no.svg" one.jsonl -o none/no.svg
refused '-o is ".", wanted the name of a file' one.jsonl -o .
refused '-o is "", wanted the name of a file' one.jsonl -o ''
mkdir folder.svg
refused "folder.svg is a folder, wanted the name of a file" one.jsonl -o folder.svg
[[ ! $(ls -A folder.svg) ]] || fail "there is something in folder.svg"
refused "cannot write /proc/no.svg: " one.jsonl -o /proc/no.svg
echo "pictures as they should be"
