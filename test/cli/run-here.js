// Runs a command line in this process, as `bin/svc.js` runs it in a process of its own.
import { main } from '../../dist/src/cli/main.js'

const streams = { stdout: process.stdout, stderr: process.stderr }

/**
 * `written` gets the name of the stream and each chunk. Resolves with the exit code, or 'late' after so many milliseconds: such a
 * process should run nothing more.
 */
export async function runHere(argv, { longest, written }) {
  const before = new Map(process.eventNames().map((event) => [event, process.rawListeners(event)]))
  for (const [name, stream] of Object.entries(streams)) stream.write = writeTo(name, written)
  process.exitCode = undefined
  const code = await new Promise((resolve) => {
    const timer = setTimeout(() => resolve('late'), longest)
    process.exit = (status) => {
      clearTimeout(timer)
      resolve(status ?? process.exitCode ?? 0)
    }
    main(argv)
  })
  for (const listener of added(before, 'exit')) listener.call(process, code)
  for (const event of process.eventNames())
    for (const listener of added(before, event)) process.removeListener(event, listener)
  for (const stream of Object.values(streams)) {
    delete stream.write
    delete stream.emit
    stream.removeAllListeners('error')
  }
  return code
}

const writeTo = (name, written) =>
  function write(chunk, encoding, done) {
    written(name, chunk)
    const after = typeof encoding === 'function' ? encoding : done
    if (after) process.nextTick(after)
    return true
  }

const added = (before, event) =>
  process.rawListeners(event).filter((listener) => !before.get(event)?.includes(listener))
