import { clearStatus } from './stderr-notes.ts'

/**
 * Writes to standard output, waiting when the reader is slower. A failure ends the process (src/cli/run-and-exit.ts), and nothing
 * that follows the output says that it was written.
 */
export function writeStdout(text: string | Uint8Array): Promise<void> {
  if (text.length === 0) return Promise.resolve()
  clearStatus()
  return new Promise((resolve) => {
    process.stdout.write(text, (error) => {
      if (!error) resolve()
    })
  })
}
