// Stand-ins for clients, which play the server: for answers that no server gives on demand.

'use strict';

/** What a connection of either library has besides; it is never subscribed to anything. */
const CONNECTION = {
    connect: async () => {},
    disconnect: () => {},
    on: () => {},
    once: () => {},
    listenerCount: () => 0,
    unsubscribe: async () => {},
    subscribe: () => Promise.reject(new Error('nothing is to be subscribed to')),
};

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
    const client = { ...CONNECTION, commands, status: 'ready', call };
    // Answers may be changed later, so a connection asks the client.
    client.duplicate = () => ({ ...CONNECTION, call: (...words) => client.call(...words) });
    return client;
}

/** The same as a client of node-redis. */
function nodeRedisStandIn(answer) {
    const { commands, call } = standIn(answer);
    const sendCommand = async (words) => (words[0] === 'CLIENT' ? 'id=1 db=0 ' : call(...words));
    return { commands, isOpen: true, sendCommand, duplicate: () => ({ ...CONNECTION, sendCommand }) };
}

const tokenOf = (words) => (words.includes('TOKEN') ? words[words.indexOf('TOKEN') + 1] : words[2]);
const granted = (words) => [tokenOf(words), 7];

module.exports = { standIn, nodeRedisStandIn, tokenOf, granted };
