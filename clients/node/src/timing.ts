// Waits that end in time.

import { setMaxListeners } from 'node:events';

/** setTimeout takes no more milliseconds than this. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/**
 * Settles as the promise does. Resolves to undefined instead when `ms` milliseconds pass first, or the signal aborts.
 * A promise that is left behind may reject: nobody is told.
 */
export function bounded<T>(promise: Promise<T>, ms: number, signal?: AbortSignal): Promise<T | undefined> {
    return new Promise((resolve, reject) => {
        const over = () => {
            clearTimeout(timer);
            signal?.removeEventListener('abort', giveUp);
        };
        const giveUp = () => {
            over();
            resolve(undefined);
        };
        // setTimeout cuts the fraction off: whoever waits until a moment would wake before it, and wait once more.
        const timer = ms < LONGEST_TIMER_MS ? setTimeout(giveUp, Math.ceil(Math.max(0, ms))) : undefined;
        signal?.addEventListener('abort', giveUp, { once: true });
        if (signal?.aborted) {
            giveUp();
        }
        const settled = (value: T) => {
            over();
            resolve(value);
        };
        promise.then(settled, (error: unknown) => {
            over();
            reject(error);
        });
    });
}

/** Takes the signal of a caller, if any. Any number of waits may share it, and Node.js would warn of the eleventh. */
export function takeSignal(signal?: AbortSignal): void {
    if (signal === undefined) {
        return;
    }
    if (typeof signal?.addEventListener !== 'function' || typeof signal.aborted !== 'boolean') {
        throw new TypeError('signal must be an AbortSignal');
    }
    setMaxListeners(0, signal);
}

/** Resolves after so many milliseconds, or when the signal aborts. */
export async function pause(ms: number, signal?: AbortSignal): Promise<void> {
    await bounded(new Promise(() => {}), Math.min(ms, LONGEST_TIMER_MS - 1), signal);
}

/** Does what has come due, and returns in how many milliseconds it must look again. */
interface Watcher {
    look(): number;
}

/** The one timer of all that must look at the clock. */
export class Rounds {
    readonly #all = new Set<Watcher>();
    #timer: NodeJS.Timeout | undefined;
    #at = Infinity;

    add(watcher: Watcher): void {
        this.#all.add(watcher);
    }

    delete(watcher: Watcher): void {
        this.#all.delete(watcher);
    }

    /** Looks after so many milliseconds at the latest. */
    lookIn(ms: number): void {
        const at = performance.now() + ms;
        if (at < this.#at) {
            clearTimeout(this.#timer);
            this.#at = at;
            // Holds alone do not keep the process alive.
            this.#timer = setTimeout(() => this.#look(), Math.min(Math.max(0, Math.ceil(ms)), LONGEST_TIMER_MS)).unref();
        }
    }

    #look(): void {
        this.#at = Infinity;
        let nextMs = Infinity;
        for (const watcher of this.#all) {
            nextMs = Math.min(nextMs, watcher.look());
        }
        this.lookIn(nextMs);
    }
}
