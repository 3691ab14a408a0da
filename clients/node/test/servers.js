// Servers of the tests' own: each on a free port of 127.0.0.1, in a folder that is removed, ended with the test whatever
// happens. DSYNC_TEST_SERVER is the path of the server, DSYNC_TEST_MODULE that of the module.

'use strict';

const assert = require('node:assert/strict');
const { spawn } = require('node:child_process');
const { mkdtempSync, readFileSync, rmSync, writeFileSync } = require('node:fs');
const net = require('node:net');
const { tmpdir } = require('node:os');
const path = require('node:path');
const { setTimeout: sleep } = require('node:timers/promises');

const { inTime, open } = require('./ends.js');

const SERVER = process.env.DSYNC_TEST_SERVER;
const MODULE = process.env.DSYNC_TEST_MODULE;
assert.ok(SERVER && MODULE, 'DSYNC_TEST_SERVER and DSYNC_TEST_MODULE must name the server and the module');

const PATIENCE_MS = 30_000;
/** Test processes that run at the same time begin far apart. */
let nextPort = process.pid * 7_919;

const CLOSED = 'the connection closed';

const running = new Set();
process.once('exit', () => {
    for (const server of running) {
        server.end();
    }
});
for (const signal of ['SIGINT', 'SIGTERM']) {
    process.once(signal, () => process.exit(1));
}

/** Resolves to the first value of `look` that is true; fails if there is none in time. */
async function eventually(look, what, patienceMs = PATIENCE_MS) {
    const deadline = performance.now() + patienceMs;
    for (;;) {
        const found = await look();
        if (found) {
            return found;
        }
        assert.ok(performance.now() < deadline, `this did not happen in ${patienceMs} ms: ${what}`);
        await sleep(20);
    }
}

/** Reads INFO of a key. */
async function infoOf(server, family, key) {
    const reply = (await server.call(`${family}.INFO`, key)) ?? [];
    return Object.fromEntries(reply.flatMap((name, at) => (at % 2 === 0 ? [[name, reply[at + 1]]] : [])));
}

/** Resolves when so many requests wait for the key. */
function queued(server, count, key, family = 'DLOCK') {
    const isSo = async () => ((await infoOf(server, family, key)).waiters ?? 0) === count;
    return eventually(isSo, `${count} wait for ${key}`);
}

/** Resolves when the replica has so many places of the lock. */
function placesOn(replica, count, key) {
    const isSo = async () => (await infoOf(replica, 'DLOCK', key))['first-waiters']?.length === count;
    return eventually(isSo, `the replica has ${count} places of ${key}`);
}

/** A node of a cluster has a second port, so much higher. */
const BUS = 10_000;

/**
 * A free port. It and the one of a cluster's bus are below those that Linux gives to outgoing connections: so none of them
 * takes the port of a server that a test has killed and will start again.
 */
async function freePort() {
    for (;;) {
        const port = 11_000 + (nextPort++ % 11_000);
        if ((await isFree(port)) && (await isFree(port + BUS))) {
            return port;
        }
    }
}

async function isFree(port) {
    const listener = net.createServer();
    const isListening = await new Promise((resolve) => {
        listener.once('error', () => resolve(false));
        listener.listen(port, '127.0.0.1', () => resolve(true));
    });
    if (isListening) {
        await new Promise((resolve) => listener.close(resolve));
    }
    return isListening;
}

/** A connection for the tests' own commands, which knows as much of the protocol as it needs. */
class Wire {
    #socket;
    #received = Buffer.alloc(0);
    #waiting = [];

