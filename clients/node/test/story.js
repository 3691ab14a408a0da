// node:test, with a bound on everything: a defect is a failure that names its test, and never a suite that does not end.

'use strict';

const nodeTest = require('node:test');

const { open } = require('./ends.js');

/** A test, or a hook, lasts seconds; on a busy machine it may take this. */
const STORY_MS = 180_000;
/** A file of tests lasts a minute or two. */
const FILE_MS = 900_000;

nodeTest.after(() => open.forEach((one) => one.end()));

setTimeout(() => {
    process.stderr.write(`dsync: this file has not ended in ${FILE_MS} ms; it has ${process.getActiveResourcesInfo()}\n`);
    process.exit(1);
}, FILE_MS).unref();

function test(name, ...rest) {
    const story = rest.pop();
    return nodeTest.test(name, { timeout: STORY_MS, ...rest[0] }, story);
}

const hook = (set) => (story) => set(story, { timeout: STORY_MS });

module.exports = { test, describe: nodeTest.describe, before: hook(nodeTest.before), after: hook(nodeTest.after) };
