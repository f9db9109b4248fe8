import { join } from 'node:path'
import { isVersion } from '../agents/versions/semver.ts'
import { cacheDir, readCached, writePrivateFile } from './files.ts'
import { nodeTransport } from './transport.ts'

const timeoutMs = 10_000
const maxBytes = 1 << 20

const newestFile = (): string => join(cacheDir(), 'newest.json')

/** Asks UPDATE_URL for the newest version, and keeps it for the commands that follow. */
export async function checkForUpdate({ UPDATE_URL: url, SVC_CA_FILE } = process.env): Promise<void> {
  if (!url) return
  const transport = nodeTransport({ caFile: SVC_CA_FILE || undefined })
  const signal = AbortSignal.timeout(timeoutMs)
  const headers = { accept: 'application/json', 'user-agent': 'svc' }
  const { status, body } = await transport({ method: 'GET', url, headers, signal })
  const chunks: Uint8Array[] = []
  let length = 0
  for await (const chunk of body) {
    length += chunk.length
    if (length > maxBytes) return
    chunks.push(chunk)
  }
  if (status !== 200) return
  // As a package registry names it, and as GitHub does.
  const { version, tag_name } = JSON.parse(Buffer.concat(chunks).toString()) as Record<string, unknown>
  const newest = String(version ?? tag_name).replace(/^v/, '')
  if (isVersion(newest)) writePrivateFile(newestFile(), JSON.stringify({ url, newest }))
}

/** The version that this address named last. */
export function readNewest(url: string): string | undefined {
  const kept = readCached<{ url: string; newest: string }>(newestFile())
  return kept?.url === url && isVersion(kept.newest) ? kept.newest : undefined
}
