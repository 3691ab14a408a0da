// The same package for TypeScript code that is compiled to CommonJS.

import dsync = require('dsync-client');

async function use(client: dsync.Client): Promise<number> {
    const hold: dsync.Hold = await dsync.lock(client, 'k');
    await hold.release();
    // @ts-expect-error: the lease is a number of milliseconds
    await dsync.lock(client, 'k', { leaseMs: '10s' });
    // @ts-expect-error: a text is no client
    await dsync.lock('redis://localhost', 'k');
    return hold.fence;
}

export = use;
