/* test_cuda_code.c - which GPUs a build has code for, by CMake's list of architectures. */
#include <string.h>

#include "check_main.h"
#include "cuda/cuda_code.h"
#include "gradus/kernels.h"

static const struct {
    const char *list;
    int gpu;
    gd_cuda_code_kind kind;
} rows[] = {
    {"", 90, GD_CUDA_CODE_NONE},
    {"75-virtual,80-virtual,90", 70, GD_CUDA_CODE_NONE},
    {"75-virtual,80-virtual,90", 75, GD_CUDA_CODE_PTX},
    {"75-virtual,80-virtual,90", 89, GD_CUDA_CODE_PTX},
    {"75-virtual,80-virtual,90", 90, GD_CUDA_CODE_MACHINE},
    {"75-virtual,80-virtual,90", 120, GD_CUDA_CODE_PTX},
    {"80-real", 80, GD_CUDA_CODE_MACHINE},
    {"80-real", 89, GD_CUDA_CODE_MACHINE}, /* the same major version */
    {"86-real", 80, GD_CUDA_CODE_NONE},
    {"80-real", 90, GD_CUDA_CODE_NONE},
    {"80", 90, GD_CUDA_CODE_PTX},
    {"90a", 90, GD_CUDA_CODE_MACHINE},
    {"90a", 100, GD_CUDA_CODE_NONE}, /* for 9.0 alone */
    {"90a-virtual", 100, GD_CUDA_CODE_NONE},
    {"100f", 103, GD_CUDA_CODE_MACHINE},
    {"100f", 120, GD_CUDA_CODE_NONE},
    {"100-real,80", 90, GD_CUDA_CODE_PTX},
    {"all", 75, GD_CUDA_CODE_MACHINE},
};

LOOP_TEST(code_for_a_gpu, sizeof rows / sizeof *rows)
{
    ck_assert_int_eq(gd_cuda_code_for(rows[_i].list, rows[_i].gpu), rows[_i].kind);
}

TEST(as_text)
{
    char text[64];
    gd_cuda_code_text("75-virtual,80-real,90a,120", text, sizeof text);
    ck_assert_str_eq(text, "7.5 (PTX), 8.0, 9.0a, 12.0");
    gd_cuda_code_text("", text, sizeof text);
    ck_assert_str_eq(text, "none");
    gd_cuda_code_text("all", text, sizeof text);
    ck_assert_str_eq(text, "all GPUs");
    gd_cuda_code_text("75-virtual,80-real", text, 8);
    ck_assert_str_eq(text, "7.5 (PT");
}

TEST(of_this_build)
{
    char text[256], own[256];
    gd_cuda_code_text(gd_cuda_code_list, own, sizeof own);
    for (int gpu = 70; gpu < 130; gpu++) {
        ck_assert_int_eq(gd_cuda_code(gpu, text, sizeof text),
                         (int)gd_cuda_code_for(gd_cuda_code_list, gpu));
        ck_assert_str_eq(text, own);
    }
}

CHECK_MAIN("cuda_code")
