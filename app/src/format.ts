// format.ts: numbers for people.

export function bytes(n: number): string {
    const units = ['B', 'kB', 'MB', 'GB', 'TB'];
    let unit = 0;
    for (; n >= 1000 && unit < units.length - 1; unit++)
        n /= 1000;
    return `${n.toFixed(unit === 0 || n >= 100 ? 0 : n >= 10 ? 1 : 2)} ${units[unit]}`;
}

export function seconds(n: number): string {
    if (!Number.isFinite(n))
        return 'unknown time';
    if (n < 60)
        return `${Math.ceil(n)} s`;
    return n < 3600 ? `${Math.floor(n / 60)} min ${Math.round(n % 60)} s` : `${Math.floor(n / 3600)} h ${Math.round(n % 3600 / 60)} min`;
}

export function day(time: number): string {
    return new Date(time).toLocaleDateString(undefined, { day: 'numeric', month: 'short', year: 'numeric' });
}
