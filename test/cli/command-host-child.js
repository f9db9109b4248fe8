// The process of test/cli/command-host.ts.
import { runHere } from './run-here.js'

process.on('message', async ({ argv, env, longest }) => {
  for (const name of Object.keys(process.env)) delete process.env[name]
  Object.assign(process.env, env)
  const chunks = { stdout: [], stderr: [] }
  const written = (name, chunk) => chunks[name].push(Buffer.from(chunk))
  const code = await runHere(argv, { longest, written })
  const text = (name) => Buffer.concat(chunks[name]).toString()
  process.send({ code, stdout: text('stdout'), stderr: text('stderr') })
})
process.on('disconnect', () => process.reallyExit(0))
