// How a hold tells its loss: by an AbortSignal, and by callbacks.
//
// What fires at the end of the lease does not keep the hold alive. The signal that the user gets depends on it as one of
// AbortSignal.any does, and keeps the hold: who has that signal, or listens to it, uses the hold. What AbortSignal.any makes
// of it depends on what fires, and not on the hold: so it is told of the loss when the hold is forgotten.

import { getEventListeners } from 'node:events';

import type { HoldLost } from './errors.js';

/** What is used by who has the signal: so the signal keeps it alive. */
const ownerOf = new WeakMap<AbortSignal, object>();

type Listener = Parameters<EventTarget['removeEventListener']>[1];

export class Loss {
    /** There is none before somebody asks for the signal. */
    #controller: AbortController | undefined;
    #signal: WeakRef<AbortSignal> | undefined;
    #error: HoldLost | undefined;
    #isOver = false;
    readonly #callbacks: ((error: HoldLost) => void)[] = [];

    /** Returns the signal, which keeps its owner alive, as does who listens to it. */
    signalOf(owner: object): AbortSignal {
        const known = this.#signal?.deref();
        if (known !== undefined) {
            return known;
        }
        this.#controller ??= new AbortController();
        if (this.#error !== undefined) {
            this.#controller.abort(this.#error);
        }
        const fires = this.#controller.signal;
        // Node.js keeps a dependent signal for as long as it has listeners.
        const signal = this.#isOver ? fires : AbortSignal.any([fires]);
        ownerOf.set(signal, owner);
        this.#signal = new WeakRef(signal);
        return signal;
    }

    throwIfTold(): void {
        if (this.#error !== undefined) {
            throw this.#error;
        }
    }

    /** Calls back with the HoldLost, at once if it was told before. Unlike a listener the callback keeps no hold alive. */
    onLoss(callback: (error: HoldLost) => void): void {
        if (this.#error !== undefined) {
            callback(this.#error);
        } else {
            this.#callbacks.push(callback);
        }
    }

    tell(error: HoldLost): void {
        this.#error = error;
        this.#controller?.abort(error);
        this.over();
        this.#callbacks.splice(0).forEach((callback) => callback(error));
    }

    /** Nothing will be told any more: who still listens does not keep the hold alive. */
    over(): void {
        this.#isOver = true;
        const signal = this.#signal?.deref();
        if (signal === undefined) {
            return;
        }
        signal.onabort = null;
        for (const listener of getEventListeners(signal, 'abort') as Listener[]) {
            signal.removeEventListener('abort', listener);
            signal.removeEventListener('abort', listener, true);
        }
    }
}
