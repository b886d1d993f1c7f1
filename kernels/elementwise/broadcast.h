/* broadcast.h - the shape rule of ops that broadcast their inputs. */
#ifndef GRADUS_BROADCAST_H
#define GRADUS_BROADCAST_H

#include "gradus/autograd.h"

/* The output has the shape that all inputs of the call broadcast to, and the dtype that its real
 * inputs share. Refuses inputs that do not broadcast. */
gd_status gd_broadcast_shape(const gd_call *call, gd_shapes *out);

#endif
