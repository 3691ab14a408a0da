// How TypeScript code imports and uses the package. The compiler checks the types; package.test.js runs what it makes of this.

import assert from 'node:assert/strict';

import { Redis } from 'ioredis6';
import { createClient } from 'redis6';

import {
    allOf,
    closeSubscription,
    DsyncError,
    group,
    Hold,
    HoldLost,
    lock,
    NotAcquired,
    once,
    semaphore,
    withHold,
    withLock,
    WorkFailed,
    type Client,
    type Holds,
    type Member,
    type Run,
    type Want,
} from 'dsync-client';

async function use(client: Client): Promise<void> {
    const stop = new AbortController();
    let fence = 0;
    {
        await using hold = await lock(client, 'k', { leaseMs: 10_000, waitMs: 5_000, signal: stop.signal, owner: 'web-1', shared: false });
        fence = hold.fence;
        hold.throwIfLost();
        assert.ok(hold.leftMs > 0 && !hold.signal.aborted);
        const refused: unknown = await lock(client, 'k', { waitMs: 0 }).catch((error: unknown) => error);
        assert.ok(refused instanceof NotAcquired && refused instanceof DsyncError);
        assert.equal(refused.holders[0]?.owner, 'web-1');
    }
    // The end of the block has released it.
    const next: number = await withLock(client, 'k', (hold: Hold) => hold.fence, { waitMs: 0 });
    assert.ok(next > fence);

    const pages: string = await withHold(semaphore(client, 's', { limit: 5, permits: 2 }), async (hold) => `${hold.key}!`);
    assert.equal(pages, 's!');
    const slot: number | undefined = await withHold(semaphore(client, 's', { limit: 5, index: true }), ({ index }) => index);
    assert.equal(slot, 0);

    const batch = group(client, 'g', { limit: 2 });
    assert.equal(await batch.expect(2), 2);
    {
        await using member: Member = await batch.add();
        assert.equal(await member.done(), true);
    }
    const seven: number = await batch.run((member) => member.fence && 7);
    assert.equal(seven, 7);
    const round: { done: number; lapsed: number } | null = await batch.wait({ waitMs: 5_000 });
    assert.deepEqual(round, { done: 2, lapsed: 0 });

    const result: { attempt: number } = await once(client, 'o', async (run: Run) => ({ attempt: run.attempt }), {
        maxAttempts: 3,
        keepMs: 60_000,
        retryDelayMs: (attempt) => 1_000 * 2 ** attempt,
    });
    assert.deepEqual(result, { attempt: 1 });
    const begun = await once.begin(client, 'p');
    if (begun.kind === 'run') {
        await begun.run.fail('no disk', { delayMs: 0 });
    } else {
        const told: string | null = begun.result;
        assert.fail(told ?? 'null');
    }
    const failed: unknown = await once.begin(client, 'p', { maxAttempts: 1 }).catch((error: unknown) => error);
    assert.ok(failed instanceof WorkFailed && failed.attempts === 1 && failed.reason === 'no disk');

    {
        await using all: Holds = await allOf(client, ['k', { lock: 'l', shared: true }, { semaphore: 's', limit: 5 }]);
        assert.equal(all.holds.length, 3);
    }
    const wants: Want[] = [{ lock: 'l', minHoldMs: 55_000 }, { semaphore: 's', limit: 5, lane: 'tenant:7', laneLimit: 2 }];
    assert.equal(wants.length, 2);
    assert.equal(typeof HoldLost, 'function');
    closeSubscription(client);
}

const url = process.argv[2]!;

const io = new Redis(url);
await use(io);
await io.flushall();
io.disconnect();

const node = createClient({ url });
node.on('error', () => {});
await node.connect();
await use(node);
node.destroy();
