/* rnn.h - what the two recurrent ops share: their inputs, and the shape that their kernels see. */
#ifndef GRADUS_RNN_H
#define GRADUS_RNN_H

#include "gradus/autograd.h"

enum { RNN_GATES, RNN_WEIGHT, RNN_BIAS, RNN_STATE, RNN_CELL, LSTM_INPUTS, GRU_INPUTS = RNN_CELL };

/* The order of the gates along the last dimension, as PyTorch's. */
enum { LSTM_I, LSTM_F, LSTM_G, LSTM_O, LSTM_GATE_COUNT };
enum { GRU_R, GRU_Z, GRU_N, GRU_GATE_COUNT };

typedef struct gd_rnn_shape {
    int64_t B, T, H, G; /* G: gates, each of H columns, together */
} gd_rnn_shape;

static inline gd_rnn_shape gd_rnn_shape_of(const gd_call *call)
{
    const int64_t *gates = gd_tensor_shape(call->input[RNN_GATES]);
    gd_rnn_shape s = {gates[0], gates[1], gd_tensor_shape(call->input[RNN_WEIGHT])[1], gates[2]};
    return s;
}

#endif
