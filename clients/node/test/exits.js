// A program that waits for a lock, releases it, and closes its client: it must end then. Prints how long that took.

'use strict';

const dsync = require('dsync-client');
const libraries = require('./libraries.js');

async function main([name, url]) {
    const library = libraries.ALL.find((one) => one.name === name);
    const client = await library.open(url);
    const hold = await dsync.lock(client, 'exits');
    const waits = [{}, { ownConnection: true }].map((options) => dsync.lock(client, 'exits', options));
    await hold.release();
    for (const next of waits) {
        await (await next).release();
    }
    library.close(client);
    const closed = performance.now();
    process.once('exit', () => console.log(Math.round(performance.now() - closed)));
}

main(process.argv.slice(2));
