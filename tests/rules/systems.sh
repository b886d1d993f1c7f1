#!/usr/bin/env bash
# platform/ compiles for Windows without a warning, if there is MinGW-w64. Nothing is made. Status 77:
# there is none. (zig, the compiler of scripts/cross macos, cannot compile without making something.)
#   tests/rules/systems.sh SOURCE_DIR
set -euo pipefail
cd "$1"
mingw=$(command -v x86_64-w64-mingw32-gcc-posix || command -v x86_64-w64-mingw32-gcc) || {
    echo "no compiler for Windows: apt install gcc-mingw-w64-x86-64"
    exit 77
}
"$mingw" -std=c11 -fsyntax-only -Wall -Wextra -Wpedantic -Wconversion -Werror -I. \
    -D_WIN32_WINNT=0x0A00 -D__USE_MINGW_ANSI_STDIO=1 platform/*_windows.c
echo "platform/ compiles for Windows"
