// Softmax over rows, alone and with the logistic loss. S is the type of labels. A block's y is rows; its x, whole warps, shares a row's classes.

// Over this row's threads (all of the block come here): by shuffles in a warp, through shared memory beyond.
template <class V, class F> __device__ inline V across_row(V value, F combine) {
    for (int d = 16; d; d /= 2) value = combine(value, __shfl_xor_sync(ALL_LANES, value, d));
    if (blockDim.x == 32) return value;
    __shared__ V parts[32];
    int n_warps = blockDim.x / 32, mine = threadIdx.y * n_warps;
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[mine + threadIdx.x / 32] = value;
    __syncthreads();
    value = parts[mine];
    for (int w = 1; w < n_warps; w++) value = combine(value, parts[mine + w]);
    return value;
}

struct Greater { template <class V> __device__ V operator()(V a, V b) const { return a > b ? a : b; } };
struct Plus { template <class V> __device__ V operator()(V a, V b) const { return a + b; } };

// body(row, whether it is one) for all rows; every thread of a block takes the same turns.
template <class F> __device__ inline void for_all_rows(long long n_rows, F body) {
    for (long long r0 = (long long)blockIdx.x * blockDim.y; r0 < n_rows; r0 += (long long)gridDim.x * blockDim.y)
        body(r0 + threadIdx.y, r0 + threadIdx.y < n_rows);
}

// y = exp(x - max) / sum, and max + log(sum). y may be x.
__device__ inline A softmax_of_row(const T* x, T* y, int n_classes, bool is_row) {
    A most = __int_as_float(0xff800000);  // -infinity
    if (is_row)
        for (int c = threadIdx.x; c < n_classes; c += blockDim.x) most = max(most, widen(x[c]));
    most = across_row(most, Greater());
    A sum = 0;
    if (is_row)
        for (int c = threadIdx.x; c < n_classes; c += blockDim.x) sum += exp(widen(x[c]) - most);
    sum = across_row(sum, Plus());
    if (is_row)
        for (int c = threadIdx.x; c < n_classes; c += blockDim.x) y[c] = narrow(exp(widen(x[c]) - most) / sum);
    return most + log(sum);
}

extern "C" __global__ void softmax_rows(const T* x, T* y, long long n_rows, int n_classes) {
    for_all_rows(n_rows, [&](long long r, bool is_row) {
        softmax_of_row(x + r * n_classes, y + r * n_classes, n_classes, is_row);
    });
}

// gx = y (gy - sum of gy y). gx may be gy.
extern "C" __global__ void softmax_rows_back(const T* y, const T* gy, T* gx, long long n_rows, int n_classes) {
    for_all_rows(n_rows, [&](long long r, bool is_row) {
        long long at = r * n_classes;
        A dot = 0;
        if (is_row)
            for (int c = threadIdx.x; c < n_classes; c += blockDim.x) dot += widen(gy[at + c]) * widen(y[at + c]);
        dot = across_row(dot, Plus());
        if (is_row)
            for (int c = threadIdx.x; c < n_classes; c += blockDim.x)
                gx[at + c] = narrow((widen(gy[at + c]) - dot) * widen(y[at + c]));
    });
}

// The softmax of each row, the row's loss -log(probability of its label) and whether it counts. The loss is of the scores:
// half types round small probabilities to 0. As in Caffe, it is at most -log(FLT_MIN). A label that is no class (and not
// the ignored one) sets wrong to the label + 1, or to -1 below 0, and does not count.
extern "C" __global__ void softmax_losses(const T* x, const S* labels, T* prob, A* losses, int* counts, int* wrong,
                                          int ignores, int ignored, long long n_rows, int n_classes) {
    for_all_rows(n_rows, [&](long long r, bool is_row) {
        A all = softmax_of_row(x + r * n_classes, prob + r * n_classes, n_classes, is_row);
        if (!is_row || threadIdx.x) return;
        int label = (int)widen(labels[r]);
        bool counted = !(ignores && label == ignored), is_class = label >= 0 && label < n_classes;
        if (counted && !is_class) atomicExch(wrong, label < 0 ? -1 : label + 1);
        counts[r] = counted && is_class;
        A loss = counts[r] ? all - widen(x[r * n_classes + label]) : A(0);
        losses[r] = loss > A(87.33654475) ? A(87.33654475) : loss;  // a NaN stays one
    });
}

// gx = (prob - 1 at the label) weight / divisor, 0 where the row does not count.
extern "C" __global__ void softmax_loss_back(const T* prob, const S* labels, const int* counts, const A* divisor,
                                             const A* weight, T* gx, long long n_rows, int n_classes) {
    A scale = weight[0] / divisor[0];
    long long first = blockIdx.x * (long long)blockDim.x + threadIdx.x, step = gridDim.x * (long long)blockDim.x;
    for (long long i = first; i < n_rows * n_classes; i += step) {
        long long r = i / n_classes;
        A own = int(i - r * n_classes) == (int)widen(labels[r]) ? A(1) : A(0);
        gx[i] = narrow(counts[r] ? (widen(prob[i]) - own) * scale : A(0));
    }
}
