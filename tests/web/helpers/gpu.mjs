// The GPU of the tests in Node: npm `webgpu` (Dawn), on the software Vulkan that comes with Chromium where it is there.
import * as fs from 'node:fs';
import { gpuOfNode } from '../../../web/bin/gpu.mjs';

const icd = '/usr/lib/chromium/vk_swiftshader_icd.json';
if (fs.existsSync(icd)) process.env.VK_ICD_FILENAMES ??= icd;
export const gpu = await gpuOfNode(true);
