// Update rules of Caffe 1.0, each one pass over the flat buffers of weights, gradients and histories. S is the type
// of an optional copy of the new weights. scaffe/training/update_rules gives the formulas' sources.
//
// The buffers come in chunks, one a block at a time, each of one parameter: where it begins, how long it is, and its
// factors on rate and decay; for the copy, which has weights (O, I, K) as (O, K, I), where the parameter begins, I and K.
// control, where given: a factor on the gradients, and not 0 to leave everything as it is.

struct Chunk { long long start, n_elems; double rate, decay; long long origin; unsigned n_in, n_places; };

__device__ inline bool lies_alike(const Chunk& chunk) { return chunk.n_in == 1 || chunk.n_places == 1; }

// Where the copy has the weight at a place.
__device__ inline long long place_in_copy(const Chunk& chunk, long long at) {
    unsigned in_param = unsigned(at - chunk.origin), row = in_param / chunk.n_places, place = in_param % chunk.n_places;
    return chunk.origin + (long long)(row / chunk.n_in * chunk.n_places + place) * chunk.n_in + row % chunk.n_in;
}

#define NUMBERS A rate, A decay, A scale, int l1, int keeps_step, A momentum, A second, A delta

// W elements from place `at` on: formula(rate, gradient, history, second history) gives what is taken off a weight.
template <int W, bool TWO, class F>
__device__ inline void step(T* w, T* g, T* h, T* h2, S* copy, bool copies, long long at, A rate, A decay,
                            A scale, int l1, int keeps_step, F formula) {
    auto weights = load<W>(w + at), gradients = load<W>(g + at), olds = load<W>(h + at), olds2 = olds;
    if (TWO) olds2 = load<W>(h2 + at);
    Pack<S, W> narrows;
    for (int k = 0; k < W; k++) {
        A weight = widen(weights.at[k]), old = widen(olds.at[k]), old2 = widen(olds2.at[k]);
        A pull = l1 ? A((weight > 0) - (weight < 0)) : weight;
        A taken = formula(rate, scale * widen(gradients.at[k]) + decay * pull, old, old2);
        weights.at[k] = narrow(weight - taken);
        gradients.at[k] = narrow(taken);
        olds.at[k] = narrow(old);
        olds2.at[k] = narrow(old2);
        narrows.at[k] = Narrowed<S>::of(weight - taken);
    }
    store<W>(w + at, weights);
    store<W>(h + at, olds);
    if (TWO) store<W>(h2 + at, olds2);
    if (keeps_step) store<W>(g + at, gradients);
    if (copies) store<W>(copy + at, narrows);
}

// This block's new weights to the copy, where it has them in another order.
__device__ inline void copy_turned(const T* w, S* copy, const Chunk* chunks, int n_chunks) {
    __syncthreads();  // other threads have written some of them
    for (int b = blockIdx.x; b < n_chunks; b += gridDim.x) {
        Chunk chunk = chunks[b];
        for (int e = lies_alike(chunk) ? int(chunk.n_elems) : threadIdx.x; e < chunk.n_elems; e += blockDim.x)
            copy[place_in_copy(chunk, chunk.start + e)] = Narrowed<S>::of(widen(w[chunk.start + e]));
    }
}

template <bool TWO, class F>
__device__ inline void update(T* w, T* g, T* h, T* h2, S* copy, const Chunk* chunks, int n_chunks, const float* control,
                              A rate, A decay, A scale, int l1, int keeps_step, F formula) {
    if (control && control[1] != 0) return;
    if (control) scale *= control[0];
    bool packed = lie_whole(w, g, h, copy) && lie_whole(h2);
    for (int b = blockIdx.x; b < n_chunks; b += gridDim.x) {
        Chunk chunk = chunks[b];
        A own_rate = rate * chunk.rate, own_decay = decay * chunk.decay;
        int n_elems = int(chunk.n_elems), head = int((PACK - chunk.start % PACK) % PACK);
        if (!packed || head > n_elems) head = n_elems;
        int n_packs = (n_elems - head) / PACK;
        bool copies = copy && lies_alike(chunk);
        for (int p = threadIdx.x; p < n_packs; p += blockDim.x)
            step<PACK, TWO>(w, g, h, h2, copy, copies, chunk.start + head + (long long)p * PACK, own_rate, own_decay,
                            scale, l1, keeps_step, formula);
        for (int e = threadIdx.x; e < n_elems - n_packs * PACK; e += blockDim.x)
            step<1, TWO>(w, g, h, h2, copy, copies, chunk.start + (e < head ? e : e + n_packs * PACK), own_rate,
                         own_decay, scale, l1, keeps_step, formula);
    }
    if (copy) copy_turned(w, copy, chunks, n_chunks);
}

#define RULE(NAME, TWO, FORMULA)                                                                                       \
    extern "C" __global__ void __launch_bounds__(256) NAME(T* w, T* g, T* h, T* h2, S* copy, const Chunk* chunks,      \
                                                           int n_chunks, const float* control, NUMBERS) {              \
        update<TWO>(w, g, h, h2, copy, chunks, n_chunks, control, rate, decay, scale, l1, keeps_step,                  \
                    [=](A r, A d, A& old, A& old2) -> A { FORMULA });                                                  \
    }

RULE(sgd, false, return old = momentum * old + r * d;)

RULE(nesterov, false, A before = old; old = momentum * before + r * d; return (1 + momentum) * old - momentum * before;)

RULE(localupdate, false, old += d; return r * d;)

RULE(adagrad, false, old += d * d; return r * (d / (sqrt(old) + delta));)

RULE(rmsprop, false, old = second * old + (1 - second) * d * d; return r * (d / (sqrt(old) + delta));)

RULE(adadelta, true, old = momentum * old + (1 - momentum) * d * d; A step = d * sqrt((delta + old2) / (delta + old));
     old2 = momentum * old2 + (1 - momentum) * step * step; return r * step;)

RULE(adam, true, old = momentum * old + (1 - momentum) * d; old2 = second * old2 + (1 - second) * d * d;
     return r * (old / (sqrt(old2) + delta));)
