#!/usr/bin/env bash
# scripts/release makes its files from what is committed, and refuses a changed tree, another version, a
# section of CHANGELOG.md that is missing, empty or without a date, and checks that fail. The checks,
# the study and pip are played by scripts here. What names a version names that of context.h.
#   tests/rules/release.sh SOURCE_DIR WORK_DIR
set -euo pipefail
command -v git >/dev/null || { echo "skipped: git is not there" && exit 77; }
source=$1 work=$2
rm -rf "$work"
mkdir -p "$work"/{bin,tree/{scripts,.ci,include/gradus,python}}
cd "$work/tree"
cp "$source/scripts/release" "$source/scripts/lib.sh" scripts
cp "$source/include/gradus/context.h" include/gradus
sed -i -E 's/(GD_VERSION_MAJOR) .*/\1 1/; s/(GD_VERSION_MINOR) .*/\1 2/; s/(GD_VERSION_PATCH) .*/\1 3/
    s/(GD_VERSION_STRING) .*/\1 "1.2.3"/' include/gradus/context.h
printf '#!/bin/sh\necho checked >>"%s/checks"\n[ ! -e broken ]\n' "$work" >.ci/run
printf '#!/bin/sh\nmkdir -p build/study && echo page >build/study/index.html\n' >scripts/study
printf '#!/bin/sh\necho "quick $*" >>"%s/checks"\n' "$work" >scripts/test
chmod +x .ci/run scripts/*
# python3 -m pip --version; python3 -m pip wheel -q --no-deps -w FOLDER SOURCES
cat >"$work/bin/python3" <<'EOF'
#!/bin/sh
[ "$3" = wheel ] || exit 0
version=1.2.3
[ ! -e "$8/other" ] || version=1.2.2
[ -e "$8/setup" ] && cp "$8/setup" "$7/gradus-$version-py3-none-linux_x86_64.whl"
EOF
chmod +x "$work/bin/python3"
export PATH=$work/bin:$PATH
echo sources >python/setup
printf '/build/\n' >.gitignore
cat >CHANGELOG.md <<'END'
# Changelog

## [1.2.3] - 2026-12-01

### Added

- A thing.

## [1.2.2] - unreleased

- Not in these notes.
END
git init -q .
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@a
commit()
{
    git add -A
    git commit -q --allow-empty -m "$1"
}
commit first

failed=0
complain()
{
    echo "$1"
    failed=1
}

# refuses SENTENCE ARGUMENT...: with no file left
refuses()
{
    local sentence=$1 said
    shift
    said=$(scripts/release "$@" 2>&1) && complain "scripts/release $*: it should fail"
    [[ $said == *"release: $sentence"* ]] || complain "scripts/release $*: $said; wanted $sentence"
    [[ ! -e build/release ]] || complain "scripts/release $*: it left files"
}

refuses 'wanted a version such as 0.2.0, not ""'
refuses 'wanted a version such as 0.2.0, not "1.2"' 1.2
refuses 'unknown option --push' 1.2.3 --push
refuses 'one version, not 1.2.3 and 1.2.4' 1.2.3 1.2.4
refuses 'include/gradus/context.h says 1.2.3, not 1.2.4' 1.2.4
echo more >>CHANGELOG.md
refuses 'the tree has changes' 1.2.3
git checkout -q CHANGELOG.md
touch new
refuses 'the tree has changes' 1.2.3
rm new
git tag v1.2.3
refuses 'the tag v1.2.3 exists' 1.2.3
git tag -d v1.2.3 >/dev/null

sed -i 's/1\.2\.3\] - .*/1.2.3] - unreleased/' CHANGELOG.md && commit undated
refuses 'the section [1.2.3] of CHANGELOG.md needs a date' 1.2.3
sed -i 's/\[1\.2\.3\]/[1.2.30]/' CHANGELOG.md && commit other
refuses 'CHANGELOG.md has no section [1.2.3]' 1.2.3
printf '# Changelog\n\n## [1.2.3] - 2026-12-01\n\n## [1.2.2] - unreleased\n\n- x\n' >CHANGELOG.md && commit empty
refuses 'the section [1.2.3] of CHANGELOG.md is empty' 1.2.3
git reset -q --hard HEAD~3
sed -i 's/"1.2.3"/"1.2.4"/' include/gradus/context.h && commit two
refuses 'context.h says 1.2.4, and 1.2.3 in its three numbers' 1.2.3
git reset -q --hard HEAD~1
[[ ! -e $work/checks ]] || complain "the checks ran before"
touch broken && commit broken
refuses 'the checks failed' 1.2.3
git reset -q --hard HEAD~1
touch python/other && commit other
refuses 'the wheel has another version: ./gradus-1.2.2-py3-none-linux_x86_64.whl' 1.2.3
git reset -q --hard HEAD~1
git rm -q python/setup && commit unpacked
said=$(scripts/release 1.2.3 2>&1) && complain "it needs no wheel"
[[ ! -e build/release ]] || complain "without a wheel: it left files"
git reset -q --hard HEAD~1

for option in --draft --quick; do
    said=$(scripts/release 1.2.3 $option 2>&1) || complain "$option: $said"
    [[ $said == *"Nothing has been published."* ]] || complain "$said"
    out=build/release/gradus-1.2.3
    [[ $(<$out/NOTES.md) == $'### Added\n\n- A thing.' ]] || complain "notes: $(<$out/NOTES.md)"
    (cd $out && sha256sum --quiet -c SHA256SUMS && [[ $(wc -l <SHA256SUMS) == 3 ]]) || complain "sums"
    [[ $(tar -tzf $out/gradus-1.2.3.tar.gz | sort) == \
        $(git ls-tree -rt --name-only HEAD | sed 's|^|gradus-1.2.3/|' |
            while read -r f; do [[ -d ${f#*/} ]] && echo "$f/" || echo "$f"; done |
            cat <(echo gradus-1.2.3/) - | sort) ]] || complain "other sources"
    [[ $(tar -xOzf $out/gradus-1.2.3-study.tar.gz gradus-1.2.3-study/index.html) == page ]] ||
        complain "no site"
    [[ $(<$out/gradus-1.2.3-py3-none-linux_x86_64.whl) == sources ]] || complain "no wheel"
done
[[ $(tail -2 "$work/checks") == $'checked\nquick -L quick' ]] || complain "checks: $(<"$work/checks")"
[[ -z $(git status --porcelain) && -z $(git tag) ]] || complain "the tree is not as before"

cd "$source"
version=$(sed -nE 's/^#define GD_VERSION_STRING "(.*)"/\1/p' include/gradus/context.h)
[[ $(grep -m 1 '^## ' CHANGELOG.md) == "## [$version] - "* ]] ||
    complain "CHANGELOG.md begins with $(grep -m 1 '^## ' CHANGELOG.md), the version is $version"
for file in docs/building.md docs/tutorial.md tests/rules/install/CMakeLists.txt; do
    grep -qF "find_package(gradus ${version%.*} " $file || complain "$file: not of $version"
done
exit $failed
