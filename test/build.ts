import { execFileSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'

/** Processes that tests start run what is built: a start from the sources takes five times as long. */
export default function build(): void {
  const root = fileURLToPath(new URL('..', import.meta.url))
  execFileSync(process.execPath, ['build.js'], { cwd: root, stdio: ['ignore', 'ignore', 'inherit'] })
}
