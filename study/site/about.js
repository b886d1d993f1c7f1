// about.js - what readers call the things that pages are about, for the search, where the page says
// it in other words.
'use strict';

module.exports = {
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
    'elementwise.html' : [ 'activation', 'broadcast', 'relu', 'gelu', 'sigmoid', 'tanh', 'elementwise' ],
    'embedding.html' : [ 'lookup', 'token embedding' ],
    'exercises.html' : [ 'exercise', 'write a backward', 'puzzle', 'practice' ],
    'layer_norm.html' : [ 'layer norm', 'layer normalization' ],
    'linear.html' : [ 'fully connected', 'dense layer', 'affine' ],
    'loss.html' : [
        'huber', 'kl divergence', 'binary cross entropy', 'bce', 'mse', 'mean squared error', 'cosine similarity'
    ],
    'matmul.html' : [ 'matrix product', 'matrix multiplication', 'gemm' ],
    'numerics.html' : [ 'finite differences', 'gradient check', 'gradcheck', 'step size', 'rounding' ],
    'pad.html' : [ 'padding', 'reflect', 'replicate', 'upsampling', 'upsample', 'interpolate', 'nearest neighbour' ],
    'pool.html' : [ 'pooling', 'max pooling', 'average pooling' ],
    'reduce.html' : [
        'sum', 'mean', 'variance', 'standard deviation', 'log sum exp', 'prod', 'product', 'norm', 'any', 'all', 'min'
    ],
    'rms_norm.html' : [ 'rms norm', 'rmsnorm', 'root mean square', 'normalization' ],
    'rnn.html' : [ 'lstm', 'gru', 'recurrent', 'backpropagation through time' ],
    'rope.html' : [ 'rotary', 'rotary positions', 'rotary embedding', 'position encoding' ],
    'shape.html' : [ 'view', 'transpose', 'stride', 'cat', 'roll', 'flip', 'split', 'stack', 'tril', 'triu' ],
    'softmax.html' : [ 'softmax' ],
    'swiglu.html' : [ 'swish', 'silu', 'gated linear unit', 'glu', 'mlp' ],
    'tape.html' : [ 'computation graph', 'autograd', 'tape' ],
    'train.html' : [ 'training', 'learn', 'adamw' ],
};
