// options.ts: what callers pass is looked at before anything starts. A wrong type, a number that is none or out of range, a name that
// nobody knows become an ArgumentError that names the option, its value and what is allowed.
//
// A rule is a text, which is shorter than code: alternatives separated by |, each of them
//   boolean, string, function, object (no list, not null)      a type
//   Uint8Array, AbortSignal ...                                a class
//   =auto, =70                                                 a value
//   1..256, 0.. (up to 2^31 - 1), ~0..1 (not only whole ones)  numbers from .. to
//   RULE[]                                                     a list of those
// Nothing after the name of an option: its value is looked at elsewhere.

import { CaratError, makeError } from './errors';

function fits(value: unknown, rule: string): boolean {
    if (rule === '') return true;
    if (rule.includes('|')) return rule.split('|').some((one) => fits(value, one));
    if (rule.endsWith('[]')) return Array.isArray(value) && value.every((v) => fits(v, rule.slice(0, -2)));
    if (rule[0] === '=') return value === rule.slice(1) || value === Number(rule.slice(1));
    if (rule.includes('..')) {
        const [low, high] = rule.replace('~', '').split('..');
        if (rule[0] === '~' ? typeof value !== 'number' : !Number.isInteger(value)) return false;
        return (value as number) >= Number(low) && (value as number) <= Number(high || 2 ** 31 - 1);
    }
    if (/^[A-Z]/.test(rule)) return value instanceof (globalThis as unknown as Record<string, { new (): unknown }>)[rule]!;
    return typeof value === rule && (rule !== 'object' || (value !== null && !Array.isArray(value)));
}

// One argument, or one option: `what` is its name.
export function need(what: string, value: unknown, rule: string): void {
    if (!fits(value, rule)) throw makeError('bad_argument', `${what} is ${shown(value)}; allowed: ${rule.replace(/[=~]/g, '')}`);
}

// All options of a call, or all members of an object: `what` is its name. One that is undefined is absent.
export function check(what: string, options: unknown, rules: string): void {
    need(what, options, 'object');
    const known = new Map(rules.split(', ').map((one) => one.split(' ').concat('') as [string, string]));
    for (const [name, value] of Object.entries(options as object)) {
        if (!known.has(name)) need(`a name in ${what}`, name, [...known.keys()].join('|'));
        if (value !== undefined) need(`'${name}' in ${what}`, value, known.get(name)!);
    }
}

// Token ids as the engine takes them.
export function idsOf(ids: ArrayLike<number>): number[] {
    if (typeof ids !== 'object' || ids === null) need('ids', ids, '0..[]');
    return Array.from(ids, (id, i) => {
        need(`ids[${i}]`, id, '0..');
        return id;
    });
}

// JSON has no NaN and no infinity: it would say null, which is taken for absent.
export function jsonOf(what: string, value: unknown): string {
    try {
        return JSON.stringify(value, (name, v: unknown) => {
            if (typeof v === 'number') need(`'${name}' in ${what}`, v, '~-1e308..1e308');
            return v;
        });
    } catch (error) {
        throw error instanceof CaratError ? error : makeError('bad_argument', `${what} is no JSON: ${(error as Error).message}`);
    }
}

function shown(value: unknown): string {
    if (typeof value === 'string') return `'${value.slice(0, 40)}'`;
    return typeof value === 'object' && value !== null ? {}.toString.call(value) : String(value).slice(0, 40);
}
