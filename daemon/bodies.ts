import type { Readable } from 'node:stream'
import { createGunzip } from 'node:zlib'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { type Fault, invalid, Problem } from '../src/core/errors.ts'
import { findDeepPath, maxJsonDepth, measureJson } from '../src/core/json.ts'
import { networkOf } from './address.ts'
import type { BodyBudget } from './body-budget.ts'
import type { Limiter } from './limiter.ts'

/** Memory of the state of a gzip stream, in bytes. */
const gunzipBytes = 64 * 1024
/** The ratio is checked from this size on: a short text of one repeated letter has a high ratio. */
const ratioFrom = 1024 * 1024
/** Real reports of machines have ratios of 10 to 50. */
const maxRatio = 200
const packedTooWell = `The body inflates to more than ${maxRatio} times its size`
/** Characters of a text that is parsed apart. */
const longText = 256 * 1024
/** Memory of a parsed JSON value, in bytes, besides its text. */
const valueBytes = 48
/** A body may have one value per this number of bytes of its limit. */
const bytesPerValue = 50

type Done = (error: Error | null, value?: unknown) => void

/** Most values in a body: fields, elements, objects and arrays. */
export const maxJsonValues = (bodyLimit: number): number => Math.floor(bodyLimit / bytesPerValue)

/** Memory of parsed JSON. */
export const estimateParsedBytes = (text: string, values: number): number => text.length + values * valueBytes

/**
 * Reads bodies: JSON without prototype keys, and forms where a route accepts them. The bytes of a body are reserved in the
 * budget until its request is processed (pipeline.ts), even if the client disconnects.
 */
export function addBodies(app: FastifyInstance, budget: BodyBudget, limiter: Limiter): void {
  const on = { budget, limiter }
  app.removeContentTypeParser(['text/plain', 'application/json'])
  const parse = app.getDefaultJsonParser('error', 'error')
  app.addContentTypeParser('application/json', (request, payload, done) => {
    // CSRF: JSON from another site needs a preflight, a form does not. So forms are refused elsewhere.
    if (takesForm(request)) throw new Problem('unsupported_media_type')
    receive(request, payload ?? request.raw, on, done, (text, finish) => {
      // An empty body counts as no body.
      if (text === '') {
        finish(null, undefined)
        return
      }
      const { depth, values } = checkValues(request, text)
      request.held?.to(estimateParsedBytes(text, values))
      const understood: Done = (error, value) => finish(error ?? tooDeep(depth, value), value)
      if (text.length < longText) parse(request, text, understood)
      // To measure, to parse and to validate a long text is some ten milliseconds each: others get their turn between them.
      else setImmediate(() => parse(request, text, (...found) => setImmediate(understood, ...found)))
    })
  })
  app.addContentTypeParser('application/x-www-form-urlencoded', (request, payload, done) => {
    if (!takesForm(request)) throw new Problem('unsupported_media_type')
    receive(request, payload ?? request.raw, on, done, (text, finish) => {
      const fields = new URLSearchParams(text)
      const { bodyLimit } = request.routeOptions
      if (fields.size > maxJsonValues(bodyLimit)) throw invalid([tooMany(bodyLimit)])
      // Of repeated fields the first counts.
      finish(null, Object.fromEntries([...fields].reverse()))
    })
  })
}

const takesForm = ({ routeOptions }: FastifyRequest): boolean =>
  (routeOptions.config as { form?: boolean }).form === true

function checkValues({ routeOptions: { bodyLimit } }: FastifyRequest, text: string) {
  const extent = measureJson(text)
  if (extent.values > maxJsonValues(bodyLimit)) throw invalid([tooMany(bodyLimit)])
  return extent
}

const tooMany = (bodyLimit: number): Fault => ({
  path: 'body',
  message: `must have at most ${maxJsonValues(bodyLimit)} fields and elements`,
})

/** Deep values are refused: later code handles values recursively. */
function tooDeep(depth: number, value: unknown): Problem | null {
  if (depth <= maxJsonDepth) return null
  const path = ['body', ...(findDeepPath(value, maxJsonDepth) ?? [])].join('.')
  return invalid([{ path, message: `must not be nested more than ${maxJsonDepth} levels deep` }])
}

/**
 * Receives a body within the limit of its route, the budget, and the gzip ratio. A body without room in the budget is read to
 * its end and dropped: closing the connection while the client still sends would lose the reply.
 */
