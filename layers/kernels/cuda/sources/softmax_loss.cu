// The loss that softmax_losses left row by row; T is the type of the loss alone.

// loss = sum of losses / divisor, and the divisor itself: fixed, or where that is 0 the count, at least 1. A wrong label
// makes the loss no number. One block.
extern "C" __global__ void total_loss(const A* losses, const int* counts, const int* wrong, T* loss, A* divisor, A fixed,
                                      long long n_rows) {
    double sum = 0;
    long long n_counted = 0;
    for (long long r = threadIdx.x; r < n_rows; r += blockDim.x) {
        sum += losses[r];
        n_counted += counts[r];
    }
    sum = block_sum(sum);
    n_counted = block_sum(n_counted);
    if (threadIdx.x) return;
    A by = fixed > 0 ? fixed : A(n_counted > 1 ? n_counted : 1);
    divisor[0] = by;
    loss[0] = narrow(wrong[0] ? A(__int_as_float(0x7fc00000)) : A(sum / by));
}

