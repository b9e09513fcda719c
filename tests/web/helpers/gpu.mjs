// The GPU of the tests in Node: npm `webgpu` (Dawn), on the software Vulkan that comes with Chromium where it is there.
import * as fs from 'node:fs';
import { requireFromWeb } from './load.mjs';

const icd = '/usr/lib/chromium/vk_swiftshader_icd.json';
if (fs.existsSync(icd)) process.env.VK_ICD_FILENAMES ??= icd;
const dawn = await import(requireFromWeb.resolve('webgpu'));
Object.assign(globalThis, dawn.globals);

// Stays reachable as long as the module lives: Dawn crashes once it is collected.
export const gpu = dawn.create([]);
