# sources.sh - what the build needs for other systems: libraries from Debian's source packages, and a
# compiler. Sourced by scripts/cross after lib.sh.
# shellcheck shell=bash disable=SC2154 # root and jobs are lib.sh's

sources=$root/.cache/sources

# A mirror's list of source packages, without changing that of this machine.
apt_sources()
{
    local release
    release=$(. /etc/os-release && echo "${VERSION_CODENAME:-bookworm}")
    [[ $(. /etc/os-release && echo "$ID") == debian ]] || release=bookworm
    echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]" \
        "http://deb.debian.org/debian $release main"
}

# Fetches and unpacks jansson, xxHash, Random123 and Check, once. False: there is no mirror.
fetch_sources()
{
    local apt=("-oDir::Etc::SourceList=$sources/apt.list" -oDir::Etc::SourceParts=/nowhere
        "-oDir::State::Lists=$sources/lists" -oAPT::Sandbox::User=root) package archive
    [[ ! -e $sources/complete ]] || return 0
    command -v apt-get >/dev/null || return 1
    mkdir -p "$sources/lists/partial"
    apt_sources >"$sources/apt.list"
    (
        cd "$sources" || exit 1
        apt-get -qq "${apt[@]}" update
        for package in jansson xxhash librandom123 check; do
            # Of a package only the original is needed: a mirror may lack Debian's changes.
            apt-get -qq "${apt[@]}" source --download-only "$package"
            archive=$(ls "$package"_*.orig.tar.*z) || exit 1
            mkdir -p "$package"
            tar -xf "$archive" -C "$package" --strip-components 1 || exit 1
        done
        rm -rf lists
        touch complete
    ) </dev/null >"$sources/log" 2>&1
}

# sources_for PREFIX OPTION...: builds them for another system, with options for CMake, once.
sources_for()
{
    local prefix=$1 package
    shift
    [[ ! -e $prefix/complete ]] || return 0
    mkdir -p "$prefix/include"
    cp "$sources/xxhash/xxhash.h" "$prefix/include"
    cp -r "$sources/librandom123/include/Random123" "$prefix/include"
    local options=(-DCMAKE_BUILD_TYPE=Release "-DCMAKE_INSTALL_PREFIX=$prefix" "$@"
        -DCMAKE_POLICY_VERSION_MINIMUM=3.5
        -DJANSSON_BUILD_DOCS=OFF -DJANSSON_EXAMPLES=OFF -DJANSSON_WITHOUT_TESTS=ON
        -DCHECK_ENABLE_TESTS=OFF -DCHECK_ENABLE_SUBUNIT=OFF -DBUILD_TESTING=OFF)
    for package in jansson check; do
        cmake -S "$sources/$package" -B "$prefix/build-$package" "${options[@]}" &&
            cmake --build "$prefix/build-$package" --parallel "$jobs" &&
            cmake --install "$prefix/build-$package" || return 1
    done >"$prefix/log" 2>&1
    # Its static library, so that the tests run wherever they lie.
    rm -f "$prefix"/lib/libcheck.dll.a "$prefix"/lib/libcheck*.dylib "$prefix"/bin/libcheck.dll
    touch "$prefix/complete"
}

# Fetches zig, whose clang compiles for macOS and brings its headers, from PyPI, once. False: there is
# no index.
fetch_zig()
{
    [[ -x $root/.cache/zig/ziglang/zig ]] ||
        { fetch_tool ziglang "$root/.cache/zig" && chmod +x "$root/.cache/zig/ziglang/zig"; }
}

# zig_tools TARGET: prints a folder with cc, ar and ranlib.
zig_tools()
{
    local folder=$root/.cache/zig/$1 tool
    mkdir -p "$folder"
    for tool in "cc -target $1" ar ranlib; do
        printf '#!/bin/sh\nexec %q %s "$@"\n' "$root/.cache/zig/ziglang/zig" "$tool" >"$folder/${tool%% *}"
        chmod +x "$folder/${tool%% *}"
    done
    echo "$folder"
}
