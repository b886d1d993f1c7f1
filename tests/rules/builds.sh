#!/usr/bin/env bash
# What another project, or the command line, may ask of the build, as far as its rules show it without
# building: several configurations in one folder, each made of its own objects; one compilation of a
# file each, without link-time optimization, though all targets are to have others; and an export set
# of a project around this one, which names the libraries. What CI and scripts fetch has a hash.
#   tests/rules/builds.sh SOURCE_DIR WORK_DIR [CMAKE]
set -euo pipefail
source=$1 work=$2 cmake=${3:-cmake}
command -v ninja >/dev/null || { echo "skipped: there is no ninja" && exit 77; }
rm -rf "$work"
mkdir -p "$work"
cd "$work"

fail()
{
    echo "$*" >&2
    exit 1
}

# configure FOLDER OPTION...
configure()
{
    local folder=$1
    shift
    "$cmake" -B "$folder" -DGRADUS_CUDA=OFF "$@" >"$folder.log" 2>&1 ||
        fail "$* cannot be configured: $(tail -n 12 "$folder.log")"
}

! grep -E 'uses:|ref:' "$source"/.github/workflows/*.yml | grep -vE '[ @][0-9a-f]{40} # v' ||
    fail "an action or a repository above has no hash"
! grep -rnE -e "-m pip (download|install)|'pip', '(download|install)" "$source"/{scripts,study/tests,.ci} | grep -v require-hashes ||
    fail "a tool above has no hash"

configure several -S "$source" -G "Ninja Multi-Config" -DCMAKE_CROSS_CONFIGS=all \
    "-DCMAKE_CONFIGURATION_TYPES=Debug;Release"
rules=several/CMakeFiles/impl-Debug.ninja
for configuration in Debug Release; do
    joined=$(sed -n "s|^build lib/$configuration/libgradus.a: [^ ]* \([^ ]*\) .*|\1|p" $rules)
    objects=$(grep -F "build ${joined:-?} " $rules | grep -o '/\(Debug\|Release\)/' | sort | uniq -c)
    [[ $objects == *" /$configuration/" && $objects != *$'\n'* ]] ||
        fail "libgradus.a of $configuration is made of ${joined:-nothing}: $objects"
done

mkdir around
cat >around/CMakeLists.txt <<END
cmake_minimum_required(VERSION 3.25)
project(around LANGUAGES C)
add_subdirectory($source gradus)
add_library(mine STATIC mine.c)
target_link_libraries(mine PUBLIC gradus::gradus_static)
install(TARGETS mine EXPORT mine)
install(EXPORT mine NAMESPACE mine:: DESTINATION lib/cmake/mine)
END
echo 'int mine(void) { return 1; }' >around/mine.c
configure build -S around -G Ninja -DCMAKE_UNITY_BUILD=ON -DCMAKE_C_FLAGS=-flto \
    -DCMAKE_EXPORT_COMPILE_COMMANDS=ON
grep -q 'gradus::gradus_static' build/CMakeFiles/Export/*/mine.cmake || fail "mine does not name gradus"
commands=$(tr '{' '\n' <build/compile_commands.json)
grep -q 'mine.dir/Unity/' <<<"$commands" || fail "the project around has no unity build"
tape=$(grep '/src/core/tape.c"' <<<"$commands") || fail "src/core/tape.c is not compiled by itself"
[[ $tape == *" -flto "*" -fno-lto "* ]] || fail "link-time optimization reaches src/core/tape.c: $tape"
# Asked for by name, it installs as it would by itself; otherwise not at all.
sed "s|$PWD/build|/absent|g" build/gradus/cmake_install.cmake >rules.cmake
grep -q 'STREQUAL "gradus"' rules.cmake || fail "there is no component gradus"
! grep -q 'OR NOT CMAKE_INSTALL_COMPONENT' rules.cmake || fail "a project around installs gradus unasked"
