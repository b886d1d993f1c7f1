/* cuda_code.c - which GPUs a list of architectures has code for. See cuda_code.h. */
#include "cuda/cuda_code.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gradus/kernels.h"

#ifndef GD_CUDA_CODE /* which CMake defines in a build with CUDA code */
#define GD_CUDA_CODE ""
#endif

const char gd_cuda_code_list[] = GD_CUDA_CODE;

/* "80" is machine code and PTX, "80-real" and "80-virtual" one of them; "90a" runs on 9.0 alone. */
typedef struct code {
    int capability; /* 0: "all" */
    char letter;    /* 'a', 'f', or 0 */
    bool machine, ptx;
} code;

/* Reads the next one. Returns what is left of the list, NULL at its end. */
static const char *next_code(const char *list, code *c)
{
    if (!*list) return NULL;
    char *end;
    c->capability = (int)strtol(list, &end, 10);
    c->letter = *end == 'a' || *end == 'f' ? *end : '\0';
    end += c->letter != '\0';
    c->machine = strncmp(end, "-virtual", 8) != 0;
    c->ptx = strncmp(end, "-real", 5) != 0;
    const char *next = strchr(end, ',');
    return next ? next + 1 : end + strlen(end);
}

static gd_cuda_code_kind kind_for(const code *c, int gpu)
{
    if (c->capability == 0) return GD_CUDA_CODE_MACHINE;
    const bool same_major = c->capability / 10 == gpu / 10;
    if (c->capability > gpu || (c->letter == 'a' && c->capability < gpu) ||
        (c->letter == 'f' && !same_major))
        return GD_CUDA_CODE_NONE;
    if (c->machine && same_major) return GD_CUDA_CODE_MACHINE;
    return c->ptx ? GD_CUDA_CODE_PTX : GD_CUDA_CODE_NONE;
}

gd_cuda_code_kind gd_cuda_code_for(const char *list, int gpu)
{
    gd_cuda_code_kind best = GD_CUDA_CODE_NONE;
    code c;
    while ((list = next_code(list, &c))) {
        const gd_cuda_code_kind kind = kind_for(&c, gpu);
        if (kind > best) best = kind;
    }
    return best;
}

void gd_cuda_code_text(const char *list, char *text, size_t size)
{
    code c;
    size_t used = (size_t)snprintf(text, size, "%s", *list ? "" : "none");
    while ((list = next_code(list, &c)) && used < size) {
        const char *comma = used ? ", " : "", letter[] = {c.letter, '\0'};
        if (c.capability == 0)
            used += (size_t)snprintf(text + used, size - used, "%sall GPUs", comma);
        else
            used +=
                (size_t)snprintf(text + used, size - used, "%s%d.%d%s%s", comma, c.capability / 10,
                                 c.capability % 10, letter, c.machine ? "" : " (PTX)");
    }
}

int gd_cuda_code(int capability, char *text, size_t size)
{
    gd_cuda_code_text(gd_cuda_code_list, text, size);
    return (int)gd_cuda_code_for(gd_cuda_code_list, capability);
}
