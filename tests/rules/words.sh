#!/bin/sh
# words.sh SOURCE - names that were retired (CONTRIBUTING.md, "Words") do not come back. Each
# line: an extended regular expression, an @, and where it is retired; ordinary prose stays free.
cd "$1" || exit 1
bad=0
# The name of a static function says its op or topic: otherwise a search finds a dozen of them.
if grep -rnE --include='*.[ch]' '^static ([a-z0-9_]+ )*\*?(backward|forward|run)\(' kernels src; then
    echo "words.sh: a static function is called only backward, forward or run: name its op or topic"
    bad=1
fi
while IFS="@" read -r pattern files; do
    for file in $files; do
        [ -e "$file" ] || {
            echo "words.sh: there is no $file, where $pattern is retired"
            bad=1
        }
    done
    # shellcheck disable=SC2086 # several folders
    if grep -rnE --include='*.[ch]' --include='*.cu' --include='*.cuh' --include='*.py' \
        -e "$pattern" $files; then
        echo "words.sh: $pattern is retired in $files: see Words in CONTRIBUTING.md"
        bad=1
    fi
done <<'LIST'
\bgd_(attention|linear|draw)_step\b|attention_decode|norm_linear_decode|sample_token@include src kernels train tests python bench
\b(gd_params_share|gd_share_options|gd_share)\b@include src kernels train tests python
\b(gd_group_tell|gd_group_gather|gd_group_hand_out|gd_group_still)\b@include src train tests
\b(WORD_MINE|WORD_ALL|WORD_STILL|WORD_OVER|WORD_LEFT|tell_why|hear|hear_why|hear_all)\b@src/group
[rR]endezvous|gd_wire|control connection@src/group include train docs
\b(double share)\b@kernels/optim include/gradus src/optim src/core
\b(rms_leave|lonely)\b@kernels/rms_norm
call->storage|node->storage@kernels src include bench tests python
gd_by_storage|gd_hopper|GD_HOPPER_ASM|gd_cuda_divide_up|[^_]ceil_div\(@kernels
[wW]indows? on\b@include src kernels
\bwindows?\b@src/core src/inspect kernels/shape kernels/copy
gd_(check_)?window@src tests
[cC]ensus@src include tests docs python
gd_check_place\b|llama_weight_place|place_random|compare_places|map_place|data_draw\b@src train tests
group->(line|heard)\b@src
\broom\b;|\broom\[|->room\b|\.room\b|\*room\b|\broom =@src include kernels
turn_back\b|\bstruct turn\b@kernels
->(asked|told)\b@src/optim
^(static|__global__)[^(]*[ *](backward|forward|run)\(@kernels src
__launch_bounds__\([^()]*,@kernels
LIST
exit $bad