function receive(
  request: FastifyRequest,
  payload: Readable,
  { budget, limiter }: { budget: BodyBudget; limiter: Limiter },
  done: Done,
  understand: (text: string, finish: Done) => void,
): void {
  const { bodyLimit } = request.routeOptions
  if (Number(request.headers['content-length']) > bodyLimit) throw new Problem('payload_too_large')
  const isPacked = isGzip(request)
  const owner = budgetOwner(request)
  const held = budget.hold(owner)
  request.held = held
  const gunzip = isPacked ? createGunzip() : undefined
  let pieces: Buffer[] = []
  let received = 0
  let size = 0
  let refused: Error | undefined
  let isOver = false

  const end = (error?: Error): void => {
    if (isOver) return
    isOver = true
    payload.off('data', onReceived).off('end', onEnd).off('error', onError).off('close', onClose)
    gunzip?.off('data', onPiece).destroy()
    const whole = pieces
    pieces = []
    try {
      const fault = error ?? refused
      if (fault) throw fault
      // Counted before parsing, which blocks all requests, and by inflated size.
      limiter.take('BODY_BYTES', owner, size)
      // Agents have limits of their own, of what is stored.
      if (isOfTenant(request)) limiter.take('BODY_BYTES_HOURLY', owner, size)
      understand(textOf(whole, size), (fault, value) => {
        if (fault) held.release()
        done(fault, value)
      })
    } catch (fault) {
      held.release()
      done(fault as Error)
    }
  }
  const refuse = (problem: Error): void => {
    if (refused) return
    refused = problem
    pieces = []
    held.release()
    if (!gunzip) return
    payload.unpipe(gunzip)
    gunzip.off('data', onPiece).destroy()
    payload.once('end', onEnd).resume()
    if (payload.readableEnded) end()
  }
  const onReceived = (piece: Buffer): void => {
    received += piece.length
    if (received > bodyLimit) end(new Problem('payload_too_large'))
    else if (!gunzip) onPiece(piece)
  }
  const onPiece = (piece: Buffer): void => {
    if (refused) return
    size += piece.length
    // Attack: a gzip bomb. Inflation stops at the limit of the route.
    try {
      if (size > bodyLimit) throw new Problem('payload_too_large')
      if (size > ratioFrom && size > received * maxRatio)
        throw new Problem('payload_too_large', packedTooWell)
      held.grow(piece.length)
      pieces.push(piece)
    } catch (problem) {
      refuse(problem as Problem)
    }
  }
  const onEnd = (): void => end()
  const onError = (error: Error): void => end(Object.assign(error, { statusCode: 400 }))

  // Whoever hangs up halfway leaves nothing that is counted.
  const onClose = (): void => {
    if (!payload.readableEnded) end(invalid([{ path: 'body', message: 'ended too early' }]))
  }

  payload.on('data', onReceived).on('error', onError).on('close', onClose)
  if (gunzip) {
    gunzip.on('data', onPiece).once('end', onEnd)
    gunzip.on('error', () => {
      if (!isOver && !refused) end(invalid([{ path: 'body', message: 'is not gzip' }]))
    })
    try {
      held.grow(gunzipBytes)
      payload.pipe(gunzip)
    } catch (problem) {
      refuse(problem as Problem)
    }
  } else {
    payload.once('end', onEnd)
  }
  payload.resume()
}

/** @throws unsupported_media_type */
function isGzip({ headers, routeOptions }: FastifyRequest): boolean {
  const { 'content-encoding': encoding = 'identity' } = headers
  if (!(routeOptions.config as { gzip?: boolean }).gzip || encoding === 'identity') return false
  if (encoding === 'gzip') return true
  throw new Problem('unsupported_media_type', 'Content-Encoding must be gzip or absent')
}

const textOf = (pieces: Buffer[], size: number): string =>
  pieces.length === 1 ? pieces[0]!.toString('utf8') : Buffer.concat(pieces, size).toString('utf8')

/** The owner of the budget for a body. */
export function budgetOwner({ caller = { kind: 'nobody' }, client }: FastifyRequest): string {
  if (caller.kind === 'nobody') return `network ${networkOf(client.ip)}`
  return caller.kind === 'agent' ? agentOwner(caller.agentId) : `${caller.kind} ${caller.id}`
}

/** Sent by a user, key or workload. */
const isOfTenant = ({ caller }: FastifyRequest): boolean => caller !== undefined && 'scope' in caller

/** The same for frames of a WebSocket (gateway.ts). */
export const agentOwner = (agentId: string): string => `agent ${agentId}`
