/* derivatives.h - products with the matrices of derivatives, which are never formed.
 *
 * For outputs y made of inputs x, J = dy/dx, and H = d2L/dx2 for a loss L. Backwards give J^T u.
 * The other two products follow from differentiating such a gradient again (gd_gradients):
 *
 *     H v = d(g . v)/dx   where g = dL/dx
 *     J v = d(g . v)/du   where g = J^T u, which is linear in u, so that any u will do
 *
 * The second is how reverse mode alone gives the derivative in a direction (Townsend 2017, "A new
 * trick for calculating Jacobian vector products"). Each costs two backwards, of which the first
 * is made of ops. x may be several tensors: then v has one part for each, and J v and H v are
 * sums over them.
 *
 *     gd_tensor *Hv;
 *     gd_hvp(loss, &w, &v, 1, NULL, &Hv);      // for a step of conjugate gradients
 */
#ifndef GRADUS_DERIVATIVES_H
#define GRADUS_DERIVATIVES_H

#include "gradus/autograd.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gd_product_options {
    /* The products may be differentiated again, as gradients of gd_gradients_options. If not, what
     * was recorded for them is dropped, and any number may be taken in one step. */
    bool differentiable;
} gd_product_options;

/* Fills products [count] with (doutputs[i]/dinputs) vectors, of the shape and dtype of the outputs:
 * the derivative in the direction of vectors [n], each of the shape of its input. Inputs are those
 * of gd_gradients; one that no output depends on adds nothing. The tape is kept, and no gradient,
 * hook or other rank is touched. NULLs on error. */
GD_API gd_status gd_jvp(gd_tensor *const *outputs, int count, gd_tensor *const *inputs,
                        gd_tensor *const *vectors, int n, const gd_product_options *options,
                        gd_tensor **products);

/* Fills products [n] with (d2loss/dinputs2) vectors, of the shape and dtype of the inputs, for a
 * loss of one element. Otherwise as gd_jvp. */
GD_API gd_status gd_hvp(gd_tensor *loss, gd_tensor *const *inputs, gd_tensor *const *vectors, int n,
                        const gd_product_options *options, gd_tensor **products);

#ifdef __cplusplus
}
#endif
#endif
