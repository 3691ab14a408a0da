// How a hold tells its loss: by an AbortSignal. Who has the signal, or listens to it, uses the hold.

'use strict';

const { getEventListeners } = require('node:events');

/** What is used by who has the signal: so the signal keeps it alive, and not the other way round only. */
const ownerOf = new WeakMap();
/** The signals that are listened to. They are kept alive, because the listener may be all that is left of the work. */
const heard = new Set();

class Loss {
    #controller = new AbortController();
    #isOver = false;
    #callbacks = [];

    /** `owner` is kept alive by the signal, and by who listens to it. */
    constructor(owner) {
        ownerOf.set(this.signal, owner);
        for (const name of ['addEventListener', 'removeEventListener']) {
            this.#watch(name);
        }
    }

    get signal() {
        return this.#controller.signal;
    }

    /** Calls back with the HoldLost, at once if it was told before. Unlike a listener the callback keeps nothing alive. */
    onLoss(callback) {
        if (this.signal.aborted) {
            callback(this.signal.reason);
        } else {
            this.#callbacks.push(callback);
        }
    }

    tell(error) {
        this.over();
        this.#controller.abort(error);
        this.#callbacks.splice(0).forEach((callback) => callback(error));
    }

    /** Nothing will be told any more. */
    over() {
        this.#isOver = true;
        heard.delete(this.signal);
    }

    /** The signal is among those heard for as long as it has listeners. */
    #watch(name) {
        const { signal } = this;
        const value = (...words) => {
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

module.exports = { Loss };
