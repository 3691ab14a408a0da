'use strict';

const js = require('@eslint/js');
const globals = require('globals');

module.exports = [
    js.configs.recommended,
    {
        files: ['**/*.js'],
        languageOptions: { ecmaVersion: 2022, sourceType: 'commonjs', globals: globals.node },
        rules: { curly: 'error', eqeqeq: 'error', 'no-var': 'error', 'prefer-const': 'error', strict: 'error' },
    },
    { files: ['**/*.mjs'], languageOptions: { ecmaVersion: 2022, sourceType: 'module', globals: globals.node } },
    { ignores: ['out/**'] },
];
