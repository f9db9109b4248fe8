import { Readable } from 'node:stream'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { Problem } from '../src/core/errors.ts'
import type { FileReply } from '../src/handler.ts'
import { sendRedirect } from './browser.ts'

type File = Exclude<FileReply, { location: string }>

/** Sends a file, or the requested part (RFC 9110, sections 13 and 14), or redirects to its address. */
export async function sendBytes(
  request: FastifyRequest,
  reply: FastifyReply,
  bytes: FileReply,
): Promise<FastifyReply> {
  if ('location' in bytes) return sendRedirect(reply, bytes)
  const { name, size, checksum } = bytes
  const tag = `"${checksum}"`
  reply.headers({
    etag: tag,
    'accept-ranges': 'bytes',
    // The file at an address may be another version tomorrow.
    'cache-control': 'no-cache',
  })
  const unread = async (status: number, headers: Record<string, string | number> = {}) => {
    await bytes.close()
    return reply.code(status).headers(headers).send()
  }
  if (isKnown(request.headers['if-none-match'], tag)) return unread(304)

  const part = request.method === 'GET' ? partOf(request, tag, size) : undefined
  if (part === 'outside') {
    await bytes.close()
    reply.header('content-range', `bytes */${size}`)
    throw new Problem('range_not_satisfiable')
  }
  const { from, to } = part ?? { from: 0, to: size - 1 }
  const length = to - from + 1
  const about = {
    'content-type': 'application/octet-stream',
    'content-disposition': `attachment; filename="${name}"`,
    'content-length': length,
  }
  if (request.method === 'HEAD') return unread(200, about)
  if (part) reply.code(206).header('content-range', `bytes ${from}-${to}/${size}`)
  const stream = Readable.from(whole(bytes, from, to), { objectMode: false })
  // A client that disconnects before the first byte leaves the stream unread.
  stream.once('close', () => void bytes.close().catch(() => {}))
  return reply.headers(about).send(stream)
}

/** A file that ends too early breaks the reply off: otherwise the client would wait for the rest. */
async function* whole(file: File, from: number, to: number): AsyncGenerator<Uint8Array> {
  let left = to - from + 1
  for await (const piece of file.read(from, to)) {
    left -= piece.length
    yield piece
  }
  if (left !== 0) throw new Error(`${file.name} ended ${left} bytes too early`)
}

/** Entity tags in a list, compared weakly. */
function isKnown(header: string | undefined, tag: string): boolean {
  if (header === undefined) return false
  if (header.trim() === '*') return true
  return header.split(',').some((one) => one.trim().replace(/^W\//, '') === tag)
}

/** undefined: the complete file, also for an invalid range or several ranges. */
function partOf(
  { headers }: FastifyRequest,
  tag: string,
  size: number,
): { from: number; to: number } | 'outside' | undefined {
  // A download is continued only if the file is still the same.
  const condition = headers['if-range']
  if (condition !== undefined && condition !== tag) return undefined
  const [, first = '', last = ''] = /^bytes=(\d*)-(\d*)$/i.exec(headers.range?.trim() ?? '') ?? []
  if (first === '' && last === '') return undefined
  if (first === '') {
    const length = Math.min(Number(last), size)
    return length === 0 ? 'outside' : { from: size - length, to: size - 1 }
  }
  const from = Number(first)
  const to = last === '' ? size - 1 : Math.min(Number(last), size - 1)
  if (last !== '' && Number(last) < from) return undefined
  return from >= size ? 'outside' : { from, to }
}
