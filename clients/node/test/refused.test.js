// Servers whose certificate is refused, and Sentinels that refuse to tell who the primary is.

'use strict';

const assert = require('node:assert/strict');
const { execFileSync } = require('node:child_process');
const { mkdtempSync, readFileSync, rmSync, writeFileSync } = require('node:fs');
const { tmpdir } = require('node:os');
const path = require('node:path');

const dsync = require('dsync-client');
const { inTime } = require('./ends.js');
const { ALL } = require('./libraries.js');
const { Server, eventually, freePort } = require('./servers.js');
const { after, before, describe, test } = require('./story.js');

const SERVICE = 'locks';
/** What is final is told long before requests are given up that nothing answers. */
const PATIENT = { retryForMs: 120_000 };

/** Makes certificates with openssl: a good one, and three that are refused. Returns how their files are called. */
function makeCertificates(folder) {
    const file = (name) => path.join(folder, name);
    const run = (...words) => execFileSync('openssl', words.map(String), { stdio: 'pipe' });
    const key = (name) => ['-newkey', 'rsa:2048', '-nodes', '-keyout', file(`${name}.key`)];
    const self = (name) => {
        const names = ['-subj', `/CN=${name}`, '-addext', 'subjectAltName=DNS:localhost'];
        run('req', '-x509', ...key(name), '-days', 2, ...names, '-out', file(`${name}.crt`));
    };
    const signed = (name, host, days) => {
        run('req', '-new', ...key(name), '-subj', `/CN=${name}`, '-out', file('request'));
        writeFileSync(file('names'), `subjectAltName=DNS:${host}`);
        const by = ['-CA', file('authority.crt'), '-CAkey', file('authority.key'), '-CAcreateserial'];
        run('x509', '-req', '-in', file('request'), ...by, '-days', days, '-extfile', file('names'), '-out', file(`${name}.crt`));
    };
    self('authority');
    self('unknown');
    signed('good', 'localhost', 2);
    signed('expired', 'localhost', -1);
    signed('other', 'elsewhere.example', 2);
    return file;
}

/** The certificates that are refused, and the codes of Node.js for that. */
const REFUSED = {
    unknown: 'DEPTH_ZERO_SELF_SIGNED_CERT',
    expired: 'CERT_HAS_EXPIRED',
    other: 'ERR_TLS_CERT_ALTNAME_INVALID',
};

describe('certificates', () => {
    const folder = mkdtempSync(path.join(tmpdir(), 'dsync-node-tls-'));
    let file;
    before(() => (file = makeCertificates(folder)));
    after(() => rmSync(folder, { recursive: true }));

    for (const library of ALL) {
        test(`${library.name}: refused certificate is final for who asks, and passes for who ends`, async (t) => {
            const server = await Server.start();
            t.after(() => server.end());
            if ((await server.call('CONFIG', 'GET', 'tls-port')).length === 0) {
                t.skip('the server was built without TLS');
                return;
            }
            const show = (name) =>
                server.call('CONFIG', 'SET', 'tls-cert-file', file(`${name}.crt`), 'tls-key-file', file(`${name}.key`));
            const port = await freePort();
            await server.call('CONFIG', 'SET', 'tls-auth-clients', 'no', 'tls-ca-cert-file', file('authority.crt'));
            await show('good');
            await server.call('CONFIG', 'SET', 'tls-port', port);
            const client = await library.openTls(port, readFileSync(file('authority.crt')));
            t.after(() => {
                dsync.closeSubscription(client);
                library.close(client);
            });
            for (const [name, code] of Object.entries(REFUSED)) {
                const hold = await dsync.lock(client, `held:${name}`);
                await show(name);
                await server.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
                const asked = inTime(dsync.lock(client, name, PATIENT), 'the certificate is refused');
                const told = (error) => error.code === code && error.message.endsWith(` ('${name}' at localhost:${port})`);
                await assert.rejects(asked, told);
                const ended = hold.release();
                ended.catch(() => {});
                await assert.rejects(inTime(ended, 'it goes on', 1_000), /this did not happen/);
                await show('good');
                assert.equal(await inTime(ended, 'the hold is released'), true);
            }
        });
    }
});

describe('sentinels', { concurrency: 2 }, () => {
    /** Three Sentinels with a password that the client knows. `refuse` gives some another one, and kills the primary. */
    async function world(t, library) {
        const primary = await Server.start();
        const sentinels = await Promise.all([1, 2, 3].map(() => Server.startSentinel(SERVICE, primary.port, 2)));
        const say = (password) => (sentinel) => sentinel.call('ACL', 'SETUSER', 'default', 'resetpass', `>${password}`);
        const knowsOthers = async (sentinel) => (await sentinel.call('SENTINEL', 'SENTINELS', SERVICE)).length === 2;
        const knowEachOther = async () => (await Promise.all(sentinels.map(knowsOthers))).every(Boolean);
        await eventually(knowEachOther, 'the Sentinels know each other');
        await Promise.all(sentinels.map(say('old')));
        const client = await library.openSentinel(sentinels.map(({ port }) => port), SERVICE, 'old');
        t.after(() => {
            dsync.closeSubscription(client);
            library.close(client);
            [primary, ...sentinels].forEach((server) => server.end());
        });
        await (await dsync.lock(client, 'k')).release();
        const refuse = async (some) => {
            await Promise.all(some.map(say('new')));
            await Promise.all(some.map((sentinel) => sentinel.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes')));
            await primary.crash();
        };
        return { primary, sentinels, client, refuse };
    }

    /** node-redis 5 does not tell which Sentinel it was. */
    const toldBy = ({ name }, { port }) => (name === 'redis5' ? 'a Sentinel' : `the Sentinel at 127.0.0.1:${port}`);

    for (const library of ALL.filter(({ openSentinel }) => openSentinel)) {
        // The dead primary's ECONNREFUSED hid it, or it was asked for until `retryForMs` was over.
        test(`${library.name}: refusal by all Sentinels is final`, async (t) => {
            const { sentinels, client, refuse } = await world(t, library);
            await refuse(sentinels);
            const why = `the primary of 'k' is not known: ${toldBy(library, sentinels[0])}: WRONGPASS `;
            const told = ({ message, cause }) => message.startsWith(why) && cause.message.startsWith('WRONGPASS ');
            await assert.rejects(inTime(dsync.lock(client, 'k', PATIENT), 'the refusal is told'), told);
        });

        test(`${library.name}: refusal by some Sentinels passes, and counts more than those that are away`, async (t) => {
            const { sentinels, client, refuse } = await world(t, library);
            const refusing = sentinels.slice(0, 2);
            await sentinels[2].crash();
            await refuse(refusing);
            const asked = dsync.lock(client, 'k', { retryForMs: 7_000 });
            const told = ({ message }) =>
                message.includes(" has not answered for 'k' in 7000 ms: ") &&
                message.includes(`${toldBy(library, refusing[0])}: WRONGPASS `);
            await assert.rejects(inTime(asked, 'it is given up'), told);
        });

        test(`${library.name}: Sentinel that refuses is passed over, and a release goes on`, async (t) => {
            const { primary, sentinels, client, refuse } = await world(t, library);
            const hold = await dsync.lock(client, 'k', { leaseMs: 60_000 });
            await refuse(sentinels);
            const released = hold.release();
            await assert.rejects(inTime(released.catch(assert.fail), 'it goes on', 4_000), /this did not happen/);
            await sentinels[2].call('ACL', 'SETUSER', 'default', '>old');
            await primary.startAgain();
            await inTime(released, 'the server is found');
        });
    }
});
