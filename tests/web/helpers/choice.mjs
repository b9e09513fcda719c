// Which tests run on the GPU.
//
// A software renderer needs 10 to 30 s to compile the kernels of one file. So the native tests take every architecture, weight type
// and tower; Node and Chromium (both with Dawn and Tint) each take what shows that the package and its kernels work there.
// `./run test --all` takes everything everywhere.
const everything = process.env.CARAT_ALL !== undefined;
export const onGpuInNode = (name) => everything || name === 'micro-31b.F16';
export const onGpuInChromium = (name) => everything || name === 'tiny-e2b.Q4_K_M';
