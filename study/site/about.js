// about.js - what readers call the things that pages are about, for the search, where the page says
// it in other words.
'use strict';

module.exports = {
    'lesson-chain.html' : [ 'chain rule', 'backpropagation', 'backprop', 'local gradient' ],
    'lesson-matrix-product.html' : [ 'einsum', 'matrix calculus', 'matmul gradient' ],
    'lesson-slope.html' : [ 'gradient', 'derivative', 'gradient descent', 'sgd' ],
    'lesson-sum-and-broadcast.html' : [ 'broadcast', 'broadcasting', 'unbroadcast' ],
    'lesson-two-readers.html' : [ 'accumulate', 'zero grad', 'gradient accumulation' ],
    'lesson-why-backwards.html' : [ 'jacobian', 'vjp', 'jvp', 'reverse mode', 'forward mode', 'vector-Jacobian product', 'automatic differentiation' ],
    'rms_norm-gpu.html' : [ 'triton', 'kernel', 'coalescing', 'warp', 'gpu kernel' ],
    'second_derivatives.html' : [ 'hessian', 'hvp', 'second order', 'double backward', 'second derivative' ],
    'training.html' : [ 'adam', 'checkpoint', 'optimizer' ],
    'attention.html' : [
        'attention', 'flash attention', 'self attention', 'scaled dot product attention', 'sdpa',
        'multi-head attention', 'grouped query attention', 'causal mask'
    ],
    'axis.html' : [
        'index select', 'take along dim', 'prefix sum', 'scatter', 'sort', 'sorting', 'top k', 'argmin', 'one hot'
    ],
    'batch_norm.html' : [ 'batch norm', 'batch normalization', 'group norm', 'instance norm' ],
    'break.html' : [ 'planted bugs', 'wrong gradient', 'debug a backward' ],
    'conv.html' : [ 'convolution', 'conv', 'deconvolution', 'transposed convolution', 'im2col', 'depthwise' ],
    'cross_entropy.html' :
        [ 'cross entropy', 'loss', 'nll', 'negative log likelihood', 'label smoothing', 'softmax loss' ],
    'dropout.html' : [ 'mask', 'regularization' ],
    'elementwise.html' : [ 'activation', 'elementwise' ],
    'embedding.html' : [ 'lookup', 'token embedding' ],
    'exercises.html' : [ 'exercise', 'write a backward', 'puzzle', 'practice' ],
    'layer_norm.html' : [ 'layer norm', 'layer normalization' ],
    'linear.html' : [ 'fully connected', 'dense layer', 'affine' ],
    'loss.html' : [
        'huber', 'kl divergence', 'binary cross entropy', 'bce', 'mse', 'mean squared error', 'cosine similarity'
    ],
    'matmul.html' : [ 'matrix product', 'matrix multiplication', 'gemm' ],
    'numerics.html' : [ 'finite differences', 'numerical gradient', 'gradient check', 'gradcheck', 'step size', 'rounding' ],
    'pad.html' : [ 'padding', 'reflect', 'replicate', 'upsampling', 'upsample', 'interpolate', 'nearest neighbour' ],
    'pool.html' : [ 'pooling', 'max pooling', 'average pooling', 'avg pooling' ],
    'reduce.html' : [
        'reduction', 'variance', 'standard deviation', 'log sum exp', 'product', 'any', 'all', 'min'
    ],
    'rms_norm.html' : [ 'rms norm', 'rmsnorm', 'root mean square', 'normalization' ],
    'rnn.html' : [ 'lstm', 'gru', 'recurrent', 'backpropagation through time' ],
    'rope.html' : [ 'rotary', 'rotary positions', 'rotary embedding', 'position encoding' ],
    'shape.html' : [ 'view', 'transpose', 'stride', 'cat', 'roll', 'flip', 'split', 'stack', 'tril', 'triu' ],
        'swiglu.html' : [ 'swish', 'silu', 'gated linear unit', 'glu', 'mlp' ],
    'tape.html' : [ 'computation graph', 'autograd', 'tape' ],
    'train.html' : [ 'training', 'learn', 'adamw' ],
};
