#!/usr/bin/env bash
# scripts/test gives CMake and ctest the options that are theirs, builds code for a GPU only where there
# is one, and says why a test was skipped. The compilers, CMake, ctest and nvidia-smi are played by
# scripts here.
#   tests/rules/test_script.sh SOURCE_DIR WORK_DIR
set -euo pipefail
source=$1 work=$2
rm -rf "$work"
mkdir -p "$work/tree/scripts" "$work/bin"
cp "$source/scripts/test" "$source/scripts/lib.sh" "$work/tree/scripts"
cd "$work"
for name in cc c++ make pkg-config nvcc; do printf '#!/bin/sh\nexit 0\n' >"bin/$name"; done
cat >bin/cmake <<'EOF'
#!/bin/sh
case $1 in
--version) echo cmake version 3.25.1 ;;
-S) shift 4 && echo "$@" | sed 's/^-G Ninja //' >cmake.said && : >tree/build/CMakeCache.txt ;;
--build) echo "[0/1] Re-checking globbed directories..." && echo "ninja: no work to do." ;;
esac
EOF
cat >bin/ctest <<'EOF'
#!/bin/sh
while [ $# -gt 0 ]; do
    case $1 in
    --output-junit) shift && file=$1 ;;
    *) said="$said $1" ;;
    esac
    shift
done
echo "$said" >../../ctest.said
printf '\t<testcase name="good" status="run">\n\t\t<system-out>fine\n</system-out>\n\t</testcase>\n' >"$file"
printf '\t<testcase name="gpu" status="notrun">\n\t\t<skipped message="77"/>\n' >>"$file"
printf '\t\t<system-out>skipped: no &quot;GPU&quot; &amp; no nvcc\n</system-out>\n\t</testcase>\n' >>"$file"
exit 8
EOF
chmod +x bin/*
export PATH=$work/bin:$PATH CC=cc CXX=c++
unset GRADUS_WERROR

failed=0
# says CMAKE CTEST ARGUMENT...: what each of them is given, by a first call and by a second.
says()
{
    local wanted=$1 more=$2 said status=0
    shift 2
    rm -rf tree/build
    said=$(tree/scripts/test "$@" 2>&1) || status=$?
    [[ $status == 8 && $(<cmake.said) == "$wanted" && $(<ctest.said) == " --output-on-failure$more" &&
        $said == $'\nSkipped:\n  gpu: skipped: no "GPU" & no nvcc' ]] || {
        echo "scripts/test $*: status $status, cmake $(<cmake.said), ctest$(<ctest.said), $said"
        failed=1
    }
}

plain="-DCMAKE_BUILD_TYPE=Release -DGRADUS_TESTS=ON"
printf '#!/bin/sh\nexit 1\n' >bin/nvidia-smi
chmod +x bin/nvidia-smi
says "$plain -DGRADUS_CUDA=OFF" ""
says "$plain -DGRADUS_CUDA=OFF -DGRADUS_CUDA=AUTO -DX=a b" " -L quick -j 3" -L quick -DGRADUS_CUDA=AUTO "-DX=a b" -j 3
GRADUS_WERROR=ON says "$plain -DGRADUS_WERROR=ON -DGRADUS_CUDA=OFF" ""
printf '#!/bin/sh\necho "GPU 0: a GPU"\n' >bin/nvidia-smi
says "$plain" " -R x" -R x
said=$(tree/scripts/test 2>&1) || true # what the folder has already been configured for stays
[[ $(<cmake.said) == "$plain" ]] || failed=1
exit $failed
