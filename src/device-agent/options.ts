import type { ParseArgsOptionsConfig } from 'node:util'

const text = { type: 'string' } as const
const flag = { type: 'boolean', default: false } as const

/** The flags of the agent's commands in the single file, which does not contain svc's parser. */
export const options = {
  run: {
    'enrollment-key': text,
    url: text,
    'state-dir': text,
    interval: text,
    'trust-key': { type: 'string', multiple: true },
    once: flag,
    json: flag,
    'no-input': flag,
  },
  install: {
    url: text,
    'enrollment-key': text,
    'state-dir': text,
    user: text,
    binary: text,
    'unit-dir': text,
    print: flag,
    'dry-run': flag,
    yes: flag,
    'no-input': flag,
  },
  uninstall: {
    'state-dir': text,
    user: text,
    'unit-dir': text,
    purge: flag,
    'dry-run': flag,
    yes: flag,
    'no-input': flag,
  },
} as const satisfies Record<string, ParseArgsOptionsConfig>
