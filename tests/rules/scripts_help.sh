#!/usr/bin/env bash
# Every script prints its help when asked, and does nothing else: a fake cmake records each call.
#   tests/rules/scripts_help.sh SOURCE_DIR WORK_DIR
set -euo pipefail
source=$1 work=$2
rm -rf "$work"
mkdir -p "$work/bin"
printf '#!/bin/sh\necho "cmake $@" >>"%s/done"\nexit 1\n' "$work" >"$work/bin/cmake"
chmod +x "$work/bin/cmake"
export PATH=$work/bin:$PATH

failed=0
complain()
{
    echo "$1"
    failed=1
}

for script in "$source"/scripts/*; do
    name=${script##*/}
    [[ -x $script && $name != *.py ]] || continue
    [[ $(head -1 "$script") != *python3 ]] || command -v python3 >/dev/null || continue
    for option in -h --help; do
        said=$("$script" "$option" 2>&1 </dev/null) || complain "$name $option: exit status $?"
        [[ $said == *"scripts/$name"* ]] || complain "$name $option: $said"
    done
done
[[ ! -e $work/done ]] || complain "$(<"$work/done")"
for name in torture-resume torture-saves; do
    said=$("$source/scripts/$name" "$work/none" 2>&1) && complain "$name: it needs no program"
    [[ $said == *"$name: there is no $work/none/bin/gradus-train"* ]] || complain "$name: $said"
done
exit $failed
