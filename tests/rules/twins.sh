#!/usr/bin/env bash
# The programs of bench/twins/ have not many more lines than PyTorch's, and those of the gallery that are to
# be short 120 at most.
#   tests/rules/twins.sh SOURCE_DIR [BUILD_DIR], whose programs make the losses of their twins
set -euo pipefail
cd "$1"
for name in diffusion cartpole dates lora; do
    lines=$(wc -l <"docs/examples/$name.c")
    ((lines <= 120)) || { echo "docs/examples/$name.c has $lines lines, wanted 120 at most" && exit 1; }
done
if ! command -v python3 >/dev/null; then
    echo "no python3, which counts lines: skipped"
    exit 77
fi
python3 bench/compare_twins.py ${2:+--check "$2"}
