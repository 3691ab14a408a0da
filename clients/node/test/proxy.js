// A network that fails: between clients and a server.

'use strict';

const net = require('node:net');

const { open } = require('./ends.js');

/** A TCP proxy in front of a server: its network can be cut, and it can be turned to another server. */
class Proxy {
    #listener;
    #target;
    #pairs = new Set();
    #isCut = false;
    #lateWord;
    /** What each socket has sent late. */
    #late = new Map();

    static async start(target) {
        const proxy = new Proxy();
        proxy.#target = target;
        proxy.#listener = net.createServer((client) => proxy.#carry(client, net.connect(proxy.#target, '127.0.0.1')));
        await new Promise((resolve) => proxy.#listener.listen(0, '127.0.0.1', resolve));
        open.add(proxy);
        proxy.port = proxy.#listener.address().port;
        return proxy;
    }

    get url() {
        return `redis://127.0.0.1:${this.port}`;
    }

    #carry(client, server) {
        const pair = [client, server];
        this.#pairs.add(pair);
        for (const [from, to] of [pair, [server, client]]) {
            from.on('error', () => {});
            from.on('close', () => this.#pass(() => this.#part(pair), from));
            from.on('data', (data) => this.#pass(() => to.write(data), from, data));
            if (this.#isCut) {
                from.pause();
            }
        }
    }

    #part(pair) {
        pair.forEach((socket) => socket.destroy());
        this.#pairs.delete(pair);
    }

    /** Does it now, or later if something of the same connection is late. */
    #pass(step, from, data = '') {
        const late = this.#late.get(from);
        if (late !== undefined) {
            late.push(step);
        } else if (this.#lateWord !== undefined && data.includes(this.#lateWord)) {
            this.#late.set(from, [step]);
        } else {
            step();
        }
    }

    /** From now on what has the word in it comes late, and all that follows on its connection: a lost packet. */
    delay(word) {
        this.#lateWord = word;
    }

    get isLate() {
        return this.#late.size > 0;
    }

    /** What is late arrives. */
    arrive() {
        this.#lateWord = undefined;
        const all = [...this.#late.values()].flat();
        this.#late.clear();
        all.forEach((step) => step());
    }

    /** From now on nothing arrives, and no connection is closed. */
    cut() {
        this.#isCut = true;
        this.#pairs.forEach((pair) => pair.forEach((socket) => socket.pause()));
    }

    mend() {
        this.#isCut = false;
        this.#pairs.forEach((pair) => pair.forEach((socket) => socket.resume()));
    }

    /** Closes all connections; the next ones lead to the server on this port. */
    turn(port) {
        this.#target = port;
        this.#pairs.forEach((pair) => this.#part(pair));
    }

    end() {
        open.delete(this);
        this.#listener.close();
        this.turn(0);
    }
}

module.exports = { Proxy };
