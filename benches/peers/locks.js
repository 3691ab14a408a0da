// Workers that use a real lock library in JavaScript; src/peers/library.rs says what is written and read.
//
//     locks.js contend PEER PORT PERMITS WORKERS INSIDE_US LENGTH_MS    (PERMITS 0: a lock)
//     locks.js hold PEER PORT LEASE_MS
//
// All workers share one process, as they do in a server in Node, and each has a connection of its own.
'use strict';

const readline = require('node:readline');
const Redis = require('ioredis');
const Redlock = require('redlock');
const { Mutex, Semaphore } = require('redis-semaphore');

const KEY = 'shared';
// redlock names none by default; that of redis-semaphore, which renews it, is 10 s.
const LEASE_MS = 30_000;

// Each returns what acquires; that returns what releases.
const PEERS = {
  // The delays are those of its README; without an end of the tries, for everybody here waits until it is its turn.
  'node-redlock': {
    package: 'redlock',
    make(client, permits, leaseMs = LEASE_MS) {
      const redlock = new Redlock([client], { retryCount: -1, retryDelay: 200, retryJitter: 200 });
      return async () => {
        const lock = await redlock.lock(KEY, leaseMs);
        return () => lock.unlock();
      };
    },
  },
  'redis-semaphore': {
    package: 'redis-semaphore',
    make(client, permits, leaseMs) {
      const options = leaseMs ? { lockTimeout: leaseMs } : {};
      const lock = permits
        ? new Semaphore(client, KEY, permits, options)
        : new Mutex(client, KEY, options);
      return async () => {
        await lock.acquire();
        return () => lock.release();
      };
    },
  },
};

const nowUs = () => Number(process.hrtime.bigint() / 1000n);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, Math.max(ms, 0)));

async function connect(port) {
  const client = new Redis(port, '127.0.0.1');
  await client.ping();
  return client;
}

// Says that all are connected, and waits for the sign to begin.
async function awaitSign(peer) {
  const { version } = require(`${PEERS[peer].package}/package.json`);
  const input = readline.createInterface({ input: process.stdin });
  const sign = new Promise((resolve) => input.once('line', resolve));
  // Whoever started this has gone.
  input.once('close', () => process.exit(0));
  console.log(`ready ${PEERS[peer].package} ${version}`);
  await sign;
}

async function contend(peer, port, permits, workers, insideUs, lengthMs) {
  const acquires = [];
  for (let worker = 0; worker < workers; worker++) {
    acquires.push(PEERS[peer].make(await connect(port), permits));
  }
  await awaitSign(peer);
  const beginUs = nowUs() + 30_000;
  const endUs = beginUs + lengthMs * 1000;
  const lines = [`from ${beginUs} ${endUs}`];
  // Since when each worker waits.
  const asked = new Array(workers).fill(null);

  async function work(worker) {
    await sleep((beginUs - nowUs()) / 1000);
    for (let askedUs; (askedUs = nowUs()) < endUs; ) {
      asked[worker] = askedUs;
      const release = await acquires[worker]();
      const gotUs = nowUs();
      asked[worker] = null;
      await sleep(insideUs / 1000);
      lines.push(`${worker} ${askedUs} ${gotUs} ${nowUs()}`);
      await release();
    }
  }

  const all = Array.from({ length: workers }, (_, worker) => work(worker));
  // Who is inside at the end may leave; who waits is written down as waiting.
  await Promise.race([Promise.all(all), sleep((endUs - nowUs()) / 1000 + 20)]);
  asked.forEach((askedUs, worker) => {
    if (askedUs !== null && askedUs < endUs) lines.push(`${worker} ${askedUs} - -`);
  });
  process.stdout.write(lines.join('\n') + '\n', () => process.exit(0));
}

async function hold(peer, port, leaseMs) {
  const acquire = PEERS[peer].make(await connect(port), 0, leaseMs);
  await awaitSign(peer);
  await acquire();
  console.log('in');
}

const [mode, peer, ...numbers] = process.argv.slice(2);
process.on('unhandledRejection', (error) => {
  console.error(error);
  process.exit(1);
});
({ contend, hold })[mode](peer, ...numbers.map(Number));
