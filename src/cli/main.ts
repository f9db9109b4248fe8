import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { run } from '@oclif/core/run'
import { fail } from './fail.ts'

/** Where the commands are: compiled, or their source. */
export type Layout = { root: string; commands: string; pattern: string; ignoreManifest: boolean }

const compiled = {
  root: fileURLToPath(new URL('../../../', import.meta.url)),
  commands: './dist/commands',
  pattern: '**/*.js',
  ignoreManifest: false,
}

/** Runs one command line and ends the process. */
export async function main(argv: string[], layout: Layout = compiled): Promise<void> {
  // A reader that has seen enough, such as head, is not a failure.
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') process.exit(0)
  })
  const { root, ignoreManifest } = layout
  const pjson = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as Package
  const oclif = { ...pjson.oclif, commands: { strategy: 'pattern', target: layout.commands, globPatterns: [layout.pattern] } }
  try {
    await run(argv, { root, ignoreManifest, pjson: { ...pjson, oclif } as never })
    await flushed()
    process.exit(process.exitCode ?? 0)
  } catch (error) {
    const code = await fail(error, argv, { root })
    await flushed()
    process.exit(code)
  }
}

type Package = { oclif: Record<string, unknown> }

const flushed = (): Promise<unknown> =>
  Promise.all(
    [process.stdout, process.stderr].map(
      (stream) => new Promise<void>((resolve) => void stream.write('', () => resolve())),
    ),
  )