    static async open(port) {
        const wire = new Wire();
        const socket = net.connect(port, '127.0.0.1');
        wire.#socket = socket;
        await new Promise((resolve, reject) => socket.once('connect', resolve).once('error', reject));
        socket.on('data', (data) => wire.#read(data));
        socket.on('error', () => {});
        socket.on('close', () => wire.#waiting.splice(0).forEach(({ reject }) => reject(new Error(CLOSED))));
        return wire;
    }

    call(...words) {
        const parts = words.map((word) => `$${Buffer.byteLength(String(word))}\r\n${word}\r\n`);
        const reply = new Promise((resolve, reject) => {
            if (this.#socket.destroyed) {
                reject(new Error(CLOSED));
                return;
            }
            this.#waiting.push({ resolve, reject });
            this.#socket.write(`*${words.length}\r\n${parts.join('')}`);
        });
        return inTime(reply, `an answer to ${words.join(' ')}`);
    }

    close() {
        this.#socket.destroy();
    }

    #read(data) {
        this.#received = Buffer.concat([this.#received, data]);
        for (let reply = this.#parse(0); reply !== undefined; reply = this.#parse(0)) {
            this.#received = this.#received.subarray(reply.end);
            const { resolve, reject } = this.#waiting.shift();
            (reply.value instanceof Error ? reject : resolve)(reply.value);
        }
    }

    #parse(start) {
        const lineEnd = this.#received.indexOf('\r\n', start);
        if (lineEnd < 0) {
            return undefined;
        }
        const line = this.#received.toString('utf8', start + 1, lineEnd);
        const after = lineEnd + 2;
        switch (String.fromCharCode(this.#received[start])) {
            case '+':
                return { value: line, end: after };
            case '-':
                return { value: new Error(line), end: after };
            case ':':
                return { value: Number(line), end: after };
            case '$': {
                const end = after + Number(line) + 2;
                if (Number(line) < 0) {
                    return { value: null, end: after };
                }
                const value = this.#received.toString('utf8', after, end - 2);
                return this.#received.length < end ? undefined : { value, end };
            }
            default: {
                const values = [];
                let end = after;
                for (let n = 0; n < Number(line); n += 1) {
                    const item = this.#parse(end);
                    if (item === undefined) {
                        return undefined;
                    }
                    values.push(item.value);
                    end = item.end;
                }
                return { value: Number(line) < 0 ? null : values, end };
            }
        }
    }
}

/** A running server with the module, or a Sentinel. */
class Server {
    #child;
    #folder = mkdtempSync(path.join(tmpdir(), 'dsync-node-'));
    #words;

    constructor(port) {
        this.port = port;
    }

    static async start(...options) {
        for (;;) {
            const server = new Server(await freePort());
            server.#words = ['--save', '', '--loadmodule', MODULE, ...options];
            try {
                await server.startAgain();
                return server;
            } catch (error) {
                server.end();
                // Another process was faster.
                if (!/Address already in use/.test(error.message)) {
                    throw error;
                }
            }
        }
    }

