#!/usr/bin/env bash
# The programs and the shared library are built with a stack protector, with checks of the C library's
# functions, and with relocations that are read-only before main (GRADUS_HARDENING).
#   tests/rules/hardening.sh READELF FILE...
set -euo pipefail
readelf=$1
shift
failed=0
for file; do
    missing=()
    symbols=$("$readelf" -sW --dyn-syms "$file")
    dynamic=$("$readelf" -dW "$file")
    [[ $dynamic == *BIND_NOW* ]] || missing+=("immediate binding")
    [[ $("$readelf" -lW "$file") == *GNU_RELRO* ]] || missing+=("read-only relocations")
    [[ $symbols == *__stack_chk_fail* ]] || missing+=("a stack protector")
    [[ $symbols == *printf_chk@* || $dynamic != *libc.so.6* ]] || missing+=("checked functions")
    ((${#missing[@]} == 0)) || {
        echo "$file has no $(printf '%s; ' "${missing[@]}")"
        failed=1
    }
done
exit $failed
