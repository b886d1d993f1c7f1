/* cuda_code.h - which GPUs a list of CMake's CUDA architectures has code for. */
#ifndef GRADUS_CUDA_CODE_H
#define GRADUS_CUDA_CODE_H

#include <stddef.h>

typedef enum gd_cuda_code_kind {
    GD_CUDA_CODE_NONE,   /* what gd_cuda_code returns: 0, 1, 2 */
    GD_CUDA_CODE_PTX,    /* which the driver compiles when it is first used */
    GD_CUDA_CODE_MACHINE /* of the same major version and no newer minor one */
} gd_cuda_code_kind;

/* The list is like "75-virtual,80,90a", "" for a build without CUDA; `gpu` is a compute capability,
 * 89 for 8.9. */
gd_cuda_code_kind gd_cuda_code_for(const char *list, int gpu);

/* Writes the list as text, cut off at `size`: "7.5 (PTX), 8.0, 9.0a"; "none" if it is empty. */
void gd_cuda_code_text(const char *list, char *text, size_t size);

/* The list of this build. */
extern const char gd_cuda_code_list[];

#endif
