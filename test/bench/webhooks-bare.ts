// What deliveries are compared with: the same requests from a program that does nothing else.
// Runs as: node webhooks-bare.ts <url> <file of the certificate>
import { readFileSync } from 'node:fs'
import { Agent } from 'undici'

/** Sent to this process; one at a time. */
export type Volley = {
  headers: Record<string, string>
  body: string
  atOnce: number
  milliseconds: number
}
export type Volleyed = { requests: number; seconds: number }

const [url = '', certificate = ''] = process.argv.slice(2)
const agent = new Agent({ connect: { ca: readFileSync(certificate) } })

process.on('message', async ({ headers, body, atOnce, milliseconds }: Volley) => {
  const begin = performance.now()
  let requests = 0
  const keepBusy = async () => {
    while (performance.now() - begin < milliseconds) {
      const reply = await agent.request({ origin: url, path: '/bare', method: 'POST', headers, body })
      await reply.body.dump()
      requests += 1
    }
  }
  await Promise.all(Array.from({ length: atOnce }, keepBusy))
  process.send!({ requests, seconds: (performance.now() - begin) / 1000 } satisfies Volleyed)
})
process.on('disconnect', () => process.exit(0))
