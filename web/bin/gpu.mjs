// gpu.mjs: npm's `webgpu`, where it is installed.

// wanted: its absence is an error.
export async function gpuOfNode(wanted) {
    try {
        const { create, globals } = await import('webgpu');
        Object.assign(globalThis, globals);
        return (globalThis.caratGpu = create([])); // stays reachable: Dawn crashes once it is collected
    } catch (error) {
        if (wanted) throw new Error(`npm's webgpu is needed for --backend webgpu: ${error.message}`, { cause: error });
        return undefined;
    }
}
