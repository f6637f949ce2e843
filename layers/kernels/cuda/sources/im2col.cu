// Windows of channels-last images as rows of a matrix, for convolutions by products; up to MOST_AXES spatial axes.
// columns is (groups, images x places, kernel places x channels of a group).

const int MOST_AXES = 8;

// Rows of n_axes numbers each.
struct Geometry {
    const int *in, *out, *kernel, *stride, *pad, *dilation;
    int n_axes, n_in, n_out, n_taps;
};

__device__ inline Geometry read(const int* numbers, int n) {
    Geometry q = {numbers, numbers + n, numbers + 2 * n, numbers + 3 * n, numbers + 4 * n, numbers + 5 * n, n, 1, 1, 1};
    for (int axis = 0; axis < n; axis++) {
        q.n_in *= q.in[axis];
        q.n_out *= q.out[axis];
        q.n_taps *= q.kernel[axis];
    }
    return q;
}

// A place's index on each axis.
__device__ inline void unravel(int place, const int* sizes, int n_axes, int* at) {
    for (int axis = n_axes - 1; axis >= 0; axis--) {
        at[axis] = place % sizes[axis];
        place /= sizes[axis];
    }
}

extern "C" __global__ void im2col(const T* x, T* columns, const int* numbers, int n_axes, int n_images, int n_channels,
                                  int n_groups) {
    Geometry q = read(numbers, n_axes);
    int per_group = n_channels / n_groups, outs[MOST_AXES], taps[MOST_AXES];
    long long n_rows = (long long)n_images * q.n_out, n_elems = n_rows * q.n_taps * n_channels;
    long long first = blockIdx.x * (long long)blockDim.x + threadIdx.x, step = gridDim.x * (long long)blockDim.x;
    for (long long i = first; i < n_elems; i += step) {
        int c = int(i % per_group);
        long long row = i / per_group / q.n_taps % n_rows;
        int g = int(i / per_group / q.n_taps / n_rows);
        unravel(int(row % q.n_out), q.out, n_axes, outs);
        unravel(int(i / per_group % q.n_taps), q.kernel, n_axes, taps);
        long long from = row / q.n_out;
        bool inside = true;
        for (int axis = 0; axis < n_axes; axis++) {
            int at = outs[axis] * q.stride[axis] - q.pad[axis] + taps[axis] * q.dilation[axis];
            inside = inside && at >= 0 && at < q.in[axis];
            from = from * q.in[axis] + at;
        }
        columns[i] = inside ? x[from * n_channels + g * per_group + c] : narrow(A(0));
    }
}

// Each element of the image gets the sum of its copies in the rows, always in one order.
extern "C" __global__ void col2im(const T* columns, T* gx, const int* numbers, int n_axes, int n_images, int n_channels,
                                  int n_groups) {
    Geometry q = read(numbers, n_axes);
    int per_group = n_channels / n_groups, ins[MOST_AXES], taps[MOST_AXES];
    long long n_rows = (long long)n_images * q.n_out, n_elems = (long long)n_images * q.n_in * n_channels;
    long long first = blockIdx.x * (long long)blockDim.x + threadIdx.x, step = gridDim.x * (long long)blockDim.x;
    for (long long i = first; i < n_elems; i += step) {
        int channel = int(i % n_channels), g = channel / per_group, c = channel % per_group;
        long long at = i / n_channels;
        unravel(int(at % q.n_in), q.in, n_axes, ins);
        A sum = 0;
        for (int tap = 0; tap < q.n_taps; tap++) {
            unravel(tap, q.kernel, n_axes, taps);
            long long row = at / q.n_in;
            bool met = true;
            for (int axis = 0; axis < n_axes; axis++) {
                int away = ins[axis] + q.pad[axis] - taps[axis] * q.dilation[axis], out = away / q.stride[axis];
                met = met && away >= 0 && away % q.stride[axis] == 0 && out < q.out[axis];
                row = row * q.out[axis] + out;
            }
            if (met) sum += widen(columns[((g * n_rows + row) * q.n_taps + tap) * per_group + c]);
        }
        gx[i] = narrow(sum);
    }
}
