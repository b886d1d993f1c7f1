#!/usr/bin/env bash
# The threads of every program spin briefly unless the environment says otherwise; libgomp prints
# what it has read, once for each time that the program is loaded.
#   tests/programs/spin.sh PROGRAM...
# Exits with 77, skipped, where OpenMP is not libgomp.
set -euo pipefail

failed=0
# loads WANTED PROGRAM NAME=VALUE...: the counts that libgomp reads as the program is loaded
loads()
{
    local wanted=$1 program=$2 said
    shift 2
    said=$(env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT -u KMP_BLOCKTIME OMP_DISPLAY_ENV=verbose "$@" \
        "$program" --help 2>&1 >/dev/null | sed -n "s/.*GOMP_SPINCOUNT = '\(.*\)'/\1/p" | paste -sd' ')
    [[ $said ]] || {
        echo "OpenMP is not libgomp here: skipped"
        exit 77
    }
    # shellcheck disable=SC2053 # a pattern
    [[ $said == $wanted ]] || {
        echo "${program##*/} $*: spins $said, wanted $wanted"
        failed=1
    }
}

for program; do
    loads "* 1000" "$program" A=1
    loads "7" "$program" GOMP_SPINCOUNT=7
    loads "[0-9]*[0-9]" "$program" OMP_WAIT_POLICY=active
    loads "0" "$program" OMP_WAIT_POLICY=passive
    # A program that is started anew has the same arguments.
    anew=$(env -u OMP_WAIT_POLICY "$program" --help)
    [[ $anew == "$(OMP_WAIT_POLICY=passive "$program" --help)" ]] || {
        echo "${program##*/}: --help says something else when it is started anew"
        failed=1
    }
done
exit $failed