    /** Starts a Sentinel that calls the server on `port` by the name `service`. */
    static async startSentinel(service, port, quorum) {
        const sentinel = new Server(await freePort());
        const file = path.join(sentinel.#folder, 'sentinel.conf');
        const lines = [
            `monitor ${service} 127.0.0.1 ${port} ${quorum}`,
            `down-after-milliseconds ${service} 2000`,
            `failover-timeout ${service} 10000`,
        ];
        writeFileSync(file, lines.map((line) => `sentinel ${line}\n`).join(''));
        sentinel.#words = [];
        await sentinel.startAgain(file, '--sentinel');
        return sentinel;
    }

    /** Starts the server on its old port. */
    async startAgain(...first) {
        const log = path.join(this.#folder, 'log');
        const place = ['--port', this.port, '--bind', '127.0.0.1', '--dir', this.#folder, '--logfile', log];
        const words = [...first, ...place, ...this.#words];
        this.#child = spawn(SERVER, words.map(String), { stdio: 'ignore' });
        const child = this.#child;
        child.once('exit', () => {
            child.isOver = true;
        });
        running.add(this);
        open.add(this);
        const isUp = async () => {
            assert.ok(!child.isOver, `the server has ended:\n${readLog(log)}`);
            this.wire = await Wire.open(this.port).catch(() => undefined);
            const pong = await this.wire?.call('PING').catch((error) => error.message);
            return pong === 'PONG';
        };
        await eventually(isUp, 'the server is up');
    }

    get url() {
        return `redis://127.0.0.1:${this.port}`;
    }

    /** Sends a command, again if a failover closes the connection. */
    async call(...words) {
        try {
            return await this.wire.call(...words);
        } catch (error) {
            if (error.message !== CLOSED) {
                throw error;
            }
        }
        this.wire = await Wire.open(this.port);
        return this.wire.call(...words);
    }

    signal(name) {
        this.#child.kill(name);
    }

    /** Kills the server, as a crash does. */
    async crash() {
        const child = this.#child;
        this.wire?.close();
        child.kill('SIGKILL');
        await eventually(() => child.isOver, 'the server has ended');
    }

    /** Ends the server and removes its folder. */
    end() {
        running.delete(this);
        open.delete(this);
        this.wire?.close();
        this.#child?.kill('SIGKILL');
        rmSync(this.#folder, { recursive: true, force: true, maxRetries: 5 });
    }
}

/** Resolves when the replica has all data of its primary. */
function follows(replica) {
    const isSo = async () => (await replica.call('INFO', 'replication')).includes('master_link_status:up');
    return eventually(isSo, 'the replica follows');
}

/** Starts a primary and a replica that has all its data. */
async function startPair() {
    const primary = await Server.start();
    const replica = await Server.start('--replicaof', '127.0.0.1', primary.port);
    await follows(replica);
    return [primary, replica];
}

/** Starts a primary and a replica, and three Sentinels that watch them. */
async function startSentinelGroup(service) {
    const [primary, replica] = await startPair();
    const sentinels = await Promise.all([1, 2, 3].map(() => Server.startSentinel(service, primary.port, 2)));
    const isReady = async (sentinel) => {
        const others = ['SENTINELS', 'REPLICAS'].map((what) => sentinel.call('SENTINEL', what, service));
        return (await Promise.all(others)).map((found) => found.length).join() === '2,1';
    };
    const areReady = async () => (await Promise.all(sentinels.map(isReady))).every(Boolean);
    await eventually(areReady, 'the Sentinels know each other');
    return { primary, replica, sentinels };
}

/** Starts a cluster of three primaries, and so many replicas of the first one. */
async function startCluster(replicas = 0) {
    const options = ['--cluster-enabled', 'yes', '--cluster-node-timeout', '3000'];
    const nodes = await Promise.all(Array.from({ length: 3 + replicas }, () => Server.start(...options)));
    const bounds = [0, 5_461, 10_923, 16_384];
    for (const [n, node] of nodes.entries()) {
        await node.call('CLUSTER', 'SET-CONFIG-EPOCH', n + 1);
        if (n < 3) {
            await node.call('CLUSTER', 'ADDSLOTSRANGE', bounds[n], bounds[n + 1] - 1);
        }
        await node.call('CLUSTER', 'MEET', '127.0.0.1', nodes[0].port);
    }
    const isUp = async (node) => {
        const info = await node.call('CLUSTER', 'INFO');
        return info.includes('cluster_state:ok') && info.includes(`cluster_known_nodes:${nodes.length}`);
    };
    await eventually(async () => (await Promise.all(nodes.map(isUp))).every(Boolean), 'the cluster is up');
    const first = await nodes[0].call('CLUSTER', 'MYID');
    for (const replica of nodes.slice(3)) {
        await replica.call('CLUSTER', 'REPLICATE', first);
        await follows(replica);
    }
    return nodes;
}

function readLog(log) {
    try {
        return readFileSync(log, 'utf8').slice(-4_000);
    } catch {
        return '';
    }
}

module.exports = {
    Server,
    infoOf,
    placesOn,
    queued,
    follows,
    startPair,
    startSentinelGroup,
    startCluster,
    eventually,
    freePort,
};
