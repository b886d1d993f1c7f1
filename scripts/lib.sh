# lib.sh - shared by the scripts: installing what the build needs, and building. Sourced, not run.
# shellcheck shell=bash

((BASH_VERSINFO[0] >= 4)) || {
    echo "bash ${BASH_VERSION} is too old: 4 or newer is needed (Homebrew: brew install bash)" >&2
    exit 1
}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
jobs=$(nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 2)
export CTEST_PARALLEL_LEVEL=${CTEST_PARALLEL_LEVEL:-$jobs}

# ---- Help ---------------------------------------------------------------------------------------

# help_for ARGUMENT...: if the first is -h or --help, prints the comment at the top of the script.
help_for()
{
    [[ ${1-} == -h || ${1-} == --help ]] || return 0
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
    exit
}

# ---- Dependencies -------------------------------------------------------------------------------

# Compilers do not look where Homebrew installs on Apple Silicon.
if [[ $(uname) == Darwin ]] && command -v brew >/dev/null; then
    homebrew=$(brew --prefix)
    export C_INCLUDE_PATH=${C_INCLUDE_PATH:+$C_INCLUDE_PATH:}$homebrew/include
    export LIBRARY_PATH=${LIBRARY_PATH:+$LIBRARY_PATH:}$homebrew/lib
fi

# Each probe tests whether a dependency is usable, however it was installed.
compiles() # LIBRARIES... < source
{
    local out status=0
    out=$(mktemp)
    "${CC:-cc}" -x c - -o "$out" "$@" >/dev/null 2>&1 || status=1
    rm -f "$out"
    return $status
}
probe_cc() { compiles <<<'int main(void) { return 0; }'; }
probe_cxx() { "${CXX:-c++}" --version >/dev/null 2>&1; }
probe_clang() { command -v clang >/dev/null; }
probe_wasm()
{
    local out status=0
    out=$(mktemp)
    clang --target=wasm32-wasi -x c - -lwasi-emulated-mman -o "$out" >/dev/null 2>&1 \
        <<<'int main(void) { return 0; }' || status=1
    rm -f "$out"
    return $status
}
probe_aarch64() { command -v aarch64-linux-gnu-gcc && command -v qemu-aarch64; } >/dev/null
probe_node() { command -v node >/dev/null; }
# Where study/site/tools.js looks.
probe_katex()
{
    [[ -e /usr/share/javascript/katex/katex.min.css ]] &&
        node -e 'require("/usr/share/javascript/katex/katex.js")' >/dev/null 2>&1
}
probe_marked() { node -e 'require("/usr/share/nodejs/marked")' >/dev/null 2>&1; }
# What study/tests/chromium.js looks for.
probe_chromium() { command -v chromium || command -v chromium-browser || command -v google-chrome; } \
    >/dev/null
probe_make() { command -v ninja || command -v make; } >/dev/null
probe_cmake()
{
    local version
    version=$(cmake --version 2>/dev/null | sed -n 's/^cmake version \([0-9.]*\).*/\1/p')
    [[ $version ]] && [[ $(printf '%s\n' 3.25 "$version" | sort -V | head -1) == 3.25 ]]
}
probe_openblas()
{
    # On macOS CMake takes Accelerate.
    [[ $(uname) != Darwin ]] || return 0
    # The header may be in a subfolder; CMake finds it.
    compiles -I/usr/include/openblas -I/usr/local/include/openblas -lopenblas <<'EOC'
#include <cblas.h>
int main(void) { openblas_set_num_threads(1); return 0; }
EOC
}
probe_random123() { "${CC:-cc}" -E -x c - <<<'#include <Random123/philox.h>' >/dev/null 2>&1; }
probe_jansson() { compiles -ljansson <<<$'#include <jansson.h>\nint main(void) { return json_object() == 0; }'; }
probe_xxhash()
{
    compiles <<<$'#define XXH_INLINE_ALL\n#include <xxhash.h>\nint main(void) { return XXH3_64bits("", 0) == 0; }'
}
probe_pkg_config() { command -v pkg-config >/dev/null; }
probe_check() { pkg-config --exists check 2>/dev/null; }
probe_clang_format() { command -v clang-format-14 || clang-format --version | grep -q 'version 14\.'; } \
    >/dev/null 2>&1
