/* arguments.h - checks shared by most shape() functions. */
#ifndef GRADUS_ARGUMENTS_H
#define GRADUS_ARGUMENTS_H

#include "kernel.h"

#include <stdio.h>

/* Sets the error to a sentence about an argument. */
#define gd_refuse(call, ...) gd_call_fail(call, GD_ERROR_ARGUMENT, __VA_ARGS__)

/* A tensor as it was given, for such a sentence: "float32 [3, 4]". */
static inline gd_text gd_kind(const gd_tensor *t)
{
    gd_text text;
    snprintf(text.text, sizeof text.text, "%s %.150s", gd_dtype_name(gd_tensor_dtype(t)),
             gd_shape_text(t).text);
    return text;
}

#endif
