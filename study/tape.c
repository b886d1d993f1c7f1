/* tape.c - linked with an example program: at its first gd_backward it prints what spy_tape prints
 * of it, the first values of each tensor. Then the program ends. Parameters of one number, which
 * begin at 0, begin at 0.5 and 1 here: of zeros a product shows nothing. */
#include <stdlib.h>

#include "spy.h"

enum { SHOWN = 5 };

gd_status __real_gd_backward(gd_tensor *loss);
gd_status __wrap_gd_backward(gd_tensor *loss);
gd_status __real_gd_params_finish(gd_params *params);
gd_status __wrap_gd_params_finish(gd_params *params);

gd_status __wrap_gd_params_finish(gd_params *params)
{
    const gd_status status = __real_gd_params_finish(params);
    for (int i = 0; !status && i < gd_params_count(params); i++) {
        gd_tensor *t = gd_params_at(params, i);
        if (gd_tensor_count(t) == 1) gd_tensor_fill(t, i ? 1 : 0.5);
    }
    return status;
}

gd_status __wrap_gd_backward(gd_tensor *loss)
{
    spy_tape(loss, SHOWN, __real_gd_backward);
    exit(gd_error(gd_tensor_context(loss)) != NULL);
}