probe_shellcheck() { command -v shellcheck >/dev/null; }
probe_strace() { command -v strace >/dev/null; }
probe_valgrind() { command -v valgrind >/dev/null; }
probe_python3() { command -v python3 >/dev/null; }
probe_gnuplot() { gnuplot -e 'set terminal pngcairo; set terminal svg'; } >/dev/null 2>&1
probe_jq() { command -v jq >/dev/null; }
probe_gcov() { command -v gcov >/dev/null; }

# The Debian and Ubuntu packages that provide each dependency, and its description.
packages_of()
{
    case $1 in
    cc) echo gcc libc6-dev ;;
    cxx) echo g++ ;;
    make) echo make ;;
    pkg_config) echo pkg-config ;;
    openblas) echo libopenblas-dev ;;
    random123) echo librandom123-dev ;;
    jansson) echo libjansson-dev ;;
    xxhash) echo libxxhash-dev ;;
    clang_format) echo clang-format-14 ;;
    wasm) echo clang lld wasi-libc libclang-rt-dev-wasm32 ;;
    node) echo nodejs ;;
    katex) echo libjs-katex ;;
    marked) echo node-marked ;;
    gcov) echo gcc ;;
    aarch64) echo gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user ;;
    s390x) echo gcc-s390x-linux-gnu libc6-dev-s390x-cross ;;
    musl) echo musl-tools ;;
    pip) echo python3-pip ;;
    mingw) echo gcc-mingw-w64-x86-64 ;;
    wine) echo wine wine64 ;;
    gnuplot) echo gnuplot-nox ;;
    *) echo "$1" ;;
    esac
}
# Homebrew's, where there is no apt. Of what is not here nobody knows one.
formula_of()
{
    case $1 in
    cc | cxx | clang) echo llvm ;;
    clang_format) echo llvm@14 ;;
    make) echo ninja ;;
    pkg_config) echo pkgconf ;;
    pip | python3) echo python ;;
    wasm) echo llvm lld wasi-libc ;;
    mingw) echo mingw-w64 ;;
    check | cmake | gnuplot | jansson | jq | node | random123 | shellcheck | xxhash) echo "$1" ;;
    esac
}
meaning_of()
{
    case $1 in
    cc) echo "a C compiler" ;;
    cxx) echo "a C++ compiler" ;;
    make) echo "make or ninja" ;;
    cmake) echo "cmake 3.25 or newer" ;;
    openblas) echo "OpenBLAS with its header cblas.h" ;;
    random123) echo "the header Random123/philox.h" ;;
    jansson) echo "jansson, for JSON" ;;
    xxhash) echo "the header xxhash.h, for checksums" ;;
    gnuplot) echo "gnuplot, with its terminals pngcairo and svg" ;;
    check) echo "Check, the unit test framework" ;;
    clang_format) echo "clang-format 14" ;;
    wasm) echo "clang and lld with wasi-libc, for WebAssembly" ;;
    node) echo "node" ;;
    katex) echo "KaTeX" ;;
    marked) echo "marked, for markdown" ;;
    *) echo "${1//_/-}" ;;
    esac
}

missing_of()
{
    local thing
    for thing in "$@"; do
        "probe_$thing" || echo "$thing"
    done
}

