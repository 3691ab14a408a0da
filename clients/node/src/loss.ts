// How a hold tells its loss: by an AbortSignal. Who has the signal, or listens to it, uses the hold.

import { getEventListeners } from 'node:events';

import type { HoldLost } from './errors.js';

/** What is used by who has the signal: so the signal keeps it alive, and not the other way round only. */
const ownerOf = new WeakMap<AbortSignal, object>();
/** The signals that are listened to. They are kept alive, because the listener may be all that is left of the work. */
const heard = new Set<AbortSignal>();

export class Loss {
    readonly #controller = new AbortController();
    #isOver = false;
    readonly #callbacks: ((error: HoldLost) => void)[] = [];

    /** `owner` is kept alive by the signal, and by who listens to it. */
    constructor(owner: object) {
        ownerOf.set(this.signal, owner);
        this.#watch('addEventListener');
        this.#watch('removeEventListener');
    }

    get signal(): AbortSignal {
        return this.#controller.signal;
    }

    /** Calls back with the HoldLost, at once if it was told before. Unlike a listener the callback keeps nothing alive. */
    onLoss(callback: (error: HoldLost) => void): void {
        if (this.signal.aborted) {
            callback(this.signal.reason as HoldLost);
        } else {
            this.#callbacks.push(callback);
        }
    }

    tell(error: HoldLost): void {
        this.over();
        this.#controller.abort(error);
        this.#callbacks.splice(0).forEach((callback) => callback(error));
    }

    /** Nothing will be told any more. */
    over(): void {
        this.#isOver = true;
        heard.delete(this.signal);
    }

    /** The signal is among those heard for as long as it has listeners. */
    #watch(name: 'addEventListener' | 'removeEventListener'): void {
        const { signal } = this;
        const value = (...words: Parameters<EventTarget['addEventListener']>) => {
            EventTarget.prototype[name].apply(signal, words);
            if (!this.#isOver && getEventListeners(signal, 'abort').length > 0) {
                heard.add(signal);
            } else {
                heard.delete(signal);
            }
        };
        Object.defineProperty(signal, name, { value, configurable: true, writable: true });
    }
}
