// Numbers of a whole flat array, in two steps of one order each: parts of blocks, then one block.

extern "C" __global__ void sum_of_squares(const T* x, double* parts, long long n_elems) {
    A sum = 0;
    for_elements(n_elems, lie_whole(x), [&](auto width, long long i) {
        auto values = load<width.value>(x + i);
        for (int k = 0; k < width.value; k++) sum += widen(values.at[k]) * widen(values.at[k]);
    });
    double whole = block_sum((double)sum);
    if (threadIdx.x == 0) parts[blockIdx.x] = whole;
}

// out = sum of the parts. One block.
extern "C" __global__ void sum_parts(const double* parts, double* out, int n_parts) {
    double sum = 0;
    for (int p = threadIdx.x; p < n_parts; p += blockDim.x) sum += parts[p];
    sum = block_sum(sum);
    if (threadIdx.x == 0) out[0] = sum;
}

// flag becomes 1 where an element is infinite or no number; else it stays.
extern "C" __global__ void check_finite(const T* x, int* flag, long long n_elems) {
    bool found = false;
    for_elements(n_elems, lie_whole(x), [&](auto width, long long i) {
        auto values = load<width.value>(x + i);
        for (int k = 0; k < width.value; k++) found |= !(widen(values.at[k]) - widen(values.at[k]) == 0);
    });
    if (__syncthreads_or(found) && threadIdx.x == 0) flag[0] = 1;
}
