// settings.ts: what the user chose, kept in this browser.

import { effect, signal } from '@preact/signals';
import { keep, readKept } from './kept';

export interface Settings {
    theme: 'system' | 'light' | 'dark';
    backend: 'auto' | 'webgpu' | 'cpu';
    threads: number;       // 0: one per core
    contextSize: number;   // positions
    temperature: number;
    top_k: number;
    top_p: number;
    min_p: number;
    repetition_penalty: number;
    max_tokens: number;    // 0: until the context is full
    thinking: boolean;
    imageTokens: number;   // budget for each image
    pauseHidden: boolean;  // answers wait while the page is hidden
    loadAtStart: boolean;  // the model that was used last
}

// Sampling as Gemma 4's makers recommend it.
export const defaults: Settings = {
    theme: 'system', backend: 'auto', threads: 0, contextSize: 4096,
    temperature: 1, top_k: 64, top_p: 0.95, min_p: 0, repetition_penalty: 1, max_tokens: 0, thinking: false, imageTokens: 280,
    pauseHidden: typeof matchMedia === 'function' && matchMedia('(pointer: coarse)').matches, // phones take the device away
    loadAtStart: true,
};

const key = 'carat.settings';

function read(): Settings {
    try {
        return { ...defaults, ...JSON.parse(readKept(key) ?? '{}') as Partial<Settings> };
    } catch {
        return defaults;
    }
}

export const settings = signal<Settings>(read());

export function change(changes: Partial<Settings>): void {
    settings.value = { ...settings.value, ...changes };
}

effect(() => {
    const value = settings.value;
    document.documentElement.dataset['theme'] = value.theme;
    keep(key, JSON.stringify(value));
});
