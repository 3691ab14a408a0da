// Stand-ins for clients, which play the server: for answers that no server gives on demand.

'use strict';

const assert = require('node:assert/strict');

/** Returns a client of ioredis that answers each command with what `answer` returns for it, and keeps the commands. */
function standIn(answer) {
    const commands = [];
    const call = async (...words) => {
        commands.push(words);
        const reply = answer(...words);
        if (reply instanceof Error) {
            throw reply;
        }
        return reply;
    };
    return { commands, status: 'ready', call, duplicate: () => assert.fail('nothing is to be subscribed to') };
}

/** The same as a client of node-redis. */
function nodeRedisStandIn(answer) {
    const { commands, call, duplicate } = standIn(answer);
    const sendCommand = async (words) => (words[0] === 'CLIENT' ? 'id=1 db=0 ' : call(...words));
    return { commands, isOpen: true, sendCommand, duplicate };
}

const tokenOf = (words) => (words[0].endsWith('.ACQUIRE') ? words[words.indexOf('TOKEN') + 1] : words[2]);
const granted = (words) => [tokenOf(words), 7];

module.exports = { standIn, nodeRedisStandIn, tokenOf, granted };
