import { readFileSync } from 'node:fs'
import { ownFile } from './core/own-modules.ts'

export const version: string = JSON.parse(readFileSync(ownFile('package.json'), 'utf8')).version
