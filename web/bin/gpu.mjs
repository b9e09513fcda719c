// gpu.mjs: npm's `webgpu` (Dawn), where it is installed.

// As natively: the kernels guard their own indices, and none reads workgroup memory that it has not written. Checks and zeros cost a
// fifth of the speed of decoding on an H200. The driver's own guard of buffers stays.
const toggles = ['enable-dawn-features=disable_robustness,disable_workgroup_init'];

// wanted: its absence is an error.
export async function gpuOfNode(wanted) {
    try {
        const { create, globals } = await import('webgpu');
        Object.assign(globalThis, globals);
        return (globalThis.caratGpu = create(toggles)); // stays reachable: Dawn crashes once it is collected
    } catch (error) {
        if (wanted) throw new Error(`npm's webgpu is needed for --backend webgpu: ${error.message}`, { cause: error });
        return undefined;
    }
}
