import { createRequire } from 'node:module'

// The compiled file lies one folder deeper than its source.
const manifest = import.meta.url.endsWith('.ts') ? '../package.json' : '../../package.json'

export const version: string = createRequire(import.meta.url)(manifest).version
