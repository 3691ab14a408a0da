// The same package for `import`. There is one copy of its state, whichever way it is loaded.

export * from './index.js';
