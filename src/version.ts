import { readFileSync } from 'node:fs'
import { packageFile } from './core/package-files.ts'

export const version: string = JSON.parse(readFileSync(packageFile('package.json'), 'utf8')).version
