// kept.ts: small things kept in this browser's localStorage. Where that is forbidden they last as long as the page.

const forgotten = new Map<string, string>();

export function readKept(key: string): string | undefined {
    try {
        return localStorage.getItem(key) ?? undefined;
    } catch {
        return forgotten.get(key);
    }
}

export function keep(key: string, value: string | undefined): void {
    try {
        if (value === undefined)
            localStorage.removeItem(key);
        else
            localStorage.setItem(key, value);
    } catch {
        if (value === undefined)
            forgotten.delete(key);
        else
            forgotten.set(key, value);
    }
}
