#!/usr/bin/env bash
# scripts/train gives gradus-train its own text only where no other is named. The compiler, CMake and
# gradus-train are played by scripts here, the last of which prints its arguments.
#   tests/programs/train_script.sh SOURCE_DIR WORK_DIR
set -euo pipefail
source=$1 work=$2
rm -rf "$work"
mkdir -p "$work/tree/scripts" "$work/tree/build/bin" "$work/bin" "$work/run/step-00000005"
cp "$source/scripts/train" "$source/scripts/lib.sh" "$work/tree/scripts"
echo "int main(void);" >"$work/tree/main.c"
printf '#!/bin/sh\necho cmake version 3.25.1\n' >"$work/bin/cmake"
printf '#!/bin/sh\necho "$@"\n' >"$work/tree/build/bin/gradus-train"
printf '#!/bin/sh\nexit 0\n' >"$work/bin/cc"
cp "$work/bin/cc" "$work/bin/make"
chmod +x "$work/bin/"* "$work/tree/build/bin/gradus-train"
cd "$work"
export PATH=$work/bin:$PATH CC=cc
printf 'steps = 3\n  data = x\n' >text.config
printf 'tokens=y\n' >tokens.config
printf '# data = x\nval-data = x\nsteps = 3\n' >other.config

failed=0
# says own|none ARGUMENT...: whether the text is the project's own
says()
{
    local wanted=$1 said
    shift
    said=$(tree/scripts/train "$@" 2>/dev/null) || said="exit status $?"
    case $said in
    "--data $work/tree/build/gradus-sources.txt${*:+ $*}") said=own ;;
    "$*") said=none ;;
    esac
    [[ $said == "$wanted" ]] || {
        echo "scripts/train $*: $said, wanted $wanted"
        failed=1
    }
}

says own
grep -q "int main" tree/build/gradus-sources.txt || {
    echo "scripts/train: main.c is not in its own text"
    failed=1
}
says own --steps 3
says own --out new --resume auto
says own --resume auto --out=new
says own --init run
says own --config other.config
says own --val-data x
says own --steps 3 --dat x # no abbreviations: gradus-train refuses them
says own --tok=x
says own --conf text.config
says own --res auto --out run
says none --data x
says none --data=x --steps 3
says none --tokens x --val-data y
says none --config text.config
says none --config=tokens.config --steps 3
says none --config <(echo "data = x")
says none --resume run
says none --resume=run/step-00000005 --steps 9
says none --out=run --resume=auto
exit $failed
