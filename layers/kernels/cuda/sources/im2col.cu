// Windows of channels-last images as rows of a matrix, for convolutions by products; up to three spatial axes (missing
// ones are 1). columns is (groups, images x places, kernel places x channels of a group).

struct Geometry {
    int in[3], out[3], kernel[3], stride[3], pad[3], dilation[3];
};
#define GEOMETRY int n_images, int n_channels, int n_groups, int in0, int in1, int in2, int out0, int out1, int out2, \
                 int k0, int k1, int k2, int s0, int s1, int s2, int p0, int p1, int p2, int d0, int d1, int d2
#define THE_GEOMETRY {{in0, in1, in2}, {out0, out1, out2}, {k0, k1, k2}, {s0, s1, s2}, {p0, p1, p2}, {d0, d1, d2}}

extern "C" __global__ void im2col(const T* x, T* columns, GEOMETRY) {
    Geometry q = THE_GEOMETRY;
    int n_taps = k0 * k1 * k2, n_out = out0 * out1 * out2, per_group = n_channels / n_groups;
    long long n_rows = (long long)n_images * n_out, n_elems = n_rows * n_taps * n_channels;
    long long first = blockIdx.x * (long long)blockDim.x + threadIdx.x, step = gridDim.x * (long long)blockDim.x;
    for (long long i = first; i < n_elems; i += step) {
        int c = int(i % per_group), tap = int(i / per_group % n_taps);
        long long row = i / per_group / n_taps % n_rows;
        int g = int(i / per_group / n_taps / n_rows), n = int(row / n_out), place = int(row % n_out);
        int outs[3] = {place / (out1 * out2), place / out2 % out1, place % out2};
        int taps[3] = {tap / (k1 * k2), tap / k2 % k1, tap % k2};
        long long from = n;
        bool inside = true;
        for (int axis = 0; axis < 3; axis++) {
            int at = outs[axis] * q.stride[axis] - q.pad[axis] + taps[axis] * q.dilation[axis];
            inside = inside && at >= 0 && at < q.in[axis];
            from = from * q.in[axis] + at;
        }
        columns[i] = inside ? x[from * n_channels + g * per_group + c] : narrow(A(0));
    }
}

// Each element of the image gets the sum of its copies in the rows, always in one order.
extern "C" __global__ void col2im(const T* columns, T* gx, GEOMETRY) {
    Geometry q = THE_GEOMETRY;
    int n_taps = k0 * k1 * k2, n_in = in0 * in1 * in2, per_group = n_channels / n_groups;
    long long n_rows = (long long)n_images * out0 * out1 * out2, n_elems = (long long)n_images * n_in * n_channels;
    long long first = blockIdx.x * (long long)blockDim.x + threadIdx.x, step = gridDim.x * (long long)blockDim.x;
    for (long long i = first; i < n_elems; i += step) {
        int channel = int(i % n_channels), g = channel / per_group, c = channel % per_group;
        long long at = i / n_channels;
        int n = int(at / n_in), place = int(at % n_in);
        int ins[3] = {place / (in1 * in2), place / in2 % in1, place % in2};
        A sum = 0;
        for (int tap = 0; tap < n_taps; tap++) {
            int taps[3] = {tap / (k1 * k2), tap / k2 % k1, tap % k2};
            long long row = n;
            bool met = true;
            for (int axis = 0; axis < 3; axis++) {
                int away = ins[axis] + q.pad[axis] - taps[axis] * q.dilation[axis], out = away / q.stride[axis];
                met = met && away >= 0 && away % q.stride[axis] == 0 && out < q.out[axis];
                row = row * q.out[axis] + out;
            }
            if (met) sum += widen(columns[((g * n_rows + row) * n_taps + tap) * per_group + c]);
        }
        gx[i] = narrow(sum);
    }
}
