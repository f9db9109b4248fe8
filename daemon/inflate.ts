import { Readable } from 'node:stream'
import { createGunzip } from 'node:zlib'
import type { FastifyReply, FastifyRequest, preParsingHookHandler } from 'fastify'
import { invalid, Problem } from '../src/core/errors.ts'

/**
 * The body as it was before gzip, piece by piece: the parser stops reading at the limit of the route, so a few
 * bytes that inflate to gigabytes cost no more than that limit.
 */
export const inflate: preParsingHookHandler = (request, reply, payload, done) => {
  const { 'content-encoding': encoding = 'identity' } = request.headers
  if (encoding === 'identity') return done(null, payload)
  if (encoding !== 'gzip') {
    return done(new Problem('unsupported_media_type', 'Content-Encoding must be gzip or absent'))
  }
  return done(null, inflated(request, reply, payload))
}

function inflated(
  { routeOptions: { bodyLimit } }: FastifyRequest,
  reply: FastifyReply,
  payload: Parameters<preParsingHookHandler>[2],
) {
  const gunzip = createGunzip()
  // Whoever hangs up halfway must not leave it waiting for the rest.
  payload.once('error', (error) => gunzip.destroy(error))
  const count = (chunk: Buffer) => {
    body.receivedEncodedLength += chunk.length
  }
  const pieces = async function* () {
    let size = 0
    try {
      for await (const piece of payload.on('data', count).pipe(gunzip)) {
        size += (piece as Buffer).length
        if (size > bodyLimit) throw new Problem('payload_too_large')
        yield piece as Buffer
      }
    } catch (error) {
      // What is left of the body is not read.
      payload.unpipe(gunzip).pause()
      reply.header('connection', 'close')
      throw error instanceof Problem ? error : invalid([{ path: 'body', message: 'is not gzip' }])
    }
  }
  const body = Object.assign(Readable.from(pieces()), { receivedEncodedLength: 0 })
  return body
}