# need THING...: installs missing packages with apt; if that is not possible, names each and stops.
need()
{
    local missing packages=() as_root=() thing how
    mapfile -t missing < <(missing_of "$@")
    ((${#missing[@]})) || return 0

    [[ $(id -u) == 0 ]] || as_root=(sudo)
    if command -v apt-get >/dev/null && { [[ $(id -u) == 0 ]] || command -v sudo >/dev/null; }; then
        for thing in "${missing[@]}"; do
            read -ra packages <<<"${packages[*]} $(packages_of "$thing")"
        done
        echo "Installing ${packages[*]}"
        "${as_root[@]}" apt-get update -qq </dev/null || true
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends "${packages[@]}" </dev/null >/dev/null || true
        mapfile -t missing < <(missing_of "$@")
    fi
    for thing in "${missing[@]}"; do
        how="Debian, Ubuntu: apt install $(packages_of "$thing")"
        if [[ $(uname) == Darwin ]]; then
            how=$(formula_of "$thing")
            how=${how:+Homebrew: brew install $how}
        fi
        echo "missing: $(meaning_of "$thing")${how:+ ($how)}" >&2
    done
    ((${#missing[@]} == 0)) || exit 1
}

# fetch_tool NAME FOLDER: unpacks a wheel of scripts/tools.txt, from PyPI, if it has one of its hashes.
fetch_tool()
{
    mkdir -p "$2"
    grep "^$1==" "$root/scripts/tools.txt" >"$2/wanted.txt"
    python3 -m pip download -q --disable-pip-version-check --no-deps --require-hashes -d "$2" \
        -r "$2/wanted.txt" >/dev/null 2>&1 || return 1
    python3 -m zipfile -e "$2/${1//-/_}"-*.whl "$2"
}

# fetch_cuda_tools: cuobjdump and nvdisasm, which a CUDA toolkit may lack, from PyPI into an ignored
# folder. Prints the folder; nothing if it cannot.
fetch_cuda_tools()
{
    local to=$root/.cache/cuda-tools
    if [[ ! -x $to/nvidia/cu13/bin/nvdisasm ]]; then
        fetch_tool nvidia-cuda-cuobjdump "$to" && fetch_tool nvidia-cuda-nvdisasm "$to" || return 0
        chmod +x "$to"/nvidia/cu13/bin/*
    fi
    echo "$to/nvidia/cu13/bin"
}

# ---- Building -----------------------------------------------------------------------------------

# Kernels for a GPU take minutes to compile, so they are built only if they can run.
have_gpu()
{
    [[ $(nvidia-smi -L 2>/dev/null) ]] || return 1
    command -v nvcc >/dev/null && return
    echo "There is a GPU, but no nvcc (CUDA toolkit): building for the CPU only." >&2
    return 1
}

# cuda_if_any FOLDER: adds to the array `options`, of a new folder's first configure.
cuda_if_any()
{
    [[ -e $1/CMakeCache.txt ]] || have_gpu || options+=(-DGRADUS_CUDA=OFF)
}

# configure FOLDER OPTION...: with Ninja if it is installed; prints nothing unless it fails.
configure()
{
    local folder=$1 generator=() log
    shift
    if [[ ! -e $folder/CMakeCache.txt ]] && command -v ninja >/dev/null; then
        generator=(-G Ninja)
    fi
    mkdir -p "$folder"
    log=$folder/configure.log
    cmake -S "$root" -B "$folder" "${generator[@]}" "$@" >"$log" 2>&1 || {
        cat "$log" >&2
        exit 1
    }
}

# What a build prints, to stderr: on a terminal its progress is one line that is rewritten.
show_build()
{
    local line columns erase=
    columns=$(tput cols 2>/dev/null) || columns=80
    [[ ! -t 2 ]] || erase=$'\r\e[K'
    while IFS= read -r line; do
        case $line in
        *"Re-checking globbed directories"* | *"no work to do"* | *"Built target"*) ;;
        "["*) [[ $erase ]] && printf '%s%s' "$erase" "${line:0:columns-1}" || printf '%s\n' "$line" ;;
        *) printf '%s%s\n' "$erase" "$line" ;;
        esac
    done >&2
    printf '%s' "$erase" >&2
}

# build FOLDER OPTION...: prints to stderr, so that stdout has only the output of programs, and nothing
# if there is nothing to do.
build()
{
    cmake --build "$1" --parallel "$jobs" "${@:2}" 2>&1 | show_build
}
