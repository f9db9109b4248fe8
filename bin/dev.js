#!/usr/bin/env node
// Runs the source, without a build.
import { fileURLToPath } from 'node:url'
import { register } from 'tsx/esm/api'

register()
globalThis.oclif = { enableAutoTranspile: false }
const { main } = await import('../src/cli/main.ts')
const root = fileURLToPath(new URL('../', import.meta.url))
await main(process.argv.slice(2), { root, source: { target: './commands', globPatterns: ['**/*.ts'] } })
