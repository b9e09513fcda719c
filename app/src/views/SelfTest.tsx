// SelfTest.tsx: some graphics devices compute wrongly. A few kernels with known results run once for each, before any download.

import { signal } from '@preact/signals';
import { CaratError, selfTest, version } from 'carat-web';
import { useEffect } from 'preact/hooks';
import { keep, readKept } from '../kept';
import { change } from '../settings';

type Result = { state: 'running' } | { state: 'passed'; ms: number | undefined } | { state: 'failed'; message: string };

const result = signal<Result | undefined>(undefined);
const key = 'carat.self-test';

async function run(device: string): Promise<void> {
    const name = `${version} ${device}`;
    if (result.value !== undefined)
        return;
    if (readKept(key) === name) {
        result.value = { state: 'passed', ms: undefined };
        return;
    }
    result.value = { state: 'running' };
    try {
        result.value = { state: 'passed', ms: (await selfTest()).ms };
        keep(key, name);
    } catch (error) {
        result.value = { state: 'failed', message: error instanceof CaratError ? error.message : (error as Error).message };
        change({ backend: 'cpu' });
    }
}

export function SelfTest({ device }: { device: string }) {
    useEffect(() => void run(device), [device]);
    const found = result.value;
    if (found === undefined || found.state === 'running')
        return <span>Checking that it computes correctly …</span>;
    if (found.state === 'passed')
        return <span>It computes correctly{found.ms !== undefined && ` (checked in ${(found.ms / 1000).toFixed(1)} s)`}.</span>;
    return <span class="error">It computes wrongly ({found.message}). Models run on the processor instead; the settings can change that.</span>;
}
