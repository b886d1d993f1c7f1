#!/usr/bin/env bash
# The Python package's tests, on the C library of a build. GRADUS_PYTHON names the Python that has
# PyTorch, NumPy and pytest; without them this is skipped (77), and says so.
#   tests/programs/python.sh SOURCE_DIR LIBRARY [OPTION...]    options go to pytest
set -euo pipefail
source=$1 library=$2
shift 2
python=${GRADUS_PYTHON:-python3}
missing=()
for package in torch numpy pytest; do
    "$python" -c "import $package" 2>/dev/null || missing+=("$package")
done
if ((${#missing[@]})); then
    echo "skipped: $python has no ${missing[*]}; GRADUS_PYTHON names another"
    exit 77
fi
export GRADUS_LIBRARY=$library PYTHONPATH=$source/python PYTHONDONTWRITEBYTECODE=1
exec "$python" -m pytest -q -p no:cacheprovider "$source/python/tests" "$@"
