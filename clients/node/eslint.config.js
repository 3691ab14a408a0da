'use strict';

const js = require('@eslint/js');
const globals = require('globals');
const ts = require('typescript-eslint');

const RULES = { curly: 'error', eqeqeq: 'error', 'no-var': 'error', 'prefer-const': 'error' };

module.exports = ts.config(
    js.configs.recommended,
    {
        files: ['package/src/**/*.ts', 'package/src/**/*.mts'],
        extends: [ts.configs.strictTypeChecked],
        languageOptions: { parserOptions: { project: 'package/tsconfig.json' } },
        rules: {
            ...RULES,
            '@typescript-eslint/explicit-module-boundary-types': 'error',
            // What a caller without TypeScript passes is checked too.
            '@typescript-eslint/no-unnecessary-condition': 'off',
            '@typescript-eslint/no-unnecessary-type-conversion': 'off',
            // The errors of the server and of the library pass through as they are.
            '@typescript-eslint/only-throw-error': 'off',
            '@typescript-eslint/prefer-promise-reject-errors': 'off',
            '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }],
            // Replies are what a library makes of them: texts or Buffers.
            '@typescript-eslint/no-base-to-string': 'off',
            '@typescript-eslint/no-confusing-void-expression': 'off',
            '@typescript-eslint/no-empty-function': 'off',
            // The compiler finds them, and knows `??=`.
            'no-unused-private-class-members': 'off',
        },
    },
    {
        files: ['**/*.js'],
        languageOptions: { ecmaVersion: 2022, sourceType: 'commonjs', globals: globals.node },
        rules: { ...RULES, strict: 'error' },
    },
);
