// Which tests run on the GPU.
//
// A software renderer needs 10 to 30 s to compile the kernels of one file. So each architecture's model runs on the GPU once, here
// or in Chromium (the same compiler, Tint); weight types and shapes are left to the native tests. `./run test --all` takes all.
const everything = process.env.CARAT_ALL !== undefined;
export const onGpuInNode = (name) => everything || /^(micro-31b\.F16|tiny-e2b\.Q4_K_M|tiny-mm-image-audio)$/.test(name);
export const onGpuInChromium = (name) => everything || /^(micro-e2b\.F32|tiny-26b\.Q4_K_M)$/.test(name);
