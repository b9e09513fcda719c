// webgpu_upload.h: a part of webgpu_kernels.

#ifndef CARAT_BENCH_WEBGPU_UPLOAD_H
#define CARAT_BENCH_WEBGPU_UPLOAD_H

// Prints GB/s of about n_mib MiB: the device's copies, uploads from memory and from a mapped file, and weights.
void bench_upload(int n_mib);

#endif
