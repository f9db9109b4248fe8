import { createRequire } from 'node:module'

/*
 * One keychain operation in a separate process: a Secret Service that does not answer blocks the thread
 * that called it, and only a process can be killed. The request comes on standard input, never in the arguments.
 */

export type KeychainRequest = { op: 'get' | 'set' | 'delete'; account: string; secret?: string }
export type KeychainReply = { ok: true; value: string | null } | { ok: false; error: string }

const serviceName = 'svc'

async function perform({ op, account, secret }: KeychainRequest): Promise<string | null> {
  const { AsyncEntry } = createRequire(import.meta.url)(
    '@napi-rs/keyring',
  ) as typeof import('@napi-rs/keyring')
  // By default the library falls back to the kernel keyring, which is lost at a restart.
  const entry = new AsyncEntry(serviceName, account, { linux: { store: 'secret-service' } })
  const read = async () => {
    const bytes = await entry.getSecret()
    return bytes === null ? null : Buffer.from(bytes).toString('utf8')
  }
  if (op === 'delete') await entry.deleteCredential()
  if (op === 'set') await entry.setSecret(Buffer.from(secret ?? '', 'utf8'))
  const now = await read()
  if (op === 'set' && now !== secret) throw new Error('it did not store the value')
  if (op === 'delete' && now !== null) throw new Error('it did not delete the entry')
  return now
}

const chunks: Buffer[] = []
for await (const chunk of process.stdin) chunks.push(chunk as Buffer)
let reply: KeychainReply
try {
  reply = {
    ok: true,
    value: await perform(JSON.parse(Buffer.concat(chunks).toString('utf8')) as KeychainRequest),
  }
} catch (error) {
  reply = { ok: false, error: error instanceof Error ? error.message : String(error) }
}
process.stdout.write(JSON.stringify(reply))
